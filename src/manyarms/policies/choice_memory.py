"""Choices that a policy has made, so that evaluating it several times on the same contexts asks it once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, UInt64

from manyarms._base.checks import Array

MAX_BLOCKS = 16
"""How many blocks of contexts are remembered; the oldest is forgotten first."""
MAX_NUMBERS = 1 << 23
"""The largest number of context entries that is remembered (64 MB)."""


class _Block(NamedTuple):
    keys: UInt64[Array, " n"]
    contexts: Float[Array, "n d"]
    actions: Int[Array, " n"]


class ChoiceMemory:
    """Actions chosen in earlier contexts, for contexts that are equal to the last bit.

    Contexts are looked up by a hash and then compared, so another context is never taken for one seen before, and an
    array that was changed in place is a new one.
    """

    def __init__(self):
        self._blocks: tuple[_Block, ...] = ()

    def recall(self, contexts: Float[Array, "n d"]) -> tuple[Int[Array, " n"], Bool[Array, " n"]]:
        """The action of each context, and whether it is known."""
        actions, known = np.zeros(len(contexts), dtype=np.int64), np.zeros(len(contexts), dtype=bool)
        if not self._blocks:
            return actions, known
        keys = _keys(contexts)
        for block in self._blocks:
            place = np.minimum(np.searchsorted(block.keys, keys), len(block.keys) - 1)
            rows = np.flatnonzero((block.keys[place] == keys) & ~known)
            same = (_bits(block.contexts[place[rows]]) == _bits(contexts[rows])).all(axis=1)
            rows = rows[same]
            actions[rows], known[rows] = block.actions[place[rows]], True
        return actions, known

    def remember(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> None:
        """Keep the actions chosen in some contexts, where these are not too many."""
        if contexts.size == 0 or contexts.size > MAX_NUMBERS:
            return
        keys = _keys(contexts)
        order = np.argsort(keys)
        blocks = (_Block(keys[order], contexts[order], actions[order]), *self._blocks[: MAX_BLOCKS - 1])
        sizes = np.cumsum([block.contexts.size for block in blocks])
        self._blocks = blocks[: int(np.count_nonzero(sizes <= MAX_NUMBERS))]


def _bits(contexts: Float[Array, "n d"]) -> UInt64[Array, "n d"]:
    return np.ascontiguousarray(contexts, dtype=np.float64).view(np.uint64)


def _keys(contexts: Float[Array, "n d"]) -> UInt64[Array, " n"]:
    """A hash of every row: sums of its bits, mixed, times odd numbers."""
    bits = _bits(contexts)
    bits = bits ^ (bits >> np.uint64(29))
    factors = np.random.default_rng(0).integers(1 << 63, size=contexts.shape[1], dtype=np.uint64) | np.uint64(1)
    return bits @ factors
