"""Quadratic forms vᵀ M v, row by row or packed so that one product gives them all."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

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
