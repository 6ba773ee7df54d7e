"""Rewards of (context, action) pairs when they are not linear in the weights: by pairs, or by tiles of all actions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array
from manyarms.core.choices import Choices
from manyarms.core.hierarchical_gaussian import HierarchicalGaussian
from manyarms.core.policy import FeatureMass, Policy, row_weights
from manyarms.errors import ShapeError
from manyarms.likelihoods import Likelihood
from manyarms.linalg.indexing import cache_chunks, chunks, pair_rows
from manyarms.linalg.top_k import COLUMNS, ROWS, best_scores, pack_forms, pack_squares, row_norms

MAX_FORMS = 1 << 27
"""How many numbers the covariances of all actions may take to be kept (a gigabyte)."""
Actions = Int[Array, " m"] | slice


class Rewards(NamedTuple):
    """Expected rewards, and how each moves with the predictor of every part of the posterior."""

    expected: Array
    slopes: tuple[Array, ...]
    curve: Array | None = None
    """The second derivative by the predictors of both parts, where there are two."""


class RewardField(ABC):
    """E r(x, a) as a function of context and action.

    Attributes:
        n_actions: K.
        dim: d.
        n_parts: How many vectors of weights an action has.
    """

    n_actions: int
    dim: int
    n_parts: int

    @abstractmethod
    def of_pairs(self, contexts: Float[Array, "p d"], actions: Int[Array, " p"]) -> Rewards:
        """One action a row."""

    @abstractmethod
    def of_tile(self, contexts: Float[Array, "n d"], actions: Actions) -> Rewards:
        """Some contexts and some actions, all with all."""

    @abstractmethod
    def scores(self, contexts: Float[Array, "n d"], actions: Actions) -> Float[Array, "n m"]:
        """Anything that ranks the actions as expected rewards do."""

    def best(self, contexts: Float[Array, "n d"], k: int, among: Int[Array, " m"] | None) -> Int[Array, "n k"]:
        """The k actions with the highest expected reward, over all or among those given, which ascend."""
        names = np.arange(self.n_actions) if among is None else among

        def scores(rows: slice, columns: slice) -> Float[Array, "b c"]:
            return self.scores(contexts[rows], names[columns])

        return names[best_scores(len(contexts), len(names), scores, k)]

    def profile(
        self, policy: Policy, contexts: Float[Array, "n d"], eligible: Any, weights: Any
    ) -> tuple[tuple[FeatureMass, ...], Float[Array, " n"]]:
        """Σ_a π(a | x_i) E r(x_i, a) row by row, and the derivative of its mean by every θ_a, as feature masses.

        The derivative is mean_i π(a | x_i) slope φ(x_i): so the delta method is the formula of linear rewards. Of two
        parts whose rewards multiply, a last mass has the second derivative by both, mean_i π slope slope' φ φᵀ.
        """
        if len(contexts) == 0:
            raise ShapeError("contexts must have at least one row: a mean over none is undefined.")
        counts, total = row_weights(weights, len(contexts)), _Totals(self.n_parts, self.n_actions, self.dim)
        rows = np.zeros(len(contexts))
        # An overflow is reported when the sums are used.
        with np.errstate(over="ignore", invalid="ignore"):
            for part, x, choices in policy.blocks(contexts, eligible):
                if choices.named is not None and choices.named.nnz:
                    self._add_named(choices.named, x, counts[part], rows[part], total)
                if choices.everywhere is not None or choices.dense is not None:
                    self._add_spread(choices, x, counts[part], rows[part], total)
            return total.mean(float(counts.sum())), rows

    def _add_named(
        self,
        named: sparse.csr_array,
        x: Float[Array, "b d"],
        counts: Float[Array, " b"],
        rows: Float[Array, " b"],
        total: _Totals,
    ) -> None:
        owner = pair_rows(named)
        for part in chunks(named.nnz, _PAIRS):
            mine, actions, share = owner[part], named.indices[part], named.data[part]
            found = self.of_pairs(x[mine], actions)
            rows += np.bincount(mine, share * found.expected, minlength=len(rows))
            share = share * counts[mine]
            total.add(actions, [(share * slope)[:, None] * x[mine] for slope in found.slopes], share)
            if total.products is not None and found.curve is not None:
                squares = np.einsum("pi,pj->pij", (share * found.curve)[:, None] * x[mine], x[mine])
                np.add.at(total.products, actions, squares.reshape(len(mine), -1))

    def _add_spread(
        self,
        choices: Choices,
        x: Float[Array, "b d"],
        counts: Float[Array, " b"],
        rows: Float[Array, " b"],
        total: _Totals,
    ) -> None:
        """A policy that may choose any action in any row: tile by tile."""
        for columns in chunks(self.n_actions, COLUMNS):
            for part in chunks(len(x), ROWS):
                share = np.zeros((part.stop - part.start, columns.stop - columns.start))
                if choices.everywhere is not None:
                    share += choices.everywhere[columns]
                if choices.dense is not None:
                    share += choices.dense[part, columns]
                found = self.of_tile(x[part], columns)
                rows[part] += np.sum(share * found.expected, axis=1)
                share *= counts[part, None]
                total.add_all(columns, [(share * slope).T @ x[part] for slope in found.slopes], share.sum(axis=0))
                if total.products is not None and found.curve is not None:
                    squares = np.einsum("ni,nj->nij", x[part], x[part]).reshape(len(x[part]), -1)
                    total.products[columns] += (share * found.curve).T @ squares


class Predictor(RewardField):
    """E g(η) and E g'(η) for η = φ(x)ᵀ θ_a, with θ_a as a posterior has it.

    Args:
        weights: Of the posterior.
        likelihood: For g.
    """

    n_parts = 1

    def __init__(self, weights: HierarchicalGaussian, likelihood: Likelihood):
        self.weights, self.likelihood = weights, likelihood
        self.n_actions, self.dim = weights.n_actions, weights.dim

    def pairs(
        self, contexts: Float[Array, "p d"], actions: Int[Array, " p"]
    ) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        """Mean and variance of η, one action a row."""
        mean = np.einsum("pd,pd->p", contexts, self.weights.action_mean()[actions])
        return mean, row_norms(contexts, actions, self.weights.action_cov) ** 2

    def tile(self, contexts: Float[Array, "n d"], actions: Actions) -> tuple[Float[Array, "n m"], Float[Array, "n m"]]:
        """Mean and variance of η for some contexts and some actions, all with all."""
        mean = contexts @ self.weights.action_mean()[actions].T
        variance = pack_squares(contexts) @ self._packed(actions).T
        return mean, np.maximum(variance, 0.0)

    def of_pairs(self, contexts: Float[Array, "p d"], actions: Int[Array, " p"]) -> Rewards:
        return self._rewards(*self.pairs(contexts, actions))

    def of_tile(self, contexts: Float[Array, "n d"], actions: Actions) -> Rewards:
        return self._rewards(*self.tile(contexts, actions))

    def scores(self, contexts: Float[Array, "n d"], actions: Actions) -> Float[Array, "n m"]:
        return self.likelihood.score(*self.tile(contexts, actions))

    def _rewards(self, mean: Array, variance: Array) -> Rewards:
        return Rewards(self.likelihood.mean_reward(mean, variance), (self.likelihood.mean_slope(mean, variance),))

    def _packed(self, actions: Actions) -> Float[Array, "m q"]:
        if self.n_actions * self.dim**2 <= MAX_FORMS:
            return self._all_forms[actions]
        return pack_forms(self.weights.action_cov(np.arange(self.n_actions)[actions]))

    @cached_property
    def _all_forms(self) -> Float[Array, "K q"]:
        out = np.empty((self.n_actions, self.dim * (self.dim + 1) // 2))
        for part in cache_chunks(self.n_actions, self.dim**2):
            out[part] = pack_forms(self.weights.action_cov(np.arange(part.start, part.stop)))
        return out


class ProductPredictor(RewardField):
    """The product of two rewards whose weights are independent in the posterior: how likely, times how much.

    Args:
        first: One factor.
        second: The other.
    """

    n_parts = 2

    def __init__(self, first: Predictor, second: Predictor):
        self.first, self.second = first, second
        self.n_actions, self.dim = first.n_actions, first.dim

    def of_pairs(self, contexts: Float[Array, "p d"], actions: Int[Array, " p"]) -> Rewards:
        return _product(self.first.of_pairs(contexts, actions), self.second.of_pairs(contexts, actions))

    def of_tile(self, contexts: Float[Array, "n d"], actions: Actions) -> Rewards:
        return _product(self.first.of_tile(contexts, actions), self.second.of_tile(contexts, actions))

    def scores(self, contexts: Float[Array, "n d"], actions: Actions) -> Float[Array, "n m"]:
        return self.of_tile(contexts, actions).expected


def _product(one: Rewards, other: Rewards) -> Rewards:
    slopes = (one.slopes[0] * other.expected, one.expected * other.slopes[0])
    return Rewards(one.expected * other.expected, slopes, one.slopes[0] * other.slopes[0])


class _Totals:
    """Sums by action; (K, d) numbers a part, as a policy may choose any action, and (K, d²) for products of two."""

    def __init__(self, n_parts: int, n_actions: int, dim: int):
        self._vectors, self._share = np.zeros((n_parts, n_actions, dim)), np.zeros(n_actions)
        small = n_parts == 2 and n_actions * dim**2 <= MAX_FORMS
        self.products = np.zeros((n_actions, dim**2)) if small else None

    def add(self, actions: Int[Array, " p"], vectors: list[Array], share: Float[Array, " p"]) -> None:
        for total, mine in zip(self._vectors, vectors, strict=True):
            np.add.at(total, actions, mine)
        np.add.at(self._share, actions, share)

    def add_all(self, columns: slice, vectors: list[Array], share: Float[Array, " m"]) -> None:
        for total, mine in zip(self._vectors, vectors, strict=True):
            total[columns] += mine
        self._share[columns] += share

    def mean(self, total: float) -> tuple[FeatureMass, ...]:
        actions = np.flatnonzero(self._share)
        share = self._share[actions] / total
        sums = [*self._vectors, *([] if self.products is None else [self.products])]
        return tuple(FeatureMass(actions, vectors[actions] / total, share) for vectors in sums)


_PAIRS = 1 << 15
