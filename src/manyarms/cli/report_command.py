"""`manyarms report`: the recommendation and its evidence on one page."""

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

DEFAULT_ESTIMATORS = ("snips", "dr")
"""Estimators that check the model when the logs have propensities and none are named."""


def report(
    out: Annotated[
        Path, typer.Option("--out", help="The page to write, or a folder for the charts as SVG or PNG files.")
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
        float,
        typer.Option("--sure", min=0.5, max=1.0, help="Probability of a gain that is needed to recommend a policy."),
    ] = 0.975,
    title: Annotated[str, typer.Option("--title", help="Title of the page.")] = "Policy report",
    format: Annotated[
        str | None,
        typer.Option("--format", metavar="|".join(FORMATS), help="File format (default: the ending of --out)."),
    ] = None,
    seed: o.Seed = 0,
    spec: o.SpecFile = None,
    as_json: o.Json = False,
) -> None:
    """Recommend which policy to ship, on one page with the evidence.

    The page is one HTML file with interactive charts and needs no network. It
    has the recommendation in one sentence, values with intervals, the
    probability that one policy beats another, other estimators, diagnostics,
    changes in traffic, and checks of the model. Name policies, logs and
    estimators as for `manyarms evaluate`.
    """
    flags = dict(locals())
    with one_line_errors():
        options = read_spec(spec, flags)
        kind = format or out.suffix.removeprefix(".").lower() or "html"
        if kind not in FORMATS:
            remedy = "Pass one of these, or end --out in it."
            raise InputError(f"must be one of {', '.join(FORMATS)}; got {kind!r}.", remedy, argument="format")
        if kind in ("svg", "png"):
            check_output_folder(out, "each chart is a file", "pass --format html for one page")
        else:
            check_output(out)
        chosen = names("--policies", policies or ["greedy", "pessimistic", "uniform"])
        default = DEFAULT_ESTIMATORS if options.logs.propensity and model is not None else []
        decision = _decide(options, model, chosen, names("--estimators", estimators or default), sample, seed, sure)
        from manyarms.decision.write_report import write_report  # noqa: PLC0415

        with spinner("Writing"):
            written = [str(path) for path in write_report(decision, out, format=kind, title=title)]
        for reason in decision.omitted:
            warn(in_flags(reason))
        if as_json:
            figures = {name: getattr(decision, name) for name in ("verdict", "policy", "sentence", "reason")}
            figures |= {"probability": decision.probability, "written": written, "warnings": list(decision.warnings)}
            typer.echo(json.dumps(figures, indent=2))
            return
        typer.echo(in_flags(str(decision)))
        typer.echo(f"Report: {out}" if len(written) == 1 else f"Charts: {len(written)} in {out}")


def _decide(
    spec: Spec,
    model: Path | None,
    policies: tuple[str, ...],
    estimators: tuple[str, ...],
    sample: int,
    seed: int,
    sure: float,
) -> ma.Decision:
    import manyarms as ma  # noqa: PLC0415
    from manyarms.cli.evaluation_inputs import open_bench  # noqa: PLC0415
    from manyarms.cli.open_inputs import open_catalog  # noqa: PLC0415

    bench = open_bench(spec, model, policies, estimators, sample, seed)
    logs = bench.drawn.logs
    notes = {"command": f"manyarms {shlex.join(sys.argv[1:])}", "logs": str(spec.logs.path)}
    if bench.drawn.total > len(logs):
        notes["rounds"] = f"{len(logs):,} drawn from {bench.drawn.total:,}"
    if model is not None:
        notes["model file"] = str(model)
    categories: Any = None
    if spec.catalog.category is not None and logs.catalog is not None and logs.catalog.categories is None:
        # The model was fitted without categories, but the catalog has some: the report shows results by them.
        catalog = open_catalog(spec)
        if catalog is not None and catalog.categories is not None:
            place = catalog.find(logs.catalog.ids.tolist())
            categories = catalog.categories[place].astype(object)
            categories[place < 0] = None
    with spinner("Evaluating"):
        return ma.decide(
            bench.policies(),
            logs,
            bench.posterior,
            estimators=bench.estimators(),
            categories=categories,
            sure=sure,
            fingerprints=bench.fingerprints,
            notes=notes,
        )
