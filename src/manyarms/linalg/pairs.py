"""Sparse matrices seen as lists of (row, column) pairs."""

from __future__ import annotations

from typing import cast

import numpy as np
from jaxtyping import Int
from scipy import sparse

from manyarms._arrays import Array


def shape_of(matrix: sparse.csr_array) -> tuple[int, int]:
    """(rows, columns), with the type that SciPy does not declare."""
    return cast(tuple[int, int], matrix.shape)


def pair_rows(matrix: sparse.csr_array) -> Int[Array, " p"]:
    """The row of every stored entry."""
    return np.repeat(np.arange(shape_of(matrix)[0]), np.diff(matrix.indptr))
