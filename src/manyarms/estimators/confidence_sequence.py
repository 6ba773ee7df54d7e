"""Confidence sequences: intervals that hold at all numbers of rounds at once, for those who look every night."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, as_scalar, as_vector, check_rows
from manyarms.core.estimate import Method, Shape
from manyarms.errors import InputError, RangeError
from manyarms.estimators.intervals import Interval, Units

BOLDEST = 0.5
"""The largest stake on a single round."""


class ConfidenceSequence(Interval):
    """An interval that stays valid however often you look: with probability `level`, it covers the truth every time.

    The other intervals hold at one number of rounds that was fixed beforehand. Whoever looks every night and stops at
    the first night with a clear answer is wrong far more often than they say. This is the empirical Bernstein sequence
    with predictable stakes of Waudby-Smith and Ramdas (2024, "Estimating means of bounded random variables by
    betting"), two-sided and intersected over time, so that it never grows again.

    It holds for independent rounds whose contributions lie between known limits: for IPS with rewards from 0 to 1 and
    `cap=20`, from 0 to 20. Rounds must be in the order in which they came. It is for means, such as IPS and DR with
    clipped weights, and not for ratios such as snIPS.

    Args:
        low: The smallest contribution that a round can have.
        high: The largest.

    Examples:
        >>> import numpy as np
        >>> import manyarms as ma
        >>> clicks = np.random.default_rng(0).random(2000) < 0.3
        >>> looks = ma.ConfidenceSequence(0.0, 1.0).intervals(clicks)
        >>> bool((looks[:, 0] <= 0.3).all() and (looks[:, 1] >= 0.3).all())
        True
    """

    method: Method = "sequence"

    def __init__(self, low: float, high: float):
        self.low = as_scalar("low", low)
        self.high = as_scalar("high", high)
        if not self.low < self.high:
            raise RangeError(f"must be above low={self.low:g}; got {self.high:g}.", argument="high")

    def intervals(self, contributions: Any, level: float = 0.95) -> Float[Array, "n 2"]:
        """The intervals after each round, one row per look: each depends only on the rounds up to it.

        Args:
            contributions: (n,) The rounds' contributions in their order, as `SamplingEstimator.contributions` gives.
            level: The probability that all rows hold the truth.
        """
        x = self._checked(as_vector("contributions", contributions))
        level = as_scalar("level", level, above=0.0, below=1.0)
        ends = _sequence((x - self.low) / (self.high - self.low), 1.0 - level)
        return self.low + (self.high - self.low) * ends

    def shape(self, units: Units) -> Shape:
        remedy = "Use another interval, or make each group one round with its mean reward."
        if units.grouped:
            raise InputError("a confidence sequence counts rounds one by one, and these are in groups.", remedy)
        if (units.size != 1.0).any():
            raise InputError("a confidence sequence counts rounds once; these have weights.", "Repeat rows instead.")
        if (units.denominator != 1.0).any():
            raise InputError(
                "a confidence sequence is for a mean over rounds, and this estimate is a ratio of two.",
                "Use IPS or DR with a cap on the weights.",
            )
        return _SequenceShape(self, self._checked(units.direct + units.numerator))

    def _checked(self, contributions: Float[Array, " n"]) -> Float[Array, " n"]:
        check_rows(
            "contributions", contributions, lambda c: (c >= self.low) & (c <= self.high), RangeError,
            f"must be from low={self.low:g} to high={self.high:g}", "Widen the limits, or cap the weights.",
        )  # fmt: skip
        return contributions


@dataclass(frozen=True)
class _SequenceShape:
    sequence: ConfidenceSequence
    contributions: Float[Array, " n"]

    def interval(self, level: float) -> tuple[float, float]:
        low, high = self.sequence.intervals(self.contributions, level)[-1]
        return float(low), float(high)

    @property
    def probability_positive(self) -> float:
        """The largest level of a one-sided bound that excludes zero at some look so far; one half when none does."""
        least, most = np.log(2.0), 30.0
        for _ in range(40):
            middle = (least + most) / 2
            low, high = self.interval(1.0 - np.exp(-middle))
            least, most = (middle, most) if low > 0 or high < 0 else (least, middle)
        low, high = self.interval(1.0 - np.exp(-least))
        if low <= 0 <= high:
            return 0.5
        probability = 1.0 - 0.5 * float(np.exp(-least))
        return probability if low > 0 else 1.0 - probability


def _sequence(x: Float[Array, " n"], error: float) -> Float[Array, "n 2"]:
    """The sequence for numbers in [0, 1] whose two sides together miss with probability `error`."""
    n, log = np.arange(1, len(x) + 1), np.log(2.0 / error)
    # Before the first round: mean 1/2, variance 1/4. A stake may depend on earlier rounds alone.
    means = (0.5 + np.cumsum(x)) / (n + 1)
    variances = (0.25 + np.cumsum((x - means) ** 2)) / (n + 1)
    earlier_mean, earlier_variance = np.append(0.5, means[:-1]), np.append(0.25, variances[:-1])
    stakes = np.minimum(np.sqrt(2 * log / (earlier_variance * n * np.log1p(n))), BOLDEST)
    total = np.cumsum(stakes)
    centre = np.cumsum(stakes * x) / total
    half = (log + np.cumsum((x - earlier_mean) ** 2 * (-np.log1p(-stakes) - stakes))) / total
    low = np.maximum.accumulate(np.maximum(centre - half, 0.0))
    high = np.minimum.accumulate(np.minimum(centre + half, 1.0))
    # Where rounds are not alike over time, nothing may be left of the intersection.
    empty = low > high
    low[empty], high[empty] = np.maximum(centre - half, 0.0)[empty], np.minimum(centre + half, 1.0)[empty]
    return np.stack([low, high], axis=1)
