"""`manyarms evaluate`: policies side by side, on logged contexts."""

from __future__ import annotations

from functools import partial
from typing import Any

from manyarms._base.options import CatalogFile, EvaluationOptions, LogColumns, LogOptions
from manyarms.cli import flags as f
from manyarms.cli.terminal import print_json, row_bar, warn


@f.with_options(EvaluationOptions, LogColumns, LogOptions, CatalogFile)
def evaluate(model: f.EvaluatedModel = None, seed: f.Seed = 0, as_json: f.Json = False, **options: Any) -> None:
    """Compare policies with the current one: gains, intervals, probabilities.

    Each policy is evaluated by the model's posterior on the contexts of the
    logs, and compared with `logged`, the current policy. Context columns and
    catalog come from the model; name them only without --model. Use logs that
    the model was not fitted on.
    """
    from manyarms.cli.print_results import print_evaluation  # noqa: PLC0415
    from manyarms.jobs import evaluate_files  # noqa: PLC0415

    with row_bar("Reading") as bar:
        progress = partial(bar.step, activity="Evaluating, policy")
        result = evaluate_files(**options, model=model, seed=seed, progress=progress, on_rows=bar)
    for warning in result.warnings:
        warn(warning)
    if as_json:
        print_json(result.record())
    else:
        print_evaluation(result.record(), result.evaluation)
