"""Clicks and purchases: rewards that are 0 or 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import expit, log_expit

from manyarms._base.checks import Array
from manyarms.errors import InputError
from manyarms.likelihoods.likelihood import Likelihood, Treatment
from manyarms.likelihoods.logistic import (
    expected_log_logistic,
    expected_logistic,
    expected_logistic_and_slope,
    log_expected_logistic,
)


@dataclass(frozen=True)
class Bernoulli(Likelihood):
    """r | x, a ~ Ber(g(φ(x)ᵀ θ_a)) with g(η) = 1 / (1 + e⁻η).

    Args:
        treatment: "variational" (default): the Gaussian nearest to the posterior in the sense of the evidence lower
            bound. "laplace": a Gaussian at the joint mode of ψ and θ; faster, and too high where clicks are few.
            "paper": the maximum likelihood and curvature of each action on its own, regularised so that they exist; for
            reproduction only, since it drops the evidence of actions without a click (docs/likelihoods.md).
        expected: E g(η) by "quadrature" (default; in closed form where η is wide), or by the paper's "probit" formula
            g(m / √(1 + π v / 8)), which lacks the square of the norm there: cheaper, and at a click rate of 1 % too
            high by 10, 18, 33 and 55 % where the variance v of η is 0.25, 0.5, 1 and 2.
    """

    saved_as = "bernoulli"
    treatment: Treatment = "variational"
    expected: Literal["quadrature", "probit"] = "quadrature"
    must = "must be 0 or 1 under Bernoulli"
    way_out = "Use Gaussian for other numbers, Poisson for counts, Hurdle for amounts with many zeros."

    def __post_init__(self) -> None:
        for name, allowed in (
            ("treatment", ("variational", "laplace", "paper")),
            ("expected", ("probit", "quadrature")),
        ):
            if getattr(self, name) not in allowed:
                raise InputError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {getattr(self, name)!r}.")

    @property
    def mean_is_exact(self) -> bool:
        return self.expected == "quadrature"

    def allows(self, rewards: Float[Array, " n"]) -> Bool[Array, " n"]:
        return (rewards == 0) | (rewards == 1)

    def log_density(self, rewards: Float[Array, " n"], predictor: Float[Array, " n"]) -> Float[Array, " n"]:
        return log_expit(_towards(rewards, predictor))

    def expected_log_density(
        self, rewards: Float[Array, " n"], mean: Float[Array, " n"], variance: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        return expected_log_logistic(_towards(rewards, mean), np.sqrt(variance))

    def log_predictive(
        self, rewards: Float[Array, " n"], mean: Float[Array, " n"], variance: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        return log_expected_logistic(_towards(rewards, mean), np.sqrt(variance))

    def slopes(
        self, rewards: Float[Array, " n"], mean: Float[Array, " n"], variance: Float[Array, " n"]
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        expected, slope = expected_logistic_and_slope(mean, np.sqrt(variance))
        return rewards - expected, slope

    def score(self, mean: Float[Array, "..."], variance: Float[Array, "..."]) -> Float[Array, "..."]:
        """The paper's Step (C): g is increasing, so its argument ranks."""
        return self._shrunk(mean, variance) if self.expected == "probit" else self.mean_reward(mean, variance)

    def reward_given(self, predictor: Float[Array, "..."]) -> Float[Array, "..."]:
        return expit(predictor)

    def mean_reward(self, mean: Float[Array, "..."], variance: Float[Array, "..."]) -> Float[Array, "..."]:
        if self.expected == "probit":
            return expit(self._shrunk(mean, variance))
        return expected_logistic(mean, np.sqrt(variance))

    def mean_slope(self, mean: Float[Array, "..."], variance: Float[Array, "..."]) -> Float[Array, "..."]:
        if self.expected == "probit":
            inner = self._shrunk(mean, variance)
            return expit(inner) * expit(-inner) / np.sqrt(1.0 + np.pi / 8.0 * variance)
        return expected_logistic_and_slope(mean, np.sqrt(variance))[1]

    @staticmethod
    def _shrunk(mean: Float[Array, "..."], variance: Float[Array, "..."]) -> Float[Array, "..."]:
        return mean / np.sqrt(1.0 + np.pi / 8.0 * variance)


def _towards(rewards: Float[Array, " n"], predictor: Float[Array, " n"]) -> Float[Array, " n"]:
    """η where the reward is 1, -η where it is 0: log p(r | η) = log g of it."""
    return np.where(rewards > 0.5, predictor, -predictor)
