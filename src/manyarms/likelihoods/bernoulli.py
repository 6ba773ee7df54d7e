"""Clicks: rewards that are 0 or 1.

The rest of the file computes expectations of the logistic function g(η) = 1 / (1 + e⁻η) for η ~ N(m, s²), however
wide: up to s = NARROW by Gauss-Hermite quadrature. Beyond, the nodes lie farther apart than g takes to rise, and a
closed form takes over, with a relative error below 1e-6 for every m and s. On either side of zero g is a short sum of
exponentials,

    g(η) = Σ_k c_k e^(kη) for η < 0,   1 - Σ_k c_k e^(-kη) for η > 0,

with Σ_k c_k u^(k-1) the polynomial through 1 / (1 + u) at Chebyshev's points of [0, 1]; and E[e^(kη); η < 0] is known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool
from scipy.special import erfcx, expit, log_expit, log_ndtr, ndtr

from manyarms._base.checks import Array, check_choice
from manyarms.likelihoods.likelihood import HERMITE, NARROW, Likelihood, Numbers, PerRound, Treatment


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
    flag_remedy = "Use --likelihood gaussian for other numbers, --likelihood poisson for counts."

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
        return _expected_log_logistic(_towards(rewards, mean), np.sqrt(variance))

    def log_predictive(self, rewards: PerRound, mean: PerRound, variance: PerRound) -> PerRound:
        return _log_expected_logistic(_towards(rewards, mean), np.sqrt(variance))

    def slopes(self, rewards: PerRound, mean: PerRound, variance: PerRound) -> tuple[PerRound, PerRound]:
        expected, slope = _expected_logistic_and_slope(mean, np.sqrt(variance))
        return rewards - expected, slope

    def score(self, mean: Numbers, variance: Numbers) -> Numbers:
        """The paper's Step (C): g is increasing, so its argument ranks actions."""
        return self._shrunk(mean, variance) if self.expected == "probit" else self.mean_reward(mean, variance)

    def reward_given(self, predictor: Numbers) -> Numbers:
        return expit(predictor)

    def mean_reward(self, mean: Numbers, variance: Numbers) -> Numbers:
        if self.expected == "probit":
            return expit(self._shrunk(mean, variance))
        return _expected_logistic(mean, np.sqrt(variance))

    def mean_slope(self, mean: Numbers, variance: Numbers) -> Numbers:
        if self.expected == "probit":
            inner = self._shrunk(mean, variance)
            return expit(inner) * expit(-inner) / np.sqrt(1.0 + np.pi / 8.0 * variance)
        return _expected_logistic_and_slope(mean, np.sqrt(variance))[1]

    @staticmethod
    def _shrunk(mean: Numbers, variance: Numbers) -> Numbers:
        return mean / np.sqrt(1.0 + np.pi / 8.0 * variance)


def _towards(rewards: PerRound, predictor: PerRound) -> PerRound:
    """η where the reward is 1, -η where it is 0; log p(r | η) is log g of this number."""
    return np.where(rewards > 0.5, predictor, -predictor)


Formula = Callable[[Array, Array], tuple[Array, ...]]


def _expected_logistic(mean: Numbers, spread: Numbers) -> Numbers:
    """E g(η)."""
    return _by_width(mean, spread, _quadrature(expit), lambda m, s: _wide_moments(m, s)[:1])[0]


def _expected_logistic_and_slope(mean: Numbers, spread: Numbers) -> tuple[Numbers, Numbers]:
    """E g(η) and E g'(η), its derivative by m."""
    expected, slope = _by_width(mean, spread, _narrow_moments, _wide_moments)
    return expected, slope


def _expected_log_logistic(mean: Numbers, spread: Numbers) -> Numbers:
    """E log g(η)."""
    return _by_width(mean, spread, _quadrature(log_expit), _wide_log)[0]


def _log_expected_logistic(mean: Numbers, spread: Numbers) -> Numbers:
    """log E g(η)."""
    return _by_width(mean, spread, _narrow_log_expected, _wide_log_expected)[0]


def _by_width(mean: Numbers, spread: Numbers, narrow: Formula, wide: Formula) -> tuple[Numbers, ...]:
    """Apply to each entry the formula for its width."""
    far = spread > NARROW
    if not far.any():
        return narrow(mean, spread)
    few, many = (formula(mean[part], spread[part]) for formula, part in ((narrow, ~far), (wide, far)))
    out = tuple(np.empty_like(mean) for _ in few)
    for whole, left, right in zip(out, few, many, strict=True):
        whole[~far], whole[far] = left, right
    return out


def _quadrature(function: Callable[[Array], Array]) -> Formula:
    def expected(mean: Numbers, spread: Numbers) -> tuple[Numbers, ...]:
        out = np.zeros_like(mean)
        for node, share in HERMITE:
            out += share * function(mean + node * spread)
        return (out,)

    return expected


def _narrow_moments(mean: Numbers, spread: Numbers) -> tuple[Numbers, ...]:
    expected, tilt = np.zeros_like(mean), np.zeros_like(mean)
    for node, share in HERMITE:
        p = expit(mean + node * spread)
        expected += share * p
        tilt += share * node * p
    # E g' = E z g / s (Stein). The right side is the derivative of the quadrature itself; without spread only the left
    # one can be computed.
    sharp = spread <= 1e-3
    slope = tilt / np.where(sharp, 1.0, spread)
    if sharp.any():
        bend = np.zeros_like(mean)
        for node, share in HERMITE:
            eta = mean + node * spread
            bend += share * expit(eta) * expit(-eta)
        slope = np.where(sharp, bend, slope)
    return expected, slope


def _narrow_log_expected(mean: Numbers, spread: Numbers) -> tuple[Numbers, ...]:
    terms = [np.log(share) + log_expit(mean + node * spread) for node, share in HERMITE]
    return (np.logaddexp.reduce(terms, axis=0),)


def _wide_moments(mean: PerRound, spread: PerRound) -> tuple[Numbers, ...]:
    # The smaller of E g and 1 - E g is computed, so that neither loses its digits.
    low = -np.abs(mean)
    expected, slope = ndtr(low / spread), np.zeros_like(mean)
    for k, c in zip(_ORDERS, EXPONENTIAL_COEFFICIENTS, strict=True):
        under, over = _below(low, spread, k), _below(-low, spread, k)
        expected += c * (under - over)
        slope += k * c * (under + over)
    return np.where(mean > 0, 1.0 - expected, expected), slope


def _wide_log(mean: PerRound, spread: PerRound) -> tuple[Numbers, ...]:
    # log g(η) = min(η, 0) - log(1 + e^-|η|), and log(1 + u) = Σ_k c_k u^k / k is the integral of the sum above.
    z = mean / spread
    out = mean * ndtr(-z) - spread * np.exp(-0.5 * np.clip(z, -_FAR, _FAR) ** 2) / np.sqrt(2 * np.pi)
    for k, c in zip(_ORDERS, EXPONENTIAL_COEFFICIENTS, strict=True):
        out -= c / k * (_below(mean, spread, k) + _below(-mean, spread, k))
    return (np.minimum(out, 0.0),)


def _wide_log_expected(mean: PerRound, spread: PerRound) -> tuple[Numbers, ...]:
    (expected, _), z = _wide_moments(mean, spread), mean / spread
    # Below the range of floating point: g(η) is 1 above zero and e^η below, up to a factor of 2.
    tiny = np.logaddexp(log_ndtr(z), mean + 0.5 * spread**2 + log_ndtr(-z - spread))
    return (np.where(expected > 1e-280, np.log(np.maximum(expected, 1e-280)), tiny),)


def _below(mean: PerRound, spread: PerRound, order: float) -> PerRound:
    """E[e^(kη); η < 0] = e^(km + k²s²/2) Φ(-m/s - ks), written so that neither factor overflows."""
    z = mean / spread
    near = np.clip(z, -_FAR, _FAR)
    out = 0.5 * np.exp(-0.5 * near**2) * erfcx((near + order * spread) / np.sqrt(2.0))
    far = np.abs(z) > _FAR
    if far.any():
        m, s, x = mean[far], spread[far], z[far] + order * spread[far]
        exponent = np.minimum(order * m + 0.5 * (order * s) ** 2, 0.0)
        out[far] = np.where(x < 0, np.exp(exponent) * ndtr(-x), 0.0)
    return out


_ORDERS = np.arange(1.0, 9.0)
# Both ends of [0, 1] are among the points, so that the two sides of g meet at one half.
_POINTS = 0.5 + 0.5 * np.cos(np.pi * np.arange(8) / 7)
EXPONENTIAL_COEFFICIENTS = np.linalg.solve(np.vander(_POINTS, increasing=True), 1.0 / (1.0 + _POINTS))
_FAR = 30.0
"""Standard deviations up to which e^(-z²/2) and its inverse stay within floating point."""
