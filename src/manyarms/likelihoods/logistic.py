"""Expectations of the logistic function g(η) = 1 / (1 + e⁻η) for η ~ N(m, s²), however wide.

Up to s = NARROW by Gauss-Hermite quadrature. Beyond, its nodes lie farther apart than g takes to rise, and a closed
form takes over, with a relative error below 1e-6 for every m and s. On either side of zero g is a short sum of
exponentials,

    g(η) = Σ_k c_k e^(kη) for η < 0,   1 - Σ_k c_k e^(-kη) for η > 0,

with Σ_k c_k u^(k-1) the polynomial through 1 / (1 + u) at Chebyshev's points of [0, 1]; and E[e^(kη); η < 0] is known.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from scipy.special import erfcx, expit, log_expit, log_ndtr, ndtr

from manyarms._base.checks import Array
from manyarms.likelihoods.likelihood import NARROW, hermite

Numbers = Float[Array, "..."]
Formula = Callable[[Array, Array], tuple[Array, ...]]


def expected_logistic(mean: Numbers, spread: Numbers) -> Numbers:
    """E g(η)."""
    return _by_width(mean, spread, _narrow_logistic, lambda m, s: _wide_moments(m, s)[:1])[0]


def expected_logistic_and_slope(mean: Numbers, spread: Numbers) -> tuple[Numbers, Numbers]:
    """E g(η) and E g'(η), its derivative by m."""
    expected, slope = _by_width(mean, spread, _narrow_moments, _wide_moments)
    return expected, slope


def expected_log_logistic(mean: Numbers, spread: Numbers) -> Numbers:
    """E log g(η)."""
    return _by_width(mean, spread, _narrow_log, _wide_log)[0]


def log_expected_logistic(mean: Numbers, spread: Numbers) -> Numbers:
    """log E g(η)."""
    return _by_width(mean, spread, _narrow_log_expected, _wide_log_expected)[0]


def _by_width(mean: Numbers, spread: Numbers, narrow: Formula, wide: Formula) -> tuple[Numbers, ...]:
    """Each entry by the formula for its width."""
    far = spread > NARROW
    if not far.any():
        return narrow(mean, spread)
    few, many = (formula(mean[part], spread[part]) for formula, part in ((narrow, ~far), (wide, far)))
    out = tuple(np.empty_like(mean) for _ in few)
    for whole, left, right in zip(out, few, many, strict=True):
        whole[~far], whole[far] = left, right
    return out


def _narrow_logistic(mean: Numbers, spread: Numbers) -> tuple[Numbers, ...]:
    out = np.zeros_like(mean)
    for node, share in zip(*hermite(), strict=True):
        out += share * expit(mean + node * spread)
    return (out,)


def _narrow_moments(mean: Numbers, spread: Numbers) -> tuple[Numbers, ...]:
    expected, tilt = np.zeros_like(mean), np.zeros_like(mean)
    for node, share in zip(*hermite(), strict=True):
        p = expit(mean + node * spread)
        expected += share * p
        tilt += share * node * p
    # E g' = E z g / s (Stein). The right side is the derivative of the quadrature itself; without spread only the left
    # one can be computed.
    sharp = spread <= 1e-3
    slope = tilt / np.where(sharp, 1.0, spread)
    if sharp.any():
        slope = np.where(sharp, _quadrature_slope(mean, spread), slope)
    return expected, slope


def _quadrature_slope(mean: Numbers, spread: Numbers) -> Numbers:
    out = np.zeros_like(mean)
    for node, share in zip(*hermite(), strict=True):
        eta = mean + node * spread
        out += share * expit(eta) * expit(-eta)
    return out


def _narrow_log(mean: Numbers, spread: Numbers) -> tuple[Numbers, ...]:
    out = np.zeros_like(mean)
    for node, share in zip(*hermite(), strict=True):
        out += share * log_expit(mean + node * spread)
    return (out,)


def _narrow_log_expected(mean: Numbers, spread: Numbers) -> tuple[Numbers, ...]:
    terms = [np.log(share) + log_expit(mean + node * spread) for node, share in zip(*hermite(), strict=True)]
    return (np.logaddexp.reduce(terms, axis=0),)


def _wide_moments(mean: Float[Array, " n"], spread: Float[Array, " n"]) -> tuple[Numbers, ...]:
    # The smaller of E g and 1 - E g is computed, so that neither loses its digits.
    low = -np.abs(mean)
    expected, slope = ndtr(low / spread), np.zeros_like(mean)
    for k, c in zip(_ORDERS, _COEFFICIENTS, strict=True):
        under, over = _below(low, spread, k), _below(-low, spread, k)
        expected += c * (under - over)
        slope += k * c * (under + over)
    return np.where(mean > 0, 1.0 - expected, expected), slope


def _wide_log(mean: Float[Array, " n"], spread: Float[Array, " n"]) -> tuple[Numbers, ...]:
    # log g(η) = min(η, 0) - log(1 + e^-|η|), and log(1 + u) = Σ_k c_k u^k / k is the integral of the sum above.
    z = mean / spread
    out = mean * ndtr(-z) - spread * np.exp(-0.5 * np.clip(z, -_FAR, _FAR) ** 2) / np.sqrt(2 * np.pi)
    for k, c in zip(_ORDERS, _COEFFICIENTS, strict=True):
        out -= c / k * (_below(mean, spread, k) + _below(-mean, spread, k))
    return (np.minimum(out, 0.0),)


def _wide_log_expected(mean: Float[Array, " n"], spread: Float[Array, " n"]) -> tuple[Numbers, ...]:
    (expected, _), z = _wide_moments(mean, spread), mean / spread
    # Below what floating point can hold: g(η) is 1 above zero and e^η below, but for a factor of 2.
    tiny = np.logaddexp(log_ndtr(z), mean + 0.5 * spread**2 + log_ndtr(-z - spread))
    return (np.where(expected > 1e-280, np.log(np.maximum(expected, 1e-280)), tiny),)


def _below(mean: Float[Array, " n"], spread: Float[Array, " n"], order: float) -> Float[Array, " n"]:
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


def _interpolated(size: int) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
    """k and c_k; both ends of [0, 1] are among the points, so that the two sides of g meet at one half."""
    points = 0.5 + 0.5 * np.cos(np.pi * np.arange(size) / (size - 1))
    return np.arange(1.0, size + 1.0), np.linalg.solve(np.vander(points, increasing=True), 1.0 / (1.0 + points))


_ORDERS, _COEFFICIENTS = _interpolated(8)
_FAR = 30.0
"""In standard deviations: e^(-z²/2) and its inverse are still numbers."""
