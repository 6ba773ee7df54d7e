"""Rows that belong together: sorting them by key, and walking through ragged groups as rectangular blocks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array


class Groups(NamedTuple):
    """Rows grouped by an integer key."""

    keys: Int[Array, " g"]
    """The distinct keys, ascending."""
    order: Int[Array, " n"]
    """Row numbers, group after group; within a group in their first order."""
    starts: Int[Array, " g"]
    """Where each group begins in `order`."""
    counts: Int[Array, " g"]
    """How many rows each group has."""

    def blocks(self, members: Int[Array, " m"], limit: int) -> Iterator[tuple[Int[Array, " b"], Int[Array, "b c"]]]:
        """Blocks of groups of one size: (which groups, the rows of each), at most about `limit` rows a block.

        Args:
            members: Positions in `keys` of the groups wanted.
            limit: How many rows a block may hold; one group alone may exceed it.
        """
        by_size = members[np.argsort(self.counts[members], kind="stable")]
        sizes = self.counts[by_size]
        ends = np.cumsum(sizes)
        # Rows in the order in which blocks want them, so that a block is a slice.
        n_rows = int(ends[-1]) if len(ends) else 0
        place = np.repeat((self.starts[by_size] - ends + sizes).astype(self.order.dtype), sizes)
        place += np.arange(n_rows, dtype=place.dtype)
        rows = self.order[place]
        edges = np.flatnonzero(np.diff(sizes, prepend=-1, append=-1))
        for low, high in pairwise(edges):
            count = int(sizes[low])
            step = max(1, limit // count)
            for begin in range(low, high, step):
                end = min(begin + step, high)
                yield by_size[begin:end], rows[ends[begin] - count : ends[end - 1]].reshape(-1, count)


def group_by(keys: Int[Array, " n"]) -> Groups:
    """The rows of each distinct key."""
    n, bound = len(keys), int(keys.max(initial=0)) + 1
    if n < _WORTH_COUNTING or bound > 4 * n or keys.min() < 0:
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        return Groups(ordered[starts], order, starts, np.diff(starts, append=n))
    # A matrix with a one in column i and row keys[i]: changing it from columns to rows sorts by counting, in a tenth
    # of the time.
    # Half the memory for row numbers, where they fit.
    whole = np.int32 if n < np.iinfo(np.int32).max else np.int64
    parts = np.ones(n, dtype=np.int8), keys.astype(whole), np.arange(n + 1, dtype=whole)
    ones = sparse.csc_array(parts, shape=(bound, n)).tocsr()
    counts = np.diff(ones.indptr)
    present = np.flatnonzero(counts)
    return Groups(present, ones.indices, ones.indptr[present].astype(np.int64), counts[present].astype(np.int64))


_WORTH_COUNTING = 1 << 12


def sum_by(keys: Int[Array, " n"], values: Float[Array, "n ..."]) -> tuple[Int[Array, " g"], Float[Array, "g ..."]]:
    """The distinct keys, ascending, and the sum of the values of each."""
    groups = group_by(keys)
    if len(groups.keys) == 0:
        return groups.keys, values[:0]
    return groups.keys, np.add.reduceat(values[groups.order], groups.starts, axis=0)


def chunks(n: int, size: int) -> Iterator[slice]:
    """Slices that cover 0 ... n, of `size` each but the last."""
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))
