"""The best columns of a product X Mᵀ, row by row, without the product: tiles, pruning, and running winners."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int

from manyarms._arrays import Array
from manyarms.linalg.groups import chunks
from manyarms.linalg.quadratic import row_norms
from manyarms.linalg.threads import for_each

ROWS, COLUMNS = 256, 1024
"""A tile of scores: 2 MB, so that it is still in the cache when its maximum is taken."""

Matrices = Callable[[Int[Array, " m"]], Float[Array, "m d d"]]


class Winners:
    """The k best columns seen so far for each row, best first, lower column numbers first among equals."""

    def __init__(self, n_rows: int, k: int):
        self.scores: Float[Array, "n k"] = np.full((n_rows, k), -np.inf)
        self.columns: Int[Array, "n k"] = np.full((n_rows, k), -1, dtype=np.int64)

    def offer(self, rows: slice, scores: Float[Array, "b c"], first_column: int) -> None:
        """Let the columns first_column, first_column + 1, ... compete; columns must come in ascending order."""
        if self.scores.shape[1] == 1:
            top = scores.argmax(axis=1)
            best = scores[np.arange(len(scores)), top]
            better = np.flatnonzero(best > self.scores[rows, 0])
            self.scores[rows, 0][better] = best[better]
            self.columns[rows, 0][better] = top[better] + first_column
            return
        k = self.scores.shape[1]
        contested = np.flatnonzero(scores.max(axis=1) > self.scores[rows, -1])
        merged = np.concatenate([self.scores[rows][contested], scores[contested]], axis=1)
        names = np.broadcast_to(np.arange(first_column, first_column + scores.shape[1]), scores[contested].shape)
        named = np.concatenate([self.columns[rows][contested], names], axis=1)
        # Stable, and earlier columns stand first: equal scores keep the lower column.
        order = np.argsort(-merged, axis=1, kind="stable")[:, :k]
        self.scores[rows][contested] = np.take_along_axis(merged, order, axis=1)
        self.columns[rows][contested] = np.take_along_axis(named, order, axis=1)


def best_columns(x: Float[Array, "n d"], means: Float[Array, "K d"], k: int = 1) -> Int[Array, "n k"]:
    """The k columns of X Mᵀ with the largest entries, row by row."""
    return _winners(x, means, k).columns


def _winners(x: Float[Array, "n d"], means: Float[Array, "K d"], k: int) -> Winners:
    winners = Winners(len(x), k)

    def work(rows: slice) -> None:
        for columns in chunks(len(means), COLUMNS):
            winners.offer(rows, x[rows] @ means[columns].T, columns.start)

    for_each(work, chunks(len(x), ROWS))
    return winners


def best_lower_bounds(
    x: Float[Array, "n d"], means: Float[Array, "K d"], covariances: Matrices, radius: float, k: int = 1
) -> Int[Array, "n k"]:
    """The k columns with the largest x_iᵀ m_a - radius ‖x_i‖ in Σ_a.

    A lower bound never exceeds its mean, so a pair whose mean is below the k-th best lower bound known so far needs no
    quadratic form: with data, hardly any pair does.
    """
    start = best_columns(x, means, k)
    floor = np.full(len(x), np.inf)
    for column in start.T:
        bound = np.einsum("nd,nd->n", x, means[column]) - radius * row_norms(x, column, covariances)
        # Rounding must not prune the very pairs that the floor was computed from.
        floor = np.minimum(floor, bound - 1e-12 * np.abs(bound))
    winners = Winners(len(x), k)
    for columns in chunks(len(means), COLUMNS):
        for rows in chunks(len(x), 8 * ROWS):
            scores = x[rows] @ means[columns].T
            row, column = np.nonzero(scores >= np.maximum(floor[rows], winners.scores[rows, -1])[:, None])
            if len(row) == 0:
                continue
            norms = _pair_norms(x[rows], row, column + columns.start, covariances)
            bounds = np.full(scores.shape, -np.inf)
            bounds[row, column] = scores[row, column] - radius * norms
            winners.offer(rows, bounds, columns.start)
    return winners.columns


def _pair_norms(
    x: Float[Array, "n d"], row: Int[Array, " p"], column: Int[Array, " p"], covariances: Matrices
) -> Float[Array, " p"]:
    distinct, where = np.unique(column, return_inverse=True)
    d = x.shape[1]
    if len(row) < len(x) * len(distinct) // 8:
        return row_norms(x[row], column, covariances)
    # Most pairs are wanted: xᵀ Σ x as one product of flattened x xᵀ with flattened Σ.
    squares = np.einsum("ni,nj->nij", x, x).reshape(len(x), d * d)
    forms = squares @ covariances(distinct).reshape(len(distinct), d * d).T
    return np.sqrt(np.maximum(forms[row, where], 0.0))


def best_of_pairs(
    scores: Float[Array, " p"], indptr: Int[Array, " n1"], columns: Int[Array, " p"], k: int
) -> Int[Array, "n k"]:
    """The k best columns of each row when every row scores a list of its own; -1 fills short rows.

    Args:
        scores: One a (row, column) pair, rows in order.
        indptr: Where each row's pairs begin, as in a CSR matrix.
        columns: The column of each pair.
        k: How many.
    """
    n_rows = len(indptr) - 1
    rows = np.repeat(np.arange(n_rows), np.diff(indptr))
    order = np.lexsort((columns, -scores, rows))
    rank = np.arange(len(order)) - indptr[:-1][rows]
    chosen = rank < k
    out = np.full((n_rows, k), -1, dtype=np.int64)
    out[rows[chosen], rank[chosen]] = columns[order[chosen]]
    return out
