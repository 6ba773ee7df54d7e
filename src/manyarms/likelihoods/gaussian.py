"""Rewards with Gaussian noise: the conjugate case.

Positive amounts, large ones rare: prices, minutes, baskets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from manyarms._base.checks import Array, as_instance, as_scalar
from manyarms.errors import DataTypeError
from manyarms.likelihoods.likelihood import Likelihood, Site


@dataclass(frozen=True)
class Gaussian(Likelihood):
    """r | x, a ~ N(φ(x)ᵀ θ_a, σ²).

    Args:
        noise_std: σ, above zero: how far a single reward lies from its expectation, one standard deviation.
    """

    saved_as = "gaussian"
    noise_std: float = 1.0
    treatment = "exact"
    is_linear = True
    dispersion_name = "noise_std"

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_std", as_scalar("noise_std", self.noise_std, above=0.0, below=1e150))

    def expected_log_density(
        self, rewards: Float[Array, " n"], mean: Float[Array, " n"], variance: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        squares = ((rewards - mean) ** 2 + variance) / self.noise_std**2
        return -0.5 * (np.log(2 * np.pi * self.noise_std**2) + squares)

    def log_predictive(
        self, rewards: Float[Array, " n"], mean: Float[Array, " n"], variance: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        total = variance + self.noise_std**2
        return -0.5 * (np.log(2 * np.pi * total) + (rewards - mean) ** 2 / total)

    def slopes(
        self, rewards: Float[Array, " n"], mean: Float[Array, " n"], variance: Float[Array, " n"]
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        return (rewards - mean) / self.noise_std**2, np.full_like(mean, self.noise_std**-2)

    def site(self, rewards: Float[Array, " n"], mean: Float[Array, " n"], variance: Float[Array, " n"]) -> Site:
        """The round as it is: its weight is never zero, whatever the unit of rewards."""
        weight = np.full_like(mean, self.noise_std**-2)
        return Site(weight, weight * rewards)

    def mean_reward(self, mean: Float[Array, "..."], variance: Float[Array, "..."]) -> Float[Array, "..."]:
        return mean

    def mean_slope(self, mean: Float[Array, "..."], variance: Float[Array, "..."]) -> Float[Array, "..."]:
        return np.ones_like(mean)


def as_likelihood(value: Any) -> Likelihood:
    """What a user passed as `likelihood`; None is a noise of one."""
    if isinstance(value, type):
        raise DataTypeError(f"likelihood must be one, not the class {value.__name__}: pass {value.__name__}().")
    given = Gaussian() if value is None else value
    return as_instance("likelihood", given, Likelihood, "a likelihood, as in ma.Gaussian(1.0)")


@dataclass(frozen=True)
class LogNormal(Likelihood):
    """log r | x, a ~ N(φ(x)ᵀ θ_a, σ²), so that E[r | η] = g(η) = e^(η + σ²/2).

    The posterior is exact: that of Gaussian rewards log r. The expected reward e^(m + v/2 + σ²/2) counts what is not
    known of η, so an action of which little is known has a high one.

    Args:
        noise_std: σ, above zero: by how much the logarithm of a single reward lies off, one standard deviation.
    """

    saved_as = "log-normal"
    noise_std: float = 1.0
    treatment = "exact"
    dispersion_name = "noise_std"
    requirement = "must be above zero under LogNormal"
    remedy = "Use Hurdle(Bernoulli(), LogNormal()) for amounts that may be zero, Gaussian for other numbers."

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_std", as_scalar("noise_std", self.noise_std, above=0.0, below=1e150))

    def allows(self, rewards: Float[Array, " n"]) -> Bool[Array, " n"]:
        return rewards > 0

    def response(self, rewards: Float[Array, " n"]) -> Float[Array, " n"]:
        return np.log(rewards)

    def log_jacobian(self, rewards: Float[Array, " n"], weights: Float[Array, " n"] | None) -> float:
        return -float(np.sum(np.log(rewards) if weights is None else weights * np.log(rewards)))

    def expected_log_density(
        self, rewards: Float[Array, " n"], mean: Float[Array, " n"], variance: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        amount = np.log(rewards)
        squares = ((amount - mean) ** 2 + variance) / self.noise_std**2
        return -0.5 * (np.log(2 * np.pi * self.noise_std**2) + squares) - amount

    def log_predictive(
        self, rewards: Float[Array, " n"], mean: Float[Array, " n"], variance: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        amount, total = np.log(rewards), variance + self.noise_std**2
        return -0.5 * (np.log(2 * np.pi * total) + (amount - mean) ** 2 / total) - amount

    def slopes(
        self, rewards: Float[Array, " n"], mean: Float[Array, " n"], variance: Float[Array, " n"]
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        return (np.log(rewards) - mean) / self.noise_std**2, np.full_like(mean, self.noise_std**-2)

    def mean_reward(self, mean: Float[Array, "..."], variance: Float[Array, "..."]) -> Float[Array, "..."]:
        return np.exp(np.minimum(self.score(mean, variance) + 0.5 * self.noise_std**2, 700.0))

    def mean_slope(self, mean: Float[Array, "..."], variance: Float[Array, "..."]) -> Float[Array, "..."]:
        return self.mean_reward(mean, variance)

    def score(self, mean: Float[Array, "..."], variance: Float[Array, "..."]) -> Float[Array, "..."]:
        return mean + 0.5 * variance
