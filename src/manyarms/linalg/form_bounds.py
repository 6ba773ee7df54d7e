"""Which scores xᵀ m - radius √(xᵀ M x) may reach a floor, tile by tile, never missing one that does."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from manyarms._base.checks import Array
from manyarms.linalg.quadratic_forms import RankBound, pack_forms, pack_squares


def reach_by_form(
    x: Float[Array, "b d"],
    means: Float[Array, "c d"],
    matrices: Float[Array, "c d d"],
    radius: float,
    floor: Float[Array, " b"],
) -> Bool[Array, "b c"]:
    """By the quadratic forms themselves: one product of packed squares and packed matrices, less its rounding error."""
    d, forms = x.shape[1], pack_forms(matrices)
    norms = np.linalg.norm(x, axis=1)
    widths = pack_squares(x) @ forms.T
    widths -= (4 * (forms.shape[1] + 2) * _DOUBLE * np.linalg.norm(forms, axis=1).max() * norms**2)[:, None]
    np.maximum(widths, 0.0, out=widths)
    np.sqrt(widths, out=widths)
    widths *= radius
    slack = 8 * (d + 2) * _DOUBLE * norms * np.linalg.norm(means, axis=1).max()
    return x @ means.T - widths * (1 - 1e-12) >= (floor - slack)[:, None]


def reach_by_rank(
    x: Float[Array, "b d"], means: Float[Array, "c d"], bound: RankBound, radius: float, floor: Float[Array, " b"]
) -> Bool[Array, "b c"]:
    """By M ⪰ B - Σ_j p_j q_jᵀ, in single precision and with its rounding error.

    With A = radius² xᵀ B x, a score reaches the floor only if s² + Σ_j (p_jᵀ y)(q_jᵀ y) ≥ 1, where s is the positive
    part of (xᵀ m - floor) / √A and y = radius x / √A. Both are of order one wherever it matters.
    """
    (base, left, right, size), d, norms = bound, x.shape[1], np.linalg.norm(x, axis=1)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        scale = 1.0 / (radius * np.sqrt(np.einsum("nd,nd->n", x @ base, x)))
        # Rounding of the mean's part and of the products, each for the column where it is largest.
        mean_error = 2 * (d + 6) * _SINGLE * (norms * np.linalg.norm(means, axis=1).max() + np.abs(floor)) * scale
        product_error = 2 * (d + len(left) + 6) * _SINGLE * size * (radius * norms * scale) ** 2
        slack = 4 * (mean_error + product_error)
    usable = slack < _USABLE
    scale, floor = np.where(usable, scale, 0.0), np.where(usable, floor, 0.0)
    from_floor, y = np.column_stack([x * scale[:, None], -floor * scale]), x * (radius * scale)[:, None]
    if not all(map(_in_range, (from_floor, y, means))):
        return np.ones((len(x), len(means)), dtype=bool)
    total = from_floor.astype(np.float32) @ np.column_stack([means, np.ones(len(means))]).astype(np.float32).T
    np.clip(total, 0.0, 2.0, out=total)
    total *= total
    y = y.astype(np.float32)
    for p, q in zip(left, right, strict=True):
        product = y @ p.T
        product *= y @ q.T
        total += product
    return total >= np.where(usable, 1.0 - slack, -1.0).astype(np.float32)[:, None]


def _in_range(numbers: Array) -> bool:
    """True if products of such numbers stay far from the limits of single precision."""
    largest = np.abs(numbers).max(initial=0.0)
    return largest == 0 or bool(2.0**-50 < largest < 2.0**50)


_SINGLE, _DOUBLE = 2.0**-24, 2.0**-53
_USABLE = 0.5
"""A row whose rounding error is larger keeps all its pairs."""
