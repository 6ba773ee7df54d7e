"""The figures of `manyarms reproduce`: chosen, run, and printed on a terminal with their verdicts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import typer
from rich.console import Console
from rich.text import Text

from manyarms.cli.terminal import INTERRUPTED, cell_bar, fail, visible
from manyarms.errors import DataFileError, InputError
from manyarms.experiments.figure import PAPER_SIZE, QUICK, Figure, HeadToHead, Size
from manyarms.experiments.methods import check_method_names
from manyarms.experiments.reproduction import SOURCES, Reproduction

COLOURS = {"holds": "green", "does not hold": "red", "undecided": "yellow", "not run": "dim", "not testable": "dim"}

AGAINST = {"for": "better than", "against": "worse than", "tie": "tied with", "open": "open against"}

WIDTH = 14
"""Characters of the longest verdict and a space."""


def choose_figures(names: list[str], everything: bool, known: dict[str, Figure]) -> list[Figure]:
    """The figures to run: those with these names, or all of them."""
    check_method_names(names, known, "figure")
    if everything:
        return list(known.values())
    if not names:
        raise InputError("no figure was named.", "Name one, or pass --all. `manyarms reproduce --list` shows them.")
    return [known[name] for name in dict.fromkeys(names)]


def choose_size(quick: bool, paper: bool, instances: int | None) -> Size:
    """The size at which to run figures, by the flags --quick, --paper and --instances."""
    if quick and paper:
        raise InputError("--quick and --paper cannot be used together.", "Pass one of them.")
    size = PAPER_SIZE if paper else QUICK
    if instances is None:
        return size
    return replace(size, instances=instances, slow_instances=min(instances, size.slow_instances), exact=True)


def reproduce_all(chosen: list[Figure], work: Reproduction, *, compute: bool = True) -> dict[str, str]:
    """Reproduce and print figure after figure; those without data are returned with the reason, if there are others.

    Without `compute`, figures are drawn from the rows that are there.
    """
    missing: dict[str, str] = {}
    for number, figure in enumerate(chosen, start=1):
        try:
            if compute:
                with cell_bar(f"{figure.name} ({number} of {len(chosen)})") as bar:
                    work.run(figure, progress=bar.progress, on_interrupt=bar.on_interrupt)
            work.draw(figure)
            _print_figure(figure, work)
        except DataFileError as reason:
            missing[figure.name] = _data_error_line(reason, figure.data)
            if len(chosen) == 1:
                fail(missing[figure.name])
        except KeyboardInterrupt:
            typer.echo("Stopped. Finished cells are kept; run the same command again to continue.", err=True)
            raise typer.Exit(INTERRUPTED) from None
    return missing


def print_figures(figures: Iterable[Figure]) -> None:
    """Print every figure that can be run, with its claims."""
    console = Console(highlight=False)
    for figure in figures:
        line = Text(figure.name, style="bold")
        line.append(f"  {figure.title} ({figure.where or 'not in the paper'})", style="none")
        if figure.data is not None:
            line.append(f"  needs {figure.data}", style="dim")
        console.print(line, soft_wrap=True)
        for claim in figure.claims:
            console.print(Text(f"  - {claim.text}"), soft_wrap=True)


def _print_figure(figure: Figure, work: Reproduction) -> None:
    """Print the verdicts of a figure and the paths of its drawings."""
    console = Console(highlight=False)
    console.print(Text(f"{figure.name}: {figure.title}", style="bold"), soft_wrap=True)
    for caveat in work.caveats(figure):
        console.print(Text(visible(f"  {caveat}"), style="yellow"), soft_wrap=True)
    for claim, result in work.test_claims(figure):
        line = Text(f"  {result.verdict:<{WIDTH}}", style=COLOURS[result.verdict])
        line.append(visible(f"{claim.text} ({result})"), style="none")
        console.print(line, soft_wrap=True)
    for head_to_head in work.head_to_heads(figure):
        console.print(Text(visible(f"  {_head_to_head_line(head_to_head)}")), soft_wrap=True)
    console.print(
        Text(visible(f"  saved as {work.folder / figure.name}.svg, .pdf and .png"), style="dim"), soft_wrap=True
    )


def _head_to_head_line(pair: HeadToHead) -> str:
    """A user method against the others at the largest number of rounds; the page has all numbers of rounds."""
    n = max(comparison.rounds[0] for _, comparison in pair.comparisons)
    decisions = {rival: comparison.decision() for rival, comparison in pair.comparisons if comparison.rounds == (n,)}
    groups = {
        words: [r for r, decision in decisions.items() if decision == wanted] for wanted, words in AGAINST.items()
    }
    results = "; ".join(f"{words} {', '.join(rivals)}" for words, rivals in groups.items() if rivals)
    return f"{pair.method} by {pair.unit}, {pair.panel.title}, n = {n:,}: {results}"


def _data_error_line(error: DataFileError, name: str | None) -> str:
    """An error about missing or damaged data, with the flags that help; `name` is the folder that the figure needs."""
    if not error.remedy or name is None:
        return str(error)
    source = SOURCES.get(name)
    remedy = error.remedy if source is None else source.where
    fetch = "" if source is None else f" Or pass --download: {source.cost}."
    return f"{error.problem} {remedy} Put it into {name}/ in the folder that --data names.{fetch}"
