"""The widths of scores, ‖x‖ in Cov θ_a, of a hierarchical Gaussian: exact pair by pair, and cheap lower bounds."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, frozen
from manyarms.linalg.factor_and_solve import solve_lower
from manyarms.linalg.indexing import cache_chunks
from manyarms.linalg.quadratic_forms import Forms, RankBound

if TYPE_CHECKING:
    from manyarms.core.hierarchical_gaussian import HierarchicalGaussian


class ScoreWidths(Forms):
    """The widths √(xᵀ Cov θ_a x), where Cov θ_a ⪰ S_a = Σ_a - Σ_a R_aᵀ N_a Σ_a, the covariance given ψ.

    Bounds leave out what ψ adds to S_a, which is little once the effects that actions share are known. They need Σ_a to
    be the same for all actions.
    """

    def __init__(self, weights: HierarchicalGaussian):
        super().__init__(weights.action_cov)
        self._weights = weights

    def norms(self, vectors: Float[Array, "n d"], keys: Int[Array, " n"]) -> Float[Array, " n"]:
        if len(keys) > _OFTEN * len(np.unique(keys)):
            return super().norms(vectors, keys)
        return np.sqrt(self._weights.variances_of(vectors, keys))

    def least(self, keys: Int[Array, " m"]) -> Float[Array, " m"]:
        return self._least[keys]

    def in_order(self, keys: Int[Array, " m"]) -> Int[Array, " m"]:
        if self._base is None:
            return keys
        seen, wanted = self._seen_in_order, np.zeros(self._weights.n_actions, dtype=bool)
        wanted[keys] = True
        first = seen[wanted[seen]]
        wanted[first] = False
        return np.concatenate([first, keys[wanted[keys]]])

    def rank_bound(self, keys: Int[Array, " m"]) -> RankBound | None:
        base, observed, d = self._base, self._weights.observed, self._weights.dim
        if base is None or not base.any():
            return None
        covariance, parts = self._weights.action_covariance, list(observed.find(keys))
        rank = max((observed.groups[number].rank for number, _, _ in parts), default=0)
        vectors = np.zeros((rank, len(keys), d))
        for number, where, place in parts:
            # S_a = Σ_a - V V ᵀ with Vᵀ = C⁻¹ Z L_aᵀ, where Z = R_a L_a and C Cᵀ = I + Z Zᵀ.
            z = covariance.times_root(observed.groups[number].root[place], keys[where])
            lower = np.linalg.cholesky(z @ z.swapaxes(1, 2) + np.eye(z.shape[1]))
            own = covariance.times_root_t(solve_lower(lower, z), keys[where])
            own /= np.sqrt(1.0 + self._shrink[keys[where]])[:, None, None]
            vectors[: z.shape[1], where] = own.swapaxes(0, 1)
        return RankBound(base, vectors)

    @cached_property
    def _base(self) -> Float[Array, "d d"] | None:
        """Σ_a if all actions share it."""
        covariance = self._weights.action_covariance
        return None if covariance.each is not None else np.array(covariance.blocks(np.zeros(1, dtype=np.int64))[0])

    @cached_property
    def _seen_in_order(self) -> Int[Array, " m"]:
        """All seen actions: first those with the most rows, and among these the most certain."""
        groups = sorted(self._weights.observed.groups, key=lambda group: -group.rank)
        parts = [group.actions[np.argsort(self._shrink[group.actions], kind="stable")] for group in groups]
        return frozen(np.concatenate([np.empty(0, np.int64), *parts]))

    @cached_property
    def _least(self) -> Float[Array, " K"]:
        """√λ_min(Σ_a) times the shrinkage: at most the root of the smallest eigenvalue of S_a."""
        if self._base is None:
            return np.zeros(self._weights.n_actions)
        return frozen(np.sqrt(max(0.0, float(np.linalg.eigvalsh(self._base)[0]) * (1 - 1e-9))) * self._shrink)

    @cached_property
    def _shrink(self) -> Float[Array, " K"]:
        """1 / √(1 + λ_max(Z_a Z_aᵀ)), Z_a = R_a L_a: by how much data narrow Σ_a at most, in any direction."""
        weights = self._weights
        out = np.ones(weights.n_actions)
        for group in weights.observed.groups:
            for part in cache_chunks(len(group.actions), group.rank * weights.dim):
                ids = group.actions[part]
                z = weights.action_covariance.times_root(group.root[part], ids)
                out[ids] = 1.0 / np.sqrt(1.0 + (1 + 1e-9) * _largest_eigenvalues(z @ z.swapaxes(1, 2)))
        return frozen(out)


def _largest_eigenvalues(matrices: Float[Array, "m r r"]) -> Float[Array, " m"]:
    """Upper bounds on the largest eigenvalues of PSD matrices: exact for small ones, by norms for others."""
    if matrices.shape[1] == 1:
        return matrices[:, 0, 0]
    if matrices.shape[1] <= _SMALL:
        return np.linalg.eigvalsh(matrices)[:, -1]
    squares = matrices @ matrices
    # λ⁴ ≤ tr M⁴ = ‖M²‖², and no eigenvalue exceeds a sum of absolute values in a row.
    return np.minimum(np.einsum("mij,mij->m", squares, squares) ** 0.25, np.abs(matrices).sum(axis=2).max(axis=1))


_OFTEN = 8
"""Pairs per action above which the covariance of every action is worth forming."""
_SMALL = 4
"""Eigenvalues of matrices up to this size are cheap."""
