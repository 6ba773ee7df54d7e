"""What the logs say of the rewards, and what follows from it in closed form."""

from manyarms.posterior.fit import fit
from manyarms.posterior.hurdle_posterior import HurdlePosterior
from manyarms.posterior.reward_posterior import RewardPosterior
from manyarms.posterior.reward_width import bayesian_width, confidence_radius, frequentist_width
from manyarms.posterior.sharded_posterior import ShardedPosterior, fit_sharded

__all__ = [
    "HurdlePosterior",
    "RewardPosterior",
    "ShardedPosterior",
    "bayesian_width",
    "confidence_radius",
    "fit",
    "fit_sharded",
    "frequentist_width",
]
