"""`manyarms bench`: how fast every stage is here, and what became slower between two runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from manyarms._base.files import check_output, check_output_folder
from manyarms.cli import flags_and_spec as f
from manyarms.cli import terminal
from manyarms.errors import InputError

if TYPE_CHECKING:
    from manyarms.bench.run_stages import BenchPlan
    from manyarms.bench.speed_rows import SpeedComparison, SpeedRows

# What the command calls is imported in it, so that `--help` loads no numerical library.
# ruff: noqa: PLC0415

SLOWER_EXIT = 3
"""The exit code where something became slower."""


def bench_command(
    stages: Annotated[
        list[str] | None,
        typer.Argument(metavar="STAGE...", help="Stages to time (default: all). --list shows their names."),
    ] = None,
    list_stages: Annotated[bool, typer.Option("--list", help="List the stages and exit.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Use large sizes, up to a million actions. Takes about twenty minutes.")
    ] = False,
    rows: Annotated[Path | None, typer.Option("--rows", help="JSON file to write the measurements to.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write a results page to, with a table and charts.")
    ] = None,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option("--compare", metavar="OLD NEW", help="Compare two files written with --rows, and time nothing."),
    ] = None,
    seed: f.Seed = 0,
    as_json: f.Json = False,
) -> None:
    """Time each part of the library, and compare it with other implementations.

    A part is called a stage: a fit, for example, or the value of a policy, or a
    greedy choice. Each stage is timed with several numbers of actions, rounds
    and features. It is compared with a plain Python loop, with the textbook
    formula in NumPy, with other libraries if they are installed, and with the
    shortest time that the hardware could allow. Their answers are compared as
    well. This takes about a minute, or twenty minutes with --full.

    --compare OLD NEW lists the stages that became slower between two runs. The
    exit code is then 3 if there are any, and 0 otherwise.
    """
    with terminal.one_line_errors():
        from manyarms.bench.run_stages import FULL, SMALL, run_stages
        from manyarms.bench.speed_rows import SpeedRows, compare_speed
        from manyarms.bench.stages import STAGES
        from manyarms.cli.print_results import print_json

        if list_stages:
            terminal.say("\n".join(STAGES))
            return
        if compare is not None:
            if stages or rows is not None or out is not None:
                raise InputError("runs nothing, so no stages and no outputs can be named.", argument="compare")
            changes = compare_speed(*(SpeedRows.load(path) for path in compare))
            _print_comparison(changes, as_json)
            raise typer.Exit(SLOWER_EXIT if changes.slower else 0)
        plan = FULL if full else SMALL
        if rows is not None:
            check_output(rows, "rows")
        if out is not None:
            check_output_folder(out, "a page has charts beside it", "pass --rows")
        with terminal.cell_bar("timing") as bar:
            measured = run_stages(stages or (), plan=plan, seed=seed, progress=bar.progress)
        if rows is not None:
            measured.save(rows)
        if out is not None:
            from manyarms.bench.speed_page import write_page

            named = "".join(f" {stage!r}" if " " in stage else f" {stage}" for stage in stages or ())
            write_page(measured, plan, out, f"manyarms bench{named}{' --full' * full}")
        if as_json:
            print_json(measured.content())
        else:
            _print_speed(measured, plan)
            for path in (rows, out):
                if path is not None:
                    terminal.say(f"Written: {path}")


def _print_speed(rows: SpeedRows, plan: BenchPlan) -> None:
    from manyarms.bench.speed_page import EXPLANATION, table_lines

    _print_lines(table_lines(rows, plan))
    terminal.say(f"\n{EXPLANATION.replace('*', '')}")


def _print_comparison(changes: SpeedComparison, as_json: bool) -> None:
    if as_json:
        from manyarms.cli.print_results import print_json

        print_json({"machine": changes.machine, "slower": changes.slower, "rows": changes.records()})
        return
    head = ["stage", "K", "n", "d", "before, CPU s", "after, CPU s", "ratio"]
    lines = [
        [change.stage, *(f"{number:,}" for number in change.size), f"{change.before:.3g}", f"{change.after:.3g}",
         f"{change.ratio:.2f}" + "  slower" * change.is_slower]
        for change in changes.changes
    ]  # fmt: skip
    if lines:
        _print_lines([head, *lines])
        terminal.say(
            f"\nThe machine itself took {changes.machine:.2f} times as long in the second run; ratios are divided by "
            "that."
        )
    terminal.say(changes.sentence)


def _print_lines(lines: list[list[str]]) -> None:
    """Print a table: its first column to the left, numbers to the right."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for first, *cells in lines:
        numbers = "  ".join(cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        terminal.say(f"{first.ljust(widths[0])}  {numbers}".rstrip())
