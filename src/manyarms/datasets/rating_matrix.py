"""Matrices of ratings: checks, the cells that are observed, and factorisation into vectors of users and items."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from jaxtyping import Bool, Float
from scipy import sparse
from scipy.sparse.linalg import svds

from manyarms._base.checks import Array, as_count, as_floats
from manyarms._base.rng import as_generator, split
from manyarms.errors import DataTypeError, EligibilityError, InputError, NonFiniteError, RangeError, ShapeError
from manyarms.linalg.sparse_matrices import pair_rows, shape_of

DENSE_CELLS = 1 << 21
"""The largest number of cells with a full singular value decomposition, which then takes a second or less."""


def factorise(matrix: Any, rank: int, rng: np.random.Generator) -> tuple[Float[Array, "u r"], Float[Array, "i r"]]:
    """Vectors of users and items such that users @ items.T is the best rank-r approximation of a rating matrix.

    With matrix ≈ U diag(s) Vᵀ, users are U √s and items V √s, so both sides have the same scale. Components come in
    falling order of s, and each has the sign that makes the largest entry of its item column positive.

    Args:
        matrix: (u, i) Ratings, dense or SciPy sparse, with zeros where unrated.
        rank: r, at most the smaller of u and i.
        rng: A NumPy generator for the start of the iteration for a large matrix. The factors are the same up to
            rounding.

    Returns:
        The (u, r) vectors of users and the (i, r) vectors of items.
    """
    given, start_rng = sparse.issparse(matrix), as_generator(rng)
    table = as_rating_matrix("matrix", matrix) if given else sparse.csr_array(as_floats("matrix", matrix, ndim=2))
    if not table.data.any():
        raise InputError("must have a rating that is not zero.", argument="matrix")
    n, m = shape_of(table)
    smaller = min(n, m)
    if as_count("rank", rank) > smaller:
        raise RangeError(f"must be at most {smaller} for a matrix of shape {(n, m)}; got {rank}.", argument="rank")
    if rank == smaller or n * m <= DENSE_CELLS:
        left, s, right = np.linalg.svd(table.toarray(), full_matrices=False)
    else:
        left, s, right = cast(tuple[Array, Array, Array], svds(table, rank, v0=start_rng.standard_normal(smaller)))
    order = np.argsort(-s)[:rank]
    left, s, right = left[:, order], s[order], right[order].T
    sign = np.where(right[np.abs(right).argmax(axis=0), np.arange(rank)] < 0, -1.0, 1.0)
    return left * (sign * np.sqrt(s)), right * (sign * np.sqrt(s))


def alignment(source: Float[Array, "n r"], target: Float[Array, "n r"]) -> Float[Array, "r r"]:
    """The orthogonal Q between factorisations of rating matrices: source @ Q is nearest to target (Procrustes).

    Two factorisations of similar matrices agree at best up to such a Q. users @ items.T does not change when both sides
    are rotated by one Q.
    """
    # minimise ‖S Q - T‖²: with Sᵀ T = U diag(s) Vᵀ the answer is U Vᵀ.
    U, _, Vt = np.linalg.svd(source.T @ target)
    return U @ Vt


def as_ratings(matrix: Any, observed: Any) -> tuple[Array | sparse.csr_array, sparse.csr_array | None]:
    """The ratings, and a matrix with ones at observed cells, which are those that the ratings store; None for all."""
    if observed is None:
        if sparse.issparse(matrix):
            return as_rating_matrix("matrix", matrix), None
        return as_floats("matrix", matrix, ndim=2), None
    pattern = _as_pattern(observed)
    if sparse.issparse(matrix):
        values = as_rating_matrix("matrix", matrix)
    else:
        # Cells that are not observed may hold anything, often NaN.
        blank = type(matrix) is np.ndarray and matrix.dtype.kind == "f" and matrix.shape == shape_of(pattern)
        values = as_floats("matrix", np.where(pattern.toarray() > 0, matrix, 0.0) if blank else matrix, ndim=2)
    if shape_of(values) != shape_of(pattern):
        raise ShapeError(
            f"must have the shape of matrix, {shape_of(values)}; got {pattern.shape}.", argument="observed"
        )
    cells = np.asarray(values[pair_rows(pattern), pattern.indices], dtype=np.float64).reshape(-1)
    return sparse.csr_array((cells, pattern.indices, pattern.indptr), shape=pattern.shape), pattern


def _as_pattern(observed: Any) -> sparse.csr_array:
    """(users, K) Matrix with ones at observed cells, at least one per row."""
    if sparse.issparse(observed) and observed.ndim == 2:
        pattern = sparse.csr_array(observed, copy=True)
        pattern.sum_duplicates()
        if pattern.dtype.kind == "b":
            pattern.eliminate_zeros()
    else:
        mask = np.asarray(observed)
        if mask.ndim != 2 or mask.dtype.kind != "b":
            raise DataTypeError(
                f"must be a boolean mask with 2 axes or SciPy sparse; got {mask.dtype}, {mask.ndim} axes.",
                "Pass ~np.isnan(matrix) where NaN stands for missing.",
                argument="observed",
            )
        pattern = sparse.csr_array(mask)
    sizes = np.diff(pattern.indptr)
    if len(sizes) and sizes.min() == 0:
        raise EligibilityError(
            f"has nothing to choose from in row {int(np.argmin(sizes))}.", "Leave it out.", argument="observed"
        )
    return sparse.csr_array((np.ones(pattern.nnz), pattern.indices, pattern.indptr), shape=pattern.shape)


def as_rating_matrix(name: str, value: Any) -> sparse.csr_array:
    """A sparse matrix of ratings (or labels), checked, as a CSR copy: columns sorted, none twice, stored zeros kept."""
    if not sparse.issparse(value) or value.ndim != 2 or value.dtype.kind not in "biuf":
        raise DataTypeError("must be a SciPy sparse matrix of real numbers with 2 axes.", argument=name)
    table = sparse.csr_array(value, dtype=np.float64, copy=True)
    table.sum_duplicates()
    check_cells(name, table, np.isfinite(table.data), NonFiniteError, "must be finite", "Leave such cells out.")
    return table


def check_cells(
    name: str, table: sparse.csr_array, good: Bool[Array, " p"], error: type[InputError], must: str, remedy: str
) -> None:
    """Check the cells of a rating matrix, or of one of labels; `error` names the row of the first that is not good."""
    if not good.all():
        cell = int(np.argmin(good))
        raise error(f"{must}; row {pair_rows(table)[cell]} holds {table.data[cell]}.", remedy, argument=name)


def split_cells(matrix: Any, rng: np.random.Generator) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Two random halves of the observed cells of each user in a matrix of ratings.

    Where their number is odd, chance decides which half gets more.

    Args:
        matrix: (users, videos) SciPy sparse matrix. Stored zeros are cells too.
        rng: A NumPy generator, which draws the halves.

    Returns:
        Two matrices of the same shape, without a common cell.
    """
    order_rng, odd_rng = split(rng, "order", "odd")
    table = as_rating_matrix("matrix", matrix)
    rows, counts = pair_rows(table), np.diff(table.indptr)
    order = np.lexsort((order_rng.random(table.nnz), rows))
    rank = np.empty(table.nnz, dtype=np.int64)
    rank[order] = np.arange(table.nnz) - table.indptr[rows]
    size = (counts + odd_rng.integers(2, size=len(counts))) // 2
    first = rank < size[rows]
    return _kept_cells(table, first), _kept_cells(table, ~first)


def _kept_cells(table: sparse.csr_array, keep: Bool[Array, " p"]) -> sparse.csr_array:
    """The matrix with only these stored cells, zeros included."""
    starts = np.concatenate([[0], np.cumsum(keep)])[table.indptr]
    return sparse.csr_array((table.data[keep], table.indices[keep], starts), shape=table.shape)
