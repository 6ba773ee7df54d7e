"""Upper bounds on E g(η) for η ~ N(m, v) that cost a look into a table, to tell which of many may be the largest.

E g(η) increases with m. For m <= 0 it increases with v, and for m >= 0 it decreases. So on a cell of a grid of m and v
it is at most the larger of its values at the two corners with the largest m.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array
from manyarms.likelihoods.logistic_expectations import expected_logistic


def reaches(
    floor: Float[Array, " b"], mean: Float[Array, "b c"], variance: Float[Array, "b c"]
) -> tuple[Int[Array, " p"], Int[Array, " p"]]:
    """Rows and columns of all entries whose computed E g(η) reaches the floor of its row, and of few others."""
    if mean.size == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    # By the mean alone first, given the smallest and the largest variance of the row: one comparison leaves few.
    lowest = _lowest_means(floor, _variance_cells(variance.min(axis=1)), _variance_cells(variance.max(axis=1)))
    # Means that overflow have no bound; they are reported where the best are chosen.
    rows, columns = np.divmod(np.flatnonzero(~(mean < lowest[:, None])), mean.shape[1])
    cells = _mean_cells(mean[rows, columns]), _variance_cells(variance[rows, columns])
    kept = np.flatnonzero(~(_table()[cells] < floor[rows]))
    return rows[kept], columns[kept]


def _lowest_means(floor: Float[Array, " b"], least: Int[Array, " b"], most: Int[Array, " b"]) -> Float[Array, " b"]:
    """Means below which no E g(η) reaches the floor, with variances between two cells, by bisection."""
    table, low, high = _table(), np.zeros(len(floor), np.int64), np.full(len(floor), len(_table()) - 1)
    for _ in range(len(table).bit_length()):
        middle = (low + high) // 2
        reached = np.maximum(table[middle, least], table[middle, most]) >= floor
        low, high = np.where(reached, low, np.minimum(middle + 1, high)), np.where(reached, middle, high)
    return np.where(high > 0, high / _CELLS - _LARGEST, -np.inf)


def _mean_cells(mean: Float[Array, " p"]) -> Int[Array, " p"]:
    # A mean that is not a number goes to the last cell, which has no bound.
    cells = np.nan_to_num((mean + _LARGEST) * _CELLS, nan=np.inf)
    return np.clip(cells, 0, len(_table()) - 1).astype(np.int64)


def _variance_cells(variance: Float[Array, " p"]) -> Int[Array, " p"]:
    # The first bits of a floating-point number are its exponent and the beginning of its digits.
    bits = variance.view(np.int64) >> (52 - _DIGITS)
    return np.clip(bits - ((1023 + _OCTAVES[0]) << _DIGITS), 0, _table().shape[1] - 1)


@cache
def _table() -> Float[Array, "p q"]:
    """The largest E g(η) of every cell; means below the first cell count to it, those above the last have no bound."""
    means = np.arange(-_LARGEST * _CELLS + 1, _LARGEST * _CELLS + 1) / _CELLS
    octaves, digits = np.arange(*_OCTAVES), 1.0 + np.arange(1 << _DIGITS) / (1 << _DIGITS)
    variances = np.append((2.0 ** octaves[:, None] * digits).reshape(-1), 2.0 ** _OCTAVES[1])
    values = expected_logistic(means[:, None], np.sqrt(variances))
    out = np.maximum(values[:, :-1], values[:, 1:])
    out[:, 0] = np.maximum(out[:, 0], expected_logistic(means, np.zeros_like(means)))
    # As v grows without end, E g tends to one half, from either side.
    out[:, -1] = np.maximum(out[:, -1], 0.5)
    return np.append(out * _SLACK, np.full((1, out.shape[1]), np.inf), axis=0)


_CELLS, _LARGEST = 32, 20
"""Cells per unit of m, and the largest |m| that has one."""
_DIGITS, _OCTAVES = 4, (-20, 12)
"""Cells per octave of v, as a power of two, and the octaves that have some."""
_SLACK = 1.0 + 1e-5
"""More than the relative errors of two computed expectations, each below 1e-6."""
