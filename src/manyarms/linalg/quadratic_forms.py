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
from manyarms.linalg.threads import Scratch


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
    """Lower bounds on quadratic forms: M_k ⪰ B - Σ_j v_kj v_kjᵀ with one B for all keys, and Σ_j v_kj v_kjᵀ ⪯ κ_k B.

    Then √(xᵀ M_k x) ≥ √A (1 - Σ_j (w_kjᵀ x)² / A), where A = xᵀ B x and w = v / √(1 + √(1 - κ)): the root is concave,
    so between no data and κ it lies above the line.

    Attributes:
        base: B.
        vectors: w, key by key and last of all feature by feature.
    """

    base: Float[Array, "d d"]
    vectors: Float[Array, "r m d"]


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


class RankRows:
    """Rows whose scores xᵀ m - radius √(xᵀ M x) are bounded by a `RankBound`, in single precision.

    With s = radius √A, a score reaches the floor only if xᵀ m / s + Σ_j (w_jᵀ x)² / A ≥ 1 + floor / s. Both sides are
    of order one wherever it matters. Rounding errors are allowed for.
    """

    def __init__(self, x: Float[Array, "n d"], base: Float[Array, "d d"], radius: float):
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            root = np.sqrt(np.einsum("nd,nd->n", x @ base, x))
            self._scale: Float[Array, " n"] = 1.0 / (radius * root)
            self._norms: Float[Array, " n"] = np.linalg.norm(x, axis=1) / root
            self._size: Float[Array, " n"] = self._norms / radius
            usable = np.isfinite(self._scale) & np.isfinite(self._size)
            left, unit = (np.where(usable[:, None], x * part[:, None], 0.0) for part in (self._scale, 1.0 / root))
        self._fine = _in_range(left) and _in_range(unit)
        self._left, self._unit = (part.astype(np.float32) for part in (left, unit))
        self._scratch = Scratch()

    def reach(self, rows: Int[Array, " b"], tile: RankTile, floor: Float[Array, " b"]) -> Bool[Array, "b c"]:
        """Which scores of some rows may reach a floor."""
        if not (self._fine and tile.fine):
            return np.ones((len(rows), tile.means.shape[1]), dtype=bool)
        d, size = tile.means.shape[0], self._norms[rows]
        with np.errstate(over="ignore", invalid="ignore"):
            limit = 1.0 + floor * self._scale[rows]
            mean_error = 2 * (d + 6) * _SINGLE * (self._size[rows] * tile.mean_size + np.abs(limit))
            slack = 4 * (mean_error + 2 * (d + len(tile.vectors) + 6) * _SINGLE * tile.vector_size * size**2)
        limit = np.where(slack < _USABLE, limit - slack, -np.inf).astype(np.float32)
        shape, unit = (len(rows), tile.means.shape[1]), self._unit[rows]
        total, product = (self._scratch(name, *shape, kind=np.float32) for name in ("total", "product"))
        np.matmul(self._left[rows], tile.means, out=total)
        for vectors in tile.vectors:
            np.matmul(unit, vectors, out=product)
            product *= product
            total += product
        return np.greater_equal(total, limit[:, None], out=self._scratch("reached", *shape, kind=bool))


class RankTile:
    """Columns whose scores are bounded by a `RankBound`, in single precision."""

    def __init__(self, means: Float[Array, "c d"], bound: RankBound):
        self.mean_size, vectors = float(np.linalg.norm(means, axis=1).max()), bound.vectors
        self.vector_size = float(np.einsum("rmd,rmd->m", vectors, vectors).max(initial=0.0))
        self.fine = _in_range(means) and _in_range(vectors)
        with np.errstate(over="ignore"):
            self.means: Float[Array, "d c"] = means.T.astype(np.float32)
            self.vectors: Float[Array, "r d c"] = vectors.swapaxes(1, 2).astype(np.float32)


def _in_range(numbers: Array) -> bool:
    """True if products of such numbers stay far from the limits of single precision."""
    largest = np.abs(numbers).max(initial=0.0)
    return largest == 0 or bool(2.0**-50 < largest < 2.0**50)


_SINGLE, _DOUBLE = 2.0**-24, 2.0**-53


_USABLE = 0.5
"""A row whose rounding error is larger keeps all its pairs."""
