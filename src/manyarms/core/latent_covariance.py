"""Σ = F Fᵀ, the covariance of ψ, stored as its factor: one dense block, many small ones, or a sparse elimination."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse
from scipy.linalg import block_diag

from manyarms._base.checks import Array, as_covariances, as_floats, check_rows, frozen
from manyarms.errors import CovarianceError, ShapeError, TooLargeError
from manyarms.linalg.block_cholesky import BlockCholesky
from manyarms.linalg.factor_and_solve import psd_root
from manyarms.linalg.indexing import chunks
from manyarms.linalg.sparse_matrices import pair_rows, shape_of
from manyarms.model_file.part_checks import floats, instance_of
from manyarms.model_file.save import Saved

MAX_DENSE_LATENT = 8192
"""Largest latent dimension whose full covariance is formed (half a gigabyte)."""


class LatentFactor(Saved, ABC):
    """The factor F of the latent covariance. "Effects" are consecutive parts of ψ whose length is d, that of θ_a."""

    dim: int
    """d'."""
    part_dim: int
    """The size of a block."""

    @abstractmethod
    def apply(self, z: Float[Array, "*batch p"]) -> Float[Array, "*batch p"]:
        """F z."""

    @abstractmethod
    def apply_t(self, u: Float[Array, " p"]) -> Float[Array, " p"]:
        """Fᵀ u."""

    @abstractmethod
    def dense(self) -> Float[Array, "p p"]:
        """F as one matrix; an error above MAX_DENSE_LATENT."""

    @abstractmethod
    def mixed_root(self, weights: sparse.csr_array, d: int) -> Float[Array, "m d q"]:
        """B_a with B_a B_aᵀ = W_a Σ W_aᵀ, where W_a = w_aᵀ ⊗ I_d and w_a is a row of `weights`."""

    @abstractmethod
    def mixed_cross(self, left: sparse.csr_array, right: sparse.csr_array, d: int) -> Float[Array, "m d d"]:
        """W_a Σ W_bᵀ, row by row."""

    @abstractmethod
    def mixed_width(self, n_effects: int, d: int) -> int:
        """Maximum number of columns of `mixed_root` for an action with `n_effects` effects."""

    @abstractmethod
    def part_gram(self, start: int, count: int, size: int) -> Float[Array, "b b"]:
        """Σ_j Cov ψ_j over `count` parts of length `size`; the first begins at `start`."""

    def covariance(self) -> Float[Array, "p p"]:
        """Σ as one matrix; an error above MAX_DENSE_LATENT."""
        factor = self.dense()
        return factor @ factor.T


class BlockFactor(LatentFactor):
    """A latent covariance by its factor, J blocks of size b, J b = d'. A full one is one block; b = 1 is a diagonal."""

    saved_as = "block factor"
    saved_fields = ("blocks",)
    saved_checks: ClassVar = {"blocks": floats(3, repeated=True)}

    def __init__(self, blocks: Float[Array, "J b b"]):
        self.blocks = frozen(blocks)
        self.part_dim = blocks.shape[1]
        self.dim = blocks.shape[0] * blocks.shape[1]

    def consistent(self) -> bool:
        """True if blocks are square."""
        return self.blocks.shape[1] == self.blocks.shape[2]

    @classmethod
    def of(cls, value: Any, *, latent_dim: int) -> BlockFactor:
        """Check the argument `latent_cov` of a user: a scalar, (d',), (J, b, b) with J b = d', or (d', d')."""
        array = as_floats("latent_cov", value, ndim=(0, 1, 2, 3))
        p = latent_dim
        fits = {0: True, 1: array.shape == (p,), 2: array.shape == (p, p)}
        fits[3] = array.ndim == 3 and array.shape[1] == array.shape[2] and array.shape[0] * array.shape[1] == p
        if not fits[array.ndim]:
            raise ShapeError(
                f"must be a scalar, ({p},), ({p}, {p}) or blocks (J, b, b) with J * b = {p}; got shape {array.shape}.",
                argument="latent_cov",
            )
        if p == 0:
            return cls(np.zeros((1, 0, 0)))
        if array.ndim <= 1:
            remedy = "Pass variances."
            check_rows("latent_cov", array, lambda v: v >= 0, CovarianceError, "must not be negative", remedy)
            return cls(np.broadcast_to(np.sqrt(array), (p,)).reshape(p, 1, 1))
        return cls(psd_root(as_covariances("latent_cov", array if array.ndim == 3 else array[None])))

    def apply(self, z: Float[Array, "*batch p"]) -> Float[Array, "*batch p"]:
        j, b, _ = self.blocks.shape
        return np.einsum("jab,...jb->...ja", self.blocks, z.reshape(*z.shape[:-1], j, b)).reshape(z.shape)

    def apply_t(self, u: Float[Array, " p"]) -> Float[Array, " p"]:
        j, b, _ = self.blocks.shape
        return np.einsum("jab,ja->jb", self.blocks, u.reshape(j, b)).reshape(-1)

    def with_block_size(self, size: int) -> BlockFactor | None:
        """F in blocks of `size`, or None if its blocks are larger than that."""
        j, b, _ = self.blocks.shape
        if b == size:
            return self
        if b != 1 or size == 0 or (j * b) % size:
            return None
        blocks = np.zeros((j // size, size, size))
        np.einsum("jaa->ja", blocks)[...] = self.blocks.reshape(-1, size)
        return BlockFactor(blocks)

    def beside(self, other: BlockFactor) -> BlockFactor:
        """The factor of two independent latent vectors, one after the other."""
        for first, second in ((self, other), (other, self)):
            if first.dim == 0:
                return second
        size = max(self.blocks.shape[1], other.blocks.shape[1])
        left, right = self.with_block_size(size), other.with_block_size(size)
        if left is not None and right is not None:
            return BlockFactor(np.concatenate([left.blocks, right.blocks]))
        check_dense_size(self.dim + other.dim)
        return BlockFactor(np.asarray(block_diag(self.dense(), other.dense()))[None])

    def dense(self) -> Float[Array, "p p"]:
        j, b, _ = self.blocks.shape
        if j == 1:
            return self.blocks[0]
        check_dense_size(self.dim)
        full = np.zeros((j, b, j, b))
        full[np.arange(j), :, np.arange(j), :] = self.blocks
        return full.reshape(self.dim, self.dim)

    def mixed_root(self, weights: sparse.csr_array, d: int) -> Float[Array, "m d q"]:
        m, n_effects = shape_of(weights)
        by_effect = self.with_block_size(d)
        if by_effect is None:
            return np.asarray(weights @ self.dense().reshape(n_effects, -1)).reshape(m, d, self.dim)
        # w_aj F_j of the effects of an action side by side, padded with zeros to the longest list.
        counts = np.diff(weights.indptr)
        slot = np.arange(weights.nnz) - np.repeat(weights.indptr[:-1], counts)
        blocks = np.zeros((m, int(counts.max(initial=0)), d, d))
        blocks[pair_rows(weights), slot] = weights.data[:, None, None] * by_effect.blocks[weights.indices]
        return blocks.swapaxes(1, 2).reshape(m, d, blocks.shape[1] * d)

    def mixed_cross(self, left: sparse.csr_array, right: sparse.csr_array, d: int) -> Float[Array, "m d d"]:
        by_effect = self.with_block_size(d)
        if by_effect is None:
            return self.mixed_root(left, d) @ self.mixed_root(right, d).swapaxes(1, 2)
        both = left.multiply(right).tocsr()
        squares = by_effect.blocks @ by_effect.blocks.swapaxes(1, 2)
        return np.asarray(both @ squares.reshape(len(squares), -1)).reshape(-1, d, d)

    def mixed_width(self, n_effects: int, d: int) -> int:
        return self.dim if self.blocks.shape[1] not in (1, d) else n_effects * d

    def part_gram(self, start: int, count: int, size: int) -> Float[Array, "b b"]:
        sized = self.with_block_size(size)
        if sized is not None and start % size == 0:
            parts = sized.blocks[start // size : start // size + count]
            return np.einsum("jac,jbc->ab", parts, parts, optimize=True)
        rows = self.dense()[start : start + count * size].reshape(count, size, -1)
        flat = rows.swapaxes(0, 1).reshape(size, -1)
        return flat @ flat.T


class EliminatedFactor(LatentFactor):
    """Factor of a latent covariance, F = F₀ C⁻ᵀ, one block per effect in F₀, C sparse: effects that form a tree.

    C Cᵀ is the precision of ψ in units of its prior.
    """

    saved_as = "eliminated factor"
    saved_fields = ("blocks", "cholesky")
    saved_checks: ClassVar = {"blocks": floats(3, repeated=True), "cholesky": instance_of(BlockCholesky)}

    def __init__(self, blocks: Float[Array, "J d d"], cholesky: BlockCholesky):
        self.blocks = frozen(blocks)
        self.cholesky = cholesky
        self.part_dim = blocks.shape[1]
        self.dim = blocks.shape[0] * blocks.shape[1]

    def consistent(self) -> bool:
        """True if there is a square block for every node of the elimination."""
        d = self.blocks.shape[1]
        return self.blocks.shape == (self.cholesky.plan.n_nodes, d, d) and self.cholesky.block_size == d

    def apply(self, z: Float[Array, "*batch p"]) -> Float[Array, "*batch p"]:
        j, d, _ = self.blocks.shape
        columns = np.moveaxis(z.reshape(-1, j, d), 0, 2)
        moved = self.blocks @ self.cholesky.backward(columns)
        return np.moveaxis(moved, 2, 0).reshape(z.shape)

    def apply_t(self, u: Float[Array, " p"]) -> Float[Array, " p"]:
        j, d, _ = self.blocks.shape
        pulled = np.einsum("jab,ja->jb", self.blocks, u.reshape(j, d))
        return self.cholesky.forward(pulled[:, :, None]).reshape(-1)

    def dense(self) -> Float[Array, "p p"]:
        check_dense_size(self.dim)
        return self.apply(np.eye(self.dim)).T

    def mixed_root(self, weights: sparse.csr_array, d: int) -> Float[Array, "m d q"]:
        _, blocks = self._solved(weights)
        m, slots = blocks.shape[:2]
        return blocks.transpose(0, 3, 1, 2).reshape(m, d, slots * d)

    def mixed_cross(self, left: sparse.csr_array, right: sparse.csr_array, d: int) -> Float[Array, "m d d"]:
        (nodes, first), (others, second) = self._solved(left), self._solved(right)
        out = np.zeros((len(nodes), d, d))
        for here in range(nodes.shape[1]):
            for there in range(others.shape[1]):
                same = np.flatnonzero((nodes[:, here] == others[:, there]) & (nodes[:, here] >= 0))
                out[same] += first[same, here].swapaxes(1, 2) @ second[same, there]
        return out

    def mixed_width(self, n_effects: int, d: int) -> int:
        longest = int(np.diff(self.cholesky.plan.reach.indptr).max(initial=0))
        return d * min(len(self.blocks), n_effects * longest + len(self.cholesky.plan.core))

    def part_gram(self, start: int, count: int, size: int) -> Float[Array, "b b"]:
        n_effects, d, _ = self.blocks.shape
        if size != d or start % d:
            raise ShapeError("must not be split here.", argument="effects")
        total = np.zeros((d, d))
        for part in chunks(count, max(1, (1 << 17) // (d * self.mixed_width(1, d)))):
            ids = np.arange(start // d + part.start, start // d + part.stop)
            single = sparse.csr_array((np.ones(len(ids)), ids, np.arange(len(ids) + 1)), shape=(len(ids), n_effects))
            flat = self.mixed_root(single, d).swapaxes(0, 1).reshape(d, -1)
            total += flat @ flat.T
        return total

    def _solved(self, weights: sparse.csr_array) -> tuple[Int[Array, "m q"], Float[Array, "m q d d"]]:
        """C⁻¹ F₀ᵀ W_aᵀ at the effects where it is not zero."""
        right = weights.data[:, None, None] * self.blocks[weights.indices].swapaxes(1, 2)
        return self.cholesky.forward_sparse(weights, right)


def check_dense_size(latent_dim: int) -> None:
    """Refuse a dense covariance of ψ, a d' x d' matrix, that would be too large."""
    if latent_dim > MAX_DENSE_LATENT:
        raise TooLargeError(
            f"a dense {latent_dim} x {latent_dim} latent matrix would be needed; the limit is {MAX_DENSE_LATENT}.",
            "Effects that form a tree (categories, a taxonomy, one shared effect) do not need it: give them "
            "independent priors and few effects per action, or ask for action_cov of the actions you need.",
        )
