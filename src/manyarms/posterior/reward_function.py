"""Scores of (context, action) pairs: expected rewards as a function of context and action."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array
from manyarms.core import Choices, FeatureMass, Policy, row_weights
from manyarms.errors import ShapeError
from manyarms.likelihoods import Likelihood
from manyarms.linalg.indexing import cache_chunks, chunks, pair_rows
from manyarms.linalg.top_k import COLUMNS, ROWS, best_columns, best_scores, pack_forms, pack_squares, row_norms

MAX_FORMS = 1 << 27
"""The largest number of covariance entries, over all actions, that is kept in memory (a gigabyte)."""
Actions = Int[Array, " m"] | slice


@runtime_checkable
class ActionWeights(Protocol):
    """Gaussian weights of every action, marginally: θ_a ~ N(action_mean, action_cov)."""

    @property
    def n_actions(self) -> int: ...

    @property
    def dim(self) -> int: ...

    def action_mean(self) -> Float[Array, "K d"]:
        """E θ_a of all actions."""
        ...

    def action_cov(self, actions: Any) -> Float[Array, "m d d"]:
        """Cov θ_a of the actions asked for."""
        ...


class Scores(ABC):
    """A score of every action in every context: an expected reward, a lower bound on it, or any other number.

    Attributes:
        n_actions: K.
        all_at_once: Whether scoring all actions by one product is cheaper than gathering an eighth of the pairs.
    """

    n_actions: int
    all_at_once: ClassVar[bool] = False

    @abstractmethod
    def score_pairs(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        """The scores of one action per row."""

    @abstractmethod
    def score_all(self, contexts: Float[Array, "n d"]) -> Float[Array, "n K"]:
        """The scores of all actions in each context."""

    @abstractmethod
    def best(self, contexts: Float[Array, "n d"], k: int, among: Int[Array, " m"] | None) -> Int[Array, "n k"]:
        """The k actions with the highest scores, among all or among those given, which ascend."""

    def score_stored(self, contexts: Float[Array, "n d"], pairs: sparse.csr_array) -> Float[Array, " p"]:
        """The scores of the pairs (i, a) stored in a sparse matrix, in its order."""
        rows = pair_rows(pairs)
        if self.all_at_once and len(rows) * 8 > len(contexts) * self.n_actions:
            return self.score_all(contexts)[rows, pairs.indices]
        out = np.empty(len(rows))
        for part in chunks(len(rows), 1 << 17):
            out[part] = self.score_pairs(contexts[rows[part]], pairs.indices[part])
        return out


class LinearScores(Scores):
    """φ(x)ᵀ m_a, with a vector m_a for each action.

    Args:
        means: (K, d) the vectors, or a function that returns them when they are first needed.
        n_actions: K.
    """

    all_at_once = True

    def __init__(self, means: Float[Array, "K d"] | Callable[[], Array], n_actions: int):
        self._source, self.n_actions = means, n_actions

    @property
    def means(self) -> Float[Array, "K d"]:
        """m_a of every action."""
        return self._source if isinstance(self._source, np.ndarray) else self._source()

    def score_pairs(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        return np.einsum("nd,nd->n", contexts, self.means[actions])

    def score_all(self, contexts: Float[Array, "n d"]) -> Float[Array, "n K"]:
        return contexts @ self.means.T

    def best(self, contexts: Float[Array, "n d"], k: int, among: Int[Array, " m"] | None) -> Int[Array, "n k"]:
        if among is None:
            return best_columns(contexts, self.means, k)
        return among[best_columns(contexts, self.means[among], k)]


def best_of_all(
    scores: Scores, contexts: Float[Array, "n d"], k: int, among: Int[Array, " m"] | None
) -> Int[Array, "n k"]:
    """The k best actions when there is no faster way than to score all of them, some rows at a time."""
    names = np.arange(scores.n_actions) if among is None else among
    out = np.empty((len(contexts), k), dtype=np.int64)
    for rows in chunks(len(contexts), max(1, _SCORES // scores.n_actions)):
        table = scores.score_all(contexts[rows])[:, names]
        out[rows] = names[best_scores(len(table), len(names), lambda r, c, table=table: table[r, c].copy(), k)]
    return out


class Rewards(NamedTuple):
    """Expected rewards, and how each moves with the predictor of every factor of the reward."""

    expected: Array
    slopes: tuple[Array, ...]
    curve: Array | None = None
    """The second derivative by the predictors of both factors, where there are two."""


class RewardFunction(Scores):
    """E r(x, a) and its derivatives, where rewards are not linear in the weights.

    Attributes:
        dim: d.
        n_factors: How many weight vectors an action has.
    """

    dim: int
    n_factors: int

    @abstractmethod
    def of_pairs(self, contexts: Float[Array, "p d"], actions: Int[Array, " p"]) -> Rewards:
        """The rewards of one action per row."""

    @abstractmethod
    def of_tile(self, contexts: Float[Array, "n d"], actions: Actions) -> Rewards:
        """The rewards of some actions in some contexts, all with all."""

    @abstractmethod
    def rank_tile(self, contexts: Float[Array, "n d"], actions: Actions) -> Float[Array, "n m"]:
        """Numbers that rank actions as expected rewards do."""

    def score_pairs(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        return self.of_pairs(contexts, actions).expected

    def score_all(self, contexts: Float[Array, "n d"]) -> Float[Array, "n K"]:
        return self.of_tile(contexts, slice(None)).expected

    def best(self, contexts: Float[Array, "n d"], k: int, among: Int[Array, " m"] | None) -> Int[Array, "n k"]:
        names = np.arange(self.n_actions) if among is None else among

        def scores(rows: slice, columns: slice) -> Float[Array, "b c"]:
            return self.rank_tile(contexts[rows], names[columns])

        return names[best_scores(len(contexts), len(names), scores, k)]

    def profile(
        self, policy: Policy, contexts: Float[Array, "n d"], eligible: Any, weights: Any
    ) -> tuple[tuple[FeatureMass, ...], Float[Array, " n"]]:
        """Σ_a π(a | x_i) E r(x_i, a) row by row, and the derivative of its mean by every θ_a, as feature masses.

        The derivative is mean_i π(a | x_i) slope φ(x_i), so the delta method is the formula for linear rewards. With
        two factors, a last mass has the second derivative by the weights of both, mean_i π slope slope' φ φᵀ.
        """
        if len(contexts) == 0:
            raise ShapeError("must have at least one row: a mean over none is undefined.", argument="contexts")
        counts, total = row_weights(weights, len(contexts)), _MassTotals(self.n_factors, self.n_actions, self.dim)
        rows = np.zeros(len(contexts))
        # An overflow is reported when the sums are used.
        with np.errstate(over="ignore", invalid="ignore"):
            for part, x, choices in policy.blocks(contexts, eligible):
                if choices.named is not None and choices.named.nnz:
                    self._add_named(choices.named, x, counts[part], rows[part], total)
                if choices.everywhere is not None or choices.dense is not None:
                    self._add_everywhere(choices, x, counts[part], rows[part], total)
            return total.mean(float(counts.sum())), rows

    def _add_named(
        self,
        named: sparse.csr_array,
        x: Float[Array, "b d"],
        counts: Float[Array, " b"],
        rows: Float[Array, " b"],
        total: _MassTotals,
    ) -> None:
        owner = pair_rows(named)
        for part in chunks(named.nnz, _PAIRS):
            mine, actions, share = owner[part], named.indices[part], named.data[part]
            rewards = self.of_pairs(x[mine], actions)
            rows += np.bincount(mine, share * rewards.expected, minlength=len(rows))
            share = share * counts[mine]
            total.add(actions, [(share * slope)[:, None] * x[mine] for slope in rewards.slopes], share)
            if total.products is not None and rewards.curve is not None:
                squares = np.einsum("pi,pj->pij", (share * rewards.curve)[:, None] * x[mine], x[mine])
                np.add.at(total.products, actions, squares.reshape(len(mine), -1))

    def _add_everywhere(
        self,
        choices: Choices,
        x: Float[Array, "b d"],
        counts: Float[Array, " b"],
        rows: Float[Array, " b"],
        total: _MassTotals,
    ) -> None:
        """Add a policy that may choose any action in any row, tile by tile."""
        for columns in chunks(self.n_actions, COLUMNS):
            for part in chunks(len(x), ROWS):
                share = np.zeros((part.stop - part.start, columns.stop - columns.start))
                if choices.everywhere is not None:
                    share += choices.everywhere[columns]
                if choices.dense is not None:
                    share += choices.dense[part, columns]
                rewards = self.of_tile(x[part], columns)
                rows[part] += np.sum(share * rewards.expected, axis=1)
                share *= counts[part, None]
                total.add_all(columns, [(share * slope).T @ x[part] for slope in rewards.slopes], share.sum(axis=0))
                if total.products is not None and rewards.curve is not None:
                    squares = np.einsum("ni,nj->nij", x[part], x[part]).reshape(len(x[part]), -1)
                    total.products[columns] += (share * rewards.curve).T @ squares


class Predictor(RewardFunction):
    """E g(η) and E g'(η) for η = φ(x)ᵀ θ_a, with θ_a Gaussian as in a posterior.

    Args:
        weights: The posterior weights.
        likelihood: The likelihood, which gives g.
    """

    n_factors = 1

    def __init__(self, weights: ActionWeights, likelihood: Likelihood):
        self.weights: Any = weights
        self.likelihood = likelihood
        self.n_actions, self.dim = weights.n_actions, weights.dim

    def pairs(
        self, contexts: Float[Array, "p d"], actions: Int[Array, " p"]
    ) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        """Mean and variance of η, one action per row."""
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

    def rank_tile(self, contexts: Float[Array, "n d"], actions: Actions) -> Float[Array, "n m"]:
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


class ProductPredictor(RewardFunction):
    """The product of two rewards whose weights are independent in the posterior: how likely, times how much.

    Args:
        first: One factor.
        second: The other.
    """

    n_factors = 2

    def __init__(self, first: Predictor, second: Predictor):
        self.first, self.second = first, second
        self.n_actions, self.dim = first.n_actions, first.dim

    def of_pairs(self, contexts: Float[Array, "p d"], actions: Int[Array, " p"]) -> Rewards:
        return _product(self.first.of_pairs(contexts, actions), self.second.of_pairs(contexts, actions))

    def of_tile(self, contexts: Float[Array, "n d"], actions: Actions) -> Rewards:
        return _product(self.first.of_tile(contexts, actions), self.second.of_tile(contexts, actions))

    def rank_tile(self, contexts: Float[Array, "n d"], actions: Actions) -> Float[Array, "n m"]:
        return self.of_tile(contexts, actions).expected


def _product(first: Rewards, second: Rewards) -> Rewards:
    slopes = (first.slopes[0] * second.expected, first.expected * second.slopes[0])
    return Rewards(first.expected * second.expected, slopes, first.slopes[0] * second.slopes[0])


class _MassTotals:
    """Sums by action: (K, d) numbers per factor, as a policy may choose any action, and (K, d²) for their products."""

    def __init__(self, n_factors: int, n_actions: int, dim: int):
        self._vectors, self._share = np.zeros((n_factors, n_actions, dim)), np.zeros(n_actions)
        small = n_factors == 2 and n_actions * dim**2 <= MAX_FORMS
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
_SCORES = 1 << 21
