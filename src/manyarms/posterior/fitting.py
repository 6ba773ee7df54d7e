"""The verb that turns logs and a prior into a posterior."""

from __future__ import annotations

from manyarms._arrays import as_instance
from manyarms.core.data import LoggedData
from manyarms.core.hierarchy import HierarchicalGaussian
from manyarms.core.statistics import Statistics
from manyarms.inference import condition
from manyarms.likelihoods import Gaussian
from manyarms.posterior.reward import RewardPosterior, check_logs


def fit(
    logs: LoggedData | Statistics, prior: HierarchicalGaussian, likelihood: Gaussian | None = None
) -> RewardPosterior:
    """The posterior of all action weights given the logs: one pass over the rounds, then one solve over seen actions.

    Args:
        logs: Logged rounds; an empty log gives the prior back. Or their `Statistics`, added up over shards with `sum`.
        prior: Over all actions, seen or not; yesterday's `posterior.weights` is allowed.
        likelihood: How rewards arise; by default `Gaussian(noise_std=1.0)`.
    """
    prior = as_instance("prior", prior, HierarchicalGaussian, "a HierarchicalGaussian")
    likelihood = Gaussian() if likelihood is None else likelihood
    likelihood = as_instance("likelihood", likelihood, Gaussian, "a likelihood, as in ma.Gaussian(1.0)")
    if isinstance(logs, Statistics):
        statistics, learned_from = logs, ()
    else:
        statistics = likelihood.statistics(check_logs(logs, prior), prior.n_actions)
        learned_from = (logs.fingerprint,)
    weights = condition(prior, statistics, likelihood.noise_std)
    return RewardPosterior(weights, prior, statistics, likelihood, learned_from)
