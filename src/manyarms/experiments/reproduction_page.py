"""The Markdown page of a reproduction: claims, verdicts, figures and settings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from manyarms._version import __version__
from manyarms.experiments.cell import Table
from manyarms.experiments.claim import Claim, ClaimResult, Decision, MethodComparison
from manyarms.experiments.figure import Figure, HeadToHead, Size

MARKS = {"holds": "✅ holds", "does not hold": "❌ does not hold", "undecided": "◽ undecided", "not run": "not run"}

Rows = list[tuple[str, MethodComparison, Decision]]
"""The content of a table of comparisons: the head of a row, the comparison and its decision."""

SIGNS = {"for": "+", "against": "−", "tie": "=", "open": "·"}

HOW_VERDICTS_ARE_MADE = """\
Every comparison of methods is paired: both see the same instances and the same logs. A claim **holds** when each of its
comparisons is either decided in its favour by a one-sided t-test at 5 %, or tied, and not all are tied. It **does not
hold** when at least one comparison is decided against it, at 5 % shared among all of them (Bonferroni). Otherwise it is
**undecided**. Relative rewards are tied when they differ by less than 0.001, with 95 % confidence. Agreement with
reference numbers, and coverage, count in favour within two standard errors. They count against by a two-sided test,
again at 5 % shared among all comparisons. In the tables, + means for the claim, − against it, = a tie, and · open.

Figures show means over instances with one standard error. MSE is the mean squared error of the estimated value of the
target. The relative reward is the true value of the learned policy divided by that of the best policy.
"""

DECIDED_AFTER = """\
The following was decided after results had been seen:

- the margin of a tie, and the rules for agreement and coverage;
- that coverage allows for the error of a truth computed on 2,000 contexts (without it, sDM covers 74 % at n = 10,000);
- more instances for grid-opl (50 to 200) and for the gradient learners of misspecified-likelihood (10 to 30), because
  one comparison was still open in each;
- fewer instances for coverage, movielens-epsilon-greedy and movielens-halves, and only three log sizes for clicks in
  coverage, to save time;
- three claims were removed, all undecided at the time. Two were about movielens-epsilon-greedy: that sDM has the
  smallest squared error, and that IPS beats DR and snIPS. The paper's text makes these claims only for learning and for
  synthetic problems. The third was our own: that on MovieLens a log of 100 rounds makes sDM better than its prior alone
  (-0.023 ± 0.013).
"""


@dataclass(frozen=True)
class PageFigure:
    """A figure on the page.

    Attributes:
        figure: The figure.
        table: Its results.
        head_to_heads: The user methods in it, compared with the others.
        caveats: What is missing from its data, in words.
    """

    figure: Figure
    table: Table
    head_to_heads: Sequence[HeadToHead] = ()
    caveats: Sequence[str] = ()


def reproduction_page(
    figures: Sequence[PageFigure], size: Size, images: Path, path: Path, command: str, *, published: bool
) -> str:
    """The text of the page.

    Args:
        figures: The figures to show, in order.
        size: The size that was run.
        images: The folder that has the figures, as NAME.svg.
        path: The path of the page; links to images are relative to its folder.
        command: The command that makes it again.
        published: Whether this is the whole published run, whose history belongs on the page.
    """
    results = [(shown, *pair) for shown in figures for pair in shown.figure.test_claims(shown.table, size)]
    lines = [
        "# The paper, reproduced",
        "",
        f"Written by `{command}` (manyarms {__version__}) from the rows beside the figures: edits here are lost. "
        "The paper is Aouali, Brunel, Rohde and Korba, *Bayesian Off-Policy Evaluation and Learning for Large Action "
        "Spaces*, AISTATS 2025. We know its figures by what its text says about them. Each such claim is tested below.",
        "",
        HOW_VERDICTS_ARE_MADE,
        *([DECIDED_AFTER] if published else []),
        *(f"**{shown.figure.name}: {caveat}.**\n" for shown in figures for caveat in shown.caveats),
        "## Claims and verdicts",
        "",
        "| figure | claim | verdict | |",
        "|---|---|---|---|",
        *(
            f"| [{shown.figure.name}](#{shown.figure.name}) | {_cell(claim.text)} | {MARKS[result.verdict]} "
            f"| {result} |"
            for shown, claim, result in results
        ),
        "",
    ]
    for shown in figures:
        claims = [(claim, result) for other, claim, result in results if other is shown]
        lines += _section(shown, claims, size, images, path)
    return "\n".join(lines).rstrip() + "\n"


def _section(
    shown: PageFigure, claims: list[tuple[Claim, ClaimResult]], size: Size, images: Path, path: Path
) -> list[str]:
    figure, table = shown.figure, shown.table
    link = Path(os.path.relpath(images / f"{figure.name}.svg", path.parent)).as_posix()
    lines = [
        f"## {figure.name}",
        "",
        f"**{figure.title}.** " + (f"In the paper: {figure.where}." if figure.where else "Not in the paper."),
        "",
        f"![{figure.title}]({link})",
        "",
        *(f"**Note: this is {caveat}.**\n" for caveat in shown.caveats),
    ]
    for head_to_head in shown.head_to_heads:
        lines += [*_head_to_head_table(head_to_head), ""]
    for claim, result in claims:
        lines += [f"**{MARKS[result.verdict]}**: {claim.text} ({result})", ""]
        # Remarks were written for the paper-size run and hold for no other.
        if claim.remark and size.is_paper:
            lines += [claim.remark, ""]
        comparisons: Rows = [(c.title, c, result.decision(c)) for c in result.comparisons]
        lines += [*_details("comparisons", _pivot(comparisons)), ""]
    if figure.note:
        lines += [f"*Settings.* {figure.note} {_instances(figure, table)}", ""]
    lines += [*_details("time and memory of each method", _costs(figure, table)), ""]
    return lines


def _head_to_head_table(pair: HeadToHead) -> list[str]:
    """A user method compared with the others: a row for each of them, a column for each number of rounds."""
    rows: Rows = [(f"over {rival}", comparison, comparison.decision()) for rival, comparison in pair.comparisons]
    return [
        f"**{_cell(pair.method)} against each method: {_cell(pair.panel.title)}** ({pair.unit}, paired; + "
        "where it is better, − where it is worse, each by a one-sided t-test at 5 %)",
        "",
        *_pivot(rows),
    ]


def _pivot(comparisons: Rows) -> list[str]:
    """A table with a row for each title and a column for each setting."""
    rows = list(dict.fromkeys(title for title, _, _ in comparisons))
    columns = list(dict.fromkeys(comparison.column for _, comparison, _ in comparisons))
    cells = {
        (title, comparison.column): f"{_cell(comparison.numbers)} {SIGNS[decision]}"
        for title, comparison, decision in comparisons
        if comparison.count >= 2
    }
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for row in rows:
        lines.append(f"| {_cell(row)} | {' | '.join(cells.get((row, column), '') for column in columns)} |")
    return lines


def _costs(figure: Figure, table: Table) -> list[str]:
    lines = ["| | method | n | CPU time | memory |", "|---|---|---|---|---|"]
    for panel in figure.panels:
        for method in panel.methods:
            n = max(table.rounds(panel.problem.label, panel.kind, method), default=None)
            if n is None:
                continue
            outcomes = table.outcomes(panel.problem.label, panel.kind, method, n)
            seconds = float(np.median([outcome.seconds for outcome in outcomes.values()]))
            peak = max((o.peak_bytes for o in outcomes.values() if o.peak_bytes is not None), default=None)
            memory = "" if peak is None else f"{peak / 1e6:.1f} MB"
            lines.append(f"| {_cell(panel.title)} | {_cell(method)} | {n:,} | {_time(seconds)} | {memory} |")
    return lines


def _instances(figure: Figure, table: Table) -> str:
    """The numbers of instances in the rows, as a sentence."""
    counts = {
        len(table.outcomes(panel.problem.label, panel.kind, method, n))
        for panel in figure.panels
        for method in panel.methods
        for n in table.rounds(panel.problem.label, panel.kind, method)
    }
    if not counts:
        return "Not run."
    return f"Instances: {' and '.join(str(count) for count in sorted(counts, reverse=True))}."


def _details(summary: str, lines: Iterable[str]) -> list[str]:
    """Lines that are folded away until the reader opens them."""
    return ["<details markdown>", f"<summary>{summary}</summary>", "", *lines, "", "</details>"]


def _cell(text: str) -> str:
    """Text that can neither end a table cell nor start a tag."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").replace("\n", " ")


def _time(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"
