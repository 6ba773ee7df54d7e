"""The best columns under scores that are costly or must be exact: a cheap upper bound in single precision comes first.

Tiles of upper bounds are computed with half the memory traffic of double precision. Only the pairs whose bound reaches
the best exact score known so far are scored exactly, so the answer is that of double precision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from manyarms._base.checks import Array
from manyarms.errors import NumericalError
from manyarms.linalg.indexing import chunks
from manyarms.linalg.threads import Scratch, for_each

PairScores = Callable[[Int[Array, " p"], Int[Array, " p"]], Float[Array, " p"]]
"""The exact scores of pairs of a row and a column, one pair per entry."""
Survivors = Callable[[Int[Array, " b"], Int[Array, " c"], Float[Array, " b"]], Bool[Array, "b c"]]
"""A tighter bound for a tile with many candidates: which pairs of some rows and some names may still reach the floor of
their row. It must not drop a pair whose exact score is at the floor."""


@dataclass(frozen=True, eq=False)
class Screen:
    """A screen of scores by what bounds them before they are computed: score(i, j) ≤ x_iᵀ m_j + ‖x_i‖ margin_j.

    Attributes:
        rows: x, (n, d).
        means: (K, d), of which the rows `names` are m.
        names: (m,) the columns that compete, each a row of `means`; those that may win early should stand first. Among
            equal scores the lowest name wins.
        exact: The scores themselves, of pairs of a row and a name.
        survivors: A tighter bound, asked for where the first one leaves many pairs.
        few: Up to so many pairs of a tile are scored without a look at the tighter bound.
        margins: (m,); None for zeros. They are negative where scores are lowered by more than a known width.
    """

    rows: Float[Array, "n d"]
    means: Float[Array, "K d"]
    names: Int[Array, " m"]
    exact: PairScores
    survivors: Survivors
    few: int
    margins: Float[Array, " m"] | None = None


def best_screened(screen: Screen, k: int, tile: tuple[int, int]) -> Int[Array, "n k"] | None:
    """The best k columns by name, from a screen in single precision, best first; None where products could overflow.

    Args:
        screen: Scores and their bounds; there must be at least k columns.
        k: How many columns per row.
        tile: Rows and columns per tile.
    """
    x, n_columns = screen.rows, len(screen.names)
    bounds = _SingleBounds.of(screen)
    if bounds is None:
        return None
    out = np.empty((len(x), k), dtype=np.int64)
    # Few columns make small tiles; taller ones keep their number down.
    height = tile[0] * max(1, tile[1] // n_columns)

    def work(rows: slice) -> None:
        out[rows] = _RowBlock(screen, bounds, rows, k).best(tile[1])

    for_each(work, chunks(len(x), height))
    return out


@dataclass(frozen=True, eq=False)
class _SingleBounds:
    """Upper bounds of scores as products of single-precision numbers that allow for their own rounding.

    Rows are scaled by powers of two to length about one, and columns so that the largest is about one. With u = 2⁻²⁴, a
    product of d + 1 rounded factors is off by at most 1.1 (d + 5) u ‖x‖ (‖m‖ + |margin|), however it is summed. That
    much is added to the margins, and 2⁻¹²⁰ for what underflows.
    """

    left: Array
    right: Array
    exponents: Int[Array, " n"]

    @classmethod
    def of(cls, screen: Screen) -> _SingleBounds | None:
        """None where a product might overflow even in double precision."""
        x, names, (n, d) = screen.rows, screen.names, screen.rows.shape
        margins = np.zeros(len(names)) if screen.margins is None else screen.margins
        with np.errstate(over="ignore", invalid="ignore"):
            norms = np.sqrt(np.einsum("nd,nd->n", x, x))
            # The columns that compete are gathered part by part: a copy of all of them would take as much as the means.
            parts = list(chunks(len(names), 1 << 14))
            sizes = np.abs(margins)
            for part in parts:
                sizes[part] += np.sqrt(np.einsum("md,md->m", *[screen.means[names[part]]] * 2))
            if not np.isfinite(norms.max(initial=0.0) * sizes.max(initial=0.0) * 4.0):
                return None
        exponent, row_exponents = binary_exponent(sizes), np.where(norms > 0, np.frexp(norms)[1], 0)
        left, right = np.empty((n, d + 1), np.float32), np.empty((len(names), d + 1), np.float32)
        left[:, :d] = np.ldexp(x, -row_exponents[:, None])
        left[:, d] = np.ldexp(norms, -row_exponents)
        for part in parts:
            right[part, :d] = np.ldexp(screen.means[names[part]], -exponent)
        right[:, d] = np.ldexp(margins + _SLACK * (d + 5) * 2.0**-24 * sizes, -exponent) + 2.0**-120
        return cls(left, right, row_exponents + exponent)

    def limits(self, rows: Int[Array, " b"], floor: Float[Array, " b"]) -> Array:
        """Floors in the units of the products, rounded down."""
        scaled = np.ldexp(floor, -self.exponents[rows])
        return np.nextafter(np.clip(scaled, -_LARGE, _LARGE).astype(np.float32), np.float32(-np.inf))


_SLACK = 1.2
_LARGE = 2.0**100


class _RowBlock:
    """A block of rows on its way through all columns, with the best exact scores of each row so far."""

    def __init__(self, screen: Screen, bounds: _SingleBounds, rows: slice, k: int):
        self._screen, self._bounds, self._k = screen, bounds, k
        self._ids = np.arange(rows.start, rows.stop)
        self._left = bounds.left[rows]
        self._best: Float[Array, "b k"] = np.full((len(self._ids), k), -np.inf)
        self._limits = np.full(len(self._ids), -np.inf, dtype=np.float32)
        self._kept: list[tuple[Array, Array, Array]] = []
        self._waiting: list[tuple[Array, Array]] = []
        self._scratch = Scratch()

    def best(self, width: int) -> Int[Array, "b k"]:
        """The names of the best columns."""
        left, pause = 0, 1
        for columns in chunks(len(self._screen.names), width):
            names = self._screen.names[columns]
            # Where the first bound has just left many pairs, the tighter one alone is cheaper.
            left -= 1
            if left >= 0:
                rows = np.arange(len(self._ids))
                self._score(rows, self._screen.survivors(self._ids, names, self._best[:, -1]), names)
                continue
            upper = self._scratch("upper", len(self._ids), len(names), kind=np.float32)
            np.matmul(self._left, self._bounds.right[columns].T, out=upper)
            rows = np.flatnonzero(upper.max(axis=1) >= self._limits)
            many = len(rows) and self._compete(rows, upper if len(rows) == len(upper) else upper[rows], names)
            left, pause = (pause, min(2 * pause, _LONGEST)) if many else (0, 1)
        self._settle()
        return self._ranked()

    def _compete(self, rows: Int[Array, " q"], upper: Array, names: Int[Array, " c"]) -> bool:
        """Score the pairs of some rows that may win: first the k most promising of each row, then what is left.

        True if many were left.
        """
        last, near = len(names) - self._k, upper >= self._limits[rows, None]
        if last <= 0 or np.count_nonzero(near) < len(self._ids):
            self._score(rows, near, names)
            return False
        promising = upper.max(axis=1) if self._k == 1 else np.partition(upper, last, axis=1)[:, last]
        leaders = upper >= np.maximum(promising, self._limits[rows])[:, None]
        self._score(rows, leaders, names)
        self._settle()
        others = upper >= self._limits[rows, None]
        others &= ~leaders
        many = bool(np.count_nonzero(others) > self._screen.few)
        if many:
            others &= self._screen.survivors(self._ids[rows], names, self._best[rows, -1])
        self._score(rows, others, names)
        return many

    def _score(self, rows: Int[Array, " q"], chosen: Bool[Array, "q c"], names: Int[Array, " c"]) -> None:
        # Much faster than np.nonzero of a matrix.
        where, column = np.divmod(np.flatnonzero(chosen), chosen.shape[1])
        if len(where):
            self._waiting.append((rows[where], names[column]))
        # A few pairs cost as much as many.
        if sum(len(own) for own, _ in self._waiting) >= len(self._ids):
            self._settle()

    def _settle(self) -> None:
        """Score the pairs that wait for it."""
        if not self._waiting:
            return
        own, actions = map(np.concatenate, zip(*self._waiting, strict=True))
        self._waiting.clear()
        for part in chunks(len(own), 1 << 15):
            scores = self._screen.exact(self._ids[own[part]], actions[part])
            good = np.flatnonzero(scores >= self._best[own[part], -1])
            self._keep(own[part][good], actions[part][good], scores[good])

    def _keep(self, rows: Int[Array, " p"], names: Int[Array, " p"], scores: Float[Array, " p"]) -> None:
        if len(rows) == 0:
            return
        self._kept.append((rows, names, scores))
        if self._k == 1:
            np.maximum.at(self._best[:, 0], rows, scores)
            touched = rows
        else:
            order = np.lexsort((-scores, rows))
            touched, starts = np.unique(rows[order], return_index=True)
            rank = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
            near = rank < self._k
            table = np.full((len(touched), self._k), -np.inf)
            table[np.searchsorted(touched, rows[order[near]]), rank[near]] = scores[order[near]]
            merged = np.concatenate([self._best[touched], table], axis=1)
            self._best[touched] = -np.sort(-merged, axis=1)[:, : self._k]
        self._limits[touched] = self._bounds.limits(self._ids[touched], self._best[touched, -1])

    def _ranked(self) -> Int[Array, "b k"]:
        check_scores(self._best, self._ids)
        rows, names, scores = (np.concatenate(parts) for parts in zip(*self._kept, strict=True))
        final = np.flatnonzero(scores >= self._best[rows, -1])
        order = final[np.lexsort((names[final], -scores[final], rows[final]))]
        starts = np.searchsorted(rows[order], np.arange(len(self._ids)))
        return names[order][starts[:, None] + np.arange(self._k)]


_LONGEST = 16
"""After at most so many tiles under the tighter bound alone, the first bound is tried again."""


def check_scores(best: Float[Array, "n k"], rows: Int[Array, " n"]) -> None:
    """Check the best scores that a screen leaves: refuse rows without finite ones, whose scores have overflowed."""
    bad = ~np.isfinite(best).all(axis=1)
    if bad.any():
        row = int(rows[np.argmax(bad)])
        raise NumericalError(f"scores overflow in row {row} of contexts.", "Rescale the contexts.")


def binary_exponent(values: Float[Array, " n"]) -> int:
    """The exponent e that a screen scales by, 2^e near the largest absolute value: np.ldexp by -e loses no digits.

    Squares of numbers up to 1 neither overflow nor differ in their digits from those of the numbers themselves.
    """
    return int(np.frexp(np.abs(values).max(initial=0.0))[1])
