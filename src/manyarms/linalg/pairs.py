"""Sparse matrices seen as lists of (row, column) pairs."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from jaxtyping import Int
from scipy import sparse

from manyarms._base.checks import Array


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
