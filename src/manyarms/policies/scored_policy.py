"""Policies that rank actions by a score: an expected reward, or a linear function of the context."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array, as_floats, as_instance, as_scalar, check_overflow
from manyarms.core import Catalog, Choices, FeatureMap, Fingerprint, Policy, as_eligibility, eligible_blocks
from manyarms.errors import ShapeError
from manyarms.linalg.indexing import pair_rows, shared_set
from manyarms.linalg.top_k import best_of_pairs
from manyarms.posterior.posterior import Posterior
from manyarms.posterior.reward_function import LinearScores, Scores


class ScoredPolicy(Policy):
    """A policy with a score for every (context, action), which a subclass gives; it chooses the best-scored action."""

    @property
    @abstractmethod
    def scores(self) -> Scores:
        """The scores of actions."""

    def top_k(self, contexts: Any, k: int, *, eligible: Any = None) -> Int[Array, "n k"]:
        """The k best-scored actions in each context, best first; -1 fills a row with fewer eligible actions."""
        k = self._check_k(k)
        x = self._check_contexts(contexts)
        allowed = as_eligibility(eligible, len(x), self.n_actions)
        out = np.empty((len(x), k), dtype=np.int64)
        for rows, block in eligible_blocks(allowed, len(x), self.rows_per_block):
            out[rows] = self._ranked(x[rows], block, k)
        return out

    def choices(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None) -> Choices:
        return Choices.of_actions(self._ranked(contexts, eligible, 1)[:, 0], self.n_actions)

    def _softmax_choices(
        self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None, temperature: float
    ) -> Choices:
        """Every action with probability ∝ exp(score / temperature)."""
        n = len(contexts)
        if eligible is None:
            with np.errstate(over="ignore", invalid="ignore"):
                p = self.scores.score_all(contexts)
                p /= temperature
            check_overflow("scores", p)
            p -= p.max(axis=1, keepdims=True)
            # Numbers below the normal range slow all products down, and e⁻³⁰⁰ is as good as nothing.
            np.maximum(p, -300.0, out=p)
            np.exp(p, out=p)
            p /= p.sum(axis=1, keepdims=True)
            return Choices(n, self.n_actions, dense=p)
        rows = pair_rows(eligible)
        scores = self.scores.score_stored(contexts, eligible) / temperature
        scores -= np.maximum.reduceat(scores, eligible.indptr[:-1])[rows]
        weight = np.exp(scores)
        total = np.bincount(rows, weights=weight, minlength=n)
        named = sparse.csr_array((weight / total[rows], eligible.indices, eligible.indptr), shape=eligible.shape)
        return Choices(n, self.n_actions, named=named)

    def _ranked(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None, k: int) -> Int[Array, "n k"]:
        if eligible is None:
            return self.scores.best(contexts, k, None)
        shared = shared_set(eligible)
        if shared is not None and len(shared) >= k:
            return self.scores.best(contexts, k, shared)
        scores = self.scores.score_stored(contexts, eligible)
        return best_of_pairs(scores, eligible.indptr, eligible.indices, k)


def follow(policy: Policy, posterior: Posterior) -> Posterior:
    """Give a policy the actions, features and training rounds of the posterior it is made from."""
    posterior = as_instance("posterior", posterior, Posterior, "what ma.fit returned")
    policy.n_actions, policy.dim = posterior.n_actions, posterior.dim
    policy.learned_from = posterior.learned_from
    policy.features, policy.catalog = posterior.features, posterior.catalog
    return posterior


class Greedy(ScoredPolicy):
    """π(x) = argmax_a E r(x, a): no policy has a smaller Bayes suboptimality (paper, App. D).

    Args:
        posterior: Any posterior, such as `fit` returns.
    """

    saved_as = "greedy"
    saved_fields = ("posterior",)

    def __init__(self, posterior: Posterior):
        self.posterior = follow(self, posterior)

    @property
    def scores(self) -> Scores:
        """Expected rewards."""
        return self.posterior.expected_rewards


class Softmax(ScoredPolicy):
    """π(a | x) ∝ exp(E r(x, a) / temperature), over the eligible actions.

    Args:
        posterior: Any posterior, such as `fit` returns.
        temperature: Above zero, in the units of the reward; towards 0 the choice becomes greedy.
    """

    saved_as = "softmax"
    saved_fields = ("posterior", "temperature")

    def __init__(self, posterior: Posterior, temperature: float):
        self.posterior = follow(self, posterior)
        self.temperature = as_scalar("temperature", temperature, above=0.0)
        self.rows_per_block = max(1, _WRITTEN_OUT // self.n_actions)

    @property
    def scores(self) -> Scores:
        """Expected rewards."""
        return self.posterior.expected_rewards

    def choices(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None) -> Choices:
        return self._softmax_choices(contexts, eligible, self.temperature)


class LinearSoftmax(ScoredPolicy):
    """π(a | x) ∝ exp(xᵀ β_a), over the eligible actions: the family of policies that learners search.

    A score is not a reward here: only differences of scores count. `actions` and `top_k` rank scores and write out no
    probabilities.

    Args:
        weights: (K, d): β, one row per action.
        learned_from: The fingerprints of the rounds that the weights were learned from; see `core.fingerprint`.
        features: The map from context columns to φ(x), if there is one: then contexts may be tables.
        catalog: The ids of the actions, if they have any.
    """

    saved_as = "linear softmax"
    saved_fields = ("weights", "learned_from", "features", "catalog")

    def __init__(
        self,
        weights: Any,
        *,
        learned_from: tuple[Fingerprint, ...] = (),
        features: FeatureMap | None = None,
        catalog: Catalog | None = None,
    ):
        self.weights: Float[Array, "K d"] = as_floats("weights", weights, ndim=2)
        if self.weights.size == 0:
            raise ShapeError(
                f"must have one row per action and one column per feature; got {self.weights.shape}.",
                argument="weights",
            )
        self.n_actions, self.dim = self.weights.shape
        self.learned_from, self.features, self.catalog = learned_from, features, catalog
        self.rows_per_block = max(1, _WRITTEN_OUT // self.n_actions)

    @property
    def scores(self) -> LinearScores:
        """xᵀ β_a."""
        return LinearScores(self.weights, self.n_actions)

    def choices(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None) -> Choices:
        return self._softmax_choices(contexts, eligible, 1.0)

    def actions(self, contexts: Any, *, eligible: Any = None) -> Int[Array, " n"]:
        """The likeliest action in each context: the best-scored one, found without its probability."""
        return self.top_k(contexts, 1, eligible=eligible)[:, 0]


_WRITTEN_OUT = 1 << 21
"""How many probabilities a block may have where those of all actions are written out (16 MB)."""
