"""Rows that belong together: sorting them by key, and walking through ragged groups as rectangular blocks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple, cast

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


def shape_of(matrix: sparse.csr_array) -> tuple[int, int]:
    """(rows, columns), with the type that SciPy does not declare."""
    return cast(tuple[int, int], matrix.shape)


def pair_rows(matrix: sparse.csr_array) -> Int[Array, " p"]:
    """The row of every stored entry."""
    return np.repeat(np.arange(shape_of(matrix)[0]), np.diff(matrix.indptr))


def csr_parts(matrix: sparse.csr_array) -> tuple[Array, Array, Array, int, bool]:
    """What a matrix is made of: values, columns, where rows begin, how many columns there are, whether in order."""
    return matrix.data, matrix.indices, matrix.indptr, shape_of(matrix)[1], bool(matrix.has_canonical_format)


def csr_from_parts(parts: tuple[Any, ...]) -> sparse.csr_array:
    """What `csr_parts` gave, as a matrix again.

    Raises:
        ValueError: When columns or rows are outside the matrix: SciPy would read beyond its memory.
    """
    data, columns, starts, n_columns, canonical = parts
    # One that is not in order may be sorted in its place later, and a file's memory cannot be written to.
    out = sparse.csr_array((data, columns, starts), shape=(len(starts) - 1, n_columns), copy=not canonical)
    out.check_format(full_check=True)
    if canonical:
        out.has_canonical_format = True
    return out


def shared_set(matrix: sparse.csr_array) -> Int[Array, " m"] | None:
    """The one set of columns that all rows share, if they are at least 16 and do."""
    n_rows = shape_of(matrix)[0]
    if n_rows < 16 or len(matrix.indices) % n_rows:
        return None
    sets = matrix.indices.reshape(n_rows, -1)
    same = np.all(np.diff(matrix.indptr) == sets.shape[1]) and np.array_equal(
        sets, np.broadcast_to(sets[0], sets.shape)
    )
    return sets[0].astype(np.int64) if same else None


def all_pairs(keys: Int[Array, " n"]) -> tuple[Int[Array, " q"], Int[Array, " q"]]:
    """Every pair (i, j) of positions with equal keys, i = j too; equal keys stand together."""
    counts = np.diff(np.flatnonzero(np.diff(keys, prepend=-1, append=-1)))
    partners = np.repeat(counts, counts)
    left = np.repeat(np.arange(len(keys)), partners)
    within = np.arange(len(left)) - np.repeat(np.cumsum(partners) - partners, partners)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    return left, np.repeat(starts, partners) + within


def cache_chunks(n: int, numbers_each: int) -> Iterator[slice]:
    """Slices over n items such that a chunk holds about CHUNK_NUMBERS numbers."""
    return chunks(n, max(1, CHUNK_NUMBERS // max(1, numbers_each)))


CHUNK_NUMBERS = 1 << 17
"""How many float64 a chunk of a batched product holds (1 MB): large enough for BLAS, small enough for the cache."""
