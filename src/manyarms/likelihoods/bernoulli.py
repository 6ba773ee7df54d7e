"""Clicks: rewards that are 0 or 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import expit, log_expit

from manyarms._base.checks import Array, check_choice
from manyarms.likelihoods.expectation_bounds import reaches
from manyarms.likelihoods.likelihood import Likelihood, Numbers, PerRound, Site, Treatment
from manyarms.likelihoods.logistic_expectations import expected_logistic, log_expected_logistic, logistic_expectations


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
    requirement = "must be 0 or 1 under Bernoulli"
    remedy = "Use Gaussian for other numbers, Poisson for counts, Hurdle for amounts with many zeros."
    flag_remedy = "Use --likelihood poisson for counts, or --likelihood gaussian for other numbers."

    def __post_init__(self) -> None:
        check_choice("treatment", self.treatment, ("variational", "laplace", "paper"))
        check_choice("expected", self.expected, ("probit", "quadrature"))

    @property
    def mean_is_exact(self) -> bool:
        return self.expected == "quadrature"

    def allows(self, rewards: PerRound) -> Bool[Array, " n"]:
        return (rewards == 0) | (rewards == 1)

    def log_density(self, rewards: PerRound, predictor: PerRound) -> PerRound:
        return log_expit(_towards(rewards, predictor))

    def expected_log_density(self, rewards: PerRound, mean: PerRound, variance: PerRound) -> PerRound:
        return logistic_expectations(_towards(rewards, mean), np.sqrt(variance))[0]

    def site_and_density(self, rewards: PerRound, mean: PerRound, variance: PerRound) -> tuple[Site, PerRound]:
        density, miss, weight = logistic_expectations(_towards(rewards, mean), np.sqrt(variance))
        return Site.of_slope(mean, _towards(rewards, miss), weight), density

    def log_predictive(self, rewards: PerRound, mean: PerRound, variance: PerRound) -> PerRound:
        return log_expected_logistic(_towards(rewards, mean), np.sqrt(variance))

    def slopes(self, rewards: PerRound, mean: PerRound, variance: PerRound) -> tuple[PerRound, PerRound]:
        _, miss, weight = logistic_expectations(_towards(rewards, mean), np.sqrt(variance))
        return _towards(rewards, miss), weight

    def score(self, mean: Numbers, variance: Numbers) -> Numbers:
        """The paper's Step (C): g is increasing, so its argument ranks actions."""
        return self._shrunk(mean, variance) if self.expected == "probit" else self.mean_reward(mean, variance)

    def scores_above(
        self, floor: Float[Array, " b"], mean: Float[Array, "b c"], variance: Float[Array, "b c"]
    ) -> Float[Array, "b c"]:
        """Only the entries that may reach the floor are integrated."""
        if self.expected == "probit":
            return self.score(mean, variance)
        out = np.full(mean.shape, -np.inf)
        rows, columns = reaches(floor, mean, variance)
        out[rows, columns] = self.score(mean[rows, columns], variance[rows, columns])
        return out

    def reward_given(self, predictor: Numbers) -> Numbers:
        return expit(predictor)

    def mean_reward(self, mean: Numbers, variance: Numbers) -> Numbers:
        if self.expected == "probit":
            return expit(self._shrunk(mean, variance))
        return expected_logistic(mean, np.sqrt(variance))

    def mean_slope(self, mean: Numbers, variance: Numbers) -> Numbers:
        if self.expected == "probit":
            inner = self._shrunk(mean, variance)
            return expit(inner) * expit(-inner) / np.sqrt(1.0 + np.pi / 8.0 * variance)
        return logistic_expectations(mean, np.sqrt(variance))[2]

    @staticmethod
    def _shrunk(mean: Numbers, variance: Numbers) -> Numbers:
        return mean / np.sqrt(1.0 + np.pi / 8.0 * variance)


def _towards(rewards: PerRound, predictor: PerRound) -> PerRound:
    """η where the reward is 1, -η where it is 0: log p(r | η) is log g of this number."""
    return np.where(rewards > 0.5, predictor, -predictor)
