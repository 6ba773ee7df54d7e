"""Results, settings and models in MLflow: `ma.mlflow`, with the extra `manyarms[mlflow]`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from numbers import Real
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from manyarms._base.checks import as_instance, import_optional
from manyarms._version import __version__
from manyarms.core.result_tables import Tabular
from manyarms.errors import InputError, TooLargeError
from manyarms.integrations.mlflow_model import load_model, log_model, save_model
from manyarms.learners.training import TrainingStep
from manyarms.model_file.save import SavedModel
from manyarms.posterior.gaussian_posterior import GaussianPosterior
from manyarms.posterior.posterior import Posterior

__all__ = ["load_model", "log", "log_model", "log_step", "save_model"]

MAX_METRICS = 1000
"""The largest number of metrics that one table may become."""


def log(
    result: Tabular | None = None,
    *,
    posterior: Posterior | None = None,
    models: Mapping[str, SavedModel] | None = None,
) -> str:
    """Write a result, a posterior and models into the active run of MLflow, or into a new one.

    Every number of the result's table becomes a metric, named after the words of its row, as in
    "greedy/posterior/value". Characters that MLflow refuses become "_". Names that would then be equal are numbered in
    the order of the table, as in "a_b" and "a_b-2". The whole table is an artifact, with its records as JSON. A
    posterior adds its sizes, prior and likelihood as parameters, its log evidence as a metric, its warnings as the tag
    "manyarms.warnings", and the model file "model.arrow", for `ma.load`. If anything is refused, nothing is written.

    Args:
        result: A result with `records()`, from `evaluate`, `compare`, `learn_prior` and others; None for none.
        posterior: A fitted posterior. Its file becomes an artifact.
        models: Policies or other models by name. Their files become artifacts too.

    Returns:
        The id of the run.

    Raises:
        MissingLibraryError: When MLflow is not installed.
        TooLargeError: When the table has more than 1,000 numbers.
        InputError: When two models would have the same file, or an argument is wrong.
    """
    mlflow: Any = import_optional("mlflow", "ma.mlflow", "manyarms[mlflow]")
    records = [] if result is None else as_instance("result", result, Tabular, "a result with records()").records()
    metrics = _metrics(records)
    if posterior is not None:
        posterior = as_instance("posterior", posterior, Posterior, "what ma.fit returned")
        if "log_evidence" in metrics:
            raise InputError("result and posterior both have a log_evidence.", "Log one of them in a run of its own.")
    files = _files(models, posterior)
    active = mlflow.active_run()
    with TemporaryDirectory() as folder:
        # Saved before the run begins, so that a model that cannot be saved leaves no half-written run behind.
        for name, model in files.items():
            model.save(Path(folder) / name)
        # A run that is active stays open; a new one ends here.
        with nullcontext(active) if active else mlflow.start_run() as run:
            mlflow.set_tag("manyarms.version", __version__)
            if result is not None:
                mlflow.log_dict({"records": records}, f"{type(result).__name__}.json")
            if posterior is not None:
                mlflow.log_params(_settings(posterior))
                if isinstance(posterior, GaussianPosterior):
                    metrics["log_evidence"] = posterior.log_evidence
                if posterior.warnings:
                    mlflow.set_tag("manyarms.warnings", "; ".join(posterior.warnings))
            mlflow.log_metrics(metrics)
            for name in sorted(files):
                mlflow.log_artifact(str(Path(folder) / name))
    return run.info.run_id


def log_step(step: TrainingStep) -> None:
    """Write a step of training into the active run: `ma.Training(progress=ma.mlflow.log_step)`."""
    mlflow: Any = import_optional("mlflow", "ma.mlflow", "manyarms[mlflow]")
    metrics = {"objective": step.objective, "held_out": step.held_out, "ridge": step.ridge}
    mlflow.log_metrics({name: value for name, value in metrics.items() if value is not None}, step=step.step)


def _metrics(records: list[dict[str, Any]]) -> dict[str, float]:
    """The finite numbers of a table by distinct names, made of the words that identify the row, and the column."""
    figures = [{name: float(value) for name, value in record.items() if _is_figure(name, value)} for record in records]
    count = sum(map(len, figures))
    if count > MAX_METRICS:
        problem = f"result has {count:,} numbers, too many for metrics."
        raise TooLargeError(problem, "Log its file: mlflow.log_artifact.")
    words = {label: _named(record[label] for record in records if record.get(label) is not None) for label in _ROW}
    columns = _named(name for row in figures for name in row)
    rows = _numbered(
        "/".join(words[label][str(record[label])] for label in _ROW if record.get(label) is not None)
        for record in records
    )
    return {
        f"{row}/{columns[name]}".lstrip("/"): figure
        for row, numbers in zip(rows, figures, strict=True)
        for name, figure in numbers.items()
    }


def _is_figure(name: str, value: Any) -> bool:
    # A truth value is a number to Python, but not a metric.
    return name not in _ROW and not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


_ROW = ("policy", "estimator", "name", "component", "category", "action", "feature")
"""Columns that identify a row."""


def _files(models: Mapping[str, SavedModel] | None, posterior: Posterior | None) -> dict[str, SavedModel]:
    """All models, by the names of their files."""
    models = as_instance("models", {} if models is None else models, Mapping, "a dictionary of models by name")
    files: dict[str, SavedModel] = {} if posterior is None else {"model.arrow": posterior}
    taken = dict.fromkeys(files, "the posterior")
    for name, model in models.items():
        file = f"{_plain(str(name))}.arrow"
        # Some systems do not tell "A" from "a" in the name of a file.
        if file.casefold() in taken:
            problem = f"{name!r} would be the file {file}, which is that of {taken[file.casefold()]}."
            raise InputError(problem, "Rename one.", argument="models")
        taken[file.casefold()] = repr(name)
        files[file] = as_instance(f"models[{name!r}]", model, SavedModel, "a policy or a posterior, which has save()")
    return files


def _named(words: Iterable[Any]) -> dict[str, str]:
    """A distinct name that MLflow accepts for each distinct word."""
    different = dict.fromkeys(map(str, words))
    return dict(zip(different, _numbered(map(_plain, different)), strict=True))


def _numbered(names: Iterable[str]) -> list[str]:
    """The names in their order, repeated ones with a number."""
    taken = dict[str, None]()
    for name in names:
        free, number = name, 1
        while free in taken:
            number += 1
            free = f"{name}-{number}" if name else str(number)
        taken[free] = None
    return list(taken)


def _plain(word: str) -> str:
    """A word in characters that MLflow accepts on every system, as one part of a path that never leads up."""
    return re.sub(r"^\.+|^$|[^\w\-. ]", "_", word)


def _settings(posterior: Posterior) -> dict[str, Any]:
    settings: dict[str, Any] = {"n_actions": posterior.n_actions, "dim": posterior.dim}
    if isinstance(posterior, GaussianPosterior):
        factors = posterior.factors_for(np.empty(0, dtype=np.int64))
        settings |= {
            "n_rounds": posterior.n_rounds,
            "prior": repr(factors[0].prior),
            "likelihood": ", ".join(repr(factor.likelihood) for factor in factors),
        }
    return settings
