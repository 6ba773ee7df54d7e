"""The verb that turns logs and a prior into a posterior."""

from __future__ import annotations

from manyarms.core.data import LoggedData
from manyarms.core.hierarchy import HierarchicalGaussian
from manyarms.errors import DataTypeError
from manyarms.inference import condition
from manyarms.likelihoods import Gaussian
from manyarms.posterior.reward import RewardPosterior, check_logs


def fit(logs: LoggedData, prior: HierarchicalGaussian, likelihood: Gaussian | None = None) -> RewardPosterior:
    """The posterior of all action weights given the logs: one pass over the rounds, then one solve over seen actions.

    Args:
        logs: Logged rounds; an empty log gives the prior back.
        prior: Over all actions, seen or not; yesterday's `posterior.weights` is allowed.
        likelihood: How rewards arise; by default `Gaussian(noise_std=1.0)`.
    """
    if not isinstance(prior, HierarchicalGaussian):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DataTypeError(f"prior must be a HierarchicalGaussian; got {type(prior).__name__}.")
    likelihood = Gaussian() if likelihood is None else likelihood
    statistics = likelihood.statistics(check_logs(logs, prior), prior.n_actions)
    weights = condition(prior, statistics, likelihood.noise_std)
    return RewardPosterior(weights, prior, statistics, likelihood)
