"""Draws of the reward function from a posterior, and the values of policies under them: whole distributions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int, UInt64
from scipy import sparse

from manyarms._base.checks import Array, row_weights
from manyarms._base.rng import split
from manyarms.core import Choices, HierarchicalGaussian, Policy
from manyarms.likelihoods import Likelihood
from manyarms.linalg.indexing import chunks
from manyarms.linalg.sparse_matrices import pair_rows

if TYPE_CHECKING:
    from manyarms.posterior.gaussian_posterior import GaussianPosterior

ACTIONS_PER_CHUNK = 256
"""Fixed: the noise of a chunk comes from its number, so another size would give other draws."""


class FactorDraws(ABC):
    """Draws of one factor of the reward, g(φ(x)ᵀ θ_a): of all its weights, made when they are needed."""

    likelihood: Likelihood
    n_draws: int

    @abstractmethod
    def theta(self, chunk: int, actions: Int[Array, " c"]) -> Float[Array, "s c d"]:
        """θ_a of the actions of a chunk, always the same for the same chunk: policies meet the same weights."""


def chunk_rng(key: UInt64[Array, "2"], chunk: int) -> np.random.Generator:
    """The generator of reward draws for a chunk of actions."""
    return np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, chunk]))


def draw_key(rng: np.random.Generator) -> UInt64[Array, "2"]:
    """A key of reward draws, for `chunk_rng`."""
    return rng.integers(0, 1 << 63, size=2, dtype=np.uint64)


class GaussianFactorDraws(FactorDraws):
    """Draws of Gaussian weights: ψ is drawn once and kept, θ_a given ψ is made again whenever it is needed.

    They are of one factor of the reward, by its number; `key` is that of the noise of θ_a given ψ.
    """

    def __init__(self, posterior: GaussianPosterior, number: int, latent: Float[Array, "s p"], key: UInt64[Array, "2"]):
        self.posterior, self.number, self.latent, self.key = posterior, number, latent, key
        self.n_draws, self.likelihood = len(latent), posterior.factors_for(_NONE)[number].likelihood

    @classmethod
    def draw(
        cls, posterior: GaussianPosterior, number: int, n_draws: int, rng: np.random.Generator
    ) -> GaussianFactorDraws:
        """Draw ψ, and a key from which θ_a is made."""
        latent_rng, action_rng = split(rng, "latent", "actions")
        latent = posterior.factors_for(_NONE)[number].weights.draw_latent(latent_rng, n_draws)
        return cls(posterior, number, latent, draw_key(action_rng))

    @property
    def weights(self) -> HierarchicalGaussian:
        """The distribution of the weights of all actions."""
        return self.posterior.factors_for(np.arange(self.posterior.n_actions))[self.number].weights

    def theta(self, chunk: int, actions: Int[Array, " c"]) -> Float[Array, "s c d"]:
        weights = self.posterior.factors_for(actions)[self.number].weights
        return weights.draw_given(self.latent, actions, chunk_rng(self.key, chunk))


def draw_values(
    factors: Sequence[FactorDraws],
    terms: list[tuple[Policy, float]],
    contexts: Float[Array, "n d"],
    eligible: Any,
    counts: Any,
) -> Float[Array, " s"]:
    """Draws of Σ number V(policy) over the terms (policy, number), with the same weights for all policies in a draw.

    Each draw costs as much as the policies' choices: the pairs of a context and an action that may be chosen there.
    """
    share = row_weights(counts, len(contexts))
    share = share / share.sum()
    out = np.zeros(factors[0].n_draws)
    for policy, factor in terms:
        for part, x, choices in policy.blocks(contexts, eligible):
            out += factor * _block_values(factors, policy.n_actions, x, choices, share[part])
    return out


def _block_values(
    factors: Sequence[FactorDraws],
    n_actions: int,
    x: Float[Array, "b d"],
    choices: Choices,
    share: Float[Array, " b"],
) -> Float[Array, " s"]:
    """Σ_i share_i Σ_a π(a | x_i) r(x_i, a) for every draw."""
    out = np.zeros(factors[0].n_draws)
    named = None if choices.named is None else sparse.csr_array(choices.named.T)
    for number, columns in enumerate(chunks(n_actions, ACTIONS_PER_CHUNK)):
        few = named is not None and named.indptr[columns.start] < named.indptr[columns.stop]
        shared = choices.everywhere is not None and choices.everywhere[columns].any()
        if not (few or shared or choices.dense is not None):
            continue
        actions = np.arange(columns.start, columns.stop)
        drawn = [(factor.theta(number, actions), factor.likelihood) for factor in factors]
        if few and named is not None:
            out += _pair_values(named[columns], drawn, x, share)
        if shared or choices.dense is not None:
            out += _tile_values(choices.unnamed_shares(slice(0, len(x)), columns), drawn, x, share)
    return out


def _pair_values(
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


def _tile_values(
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


_NUMBERS = 1 << 21
_NONE = np.empty(0, dtype=np.int64)
