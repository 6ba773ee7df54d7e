"""Rewards with heavy tails: single rewards may lie far off without moving the posterior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from manyarms._base.checks import as_scalar, check_choice
from manyarms.likelihoods.likelihood import LinearLikelihood, PerRound, Treatment

FEW_DEGREES = 3.0
"""Degrees of freedom up to which the bound makes intervals so narrow that every estimate warns."""


@dataclass(frozen=True)
class StudentT(LinearLikelihood):
    """r | x, a ~ φ(x)ᵀ θ_a + σ t_ν: a Gaussian whose variance σ²/τ is drawn anew for every round, τ ~ Gamma(ν/2, ν/2).

    The log density is convex in the squared residual s = (r - η)², so its mean is at least its value at
    E s = (r - m)² + v (Jensen). That bound, the best over factors τ and θ, stands for the expectation; it is exact at
    v = 0. Its site is a Gaussian round whose weight w = (ν + 1) / (νσ² + E s) is the expected τ / σ²: outlying rounds
    weigh little, every step is one of EM, and the bound never falls. The posterior may have several modes where
    outliers agree with one another; this is one of them.

    As with every factorised approximation, intervals are too narrow: the posterior standard deviation of a value was
    0.77 of a sampler's at ν = 1.5, 0.86 at ν = 3 and 0.90 at ν = 6. At ν up to 3 every estimate warns;
    `sample_posterior` gives the right intervals.

    Args:
        scale: σ, above zero; for ν > 2 the standard deviation of a reward is σ √(ν / (ν - 2)).
        degrees: ν, above one, so that there is a mean; below two a reward has no variance. Gaussian as ν grows.
        treatment: "variational" (default), as above; or "laplace": a Gaussian at the joint mode of ψ and θ, its
            precision from the same weights at v = 0, which is narrower still.
    """

    saved_as = "student t"
    scale: float = 1.0
    degrees: float = 4.0
    treatment: Treatment = "variational"
    dispersion_name = "scale"

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", as_scalar("scale", self.scale, above=1e-150, below=1e150))
        object.__setattr__(self, "degrees", as_scalar("degrees", self.degrees, above=1.0, below=1e150))
        check_choice("treatment", self.treatment, ("variational", "laplace"))

    @property
    def warnings(self) -> tuple[str, ...]:
        if self.degrees > FEW_DEGREES:
            return ()
        return (
            f"StudentT with {self.degrees:g} degrees of freedom makes intervals too narrow: by a seventh at 3 degrees, "
            "by a quarter at 1.5. Sample the posterior for the right ones",
        )

    def expected_log_density(self, rewards: PerRound, mean: PerRound, variance: PerRound) -> PerRound:
        nu, squares = self.degrees, self._squares(rewards, mean, variance)
        return _log_normaliser(nu) - np.log(self.scale) - 0.5 * (nu + 1.0) * np.log1p(squares / nu)

    def log_predictive(self, rewards: PerRound, mean: PerRound, variance: PerRound) -> PerRound:
        """log ∫ N(r; m, v + σ²/τ) Gamma(τ; ν/2, ν/2) dτ, by the trapezoid rule over log τ."""
        nu, v = self.degrees, variance / self.scale**2
        residual = self._squares(rewards, mean, np.zeros_like(variance))
        # The peaks of the integrand lie between `least` and 1, or just above, and none is narrower than `width`.
        width, least = np.sqrt(2.0 / (nu + 1.0)), (nu + 1.0) / (nu + residual)
        for _ in range(10):
            share = 1.0 / (1.0 + v * least)
            least = (nu + share) / (nu + share**2 * residual)
        low = np.minimum(np.log(least), 0.0) - max(12.0 * width, 30.0 / nu)
        high = np.maximum(np.log(least), 0.0) + 6.0 * width
        n_nodes = int(min(np.ceil(np.max((high - low) / width, initial=0.0)) + 32, _MOST_NODES))
        step, out = (high - low) / (n_nodes - 1), np.full_like(mean, -np.inf)
        for j in range(n_nodes):
            u = low + j * step
            total = v + np.exp(-u)
            fit = -0.5 * (np.log(2 * np.pi * total) + residual / total)
            out = np.logaddexp(out, fit + 0.5 * nu * (u - np.expm1(u)))
        constant = 0.5 * nu * (np.log(0.5 * nu) - 1.0) - gammaln(0.5 * nu) - np.log(self.scale)
        # Where the peak is too narrow for the nodes, Jensen's bound is the better number.
        return np.maximum(out + np.log(step) + constant, self.expected_log_density(rewards, mean, variance))

    def slopes(self, rewards: PerRound, mean: PerRound, variance: PerRound) -> tuple[PerRound, PerRound]:
        nu = self.degrees
        weight = (nu + 1.0) / (nu + self._squares(rewards, mean, variance)) / self.scale**2
        return weight * (rewards - mean), weight

    def _squares(self, rewards: PerRound, mean: PerRound, variance: PerRound) -> PerRound:
        """E s / σ²."""
        # Beyond 1e100 σ all rewards count alike; squares would overflow.
        residual = np.clip((rewards - mean) / self.scale, -1e100, 1e100)
        return residual**2 + variance / self.scale**2


def _log_normaliser(degrees: float) -> float:
    """log Γ((ν + 1) / 2) - log Γ(ν / 2) - ½ log(νπ)."""
    half = 0.5 * degrees
    if half < _MANY:
        ratio = float(gammaln(half + 0.5) - gammaln(half))
    else:
        # Both terms are large and nearly cancel. Stirling's series gives their difference directly.
        ratio = 0.5 * np.log(half) - 1.0 / (8.0 * half) + 1.0 / (192.0 * half**3)
    return float(ratio - 0.5 * np.log(degrees * np.pi))


_MANY = 1e3
_MOST_NODES = 500
