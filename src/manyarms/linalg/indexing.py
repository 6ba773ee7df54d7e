"""Index arithmetic: chunks of a range, rows grouped by key, pairs of equal keys."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array


class Groups(NamedTuple):
    """Indices of rows grouped by an integer key."""

    keys: Int[Array, " g"]
    """The distinct keys, ascending."""
    order: Int[Array, " n"]
    """Row numbers, group by group; within a group in their original order."""
    starts: Int[Array, " g"]
    """The position in `order` at which each group begins."""
    counts: Int[Array, " g"]
    """Number of rows in each group."""

    def blocks(self, members: Int[Array, " m"], limit: int) -> Iterator[tuple[Int[Array, " b"], Int[Array, "b c"]]]:
        """Rectangular blocks of groups of equal size: (groups, the rows of each), at most about `limit` rows per block.

        Only the groups at the positions `members` of `keys` are included. A single group may exceed the limit.
        """
        by_size = members[np.argsort(self.counts[members], kind="stable")]
        sizes = self.counts[by_size]
        ends = np.cumsum(sizes)
        # Rows in the order of the blocks, so that a block is a slice.
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
    """The indices of the rows of each distinct key."""
    n, bound = len(keys), int(keys.max(initial=0)) + 1
    if n < _WORTH_COUNTING or bound > 4 * n or keys.min() < 0:
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        return Groups(ordered[starts], order, starts, np.diff(starts, append=n))
    # A matrix with a one in column i and row keys[i]: converting it from CSC to CSR is a counting sort, which takes a
    # tenth of the time. Row numbers take half the memory where they fit into 32 bits.
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
    """Slices of `size` that cover 0 ... n; the last may be shorter."""
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def all_pairs(keys: Int[Array, " n"]) -> tuple[Int[Array, " q"], Int[Array, " q"]]:
    """Indices (i, j) of every pair of positions with equal keys, including i = j; equal keys must be adjacent."""
    counts = np.diff(np.flatnonzero(np.diff(keys, prepend=-1, append=-1)))
    partners = np.repeat(counts, counts)
    left = np.repeat(np.arange(len(keys)), partners)
    within = np.arange(len(left)) - np.repeat(np.cumsum(partners) - partners, partners)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    return left, np.repeat(starts, partners) + within


def lowest_of_each(labels: Int[Array, " K"], k: int, among: Int[Array, " m"] | None) -> Int[Array, " q"]:
    """The k lowest positions of each label, or all if there are fewer; among all positions, or those given.

    Args:
        labels: The lowest position with the same label, for every position.
        k: The most positions per label.
        among: The positions to choose from, which ascend; None for all.
    """
    if k == 1 and among is None:
        return np.flatnonzero(labels == np.arange(len(labels)))
    ids = np.arange(len(labels)) if among is None else among
    order = np.argsort(labels[ids], kind="stable")
    starts = np.flatnonzero(np.diff(labels[ids][order], prepend=-1))
    rank = np.arange(len(ids)) - np.repeat(starts, np.diff(starts, append=len(ids)))
    return np.sort(ids[order[rank < k]])


def cache_chunks(n: int, numbers_each: int) -> Iterator[slice]:
    """Slices over n items such that a chunk holds about CHUNK_NUMBERS numbers."""
    return chunks(n, max(1, CHUNK_NUMBERS // max(1, numbers_each)))


CHUNK_NUMBERS = 1 << 17
"""Numbers per chunk of a batched product (1 MB): large enough for BLAS, small enough for the cache."""
