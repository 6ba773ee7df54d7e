"""The paper's synthetic linear-Gaussian problem (Section 6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, as_count, as_instance, as_scalar
from manyarms._base.rng import split
from manyarms.core.hierarchical_gaussian import HierarchicalGaussian
from manyarms.core.mixing import DenseMixing
from manyarms.datasets.environment import LinearEnvironment, LogisticEnvironment, ScoredEnvironment

FLOOR = 1e-3
"""The smallest eigenvalue that noise leaves a covariance."""


@dataclass(frozen=True)
class SyntheticProblem:
    """Contexts uniform on [-1, 1]^d, W_a and μ uniform on [-1, 1], Σ and Σ_a multiples of the identity.

    The defaults are the paper's setting.

    Args:
        n_actions: K.
        dim: d.
        latent_dim: d'.
        latent_var: Σ = latent_var I.
        action_var: Σ_a = action_var I.
        noise_std: σ; of no account when rewards are binary.
        binary: Rewards are 1 with probability 1 / (1 + exp(-xᵀ θ_a)) and else 0, instead of N(xᵀ θ_a, σ²).
    """

    n_actions: int = 1000
    dim: int = 10
    latent_dim: int = 10
    latent_var: float = 3.0
    action_var: float = 1.0
    noise_std: float = 1.0
    binary: bool = False

    def __post_init__(self) -> None:
        for name in ("n_actions", "dim", "latent_dim"):
            as_count(name, getattr(self, name), minimum=0 if name == "latent_dim" else 1)
        for name in ("latent_var", "action_var", "noise_std"):
            as_scalar(name, getattr(self, name), at_least=0.0)

    def draw_prior(self, rng: np.random.Generator) -> HierarchicalGaussian:
        """A prior: mixing matrices and latent mean drawn once."""
        mixing_rng, mean_rng = split(rng, "mixing", "mean")
        mixing = mixing_rng.uniform(-1, 1, (self.n_actions, self.dim, self.latent_dim))
        mean = mean_rng.uniform(-1, 1, self.latent_dim)
        return HierarchicalGaussian(mean, self.latent_var, mixing, self.action_var)

    def draw_environment(self, prior: HierarchicalGaussian, rng: np.random.Generator) -> ScoredEnvironment:
        """A world whose weights are one draw from the prior."""
        weights = prior.sample(rng)[0]
        if self.binary:
            return LogisticEnvironment(weights, self.draw_contexts)
        return LinearEnvironment(weights, self.noise_std, self.draw_contexts)

    def draw_contexts(self, rng: np.random.Generator, n: int) -> Float[Array, "n d"]:
        """Contexts of any world of this kind."""
        return rng.uniform(-1, 1, (n, self.dim))

    def misspecified(
        self,
        prior: HierarchicalGaussian,
        level: float,
        *,
        means: bool = True,
        covs: bool = True,
        rng: np.random.Generator,
    ) -> HierarchicalGaussian:
        """A wrong prior: uniform noise from [v, v + 1/2] on μ and every W_a, and on Σ and every Σ_a (paper, App. F).

        A covariance gets a symmetric matrix of such noise. Where that leaves it an eigenvalue below `FLOOR`, the
        eigenvalue is raised to it: the paper does not say how its covariances stayed positive definite.

        Args:
            prior: The right one, as `draw_prior` gave it.
            level: v, how wrong.
            means: Whether μ and W_a are wrong, which together say what θ_a is on average.
            covs: Whether Σ and Σ_a are.
            rng: Draws the noise; that on the means is the same with and without `covs`, and the other way round.
        """
        v = as_scalar("level", level, at_least=0.0)
        mean_rng, mixing_rng, latent_rng, action_rng = split(rng, "mean", "mixing", "latent", "actions")
        mean, mixing = (
            prior.latent_mean,
            as_instance("mixing", prior.mixing, DenseMixing, "a (K, d, d') array").matrices,
        )
        if means:
            mean = mean + mean_rng.uniform(v, v + 0.5, mean.shape)
            mixing = mixing + mixing_rng.uniform(v, v + 0.5, mixing.shape)
        if not covs:
            return HierarchicalGaussian(mean, self.latent_var, mixing, self.action_var)
        latent_cov = _noisy(self.latent_var, v, 1, self.latent_dim, latent_rng)[0]
        action_cov = _noisy(self.action_var, v, self.n_actions, self.dim, action_rng)
        return HierarchicalGaussian(mean, latent_cov, mixing, action_cov)


def _noisy(variance: float, v: float, count: int, size: int, rng: np.random.Generator) -> Float[Array, "k s s"]:
    """Covariances variance I plus symmetric noise, positive definite."""
    noise = np.triu(rng.uniform(v, v + 0.5, (count, size, size)))
    symmetric = noise + np.triu(noise, 1).swapaxes(1, 2) + variance * np.eye(size)
    values, vectors = np.linalg.eigh(symmetric)
    mended = (vectors * np.maximum(values, FLOOR)[:, None, :]) @ vectors.swapaxes(1, 2)
    return (mended + mended.swapaxes(1, 2)) / 2
