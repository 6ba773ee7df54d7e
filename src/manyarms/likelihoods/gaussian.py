"""Gaussian noise around the predictor: of the rewards themselves, or of their logarithms.

Both are conjugate, so the posterior is exact. Log-normal rewards are positive amounts, large ones rare: prices,
minutes, baskets.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool

from manyarms._base.checks import Array, as_scalar
from manyarms.likelihoods.likelihood import Likelihood, LinearLikelihood, Numbers, PerRound


@dataclass(frozen=True)
class _GaussianResponse(Likelihood):
    """A response y(r) ~ N(η, σ²): an increasing function y of the reward has Gaussian noise."""

    noise_std: float = 1.0
    treatment = "exact"
    dispersion_name = "noise_std"

    def __post_init__(self) -> None:
        # The squares of smaller and larger ones are zero or infinite.
        object.__setattr__(self, "noise_std", as_scalar("noise_std", self.noise_std, above=1e-150, below=1e150))

    @abstractmethod
    def log_slope(self, rewards: PerRound) -> PerRound | float:
        """log dy / dr, round by round."""

    def expected_log_density(self, rewards: PerRound, mean: PerRound, variance: PerRound) -> PerRound:
        squares = ((self.response(rewards) - mean) ** 2 + variance) / self.noise_std**2
        return -0.5 * (np.log(2 * np.pi * self.noise_std**2) + squares) + self.log_slope(rewards)

    def log_predictive(self, rewards: PerRound, mean: PerRound, variance: PerRound) -> PerRound:
        total = variance + self.noise_std**2
        squares = (self.response(rewards) - mean) ** 2 / total
        return -0.5 * (np.log(2 * np.pi * total) + squares) + self.log_slope(rewards)

    def slopes(self, rewards: PerRound, mean: PerRound, variance: PerRound) -> tuple[PerRound, PerRound]:
        return (self.response(rewards) - mean) / self.noise_std**2, np.full_like(mean, self.noise_std**-2)


@dataclass(frozen=True)
class Gaussian(LinearLikelihood, _GaussianResponse):
    """r | x, a ~ N(φ(x)ᵀ θ_a, σ²).

    Args:
        noise_std: σ, above zero: the standard deviation of a single reward around its expectation.
    """

    saved_as = "gaussian"

    def log_slope(self, rewards: PerRound) -> PerRound | float:
        return 0.0


@dataclass(frozen=True)
class LogNormal(_GaussianResponse):
    """Gaussian logarithms of rewards: log r | x, a ~ N(φ(x)ᵀ θ_a, σ²), so that E[r | η] = g(η) = e^(η + σ²/2).

    The posterior is exact: that of Gaussian rewards log r. The expected reward e^(m + v/2 + σ²/2) includes the
    uncertainty of η, so an action about which little is known has a high one.

    Args:
        noise_std: σ, above zero: the standard deviation of the logarithm of a single reward.
    """

    saved_as = "log-normal"
    requirement = "must be above zero under LogNormal"
    remedy = "Use Hurdle(Bernoulli(), LogNormal()) for amounts that may be zero, Gaussian for other numbers."
    flag_remedy = "Use --likelihood gaussian for other numbers."

    def allows(self, rewards: PerRound) -> Bool[Array, " n"]:
        return rewards > 0

    def response(self, rewards: PerRound) -> PerRound:
        return np.log(rewards)

    def log_slope(self, rewards: PerRound) -> PerRound | float:
        return -np.log(rewards)

    def log_jacobian(self, rewards: PerRound, weights: PerRound | None) -> float:
        return -float(np.sum(np.log(rewards) if weights is None else weights * np.log(rewards)))

    def mean_reward(self, mean: Numbers, variance: Numbers) -> Numbers:
        return np.exp(np.minimum(self.score(mean, variance) + 0.5 * self.noise_std**2, 700.0))

    def mean_slope(self, mean: Numbers, variance: Numbers) -> Numbers:
        return self.mean_reward(mean, variance)

    def score(self, mean: Numbers, variance: Numbers) -> Numbers:
        return mean + 0.5 * variance
