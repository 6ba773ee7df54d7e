"""Checks of a prior against the logs: predictive checks, comparison of several priors, sensitivity of a value."""

from manyarms.posterior.prior_check import PriorCheck
from manyarms.prior_checks.check_categories import CategoryChecks, check_categories, check_prior
from manyarms.prior_checks.compare_priors import PriorComparison, compare_priors
from manyarms.prior_checks.sensitivity import Sensitivity, prior_sensitivity

__all__ = [
    "CategoryChecks",
    "PriorCheck",
    "PriorComparison",
    "Sensitivity",
    "check_categories",
    "check_prior",
    "compare_priors",
    "prior_sensitivity",
]
