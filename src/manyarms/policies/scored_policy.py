"""Policies that rank actions by a score: an expected reward, or a linear function of the context."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array, as_instance, check_overflow
from manyarms.core import Choices, Policy, as_eligibility, eligible_blocks
from manyarms.linalg.single_screen import check_scores
from manyarms.linalg.sparse_matrices import pair_rows, shared_set
from manyarms.linalg.top_k import best_of_pairs
from manyarms.policies.choice_memory import ChoiceMemory
from manyarms.posterior.action_scores import Scores
from manyarms.posterior.posterior import Posterior


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
        if eligible is not None or self.n_actions < self.scores.many_actions:
            return Choices.of_actions(self._ranked(contexts, eligible, 1)[:, 0], self.n_actions)
        memory = _memories.setdefault(self, ChoiceMemory())
        actions, known = memory.recall(contexts)
        new = np.flatnonzero(~known)
        if len(new):
            rows = contexts if len(new) == len(contexts) else contexts[new]
            actions[new] = self._ranked(rows, None, 1)[:, 0]
            memory.remember(rows, actions[new])
        return Choices.of_actions(actions, self.n_actions)

    def _softmax_choices(
        self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None, temperature: float
    ) -> Choices:
        """Every action with probability ∝ exp(score / temperature)."""
        n = len(contexts)
        if eligible is None:
            with np.errstate(over="ignore", invalid="ignore"):
                p = self.scores.score_all(contexts)
                p /= temperature
            if not np.isfinite(p).all():
                # Differences of scores may overflow and then count as infinite; the scores themselves may not.
                with np.errstate(over="ignore", invalid="ignore"):
                    p = check_overflow("scores", self.scores.score_all(contexts))
                    p -= p.max(axis=1, keepdims=True)
                    p /= temperature
            else:
                p -= p.max(axis=1, keepdims=True)
            # Numbers below the normal range slow all products down, and e⁻³⁰⁰ is as good as nothing.
            np.maximum(p, -300.0, out=p)
            np.exp(p, out=p)
            p /= p.sum(axis=1, keepdims=True)
            return Choices(n, self.n_actions, dense=p)
        rows = pair_rows(eligible)
        with np.errstate(over="ignore", invalid="ignore"):
            raw = self.scores.score_stored(contexts, eligible)
            scores = raw / temperature
        if np.isfinite(scores).all():
            scores -= np.maximum.reduceat(scores, eligible.indptr[:-1])[rows]
        else:
            check_overflow("scores", raw)
            with np.errstate(over="ignore"):
                scores = (raw - np.maximum.reduceat(raw, eligible.indptr[:-1])[rows]) / temperature
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
        with np.errstate(over="ignore", invalid="ignore"):
            scores = self.scores.score_stored(contexts, eligible)
        check_scores(scores[:, None], pair_rows(eligible))
        return best_of_pairs(scores, eligible.indptr, eligible.indices, k)


_memories: WeakKeyDictionary[ScoredPolicy, ChoiceMemory] = WeakKeyDictionary()
"""The choices of every policy, kept outside of it so that they neither travel to workers nor are saved."""


def follow(policy: Policy, posterior: Posterior) -> Posterior:
    """Give a policy that ranks by scores the actions, features and training rounds of the posterior it is made from."""
    posterior = as_instance("posterior", posterior, Posterior, "what ma.fit returned")
    policy.n_actions, policy.dim = posterior.n_actions, posterior.dim
    policy.learned_from = posterior.learned_from
    policy.features, policy.catalog = posterior.features, posterior.catalog
    return posterior
