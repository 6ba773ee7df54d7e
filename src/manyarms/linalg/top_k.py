"""Top-k: the best columns of a product X Mᵀ, row by row, without forming it: tiles, pruning and running winners.

Also quadratic forms of many vectors in many matrices, without forming all the matrices at once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array
from manyarms.errors import NumericalError
from manyarms.linalg.indexing import chunks
from manyarms.linalg.quadratic_forms import Matrices, pack_forms, pack_squares, row_norms
from manyarms.linalg.threads import for_each

ROWS, COLUMNS = 256, 1024
"""A tile of scores: 2 MB, so that it is still in the cache when its maximum is taken."""

FEW = 32
"""Up to this many winners are taken from a tile one by one; more are taken by sorting it."""


class _Winners:
    """The k best columns seen so far for each row, best first, lower column numbers first among equals."""

    def __init__(self, n_rows: int, k: int):
        self.scores: Float[Array, "n k"] = np.full((n_rows, k), -np.inf)
        self.columns: Int[Array, "n k"] = np.full((n_rows, k), -1, dtype=np.int64)

    def result(self) -> Int[Array, "n k"]:
        """The winning columns, or an error if a score has overflowed: a row of NaN scores has no winner."""
        bad = ~np.isfinite(self.scores).all(axis=1)
        if bad.any():
            row = int(np.argmax(bad))
            raise NumericalError(f"scores overflow in row {row} of contexts.", "Rescale the contexts.")
        return self.columns

    def offer(self, rows: slice, scores: Float[Array, "b c"], columns: Int[Array, " c"]) -> None:
        """Let some columns compete; columns must ascend, also from one offer to the next."""
        if self.scores.shape[1] == 1:
            top = scores.argmax(axis=1)
            best = scores[np.arange(len(scores)), top]
            better = np.flatnonzero(best > self.scores[rows, 0])
            self.scores[rows, 0][better] = best[better]
            self.columns[rows, 0][better] = columns[top[better]]
            return
        k = self.scores.shape[1]
        contested = np.flatnonzero(scores.max(axis=1) > self.scores[rows, -1])
        scores, names = scores[contested], np.broadcast_to(columns, (len(contested), len(columns)))
        if k <= FEW < len(columns):
            # A few maxima cost far less than a full sort.
            scores, names = _largest(scores, columns, k)
        merged = np.concatenate([self.scores[rows][contested], scores], axis=1)
        named = np.concatenate([self.columns[rows][contested], names], axis=1)
        # Stable, and earlier columns stand first: equal scores keep the lower column.
        order = np.argsort(-merged, axis=1, kind="stable")[:, :k]
        self.scores[rows][contested] = np.take_along_axis(merged, order, axis=1)
        self.columns[rows][contested] = np.take_along_axis(named, order, axis=1)


def _largest(
    scores: Float[Array, "b c"], columns: Int[Array, " c"], k: int
) -> tuple[Float[Array, "b k"], Int[Array, "b k"]]:
    """The k largest scores of each row, best first, and their columns; `scores` is overwritten."""
    best, where = np.empty((len(scores), k)), np.empty((len(scores), k), dtype=np.int64)
    everyone = np.arange(len(scores))
    for rank in range(k):
        where[:, rank] = scores.argmax(axis=1)
        best[:, rank] = scores[everyone, where[:, rank]]
        scores[everyone, where[:, rank]] = -np.inf
    return best, columns[where]


def best_columns(x: Float[Array, "n d"], means: Float[Array, "K d"], k: int = 1) -> Int[Array, "n k"]:
    """The k columns of X Mᵀ with the largest entries, row by row."""
    return best_scores(len(x), len(means), lambda rows, columns: x[rows] @ means[columns].T, k)


def best_scores(n_rows: int, n_columns: int, scores: Callable[[slice, slice], Array], k: int = 1) -> Int[Array, "n k"]:
    """The k columns with the largest scores, row by row; `scores` gives the scores of a tile."""
    winners, names = _Winners(n_rows, k), np.arange(n_columns)

    def work(rows: slice) -> None:
        for columns in chunks(n_columns, COLUMNS):
            winners.offer(rows, scores(rows, columns), names[columns])

    for_each(work, chunks(n_rows, ROWS))
    return winners.result()


def best_lower_bounds(
    x: Float[Array, "n d"], means: Float[Array, "K d"], covariances: Matrices, radius: float, k: int = 1
) -> Int[Array, "n k"]:
    """The k columns with the largest x_iᵀ m_a - radius ‖x_i‖ in Σ_a.

    A lower bound never exceeds its mean, so a pair whose mean is below the k-th best lower bound known so far needs no
    quadratic form: with much data, hardly any pair does.
    """
    winners, tiles = _Winners(len(x), k), list(chunks(len(x), ROWS))
    floor = _kth_bound_of_the_best_means(x, means, covariances, radius, k)
    for columns in chunks(len(means), COLUMNS):
        hopeful = np.zeros((len(tiles), columns.stop - columns.start), dtype=bool)

        def look(tile: int, columns: slice = columns, hopeful: Array = hopeful) -> None:
            rows = tiles[tile]
            least = np.maximum(floor[rows], winners.scores[rows, -1])
            hopeful[tile] = (x[rows] @ means[columns].T >= least[:, None]).any(axis=0)

        for_each(look, range(len(tiles)))
        names = columns.start + np.flatnonzero(hopeful.any(axis=0))
        if len(names) == 0:
            continue
        centres, forms = means[names], pack_forms(covariances(names))

        def bound(rows: slice, names: Array = names, centres: Array = centres, forms: Array = forms) -> None:
            scores, least = x[rows] @ centres.T, np.maximum(floor[rows], winners.scores[rows, -1])
            winners.offer(rows, _lowered(scores, x[rows], forms, radius, least), names)

        for_each(bound, tiles)
    return winners.result()


def _kth_bound_of_the_best_means(
    x: Float[Array, "n d"], means: Float[Array, "K d"], covariances: Matrices, radius: float, k: int
) -> Float[Array, " n"]:
    """A floor for the k-th best lower bound of each row."""
    floor = np.full(len(x), np.inf)
    for column in best_columns(x, means, k).T:
        width = radius * row_norms(x, column, covariances)
        bound = np.einsum("nd,nd->n", x, means[column]) - width
        # Rounding, which grows with the terms of a sum and not with the sum, must not prune the very pairs that the
        # floor was computed from.
        size = np.einsum("nd,nd->n", np.abs(x), np.abs(means[column])) + width
        floor = np.minimum(floor, bound - 1e-12 * size)
    return floor


def _lowered(
    scores: Float[Array, "b c"],
    x: Float[Array, "b d"],
    forms: Float[Array, "c q"],
    radius: float,
    least: Float[Array, " b"],
) -> Float[Array, "b c"]:
    """Lower bounds of the pairs whose score reaches the row's `least`, and -inf for the others."""
    hopeful = scores >= least[:, None]
    squares = pack_squares(x)
    if np.count_nonzero(hopeful) > scores.size // 10:
        widths = squares @ forms.T
        np.maximum(widths, 0.0, out=widths)
        np.sqrt(widths, out=widths)
        widths *= radius
        return np.subtract(scores, widths, out=scores)
    row, column = np.nonzero(hopeful)
    widths = radius * np.sqrt(np.maximum(np.einsum("pq,pq->p", squares[row], forms[column]), 0.0))
    out = np.full(scores.shape, -np.inf)
    out[row, column] = scores[row, column] - widths
    return out


def best_of_pairs(
    scores: Float[Array, " p"], indptr: Int[Array, " n1"], columns: Int[Array, " p"], k: int
) -> Int[Array, "n k"]:
    """The k best columns of each row, where every row scores its own list of columns; -1 pads short rows.

    The pairs of a row and a column are stored as in a CSR matrix, with one score each.
    """
    n_rows = len(indptr) - 1
    rows = np.repeat(np.arange(n_rows), np.diff(indptr))
    if k == 1 and n_rows and np.diff(indptr).min() > 0:
        # The first of the largest in each row; no need to sort.
        largest = np.flatnonzero(scores == np.maximum.reduceat(scores, indptr[:-1])[rows])
        first = largest[np.unique(rows[largest], return_index=True)[1]]
        return columns[first].astype(np.int64)[:, None]
    order = np.lexsort((columns, -scores, rows))
    rank = np.arange(len(order)) - indptr[:-1][rows]
    chosen = rank < k
    out = np.full((n_rows, k), -1, dtype=np.int64)
    out[rows[chosen], rank[chosen]] = columns[order[chosen]]
    return out
