"""The page of a reproduction, in Markdown: claims, verdicts, figures, settings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from manyarms._version import __version__
from manyarms.experiments.claim_parts import Comparison
from manyarms.experiments.figure import Claim, Decision, Figure, Finding, Size
from manyarms.experiments.head_to_head import Standing
from manyarms.experiments.result_table import Table

MARKS = {"holds": "✅ holds", "does not hold": "❌ does not hold", "undecided": "◽ undecided", "not run": "not run"}

Rows = list[tuple[str, Comparison, Decision]]
"""What a table has: the head of a row, what is compared, and how that came out."""

SIGNS = {"for": "+", "against": "−", "tie": "=", "open": "·"}

METHOD_OF_VERDICTS = """\
Every comparison of methods is paired: both see the same instances and the same logs. A claim **holds** when each of its
comparisons is decided in its favour by a one-sided t-test at 5 %, or tied and not all tied; it **does not hold** when
one is decided against it at 5 % shared among all (Bonferroni); else it is **undecided**. Relative rewards are tied
when they differ by less than 0.001, with 95 % confidence. Agreement with figures from elsewhere, and coverage, count in
favour within two standard errors, and against by a two-sided test, shared among all likewise. In the tables + is for
the claim, − against it, = a tie, · open.

Figures show means over instances with one standard error. MSE is the mean squared error of the estimated value of the
target; the relative reward is the true value of the learned policy over that of the best one.
"""

DECIDED_AFTER = """\
What was decided after results had been seen: the margin of a tie, and how agreement and coverage are judged; that
coverage allows for the error of a truth taken on 2,000 contexts (without it sDM covers 74 % at n = 10,000); more
instances for grid-opl (50 to 200) and for the gradient learners of misspecified-likelihood (10 to 30), each left
open by one comparison; fewer, for want of time, for coverage, movielens-epsilon-greedy and movielens-halves, and
three sizes of log for clicks in coverage. Three claims were taken off, all undecided then: on movielens-epsilon-
greedy that sDM has the smallest squared error and that IPS beats DR and snIPS, which the paper's text says of
learning and of synthetic problems only; and, our own, that on MovieLens a log of 100 rounds makes sDM better than
its prior alone (-0.023 ± 0.013).
"""


@dataclass(frozen=True)
class Shown:
    """A figure on the page.

    Attributes:
        figure: What is shown.
        table: Its results.
        standings: Methods of one's own in it, against the others.
        caveats: What its data lacks, in words.
    """

    figure: Figure
    table: Table
    standings: Sequence[Standing] = ()
    caveats: Sequence[str] = ()


def page(figures: Sequence[Shown], size: Size, images: Path, beside: Path, command: str, *, published: bool) -> str:
    """Everything on one page.

    Args:
        figures: Those to show, in order.
        size: What was asked for.
        images: The folder that has the figures, as NAME.svg.
        beside: Where the page will lie; links to images are relative to its folder.
        command: What to run to get it again.
        published: Whether this is the whole run that was published, whose history belongs on the page.
    """
    found = [(shown, *pair) for shown in figures for pair in shown.figure.findings(shown.table, size)]
    lines = [
        "# The paper, reproduced",
        "",
        f"Written by `{command}` (manyarms {__version__}) from the rows beside the figures; edits are lost. The paper: "
        "Aouali, Brunel, Rohde and Korba, *Bayesian Off-Policy Evaluation and Learning for Large Action Spaces*, "
        "AISTATS 2025. Its figures are known to us by what its text says of them; each such claim is tested below.",
        "",
        METHOD_OF_VERDICTS,
        *([DECIDED_AFTER] if published else []),
        *(f"**{shown.figure.name}: {caveat}.**\n" for shown in figures for caveat in shown.caveats),
        "## Claims and verdicts",
        "",
        "| figure | claim | verdict | |",
        "|---|---|---|---|",
        *(
            f"| [{shown.figure.name}](#{shown.figure.name}) | {_cell(claim.text)} | {MARKS[finding.verdict]} "
            f"| {finding} |"
            for shown, claim, finding in found
        ),
        "",
    ]
    for shown in figures:
        claims = [(claim, finding) for other, claim, finding in found if other is shown]
        lines += _section(shown, claims, size, images, beside)
    return "\n".join(lines).rstrip() + "\n"


def _section(shown: Shown, claims: list[tuple[Claim, Finding]], size: Size, images: Path, beside: Path) -> list[str]:
    figure, table = shown.figure, shown.table
    link = Path(os.path.relpath(images / f"{figure.name}.svg", beside.parent)).as_posix()
    lines = [
        f"## {figure.name}",
        "",
        f"**{figure.title}.** " + (f"In the paper: {figure.where}." if figure.where else "Not in the paper."),
        "",
        f"![{figure.title}]({link})",
        "",
        *(f"**Mind that this is {caveat}.**\n" for caveat in shown.caveats),
    ]
    for standing in shown.standings:
        lines += [*_against(standing), ""]
    for claim, finding in claims:
        lines += [f"**{MARKS[finding.verdict]}**: {claim.text} ({finding})", ""]
        # Remarks were written on the paper-size run and are true of no other.
        if claim.remark and size.is_paper:
            lines += [claim.remark, ""]
        comparisons: Rows = [(c.what, c, finding.decision(c)) for c in finding.comparisons]
        lines += [*_details("comparisons", _pivot(comparisons)), ""]
    if figure.note:
        lines += [f"*Settings.* {figure.note} {_instances(figure, table)}", ""]
    lines += [*_details("time and memory of each method", _costs(figure, table)), ""]
    return lines


def _against(standing: Standing) -> list[str]:
    """A method of one's own, and what it is compared with: down the others, across the rounds."""
    matches: Rows = [(f"over {match.rival}", match.comparison, match.decision) for match in standing.matches]
    return [
        f"**{_cell(standing.method)} against each method: {_cell(standing.panel.title)}** ({standing.unit}, paired; + "
        "where it is better, − where worse, each by a one-sided t-test at 5 %)",
        "",
        *_pivot(matches),
    ]


def _pivot(comparisons: Rows) -> list[str]:
    """What is compared down, where across."""
    rows = list(dict.fromkeys(what for what, _, _ in comparisons))
    columns = list(dict.fromkeys(comparison.at for _, comparison, _ in comparisons))
    cells = {(what, comparison.at): (comparison, decision) for what, comparison, decision in comparisons}
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for row in rows:
        found = (cells.get((row, column)) for column in columns)
        words = ("" if one is None or one[0].count < 2 else f"{_cell(one[0].words)} {SIGNS[one[1]]}" for one in found)
        lines.append(f"| {_cell(row)} | {' | '.join(words)} |")
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
    """How many instances the rows hold."""
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
    """Folded away until asked for."""
    return ["<details markdown>", f"<summary>{summary}</summary>", "", *lines, "", "</details>"]


def _cell(text: str) -> str:
    """Text that cannot end a cell of a table, nor start a tag."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").replace("\n", " ")


def _time(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"
