"""Quadratic forms vᵀ M v, row by row or packed so that one product gives them all."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array
from manyarms.linalg.indexing import chunks


def row_norms(vectors: Float[Array, "n d"], keys: Int[Array, " n"], matrices: Matrices) -> Float[Array, " n"]:
    """Roots of quadratic forms, such as the widths of scores: √(v_iᵀ M_{k_i} v_i), row by row.

    `matrices` is called for a bounded number of distinct keys at a time.
    """
    distinct, where = np.unique(keys, return_inverse=True)
    order = np.argsort(where, kind="stable")
    bounds = np.searchsorted(where[order], np.arange(len(distinct) + 1))
    out = np.empty(len(vectors))
    for part in chunks(len(distinct), 1024):
        rows = order[bounds[part.start] : bounds[part.stop]]
        forms = matrices(distinct[part])
        for piece in chunks(len(rows), 1 << 13):
            mine = rows[piece]
            v = vectors[mine]
            out[mine] = np.einsum("nd,nd->n", np.einsum("nd,nde->ne", v, forms[where[mine] - part.start]), v)
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
