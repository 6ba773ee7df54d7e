"""Choosing a prior by what the logs say: learning its scales, comparing several, checking one."""

from manyarms.prior_choice.averaged import AveragedPosterior
from manyarms.prior_choice.learn import learn_prior
from manyarms.prior_choice.learned import LearnedPrior

__all__ = ["AveragedPosterior", "LearnedPrior", "learn_prior"]
