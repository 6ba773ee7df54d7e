"""Three actions with a handful of rewards, and flat priors for them."""

import numpy as np

import manyarms as ma


def bought(rewards, *, n_actions=3, weights=None):
    """Rounds with one feature, actions in turn."""
    n = len(rewards)
    return ma.LoggedData(np.ones((n, 1)), np.arange(n) % n_actions, rewards, n_actions=n_actions, weights=weights)


def flat(mean, cov, n_actions=3):
    return ma.priors.independent(n_actions, mean=np.array([mean]), cov=cov)


SHOP = ma.Hurdle(ma.Bernoulli(), ma.LogNormal(0.5))
