"""The gradient of the log evidence by the parameters of the prior.

By Fisher's identity the gradient of the log evidence is the posterior expectation of the gradient of the log joint
density. With ψ_j = μ_g + F_g z_j, θ_a = W_a ψ + c_a + L_a z_a and rewards in units of the noise, it needs only the
second moments of the z and of the residuals. These are 1 on average when the prior is right. No covariance of the prior
is ever inverted, so a vanishing one does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array
from manyarms.core import EffectGroup, HierarchicalGaussian, ObservedGroup, ObservedRows
from manyarms.inference.condition import conditioning, solve
from manyarms.inference.latent_posterior import LatentPosterior
from manyarms.linalg.indexing import cache_chunks


@dataclass(frozen=True)
class EvidenceGradient:
    """The log evidence, with its derivatives as excess second moments.

    Attributes:
        log_evidence: log p(rewards).
        action_excess: Σ_a E z_a z_aᵀ - I over seen actions, (d, d). An unseen action adds nothing.
        effect_excess: Σ_j E z_j z_jᵀ - I for each group of effects, (b, b).
        latent_pull: The derivative by the mean of ψ, (d',).
        offset_pull: The derivative by an offset that all actions share, (d,).
        residual_sq: Σ E (r - φᵀθ)² / σ² over all rounds: the derivative by log σ is this less the number of rounds. Not
            a number where there is no σ.
    """

    log_evidence: float
    action_excess: Float[Array, "d d"]
    effect_excess: tuple[Array, ...]
    latent_pull: Float[Array, " p"]
    offset_pull: Float[Array, " d"]
    residual_sq: float = float("nan")


def evidence_gradient(
    prior: HierarchicalGaussian, observed: ObservedRows, groups: tuple[EffectGroup, ...]
) -> EvidenceGradient:
    """Condition on the rows and compute the gradient: about twice the cost of conditioning alone.

    Args:
        prior: Not conditioned on anything yet.
        observed: Rows of the seen actions.
        groups: The groups of effects to differentiate by, in the order of ψ.
    """
    return gradient_of(*solve(prior, observed), groups)


def gradient_of(
    posterior: HierarchicalGaussian, latent: LatentPosterior, groups: tuple[EffectGroup, ...]
) -> EvidenceGradient:
    """The gradient where the rows have been conditioned on already, by `inference.condition.solve`."""
    observed = posterior.observed
    with conditioning(posterior.base):
        total = _GradientSums(posterior)
        for number, group in enumerate(observed.groups):
            total.add(group, posterior.gains[number])
        return EvidenceGradient(
            posterior.log_evidence,
            total.excess,
            _effect_excess(latent, groups),
            total.latent_pull,
            total.offset_pull,
            observed.residual + total.residual_sq,
        )


def _effect_excess(latent: LatentPosterior, groups: tuple[EffectGroup, ...]) -> tuple[Array, ...]:
    if not groups:
        return ()
    factor, start, excess = latent.white_factor(), 0, list[Array]()
    for group in groups:
        count, size = group.count, group.part_dim
        z = latent.white_mean[start : start + count * size].reshape(count, size)
        excess.append(z.T @ z + factor.part_gram(start, count, size) - count * np.eye(size))
        start += count * size
    return tuple(excess)


class _GradientSums:
    """Sums over the seen actions.

    With K_a = I + Z_a Z_aᵀ, Z_a = R_a L_a, and gains Q_a = K_a⁻¹ Z_a: E[z_a | ψ] = Q_aᵀ (ρ_a - R_a m_a),
    Cov[z_a | ψ] = I - Z_aᵀ Q_a, and a residual is ρ_a - R_a m_a - Z_a z_a.
    """

    def __init__(self, posterior: HierarchicalGaussian):
        self._posterior, self._roots = posterior, posterior.mixing.roots(posterior.latent_factor)
        d = posterior.dim
        self.residual_sq = 0.0
        self.excess = np.zeros((d, d))
        self.latent_pull, self.offset_pull = np.zeros(posterior.latent_dim), np.zeros(d)

    def add(self, group: ObservedGroup, gains: Float[Array, "m r d"]) -> None:
        """Add one group of actions."""
        post = self._posterior
        size = max(post.dim**2, post.mixing.action_size(post.latent_factor))
        for part in cache_chunks(len(group.actions), size):
            actions, R, Q = group.actions[part], group.root[part], gains[part]
            Z = post.action_covariance.times_root(R, actions)
            centre = post.mixing.apply(post.latent_mean[None], actions)[0] + post.offset_of(actions)
            miss = group.response[part] - np.einsum("mrd,md->mr", R, centre)
            # The mean, and beside it the columns of a root of the covariance of ψ: both enter in the same way.
            columns = np.concatenate([miss[:, :, None], R @ self._roots(actions)], axis=2)
            z = Q.swapaxes(1, 2) @ columns
            residual = columns - Z @ z
            self.residual_sq += float(np.sum(residual**2) + np.sum(Z * Q))
            flat = z.swapaxes(0, 1).reshape(post.dim, -1)
            self.excess += flat @ flat.T - np.einsum("mrd,mre->de", Z, Q, optimize=True)
            pull = np.einsum("mrd,mr->md", R, residual[:, :, 0])
            self.latent_pull += post.mixing.apply_t(pull, actions)
            self.offset_pull += pull.sum(axis=0)
