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
    highest = mean.max(axis=1)
    # The bound of a whole row first: most rows of a tile have no entry near their best.
    ends = (expected_logistic(highest, np.sqrt(end(axis=1))) for end in (variance.min, variance.max))
    # Means that overflow have no bound; they are reported where the best are chosen.
    rows = np.flatnonzero(~(np.maximum(*ends) * _SLACK < floor))
    m, v = (part if len(rows) == len(mean) else part[rows] for part in (mean, variance))
    where, columns = np.divmod(np.flatnonzero(~(_upper_bounds(m, v) < floor[rows, None])), mean.shape[1])
    return rows[where], columns


def _upper_bounds(mean: Float[Array, "b c"], variance: Float[Array, "b c"]) -> Float[Array, "b c"]:
    table = _table()
    cell = mean * _CELLS
    cell += _CELLS * _LARGEST
    # A mean that is not a number goes to the last cell, which has no bound.
    np.nan_to_num(cell, copy=False, nan=np.inf)
    np.clip(cell, 0, len(table) - 1, out=cell)
    # The first bits of a floating-point number are its exponent and the beginning of its digits.
    bits = np.ascontiguousarray(variance).view(np.int64) >> (52 - _DIGITS)
    bits -= (1023 + _OCTAVES[0]) << _DIGITS
    np.clip(bits, 0, table.shape[1] - 1, out=bits)
    bits += table.shape[1] * cell.astype(np.int64)
    return table.reshape(-1)[bits]


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
