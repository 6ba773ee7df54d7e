"""Shapes of estimates that are not normal: draws, and mixtures of normal distributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, cast, runtime_checkable

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr

from manyarms._base.checks import Array


@runtime_checkable
class Shape(Protocol):
    """The shape of an estimate: a distribution that is not normal."""

    def interval(self, level: float) -> tuple[float, float]:
        """The interval that holds the value with probability `level`."""
        ...

    @property
    def probability_positive(self) -> float:
        """The probability that the quantity is above zero."""
        ...


@dataclass(frozen=True)
class EmpiricalShape:
    """The shape of a reward or a value that is known by draws from it."""

    draws: Float[Array, " s"]

    def interval(self, level: float) -> tuple[float, float]:
        """The central interval that holds a share `level` of the draws."""
        low, high = np.quantile(self.draws, [0.5 - level / 2, 0.5 + level / 2])
        return float(low), float(high)

    @property
    def probability_positive(self) -> float:
        """The share of draws above zero; those at zero count half."""
        return float(np.mean(self.draws > 0) + 0.5 * np.mean(self.draws == 0))


@dataclass(frozen=True)
class NormalMixture:
    """The shape of a value that is several normal distributions with shares, such as one around each draw."""

    means: Float[Array, " k"]
    stds: Float[Array, " k"]
    shares: Float[Array, " k"]

    @classmethod
    def around(cls, values: Float[Array, " k"], std: float) -> NormalMixture:
        """Draws, each blurred by a normal distribution of the same width."""
        return cls(values, np.full(len(values), std), np.full(len(values), 1.0 / len(values)))

    def below(self, x: float) -> float:
        """The probability of a value below x."""
        z = np.divide(x - self.means, self.stds, out=np.sign(x - self.means) * 40.0, where=self.stds > 0)
        return float(self.shares @ ndtr(z))

    def interval(self, level: float) -> tuple[float, float]:
        """The central interval that holds the value with probability `level`."""
        return self.quantile(0.5 - level / 2), self.quantile(0.5 + level / 2)

    def quantile(self, share: float) -> float:
        """The number that the value is below with probability `share`."""
        # Between means that surely lie on either side: far ones of hardly any share would cost all precision.
        order, reach = np.argsort(self.means), 40 * float(self.stds.max())
        first, last = np.searchsorted(np.cumsum(self.shares[order]), (share / 2, (1 + share) / 2))
        low = float(self.means[order[max(first - 1, 0)]]) - reach
        high = float(self.means[order[min(last + 1, len(order) - 1)]]) + reach
        # Cells without a width are steps, which may reach beyond the share at either end.
        if not high > low or self.below(low) >= share:
            return low
        if self.below(high) <= share:
            return high
        from scipy.optimize import brentq  # noqa: PLC0415  slow to import

        return cast(float, brentq(lambda x: self.below(x) - share, low, high, xtol=1e-12 * (high - low)))

    @property
    def probability_positive(self) -> float:
        """The probability that the quantity is above zero."""
        return 1.0 - self.below(0.0)
