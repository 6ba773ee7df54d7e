"""What the seen actions say of ψ, gathered action by action, and the posterior of ψ that follows.

Each action contributes whitened rows: H_a W_a ψ + noise = h_a - H_a c_a, noise of variance one. Small problems keep
the rows and fold them by QR, which is accurate whatever their scales; large ones add up sums of squares, whose relative
error is the machine's times the condition number of the latent posterior.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import solve_triangular

from manyarms._arrays import Array
from manyarms.core.hierarchy import HierarchicalGaussian
from manyarms.core.latent import LatentFactor, check_dense_size
from manyarms.errors import NumericalError
from manyarms.linalg.factor import lower_factor, solve_lower
from manyarms.linalg.groups import group_by

QR_BUDGET = 1 << 23
"""Rows times squared block size up to which rows are folded by QR (some hundredths of a second)."""


class LatentPosterior(NamedTuple):
    """The posterior of ψ, and its two terms of the evidence."""

    mean: Float[Array, " p"]
    factor: LatentFactor
    log_det: float
    """log |Σ| - log |Σ given the data|."""
    misfit: float
    """What remains of Σ_a ‖h_a - H_a (W_a ψ + c_a)‖² + ‖ψ - μ‖² in Σ⁻¹ at its minimum."""


class LatentEvidence(ABC):
    """Rows on ψ, in units in which the prior of ψ is N(0, I): whitened by F and centred on μ."""

    def __init__(self, prior: HierarchicalGaussian, size: int):
        self.prior = prior
        self.size = size
        sized = prior.latent_factor.with_block_size(size)
        self.factor = prior.latent_factor.dense()[None] if sized is None else sized.blocks

    @abstractmethod
    def add(self, rows: Float[Array, "m r d"], miss: Float[Array, "m r"], actions: Int[Array, " m"]) -> None:
        """Take in H_a and h_a - H_a (W_a μ + c_a) of some actions."""

    @abstractmethod
    def whitened(self) -> tuple[Float[Array, "J b b"], Float[Array, "J b"], float]:
        """Lower C with C Cᵀ = I + Fᵀ Γ F, C⁻¹ Fᵀ (score), and the remaining misfit."""

    def posterior(self) -> LatentPosterior:
        """Mean and factor of ψ given all rows."""
        C, moved, misfit = self.whitened()
        factor = _solve_lower(C, self.factor.swapaxes(1, 2)).swapaxes(1, 2)
        mean = self.prior.latent_mean + np.einsum("jab,jb->ja", factor, moved).reshape(-1)
        log_det = 2 * float(np.sum(np.log(np.einsum("jbb->jb", C))))
        return LatentPosterior(mean, LatentFactor(factor), log_det, misfit)


class EvidenceByRows(LatentEvidence):
    """Keeps the rows and folds them at the end."""

    def __init__(self, prior: HierarchicalGaussian, size: int):
        super().__init__(prior, size)
        self._parts: list[tuple[Array, Array, Array]] = []

    def add(self, rows: Float[Array, "m r d"], miss: Float[Array, "m r"], actions: Int[Array, " m"]) -> None:
        block, latent_rows = self.prior.mixing.latent_rows(rows, actions, self.size)
        self._parts.append((block, latent_rows, miss.reshape(-1)))

    def whitened(self) -> tuple[Float[Array, "J b b"], Float[Array, "J b"], float]:
        n_blocks, b = self.factor.shape[:2]
        if not self._parts:
            return np.broadcast_to(np.eye(b), self.factor.shape), np.zeros((n_blocks, b)), 0.0
        block, rows, miss = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        C, moved = np.empty((n_blocks, b, b)), np.zeros((n_blocks, b))
        C[...] = np.eye(b)
        misfit = 0.0
        groups = group_by(block)
        for members, index in groups.blocks(np.arange(len(groups.keys)), limit=1 << 16):
            which = groups.keys[members]
            stacked = np.zeros((len(which), b + index.shape[1], b + 1))
            stacked[:, :b, :b] = np.eye(b)
            np.matmul(rows[index], self.factor[which], out=stacked[:, b:, :b])
            stacked[:, b:, b] = miss[index]
            folded = lower_factor(stacked)
            C[which], moved[which] = folded[:, :b, :b], folded[:, b, :b]
            misfit += float(np.sum(folded[:, b, b] ** 2))
        return C, moved, misfit


class EvidenceBySums(LatentEvidence):
    """Adds up Γ = Σ_a (H_a W_a)ᵀ (H_a W_a) and the score."""

    def __init__(self, prior: HierarchicalGaussian, size: int):
        super().__init__(prior, size)
        self._gram = np.zeros_like(self.factor)
        self._score = np.zeros(prior.latent_dim)
        self._misfit = 0.0

    def add(self, rows: Float[Array, "m r d"], miss: Float[Array, "m r"], actions: Int[Array, " m"]) -> None:
        self.prior.mixing.add_gram(self._gram, rows, actions)
        self._score += self.prior.mixing.apply_t(np.einsum("mrd,mr->md", rows, miss), actions)
        self._misfit += float(np.sum(miss**2))

    def whitened(self) -> tuple[Float[Array, "J b b"], Float[Array, "J b"], float]:
        P = self.factor.swapaxes(1, 2) @ self._gram @ self.factor
        np.einsum("jbb->jb", P)[...] += 1.0
        if not np.isfinite(P).all():
            raise NumericalError("the evidence on the latent parameter overflows. Rescale contexts or noise_std.")
        try:
            C = np.linalg.cholesky(P)
        except np.linalg.LinAlgError:
            raise NumericalError(
                "the evidence on the latent parameter is too uneven for sums of squares: some directions are known "
                "1e16 times better than others. Rescale contexts, or raise noise_std or action_cov."
            ) from None
        score = np.einsum("jab,ja->jb", self.factor, self._score.reshape(-1, self.size))
        moved = _solve_lower(C, score[:, :, None])[:, :, 0]
        return C, moved, self._misfit - float(np.sum(moved**2))


def gather(prior: HierarchicalGaussian, n_rows: int) -> LatentEvidence:
    """An empty collection that suits `n_rows` whitened rows."""
    size = prior.mixing.gram_blocks(prior.latent_factor)
    check_dense_size(size)
    return (EvidenceByRows if n_rows * size**2 <= QR_BUDGET else EvidenceBySums)(prior, size)


def _solve_lower(C: Float[Array, "J b b"], right: Float[Array, "J b c"]) -> Float[Array, "J b c"]:
    if len(C) == 1:
        return solve_triangular(C[0], right[0], lower=True, check_finite=False)[None]
    return solve_lower(C, right)
