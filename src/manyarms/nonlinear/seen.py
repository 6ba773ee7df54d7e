"""The seen actions of a hierarchy, numbered anew: all that a fit or a sampler evaluates f_a for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from manyarms._arrays import Array
from manyarms.core.covariance import ActionCovariance
from manyarms.core.data import LoggedData
from manyarms.core.hierarchy import HierarchicalGaussian
from manyarms.core.mixing import DenseMixing
from manyarms.core.observed import Observed, RankGroup, action_chunks
from manyarms.core.statistics import Statistics
from manyarms.inference.condition import _row_cholesky
from manyarms.inference.roots import observe
from manyarms.likelihoods.base import Site
from manyarms.linalg.factor import solve_lower
from manyarms.nonlinear.hierarchy import NonlinearHierarchy


class Seen:
    """Seen actions 0 ... m - 1, their rounds, and ψ = μ + F z in units of its prior.

    Attributes:
        hierarchy: Of all actions.
        actions: (m,) their numbers in it, ascending. Without any round action 0 stands in, so that m is never zero.
        action_covariance: Σ_a of these.
        logs: The rounds, with actions numbered anew; none of weight zero.
        counts: (n,) how often each round counts.
    """

    def __init__(self, hierarchy: NonlinearHierarchy, logs: LoggedData):
        if logs.weights is not None and not logs.weights.all():
            logs = logs.take(np.flatnonzero(logs.weights))
        found, where = np.unique(logs.actions, return_inverse=True)
        self.hierarchy = hierarchy
        self.actions: Int[Array, " m"] = found if len(found) else np.zeros(1, dtype=np.int64)
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

    def rows_of(self, sites: Site) -> Observed:
        """Sites as rows."""
        logs = self.logs
        pseudo_rewards, weights = sites.linear / sites.weight, sites.weight * self.counts
        statistics = Statistics.of_rounds(logs.contexts, logs.actions, pseudo_rewards, self.n_actions, weights)
        return observe(statistics, 1.0)


@dataclass(frozen=True)
class WhiteRows:
    """Rows with θ integrated out: h_a = H_a f_a(ψ) + noise of variance one, H_a = C_a⁻¹ R_a (docs/maths.md).

    Attributes:
        groups: Of equally many rows, as in `Observed`: root is H_a and response h_a.
        constant: log p(rewards | ψ) less -½ Σ_a ‖h_a - H_a f_a(ψ)‖².
    """

    groups: tuple[RankGroup, ...]
    constant: float

    def misses(self, centres: Float[Array, "m d"]) -> Float[Array, " r"]:
        """h_a - H_a f_a, all rows one after the other."""
        return self._stacked([g.response - self._times(g, centres) for g in self.groups])

    def pulled(self, moves: Float[Array, "m d"]) -> Float[Array, " r"]:
        """H_a v_a, in the order of `misses`."""
        return self._stacked([self._times(g, moves) for g in self.groups])

    @staticmethod
    def _times(group: RankGroup, vectors: Float[Array, "m d"]) -> Float[Array, "b r"]:
        return np.einsum("brd,bd->br", group.root, vectors[group.actions])

    @staticmethod
    def _stacked(parts: list[Array]) -> Float[Array, " r"]:
        return np.concatenate([part.reshape(-1) for part in parts]) if parts else np.zeros(0)


def whiten(action_covariance: ActionCovariance, observed: Observed) -> WhiteRows:
    """Integrate θ out of rows."""
    groups, log_det = list[RankGroup](), 0.0
    for group in observed.groups:
        H, h = np.empty_like(group.root), np.empty_like(group.response)
        for part in action_chunks(len(group.actions), group.root[0].size + group.rank**2):
            R, actions = group.root[part], group.actions[part]
            C = _row_cholesky(action_covariance.times_root(R, actions), actions)
            white = solve_lower(C, np.concatenate([R, group.response[part][:, :, None]], axis=2))
            H[part], h[part] = white[:, :, :-1], white[:, :, -1]
            log_det += 2 * float(np.sum(np.log(np.einsum("mrr->mr", C))))
        groups.append(RankGroup(group.actions, H, h))
    return WhiteRows(tuple(groups), observed.log_normaliser - 0.5 * (log_det + observed.residual))
