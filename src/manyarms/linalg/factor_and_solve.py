"""Square roots of positive semi-definite matrices, alone or in stacks."""

from __future__ import annotations

from typing import cast

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array


def psd_root(matrices: Float[Array, "*batch d d"]) -> Float[Array, "*batch d d"]:
    """Factor L with L Lᵀ = Σ: Cholesky's where every Σ is definite, else from eigenvalues, as Σ may be singular."""
    try:
        return np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        return eigen_root(matrices)


def eigen_root(matrices: Float[Array, "*batch d d"]) -> Float[Array, "*batch d d"]:
    """Factor L with L Lᵀ = Σ from eigenvalues, for Σ that may be singular."""
    values, vectors = np.linalg.eigh(matrices)
    # A zero eigenvalue comes out as a rounding error of either sign; kept, it would add a direction.
    floor = matrices.shape[-1] * np.finfo(float).eps * values.max(axis=-1, keepdims=True, initial=0.0)
    return vectors * np.sqrt(np.where(values > floor, values, 0.0))[..., None, :]


def gram(rows: Float[Array, "m n d"]) -> Float[Array, "m d d"]:
    """AᵀA of every matrix, to be factored or solved with.

    A is copied first: for the product of an array with itself NumPy computes one half and mirrors it, which takes twice
    as long for small matrices.
    """
    return rows.swapaxes(1, 2) @ rows.copy(order="K")


def triangular(rows: Float[Array, "*batch n d"]) -> Float[Array, "*batch m d"]:
    """Factor R of the QR decomposition: fewer rows with the same RᵀR."""
    # NumPy's annotation of mode="r" is that of mode="reduced".
    return cast(Array, np.linalg.qr(rows, mode="r"))


def lower_factor(rows: Float[Array, "*batch n d"]) -> Float[Array, "*batch d d"]:
    """C, lower with positive diagonal and C Cᵀ = AᵀA: the Cholesky factor of AᵀA without forming it; n >= d."""
    upper = triangular(rows)
    # LAPACK's R may have negative rows; a Cholesky factor has none.
    signs = np.where(np.einsum("...ii->...i", upper) < 0, -1.0, 1.0)
    return (upper * signs[..., None]).swapaxes(-1, -2)


def solve_lower(lower: Float[Array, "m r r"], right: Float[Array, "m r c"]) -> Float[Array, "m r c"]:
    """C⁻¹ B for a stack of lower C, by forward substitution: one step per row, over the whole stack.

    NumPy has no triangular solve for stacks, and its general one takes more than twice the time.
    """
    out = np.empty_like(right)
    for i in range(lower.shape[1]):
        out[:, i] = right[:, i] - (lower[:, i : i + 1, :i] @ out[:, :i])[:, 0]
        out[:, i] /= lower[:, i, i, None]
    return out


def solve_lower_t(lower: Float[Array, "m r r"], right: Float[Array, "m r c"]) -> Float[Array, "m r c"]:
    """C⁻ᵀ B for a stack of lower C, by backward substitution."""
    out = np.empty_like(right)
    for i in reversed(range(lower.shape[1])):
        below = lower[:, i + 1 :, i][:, None, :]
        out[:, i] = right[:, i] - (below @ out[:, i + 1 :])[:, 0]
        out[:, i] /= lower[:, i, i, None]
    return out


def gram_root(
    squares: Float[Array, "m d d"], moment: Float[Array, "m d"]
) -> tuple[Float[Array, "m d d"], Float[Array, "m d"]]:
    """Factor G and B into rows R and responses ρ with RᵀR = G and Rᵀρ = B: they replace the rounds summed into G and B.

    One Cholesky factor of the bordered matrix [[G, B], [Bᵀ, ·]] holds both, as a QR of the rounds would. Where G is
    singular, eigenvectors of G take over and the null directions become rows of zeros.
    """
    m, d = moment.shape
    bordered = np.zeros((m, d + 1, d + 1))
    bordered[:, :d, :d] = squares
    bordered[:, d, :d] = moment
    diagonal = np.einsum("mjj->mj", bordered)
    # A feature that an action never saw (one-hot contexts) leaves a zero row: give it a pivot, and remove it later.
    absent = diagonal[:, :d] == 0.0
    diagonal[:, :d][absent] = 1.0
    diagonal[:, d] = 1.0
    scale = np.sqrt(diagonal)
    bordered /= scale[:, :, None]
    bordered /= scale[:, None, :]
    # The corner does not affect R and ρ; it only has to be large enough for the factor to exist.
    diagonal[:, d] = _CORNER
    try:
        lower = np.linalg.cholesky(bordered)
        trusted = np.einsum("mjj->mj", lower)[:, :d].min(axis=1, initial=1.0) > _WEAK_PIVOT
    except np.linalg.LinAlgError:
        lower, trusted = np.zeros_like(bordered), np.zeros(m, dtype=bool)
    root = lower[:, :d, :d].swapaxes(1, 2) * scale[:, None, :d]
    response = lower[:, d, :d].copy()
    np.einsum("mjj->mj", root)[absent] = 0.0
    if not trusted.all():
        weak = np.flatnonzero(~trusted)
        root[weak], response[weak] = _eigen_root(squares[weak], moment[weak])
    return root, response


def _eigen_root(
    squares: Float[Array, "m d d"], moment: Float[Array, "m d"]
) -> tuple[Float[Array, "m d d"], Float[Array, "m d"]]:
    # Scaled to a unit diagonal first: what is negligible must not depend on the units of the features.
    scale = np.sqrt(np.einsum("mjj->mj", squares))
    scale = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(squares / (scale[:, :, None] * scale[:, None, :]))
    kept = values > squares.shape[-1] * np.finfo(float).eps * values[:, -1:]
    size = np.sqrt(np.where(kept, values, 1.0))
    root = np.where(kept[:, :, None], vectors.swapaxes(1, 2) * size[:, :, None], 0.0) * scale[:, None, :]
    response = np.where(kept, np.einsum("mij,mi->mj", vectors, moment / scale) / size, 0.0)
    return root, response


# Below this pivot of the scaled Gram matrix its Cholesky factor divides rounding errors by rounding errors.
_WEAK_PIVOT = 1e-6
_CORNER = 1e300
