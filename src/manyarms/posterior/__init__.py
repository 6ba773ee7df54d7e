"""Posteriors of the reward function: what the logs say of rewards, and of the values of policies."""

from manyarms.posterior.fit import fit
from manyarms.posterior.hurdle_posterior import HurdlePosterior
from manyarms.posterior.posterior import Posterior
from manyarms.posterior.reward_posterior import RewardPosterior
from manyarms.posterior.reward_width import bayesian_width, confidence_radius, frequentist_width
from manyarms.posterior.sharded_posterior import ShardedPosterior, fit_sharded

__all__ = [
    "HurdlePosterior",
    "Posterior",
    "RewardPosterior",
    "ShardedPosterior",
    "bayesian_width",
    "confidence_radius",
    "fit",
    "fit_sharded",
    "frequentist_width",
]
