"""Public names and methods, and those of them that need no hostile call, with the reason."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterable, Iterator
from typing import Any

import manyarms as ma

RESULT = "the library makes it; users only read it"
ABSTRACT = "a base class; its kinds are called"
CONSTANT = "not a function or a class"
DOWNLOAD = "it needs a network or a large public file"
WRITTEN_BY_USERS = "users write such classes themselves"
NOT_INSTALLED = "its library is not among the pinned tools"

WITHOUT_CALLS = {
    **dict.fromkeys(
        (
            "AveragedPosterior", "Backtest", "CategoryChecks", "CheckUp", "Comparison", "Decision", "Evaluation",
            "HurdlePosterior", "ItemVectors", "LearnedPrior", "LogStream", "Plan", "PriorCheck", "PriorComparison",
            "RewardPosterior",
            "Segments", "Sensitivity", "ShardedPosterior", "Statistics", "TradeOff", "datasets.JesterWorld",
            "datasets.KuaiRec", "datasets.KuaiRecWorld",
            "datasets.MovieLens", "datasets.MovieLensFactors", "datasets.MovieLensWorld", "datasets.OpenBanditLog",
            "jobs.EvaluationResult", "jobs.LogFinding",
            "jobs.FitResult", "jobs.PolicyResult", "jobs.RoundSample", "jobs.ScoreResult",
            "jobs.StackedMap", "jobs.UpdateResult", "experiments.Outcome", "experiments.Table",
            "experiments.Known", "experiments.MethodTask", "experiments.Origin", "experiments.Cell",
            "nonlinear.ChainedFunction", "nonlinear.NonlinearPosterior", "nonlinear.PosteriorDraws",
            "learners.TrainingStep", "estimators.Rounds", "theory.BayesMSE", "theory.BayesSuboptimality",
            "experiments.CellError", "experiments.StaleRowsError", "WeightCheck", "HiddenCause",
            "PropensitySensitivity",
        ),
        RESULT,
    ),
    **dict.fromkeys(
        ("Policy", "Posterior", "Estimator", "SamplingEstimator", "Likelihood", "learners.Learner",
         "learners.Optimiser", "learners.SoftmaxLearner"),
        ABSTRACT,
    ),
    **dict.fromkeys(
        ("engines.Engine", "engines.Local", "engines.Shards", "engines.Tally", "engines.Task", "engines.Work",
         "experiments.Method", "experiments.Problem", "experiments.World"),
        WRITTEN_BY_USERS,
    ),
    **dict.fromkeys(
        ("__version__", "errors", "priors", "plots", "engines.LOCAL", "experiments.METHODS", "datasets.KUAIREC",
         "datasets.MOVIELENS_1M", "datasets.OPEN_BANDIT", "datasets.cache_folder"),
        CONSTANT,
    ),
    **dict.fromkeys(
        ("datasets.DataSource", "datasets.download", "datasets.merge_levels", "datasets.movielens_factors",
         "datasets.movielens_world"),
        DOWNLOAD,
    ),
    "experiments.Grid": "a table of cells; `run` refuses what is wrong with it",
    "experiments.run": "it starts processes; the command `reproduce` calls it",
    "experiments.digest_of": "it hashes whatever it is given",
    **dict.fromkeys(("arviz.inference_data", "mlflow.log", "mlflow.log_step"), NOT_INSTALLED),
}  # fmt: skip
"""Public names without a hostile call, and why."""

INNER_METHODS = frozenset(
    {
        # Of model files, and of the layers below: their arguments were checked at a public door.
        "clusters_by_size",
        "check_saved", "consistent", "from_saved", "part_names", "saved", "begins_with", "spelled_otherwise", "checked",
        "counted", "with_rewards", "centre", "conditioned", "covariances_with", "draw_given", "draw_latent", "marginal",
        "offset_of", "variance_of", "with_parts", "blocks", "choices", "on", "probability_of_sets", "profile",
        "collect", "combine", "draw_factors", "estimate_lift", "pair_std", "factors_for", "fitted_parts", "residual",
        "reweighted", "rounds", "shape", "folds", "predict", "without", "training_rounds", "weights_for", "tangent",
        "jacobian", "maximise", "states", "bound", "gains", "outcomes", "scores", "compact", "keep", "write",
        "draw_world", "matrix", "logged_data", "drawn_values", "action_weights", "pair_rewards", "of_rounds", "scaled",
        "shards", "also_through", "keeping", "FeatureMap.read", "jobs.StackedMap.read", "ageless", "columns", "take",
        "HierarchicalGaussian.variances_of", "MixedEffects.roots", "variances_of_sums", "sentence_about",
        "note_dropped", "part", "steps", "Training.objective", "Training.estimate", "RewardPosterior.estimate",
        "HurdlePosterior.estimate", "ShardedPosterior.estimate", "AveragedPosterior.estimate",
        "nonlinear.NonlinearPosterior.estimate", "nonlinear.PosteriorDraws.estimate",
        # Of mixing matrices and likelihoods, which only the solvers call.
        "action_size", "add_gram", "add_planned", "apply", "apply_t", "apply_t_each", "beside", "cross", "extended",
        "gram_blocks", "latent_rows", "plan", "root", "allows", "check", "dispersion_slope", "expected_log_density",
        "log_density", "log_jacobian", "log_predictive", "mean_reward", "mean_slope", "response", "reward_given",
        "score", "scores_above", "site", "site_and_density", "slopes", "start", "statistics", "treated",
        "with_dispersion", "log_slope", "derivatives", "minimise",
        # Without arguments, or with the options of a table of results.
        "as_json", "coverage_of", "series", "within", "records", "to_arrow", "to_pandas", "to_polars", "optimal_policy",
    }
)  # fmt: skip
"""Methods that no user calls with values of their own."""


def public_names() -> Iterator[tuple[str, Any]]:
    """Every public name, with its package where that is not manyarms itself."""
    seen = set[int]()
    for name in ma.__all__:
        seen.add(id(getattr(ma, name)))
        yield name, getattr(ma, name)
    for package in _packages():
        module = importlib.import_module(f"manyarms.{package}")
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if id(value) not in seen:
                seen.add(id(value))
                yield f"{package}.{name}", value
    for bridge in ("obp", "sklearn", "arviz", "mlflow"):
        module = importlib.import_module(f"manyarms.integrations.{bridge}")
        for name, value in vars(module).items():
            if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_"):
                yield f"{bridge}.{name}", value
    for name in ma.plots.__all__:
        yield f"plots.{name}", getattr(ma.plots, name)


def _packages() -> list[str]:
    """The packages of manyarms; widths are public as part of `theory`, so that one comes first."""
    names = sorted(module.name for module in pkgutil.iter_modules(ma.__path__) if module.ispkg)
    return sorted(names, key=lambda name: name != "theory")


def uncovered_names(called: Iterable[str]) -> list[str]:
    """Public names and methods that take arguments and that no hostile call uses."""
    calls = set(called)
    classes = {name: value for name, value in public_names() if inspect.isclass(value)}
    called_methods = {
        _function(classes[owner], method)
        for owner, _, method in (name.rpartition(".") for name in calls)
        if owner in classes
    }
    uncovered = [
        name
        for name, _ in public_names()
        if name not in calls and name not in WITHOUT_CALLS and name != "plots.theme" and not _is_engine_word(name)
    ]
    for name, kind in classes.items():
        for method in _methods(kind):
            if WITHOUT_CALLS.get(name) in (WRITTEN_BY_USERS, ABSTRACT, DOWNLOAD) or INNER_METHODS & {
                method,
                f"{name}.{method}",
            }:
                continue
            if _function(kind, method) not in called_methods:
                uncovered.append(f"{name}.{method}")
    return uncovered


def _function(kind: type, method: str) -> Any:
    """The function behind a method, which classes that inherit it share."""
    value = getattr(kind, method)
    return getattr(value, "__func__", value)


def _is_engine_word(name: str) -> bool:
    return name.startswith("core.") or name.startswith("cli.")


def _methods(kind: type) -> Iterator[str]:
    """Names of the public methods of a class that are defined in manyarms and take an argument."""
    for name, value in inspect.getmembers(kind):
        function = getattr(value, "__func__", value)
        if name.startswith("_") or not inspect.isfunction(function) or not function.__module__.startswith("manyarms"):
            continue
        if [parameter for parameter in inspect.signature(function).parameters if parameter not in ("self", "cls")]:
            yield name
