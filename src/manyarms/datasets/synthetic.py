"""The paper's synthetic linear-Gaussian problem (Section 6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from manyarms._arrays import Array, as_count, as_scalar
from manyarms._random import split
from manyarms.core.hierarchy import HierarchicalGaussian
from manyarms.datasets.environment import LinearEnvironment


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
        noise_std: σ.
    """

    n_actions: int = 1000
    dim: int = 10
    latent_dim: int = 10
    latent_var: float = 3.0
    action_var: float = 1.0
    noise_std: float = 1.0

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

    def draw_environment(self, prior: HierarchicalGaussian, rng: np.random.Generator) -> LinearEnvironment:
        """A world whose weights are one draw from the prior."""
        return LinearEnvironment(prior.sample(rng)[0], self.noise_std, self.draw_contexts)

    def draw_contexts(self, rng: np.random.Generator, n: int) -> Float[Array, "n d"]:
        """Contexts of any world of this kind."""
        return rng.uniform(-1, 1, (n, self.dim))
