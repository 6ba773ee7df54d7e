"""Quadratic forms of many vectors in many matrices, without forming all the matrices at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int

from manyarms._arrays import Array
from manyarms.linalg.groups import chunks


def row_norms(
    vectors: Float[Array, "n d"],
    keys: Int[Array, " n"],
    matrices: Callable[[Int[Array, " m"]], Float[Array, "m d d"]],
) -> Float[Array, " n"]:
    """√(v_iᵀ M_{k_i} v_i), row by row.

    Args:
        vectors: v.
        keys: Which matrix belongs to each row.
        matrices: Gives the matrices of some distinct keys; called for a bounded number at a time.
    """
    distinct, where = np.unique(keys, return_inverse=True)
    order = np.argsort(where, kind="stable")
    bounds = np.searchsorted(where[order], np.arange(len(distinct) + 1))
    out = np.empty(len(vectors))
    for part in chunks(len(distinct), 1024):
        rows = order[bounds[part.start] : bounds[part.stop]]
        found = matrices(distinct[part])
        for piece in chunks(len(rows), 1 << 13):
            mine = rows[piece]
            v = vectors[mine]
            out[mine] = np.einsum("nd,nd->n", np.einsum("nd,nde->ne", v, found[where[mine] - part.start]), v)
    return np.sqrt(np.maximum(out, 0.0))


def pack_forms(matrices: Float[Array, "m d d"]) -> Float[Array, "m q"]:
    """Symmetric matrices as vectors, such that vᵀ M v is the product with `pack_squares(v)`: q = d (d + 1) / 2."""
    i, j = np.triu_indices(matrices.shape[1])
    return matrices[:, i, j] * np.where(i == j, 1.0, 2.0)


def pack_squares(vectors: Float[Array, "n d"]) -> Float[Array, "n q"]:
    """The distinct entries of v vᵀ."""
    i, j = np.triu_indices(vectors.shape[1])
    return vectors[:, i] * vectors[:, j]
