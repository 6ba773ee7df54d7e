"""Every action with the probability that it is the best."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt64
from scipy import sparse

from manyarms._base.checks import Array, as_count, as_instance
from manyarms._base.rng import split
from manyarms.core.choices import Choices
from manyarms.core.eligibility import as_eligibility, eligible_blocks
from manyarms.core.policy import Policy
from manyarms.linalg.indexing import chunks
from manyarms.posterior.reward_posterior import RewardPosterior

ACTIONS_PER_CHUNK = 256
"""Fixed: the noise of a chunk comes from its number, so another size would be another policy."""


class Thompson(Policy):
    """π(a | x) = P(a maximises φ(x)ᵀ θ_a | data), by posterior draws.

    The draws are frozen when the policy is made, so `probabilities` are deterministic: shares of `n_draws` wins, each
    with a Monte Carlo error of at most `max_share_error`. Only ψ of each draw is kept; θ_a given ψ is made again for a
    chunk of actions whenever it is needed. `sample` draws afresh.

    Args:
        posterior: What `fit` returned.
        n_draws: How many draws; the cost of a query is n_draws times that of a greedy one.
        rng: A NumPy generator.
    """

    saved_as = "thompson"
    saved_fields = ("posterior", "latent", "key")
    rows_per_block = 4096
    samples_have_probabilities = False

    def __init__(self, posterior: RewardPosterior, n_draws: int = 1000, *, rng: np.random.Generator):
        as_instance("posterior", posterior, RewardPosterior, "what ma.fit returned")
        latent_rng, action_rng = split(rng, "latent", "actions")
        latent = posterior.weights.draw_latent(latent_rng, as_count("n_draws", n_draws))
        self._set(posterior, latent, action_rng.integers(0, 1 << 63, size=2, dtype=np.uint64))

    def _set(self, posterior: RewardPosterior, latent: Float[Array, "s p"], key: UInt64[Array, "2"]) -> None:
        self.posterior, self._latent, self._key = posterior, latent, key
        self.n_actions, self.dim, self.n_draws = posterior.n_actions, posterior.dim, len(latent)
        self.learned_from = posterior.learned_from
        self.features, self.catalog = posterior.features, posterior.catalog

    def saved(self) -> dict[str, Any]:
        return {"posterior": self.posterior, "latent": self._latent, "key": self._key}

    @classmethod
    def from_saved(cls, parts: dict[str, Any]) -> Thompson:
        out = object.__new__(cls)
        out._set(**parts)
        return out

    @property
    def max_share_error(self) -> float:
        """The largest standard error that a share can have: that of a share of one half."""
        return float(0.5 / np.sqrt(self.n_draws))

    def choices(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None) -> Choices:
        n, s = len(contexts), self.n_draws
        best, winner = np.full((n, s), -np.inf), np.zeros((n, s), dtype=np.int64)
        for columns, theta, allowed in self._draws(eligible):
            flat = theta.reshape(s * theta.shape[1], contexts.shape[1])
            for rows in chunks(n, max(1, (1 << 22) // len(flat))):
                scores = (contexts[rows] @ flat.T).reshape(-1, s, theta.shape[1])
                if allowed is not None:
                    scores[~allowed[rows].repeat(s, axis=0).reshape(scores.shape)] = -np.inf
                _take_better(scores, best[rows], winner[rows], columns.start)
        code, count = np.unique(np.arange(n)[:, None] * self.n_actions + winner, return_counts=True)
        starts = np.searchsorted(code, np.arange(n + 1) * self.n_actions)
        named = sparse.csr_array((count / s, code % self.n_actions, starts), shape=(n, self.n_actions))
        return Choices(n, self.n_actions, named=named)

    def sample(self, contexts: Any, rng: np.random.Generator, *, eligible: Any = None) -> Int[Array, " n"]:
        """The best action under a fresh draw of all weights; up to `n_draws` draws, shared by the rows in turn."""
        x = self._check_contexts(contexts)
        if len(x) == 0:
            return np.empty(0, dtype=np.int64)
        fresh = Thompson(self.posterior, min(len(x), self.n_draws), rng=rng)
        allowed = as_eligibility(eligible, len(x), self.n_actions)
        out = np.empty(len(x), dtype=np.int64)
        for rows, block in eligible_blocks(allowed, len(x), self.rows_per_block):
            draw = np.arange(rows.start, rows.stop) % fresh.n_draws
            out[rows] = fresh._winners(x[rows], draw, block)
        return out

    def _winners(
        self, contexts: Float[Array, "n d"], draw: Int[Array, " n"], eligible: sparse.csr_array | None
    ) -> Int[Array, " n"]:
        """The best action of each row under one draw a row."""
        n = len(contexts)
        best, winner = np.full((n, 1), -np.inf), np.zeros((n, 1), dtype=np.int64)
        for columns, theta, allowed in self._draws(eligible):
            for rows in chunks(n, max(1, (1 << 20) // (theta.shape[1] * theta.shape[2]))):
                scores = np.einsum("bd,bcd->bc", contexts[rows], theta[draw[rows]])
                if allowed is not None:
                    scores[~allowed[rows]] = -np.inf
                _take_better(scores[:, None, :], best[rows], winner[rows], columns.start)
        return winner[:, 0]

    def _draws(self, eligible: sparse.csr_array | None) -> Iterator[tuple[slice, Float[Array, "s c d"], Array | None]]:
        """θ of every draw, a chunk of actions at a time, with the chunk's columns of the eligibility mask."""
        by_column = None if eligible is None else eligible.tocsc()
        for number, columns in enumerate(chunks(self.n_actions, ACTIONS_PER_CHUNK)):
            if by_column is not None and by_column.indptr[columns.start] == by_column.indptr[columns.stop]:
                continue  # nothing of this chunk may be chosen, and its noise depends on no other
            rng = np.random.Generator(np.random.Philox(key=self._key, counter=[0, 0, 0, number]))
            actions = np.arange(columns.start, columns.stop)
            theta = self.posterior.weights.draw_given(self._latent, actions, rng)
            yield columns, theta, None if by_column is None else by_column[:, columns].toarray() > 0


def _take_better(
    scores: Float[Array, "b s c"], best: Float[Array, "b s"], winner: Int[Array, "b s"], first_action: int
) -> None:
    top = scores.argmax(axis=2)
    value = np.take_along_axis(scores, top[:, :, None], axis=2)[:, :, 0]
    better = value > best
    best[better] = value[better]
    winner[better] = top[better] + first_action
