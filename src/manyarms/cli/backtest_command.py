"""The command `manyarms backtest`: forecasts of each day from the days before it, beside what happened."""

from __future__ import annotations

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from manyarms._base import job_options as o
from manyarms.cli import flags_and_spec as f
from manyarms.cli import terminal
from manyarms.cli.commands import EXIT_CODES, ReportFormat, Unit

# What the command calls is imported in it, so that `--help` loads no numerical library.
# ruff: noqa: PLC0415


@f.with_options(
    o.LogColumns, o.LogOptions, o.BacktestPeriods, o.CatalogFile, o.CatalogOptions, o.LikelihoodOptions,
    without=("segment",),
)  # fmt: skip
def backtest_command(
    model: Annotated[
        Path | None,
        typer.Option(
            "--model", help="Model fitted on earlier rounds. Without one, a model is fitted on the first periods."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Page to write (HTML or JSON), or a folder for the charts as SVG or PNG files."),
    ] = None,
    level: Annotated[
        float, typer.Option("--level", help="Nominal coverage of the forecast intervals: above 0, below 1.")
    ] = 0.95,
    false_alarm: Annotated[
        float,
        typer.Option(
            "--false-alarm",
            help="Maximum probability of raising an alarm when the forecasts are in fact right: above 0, below 1.",
        ),
    ] = 0.05,
    unit: Unit = "",
    format: ReportFormat = None,
    as_json: f.Json = False,
    **options: Any,
) -> None:
    """Forecast each day from the days before it, and compare with the outcome.

    Forecasts the mean reward in each period (a day by default) for all rounds
    together, for each category and, with --logged-by, for each policy. The
    intervals include the noise of individual rewards. An alarm is raised when the forecasts no
    longer hold. The exit code is 3 if there was an alarm, and 0 otherwise.
    --time is required.
    """
    from manyarms.cli.print_results import print_json
    from manyarms.decision.write_report import write_report
    from manyarms.jobs import backtest_files

    inputs = [options["logs"], options.get("catalog"), model]
    kind = None if out is None else f.report_format(out, format, inputs)
    options.setdefault("context", ())
    with terminal.row_bar("Reading") as bar:
        result = backtest_files(
            **options, model=model, level=level, false_alarm=false_alarm, unit=unit,
            notes={"command": f"manyarms {shlex.join(sys.argv[1:])}"},
            progress=partial(bar.step, activity="Forecasting, period"), on_rows=bar,
        )  # fmt: skip
    written = [] if out is None else write_report(result, out, format=kind)
    if as_json:
        print_json({**result.as_json(), "written": [str(path) for path in written]})
    else:
        terminal.say(str(result))
        if out is not None:
            terminal.say(f"Report: {out}" if len(written) == 1 else f"Charts: {len(written)} in {out}")
    raise typer.Exit(EXIT_CODES["undecided"] if result.alarms else 0)
