"""What policies share that rank actions by a score from a reward posterior."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array, as_instance
from manyarms.core.choices import Choices
from manyarms.core.eligibility import as_eligibility, eligible_blocks
from manyarms.core.hierarchical_gaussian import HierarchicalGaussian
from manyarms.core.policy import Policy
from manyarms.errors import InputError
from manyarms.linalg.indexing import chunks, pair_rows, shared_set
from manyarms.linalg.top_k import best_of_pairs
from manyarms.posterior import HurdlePosterior, RewardPosterior
from manyarms.posterior.posterior import Posterior


class ScoredPolicy(Policy):
    """A policy with a score for every (context, action).

    A subclass says which actions score best, over all of them or over given pairs.
    """

    def __init__(self, posterior: Posterior):
        if not isinstance(posterior, HurdlePosterior):
            as_instance("posterior", posterior, RewardPosterior, "what ma.fit returned")
        self.posterior = posterior
        self.n_actions, self.dim = posterior.n_actions, posterior.dim
        self.learned_from = posterior.learned_from
        self.features, self.catalog = posterior.features, posterior.catalog

    @property
    def is_linear(self) -> bool:
        """Whether rewards are linear in the weights."""
        return self.posterior.is_linear

    def pair_rewards(self, contexts: Float[Array, "n d"], pairs: sparse.csr_array) -> Float[Array, " p"]:
        """E r(x_i, a) for the stored pairs (i, a)."""
        if self.is_linear:
            return pair_means(contexts, pairs, self.means)
        return self.posterior.expected_reward(contexts[pair_rows(pairs)], pairs.indices)

    def all_rewards(self, contexts: Float[Array, "n d"]) -> Float[Array, "n K"]:
        """E r(x_i, a) for all actions."""
        return contexts @ self.means.T if self.is_linear else self.posterior.expected_reward(contexts)

    @property
    def single_weights(self) -> HierarchicalGaussian:
        """The one set of weights that scores are made of."""
        if isinstance(self.posterior, HurdlePosterior):
            raise InputError(
                f"{type(self).__name__} needs one set of weights, and a hurdle has two. Use Greedy or Softmax, or "
                "make it of posterior.occurs."
            )
        return self.posterior.weights

    @property
    def means(self) -> Float[Array, "K d"]:
        """E θ_a of every action."""
        return self.single_weights.action_mean()

    @abstractmethod
    def best(self, contexts: Float[Array, "n d"], k: int, among: Int[Array, " m"] | None) -> Int[Array, "n k"]:
        """The k best-scored actions among all, or among those given, which ascend."""

    @abstractmethod
    def pair_scores(self, contexts: Float[Array, "n d"], pairs: sparse.csr_array) -> Float[Array, " p"]:
        """The scores of the pairs stored in `pairs`, in its order."""

    def choices(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None) -> Choices:
        """The best-scored action, for certain."""
        return Choices.of_actions(self._ranked(contexts, eligible, 1)[:, 0], self.n_actions)

    def top_k(self, contexts: Any, k: int, *, eligible: Any = None) -> Int[Array, "n k"]:
        """The k best-scored actions in each context, best first; -1 fills a row with fewer eligible actions."""
        k = self._check_k(k)
        x = self._check_contexts(contexts)
        allowed = as_eligibility(eligible, len(x), self.n_actions)
        out = np.empty((len(x), k), dtype=np.int64)
        for rows, block in eligible_blocks(allowed, len(x), self.rows_per_block):
            out[rows] = self._ranked(x[rows], block, k)
        return out

    def _ranked(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None, k: int) -> Int[Array, "n k"]:
        if eligible is None:
            return self.best(contexts, k, None)
        shared = shared_set(eligible)
        if shared is not None and len(shared) >= k:
            return self.best(contexts, k, shared)
        return best_of_pairs(self.pair_scores(contexts, eligible), eligible.indptr, eligible.indices, k)


def pair_means(
    contexts: Float[Array, "n d"], pairs: sparse.csr_array, means: Float[Array, "K d"]
) -> Float[Array, " p"]:
    """φ(x_i)ᵀ θ̂_a for the stored pairs (i, a)."""
    rows = pair_rows(pairs)
    if len(rows) * 8 > len(contexts) * len(means):
        # Most actions are wanted: their product is cheaper than gathering them one by one.
        return (contexts @ means.T)[rows, pairs.indices]
    out = np.empty(len(rows))
    for part in chunks(len(rows), 1 << 17):
        out[part] = np.einsum("pd,pd->p", contexts[rows[part]], means[pairs.indices[part]])
    return out
