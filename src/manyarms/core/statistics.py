"""All that the posterior needs of the logs, additive over rounds: the wire format between batches and machines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from manyarms._arrays import Array, frozen
from manyarms._saving import Saved
from manyarms.errors import ShapeError
from manyarms.linalg.groups import Groups, group_by, sum_by


@dataclass(frozen=True)
class Rows(Saved):
    """Rounds kept as they are, sorted by action: every action here has fewer than d of them.

    A weight w is applied as √w to features and rewards, so that products carry w.
    """

    saved_as = "rows"
    actions: Int[Array, " n"]
    features: Float[Array, "n d"]
    rewards: Float[Array, " n"]


@dataclass(frozen=True)
class Sums(Saved):
    """Σ φφᵀ, Σ φ r and Σ r² of the actions with d rounds or more, ascending by action."""

    saved_as = "sums"
    actions: Int[Array, " m"]
    gram: Float[Array, "m d d"]
    moment: Float[Array, "m d"]
    reward_sq: Float[Array, " m"]


@dataclass(frozen=True, eq=False)
class Statistics(Saved):
    """Sufficient statistics of logged rounds, for the seen actions only.

    An action keeps its rounds while it has fewer than d of them, which is smaller and more accurate, and sums after.
    Nothing is divided by the noise, so noise can be learned from statistics alone. `a + b` is the statistics of the
    rounds of both.

    Attributes:
        n_actions: K, seen or not.
        dim: d.
        n_rounds: How many rounds went in.
        total_weight: The sum of their weights.
        rows: Rounds of rarely seen actions.
        sums: Sums over the rounds of the others.
        counted: Whether all weights are whole numbers, so that they can be read as counts.
    """

    saved_as = "statistics"
    n_actions: int
    dim: int
    n_rounds: int
    total_weight: float
    rows: Rows
    sums: Sums
    counted: bool = True

    @classmethod
    def empty(cls, n_actions: int, dim: int) -> Statistics:
        """No rounds at all: what `+` leaves unchanged."""
        none = np.empty(0, dtype=np.int64)
        rows = Rows(none, np.empty((0, dim)), np.empty(0))
        return cls(n_actions, dim, 0, 0.0, rows, _no_sums(dim))

    @classmethod
    def of_rounds(
        cls,
        features: Float[Array, "n d"],
        actions: Int[Array, " n"],
        rewards: Float[Array, " n"],
        n_actions: int,
        weights: Float[Array, " n"] | None = None,
    ) -> Statistics:
        """Statistics of rounds that `LoggedData` has checked. Weight 2 is the round twice, weight 0 no round."""
        n_rounds, dim = features.shape
        total, counted = float(n_rounds), True
        if weights is not None:
            counted = bool(np.all(weights == np.round(weights)))
            if not weights.all():
                kept = weights > 0
                features, actions, rewards, weights = features[kept], actions[kept], rewards[kept], weights[kept]
            root = np.sqrt(weights)
            features, rewards, total = features * root[:, None], rewards * root, float(weights.sum())
        rows, sums = _split(Rows(actions, features, rewards), dim)
        return cls(n_actions, dim, n_rounds, total, rows, sums, counted)

    def __repr__(self) -> str:
        seen = len(np.unique(self.rows.actions)) + len(self.sums.actions)
        return f"Statistics({self.n_rounds:,} rounds, {seen:,} of {self.n_actions:,} actions seen, d={self.dim})"

    def __radd__(self, other: int) -> Statistics:
        # sum() starts from 0.
        return self if other == 0 else NotImplemented

    def __add__(self, other: Statistics) -> Statistics:
        if not isinstance(other, Statistics):  # pyright: ignore[reportUnnecessaryIsInstance]
            return NotImplemented
        if (self.n_actions, self.dim) != (other.n_actions, other.dim):
            raise ShapeError(
                f"statistics of {self.n_actions} actions in {self.dim} dimensions cannot be added to "
                f"{other.n_actions} actions in {other.dim} dimensions."
            )
        sums = _add_sums(self.sums, other.sums)
        # An action that has sums on either side has outgrown its rows on both.
        rows = Rows(*(np.concatenate(pair) for pair in zip(_fields(self.rows), _fields(other.rows), strict=True)))
        rows, promoted = _split(rows, self.dim, outgrown=sums.actions)
        return Statistics(
            self.n_actions,
            self.dim,
            self.n_rounds + other.n_rounds,
            self.total_weight + other.total_weight,
            rows,
            _add_sums(sums, promoted),
            self.counted and other.counted,
        )

    def with_actions(self, n_actions: int) -> Statistics:
        """The same rounds in a catalog that has grown to `n_actions`."""
        return Statistics(n_actions, self.dim, self.n_rounds, self.total_weight, self.rows, self.sums, self.counted)


def _split(rows: Rows, dim: int, outgrown: Int[Array, " m"] | None = None) -> tuple[Rows, Sums]:
    """Rounds sorted by action and parted: those of rarely seen actions stay rows, the others are summed."""
    groups = group_by(rows.actions)
    summed = groups.counts >= dim
    if outgrown is not None and len(outgrown):
        summed |= np.isin(groups.keys, outgrown)
    kept = groups.order[np.repeat(~summed, groups.counts)]
    few = Rows(*(frozen(field[kept]) for field in _fields(rows)))
    return few, _sum_groups(rows, groups, np.flatnonzero(summed), dim)


def _sum_groups(rows: Rows, groups: Groups, members: Int[Array, " m"], dim: int) -> Sums:
    gram, moment = np.empty((len(members), dim, dim)), np.empty((len(members), dim))
    reward_sq = np.empty(len(members))
    slot = np.empty(len(groups.keys), dtype=np.int64)
    slot[members] = np.arange(len(members))
    for block, index in groups.blocks(members, limit=1 << 13):
        x, r = rows.features[index], rows.rewards[index]
        xt = x.swapaxes(1, 2)
        # An overflow is reported, with its action, when the sums are used.
        with np.errstate(over="ignore", invalid="ignore"):
            gram[slot[block]] = xt @ x
            moment[slot[block]] = (xt @ r[:, :, None])[:, :, 0]
            reward_sq[slot[block]] = np.einsum("bc,bc->b", r, r)
    return Sums(frozen(groups.keys[members]), frozen(gram), frozen(moment), frozen(reward_sq))


def _add_sums(first: Sums, second: Sums) -> Sums:
    if len(second.actions) == 0:
        return first
    if len(first.actions) == 0:
        return second
    keys = np.concatenate([first.actions, second.actions])
    actions, gram = sum_by(keys, np.concatenate([first.gram, second.gram]))
    _, moment = sum_by(keys, np.concatenate([first.moment, second.moment]))
    _, reward_sq = sum_by(keys, np.concatenate([first.reward_sq, second.reward_sq]))
    return Sums(frozen(actions), frozen(gram), frozen(moment), frozen(reward_sq))


def _no_sums(dim: int) -> Sums:
    return Sums(np.empty(0, dtype=np.int64), np.empty((0, dim, dim)), np.empty((0, dim)), np.empty(0))


def _fields(rows: Rows) -> tuple[Array, Array, Array]:
    return rows.actions, rows.features, rows.rewards
