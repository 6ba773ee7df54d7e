"""The mean reward of a category's rounds as its weights vary together, where no single predictor stands for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from manyarms._arrays import Array
from manyarms.core.data import LoggedData
from manyarms.likelihoods import Likelihood
from manyarms.linalg.groups import sum_by
from manyarms.posterior.predictor import Predictor

Link = Callable[[Array], Array]


def draw_rates(
    predictor: Predictor, rounds: LoggedData, link: Link, mean: Float[Array, "1"], rng: np.random.Generator
) -> tuple[Float[Array, "s q"], Float[Array, "s q"]]:
    """Σ w g(η) / Σ w under weights θ = E θ + k z + rest, a draw of the rest a row, and the probability of each in it.

    z ~ N(0, 1) is Σ w E g'(η) η, standardised: along it the mean reward varies most. k = Cov(θ, z), so the rest is
    independent of z. The rest is drawn and z is gone through node by node: tails far beyond what draws would reach are
    integrals, and where one action in one context leaves no rest nothing is left to chance.

    Args:
        predictor: The weights, and g.
        rounds: Of one category, or some of them.
        link: The inverse of g.
        mean: The expected mean reward of all rounds of the category. Rates are shifted to it, on the scale of η, by
            what the rounds given lie off it.
        rng: For the rest.
    """
    weights, likelihood = predictor.weights, predictor.likelihood
    w = np.ones(len(rounds)) if rounds.weights is None else rounds.weights
    share = w / w.sum()
    eta, variance = predictor.pairs(rounds.contexts, rounds.actions)
    slope = likelihood.mean_slope(eta, variance)
    actions, mass = sum_by(rounds.actions, (w * slope)[:, None] * rounds.contexts)
    std = np.sqrt(weights.variance_of(mass, actions))
    along = weights.covariances_with(mass, actions) / max(std, np.finfo(float).tiny)
    rest = weights.sample(rng, DRAWS, actions) - weights.action_mean(actions)
    z = np.einsum("md,smd->s", mass, rest) / max(std, np.finfo(float).tiny)
    rest -= z[:, None, None] * along

    mine, x = np.searchsorted(actions, rounds.actions), rounds.contexts
    start = eta + np.einsum("nd,snd->sn", x, rest[:, mine])
    rates = _mean_rewards(likelihood, start, np.einsum("nd,nd->n", x, along[mine]), share)
    shift = link(mean) - link(np.sum(likelihood.mean_reward(eta, variance) * share, keepdims=True))
    # Each draw has nodes between those of the others, so that together they are close even where tails are steps.
    nodes = NODES + (np.arange(DRAWS)[:, None] + 0.5) / DRAWS * STEP
    density = np.exp(-0.5 * nodes**2)
    eta = _between(link(rates), nodes) + shift
    return likelihood.reward_given(eta), density / density.sum(axis=1, keepdims=True)


def _mean_rewards(
    likelihood: Likelihood, start: Float[Array, "s n"], along: Float[Array, " n"], share: Float[Array, " n"]
) -> Float[Array, "c s"]:
    """Σ share g(start + z along) for every z of `COARSE`."""
    return np.stack([likelihood.reward_given(start + z * along) @ share for z in COARSE])


def _between(values: Float[Array, "c s"], nodes: Float[Array, "s q"]) -> Float[Array, "s q"]:
    """Values at the nodes of each draw, by a cubic spline through those at `COARSE`."""
    from scipy.interpolate import CubicSpline  # noqa: PLC0415  slow to import

    cubics = CubicSpline(COARSE, values, axis=0).c
    piece = np.searchsorted(COARSE, nodes, side="right") - 1
    a, b, c, d = cubics[:, piece, np.arange(len(nodes))[:, None]]
    ahead = nodes - COARSE[piece]
    return ((a * ahead + b) * ahead + c) * ahead + d


DRAWS = 64
COARSE = np.linspace(-9.0, 9.0, 19)
"""Where the mean reward is computed; between, it is smooth on the scale of η."""
STEP = 0.2
NODES = np.arange(-8.0, 8.0, STEP)
