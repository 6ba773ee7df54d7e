"""What was found, into a run of MLflow: figures, settings, model files; `ma.mlflow`, the extra `manyarms[mlflow]`."""

from __future__ import annotations

import math
import re
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from manyarms._base.checks import as_instance, import_optional
from manyarms._version import __version__
from manyarms.core.result_tables import Tabular
from manyarms.errors import DataTypeError, InputError, TooLargeError
from manyarms.learners.training import TrainingStep
from manyarms.model_file.save import SavedModel
from manyarms.posterior.gaussian_posterior import GaussianPosterior

__all__ = ["log", "log_step"]

MAX_METRICS = 1000
"""A table with more figures than this is a file, not metrics."""


def log(
    result: Tabular | None = None,
    *,
    posterior: GaussianPosterior | None = None,
    models: Mapping[str, SavedModel] | None = None,
) -> str:
    """Write a result, and what it was made with, into the run that is active, or into one of its own.

    Metrics: every number of the table, called by the words of its row, as in "greedy/posterior/value". MLflow takes
    few characters, so others are "_"; what would then be called alike is numbered in the order of the table, as in
    "a_b" and "a_b-2". The whole table is an artifact, its records as JSON. Of a posterior: its sizes, prior and
    likelihood as parameters, its log evidence as a metric, its warnings as the tag "manyarms.warnings", and the model
    file "model.arrow", for `ma.load`. Nothing is written when anything is refused.

    Args:
        result: Anything with `records()`: what `evaluate`, `compare`, `learn_prior`, ... returned; None for none.
        posterior: What `fit` returned; its file is an artifact.
        models: Policies, or other models, whose files are artifacts too, by name.

    Returns:
        The id of the run.

    Raises:
        MissingLibraryError: When MLflow is not installed.
        TooLargeError: When the table has more than 1,000 figures.
        InputError: When two models would be one file, or anything is not what it should be.
    """
    mlflow: Any = import_optional("mlflow", "ma.mlflow", "manyarms[mlflow]")
    records = [] if result is None else as_instance("result", result, Tabular, "a result with records()").records()
    metrics = _metrics(records)
    if posterior is not None:
        posterior = as_instance("posterior", posterior, GaussianPosterior, "what ma.fit returned")
    if posterior is not None and "log_evidence" in metrics:
        raise InputError("result has a log_evidence, as the posterior has. Log one of them in a run of its own.")
    files = _files(models, posterior)
    with TemporaryDirectory() as folder:
        # Saved before the run begins: a model that cannot be saved leaves no half of a run behind.
        for name, model in files.items():
            model.save(Path(folder) / name)
        return _write(mlflow, result, records, metrics, posterior, folder)


def _write(
    mlflow: Any,
    result: Tabular | None,
    records: list[dict[str, Any]],
    metrics: dict[str, float],
    posterior: GaussianPosterior | None,
    folder: str,
) -> str:
    """All of it into a run, with the files in a folder; the id of the run."""
    with _running(mlflow) as run:
        mlflow.set_tag("manyarms.version", __version__)
        if result is not None:
            mlflow.log_dict({"records": records}, f"{type(result).__name__}.json")
        if posterior is not None:
            mlflow.log_params(_settings(posterior))
            metrics["log_evidence"] = posterior.log_evidence
            if posterior.warnings:
                mlflow.set_tag("manyarms.warnings", "; ".join(posterior.warnings))
        mlflow.log_metrics(metrics)
        for path in sorted(Path(folder).iterdir()):
            mlflow.log_artifact(str(path))
        return run.info.run_id


def log_step(progress: TrainingStep) -> None:
    """Training of a policy step by step: `ma.Training(progress=ma.mlflow.log_step)` inside a run."""
    mlflow: Any = import_optional("mlflow", "ma.mlflow", "manyarms[mlflow]")
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


def _metrics(records: list[dict[str, Any]]) -> dict[str, float]:
    """The finite numbers of a table, each by a name of its own: the words that say which row it is, and the column."""
    figures = [{name: float(value) for name, value in record.items() if _is_figure(name, value)} for record in records]
    count = sum(map(len, figures))
    if count > MAX_METRICS:
        raise TooLargeError(f"result has {count:,} figures, too many for metrics. Log its file: mlflow.log_artifact.")
    words = {label: _named(record[label] for record in records if record.get(label) is not None) for label in _ROW}
    columns = _named(name for row in figures for name in row)
    rows = _apart(
        "/".join(words[label][str(record[label])] for label in _ROW if record.get(label) is not None)
        for record in records
    )
    return {
        f"{row}/{columns[name]}".lstrip("/"): figure
        for row, found in zip(rows, figures, strict=True)
        for name, figure in found.items()
    }


def _is_figure(name: str, value: Any) -> bool:
    # A truth value is a number to Python, and no figure.
    return name not in _ROW and not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


_ROW = ("policy", "estimator", "name", "component", "category", "action", "feature")
"""Columns that say which row it is."""


def _files(models: Mapping[str, SavedModel] | None, posterior: GaussianPosterior | None) -> dict[str, SavedModel]:
    """All models by the names of their files."""
    if not isinstance(models, Mapping | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DataTypeError(f"models must be a dictionary of models by name; got {type(models).__name__}.")
    files: dict[str, SavedModel] = {} if posterior is None else {"model.arrow": posterior}
    taken = dict.fromkeys(files, "the posterior")
    for name, model in (models or {}).items():
        file = f"{_plain(str(name))}.arrow"
        # Some systems do not tell "A" from "a" in the name of a file.
        if file.casefold() in taken:
            raise InputError(
                f"models {name!r} would be the file {file}, which is that of {taken[file.casefold()]}. Rename one."
            )
        taken[file.casefold()] = repr(name)
        files[file] = as_instance(f"models[{name!r}]", model, SavedModel, "a policy or a posterior, which has save()")
    return files


def _named(words: Iterable[Any]) -> dict[str, str]:
    """Different words by different names that MLflow takes."""
    different = dict.fromkeys(map(str, words))
    return dict(zip(different, _apart(map(_plain, different)), strict=True))


def _apart(names: Iterable[str]) -> list[str]:
    """The names in their order, each that was there before with a number."""
    taken = dict[str, None]()
    for name in names:
        free, number = name, 1
        while free in taken:
            number += 1
            free = f"{name}-{number}" if name else str(number)
        taken[free] = None
    return list(taken)


def _plain(word: str) -> str:
    """A word of characters that MLflow takes on every system, as one part of a path and never as a way up."""
    return re.sub(r"^\.+|^$|[^\w\-. ]", "_", word)


def _settings(posterior: GaussianPosterior) -> dict[str, Any]:
    factors = posterior.factors_for(np.empty(0, dtype=np.int64))
    return {
        "n_actions": posterior.n_actions,
        "dim": posterior.dim,
        "n_rounds": posterior.n_rounds,
        "prior": repr(factors[0].prior),
        "likelihood": ", ".join(repr(factor.likelihood) for factor in factors),
    }
