"""The seen actions of a hierarchy, renumbered, and θ_a given ψ for them when rows stand for the rounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array
from manyarms.core import (
    ActionCovariance,
    DenseMixing,
    HierarchicalGaussian,
    LoggedData,
    ObservedGroup,
    ObservedRows,
    Statistics,
)
from manyarms.core.observed_rows import observe
from manyarms.inference.condition import _row_cholesky
from manyarms.likelihoods.likelihood import Site
from manyarms.linalg.factor_and_solve import gram, solve_lower, solve_lower_t
from manyarms.linalg.indexing import cache_chunks
from manyarms.nonlinear.nonlinear_hierarchy import NonlinearHierarchy


class SeenActions:
    """Seen actions 0 ... m - 1, their rounds, and ψ = μ + F z in units of its prior.

    `actions` are their numbers in the hierarchy, ascending; without any round action 0 stands in, so that m is never
    zero. The rounds in `logs` have actions numbered anew, and none has weight zero.
    """

    def __init__(self, hierarchy: NonlinearHierarchy, logs: LoggedData):
        if logs.weights is not None and not logs.weights.all():
            logs = logs.take(np.flatnonzero(logs.weights))
        distinct, where = np.unique(logs.actions, return_inverse=True)
        self.hierarchy = hierarchy
        self.actions: Int[Array, " m"] = distinct if len(distinct) else np.zeros(1, dtype=np.int64)
        each = hierarchy.action_covariance.each
        self.action_covariance = (
            hierarchy.action_covariance if each is None else ActionCovariance(each=each[self.actions])
        )
        self.logs = LoggedData(logs.contexts, where, logs.rewards, n_actions=self.n_actions, weights=logs.weights)
        self.counts: Float[Array, " n"] = np.ones(len(logs)) if logs.weights is None else logs.weights

    @property
    def n_actions(self) -> int:
        """m."""
        return len(self.actions)

    def latent(self, white: Float[Array, " p"]) -> Float[Array, " p"]:
        """ψ = μ + F z."""
        return self.hierarchy.latent_mean + self.hierarchy.latent_factor.apply(white)

    def white(self, latent: Float[Array, " p"]) -> Float[Array, " p"]:
        """The z nearest to a ψ; Σ may be singular, and a ψ outside its range is projected onto it."""
        blocks = self.hierarchy.latent_factor.blocks
        away = (latent - self.hierarchy.latent_mean).reshape(len(blocks), -1)
        return np.einsum("jab,jb->ja", np.linalg.pinv(blocks), away).reshape(-1)

    def centre(self, white: Float[Array, " p"]) -> Float[Array, "m d"]:
        """f_a(ψ)."""
        return self.hierarchy.centre(self.latent(white), self.actions)

    def tangent(self, white: Float[Array, " p"], centres: Float[Array, "m d"]) -> HierarchicalGaussian:
        """The linear hierarchy that touches this one at ψ."""
        return self.hierarchy.tangent(self.latent(white), centres, self.actions, self.action_covariance)

    def given(self, centres: Float[Array, "m d"]) -> HierarchicalGaussian:
        """θ_a | ψ, with f_a(ψ) known: actions are independent."""
        empty = DenseMixing(np.zeros((*centres.shape, 0)))
        return HierarchicalGaussian(np.zeros(0), np.zeros((0, 0)), empty, self.action_covariance, centres)

    def rows_of(self, sites: Site) -> ObservedRows:
        """The rows that say the same as sites."""
        logs = self.logs
        pseudo_rewards, weights = sites.linear / sites.weight, sites.weight * self.counts
        statistics = Statistics.of_rounds(logs.contexts, logs.actions, pseudo_rewards, self.n_actions, weights)
        return observe(statistics, 1.0)


@dataclass(frozen=True)
class WhiteRows:
    """Rows of seen actions with θ integrated out: h_a = H_a f_a(ψ) + noise of variance one, H_a = C_a⁻¹ R_a.

    Groups are as in `ObservedRows`, with H_a as root and h_a as response. The constant is log p(rewards | ψ) less
    -½ Σ_a ‖h_a - H_a f_a(ψ)‖².
    """

    groups: tuple[ObservedGroup, ...]
    constant: float

    @classmethod
    def of(cls, action_covariance: ActionCovariance, observed: ObservedRows) -> WhiteRows:
        """The rows of seen actions, with θ integrated out of them."""
        groups, log_det = list[ObservedGroup](), 0.0
        for group in observed.groups:
            H, h = np.empty_like(group.root), np.empty_like(group.response)
            for part in cache_chunks(len(group.actions), group.root[0].size + group.rank**2):
                R, actions = group.root[part], group.actions[part]
                C = _row_cholesky(action_covariance.times_root(R, actions), actions)
                white = solve_lower(C, np.concatenate([R, group.response[part][:, :, None]], axis=2))
                H[part], h[part] = white[:, :, :-1], white[:, :, -1]
                log_det += 2 * float(np.sum(np.log(np.einsum("mrr->mr", C))))
            groups.append(ObservedGroup(group.actions, H, h))
        return cls(tuple(groups), observed.log_normaliser - 0.5 * (log_det + observed.residual))

    def misses(self, centres: Float[Array, "m d"]) -> Float[Array, " r"]:
        """h_a - H_a f_a, all rows one after the other."""
        responses = [g.response.reshape(-1) for g in self.groups]
        return np.concatenate([*responses, np.zeros(0)]) - self.pulled(centres)

    def pulled(self, moves: Float[Array, "m d"]) -> Float[Array, " r"]:
        """H_a v_a, in the order of `misses`."""
        parts = [np.einsum("brd,bd->br", g.root, moves[g.actions]).reshape(-1) for g in self.groups]
        return np.concatenate([*parts, np.zeros(0)])


class Conditional:
    """Seen actions given ψ, rows R_a, responses ρ_a: θ_a = f_a(ψ) + L_a z_a, z_a ~ N(κ_a - M_a f_a(ψ), (D_a D_aᵀ)⁻¹).

    With Z_a = R_a L_a: D_a D_aᵀ = I + Z_aᵀ Z_a, M_a = (D_a D_aᵀ)⁻¹ Z_aᵀ R_a and κ_a = (D_a D_aᵀ)⁻¹ Z_aᵀ ρ_a. So
    z_a = κ_a - M_a f_a + D_a⁻ᵀ e_a with e_a standard normal: given rows, e_a and ψ are independent, which is what lets
    a sampler move ψ without θ holding it back.
    """

    def __init__(self, seen: SeenActions, observed: ObservedRows):
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
        """L_aᵀ φ, one action per row: φᵀ θ_a = φᵀ f_a + (L_aᵀ φ)ᵀ z_a."""
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
