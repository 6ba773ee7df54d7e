"""`manyarms evaluate`: policies side by side, on logged contexts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from manyarms.cli import options as o
from manyarms.cli.spec import Spec, names, read_spec
from manyarms.cli.terminal import one_line_errors, spinner, warn

if TYPE_CHECKING:
    import manyarms as ma


def evaluate(
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
    sample: o.Sample = 100_000,
    seed: o.Seed = 0,
    spec: o.SpecFile = None,
    as_json: o.Json = False,
) -> None:
    """Compare policies with what runs now: by how much, how sure.

    Each policy is judged by the model's posterior on the contexts of the logs,
    and against `logged`, the policy that wrote them. Context columns and
    catalog come from the model. Judge on logs that it was not fitted on.
    """
    flags = dict(locals())
    with one_line_errors():
        told = read_spec(spec, flags)
        chosen = names("--policies", policies or ["greedy", "pessimistic", "uniform"])
        figures, evaluation = _run(told, model, chosen, names("--estimators", estimators or []), sample, seed)
        if as_json:
            typer.echo(json.dumps(figures, indent=2))
            return
        from manyarms.cli.print_results import print_evaluation  # noqa: PLC0415

        print_evaluation(figures, evaluation)


def _run(
    spec: Spec, model: Path | None, chosen: tuple[str, ...], judges: tuple[str, ...], sample: int, seed: int
) -> tuple[dict[str, Any], ma.Evaluation]:
    from manyarms import jobs  # noqa: PLC0415
    from manyarms.cli.evaluation_inputs import open_bench  # noqa: PLC0415
    from manyarms.cli.open_inputs import reading_warnings  # noqa: PLC0415
    from manyarms.cli.print_results import evaluation_figures  # noqa: PLC0415

    bench = open_bench(spec, model, chosen, judges, sample, seed)
    with spinner("Judging"):
        evaluation = jobs.evaluate(
            bench.policies(),
            bench.drawn.logs,
            bench.posterior,
            estimators=bench.estimators(),
            fingerprints=bench.fingerprints,
        )
    figures = evaluation_figures(evaluation, bench.drawn, bench.stream, bench.posterior)
    figures["warnings"] += reading_warnings(bench.stream.dropped)
    for one in figures["warnings"]:
        warn(one)
    return figures, evaluation
