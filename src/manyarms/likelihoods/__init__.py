"""How rewards arise from weights: logs in, statistics out."""

from manyarms.likelihoods.gaussian import Gaussian

__all__ = ["Gaussian"]
