"""Check of prior and noise against all rewards of the logs at once."""

from __future__ import annotations

from manyarms._base.checks import as_instance
from manyarms.errors import InputError
from manyarms.posterior import RewardPosterior
from manyarms.posterior.misfit import PriorCheck

PRIOR_IS_POSTERIOR = "the prior of this posterior is itself a posterior."


def check_prior(posterior: RewardPosterior) -> PriorCheck:
    """Check whether the logs contradict prior or noise: at no extra cost, and exact where rewards are Gaussian.

    Under prior and noise, the centred rewards are N(0, V) and rᵀ V⁻¹ r is χ² with one degree of freedom per round. It
    splits into two independent parts. The part that no weights could explain, the residual of a least-squares fit
    action by action, is χ² with n - q degrees. It checks the noise (and whether rewards are linear in the contexts at
    all). The rest is χ² with q degrees and checks the prior, provided the noise is right. q sums the rows that carry
    information: for an action with fewer rounds than dimensions its rounds, for any other the rank of its contexts.

    A warning needs p < 0.001 and a ratio outside 0.8 ... 1.25. Weights of rounds are counts: weight 2 means the round
    happened twice. Where their sum leaves no degrees of freedom, as with weights far below one, the noise is not
    checked. A prior learned from the same logs by `learn_prior` has a ratio near one by construction: this check is for
    other priors. If it is contradicted all the same, the warning advises another prior.

    Clicks, counts and heavy tails have no such sum of squares. Then noise and spread are not checked, and the result
    says so. The mean of the prior is checked instead, by a score test in every coordinate, which is as normal as the
    posterior is: logs with 1 % clicks contradict a prior of mean zero, which expects 50 %. A warning needs p < 0.001
    and a shift of more than half the spread of an action. `check_categories` compares the rates themselves.

    Args:
        posterior: A posterior from `fit` or `update`.

    Raises:
        InputError: If the posterior was fitted with an earlier posterior as its prior, which does not count its rounds.
    """
    posterior = as_instance("posterior", posterior, RewardPosterior, "a posterior from fit()")
    if posterior.prior.observed.groups:
        raise InputError(PRIOR_IS_POSTERIOR, "Fit all rounds on the first prior, with fit() and update().")
    return posterior.check
