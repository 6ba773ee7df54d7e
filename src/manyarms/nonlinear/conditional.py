"""θ_a given ψ for the seen actions, when rows stand for the rounds."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from manyarms._arrays import Array
from manyarms.core.observed import Observed
from manyarms.linalg.factor import gram, solve_lower, solve_lower_t
from manyarms.nonlinear.seen import Seen


class Conditional:
    """θ_a = f_a(ψ) + L_a z_a with z_a | ψ ~ N(κ_a - M_a f_a(ψ), (D_a D_aᵀ)⁻¹), for rows R_a and responses ρ_a.

    With Z_a = R_a L_a: D_a D_aᵀ = I + Z_aᵀ Z_a, M_a = (D_a D_aᵀ)⁻¹ Z_aᵀ R_a and κ_a = (D_a D_aᵀ)⁻¹ Z_aᵀ ρ_a. So
    z_a = κ_a - M_a f_a + D_a⁻ᵀ e_a with e_a standard normal: given rows, e_a and ψ are independent, which is what lets
    a sampler move ψ without θ holding it back.

    Args:
        seen: The seen actions.
        observed: Their rows.
    """

    def __init__(self, seen: Seen, observed: Observed):
        m, d = seen.n_actions, seen.hierarchy.dim
        eye = np.broadcast_to(np.eye(d), (m, d, d))
        # Taken once for all: a singular Σ_a has many roots, and z_a means nothing without the one it belongs to.
        self._L = seen.action_covariance.times_root(eye, np.arange(m))
        precision, pulled, pushed = eye.copy(), np.zeros((m, d, d)), np.zeros((m, d, 1))
        for group in observed.groups:
            Z = group.root @ self._L[group.actions]
            precision[group.actions] += gram(Z)
            pulled[group.actions] = Z.swapaxes(1, 2) @ group.root
            pushed[group.actions] = Z.swapaxes(1, 2) @ group.response[:, :, None]
        self._D = np.linalg.cholesky(precision)
        solved = solve_lower_t(self._D, solve_lower(self._D, np.concatenate([pulled, pushed], axis=2)))
        self._M, self._kappa = solved[:, :, :d], solved[:, :, d]

    def rooted(self, rows: Float[Array, "n d"], which: Int[Array, " n"]) -> Float[Array, "n d"]:
        """L_aᵀ φ, one action a row: φᵀ θ_a = φᵀ f_a + (L_aᵀ φ)ᵀ z_a."""
        return np.einsum("nd,nde->ne", rows, self._L[which])

    def noise_mean(self, centres: Float[Array, "m d"]) -> Float[Array, "m d"]:
        """E[z_a | ψ]."""
        return self._kappa - np.einsum("mde,me->md", self._M, centres)

    def spread(self, e: Float[Array, "m d"]) -> Float[Array, "m d"]:
        """D_a⁻ᵀ e_a."""
        return solve_lower_t(self._D, e[:, :, None])[:, :, 0]

    def weights(self, centres: Float[Array, "m d"], noise: Float[Array, "m d"]) -> Float[Array, "m d"]:
        """θ_a = f_a + L_a z_a of all seen actions."""
        return centres + np.einsum("mde,me->md", self._L, noise)

    def draw(
        self, centres: Float[Array, "s q d"], e: Float[Array, "s q d"], which: Int[Array, " q"]
    ) -> Float[Array, "s q d"]:
        """θ_a of some seen actions for several ψ at once, from standard normal e_a."""
        mean = self._kappa[which] - np.einsum("qde,sqe->sqd", self._M[which], centres)
        spread = solve_lower_t(self._D[which], e.transpose(1, 2, 0)).transpose(2, 0, 1)
        return centres + np.einsum("qde,sqe->sqd", self._L[which], mean + spread)
