"""The parts of the page of a reproduction, as lines of Markdown: texts, verdicts, comparisons, instances and costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import TypeAlias

import numpy as np

from manyarms.experiments.cell import Table
from manyarms.experiments.claim import Claim, ClaimResult, Verdict, level_against
from manyarms.experiments.figure import Figure
from manyarms.experiments.method_comparison import Decision, MethodComparison
from manyarms.experiments.paper_text import PAPER_TEXT

MARKS = {
    "holds": "✓ holds",
    "does not hold": "✗ does not hold",
    "undecided": "○ undecided",
    "not run": "not run",
    "not testable": "not testable",
    None: "–",
}

SIGNS = {"for": "+", "against": "−", "tie": "=", "open": "·"}

MANY_EXCEPTIONS = 12
"""With more exceptions than this, the page counts them instead of naming them."""

Tested: TypeAlias = Sequence[tuple[Figure, Claim, ClaimResult]]
"""Claims with the figures they are about, and the results of testing them."""


def page_text(name: str) -> str:
    """A text of the page that is written by hand."""
    return (files("manyarms.experiments") / "page_texts" / f"{name}.md").read_text("utf-8")


def cell_text(text: str) -> str:
    """Text that can neither end a table cell nor start a tag."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").replace("\n", " ")


def folded_lines(summary: str, lines: Iterable[str]) -> list[str]:
    """Lines of the reproduction page that are folded away until the reader opens them."""
    return ["<details markdown>", f"<summary>{summary}</summary>", "", *lines, "", "</details>", ""]


def _mark(verdict: Verdict | None, against: int) -> str:
    """A verdict with its sign; one that holds says how many comparisons are against it all the same."""
    return MARKS[verdict] + (f" ({against} against)" if verdict == "holds" and against else "")


def verdict_marks(result: ClaimResult) -> tuple[str, str]:
    """The verdicts of a claim as marks on the reproduction page: at every n, and averaged over n."""
    return _mark(result.verdict, result.against), _mark(result.averaged_verdict, result.averaged_against)


def exceptions(comparisons: Sequence[MethodComparison]) -> str:
    """The comparisons that were decided against a claim, or left open, in words; only their number if they are many."""
    level, parts = level_against(comparisons), list[str]()
    for words, decision in (("Against", "against"), ("Open", "open")):
        columns: dict[str, list[str]] = {}
        for comparison in comparisons:
            if comparison.count >= 2 and comparison.decision(level) == decision:
                columns.setdefault(comparison.title, []).append(comparison.column)
        if (total := sum(map(len, columns.values()))) > MANY_EXCEPTIONS:
            rows = f"{len(columns)} row{'s' if len(columns) > 1 else ''}"
            parts.append(f"{words}: {total} comparisons in {rows} of the table below.")
        elif columns:
            named = (f"{title} ({', '.join(at).replace(', n = ', ', ')})" for title, at in columns.items())
            parts.append(f"{words}: {'; '.join(named)}.")
    return " ".join(parts)


def paper_table(tested: Tested, everything: bool) -> list[str]:
    """The sentences of the paper with verdicts; those that no claim quotes only on a page of everything."""
    lines = ["## The paper's words, with verdicts", "", "| section | the paper | tested as | at every n | averaged | |"]
    lines += ["|---|---|---|---|---|---|"]
    for sentence in PAPER_TEXT:
        words = f"“{cell_text(sentence.words)}”"
        if sentence.reason:
            lines += [f"| {sentence.section} | {words} | {cell_text(sentence.reason)} | | | |"] * everything
        for figure, claim, result in tested:
            if sentence.words in claim.quotes:
                test = f"[{figure.name}](#{figure.name}): {cell_text(claim.text)}"
                verdicts = " | ".join(verdict_marks(result))
                lines.append(f"| {sentence.section} | {words} | {test} | {verdicts} | {result} |")
    return [*lines, ""]


def own_table(tested: Tested) -> list[str]:
    """The claims that quote nothing, with verdicts."""
    lines = ["## Our own claims", "", "| figure | claim | at every n | averaged | |", "|---|---|---|---|---|"]
    for figure, claim, result in tested:
        if not claim.quotes:
            verdicts = " | ".join(verdict_marks(result))
            lines.append(f"| [{figure.name}](#{figure.name}) | {cell_text(claim.text)} | {verdicts} | {result} |")
    return [*lines, ""]


def comparison_table(comparisons: Sequence[tuple[str, MethodComparison, Decision]]) -> list[str]:
    """A table of the reproduction page with comparisons: a row for each title, and a column for each setting."""
    rows = list(dict.fromkeys(title for title, _, _ in comparisons))
    columns = list(dict.fromkeys(comparison.column for _, comparison, _ in comparisons))
    cells = {
        (title, comparison.column): f"{cell_text(comparison.numbers)} {SIGNS[decision]}"
        for title, comparison, decision in comparisons
        if comparison.count >= 2
    }
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for row in rows:
        lines.append(f"| {cell_text(row)} | {' | '.join(cells.get((row, column), '') for column in columns)} |")
    return lines


Instances: TypeAlias = Mapping[tuple[str, str], tuple[int, int, int]]
"""The fewest and most instances that a method was run on over all n, and those wanted; by panel and method."""


def missing_lines(instances: Mapping[str, Instances]) -> list[str]:
    """The warning of the reproduction page about figures that lack instances of a method; empty if none does."""
    lines = ["| figure | fewest instances of a method, of those wanted |", "|---|---|"]
    for name, counts in instances.items():
        methods: dict[str, dict[str, None]] = {}
        for (_, method), (least, _, wanted) in counts.items():
            if least < wanted:
                methods.setdefault(f"{least} of {wanted}", {})[cell_text(method)] = None
        if methods:
            words = "; ".join(f"{share}: {' / '.join(names)}" for share, names in methods.items())
            lines.append(f"| [{name}](#{name}) | {words} |")
    if len(lines) == 2:
        return []
    title = "**Not all instances have been run.** A method with few instances leaves more comparisons open."
    return [title, "", *lines, ""]


def instances_table(instances: Instances) -> list[str]:
    """A table of the reproduction page: the instances that each method of a figure was run on, and those wanted."""
    lines = ["| | method | instances | wanted |", "|---|---|---|---|"]
    for (panel, method), (least, most, wanted) in instances.items():
        shown = f"{least}" if least == most else f"{least} to {most}"
        lines.append(f"| {cell_text(panel)} | {cell_text(method)} | {shown} | {wanted} |")
    return lines


def cost_table(figure: Figure, table: Table) -> list[str]:
    """A table of the reproduction page: the CPU time (median) and memory (peak) of each method at the largest n."""
    lines = ["| | method | n | CPU time | memory |", "|---|---|---|---|---|"]
    for panel in figure.panels:
        for method in panel.methods:
            n = max(table.rounds(panel.problem.label, panel.kind, method), default=None)
            if n is None:
                continue
            outcomes = table.outcomes(panel.problem.label, panel.kind, method, n)
            seconds = float(np.median([outcome.seconds for outcome in outcomes.values()]))
            if not np.isfinite(seconds):
                continue
            time = f"{1000 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"
            peak = max((o.peak_bytes for o in outcomes.values() if o.peak_bytes is not None), default=None)
            memory = "" if peak is None else f"{peak / 1e6:.1f} MB"
            lines.append(f"| {cell_text(panel.title)} | {cell_text(method)} | {n:,} | {time} | {memory} |")
    return lines
