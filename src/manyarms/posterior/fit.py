"""Turns logs and a prior into a posterior."""

from __future__ import annotations

from typing import Any, overload

from manyarms._base.checks import as_count, as_instance, as_scalar
from manyarms._base.progress import Progress
from manyarms.core import HierarchicalGaussian, LoggedData, Logs, Statistics
from manyarms.core.logged_data import as_logs
from manyarms.engines import Engine, as_engine
from manyarms.errors import InputError, ShapeError
from manyarms.gpu.device import CPU, as_device
from manyarms.inference import condition
from manyarms.likelihoods import Gaussian, Hurdle, Likelihood
from manyarms.likelihoods.device_sites import check_loop
from manyarms.likelihoods.fit_weights import FittedWeights, fit_weights
from manyarms.likelihoods.likelihood import as_likelihood
from manyarms.likelihoods.variational import MAX_ITERATIONS
from manyarms.posterior.hurdle_posterior import HurdlePosterior, split_rounds
from manyarms.posterior.posterior import Posterior
from manyarms.posterior.reward_posterior import RewardPosterior
from manyarms.posterior.training_files import in_memory_if_small, remember_files


@overload
def fit(
    logs: Logs | Statistics,
    prior: HierarchicalGaussian,
    likelihood: Likelihood | None = None,
    *,
    start: RewardPosterior | None = None,
    max_iterations: int = MAX_ITERATIONS,
    tolerance: float = 1e-6,
    progress: Progress = False,
    engine: Engine | str | None = None,
    device: str = CPU,
) -> RewardPosterior: ...
@overload
def fit(
    logs: LoggedData,
    prior: HierarchicalGaussian | tuple[HierarchicalGaussian, HierarchicalGaussian],
    likelihood: Hurdle,
    *,
    start: HurdlePosterior | None = None,
    max_iterations: int = MAX_ITERATIONS,
    tolerance: float = 1e-6,
    progress: Progress = False,
    engine: Engine | str | None = None,
    device: str = CPU,
) -> HurdlePosterior: ...
def fit(
    logs: Logs | Statistics,
    prior: HierarchicalGaussian | tuple[HierarchicalGaussian, HierarchicalGaussian],
    likelihood: Likelihood | Hurdle | None = None,
    *,
    start: Posterior | None = None,
    max_iterations: int = MAX_ITERATIONS,
    tolerance: float = 1e-6,
    progress: Progress = False,
    engine: Engine | str | None = None,
    device: str = CPU,
) -> Posterior:
    """The posterior of all action weights given the logs.

    With Gaussian rewards: one pass over the rounds, then one solve over seen actions. With others: a few passes and
    solves, until the approximation no longer improves; a stream of at most half a gigabyte is then read once and held.
    The posterior remembers the files of a stream, so that none is counted twice.

    Args:
        logs: Logged rounds, in memory or a `LogStream`; an empty log gives the prior back. For Gaussian rewards also
            `Statistics`, added up over shards with `sum`.
        prior: The prior over all actions, seen or not; yesterday's `posterior.weights` is allowed. With a `Hurdle` a
            pair, for whether there is a reward and for how much it is, or one prior for both.
        likelihood: The distribution of rewards given weights; by default `Gaussian(noise_std=1.0)`.
        start: An earlier posterior on the same actions to start the steps from; the result is the same, sooner.
        max_iterations: The largest number of steps; a warning says when that was not enough.
        tolerance: Stop when a step raises the objective by less than this, in nats.
        progress: True shows a progress bar; a function is called as progress(step, max_iterations).
        engine: The engine that reads a `LogStream`: "local" (the default), "dask", "spark", or an engine with options
            of its own. Logs in memory stay where they are.
        device: "cuda" runs the loop for clicks on a GPU, with the same result (docs/gpu.md).
    """
    options: dict[str, Any] = {
        "max_iterations": as_count("max_iterations", max_iterations),
        "tolerance": as_scalar("tolerance", tolerance, above=0.0),
        "progress": progress,
        "device": as_device(device),
    }
    if isinstance(likelihood, Hurdle):
        return _fit_hurdle(logs, prior, likelihood, start, options)
    prior = as_instance("prior", prior, HierarchicalGaussian, "a HierarchicalGaussian")
    likelihood = as_likelihood(likelihood)
    if isinstance(logs, Statistics):
        if options["device"] != CPU:
            check_loop(prior, logs, likelihood)
        if not isinstance(likelihood, Gaussian):
            raise InputError(
                f"{type(likelihood).__name__} needs the rounds themselves; statistics are of rewards as they are.",
                "Pass LoggedData.",
            )
        return RewardPosterior(condition(prior, logs, likelihood.noise_std), prior, logs, likelihood)
    logs = as_logs(logs, prior)
    rounds = in_memory_if_small(logs, likelihood, engine)
    fitted = fit_weights(prior, rounds, likelihood, engine=as_engine(engine), start=_as_start(start, prior), **options)
    return remember_files(posterior_of(fitted, rounds, prior, likelihood), logs)


def posterior_of(
    fitted: FittedWeights, logs: Logs, prior: HierarchicalGaussian, likelihood: Likelihood
) -> RewardPosterior:
    """The posterior that `fit` returns, made of fitted weights."""
    return RewardPosterior(prior=prior, likelihood=likelihood, **RewardPosterior.fitted_parts(fitted, logs))


def _as_start(value: Any, prior: HierarchicalGaussian) -> HierarchicalGaussian | None:
    """The weights of an earlier posterior that fits the prior."""
    if value is None:
        return None
    weights = as_instance("start", value, RewardPosterior, "what fit() returned").weights
    if (weights.n_actions, weights.dim) != (prior.n_actions, prior.dim):
        raise ShapeError(
            f"has {weights.n_actions} actions in {weights.dim} dimensions; the prior has {prior.n_actions} in "
            f"{prior.dim}.",
            "Grow it with start.with_actions(), or leave start out.",
            argument="start",
        )
    return weights


def _fit_hurdle(logs: Any, prior: Any, likelihood: Hurdle, start: Any, options: dict[str, Any]) -> HurdlePosterior:
    """The posterior of a hurdle, each part from its own rounds."""
    logs = as_instance("logs", logs, LoggedData, "a LoggedData for a hurdle; collect() a stream first")
    parts = split_rounds(logs, likelihood.amount)
    pair = prior if isinstance(prior, tuple) else (prior, prior)
    if len(pair) != 2:
        raise InputError(f"must be one prior, or a pair for a hurdle; got {len(pair)}.", argument="prior")
    begin = (None, None)
    if start is not None:
        start = as_instance("start", start, HurdlePosterior, "what fit() returned")
        begin = (start.occurs, start.amount)
    kinds = (likelihood.occurs, likelihood.amount)
    occurs, amount = (
        fit(part, own, kind, start=first, **options)
        for part, own, kind, first in zip(parts, pair, kinds, begin, strict=True)
    )
    return HurdlePosterior(occurs, amount)
