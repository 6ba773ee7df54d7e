"""Expectations of the logistic function g(η) = 1 / (1 + e⁻η) for η ~ N(m, s²), however wide.

Up to s = NARROW they are by Gauss-Hermite quadrature, with as many nodes as the width needs. Beyond, the nodes lie
farther apart than g takes to rise, and a closed form takes over, with a relative error below 1e-6 for every m and s. On
either side of zero g is a short sum of exponentials,

    g(η) = Σ_k c_k e^(kη) for η < 0,   1 - Σ_k c_k e^(-kη) for η > 0,

with Σ_k c_k u^(k-1) the polynomial through 1 / (1 + u) at Chebyshev's points of [0, 1]; and E[e^(kη); η < 0] is known.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import erfcx, log_expit, log_ndtr, ndtr

from manyarms._base.checks import Array
from manyarms.likelihoods.likelihood import HERMITE, NARROW, Numbers, PerRound, Rule, hermite_rule
from manyarms.linalg.indexing import chunks

Quadrature = Callable[[PerRound, PerRound, Rule], tuple[PerRound, ...]]
ClosedForm = Callable[[PerRound, PerRound], tuple[PerRound, ...]]


def expected_logistic(mean: Numbers, spread: Numbers) -> Numbers:
    """E g(η)."""
    return _by_width(mean, spread, _narrow_expected, _wide_expected)[0]


def logistic_expectations(mean: Numbers, spread: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """E log g(η), its derivative by m, which is E g(-η), and minus its second derivative by m, which is E g'(η)."""
    density, miss, slope = _by_width(mean, spread, _narrow_expectations, _wide_expectations)
    return density, miss, slope


def log_expected_logistic(mean: Numbers, spread: Numbers) -> Numbers:
    """log E g(η)."""
    return _by_width(mean, spread, _narrow_log_expected, _wide_log_expected)[0]


def _by_width(mean: Numbers, spread: Numbers, narrow: Quadrature, wide: ClosedForm) -> tuple[Numbers, ...]:
    """Apply to each entry the formula for its width, one chunk that fits the cache at a time."""
    shape = np.broadcast_shapes(mean.shape, spread.shape)
    m, s = (np.broadcast_to(part, shape).reshape(-1) for part in (mean, spread))
    parts = [_chunk_by_width(m[part], s[part], narrow, wide) for part in chunks(max(1, len(m)), _CHUNK)]
    return tuple(np.concatenate(part).reshape(shape) for part in zip(*parts, strict=True))


def _chunk_by_width(m: PerRound, s: PerRound, narrow: Quadrature, wide: ClosedForm) -> tuple[PerRound, ...]:
    band = np.searchsorted(_WIDTHS, s)
    lowest, highest = int(band.min(initial=len(_WIDTHS))), int(band.max(initial=0))

    def apply(number: int, rows: slice | Array) -> tuple[PerRound, ...]:
        return wide(m[rows], s[rows]) if number == len(RULES) else narrow(m[rows], s[rows], RULES[number])

    if lowest >= highest:
        return apply(lowest, slice(None))
    out: tuple[PerRound, ...] = ()
    for number in range(lowest, highest + 1):
        rows = np.flatnonzero(band == number)
        answers = apply(number, rows)
        out = out or tuple(np.empty_like(m) for _ in answers)
        for whole, part in zip(out, answers, strict=True):
            whole[rows] = part
    return out


def _narrow_expected(mean: PerRound, spread: PerRound, rule: Rule) -> tuple[PerRound, ...]:
    small, smaller = np.exp(-np.abs(mean)), np.zeros_like(mean)
    square = small**2
    for node, share in rule:
        f = np.exp(node * spread)
        product = small * (f + 1.0 / f) + square
        smaller += share * (product + square) / (1.0 + product)
    return (np.where(mean > 0, 1.0 - smaller, smaller),)


def _narrow_expectations(mean: PerRound, spread: PerRound, rule: Rule) -> tuple[PerRound, ...]:
    """Pairs of nodes η = -|m| ± zs, on the side where g is small, so that no expectation loses its digits.

    With u = e^-|m| and f = e^(zs): Π (1 + e^η) = 1 + u (f + 1/f) + u² = D. Then Σ log(1 + e^η) = log D,
    Σ g(η) = (u (f + 1/f) + 2u²) / D, and the difference of both g(η) is u (f - 1/f) / D.
    """
    small = np.exp(-np.abs(mean))
    square = small**2
    rise, smaller, slope = (np.zeros_like(mean) for _ in range(3))
    for node, share in rule:
        f = np.exp(node * spread)
        inverse = 1.0 / f
        both = small * (f + inverse)
        product = both + square
        rise += share * np.log1p(product)
        part = share / (1.0 + product)
        smaller += part * (product + square)
        # E g' = E z g / s (Stein). The right side is the derivative of the quadrature itself; without spread only the
        # left one can be computed.
        if rule is _SHARP:
            slope += part * part / share * (both * (1.0 + square) + 4.0 * square)
        else:
            slope += (node * part) * small * (f - inverse)
    if rule is not _SHARP:
        slope /= spread
    return np.minimum(mean, 0.0) - rise, np.where(mean > 0, smaller, 1.0 - smaller), slope


def _narrow_log_expected(mean: PerRound, spread: PerRound, rule: Rule) -> tuple[PerRound, ...]:
    terms = [np.log(share) + log_expit(mean + sign * node * spread) for node, share in rule for sign in (-1.0, 1.0)]
    return (np.logaddexp.reduce(terms, axis=0),)


def _wide_expected(mean: PerRound, spread: PerRound) -> tuple[PerRound, ...]:
    # The smaller of E g and 1 - E g is computed, so that neither loses its digits.
    low = -np.abs(mean)
    expected = ndtr(low / spread)
    for _, c, under, over in _exponentials(low, spread):
        expected += c * (under - over)
    return (np.where(mean > 0, 1.0 - expected, expected),)


def _wide_expectations(mean: PerRound, spread: PerRound) -> tuple[PerRound, ...]:
    low, z = -np.abs(mean), mean / spread
    smaller, slope = ndtr(low / spread), np.zeros_like(mean)
    # log g(η) = min(η, 0) - log(1 + e^-|η|), and log(1 + u) = Σ_k c_k u^k / k is the integral of g's own sum.
    density = mean * ndtr(-z) - spread * np.exp(-0.5 * np.clip(z, -_FAR, _FAR) ** 2) / np.sqrt(2 * np.pi)
    for k, c, under, over in _exponentials(low, spread):
        both = under + over
        smaller += c * (under - over)
        slope += k * c * both
        density -= c / k * both
    return np.minimum(density, 0.0), np.where(mean > 0, smaller, 1.0 - smaller), slope


def _wide_log_expected(mean: PerRound, spread: PerRound) -> tuple[PerRound, ...]:
    (expected,), z = _wide_expected(mean, spread), mean / spread
    # Below the range of floating point: g(η) is 1 above zero and e^η below, up to a factor of 2.
    tiny = np.logaddexp(log_ndtr(z), mean + 0.5 * spread**2 + log_ndtr(-z - spread))
    return (np.where(expected > 1e-280, np.log(np.maximum(expected, 1e-280)), tiny),)


def _exponentials(mean: PerRound, spread: PerRound) -> list[tuple[float, float, PerRound, PerRound]]:
    """k, c_k, E[e^(kη); η < 0] and E[e^(-kη); η > 0], for every k.

    The expectation is e^(km + k²s²/2) Φ(-m/s - ks), written so that neither factor overflows.
    """
    z = mean / spread
    near, is_far = np.clip(z, -_FAR, _FAR), np.abs(z) > _FAR
    bell, any_far = 0.5 * np.exp(-0.5 * near**2), bool(is_far.any())
    near, step = near / np.sqrt(2.0), spread / np.sqrt(2.0)
    out = list[tuple[float, float, PerRound, PerRound]]()
    for k, c in zip(_ORDERS.tolist(), EXPONENTIAL_COEFFICIENTS.tolist(), strict=True):
        under, over = bell * erfcx(k * step + near), bell * erfcx(k * step - near)
        if any_far:
            under[is_far], over[is_far] = (_far_exponential(sign * mean[is_far], spread[is_far], k) for sign in (1, -1))
        out.append((k, c, under, over))
    return out


def _far_exponential(mean: PerRound, spread: PerRound, order: float) -> PerRound:
    x, exponent = mean / spread + order * spread, np.minimum(order * mean + 0.5 * (order * spread) ** 2, 0.0)
    return np.where(x < 0, np.exp(exponent) * ndtr(-x), 0.0)


# The rules are symmetric and have no node at zero, so a positive node z stands for -z as well.
RULES = tuple(
    tuple((node, share) for node, share in rule if node > 0)
    for rule in (hermite_rule(2), hermite_rule(10), hermite_rule(14), HERMITE)
)
_SHARP = RULES[0]
_WIDTHS = np.array([1e-3, 0.3, 0.45, NARROW])
"""The standard deviation up to which each rule is used. The shorter ones have twelve digits there."""
_CHUNK = 1 << 12
_ORDERS = np.arange(1.0, 9.0)
# Both ends of [0, 1] are among the points, so that the two sides of g meet at one half.
_POINTS = 0.5 + 0.5 * np.cos(np.pi * np.arange(8) / 7)
EXPONENTIAL_COEFFICIENTS = np.linalg.solve(np.vander(_POINTS, increasing=True), 1.0 / (1.0 + _POINTS))
_FAR = 30.0
"""Standard deviations up to which e^(-z²/2) and its inverse stay within floating point."""
