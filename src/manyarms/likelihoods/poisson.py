"""Counts: rewards that are 0, 1, 2, ..."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool
from scipy.special import gammaln, wrightomega

from manyarms._base.checks import Array, check_choice
from manyarms.likelihoods.likelihood import HERMITE, Likelihood, Numbers, PerRound, Treatment


@dataclass(frozen=True)
class Poisson(Likelihood):
    """r | x, a ~ Poisson(g(φ(x)ᵀ θ_a)) with g(η) = e^η.

    Expectations are closed: E log p(r | η) = r m - e^(m + v/2) - log r!, and E g(η) = e^(m + v/2). So an action about
    which little is known has a high expected count, e^(v/2) times its median. Keep the prior's standard deviation of η
    to a factor by which counts can differ: 1 is a factor of 2.7 up or down, 3 a factor of 20.

    Args:
        treatment: "variational" (default): the Gaussian nearest to the posterior in the sense of the evidence lower
            bound. "laplace": a Gaussian at the joint mode of ψ and θ; too low where counts are few.
    """

    saved_as = "poisson"
    treatment: Treatment = "variational"
    requirement = "must be counts 0, 1, 2, ... up to 2^53 under Poisson"
    remedy = "Use LogNormal for positive amounts, Hurdle for amounts with many zeros, Gaussian for other numbers."
    flag_remedy = "Use --likelihood log-normal for positive amounts, or --likelihood gaussian for other numbers."

    def __post_init__(self) -> None:
        check_choice("treatment", self.treatment, ("variational", "laplace"))

    def allows(self, rewards: PerRound) -> Bool[Array, " n"]:
        return (rewards >= 0) & (rewards == np.floor(rewards)) & (rewards <= _LARGEST_COUNT)

    def start(self, rewards: PerRound, mean: PerRound, variance: PerRound) -> tuple[PerRound, PerRound]:
        """The N(m, v) around which the first site is taken: the counts themselves, as in a Poisson regression.

        A wide prior expects e^(v/2), which has no limit, and a step down from there lowers η by about one. A low start
        with a high count would shoot up to r / e^m.
        """
        return np.log(rewards + 0.5), np.zeros_like(variance)

    def expected_log_density(self, rewards: PerRound, mean: PerRound, variance: PerRound) -> PerRound:
        exponent = mean + 0.5 * variance
        excess = np.maximum(exponent - _LARGEST_EXPONENT, 0.0)
        # Beyond e^100 the rate continues along its tangent: it never overflows, and still slopes the right way.
        rate = np.exp(exponent - excess) * (1.0 + excess)
        return rewards * mean - rate - gammaln(rewards + 1.0)

    def log_predictive(self, rewards: PerRound, mean: PerRound, variance: PerRound) -> PerRound:
        """Gauss-Hermite quadrature around the peak of p(r | η) N(η; m, v), which fixed nodes could miss."""
        # The peak solves η = m + v (r - e^η): Wright's ω has ω(z) + log ω(z) = z. Offsets t = η - m keep small v exact.
        v = np.maximum(variance, 1e-100)
        omega = wrightomega(mean + v * rewards + np.log(v))
        peak = np.where(omega > 1.0, np.log(np.maximum(omega, 1.0) / v) - mean, v * rewards - omega)
        spread = 1.0 / np.sqrt(1.0 / v + omega / v)
        terms = list[PerRound]()
        for node, share in HERMITE:
            t = peak + node * spread
            terms.append(np.log(share) + 0.5 * node**2 + (self.log_density(rewards, mean + t) - 0.5 * t**2 / v))
        return np.logaddexp.reduce(terms, axis=0) + np.log(spread) - 0.5 * np.log(v)

    def slopes(self, rewards: PerRound, mean: PerRound, variance: PerRound) -> tuple[PerRound, PerRound]:
        rate = np.exp(np.minimum(mean + 0.5 * variance, _LARGEST_EXPONENT))
        return rewards - rate, rate

    def mean_reward(self, mean: Numbers, variance: Numbers) -> Numbers:
        return np.exp(np.minimum(self.score(mean, variance), 700.0))

    def mean_slope(self, mean: Numbers, variance: Numbers) -> Numbers:
        return self.mean_reward(mean, variance)

    def score(self, mean: Numbers, variance: Numbers) -> Numbers:
        return mean + 0.5 * variance


_LARGEST_COUNT = 2.0**53
"""Above this, floating point has no odd numbers."""
_LARGEST_EXPONENT = 100.0
