"""How figures and verdicts look on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from manyarms.experiments.figures import Figure
from manyarms.report.reproduction import Reproduction

COLOURS = {"holds": "green", "does not hold": "red", "undecided": "yellow", "not run": "dim"}

WIDTH = 14
"""Of the longest verdict, and a space."""


def print_list(figures: Sequence[Figure]) -> None:
    """Every figure with its claims."""
    console = Console(highlight=False)
    for figure in figures:
        line = Text(figure.name, style="bold")
        line.append(
            f"  {figure.title}" + (f" ({figure.where})" if figure.where else " (not in the paper)"), style="none"
        )
        if figure.data is not None:
            line.append(f"  needs {figure.data}", style="dim")
        console.print(line, soft_wrap=True)
        for claim in figure.claims:
            console.print(Text(f"  - {claim.text}"), soft_wrap=True)


def print_figure(figure: Figure, work: Reproduction) -> None:
    """Verdicts, and where the figure is."""
    console = Console(highlight=False)
    console.print(Text(f"{figure.name}: {figure.title}", style="bold"), soft_wrap=True)
    for claim, finding in work.findings(figure):
        line = Text(f"  {finding.verdict:<{WIDTH}}", style=COLOURS[finding.verdict])
        line.append(f"{claim.text} ({finding})", style="none")
        console.print(line, soft_wrap=True)
    console.print(Text(f"  drawn as {work.folder / figure.name}.svg and .png", style="dim"), soft_wrap=True)
