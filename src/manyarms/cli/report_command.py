"""`manyarms report`: a page for the person who must decide."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyarms._base.option_values import REPORT_FORMATS as FORMATS
from manyarms.cli import options as o
from manyarms.cli.error_words import in_flags
from manyarms.cli.spec import Spec, names, read_spec
from manyarms.cli.terminal import check_output, check_output_folder, one_line_errors, spinner, warn
from manyarms.errors import InputError

if TYPE_CHECKING:
    import manyarms as ma

ASKED = ("snips", "dr")
"""Estimators that check on the model where there are propensities and none were named."""


def report(
    out: Annotated[
        Path, typer.Option("--out", help="The page (report.html), or a folder for the charts as svg or png.")
    ] = Path("report.html"),
    model: o.Judge = None,
    policies: o.Policies = None,
    estimators: o.Estimators = None,
    logs: o.Logs = None,
    context: o.Context = None,
    action: o.Action = None,
    reward: o.Reward = None,
    propensity: o.Propensity = None,
    weight: o.Weight = None,
    group: o.Group = None,
    time: o.Time = None,
    categorical: o.Categorical = None,
    max_levels: o.MaxLevels = None,
    missing: o.Missing = None,
    unknown: o.Unknown = None,
    half_life: o.HalfLife = None,
    maturity: o.Maturity = None,
    now: o.Now = None,
    catalog: o.CatalogFile = None,
    id: o.Id = None,
    category: o.Category = None,
    sample: o.Sample = 100_000,
    sure: Annotated[
        float, typer.Option("--sure", min=0.5, max=1.0, help="How probable a gain must be to say: ship it.")
    ] = 0.975,
    title: Annotated[str, typer.Option("--title", help="Of the page.")] = "Policy report",
    format: Annotated[
        str | None,
        typer.Option("--format", metavar="|".join(FORMATS), help="By default what --out ends in."),
    ] = None,
    seed: o.Seed = 0,
    spec: o.SpecFile = None,
    as_json: o.Json = False,
) -> None:
    """Which policy to ship, on one page with its evidence.

    One HTML file with interactive charts that opens without a network: the
    answer in a sentence, values and intervals, pairwise probabilities, other
    estimators, diagnostics, where traffic would move, checks of the model.
    Policies, logs and estimators are named as for `manyarms evaluate`.
    """
    flags = dict(locals())
    with one_line_errors():
        told = read_spec(spec, flags)
        kind = format or out.suffix.removeprefix(".").lower() or "html"
        if kind not in FORMATS:
            raise InputError(
                f"--format must be one of {', '.join(FORMATS)}; got {kind!r}. Name one, or end --out in it."
            )
        if kind in ("svg", "png"):
            check_output_folder(out, "each chart is a file", "pass --format html for one page")
        else:
            check_output(out)
        chosen = names("--policies", policies or ["greedy", "pessimistic", "uniform"])
        judges = names("--estimators", estimators or (ASKED if told.logs.propensity and model is not None else []))
        briefing = _brief(told, model, chosen, judges, sample, seed, sure)
        from manyarms.decision.write_report import write_report  # noqa: PLC0415

        with spinner("Writing"):
            written = [str(path) for path in write_report(briefing, out, format=kind, title=title)]
        for one in briefing.missing:
            warn(in_flags(one))
        if as_json:
            figures = {"answer": vars(briefing.answer), "written": written, "warnings": list(briefing.warnings)}
            typer.echo(json.dumps(figures, indent=2))
            return
        typer.echo(in_flags(str(briefing)))
        typer.echo(f"Report: {out}" if len(written) == 1 else f"Charts: {len(written)} in {out}")


def _brief(
    spec: Spec,
    model: Path | None,
    chosen: tuple[str, ...],
    judges: tuple[str, ...],
    sample: int,
    seed: int,
    sure: float,
) -> ma.Decision:
    import manyarms as ma  # noqa: PLC0415
    from manyarms.cli.evaluation_inputs import open_bench  # noqa: PLC0415
    from manyarms.cli.open_inputs import open_catalog  # noqa: PLC0415

    bench = open_bench(spec, model, chosen, judges, sample, seed)
    logs = bench.drawn.logs
    notes = {"command": f"manyarms {shlex.join(sys.argv[1:])}", "logs": str(spec.logs.path)}
    if bench.drawn.total > len(logs):
        notes["rounds"] = f"{len(logs):,} drawn from {bench.drawn.total:,}"
    if model is not None:
        notes["model file"] = str(model)
    given: Any = None
    if spec.catalog.category is not None and logs.catalog is not None and logs.catalog.categories is None:
        # The model was fitted without categories, and the catalog has some: enough to show things by, id by id.
        told = open_catalog(spec)
        if told is not None and told.categories is not None:
            place = told.find(logs.catalog.ids.tolist())
            given = told.categories[place].astype(object)
            given[place < 0] = None
    with spinner("Judging"):
        return ma.decide(
            bench.policies(),
            logs,
            bench.posterior,
            estimators=bench.estimators(),
            categories=given,
            sure=sure,
            fingerprints=bench.fingerprints,
            notes=notes,
        )
