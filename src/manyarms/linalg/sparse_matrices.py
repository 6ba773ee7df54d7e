"""Sparse matrices: their shapes, rows and columns, and the parts that they are saved as."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from jaxtyping import Int
from scipy import sparse

from manyarms._base.checks import Array


def shape_of(matrix: Array | sparse.csr_array) -> tuple[int, int]:
    """(rows, columns) of a sparse matrix, with the type that SciPy does not declare."""
    return cast(tuple[int, int], matrix.shape)


def pair_rows(matrix: sparse.csr_array) -> Int[Array, " p"]:
    """The row index of every stored entry of a sparse matrix, in the order of storage."""
    return np.repeat(np.arange(shape_of(matrix)[0]), np.diff(matrix.indptr))


def csr_parts(matrix: sparse.csr_array) -> tuple[Array, Array, Array, int, bool]:
    """The parts that a sparse matrix is saved as: values, columns, row starts, number of columns, canonical or not."""
    return matrix.data, matrix.indices, matrix.indptr, shape_of(matrix)[1], bool(matrix.has_canonical_format)


def csr_from_parts(parts: tuple[Any, ...]) -> sparse.csr_array:
    """Make a sparse matrix from its `csr_parts`.

    Raises:
        ValueError: If columns or rows are outside the matrix: SciPy would read beyond its memory.
    """
    data, columns, starts, n_columns, canonical = parts
    # A matrix that is not in canonical order may be sorted in place later, and the memory of a file is read-only.
    out = sparse.csr_array((data, columns, starts), shape=(len(starts) - 1, n_columns), copy=not canonical)
    out.check_format(full_check=True)
    if canonical:
        out.has_canonical_format = True
    return out


def shared_set(matrix: sparse.csr_array) -> Int[Array, " m"] | None:
    """Column indices in a row of a sparse matrix, if all rows have the same and there are at least 16; else None."""
    n_rows = shape_of(matrix)[0]
    if n_rows < 16 or len(matrix.indices) % n_rows:
        return None
    sets = matrix.indices.reshape(n_rows, -1)
    same_size = np.all(np.diff(matrix.indptr) == sets.shape[1])
    return sets[0].astype(np.int64) if same_size and (sets == sets[0]).all() else None


def one_hot(codes: Int[Array, " K"], count: int) -> sparse.csr_array:
    """A sparse matrix with a one in each row, in the column that is the row's index among `count`."""
    n = len(codes)
    return sparse.csr_array((np.ones(n), codes, np.arange(n + 1)), shape=(n, count))
