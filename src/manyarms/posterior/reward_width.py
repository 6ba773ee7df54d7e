"""Widths of intervals on a reward that hold for all contexts at once (paper, App. "Frequentist vs. Bayesian ...")."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, as_actions, as_count, as_floats, as_instance, as_scalar, check_rows
from manyarms.core.feature_map import as_contexts
from manyarms.errors import CovarianceError, InputError, ShapeError
from manyarms.posterior.posterior import Posterior
from manyarms.posterior.reward_posterior import RewardPosterior


def confidence_radius(dim: int, delta: float) -> float:
    """The radius α(d, δ) in the width of a reward: a standard normal d-vector is longer with probability at most δ.

    α(d, δ) = √(d + 2 √(d log 1/δ) + 2 log 1/δ).
    """
    dim = as_count("dim", dim)
    log = -np.log(as_scalar("delta", delta, above=0.0, below=1.0))
    return float(np.sqrt(dim + 2 * np.sqrt(dim * log) + 2 * log))


def bayesian_width(posterior: Posterior, contexts: Any, actions: Any, delta: float = 0.05) -> Float[Array, " n"]:
    """α(d, δ) ‖φ(x)‖ in Σ̂_a: given the data, |r(x, a) - r̂(x, a)| is below it for all x with probability 1 - δ."""
    as_instance("posterior", posterior, Posterior, "a posterior")
    return confidence_radius(posterior.dim, delta) * posterior.reward_std(contexts, actions)


def frequentist_width(
    posterior: RewardPosterior, contexts: Any, actions: Any, weight_norms: Any, delta: float = 0.05
) -> Float[Array, " n"]:
    """(α(d, δ) + (c_a + ‖μ_a‖) / √λ_min(Σ_a)) ‖φ(x)‖ in Σ̂_a: covers for a fixed θ_a, over the noise of the rewards.

    The extra term is the price of not trusting the prior. It is stated for independent priors (d' = 0); for others the
    prior's marginal mean and covariance of each action take the place of μ_a and Σ_a. Read ‖μ_a‖, the prior's mean,
    where the paper's lemma prints the posterior's.

    Args:
        posterior: A fitted posterior.
        contexts: (n, d).
        actions: (n,) one action per row.
        weight_norms: c_a ≥ ‖θ_a‖, one number for all rows or (n,).
        delta: One minus the coverage.
    """
    as_instance("posterior", posterior, RewardPosterior, "a posterior from fit()")
    x = as_contexts(contexts, posterior.features, columns=posterior.dim)
    actions = as_actions("actions", actions, n_actions=posterior.n_actions, length=len(x))
    distinct, where = np.unique(actions, return_inverse=True)
    mean = posterior.prior.action_mean(distinct)
    smallest = np.linalg.eigvalsh(posterior.prior.action_cov(distinct))[:, 0]
    if not (smallest > 0).all():
        raise CovarianceError(
            f"the prior covariance of action {distinct[np.argmin(smallest > 0)]} is singular, and a frequentist width "
            "divides by its smallest eigenvalue.",
            "Use bayesian_width.",
        )
    norms = as_floats("weight_norms", weight_norms, ndim=(0, 1))
    if norms.ndim and len(norms) != len(actions):
        raise ShapeError(f"must be one number or have {len(actions)} rows; got {len(norms)}.", argument="weight_norms")
    check_rows("weight_norms", norms, lambda c: c >= 0, InputError, "must not be negative", "They bound ‖θ_a‖.")
    extra = (norms + np.linalg.norm(mean, axis=1)[where]) / np.sqrt(smallest[where])
    return (confidence_radius(posterior.dim, delta) + extra) * posterior.reward_std(x, actions)
