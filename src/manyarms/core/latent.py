"""Σ = F Fᵀ, the covariance of ψ, held by its factor: one dense block, or many small ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from manyarms._arrays import Array, as_floats, check_rows, frozen
from manyarms.core.covariance import as_covariances
from manyarms.errors import CovarianceError, ShapeError, TooLargeError
from manyarms.linalg.factor import psd_root

MAX_DENSE_LATENT = 8192
"""Largest latent dimension whose full covariance is formed (half a gigabyte)."""


class LatentFactor:
    """F, block diagonal with J blocks of size b, J b = d'. A full covariance is one block; a diagonal one has b = 1."""

    def __init__(self, blocks: Float[Array, "J b b"]):
        self.blocks = frozen(blocks)

    @classmethod
    def of(cls, value: Any, *, latent_dim: int) -> LatentFactor:
        """Check what a user passed as `latent_cov`: a scalar, (d',), (J, b, b) with J b = d', or (d', d')."""
        array = as_floats("latent_cov", value, ndim=(0, 1, 2, 3))
        p = latent_dim
        fits = {0: True, 1: array.shape == (p,), 2: array.shape == (p, p)}
        fits[3] = array.ndim == 3 and array.shape[1] == array.shape[2] and array.shape[0] * array.shape[1] == p
        if not fits[array.ndim]:
            raise ShapeError(
                f"latent_cov must be a scalar, ({p},), ({p}, {p}) or blocks (J, b, b) with J * b = {p}; "
                f"got shape {array.shape}."
            )
        if p == 0:
            return cls(np.zeros((1, 0, 0)))
        if array.ndim <= 1:
            check_rows(
                "latent_cov", array, lambda v: v >= 0, CovarianceError, "must not be negative", "Pass variances."
            )
            return cls(np.broadcast_to(np.sqrt(array), (p,)).reshape(p, 1, 1))
        return cls(psd_root(as_covariances("latent_cov", array if array.ndim == 3 else array[None])))

    @property
    def dim(self) -> int:
        """d'."""
        return self.blocks.shape[0] * self.blocks.shape[1]

    def apply(self, z: Float[Array, "*batch p"]) -> Float[Array, "*batch p"]:
        """F z."""
        j, b, _ = self.blocks.shape
        return np.einsum("jab,...jb->...ja", self.blocks, z.reshape(*z.shape[:-1], j, b)).reshape(z.shape)

    def apply_t(self, u: Float[Array, " p"]) -> Float[Array, " p"]:
        """Fᵀ u."""
        j, b, _ = self.blocks.shape
        return np.einsum("jab,ja->jb", self.blocks, u.reshape(j, b)).reshape(-1)

    def with_block_size(self, size: int) -> LatentFactor | None:
        """The same F in blocks of `size`, or None when its blocks are larger than that."""
        j, b, _ = self.blocks.shape
        if b == size:
            return self
        if b != 1 or (j * b) % size:
            return None
        blocks = np.zeros((j // size, size, size))
        np.einsum("jaa->ja", blocks)[...] = self.blocks.reshape(-1, size)
        return LatentFactor(blocks)

    def dense(self) -> Float[Array, "p p"]:
        """F as one matrix; refused above MAX_DENSE_LATENT."""
        j, b, _ = self.blocks.shape
        if j == 1:
            return self.blocks[0]
        check_dense_size(self.dim)
        full = np.zeros((j, b, j, b))
        full[np.arange(j), :, np.arange(j), :] = self.blocks
        return full.reshape(self.dim, self.dim)

    def covariance(self) -> Float[Array, "p p"]:
        """Σ written out; refused above MAX_DENSE_LATENT."""
        factor = self.dense()
        return factor @ factor.T


def check_dense_size(latent_dim: int) -> None:
    """Refuse a dense d' x d' matrix that is too large to form."""
    if latent_dim > MAX_DENSE_LATENT:
        raise TooLargeError(
            f"a dense {latent_dim} x {latent_dim} latent matrix was needed; the limit is {MAX_DENSE_LATENT}. "
            "Give every action at most one effect (one-hot weights) and effects independent priors, "
            "or ask for action_cov of the actions you need."
        )
