"""Figures and verdicts of `manyarms reproduce`, printed on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from manyarms.errors import DataFileError
from manyarms.experiments.figure import Figure, HeadToHead
from manyarms.experiments.reproduction import SOURCES, Reproduction

COLOURS = {"holds": "green", "does not hold": "red", "undecided": "yellow", "not run": "dim"}

AGAINST = {"for": "better than", "against": "worse than", "tie": "tied with", "open": "open against"}

WIDTH = 14
"""Characters of the longest verdict and a space."""


def print_list(figures: Sequence[Figure]) -> None:
    """Print every figure with its claims."""
    console = Console(highlight=False)
    for figure in figures:
        line = Text(figure.name, style="bold")
        line.append(f"  {figure.title} ({figure.where or 'not in the paper'})", style="none")
        if figure.data is not None:
            line.append(f"  needs {figure.data}", style="dim")
        console.print(line, soft_wrap=True)
        for claim in figure.claims:
            console.print(Text(f"  - {claim.text}"), soft_wrap=True)


def print_figure(figure: Figure, work: Reproduction) -> None:
    """Print the verdicts of a figure and the paths of its drawings."""
    console = Console(highlight=False)
    console.print(Text(f"{figure.name}: {figure.title}", style="bold"), soft_wrap=True)
    for caveat in work.caveats(figure):
        console.print(Text(f"  {caveat}", style="yellow"), soft_wrap=True)
    for claim, result in work.test_claims(figure):
        line = Text(f"  {result.verdict:<{WIDTH}}", style=COLOURS[result.verdict])
        line.append(f"{claim.text} ({result})", style="none")
        console.print(line, soft_wrap=True)
    for head_to_head in work.head_to_heads(figure):
        console.print(Text(f"  {_head_to_head_line(head_to_head)}"), soft_wrap=True)
    console.print(Text(f"  saved as {work.folder / figure.name}.svg and .png", style="dim"), soft_wrap=True)


def _head_to_head_line(pair: HeadToHead) -> str:
    """A user method against the others at the largest number of rounds; the page has all numbers of rounds."""
    n = max(comparison.rounds[0] for _, comparison in pair.comparisons)
    decisions = {rival: comparison.decision() for rival, comparison in pair.comparisons if comparison.rounds == (n,)}
    rivals = {
        words: ", ".join(rival for rival, decision in decisions.items() if decision == wanted)
        for wanted, words in AGAINST.items()
    }
    counts = "; ".join(f"{words} {names}" for words, names in rivals.items() if names)
    return f"{pair.method} by {pair.unit}, {pair.panel.title}, n = {n:,}: {counts}"


def data_error_line(error: DataFileError, name: str | None) -> str:
    """An error about missing or damaged data, with the flags that help.

    Args:
        error: The error of the library.
        name: The folder of data that the figure needs.
    """
    if not error.remedy or name is None:
        return str(error)
    source = SOURCES.get(name)
    remedy = error.remedy if source is None else source.where
    fetch = "" if source is None else f" Or pass --download: {source.cost}."
    return f"{error.problem} {remedy} Put it into {name}/ in the folder that --data names.{fetch}"
