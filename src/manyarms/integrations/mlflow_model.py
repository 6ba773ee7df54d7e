"""Models in MLflow's own form: a pyfunc model that holds our model file, and no pickle.

MLflow imports this module and calls `_load_pyfunc` when it loads such a model.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from manyarms._base.checks import as_count, as_instance, as_path, as_text, import_optional
from manyarms._base.files import PathLike
from manyarms._version import __version__
from manyarms.core import Policy, as_contexts
from manyarms.core.feature_map import Categorical, Feature, Numeric
from manyarms.errors import InputError
from manyarms.jobs.score import policy_to_score
from manyarms.model_file.load import load
from manyarms.model_file.save import SavedModel
from manyarms.posterior.posterior import Posterior

__all__ = ["load_model", "log_model", "save_model"]


def save_model(
    model: Posterior | Policy, path: PathLike, *, top_k: int = 1, pip_requirements: list[str] | None = None
) -> None:
    """Save an MLflow model to a folder, for `mlflow models serve` and `mlflow.pyfunc.load_model`.

    The folder holds our model file, a signature and the requirements. Its predictions have a row per context, with
    lists of k: `actions` (ids, best first) and, where there is a posterior, `expected_rewards` and `reward_stds`. A
    request may set k: `predict(contexts, params={"top_k": 3})`.

    Args:
        model: A posterior, for the actions with the highest expected reward; or a policy, for its own ranking.
        path: The folder to write, which must not exist or must be empty.
        top_k: k where a request does not set it.
        pip_requirements: What an environment for the model installs; by default this version of manyarms.

    Raises:
        MissingLibraryError: When MLflow is not installed.
        InputError: When the model cannot rank actions for new contexts, or the folder has files.
    """
    folder = as_path("path", path)
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise InputError(f"must name a new or empty folder; {folder} exists.", "Name another one.", argument="path")
    with TemporaryDirectory() as place:
        parts = _parts(model, top_k, pip_requirements, Path(place))
        _pyfunc().save_model(path=str(folder), **parts)


def log_model(
    model: Posterior | Policy,
    name: str = "model",
    *,
    top_k: int = 1,
    registered_model_name: str | None = None,
    pip_requirements: list[str] | None = None,
) -> str:
    """Log an MLflow model to the active run, or to a new one, and register it if it has a registered name.

    `mlflow.pyfunc.load_model`, `mlflow.pyfunc.spark_udf` and `mlflow models serve` take the result; `save_model` says
    what it predicts.

    Args:
        model: A posterior or a policy, as in `save_model`.
        name: The name of the model in the run.
        top_k: k where a request does not set it.
        registered_model_name: The name under which MLflow's registry gets a new version of it; None for none.
        pip_requirements: As in `save_model`.

    Returns:
        The URI of the model, as in "models:/m-...".
    """
    registered = registered_model_name and as_text("registered_model_name", registered_model_name)
    with TemporaryDirectory() as place:
        parts = _parts(model, top_k, pip_requirements, Path(place))
        logged = _pyfunc().log_model(name=as_text("name", name), registered_model_name=registered, **parts)
        return logged.model_uri


def load_model(model_uri: str) -> Posterior | Policy:
    """Load the posterior or policy in an MLflow model, as `ma.load` would open its file.

    Args:
        model_uri: A URI of MLflow, as in "models:/shop/1", or a folder that `save_model` wrote.
    """
    try:
        model = _pyfunc().load_model(str(model_uri)).get_raw_model()
    except NotImplementedError:
        model = None
    checked: Any = as_instance("model_uri", model, SavedModel, "the URI of a model that ma.mlflow wrote")
    return checked


class RankedActions:
    """An MLflow model of the kind pyfunc: contexts in, the k best actions of each out.

    Attributes:
        model: The posterior or policy.
    """

    def __init__(self, model: Posterior | Policy):
        self.model = model
        self._policy, self._posterior = policy_to_score(model)

    def get_raw_model(self) -> Posterior | Policy:
        """The posterior or policy itself; MLflow calls this by name."""
        return self.model

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> Any:
        """The best actions of every context as a data frame, one row per context.

        Args:
            model_input: A data frame with the columns of the feature map, or an array of features.
            params: `top_k`.
        """
        pandas: Any = import_optional("pandas", "ma.mlflow", "manyarms[mlflow]")
        best = self._policy.top_k(model_input, as_count("top_k", (params or {}).get("top_k", 1)))
        columns: dict[str, Any] = {"actions": _ids(self._policy)[best]}
        if self._posterior is not None:
            n, k = best.shape
            rows, actions = np.repeat(np.arange(n), k), best.reshape(-1)
            x = as_contexts(model_input, self._posterior.features)[rows]
            columns["expected_rewards"] = self._posterior.expected_reward(x, actions).reshape(n, k)
            columns["reward_stds"] = self._posterior.reward_std(x, actions).reshape(n, k)
        return pandas.DataFrame({name: table.tolist() for name, table in columns.items()})


def _load_pyfunc(data_path: str) -> RankedActions:  # pyright: ignore[reportUnusedFunction]
    """Load the model file of a model of MLflow; its own loader calls this by name."""
    return RankedActions(load(data_path))


def _parts(model: Any, top_k: int, pip_requirements: list[str] | None, folder: Path) -> dict[str, Any]:
    """The arguments of MLflow's own functions, with the model file in a folder that lives long enough."""
    types: Any = import_optional("mlflow.types", "ma.mlflow", "manyarms[mlflow]")
    models: Any = import_optional("mlflow.models", "ma.mlflow", "manyarms[mlflow]")
    checked: Any = as_instance("model", model, SavedModel, "a posterior or a policy")
    policy, posterior = policy_to_score(checked)
    k = as_count("top_k", top_k)
    if k > policy.n_actions:
        raise InputError(f"must be at most the {policy.n_actions} actions there are; got {k}.", argument="top_k")
    signature = models.ModelSignature(
        inputs=_input_schema(policy),
        outputs=_output_schema(policy, posterior is not None),
        params=types.ParamSchema([types.ParamSpec("top_k", types.DataType.long, k)]),
    )
    model.save(folder / "model.arrow")
    return {
        "loader_module": __name__,
        "data_path": str(folder / "model.arrow"),
        "signature": signature,
        "input_example": _example(policy),
        "pip_requirements": [f"manyarms[mlflow]=={__version__}"] if pip_requirements is None else pip_requirements,
        "metadata": {"manyarms_version": __version__},
    }


def _input_schema(policy: Policy) -> Any:
    schema: Any = import_optional("mlflow.types.schema", "ma.mlflow", "manyarms[mlflow]")
    features = policy.features
    if features is None:
        return schema.Schema([schema.TensorSpec(np.dtype(np.float64), (-1, policy.dim or -1))])
    # MLflow refuses a column of integers where its schema says "double", so the feature map checks the types itself.
    return schema.Schema([schema.ColSpec(schema.AnyType(), column) for column in features.columns])


def _example(policy: Policy) -> Any:
    """A context for MLflow to show and to try the model with: the average one, as far as the feature map knows it."""
    pandas: Any = import_optional("pandas", "ma.mlflow", "manyarms[mlflow]")
    if policy.features is None:
        return np.zeros((1, policy.dim or 1))
    return pandas.DataFrame({feature.column: [_typical(feature)] for feature in policy.features.features})


def _typical(feature: Feature) -> Any:
    if isinstance(feature, Numeric):
        return feature.mean
    if isinstance(feature, Categorical):
        return feature.levels[0] if feature.levels else "other"
    return [0.0] * len(feature.names)


def _output_schema(policy: Policy, has_rewards: bool) -> Any:
    schema: Any = import_optional("mlflow.types.schema", "ma.mlflow", "manyarms[mlflow]")
    ids, types = _ids(policy).tolist(), schema.DataType
    if not all(isinstance(id, str) for id in ids) and not all(type(id) is int for id in ids):
        raise InputError("MLflow needs ids that are all texts or all integers.", "Use texts as ids of the catalog.")
    columns = {"actions": types.string if isinstance(ids[0], str) else types.long}
    if has_rewards:
        columns |= {"expected_rewards": types.double, "reward_stds": types.double}
    return schema.Schema([schema.ColSpec(schema.Array(kind), name) for name, kind in columns.items()])


def _ids(policy: Policy) -> Any:
    return np.arange(policy.n_actions) if policy.catalog is None else policy.catalog.ids


def _pyfunc() -> Any:
    return import_optional("mlflow.pyfunc", "ma.mlflow", "manyarms[mlflow]")
