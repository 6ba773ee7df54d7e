"""The drift alarm: evidence that forecasts have stopped to hold, with a bound on false alarms over any number of days.

If the forecasts are right, their normal scores z_1, z_2, ... are independent N(0, 1): each forecast is made with all
that came before. Against that stand two kinds of drift, from an unknown period s on:

- a lasting shift: z_t = δ + N(0, 1) with one δ ~ N(0, τ²);
- larger errors: z_t ~ N(0, 1 + κ²), independent.

The evidence is the ratio of the probability of the scores under a mixture of these, over all s with weights
1 / (s (s + 1)), to that under the forecasts. It starts at 1 and is a martingale if the forecasts are right. So it ever
exceeds 1 / α with a probability of at most α (Ville's inequality), however many periods there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array
from manyarms.jobs.reward_forecast import Series

SHIFT = 1.0
"""τ: the size of a lasting shift, in standard deviations of a period's forecast."""
LARGER = 3.0
"""κ²: how much larger the variance of the errors becomes."""


@dataclass(frozen=True)
class DriftAlarm:
    """A drift alarm, raised when the forecasts of a series have stopped to hold.

    Attributes:
        series: What the forecasts are about.
        group: The category or the policy.
        period: The period in which the alarm was raised.
        since: The period in which the drift most probably began, given all periods up to the last.
        evidence: The evidence at the time of the alarm, as odds.
        z: The mean score of the errors since then: above zero where rewards are higher than forecast.
        error: The observed mean reward minus the forecast one since then, over all rounds.
    """

    series: Series
    group: str
    period: str
    since: str
    evidence: float
    z: float
    error: float


@dataclass(frozen=True)
class DriftEvidence:
    """The evidence of drift in one series of forecasts.

    Attributes:
        log_evidence: (t,) The logarithm of the evidence after each period.
        log_ratios: (t,) The logarithm of the evidence for a drift that began in each period, given all of them.
    """

    log_evidence: Float[Array, " t"]
    log_ratios: Float[Array, " t"]

    def first_above(self, ratio: float) -> int | None:
        """The first period in which the evidence is at least this many to one; None if there is none."""
        above = np.flatnonzero(self.log_evidence >= np.log(ratio))
        return int(above[0]) if len(above) else None

    def began(self, alarm: int) -> int:
        """The place of the period in which the drift behind an alarm most probably began: not after the alarm."""
        return int(np.argmax(self.log_ratios[: alarm + 1]))


def drift_evidence(scores: Float[Array, " t"]) -> DriftEvidence:
    """The evidence of drift after each of t periods.

    Args:
        scores: The normal scores of the forecast errors, in the order of time.
    """
    n = len(scores)
    sums, squares = np.concatenate([[0.0], np.cumsum(scores)]), np.concatenate([[0.0], np.cumsum(scores**2)])
    starts = np.arange(1, n + 1, dtype=float)
    log_shares = -np.log(starts * (starts + 1.0))
    log_evidence, ratios = np.empty(n), np.empty(0)
    for t in range(1, n + 1):
        length = t + 1.0 - starts[:t]
        total, square = sums[t] - sums[:t], squares[t] - squares[:t]
        spread = 1.0 + SHIFT**2 * length
        shifted = 0.5 * (SHIFT**2 * total**2 / spread - np.log(spread))
        larger = 0.5 * (LARGER / (1.0 + LARGER) * square - length * np.log1p(LARGER))
        ratios = np.logaddexp(shifted, larger) - np.log(2.0)
        # Drift may also begin later: with probability 1 / (t + 1), nothing has happened yet.
        log_evidence[t - 1] = np.logaddexp.reduce(np.append(log_shares[:t] + ratios, -np.log(t + 1.0)))
    return DriftEvidence(log_evidence, ratios)
