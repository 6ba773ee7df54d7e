"""`manyarms report`: the recommendation and its evidence on one page."""

from __future__ import annotations

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from manyarms._base.options import REPORT_FORMATS as FORMATS
from manyarms._base.options import CatalogFile, CatalogOptions, EvaluationOptions, LogColumns, LogOptions
from manyarms.cli import flags as f
from manyarms.cli.terminal import check_output, check_output_folder, print_json, row_bar, spinner, warn
from manyarms.errors import InputError


@f.with_options(
    EvaluationOptions, LogColumns, LogOptions, CatalogFile, CatalogOptions,
    without=("tags", "taxonomy", "embedding", "separator"),
)  # fmt: skip
def report(
    out: Annotated[
        Path, typer.Option("--out", help="The page to write, or a folder for the charts as SVG or PNG files.")
    ] = Path("report.html"),
    model: f.EvaluatedModel = None,
    sure: Annotated[
        float,
        typer.Option("--sure", min=0.5, max=1.0, help="Smallest probability of a gain for recommending a policy."),
    ] = 0.975,
    title: Annotated[str, typer.Option("--title", help="Title of the page.")] = "Policy report",
    format: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="|".join(FORMATS), help="File format (default: taken from the extension of --out)."
        ),
    ] = None,
    seed: f.Seed = 0,
    as_json: f.Json = False,
    **options: Any,
) -> None:
    """Recommend which policy to ship, on one page with the evidence.

    The page is one HTML file with interactive charts and needs no network. It
    has the recommendation in one sentence, values with intervals, the
    probability that one policy beats another, other estimators, diagnostics,
    changes in traffic, and checks of the model. Name policies, logs and
    estimators as for `manyarms evaluate`.
    """
    kind = format or out.suffix.removeprefix(".").lower() or "html"
    if kind not in FORMATS:
        remedy = "Pass one of these, or end --out in it."
        raise InputError(f"must be one of {', '.join(FORMATS)}; got {kind!r}.", remedy, argument="format")
    if kind in ("svg", "png"):
        check_output_folder(out, "each chart is a file", "pass --format html for one page")
    else:
        check_output(out)
    from manyarms.decision.decide_files import decide_files  # noqa: PLC0415
    from manyarms.decision.write_report import write_report  # noqa: PLC0415

    with row_bar("Reading") as bar:
        decision = decide_files(
            **options, model=model, sure=sure, seed=seed,
            notes={"command": f"manyarms {shlex.join(sys.argv[1:])}"},
            progress=partial(bar.step, activity="Evaluating, policy"), on_rows=bar,
        )  # fmt: skip
    with spinner("Writing"):
        written = [str(path) for path in write_report(decision, out, format=kind, title=title)]
    for reason in decision.omitted:
        warn(reason)
    if as_json:
        figures = {name: getattr(decision, name) for name in ("verdict", "policy", "sentence", "reason")}
        print_json(
            figures | {"probability": decision.probability, "written": written, "warnings": list(decision.warnings)}
        )
        return
    typer.echo(str(decision))
    typer.echo(f"Report: {out}" if len(written) == 1 else f"Charts: {len(written)} in {out}")
