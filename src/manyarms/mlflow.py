"""What was found, into a run of MLflow: figures, settings, model files; `ma.mlflow`, the extra `manyarms[mlflow]`."""

from __future__ import annotations

import math
import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from manyarms._arrays import as_instance
from manyarms._extras import imported
from manyarms._saving import SavedModel
from manyarms._version import __version__
from manyarms.core.tabular import Tabular
from manyarms.errors import TooLargeError
from manyarms.learners.training import Progress
from manyarms.posterior import HurdlePosterior, RewardPosterior

__all__ = ["log", "log_step"]

MAX_METRICS = 1000
"""A table with more figures than this is a file, not metrics."""


def log(
    result: Tabular | None = None,
    *,
    posterior: RewardPosterior | HurdlePosterior | None = None,
    models: Mapping[str, SavedModel] | None = None,
) -> str:
    """Write a result, and what it was made with, into the run that is active, or into one of its own.

    Metrics: every number of the table, called by the words of its row, as in "greedy/posterior/value". The whole table
    is an artifact, its records as JSON. Of a posterior: its sizes, prior and likelihood as parameters, its log evidence
    as a metric, its warnings as the tag "manyarms.warnings", and the model file "model.arrow", for `ma.load`.

    Args:
        result: Anything with `records()`: what `evaluate`, `compare`, `learn_prior`, ... returned; None for none.
        posterior: What `fit` returned; its file is an artifact.
        models: Policies, or other models, whose files are artifacts too, by name.

    Returns:
        The id of the run.

    Raises:
        MissingLibraryError: When MLflow is not installed.
        TooLargeError: When the table has more than 1,000 figures.
    """
    mlflow: Any = imported("mlflow", "ma.mlflow", "manyarms[mlflow]")
    records = [] if result is None else as_instance("result", result, Tabular, "a result with records()").records()
    metrics = {name: figure for record in records for name, figure in _figures(record)}
    if len(metrics) > MAX_METRICS:
        raise TooLargeError(
            f"result has {len(metrics):,} figures, too many for metrics. Log its file: mlflow.log_artifact."
        )
    files = dict(models or {})
    with _running(mlflow) as run:
        mlflow.set_tag("manyarms.version", __version__)
        if result is not None:
            mlflow.log_dict({"records": records}, f"{type(result).__name__}.json")
        if posterior is not None:
            mlflow.log_params(_settings(posterior))
            metrics["log_evidence"] = posterior.log_evidence
            if posterior.all_warnings:
                mlflow.set_tag("manyarms.warnings", "; ".join(posterior.all_warnings))
            files["model"] = posterior
        mlflow.log_metrics(metrics)
        with TemporaryDirectory() as folder:
            for name, model in files.items():
                path = Path(folder) / f"{_plain(name).replace('/', '_')}.arrow"
                model.save(path)
                mlflow.log_artifact(str(path))
        return run.info.run_id


def log_step(progress: Progress) -> None:
    """Training of a policy step by step: `ma.Training(progress=ma.mlflow.log_step)` inside a run."""
    mlflow: Any = imported("mlflow", "ma.mlflow", "manyarms[mlflow]")
    found = {"objective": progress.objective, "held_out": progress.held_out}
    mlflow.log_metrics({name: value for name, value in found.items() if value is not None}, step=progress.step)


@contextmanager
def _running(mlflow: Any) -> Generator[Any]:
    """The run that the caller has begun, left open; or one that begins and ends here."""
    run = mlflow.active_run()
    if run is not None:
        yield run
        return
    with mlflow.start_run() as run:
        yield run


def _figures(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The finite numbers of a row, by the words that say which row it is."""
    words = [str(record[name]) for name in _ROW if record.get(name) is not None]
    for name, value in record.items():
        if name in _ROW or isinstance(value, str | bool) or value is None or not math.isfinite(value):
            continue
        yield _plain("/".join([*words, name])), float(value)


_ROW = ("policy", "estimator", "name", "component", "category")
"""Columns that say which row it is."""


def _plain(name: str) -> str:
    """A name of characters that MLflow takes on every system."""
    return re.sub(r"[^\w\-. /]", "_", name)


def _settings(posterior: RewardPosterior | HurdlePosterior) -> dict[str, Any]:
    first = posterior if isinstance(posterior, RewardPosterior) else posterior.occurs
    return {
        "n_actions": posterior.n_actions,
        "dim": posterior.dim,
        "n_rounds": first.statistics.n_rounds,
        "prior": repr(first.prior),
        "likelihood": ", ".join(repr(likelihood) for _, likelihood in posterior.factors),
    }
