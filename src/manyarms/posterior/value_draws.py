"""The value of a policy under posterior draws: the whole distribution, where the delta method has two moments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array
from manyarms._base.rng import split
from manyarms.core.choices import Choices
from manyarms.core.hierarchical_gaussian import HierarchicalGaussian
from manyarms.core.policy import Policy, row_weights
from manyarms.likelihoods import Likelihood
from manyarms.linalg.indexing import chunks, pair_rows


@dataclass(frozen=True)
class Empirical:
    """A distribution known by draws from it.

    Attributes:
        draws: As many as there are.
    """

    draws: Float[Array, " s"]

    def interval(self, level: float) -> tuple[float, float]:
        """The central interval that holds a share `level` of the draws."""
        low, high = np.quantile(self.draws, [0.5 - level / 2, 0.5 + level / 2])
        return float(low), float(high)

    @property
    def probability_positive(self) -> float:
        """The share of draws above zero; those at zero count half."""
        return float(np.mean(self.draws > 0) + 0.5 * np.mean(self.draws == 0))


@dataclass(frozen=True)
class Factor:
    """One factor of a reward: g(φ(x)ᵀ θ_a) under draws of its own weights."""

    weights: HierarchicalGaussian
    likelihood: Likelihood
    latent: Float[Array, "s p"]
    key: Array

    @classmethod
    def draw(
        cls, weights: HierarchicalGaussian, likelihood: Likelihood, n_draws: int, rng: np.random.Generator
    ) -> Factor:
        """Draws of ψ now, and a key from which those of θ_a are made when they are needed."""
        latent_rng, action_rng = split(rng, "latent", "actions")
        latent = weights.draw_latent(latent_rng, n_draws)
        return cls(weights, likelihood, latent, action_rng.integers(0, 1 << 63, size=2, dtype=np.uint64))

    def theta(self, number: int, actions: Int[Array, " c"]) -> Float[Array, "s c d"]:
        """θ of a chunk of actions. Its noise comes from the chunk's number: policies are judged by the same weights."""
        rng = np.random.Generator(np.random.Philox(key=self.key, counter=[0, 0, 0, number]))
        return self.weights.draw_given(self.latent, actions, rng)


def draw_values(
    factors: list[Factor],
    terms: list[tuple[Policy, float]],
    contexts: Float[Array, "n d"],
    eligible: Any,
    counts: Any,
) -> Float[Array, " s"]:
    """Draws of Σ factor V(policy) over the terms, all policies under the same weights in a draw.

    Each draw costs what the policies' choices cost: the pairs of a context and an action that may be chosen there.

    Args:
        factors: Of the reward.
        terms: Policies, each with what it is multiplied by.
        contexts: (n, d).
        eligible: As in `value`.
        counts: (n,) how often each context counts; None for once.
    """
    share = row_weights(counts, len(contexts))
    share = share / share.sum()
    out = np.zeros(len(factors[0].latent))
    for policy, factor in terms:
        for part, x, choices in policy.blocks(contexts, eligible):
            out += factor * _block(factors, x, choices, share[part])
    return out


def _block(
    factors: list[Factor], x: Float[Array, "b d"], choices: Choices, share: Float[Array, " b"]
) -> Float[Array, " s"]:
    """Σ_i share_i Σ_a π(a | x_i) r(x_i, a) for every draw."""
    out = np.zeros(len(factors[0].latent))
    named = None if choices.named is None else sparse.csr_array(choices.named.T)
    for number, columns in enumerate(chunks(factors[0].weights.n_actions, _ACTIONS)):
        few = named is not None and named.indptr[columns.start] < named.indptr[columns.stop]
        spread = _spread_share(choices, columns)
        if not few and spread is None:
            continue
        actions = np.arange(columns.start, columns.stop)
        drawn = [(factor.theta(number, actions), factor.likelihood) for factor in factors]
        if few and named is not None:
            out += _of_pairs(named[columns], drawn, x, share)
        if spread is not None:
            out += _of_all(spread, drawn, x, share)
    return out


def _spread_share(choices: Choices, columns: slice) -> Float[Array, "b c"] | None:
    """The probabilities that a block spreads over some actions, row by row; None when there are none."""
    out = None if choices.dense is None else choices.dense[:, columns]
    if choices.everywhere is not None and choices.everywhere[columns].any():
        shared = np.broadcast_to(choices.everywhere[columns], (choices.n_rows, columns.stop - columns.start))
        out = shared if out is None else out + shared
    return out


def _of_pairs(
    pairs: sparse.csr_array,
    drawn: list[tuple[Array, Likelihood]],
    x: Float[Array, "b d"],
    share: Float[Array, " b"],
) -> Float[Array, " s"]:
    n_draws, action = len(drawn[0][0]), pair_rows(pairs)
    out = np.zeros(n_draws)
    for part in chunks(pairs.nnz, max(1, _NUMBERS // (n_draws * x.shape[1]))):
        rows = pairs.indices[part]
        reward = np.ones((n_draws, len(rows)))
        for theta, likelihood in drawn:
            reward *= likelihood.reward_given(np.einsum("pd,spd->sp", x[rows], theta[:, action[part]]))
        out += reward @ (pairs.data[part] * share[rows])
    return out


def _of_all(
    probability: Float[Array, "b c"],
    drawn: list[tuple[Array, Likelihood]],
    x: Float[Array, "b d"],
    share: Float[Array, " b"],
) -> Float[Array, " s"]:
    s, c, d = drawn[0][0].shape
    out = np.zeros(s)
    for part in chunks(len(x), max(1, _NUMBERS // (s * c))):
        reward = np.ones((s, c * (part.stop - part.start)))
        for theta, likelihood in drawn:
            reward *= likelihood.reward_given((theta.reshape(s * c, d) @ x[part].T).reshape(s, -1))
        out += reward @ (probability[part] * share[part, None]).T.reshape(-1)
    return out


_ACTIONS = 256
_NUMBERS = 1 << 21
