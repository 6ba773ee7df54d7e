"""What the logs say of the rewards, and what follows from it in closed form."""

from manyarms.posterior.fitting import fit
from manyarms.posterior.hurdle import HurdlePosterior
from manyarms.posterior.reward import RewardPosterior
from manyarms.posterior.spread import SpreadPosterior, fit_spread
from manyarms.posterior.widths import bayesian_width, confidence_radius, frequentist_width

__all__ = [
    "HurdlePosterior",
    "RewardPosterior",
    "SpreadPosterior",
    "bayesian_width",
    "confidence_radius",
    "fit",
    "fit_spread",
    "frequentist_width",
]
