"""Choosing a prior by what the logs say: learning its scales, comparing several, checking one."""

from manyarms.posterior.misfit import PriorCheck
from manyarms.prior_choice.averaged import AveragedPosterior
from manyarms.prior_choice.checks import CategoryChecks, check_categories, check_prior
from manyarms.prior_choice.compare import PriorComparison, compare_priors
from manyarms.prior_choice.learn import learn_prior
from manyarms.prior_choice.learned import LearnedPrior
from manyarms.prior_choice.sensitivity import Sensitivity, prior_sensitivity

__all__ = [
    "AveragedPosterior",
    "CategoryChecks",
    "LearnedPrior",
    "PriorCheck",
    "PriorComparison",
    "Sensitivity",
    "check_categories",
    "check_prior",
    "compare_priors",
    "learn_prior",
    "prior_sensitivity",
]
