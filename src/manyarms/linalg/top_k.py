"""Top-k: the best columns of a product X Mᵀ, row by row, without forming it: tiles, screens and running winners."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

import numpy as np
from jaxtyping import Bool, Float, Int

from manyarms._base.checks import Array
from manyarms.linalg.indexing import chunks
from manyarms.linalg.quadratic_forms import Forms, RankRows, RankTile, reach_by_form
from manyarms.linalg.single_screen import Screen, best_screened, check_scores
from manyarms.linalg.threads import for_each

ROWS, COLUMNS = 256, 1024
"""A tile of scores: 1 or 2 MB, so that it is still in the cache when its maximum is taken."""

FEW = 32
"""Up to this many winners are taken from a tile one by one; more are taken by sorting it."""

FEW_PRODUCTS, FEW_FORMS = 1 << 12, 1 << 8
"""Up to this many exact scores cost less than a tighter bound for a whole tile."""


class _Winners:
    """The k best columns seen so far for each row, best first, lower column numbers first among equals."""

    def __init__(self, n_rows: int, k: int):
        self.scores: Float[Array, "n k"] = np.full((n_rows, k), -np.inf)
        self.columns: Int[Array, "n k"] = np.full((n_rows, k), -1, dtype=np.int64)

    def result(self) -> Int[Array, "n k"]:
        """The winning columns, or an error if a score has overflowed: a row of NaN scores has no winner."""
        check_scores(self.scores, np.arange(len(self.scores)))
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


def best_columns(
    x: Float[Array, "n d"], means: Float[Array, "K d"], k: int = 1, names: Int[Array, " m"] | None = None
) -> Int[Array, "n k"]:
    """The k columns of X Mᵀ with the largest entries, row by row, among all or those named."""
    names = np.arange(len(means)) if names is None else names

    def exact(rows: Int[Array, " p"], columns: Int[Array, " p"]) -> Float[Array, " p"]:
        return np.einsum("pd,pd->p", x[rows], means[columns])

    def survivors(rows: Int[Array, " b"], columns: Int[Array, " c"], floor: Float[Array, " b"]) -> Bool[Array, "b c"]:
        own, centres = x[rows], means[columns]
        return own @ centres.T >= (floor - _rounding(own, centres))[:, None]

    out = best_screened(Screen(x, means, names, exact, survivors, FEW_PRODUCTS), k, (ROWS, COLUMNS))
    if out is not None:
        return out
    return names[best_scores(len(x), len(names), lambda rows, part: x[rows] @ means[names[part]].T, k)]


def _rounding(x: Float[Array, "b d"], means: Float[Array, "c d"]) -> Float[Array, " b"]:
    """Twice the largest rounding error of the products of each row with the columns, in double precision."""
    return 4 * (x.shape[1] + 2) * 2.0**-53 * np.linalg.norm(x, axis=1) * np.linalg.norm(means, axis=1).max()


def best_scores(n_rows: int, n_columns: int, scores: Callable[[slice, slice], Array], k: int = 1) -> Int[Array, "n k"]:
    """The k columns with the largest scores, row by row; `scores` gives the scores of a tile."""
    return best_scores_above(n_rows, n_columns, lambda rows, columns, _: scores(rows, columns), k, first=COLUMNS)


def best_scores_above(
    n_rows: int,
    n_columns: int,
    scores: Callable[[slice, slice, Float[Array, " b"]], Array],
    k: int = 1,
    *,
    first: int = 64,
) -> Int[Array, "n k"]:
    """The k columns with the largest scores, row by row.

    `scores` gives the scores of a tile, and is told the k-th best score of every row so far: a score that does not
    reach it may be given as minus infinity. Of the `first` columns nothing is known, so their tile is narrow.
    """
    winners, names = _Winners(n_rows, k), np.arange(n_columns)
    first = min(first, n_columns)
    tiles = [slice(0, first), *(slice(first + c.start, first + c.stop) for c in chunks(n_columns - first, COLUMNS))]

    def work(rows: slice) -> None:
        for columns in tiles:
            winners.offer(rows, scores(rows, columns, winners.scores[rows, -1]), names[columns])

    for_each(work, chunks(n_rows, ROWS))
    return winners.result()


def best_lower_bounds(
    x: Float[Array, "n d"],
    means: Float[Array, "K d"],
    forms: Forms,
    radius: float,
    k: int = 1,
    names: Int[Array, " m"] | None = None,
) -> Int[Array, "n k"]:
    """The k columns with the largest x_iᵀ m_a - radius ‖x_i‖ in M_a, among all or those named.

    The norm of x_i is at least ‖x_i‖ λ_a, with λ_a² the smallest eigenvalue of M_a. So a product with one more feature
    bounds every score, and only the pairs whose bound reaches the best score of their row need a quadratic form.
    """
    # The most certain columns come first, since they raise the floor.
    names = forms.in_order(np.arange(len(means)) if names is None else names)

    def exact(rows: Int[Array, " p"], columns: Int[Array, " p"]) -> Float[Array, " p"]:
        v = x[rows]
        return np.einsum("pd,pd->p", v, means[columns]) - radius * forms.norms(v, columns)

    tiles, of_rows, making = dict[int, RankTile | None](), list[RankRows](), Lock()

    def survivors(rows: Int[Array, " b"], columns: Int[Array, " c"], floor: Float[Array, " b"]) -> Bool[Array, "b c"]:
        first = int(columns[0])
        with making:
            # Other blocks of rows meet the same tiles, and often at the same time.
            if first not in tiles:
                bound = forms.rank_bound(columns)
                if bound is not None and not of_rows:
                    of_rows.append(RankRows(x, bound.base, radius))
                tiles[first] = None if bound is None else RankTile(means[columns], bound)
        tile = tiles[first]
        if tile is not None:
            return of_rows[0].reach(rows, tile, floor)
        return reach_by_form(x[rows], means[columns], forms.matrices(columns), radius, floor)

    screen = Screen(x, means, names, exact, survivors, FEW_FORMS, -radius * forms.least(names))
    out = best_screened(screen, k, (ROWS, COLUMNS))
    if out is not None:
        return out
    names = np.sort(names)

    def scores(rows: slice, part: slice) -> Float[Array, "b c"]:
        columns = names[part]
        pairs = np.repeat(np.arange(rows.start, rows.stop), len(columns)), np.tile(columns, rows.stop - rows.start)
        return exact(*pairs).reshape(-1, len(columns))

    return names[best_scores(len(x), len(names), scores, k)]


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
