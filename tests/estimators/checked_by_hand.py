"""The checked gain over a log by brute force: prior times likelihood, integrated by adaptive quadrature."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import integrate, stats
from scipy.special import ndtr

SCALE = 0.7
"""The scale of the model's error."""


@dataclass(frozen=True)
class CheckedByHand:
    """The distribution of a gain over the log, from plain arrays with a row per round.

    `kind` is that of the rewards. `is_pooled` says that the models have learned from these same rounds.
    """

    weights: np.ndarray
    at_logged: np.ndarray
    expected: np.ndarray
    rewards: np.ndarray
    posterior_std: float
    kind: str
    is_pooled: bool = False

    @cached_property
    def parts(self):
        """The density of the value, its bounds, the points to look at, the baseline and the blur."""
        weight, at_logged, expected, r, n = self.weights, self.at_logged, self.expected, self.rewards, len(self.rewards)
        residual = r - at_logged
        m, baseline = expected.mean(), r.mean()
        distance = min(1.0, max(0.5 * np.abs(weight - 1).mean(), 1 - weight.mean()))
        effective = max(weight.sum(), n) ** 2 / ((weight**2).sum() + max(n - weight.sum(), 0) ** 2)
        own = (weight @ residual) / weight.sum()
        variance = ((weight / weight.sum() - 1 / n) ** 2).sum() / (effective * (weight**2).sum() / weight.sum() ** 2)
        gap = (weight / weight.sum() - 1 / n) ** 2
        here = (gap @ (residual - own) ** 2) / gap.sum()
        spread = (10 * residual.var() + effective * here) / (10 + effective)
        if self.kind == "clicks":
            # The share of the variance of 0 and 1 that the model leaves.
            rate = (10 * m + effective * (m + own)) / (10 + effective)
            spread = (10 + effective * here / (rate * (1 - rate))) / (10 + effective)
        size = max(abs(m), abs(baseline))
        # The mean residual of the log is the model's error only as far as it exceeds its own noise.
        logged_size = max(abs(at_logged.mean()), abs(baseline))
        if self.kind == "signed":
            size = max(abs(m - baseline), at_logged.std())
            logged_size = max(abs(at_logged.mean() - baseline), at_logged.std())
        expected_error = (SCALE * np.hypot(at_logged.mean(), 0.5 * logged_size)) ** 2 + self.posterior_std**2
        trusted = expected_error / (expected_error + residual.var() / n)
        knee, centre = 0.5 * size, m + (1 - trusted * distance) * residual.mean()
        std = self.posterior_std / np.hypot(centre, knee)
        extra = 0.0
        if self.is_pooled:
            # Nothing is learned about the posterior's error, which is part of the noise of the observed value.
            std, extra = 0.0, self.posterior_std**2
            variance *= max(1 - extra / (variance * self.spread_at(m + own, spread)), 0.1)

        # What the quadrature asks for thousands of times is kept out of the density.
        scales = np.sqrt(std**2 + (stats.t.ppf(0.5 + (np.arange(40) + 0.5) / 80, 3) * SCALE * distance) ** 2)

        def density(v):
            u = np.arcsinh(v / knee) - np.arcsinh(centre / knee)
            prior = normal_density(u, scales).mean() / np.hypot(v, knee)
            return prior * normal_density(m + own - v, np.sqrt(variance * self.spread_at(v, spread)))

        bounds = {"clicks": (0.0, 1.0), "amounts": (0.0, 30.0), "signed": (-30.0, 30.0)}[self.kind]
        noise = trusted * residual.var() / n * max(0, min(1, 2 * distance) - effective / n)
        blur = np.sqrt((expected - at_logged).var(ddof=1) / n + noise + extra)
        return density, bounds, [m + own, centre, 0.0], baseline, blur

    def spread_at(self, value, spread):
        """The variance of residuals, were this the true value."""
        if self.kind != "clicks":
            return spread
        rate = min(max(value, 1e-3), 1 - 1e-3)
        return spread * rate * (1 - rate)

    @cached_property
    def total(self):
        """The integral of the density."""
        density, bounds, around, _, _ = self.parts
        return integrate.quad(density, *bounds, limit=500, points=around)[0]

    def below(self, x):
        """The probability that the gain is below x."""
        density, bounds, around, baseline, blur = self.parts

        def share(v):
            return density(v) * ndtr((x - v + baseline) / blur)

        return integrate.quad(share, *bounds, limit=500, points=around)[0] / self.total


def normal_density(x, std):
    """The density of a normal distribution around zero."""
    return np.exp(-0.5 * (x / std) ** 2) / (std * np.sqrt(2 * np.pi))
