"""Scores of actions in contexts: linear scores, and expected rewards with their derivatives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array, all_finite, row_weights
from manyarms.core import Choices, FeatureMass, HierarchicalGaussian, Policy
from manyarms.errors import NumericalError, ShapeError
from manyarms.likelihoods import Likelihood
from manyarms.linalg.indexing import cache_chunks, chunks, lowest_of_each
from manyarms.linalg.quadratic_forms import pack_forms, pack_squares, row_norms
from manyarms.linalg.sparse_matrices import pair_rows
from manyarms.linalg.top_k import COLUMNS, ROWS, best_columns, best_scores, best_scores_above

MAX_FORMS = 1 << 27
"""The largest number of covariance entries, over all actions, that is kept in memory (a gigabyte)."""
Actions = Int[Array, " m"] | slice


@runtime_checkable
class ActionWeights(Protocol):
    """Gaussian weights that scores are made from, marginally for every action: θ_a ~ N(action_mean, action_cov)."""

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


def actions_to_score(weights: ActionWeights, k: int, among: Int[Array, " m"] | None) -> Int[Array, " q"] | None:
    """The actions to score to find the k best of all, or of those given: of actions that score alike, the k lowest."""
    return lowest_of_each(weights.twins, k, among) if isinstance(weights, HierarchicalGaussian) else among


class Scores(ABC):
    """Scores of every action in every context: expected rewards, or something else such as lower bounds on them."""

    n_actions: int
    all_at_once: ClassVar[bool] = False
    """True if scoring all actions by one product is cheaper than gathering an eighth of the pairs."""
    many_actions: ClassVar[int] = 4096
    """From so many actions on, choosing the best one costs more than looking up what was chosen before."""

    @abstractmethod
    def score_pairs(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        """The scores of one action per row."""

    def score_all(self, contexts: Float[Array, "n d"]) -> Float[Array, "n K"]:
        """The scores of all actions in each context."""
        out, everyone = np.empty((len(contexts), self.n_actions)), np.arange(self.n_actions)
        for rows in chunks(len(contexts), max(1, (1 << 18) // self.n_actions)):
            x = contexts[rows]
            pairs = self.score_pairs(np.repeat(x, self.n_actions, axis=0), np.tile(everyone, len(x)))
            out[rows] = pairs.reshape(len(x), -1)
        return out

    def best(self, contexts: Float[Array, "n d"], k: int, among: Int[Array, " m"] | None) -> Int[Array, "n k"]:
        """The k actions with the highest scores, among all or among those given, which ascend."""
        names = np.arange(self.n_actions) if among is None else among
        out = np.empty((len(contexts), k), dtype=np.int64)
        for rows in chunks(len(contexts), max(1, (1 << 21) // self.n_actions)):
            # An overflow is reported where the best are chosen.
            with np.errstate(over="ignore", invalid="ignore"):
                table = self.score_all(contexts[rows])[:, names]
            out[rows] = names[best_scores(len(table), len(names), lambda r, c, table=table: table[r, c].copy(), k)]
        return out

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
    """Scores φ(x)ᵀ m_a, linear in the features; m_a are given, or are the means of weights."""

    all_at_once = True

    def __init__(self, source: Float[Array, "K d"] | ActionWeights):
        self._source = source
        self.n_actions = len(source) if isinstance(source, np.ndarray) else source.n_actions

    @property
    def means(self) -> Float[Array, "K d"]:
        """m_a of every action."""
        return self._source if isinstance(self._source, np.ndarray) else self._source.action_mean()

    def score_pairs(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        return np.einsum("nd,nd->n", contexts, self.means[actions])

    def score_all(self, contexts: Float[Array, "n d"]) -> Float[Array, "n K"]:
        return contexts @ self.means.T

    def best(self, contexts: Float[Array, "n d"], k: int, among: Int[Array, " m"] | None) -> Int[Array, "n k"]:
        names = among if isinstance(self._source, np.ndarray) else actions_to_score(self._source, k, among)
        return best_columns(contexts, self.means, k, names)


class Rewards(NamedTuple):
    """Expected rewards as scores of actions, and how each moves with the predictor of every factor of the reward."""

    expected: Array
    slopes: tuple[Array, ...]
    curve: Array | None = None
    """The second derivative by the predictors of both factors, where there are two."""


class Predictor(Scores):
    """Scores E r(x, a) with their derivatives, r(x, a) = g(η), η = φ(x)ᵀ θ_a, with θ_a Gaussian as in a posterior.

    Args:
        weights: The posterior weights.
        likelihood: The likelihood, which gives g.
        times: A second reward, with weights independent of these, that multiplies this one: how likely, times how much.
    """

    many_actions = 64

    def __init__(self, weights: ActionWeights, likelihood: Likelihood, times: Predictor | None = None):
        self.weights: Any = weights
        self.likelihood, self._times = likelihood, times
        self.n_actions, self.dim = weights.n_actions, weights.dim

    def pairs(
        self, contexts: Float[Array, "p d"], actions: Int[Array, " p"]
    ) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        """Mean and variance of η, one action per row."""
        mean = np.einsum("pd,pd->p", contexts, self.weights.action_mean()[actions])
        with np.errstate(over="ignore"):
            variance = row_norms(contexts, actions, self.weights.action_cov) ** 2
        return mean, _finite(variance)

    def tile(self, contexts: Float[Array, "n d"], actions: Actions) -> tuple[Float[Array, "n m"], Float[Array, "n m"]]:
        """Mean and variance of η for some contexts and some actions, all with all."""
        with np.errstate(over="ignore", invalid="ignore"):
            mean = contexts @ self.weights.action_mean()[actions].T
            variance = pack_squares(contexts) @ self._packed(actions).T
        return mean, np.maximum(_finite(variance), 0.0)

    def of_pairs(self, contexts: Float[Array, "p d"], actions: Int[Array, " p"]) -> Rewards:
        """The rewards of one action per row."""
        own = self._rewards(*self.pairs(contexts, actions))
        return own if self._times is None else _product(own, self._times.of_pairs(contexts, actions))

    def of_tile(self, contexts: Float[Array, "n d"], actions: Actions) -> Rewards:
        """The rewards of some actions in some contexts, all with all."""
        own = self._rewards(*self.tile(contexts, actions))
        return own if self._times is None else _product(own, self._times.of_tile(contexts, actions))

    def _rewards(self, mean: Array, variance: Array) -> Rewards:
        return Rewards(self.likelihood.mean_reward(mean, variance), (self.likelihood.mean_slope(mean, variance),))

    def score_pairs(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        return self.of_pairs(contexts, actions).expected

    def score_all(self, contexts: Float[Array, "n d"]) -> Float[Array, "n K"]:
        return self.of_tile(contexts, slice(None)).expected

    def best(self, contexts: Float[Array, "n d"], k: int, among: Int[Array, " m"] | None) -> Int[Array, "n k"]:
        names = actions_to_score(self.weights, k, among)
        names = np.arange(self.n_actions) if names is None else names

        def scores(rows: slice, columns: slice, floor: Float[Array, " b"]) -> Float[Array, "b c"]:
            x, actions = contexts[rows], names[columns]
            # A single reward is ranked by a number that is cheaper than its expectation.
            single = self._times is None
            tile = self.likelihood.scores_above(floor, *self.tile(x, actions)) if single else None
            return self.of_tile(x, actions).expected if tile is None else tile

        return names[best_scores_above(len(contexts), len(names), scores, k)]

    def profile(
        self, policy: Policy, contexts: Float[Array, "n d"], eligible: Any, weights: Any
    ) -> tuple[tuple[FeatureMass, ...], Float[Array, " n"]]:
        """Σ_a π(a | x_i) E r(x_i, a) row by row, and the derivative of its mean by every θ_a, as feature masses.

        The derivative is mean_i π(a | x_i) slope φ(x_i), so the delta method is the formula for linear rewards. With
        two factors, a last mass has the second derivative by the weights of both, mean_i π slope slope' φ φᵀ.
        """
        if len(contexts) == 0:
            raise ShapeError("must have at least one row: a mean over none is undefined.", argument="contexts")
        counts, total = (
            row_weights(weights, len(contexts)),
            _MassTotals(2 if self._times else 1, self.n_actions, self.dim),
        )
        rows = np.zeros(len(contexts))
        # An overflow is reported when the sums are used.
        with np.errstate(over="ignore", invalid="ignore"):
            for part, x, choices in policy.blocks(contexts, eligible):
                self._add_named(choices, x, counts[part], rows[part], total)
                self._add_everywhere(choices, x, counts[part], rows[part], total)
            return total.mean(float(counts.sum())), rows

    def _add_named(
        self,
        choices: Choices,
        x: Float[Array, "b d"],
        counts: Float[Array, " b"],
        rows: Float[Array, " b"],
        total: _MassTotals,
    ) -> None:
        named = choices.named
        if named is None:
            return
        owner = pair_rows(named)
        for part in chunks(named.nnz, 1 << 15):
            mine, actions, share = owner[part], named.indices[part], named.data[part]
            rewards = self.of_pairs(x[mine], actions)
            rows += np.bincount(mine, share * rewards.expected, minlength=len(rows))
            share = share * counts[mine]
            sums = [(share * slope)[:, None] * x[mine] for slope in rewards.slopes]
            if total.with_products and rewards.curve is not None:
                squares = np.einsum("pi,pj->pij", (share * rewards.curve)[:, None] * x[mine], x[mine])
                sums.append(squares.reshape(len(mine), -1))
            total.add(actions, share, sums)

    def _add_everywhere(
        self,
        choices: Choices,
        x: Float[Array, "b d"],
        counts: Float[Array, " b"],
        rows: Float[Array, " b"],
        total: _MassTotals,
    ) -> None:
        """Add what is not given by name but for all actions in every row, tile by tile."""
        if choices.everywhere is None and choices.dense is None:
            return
        for columns in chunks(self.n_actions, COLUMNS):
            for part in chunks(len(x), ROWS):
                share = choices.unnamed_shares(part, columns)
                rewards = self.of_tile(x[part], columns)
                rows[part] += np.sum(share * rewards.expected, axis=1)
                share *= counts[part, None]
                sums = [(share * slope).T @ x[part] for slope in rewards.slopes]
                if total.with_products and rewards.curve is not None:
                    squares = np.einsum("ni,nj->nij", x[part], x[part]).reshape(len(x[part]), -1)
                    sums.append((share * rewards.curve).T @ squares)
                total.add(np.arange(columns.start, columns.stop), share.sum(axis=0), sums)

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


def _finite(variance: Array) -> Array:
    """`variance` itself, or an error if it has overflowed: with infinite variance any click would be a coin flip."""
    if not all_finite(variance):
        raise NumericalError("the variance of a score overflows.", "Rescale contexts, rewards or the prior.")
    return variance


def _product(first: Rewards, second: Rewards) -> Rewards:
    slopes = (first.slopes[0] * second.expected, first.expected * second.slopes[0])
    return Rewards(first.expected * second.expected, slopes, first.slopes[0] * second.slopes[0])


class _MassTotals:
    """Sums by action: (K, d) numbers per factor, as a policy may choose any action, and (K, d²) for their products."""

    def __init__(self, n_factors: int, n_actions: int, dim: int):
        self.with_products = n_factors == 2 and n_actions * dim**2 <= MAX_FORMS
        sizes = [dim] * n_factors + [dim**2] * self.with_products
        self._share, self._sums = np.zeros(n_actions), [np.zeros((n_actions, size)) for size in sizes]

    def add(self, actions: Int[Array, " m"], share: Float[Array, " m"], sums: list[Array]) -> None:
        for total, mine in zip([self._share, *self._sums], [share, *sums], strict=True):
            np.add.at(total, actions, mine)

    def mean(self, total: float) -> tuple[FeatureMass, ...]:
        actions = np.flatnonzero(self._share)
        share = self._share[actions] / total
        return tuple(FeatureMass(actions, vectors[actions] / total, share) for vectors in self._sums)
