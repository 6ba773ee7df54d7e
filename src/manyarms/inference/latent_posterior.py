"""Evidence of the seen actions on ψ, gathered action by action, and the posterior of ψ that follows.

Each action contributes whitened rows: H_a W_a ψ + noise = h_a - H_a c_a, noise of variance one. Small problems keep
the rows and fold them by QR, which is accurate whatever their scales; large ones add up sums of squares, whose relative
error is the machine's times the condition number of the latent posterior. Where most pairs of effects share no
action, as in a tree, the sums stay sparse and effects are eliminated layer by layer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import solve_triangular

from manyarms._base.checks import Array
from manyarms.core import HierarchicalGaussian, MixedEffects, ObservedRows
from manyarms.core.latent_covariance import BlockFactor, EliminatedFactor, LatentFactor, check_dense_size
from manyarms.errors import NumericalError
from manyarms.linalg.block_cholesky import BlockCholesky, EliminationPlan
from manyarms.linalg.factor_and_solve import lower_factor, solve_lower, solve_lower_t
from manyarms.linalg.indexing import chunks, group_by

QR_BUDGET = 1 << 23
"""Rows times squared block size up to which rows are folded by QR (some hundredths of a second)."""
SMALL_LATENT = 64
"""Up to this latent dimension a dense factor is faster than any structure."""


@dataclass(frozen=True)
class LatentPosterior:
    """The posterior of ψ = μ + F z, and its two terms of the evidence."""

    mean: Float[Array, " p"]
    factor: LatentFactor
    log_det: float
    """log |Σ| - log |Σ given the data|."""
    misfit: float
    """The minimum over ψ of Σ_a ‖h_a - H_a (W_a ψ + c_a)‖² + ‖ψ - μ‖² in Σ⁻¹."""
    white_mean: Float[Array, " p"]
    """E z: the mean in units of the prior."""
    white_factor: Callable[[], LatentFactor]
    """Computes a factor of Cov z, on request."""


class LatentEvidence(ABC):
    """Rows on ψ, in units in which the prior of ψ is N(0, I): whitened by F and centred on μ.

    Attributes:
        row_size: Numbers that `add` needs per row; it bounds a chunk of actions.
    """

    row_size: int

    @abstractmethod
    def add(self, rows: Float[Array, "m r d"], miss: Float[Array, "m r"], actions: Int[Array, " m"]) -> None:
        """Add H_a and h_a - H_a (W_a μ + c_a) of some actions."""

    @abstractmethod
    def posterior(self) -> LatentPosterior:
        """Mean and factor of ψ given all rows."""


class SummedEvidence(LatentEvidence):
    """Evidence as sums: Γ = Σ_a (H_a W_a)ᵀ (H_a W_a), the score and Σ miss². Sums of some actions can be taken back."""

    _gram: Array
    _score: Float[Array, " p"]
    _misfit: float

    @property
    def sums(self) -> tuple[Array, Float[Array, " p"], float]:
        """Γ in its blocks, the score and Σ miss²: everything that a worker sends back."""
        return self._gram, self._score, self._misfit

    def add_sums(self, gram: Array, score: Float[Array, " p"], misfit: float) -> None:
        """Add the sums of other actions, collected elsewhere."""
        self._gram += gram
        self._score += score
        self._misfit += misfit

    @property
    def size(self) -> int:
        """The number of numbers in Γ."""
        return self._gram.size

    def empty(self) -> SummedEvidence:
        """Evidence of no rows, in the same blocks."""
        return self.without(self)

    def without(self, part: SummedEvidence) -> SummedEvidence:
        """The evidence without what some of its actions added."""
        out = copy(self)
        out._gram, out._score = self._gram - part._gram, self._score - part._score
        out._misfit = self._misfit - part._misfit
        return out

    def fits(self, seen: Int[Array, " m"], further: Int[Array, " n"]) -> bool:
        """True if the blocks for the seen actions are also those for the seen and some further actions."""
        return True


class _BlockEvidence(LatentEvidence):
    """Evidence in blocks of ψ that stay independent given the data; one block for all of ψ when there are none."""

    def __init__(self, prior: HierarchicalGaussian, size: int):
        self.prior = prior
        self.row_size = size
        blocked = prior.prior_factor.with_block_size(size)
        self.factor = prior.prior_factor.dense()[None] if blocked is None else blocked.blocks

    @abstractmethod
    def whitened(self) -> tuple[Float[Array, "J b b"], Float[Array, "J b"], float]:
        """Lower C with C Cᵀ = I + Fᵀ Γ F, C⁻¹ Fᵀ (score), and the remaining misfit."""

    def posterior(self) -> LatentPosterior:
        C, moved, misfit = self.whitened()
        factor = _solve_lower(C, self.factor.swapaxes(1, 2)).swapaxes(1, 2)
        mean = self.prior.latent_mean + np.einsum("jab,jb->ja", factor, moved).reshape(-1)
        log_det = 2 * float(np.sum(np.log(np.einsum("jbb->jb", C))))
        white_mean = _solve_lower_t(C, moved[:, :, None]).reshape(-1)

        def white_factor() -> LatentFactor:
            eye = np.broadcast_to(np.eye(C.shape[1]), C.shape)
            return BlockFactor(_solve_lower(C, eye).swapaxes(1, 2))

        return LatentPosterior(mean, BlockFactor(factor), log_det, misfit, white_mean, white_factor)


class _EvidenceByRows(_BlockEvidence):
    """Evidence that keeps the rows and folds them at the end by QR."""

    def __init__(self, prior: HierarchicalGaussian, size: int):
        super().__init__(prior, size)
        self._parts: list[tuple[Array, Array, Array]] = []

    def add(self, rows: Float[Array, "m r d"], miss: Float[Array, "m r"], actions: Int[Array, " m"]) -> None:
        block, latent_rows = self.prior.mixing.latent_rows(rows, actions, self.row_size)
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


class _EvidenceBySums(_BlockEvidence, SummedEvidence):
    """Evidence as sums over all actions, in the blocks of ψ."""

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
        _check_overflow(P)
        try:
            C = np.linalg.cholesky(P)
        except np.linalg.LinAlgError:
            raise NumericalError(_TOO_UNEVEN, "Rescale contexts, or raise noise_std or action_cov.") from None
        score = np.einsum("jab,ja->jb", self.factor, self._score.reshape(self.factor.shape[:2]))
        moved = _solve_lower(C, score[:, :, None])[:, :, 0]
        return C, moved, self._misfit - float(np.sum(moved**2))


class _EvidenceByElimination(SummedEvidence):
    """Evidence as the non-zero blocks of Γ; effects are eliminated along their structure."""

    def __init__(self, prior: HierarchicalGaussian, mixing: MixedEffects, factor: BlockFactor, plan: EliminationPlan):
        self._mixing, self._plan = mixing, plan
        self._latent_mean, self._factor = prior.latent_mean, factor.blocks
        # An action adds one block per pair of its effects.
        self.row_size = mixing.dim * mixing.most_effects**2
        self._gram = np.zeros((plan.n_blocks, mixing.dim, mixing.dim))
        self._score = np.zeros(prior.latent_dim)
        self._misfit = 0.0

    def add(self, rows: Float[Array, "m r d"], miss: Float[Array, "m r"], actions: Int[Array, " m"]) -> None:
        self._mixing.add_planned(self._gram, self._plan, rows, actions)
        self._score += self._mixing.apply_t(np.einsum("mrd,mr->md", rows, miss), actions)
        self._misfit += float(np.sum(miss**2))

    def fits(self, seen: Int[Array, " m"], further: Int[Array, " n"]) -> bool:
        ours, theirs = self._plan, self._mixing.plan(np.union1d(seen, further))
        return ours is theirs or all(
            np.array_equal(getattr(ours, name), getattr(theirs, name)) for name in ("order", "core", "rows", "columns")
        )

    def posterior(self) -> LatentPosterior:
        cholesky = self._whitened_cholesky()
        n_effects, d = self._factor.shape[:2]
        score = np.einsum("jab,ja->jb", self._factor, self._score.reshape(n_effects, d))
        moved = cholesky.forward(score[:, :, None])
        white_mean = cholesky.backward(moved)[:, :, 0]
        mean = self._latent_mean + np.einsum("jab,jb->ja", self._factor, white_mean).reshape(-1)

        def white_factor() -> LatentFactor:
            return EliminatedFactor(np.broadcast_to(np.eye(d), self._factor.shape), cholesky)

        factor, misfit = EliminatedFactor(self._factor, cholesky), self._misfit - float(np.sum(moved**2))
        return LatentPosterior(mean, factor, cholesky.log_det(), misfit, white_mean.reshape(-1), white_factor)

    def _whitened_cholesky(self) -> BlockCholesky:
        """C with C Cᵀ = I + Fᵀ Γ F."""
        rows, columns = self._plan.coordinates()
        P = np.empty_like(self._gram)
        for part in chunks(len(P), 1 << 14):
            P[part] = self._factor[rows[part]].swapaxes(1, 2) @ self._gram[part] @ self._factor[columns[part]]
        diagonal = np.flatnonzero(rows == columns)
        P[diagonal] += np.eye(P.shape[1])
        _check_overflow(P)
        try:
            return BlockCholesky(self._plan, P)
        except np.linalg.LinAlgError:
            raise NumericalError(_TOO_UNEVEN, "Rescale contexts, or raise noise_std or action_cov.") from None


def gather(prior: HierarchicalGaussian, observed: ObservedRows) -> LatentEvidence:
    """Empty evidence on the latent ψ, of the kind that suits the rows of the seen actions."""
    mixing = prior.mixing
    size = mixing.gram_blocks(prior.prior_factor)
    if isinstance(mixing, MixedEffects) and size > max(SMALL_LATENT, mixing.dim):
        structured = _by_structure(prior, mixing, observed)
        if structured is not None:
            return structured
    check_dense_size(size)
    n_rows = sum(group.response.size for group in observed.groups)
    return (_EvidenceByRows if 0 < n_rows * size**2 <= QR_BUDGET else _EvidenceBySums)(prior, size)


def sums_for(prior: HierarchicalGaussian) -> _EvidenceBySums:
    """Empty evidence on the latent ψ whose sums can be added to those of other workers."""
    size = prior.mixing.gram_blocks(prior.prior_factor)
    check_dense_size(size)
    return _EvidenceBySums(prior, size)


def _by_structure(
    prior: HierarchicalGaussian, mixing: MixedEffects, observed: ObservedRows
) -> _EvidenceByElimination | None:
    """Evidence for elimination, where effects are independent in the prior and most pairs of them never meet."""
    factor = prior.prior_factor.with_block_size(mixing.dim)
    if factor is None or mixing.weights.nnz * 4 > mixing.n_actions * mixing.n_effects:
        return None
    plan = mixing.plan(observed.actions)
    if plan.n_blocks * 4 > mixing.n_effects**2:
        return None
    check_dense_size(len(plan.core) * mixing.dim)
    return _EvidenceByElimination(prior, mixing, factor, plan)


def _solve_lower(C: Float[Array, "J b b"], right: Float[Array, "J b c"]) -> Float[Array, "J b c"]:
    if len(C) == 1:
        return solve_triangular(C[0], right[0], lower=True, check_finite=False)[None]
    return solve_lower(C, right)


def _solve_lower_t(C: Float[Array, "J b b"], right: Float[Array, "J b c"]) -> Float[Array, "J b c"]:
    if len(C) == 1:
        return solve_triangular(C[0], right[0], lower=True, trans=1, check_finite=False)[None]
    return solve_lower_t(C, right)


def _check_overflow(P: Float[Array, "J b b"]) -> None:
    if not np.isfinite(P).all():
        raise NumericalError("the evidence on the latent parameter overflows.", "Rescale contexts or noise_std.")


_TOO_UNEVEN = (
    "the evidence on the latent parameter is too uneven for sums of squares: some directions are known 1e16 times "
    "better than others."
)
