"""Learning a prior from the logs: standard deviations, means and noise by empirical Bayes."""

from manyarms.prior_learning.averaged_posterior import AveragedPosterior
from manyarms.prior_learning.learn_prior import learn_prior
from manyarms.prior_learning.learned_prior import LearnedPrior

__all__ = ["AveragedPosterior", "LearnedPrior", "learn_prior"]
