"""All that the posterior needs of the logs, additive over rounds: the wire format between batches and machines."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, frozen
from manyarms.errors import ShapeError
from manyarms.linalg.indexing import Groups, group_by
from manyarms.linalg.threads import for_each
from manyarms.model_file.save import Saved


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
    rows: ActionRows
    sums: ActionSums
    counted: bool = True

    @classmethod
    def empty(cls, n_actions: int, dim: int) -> Statistics:
        """No rounds at all: what `+` leaves unchanged."""
        return StatisticsSum(n_actions, dim).total()

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
        """Every round with `share` times its weight."""
        rows = ActionRows(self.rows.actions, np.sqrt(share) * self.rows.rounds)
        sums = ActionSums(self.sums.actions, share * self.sums.squares)
        return Statistics(self.n_actions, self.dim, self.n_rounds, share * self.total_weight, rows, sums, False)

    def shards(self, count: int) -> list[Statistics]:
        """The same rounds by action number modulo `count`; their number and weight are told by the first."""
        out = list[Statistics]()
        for shard in range(count):
            mine, ours = self.rows.actions % count == shard, self.sums.actions % count == shard
            rows = ActionRows(self.rows.actions[mine], self.rows.rounds[mine])
            sums = ActionSums(self.sums.actions[ours], self.sums.squares[ours])
            n_rounds, weight = (self.n_rounds, self.total_weight) if shard == 0 else (0, 0.0)
            out.append(Statistics(self.n_actions, self.dim, n_rounds, weight, rows, sums, self.counted))
        return out

    def with_actions(self, n_actions: int) -> Statistics:
        """The same rounds in a catalog that has grown to `n_actions`."""
        return Statistics(n_actions, self.dim, self.n_rounds, self.total_weight, self.rows, self.sums, self.counted)


class StatisticsSum:
    """Statistics that grow batch by batch, in place.

    Args:
        n_actions: K.
        dim: d.
    """

    def __init__(self, n_actions: int, dim: int):
        self.n_actions, self.dim = n_actions, dim
        self._sum = RoundSum(n_actions, dim)
        self._n_rounds, self._total_weight, self._counted = 0, 0.0, True

    def add_rounds(
        self,
        features: Float[Array, "n d"],
        actions: Int[Array, " n"],
        rewards: Float[Array, " n"],
        weights: Float[Array, " n"] | None = None,
    ) -> None:
        """Take in rounds that `LoggedData` has checked."""
        self._n_rounds += len(actions)
        if weights is None:
            self._total_weight += len(actions)
            self._sum.add(actions, features, rewards)
            return
        self._counted &= bool(np.all(weights == np.round(weights)))
        self._total_weight += float(weights.sum())
        if not weights.all():
            kept = weights > 0
            features, actions, rewards, weights = features[kept], actions[kept], rewards[kept], weights[kept]
        root = np.sqrt(weights)
        self._sum.add(actions, features * root[:, None], rewards * root)

    def add(self, other: Statistics) -> None:
        """Take in the rounds of other statistics."""
        if (self.n_actions, self.dim) != (other.n_actions, other.dim):
            raise ShapeError(
                f"statistics of {self.n_actions} actions in {self.dim} dimensions cannot be added to "
                f"{other.n_actions} actions in {other.dim} dimensions."
            )
        self._n_rounds += other.n_rounds
        self._total_weight += other.total_weight
        self._counted &= other.counted
        self._sum.add_sums(other.sums)
        self._sum.add(other.rows.actions, other.rows.rounds)

    def total(self) -> Statistics:
        """All so far; ask once, at the end."""
        rows, sums = self._sum.total()
        return Statistics(self.n_actions, self.dim, self._n_rounds, self._total_weight, rows, sums, self._counted)


BUFFER = 1 << 25
"""How many numbers of rounds are held back before they are summed (256 MB).

Sums are touched once for every buffer, so the more rounds of an action it holds, the fewer passes over memory.
"""
BLOCK = 1 << 13
"""How many rounds are multiplied at a time: few enough to stay in the cache."""


@dataclass(frozen=True)
class ActionRows(Saved):
    """Rounds kept as they are, sorted by action: every action here has fewer than d of them; e = d + 1 numbers each.

    A weight w is applied as √w to features and rewards, so that products carry w.
    """

    saved_as = "rows"
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
    """Σ (φ, r)(φ, r)ᵀ of the actions with d rounds or more, ascending by action."""

    saved_as = "sums"
    actions: Int[Array, " m"]
    squares: Float[Array, "m e e"]

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


class RoundSum:
    """Rows and sums of rounds that arrive batch by batch, added up in place.

    Which actions are kept as rows and which are summed depends on how many rounds they have in all, and not on how
    these were cut into batches.

    Args:
        n_actions: K.
        dim: d.
    """

    def __init__(self, n_actions: int, dim: int):
        self._dim = dim
        self._capacity = max(1024, BUFFER // (dim + 1))
        self._actions, self._rounds = np.empty(0, dtype=np.int64), np.empty((0, dim + 1))
        self._filled = 0
        self._rare = 0
        """How many rounds at the beginning of the buffer were left there because their actions are rare."""
        self._sums = _Table(n_actions, dim + 1)
        self._scratch = _Scratch()

    def add(self, actions: Int[Array, " n"], *columns: Float[Array, "n ..."]) -> None:
        """Take in rounds; `columns` side by side are features and rewards, already in units of √w."""
        done = 0
        while done < len(actions):
            self._make_room(len(actions) - done)
            some = min(len(actions) - done, len(self._actions) - self._filled)
            into, of = slice(self._filled, self._filled + some), slice(done, done + some)
            self._actions[into] = actions[of]
            at = 0
            for column in columns:
                width = 1 if column.ndim == 1 else column.shape[1]
                self._rounds[into, at : at + width] = column[of].reshape(some, width)
                at += width
            self._filled, done = self._filled + some, done + some

    def add_sums(self, sums: ActionSums) -> None:
        """Take in what was summed elsewhere."""
        slots = self._sums.slots(sums.actions)
        with np.errstate(over="ignore", invalid="ignore"):
            self._sums.squares[slots] += sums.squares

    def total(self) -> tuple[ActionRows, ActionSums]:
        """All so far; the end of it, since the arrays are given away."""
        self._flush()
        # Copies, since the buffer is far larger than what is left in it.
        rows = ActionRows(frozen(self._actions[: self._rare].copy()), frozen(self._rounds[: self._rare].copy()))
        del self._actions, self._rounds
        return rows, self._sums.ascending()

    def _make_room(self, wanted: int) -> None:
        size = len(self._actions)
        if self._filled < size:
            return
        if size >= self._capacity:
            self._flush()
        if 2 * self._filled > len(self._actions) or size < self._capacity:
            # A single batch gets just its size. Memory that is never written to costs nothing.
            size = min(self._capacity, wanted) if size == 0 else max(self._capacity, 4 * self._rare)
            held = self._actions, self._rounds
            self._actions, self._rounds = np.empty(size, dtype=np.int64), np.empty((size, self._dim + 1))
            self._actions[: self._filled], self._rounds[: self._filled] = (part[: self._filled] for part in held)

    def _flush(self) -> None:
        """Sum what is in the buffer, but for the rounds of actions that are still rare."""
        actions, rounds = self._actions[: self._filled], self._rounds[: self._filled]
        groups = group_by(actions)
        # An action that has sums has outgrown its rows.
        summed = (groups.counts >= self._dim) | np.isin(groups.keys, self._sums.actions, assume_unique=True)
        self._sum(rounds, groups, np.flatnonzero(summed))
        kept = groups.order[np.repeat(~summed, groups.counts)]
        self._filled = self._rare = len(kept)
        self._actions[: self._rare], self._rounds[: self._rare] = actions[kept], rounds[kept]

    def _sum(self, rounds: Float[Array, "n e"], groups: Groups, members: Int[Array, " m"]) -> None:
        slots = np.empty(len(groups.keys), dtype=np.int64)
        slots[members] = self._sums.slots(groups.keys[members])
        squares, width = self._sums.squares, self._dim + 1

        def work(block: tuple[Int[Array, " b"], Int[Array, "b c"]]) -> None:
            which, index = block
            places = slots[which]
            with self._scratch.some() as memory:
                x, again = (memory.array(name, (*index.shape, width)) for name in ("rounds", "again"))
                more, so_far = (memory.array(name, (len(which), width, width)) for name in ("more", "so far"))
                np.take(rounds, index, axis=0, out=x, mode="clip")
                # Of one array with itself NumPy computes half and mirrors it: for small matrices, in twice the time.
                np.copyto(again, x)
                np.take(squares, places, axis=0, out=so_far, mode="clip")
                # An overflow is reported, with its action, when the sums are used.
                with np.errstate(over="ignore", invalid="ignore"):
                    so_far += np.matmul(x.swapaxes(1, 2), again, out=more)
                squares[places] = so_far

        for_each(work, groups.blocks(members, limit=BLOCK))


class _Memory:
    """Arrays by name whose content is not needed any more."""

    def __init__(self) -> None:
        self._held = dict[str, Array]()

    def array(self, name: str, shape: tuple[int, ...]) -> Float[Array, "..."]:
        """One of this shape, with anything in it."""
        size = int(np.prod(shape))
        if name not in self._held or len(self._held[name]) < size:
            self._held[name] = np.empty(size)
        return self._held[name][:size].reshape(shape)


class _Scratch:
    """Memory that is used again by whichever thread comes next: to ask for it anew takes longer than the products."""

    def __init__(self) -> None:
        self._free = deque[_Memory]()

    @contextmanager
    def some(self) -> Generator[_Memory]:
        """Memory that nobody else uses meanwhile."""
        try:
            memory = self._free.pop()
        except IndexError:
            memory = _Memory()
        yield memory
        self._free.append(memory)


class _Table:
    """Sums that stand where they first found a place, so that a new action moves none of them.

    Args:
        n_actions: K.
        width: e.
    """

    def __init__(self, n_actions: int, width: int):
        self.actions = np.empty(0, dtype=np.int64)
        """Ascending."""
        self.squares = np.empty((0, width, width))
        self._place = np.empty(0, dtype=np.int64)
        self._n_actions = n_actions

    def slots(self, actions: Int[Array, " m"]) -> Int[Array, " m"]:
        """Where the sums of these ascending actions stand; new ones get a place."""
        fresh = actions[~np.isin(actions, self.actions, assume_unique=True)]
        if len(fresh):
            at = np.searchsorted(self.actions, fresh)
            self._make_room(len(self.actions) + len(fresh))
            places = fresh if self._is_whole else np.arange(len(fresh)) + len(self.actions)
            self.actions, self._place = np.insert(self.actions, at, fresh), np.insert(self._place, at, places)
        return self._place[np.searchsorted(self.actions, actions)]

    def ascending(self) -> ActionSums:
        """In the order of actions."""
        m = len(self.actions)
        if np.array_equal(self._place, np.arange(m)):
            return ActionSums(frozen(self.actions), frozen(self.squares[:m]))
        return ActionSums(frozen(self.actions), frozen(self.squares[self._place]))

    @property
    def _is_whole(self) -> bool:
        """Whether every action of the catalog has its place already: its number."""
        return len(self.squares) == self._n_actions

    def _make_room(self, wanted: int) -> None:
        if wanted <= len(self.squares):
            return
        # Zeros that nobody writes to take no memory, so there may be some to spare.
        held, size = self.squares, min(self._n_actions, 2 * wanted)
        self.squares = np.zeros((size, *held.shape[1:]))
        if self._is_whole:
            self.squares[self.actions] = held[self._place]
            self._place = self.actions.copy()
        else:
            self.squares[: len(held)] = held
