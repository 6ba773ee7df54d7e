"""Rounds of rarely seen actions as they are, sums over those of the others, and how more of either are added."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from manyarms._arrays import Array, frozen
from manyarms.linalg.groups import Groups, group_by
from manyarms.linalg.threads import for_each

BUFFER = 1 << 25
"""How many numbers of rounds are held back before they are summed (256 MB).

Sums are touched once for every buffer, so the more rounds of an action it holds, the fewer passes over memory.
"""
BLOCK = 1 << 13
"""How many rounds are multiplied at a time: few enough to stay in the cache."""


@dataclass(frozen=True)
class Rows:
    """Rounds kept as they are, sorted by action: every action here has fewer than d of them; e = d + 1 numbers each.

    A weight w is applied as √w to features and rewards, so that products carry w.
    """

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
class Sums:
    """Σ (φ, r)(φ, r)ᵀ of the actions with d rounds or more, ascending by action."""

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
        dim: d.
    """

    def __init__(self, dim: int):
        self._dim = dim
        self._capacity = max(1024, BUFFER // (dim + 1))
        self._actions, self._rounds = np.empty(0, dtype=np.int64), np.empty((0, dim + 1))
        self._filled = 0
        self._few = Rows(np.empty(0, dtype=np.int64), np.empty((0, dim + 1)))
        self._sums = _Table(dim + 1)

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

    def add_sums(self, sums: Sums) -> None:
        """Take in what was summed elsewhere."""
        slots = self._sums.slots(sums.actions)
        with np.errstate(over="ignore", invalid="ignore"):
            self._sums.squares[slots] += sums.squares

    def total(self) -> tuple[Rows, Sums]:
        """All so far; the end of it, since the arrays are given away."""
        self._flush()
        del self._actions, self._rounds
        return Rows(frozen(self._few.actions), frozen(self._few.rounds)), self._sums.ascending()

    def _make_room(self, wanted: int) -> None:
        size = len(self._actions)
        if self._filled == size == self._capacity:
            self._flush()
        elif self._filled == size:
            # A single batch gets just its size; memory that is never written to costs nothing.
            size = min(self._capacity, wanted) if size == 0 else self._capacity
            held = self._actions, self._rounds
            self._actions, self._rounds = np.empty(size, dtype=np.int64), np.empty((size, self._dim + 1))
            self._actions[: self._filled], self._rounds[: self._filled] = held

    def _flush(self) -> None:
        """Sum what is in the buffer, but for the rounds of actions that are still rare."""
        if self._filled == 0 and not np.isin(self._few.actions, self._sums.actions).any():
            return
        actions, rounds = self._actions[: self._filled], self._rounds[: self._filled]
        if len(self._few.actions):
            # Rare actions have few rounds, so this copy is small beside the buffer once it has been full.
            actions, rounds = np.concatenate([self._few.actions, actions]), np.concatenate([self._few.rounds, rounds])
        groups = group_by(actions)
        # An action that has sums has outgrown its rows.
        summed = (groups.counts >= self._dim) | np.isin(groups.keys, self._sums.actions, assume_unique=True)
        kept = groups.order[np.repeat(~summed, groups.counts)]
        few = Rows(actions[kept], rounds[kept])
        self._sum(rounds, groups, np.flatnonzero(summed))
        self._few, self._filled = few, 0

    def _sum(self, rounds: Float[Array, "n e"], groups: Groups, members: Int[Array, " m"]) -> None:
        slots = np.empty(len(groups.keys), dtype=np.int64)
        slots[members] = self._sums.slots(groups.keys[members])
        squares = self._sums.squares

        def work(block: tuple[Int[Array, " b"], Int[Array, "b c"]]) -> None:
            which, index = block
            x = rounds.take(index, axis=0)
            # An overflow is reported, with its action, when the sums are used.
            with np.errstate(over="ignore", invalid="ignore"):
                squares[slots[which]] += x.swapaxes(1, 2) @ x

        for_each(work, groups.blocks(members, limit=BLOCK))


class _Table:
    """Sums that stand where they first found a place, so that a new action moves none of them.

    Args:
        width: e.
    """

    def __init__(self, width: int):
        self.actions = np.empty(0, dtype=np.int64)
        """Ascending."""
        self.squares = np.empty((0, width, width))
        self._place = np.empty(0, dtype=np.int64)

    def slots(self, actions: Int[Array, " m"]) -> Int[Array, " m"]:
        """Where the sums of these ascending actions stand; new ones get a place."""
        fresh = actions[~np.isin(actions, self.actions, assume_unique=True)]
        if len(fresh):
            self._grow(len(self.actions) + len(fresh))
            at = np.searchsorted(self.actions, fresh)
            places = np.arange(len(self.actions), len(self.actions) + len(fresh))
            self.actions, self._place = np.insert(self.actions, at, fresh), np.insert(self._place, at, places)
        return self._place[np.searchsorted(self.actions, actions)]

    def ascending(self) -> Sums:
        """In the order of actions."""
        m = len(self.actions)
        if np.array_equal(self._place, np.arange(m)):
            return Sums(frozen(self.actions), frozen(self.squares[:m]))
        return Sums(frozen(self.actions), frozen(self.squares[self._place]))

    def _grow(self, size: int) -> None:
        if size > len(self.squares):
            # Zeros that nobody writes to take no memory, so there may be some to spare.
            held = self.squares
            self.squares = np.zeros((size + size // 4, *held.shape[1:]))
            self.squares[: len(held)] = held
