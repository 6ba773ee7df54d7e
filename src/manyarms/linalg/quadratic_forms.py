"""Quadratic forms vᵀ M v, row by row or packed so that one product gives them all, and bounds on scores with them.

A score is xᵀ m - radius √(xᵀ M x). Its bounds say which may reach a floor, tile by tile, and never miss one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from manyarms._base.checks import Array
from manyarms.linalg.indexing import chunks, group_by


def row_norms(vectors: Float[Array, "n d"], keys: Int[Array, " n"], matrices: Matrices) -> Float[Array, " n"]:
    """Roots of quadratic forms, such as the widths of scores: √(v_iᵀ M_{k_i} v_i), row by row.

    `matrices` is called for a bounded number of distinct keys at a time.
    """
    distinct, order, starts, counts = group_by(keys)
    out = np.empty(len(vectors))
    for part in chunks(len(distinct), 1024):
        rows = order[starts[part.start] : starts[part.stop - 1] + counts[part.stop - 1]]
        forms, form = matrices(distinct[part]), np.repeat(np.arange(part.stop - part.start), counts[part])
        for piece in chunks(len(rows), 1 << 13):
            mine = rows[piece]
            v = vectors[mine]
            out[mine] = np.einsum("nd,nd->n", np.einsum("nd,nde->ne", v, forms[form[piece]]), v)
    return np.sqrt(np.maximum(out, 0.0))


def pack_forms(matrices: Float[Array, "m d d"]) -> Float[Array, "m q"]:
    """Pack the symmetric matrices of quadratic forms: vᵀ M v is then the product with `pack_squares(v)`.

    The vectors have q = d (d + 1) / 2 entries.
    """
    i, j = np.triu_indices(matrices.shape[1])
    return matrices[:, i, j] * np.where(i == j, 1.0, 2.0)


def pack_squares(vectors: Float[Array, "n d"]) -> Float[Array, "n q"]:
    """Pack the vectors of quadratic forms: the distinct entries of v vᵀ; see `pack_forms`."""
    i, j = np.triu_indices(vectors.shape[1])
    return vectors[:, i] * vectors[:, j]


Matrices = Callable[[Int[Array, " m"]], Float[Array, "m d d"]]


class RankBound(NamedTuple):
    """Lower bounds on quadratic forms: M_k ⪰ base - Σ_j left_kj right_kjᵀ, where the sum is symmetric and PSD.

    The vectors are in single precision; `size` bounds ‖left_k‖ ‖right_k‖ over all keys.
    """

    base: Float[Array, "d d"]
    left: Float[Array, "r m d"]
    right: Float[Array, "r m d"]
    size: float

    @classmethod
    def of(cls, base: Float[Array, "d d"], left: Float[Array, "r m d"], right: Float[Array, "r m d"]) -> RankBound:
        """The bound with its size; it is infinite where single precision may overflow or lose small numbers."""
        largest = [float(np.abs(part).max(initial=0.0)) for part in (left, right)]
        if not all(part == 0 or 2.0**-50 < part < 2.0**50 for part in largest):
            return cls(base, left, right, np.inf)
        norms = [float(np.sqrt(np.square(part).sum(axis=(0, 2)).max(initial=0.0))) for part in (left, right)]
        return cls(base, left, right, norms[0] * norms[1])


class Forms:
    """The quadratic forms of many symmetric PSD matrices, with bounds that are cheaper than the forms themselves.

    Args:
        matrices: The matrices M_k of some keys.
    """

    def __init__(self, matrices: Matrices):
        self.matrices = matrices

    def norms(self, vectors: Float[Array, "n d"], keys: Int[Array, " n"]) -> Float[Array, " n"]:
        """√(v_iᵀ M_{k_i} v_i), row by row."""
        return row_norms(vectors, keys, self.matrices)

    def least(self, keys: Int[Array, " m"]) -> Float[Array, " m"]:
        """At most the root of the smallest eigenvalue of each M_k, so that the norm of v is at least ‖v‖ times it."""
        return np.zeros(len(keys))

    def in_order(self, keys: Int[Array, " m"]) -> Int[Array, " m"]:
        """The keys, which ascend, with those of the smallest forms first and those of similar structure together."""
        return keys

    def rank_bound(self, keys: Int[Array, " m"]) -> RankBound | None:
        """A tighter bound by products of few vectors, where there is one."""
        return None


def reach_by_form(
    x: Float[Array, "b d"],
    means: Float[Array, "c d"],
    matrices: Float[Array, "c d d"],
    radius: float,
    floor: Float[Array, " b"],
) -> Bool[Array, "b c"]:
    """Which scores less a root of a quadratic form may reach a floor: by packed forms, less their rounding error."""
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
    """Which scores less a root of a quadratic form may reach a floor: by a `RankBound` on the forms.

    Rounding errors are allowed for. With M ⪰ B - Σ_j p_j q_jᵀ and A = radius² xᵀ B x, a score reaches the floor only if
    s² + Σ_j (p_jᵀ y)(q_jᵀ y) ≥ 1, where s is the positive part of (xᵀ m - floor) / √A and y = radius x / √A. Both are
    of order one wherever it matters.
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
