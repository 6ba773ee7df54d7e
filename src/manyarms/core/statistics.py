"""Sufficient statistics of the logs, additive over rounds: the wire format between batches and machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, as_count, frozen
from manyarms.errors import ShapeError
from manyarms.linalg.indexing import Groups, group_by
from manyarms.linalg.threads import Scratch, for_each
from manyarms.model_file.part_checks import (
    PartCheck,
    floats,
    indices,
    instance_of,
    is_count,
    is_finite,
    is_flag,
    is_size,
)
from manyarms.model_file.save import Saved

BUFFER = 1 << 25
"""Numbers of rounds held back before they are summed (256 MB).

Every sum is touched once per buffer, so the more rounds of an action it holds, the fewer passes over memory.
"""
BLOCK = 1 << 13
"""Rounds multiplied at a time: few enough to stay in the cache."""


@dataclass(frozen=True)
class ActionRows(Saved):
    """Statistics of rarely seen actions: their rounds as they are, fewer than d per action, e = d + 1 numbers each.

    A weight w is applied as √w to features and rewards, so that products carry w.
    """

    saved_as = "rows"
    saved_checks: ClassVar[Mapping[str, PartCheck]] = {"actions": indices(), "rounds": floats(2)}
    actions: Int[Array, " n"]
    rounds: Float[Array, "n e"]
    """Features, and the reward in the last column."""

    @property
    def features(self) -> Float[Array, "n d"]:
        """√w φ."""
        return self.rounds[:, :-1]

    @property
    def rewards(self) -> Float[Array, " n"]:
        """√w r."""
        return self.rounds[:, -1]


@dataclass(frozen=True)
class ActionSums(Saved):
    """Statistics of actions with d rounds or more, ascending by action: Σ (φ, r)(φ, r)ᵀ of each.

    Σ r² has no digits left for the noise when rewards lie far from zero. So there are sums about a fit, too: of
    r - φᵀβ, for weights β of the action that fit its first rounds. What no weights explain is the same for both.
    """

    saved_as = "sums"
    saved_checks: ClassVar[Mapping[str, PartCheck]] = {"actions": indices(), "squares": floats(3)}
    actions: Int[Array, " m"]
    squares: Float[Array, "m e e"]
    about: Float[Array, "m 2 e"] | None = None
    """(β, 1), and Σ (φ, r - φᵀβ)(r - φᵀβ); None in files of earlier versions."""

    @property
    def gram(self) -> Float[Array, "m d d"]:
        """Σ φφᵀ."""
        return self.squares[:, :-1, :-1]

    @property
    def moment(self) -> Float[Array, "m d"]:
        """Σ φ r."""
        return self.squares[:, :-1, -1]

    @property
    def reward_sq(self) -> Float[Array, " m"]:
        """Σ r²."""
        return self.squares[:, -1, -1]

    def about_a_fit(self) -> Float[Array, "m 2 e"]:
        """The sums about a fit; about zero where there are no others."""
        if self.about is not None:
            return self.about
        out = np.zeros((len(self.actions), 2, self.squares.shape[2]))
        out[:, 0, -1] = 1.0
        out[:, 1] = self.squares[:, :, -1]
        return out

    def taken(self, places: Array) -> ActionSums:
        """The sums of some of the actions."""
        about = None if self.about is None else self.about[places]
        return ActionSums(self.actions[places], self.squares[places], about)


@dataclass(frozen=True, eq=False)
class Statistics(Saved):
    """Sufficient statistics of logged rounds, for the seen actions only.

    An action with fewer than d rounds keeps its rounds, which is smaller and more accurate. One with more keeps sums.
    Nothing is divided by the noise, so that the noise can be learned from statistics alone. `a + b` are the statistics
    of the rounds of both.

    Attributes:
        n_actions: K, seen or not.
        dim: d.
        n_rounds: Number of rounds.
        total_weight: The sum of their weights.
        rows: Rounds of rarely seen actions.
        sums: Sums over the rounds of the other seen actions.
        counted: True if all weights are whole numbers, so that they can be read as counts.
    """

    saved_as = "statistics"
    saved_checks: ClassVar[Mapping[str, PartCheck]] = {
        "n_actions": is_size,
        "dim": is_size,
        "n_rounds": is_count,
        "total_weight": lambda part: is_finite(part) and part >= 0,
        "rows": instance_of(ActionRows),
        "sums": instance_of(ActionSums),
        "counted": is_flag,
    }
    n_actions: int
    dim: int
    n_rounds: int
    total_weight: float
    rows: ActionRows
    sums: ActionSums
    counted: bool = True

    def consistent(self) -> bool:
        """True if rows and sums are of these actions and features."""
        rows, sums, e = self.rows, self.sums, self.dim + 1
        shapes = rows.rounds.shape == (len(rows.actions), e) and sums.squares.shape == (len(sums.actions), e, e)
        largest = max(rows.actions.max(initial=-1), sums.actions.max(initial=-1))
        return bool(shapes and largest < self.n_actions and (np.diff(sums.actions) > 0).all())

    @classmethod
    def empty(cls, n_actions: int, dim: int) -> Statistics:
        """The statistics of no rounds: the neutral element of `+`."""
        return StatisticsSum(as_count("n_actions", n_actions), as_count("dim", dim)).total()

    @classmethod
    def of_rounds(
        cls,
        features: Float[Array, "n d"],
        actions: Int[Array, " n"],
        rewards: Float[Array, " n"],
        n_actions: int,
        weights: Float[Array, " n"] | None = None,
    ) -> Statistics:
        """Statistics of rounds that `LoggedData` has checked. Weight 2 counts a round twice, weight 0 drops it."""
        total = StatisticsSum(n_actions, features.shape[1])
        total.add_rounds(features, actions, rewards, weights)
        return total.total()

    def __repr__(self) -> str:
        seen = len(np.unique(self.rows.actions)) + len(self.sums.actions)
        return f"Statistics({self.n_rounds:,} rounds, {seen:,} of {self.n_actions:,} actions seen, d={self.dim})"

    def __radd__(self, other: int) -> Statistics:
        # sum() starts from 0.
        return self if other == 0 else NotImplemented

    def __add__(self, other: Statistics) -> Statistics:
        if not isinstance(other, Statistics):  # pyright: ignore[reportUnnecessaryIsInstance]
            return NotImplemented
        total = StatisticsSum(self.n_actions, self.dim)
        total.add(self)
        total.add(other)
        return total.total()

    def scaled(self, share: float) -> Statistics:
        """The statistics with every weight multiplied by `share`."""
        rows = ActionRows(self.rows.actions, np.sqrt(share) * self.rows.rounds)
        about = None if self.sums.about is None else self.sums.about * np.array([[1.0], [share]])
        sums = ActionSums(self.sums.actions, share * self.sums.squares, about)
        return replace(self, total_weight=share * self.total_weight, rows=rows, sums=sums, counted=False)

    def shards(self, count: int) -> list[Statistics]:
        """The rounds split by action number modulo `count`; the first shard carries their number and weight."""
        out = list[Statistics]()
        for shard in range(count):
            own_rows, own_sums = self.rows.actions % count == shard, self.sums.actions % count == shard
            rows = ActionRows(self.rows.actions[own_rows], self.rows.rounds[own_rows])
            sums = self.sums.taken(own_sums)
            n_rounds, weight = (self.n_rounds, self.total_weight) if shard == 0 else (0, 0.0)
            out.append(replace(self, n_rounds=n_rounds, total_weight=weight, rows=rows, sums=sums))
        return out

    def with_actions(self, n_actions: int) -> Statistics:
        """The statistics of the same rounds in a catalog that has grown to `n_actions`."""
        return replace(self, n_actions=as_count("n_actions", n_actions, minimum=self.n_actions))


class StatisticsSum:
    """Statistics of rounds that arrive batch by batch, added up in place.

    Whether an action is kept as rows or as sums depends on its total number of rounds, and not on how the rounds were
    split into batches.
    """

    def __init__(self, n_actions: int, dim: int):
        self.n_actions, self.dim = n_actions, dim
        self._n_rounds, self._total_weight, self._counted = 0, 0.0, True
        self._capacity = max(1024, BUFFER // (dim + 1))
        self._actions, self._rounds = np.empty(0, dtype=np.int64), np.empty((0, dim + 1))
        self._filled = 0
        self._rare = 0
        """Number of rounds at the beginning of the buffer that stay there because their actions are rare."""
        self._sums = _SumTable(n_actions, dim + 1)

    def room(self, n_rounds: int) -> Float[Array, "n d"] | None:
        """Memory for the features of the rounds that are added next; those found there are not copied.

        None where they do not fit into the buffer at once.
        """
        self._make_room(n_rounds)
        end = self._filled + n_rounds
        return self._rounds[self._filled : end, : self.dim] if 0 < end <= len(self._actions) else None

    def add_rounds(
        self,
        features: Float[Array, "n d"],
        actions: Int[Array, " n"],
        rewards: Float[Array, " n"],
        weights: Float[Array, " n"] | None = None,
    ) -> None:
        """Add rounds that `LoggedData` has checked."""
        self._n_rounds += len(actions)
        if weights is None:
            self._total_weight += len(actions)
            self._buffer(actions, features, rewards)
            return
        self._counted &= bool(np.all(weights == np.round(weights)))
        self._total_weight += float(weights.sum())
        if not weights.all():
            kept = weights > 0
            features, actions, rewards, weights = features[kept], actions[kept], rewards[kept], weights[kept]
        root = np.sqrt(weights)
        self._buffer(actions, features * root[:, None], rewards * root)

    def add(self, other: Statistics) -> None:
        """Add the rounds of other statistics."""
        if (self.n_actions, self.dim) != (other.n_actions, other.dim):
            raise ShapeError(
                f"statistics of {self.n_actions} actions in {self.dim} dimensions cannot be added to "
                f"{other.n_actions} actions in {other.dim} dimensions."
            )
        self._n_rounds += other.n_rounds
        self._total_weight += other.total_weight
        self._counted &= other.counted
        slots = self._sums.slots(other.sums.actions)
        with np.errstate(over="ignore", invalid="ignore"):
            self._sums.squares[slots] += other.sums.squares
            self._add_about(slots, other.sums)
        self._buffer(other.rows.actions, other.rows.rounds)

    def _add_about(self, slots: Int[Array, " m"], other: ActionSums) -> None:
        """Add sums about other fits than those here; the first fit of an action stays."""
        about, more = self._sums.about[slots], other.about_a_fit().copy()
        new = about[:, 0, -1] == 0.0
        about[new, 0] = more[new, 0]
        shift = about[:, 0, :-1] - more[:, 0, :-1]
        moved = np.einsum("mij,mj->mi", other.gram, shift)
        # Σ (r - φᵀδ)² from the sums of r, for δ as small as the difference of two fits.
        more[:, 1, -1] += np.einsum("mi,mi->m", shift, moved - 2 * more[:, 1, :-1])
        more[:, 1, :-1] -= moved
        about[:, 1] += more[:, 1]
        self._sums.about[slots] = about

    def total(self) -> Statistics:
        """The statistics of all rounds so far. Call it once, at the end: it gives the arrays away."""
        self._flush()
        # Copies, since the buffer is far larger than the rounds left in it.
        rows = ActionRows(frozen(self._actions[: self._rare].copy()), frozen(self._rounds[: self._rare].copy()))
        del self._actions, self._rounds
        sums = self._sums.ascending()
        return Statistics(self.n_actions, self.dim, self._n_rounds, self._total_weight, rows, sums, self._counted)

    def _buffer(self, actions: Int[Array, " n"], *columns: Float[Array, "n ..."]) -> None:
        """Put rounds into the buffer; `columns` side by side are features and rewards, already multiplied by √w."""
        done = 0
        while done < len(actions):
            self._make_room(len(actions) - done)
            count = min(len(actions) - done, len(self._actions) - self._filled)
            target, source = slice(self._filled, self._filled + count), slice(done, done + count)
            self._actions[target] = actions[source]
            start = 0
            for column in columns:
                width = 1 if column.ndim == 1 else column.shape[1]
                place, given = self._rounds[target, start : start + width], column[source].reshape(count, width)
                if not _is_there(given, place):
                    place[...] = given
                start += width
            self._filled, done = self._filled + count, done + count

    def _make_room(self, wanted: int) -> None:
        size = len(self._actions)
        if self._filled < size:
            return
        if size >= self._capacity:
            self._flush()
        if 2 * self._filled > len(self._actions) or size < self._capacity:
            # A single batch gets a buffer of its size. Memory that is never written to costs nothing.
            size = min(self._capacity, wanted) if size == 0 else max(self._capacity, 4 * self._rare)
            earlier = self._actions, self._rounds
            self._actions, self._rounds = np.empty(size, dtype=np.int64), np.empty((size, self.dim + 1))
            self._actions[: self._filled], self._rounds[: self._filled] = (part[: self._filled] for part in earlier)

    def _flush(self) -> None:
        """Sum the rounds in the buffer, except those of actions that are still rare."""
        actions, rounds = self._actions[: self._filled], self._rounds[: self._filled]
        groups = group_by(actions)
        # An action that has sums has outgrown its rows.
        summed = (groups.counts >= self.dim) | np.isin(groups.keys, self._sums.actions, assume_unique=True)
        self._sum(rounds, groups, np.flatnonzero(summed))
        kept = groups.order[np.repeat(~summed, groups.counts)]
        self._filled = self._rare = len(kept)
        self._actions[: self._rare], self._rounds[: self._rare] = actions[kept], rounds[kept]

    def _sum(self, rounds: Float[Array, "n e"], groups: Groups, summed: Int[Array, " m"]) -> None:
        slots = np.empty(len(groups.keys), dtype=np.int64)
        slots[summed] = self._sums.slots(groups.keys[summed])
        squares, about, width, scratch = self._sums.squares, self._sums.about, self.dim + 1, Scratch()

        def work(block: tuple[Int[Array, " b"], Int[Array, "b c"]]) -> None:
            members, index = block
            own = slots[members]
            x, copy = (scratch(name, *index.shape, width) for name in ("rounds", "copy"))
            more, so_far = (scratch(name, len(members), width, width) for name in ("more", "so far"))
            np.take(rounds, index, axis=0, out=x, mode="clip")
            # For the product of an array with itself NumPy computes one half and mirrors it, which takes twice as
            # long for small matrices.
            np.copyto(copy, x)
            np.take(squares, own, axis=0, out=so_far, mode="clip")
            # An overflow is reported later, with its action, when the sums are used.
            with np.errstate(over="ignore", invalid="ignore"):
                so_far += np.matmul(x.swapaxes(1, 2), copy, out=more)
                fits = about[own]
                new = fits[:, 0, -1] == 0.0
                if new.any():
                    some = slice(None) if new.all() else np.flatnonzero(new)
                    fits[some, 0, :-1], fits[some, 0, -1] = _fitted(x[some], more[some]), 1.0
                copy[:, :, -1] -= np.matmul(x[:, :, :-1], fits[:, 0, :-1, None])[:, :, 0]
                gap = copy[:, :, -1:]
                fits[:, 1] += np.matmul(copy.swapaxes(1, 2), gap)[:, :, 0]
            squares[own], about[own] = so_far, fits

        for_each(work, groups.blocks(summed, limit=BLOCK))


def _is_there(given: Array, place: Array) -> bool:
    """True if an array of the shape of a place is that place in memory."""
    first, second = (array.__array_interface__["data"][0] for array in (given, place))
    return first == second and given.strides == place.strides


def _fitted(rounds: Float[Array, "b c e"], squares: Float[Array, "b e e"]) -> Float[Array, "b d"]:
    """Weights that fit the rounds of an action closely; any will do, the closer the fewer digits are lost later."""
    features, rewards, d = rounds[:, :, :-1], rounds[:, :, -1], squares.shape[2] - 1
    size = np.sqrt(np.einsum("bjj->bj", squares[:, :d, :d]))
    # No entry is larger than those of the diagonal.
    known = np.isfinite(size).all(axis=1)
    scale = np.where((size > 0) & known[:, None], 1.0 / np.where(size > 0, size, 1.0), 1.0)
    unit = squares[:, :d, :d] * scale[:, :, None]
    unit *= scale[:, None, :]
    unit[~known] = 0.0
    # Large enough for collinear features.
    ridge = d * _RIDGE
    np.einsum("bjj->bj", unit)[...] += ridge
    first = np.linalg.solve(unit, (squares[:, :d, d] * scale)[:, :, None])[:, :, 0]
    out = first * scale
    gap = rewards - np.matmul(features, out[:, :, None])[:, :, 0]
    # Another step takes at most this from the squares of the gap: nothing worth it, unless features are collinear.
    most = 2 * ridge * np.einsum("bd,bd->b", first, first)
    more = np.flatnonzero(most > 0.75 * np.einsum("bc,bc->b", gap, gap))
    if len(more):
        moment = np.matmul(gap[more, None], features[more])[:, 0] * scale[more]
        out[more] += np.linalg.solve(unit[more], moment[:, :, None])[:, :, 0] * scale[more]
    return np.where(np.isfinite(out).all(axis=1, keepdims=True), out, 0.0)


_RIDGE = 1e-10


class _SumTable:
    """Sums of actions. Each stays in the slot it got first, so that a new action moves none of them."""

    def __init__(self, n_actions: int, width: int):
        self.actions = np.empty(0, dtype=np.int64)
        """Ascending."""
        self.squares, self.about = np.empty((0, width, width)), np.empty((0, 2, width))
        self._slots = np.empty(0, dtype=np.int64)
        self._n_actions = n_actions

    def slots(self, actions: Int[Array, " m"]) -> Int[Array, " m"]:
        """The slots of these ascending actions; new ones get a slot."""
        fresh = actions[~np.isin(actions, self.actions, assume_unique=True)]
        if len(fresh):
            at = np.searchsorted(self.actions, fresh)
            self._make_room(len(self.actions) + len(fresh))
            slots = fresh if self._is_whole else np.arange(len(fresh)) + len(self.actions)
            self.actions, self._slots = np.insert(self.actions, at, fresh), np.insert(self._slots, at, slots)
        return self._slots[np.searchsorted(self.actions, actions)]

    def ascending(self) -> ActionSums:
        """The sums in the order of actions."""
        m = len(self.actions)
        if np.array_equal(self._slots, np.arange(m)):
            return ActionSums(frozen(self.actions), frozen(self.squares[:m]), frozen(self.about[:m]))
        return ActionSums(frozen(self.actions), frozen(self.squares[self._slots]), frozen(self.about[self._slots]))

    @property
    def _is_whole(self) -> bool:
        """True if every action of the catalog has a slot: its number."""
        return len(self.squares) == self._n_actions

    def _make_room(self, wanted: int) -> None:
        if wanted <= len(self.squares):
            return
        # Zeros that are never written to take no memory, so some may be spare.
        earlier, size = (self.squares, self.about), min(self._n_actions, 2 * wanted)
        self.squares, self.about = (np.zeros((size, *part.shape[1:])) for part in earlier)
        for new, old in zip((self.squares, self.about), earlier, strict=True):
            if self._is_whole:
                new[self.actions] = old[self._slots]
            else:
                new[: len(old)] = old
        if self._is_whole:
            self._slots = self.actions.copy()
