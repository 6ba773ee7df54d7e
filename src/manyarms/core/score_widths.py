"""The widths of scores, ‖x‖ in Cov θ_a, of a hierarchical Gaussian: exact pair by pair, and cheap lower bounds."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, frozen
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
        wanted = np.zeros(self._weights.n_actions, dtype=bool)
        wanted[keys] = True
        return self._order[wanted[self._order]]

    def rank_bound(self, keys: Int[Array, " m"]) -> RankBound | None:
        base, observed, d = self._base, self._weights.observed, self._weights.dim
        if base is None or not base.any():
            return None
        covariance, parts = self._weights.action_covariance, list(observed.find(keys))
        rank = max((observed.groups[number].rank for number, _, _ in parts), default=0)
        left, right = np.zeros((2, rank, len(keys), d), dtype=np.float32)
        for number, where, place in parts:
            # R_a Σ_a, and N_a Σ_a from N_a L_a.
            root, gain = observed.groups[number].root[place], self._weights.gains[number][place]
            root = covariance.times_root_t(covariance.times_root(root, keys[where]), keys[where])
            left[: root.shape[1], where] = root.swapaxes(0, 1)
            right[: root.shape[1], where] = covariance.times_root_t(gain, keys[where]).swapaxes(0, 1)
        return RankBound.of(base, left, right)

    @cached_property
    def _base(self) -> Float[Array, "d d"] | None:
        """Σ_a if all actions share it."""
        covariance = self._weights.action_covariance
        return None if covariance.each is not None else np.array(covariance.blocks(np.zeros(1, dtype=np.int64))[0])

    @cached_property
    def _order(self) -> Int[Array, " K"]:
        """All actions: first those with the most rows, and among these the most certain."""
        ranks = np.zeros(self._weights.n_actions, dtype=np.int16)
        for group in self._weights.observed.groups:
            ranks[group.actions] = group.rank
        return frozen(np.lexsort((self._least, -ranks)))

    @cached_property
    def _least(self) -> Float[Array, " K"]:
        """√(λ_min(Σ_a) / (1 + λ_max(Z_a Z_aᵀ))), Z_a = R_a L_a: at most the root of the smallest eigenvalue of S_a."""
        weights = self._weights
        out = np.zeros(weights.n_actions)
        if self._base is None:
            return out
        smallest = max(0.0, float(np.linalg.eigvalsh(self._base)[0]) * (1 - 1e-9))
        out[:] = np.sqrt(smallest)
        for group in weights.observed.groups:
            for part in cache_chunks(len(group.actions), group.rank * weights.dim):
                ids = group.actions[part]
                z = weights.action_covariance.times_root(group.root[part], ids)
                out[ids] = np.sqrt(smallest / (1.0 + (1 + 1e-9) * _largest_eigenvalues(z @ z.swapaxes(1, 2))))
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
