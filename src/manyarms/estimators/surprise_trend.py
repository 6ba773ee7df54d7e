"""The trend of a model's residuals with surprise, -log π_0 of the logged action: what the logging policy knew.

Whoever wrote the log chose actions for reasons. Some of these are not in the features, so a model that learned from the
log expects the rewards of good reasons everywhere. Where the log did not choose an action, it then expects too much.
The residuals of rounds in which the log made an unlikely choice show by how much.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array
from manyarms.estimators.intervals import standard_error
from manyarms.estimators.policy_residuals import SMALLEST, PolicyResiduals
from manyarms.linalg.indexing import sum_by


@dataclass(frozen=True)
class SurpriseTrend:
    """A linear trend of residuals with surprise: E[r - r̂] = level + slope (s - s̄), where s = -log π_0(a | x).

    Attributes:
        slope: The slope, as far as it exceeds its own noise.
        level: The mean residual of the log, to the same extent.
        surprises: (n,) s_i of the logged rounds.
        mean: Their mean s̄.
        trust: How much of the slope exceeds its noise, from 0, where there is no trend, to 1.
    """

    slope: float
    level: float
    surprises: Float[Array, " n"]
    mean: float
    trust: float = 0.0

    @classmethod
    def learn(cls, rounds: PolicyResiduals, propensities: Float[Array, " n"]) -> SurpriseTrend:
        """The trend in a log: the line of least squares, as far as its slope exceeds its standard error.

        Args:
            rounds: The rounds as they were logged, and the rewards that a held-out model expects.
            propensities: (n,) π_0(a_i | x_i).
        """
        counts, surprises = rounds.counts, -np.log(propensities)
        mean = float(np.average(surprises, weights=counts))
        apart = surprises - mean
        # Sums instead of products of vectors, which would depend on the threads of BLAS.
        square = float(np.sum(counts * apart**2))
        residuals = rounds.residuals - rounds.mean_residual
        enough = square > SMALLEST and _carriers(counts * apart**2, rounds.logs.groups) >= LEAST_CARRIERS
        slope = float(np.sum(counts * apart * residuals)) / square if enough else 0.0
        if slope == 0.0 or not np.isfinite(slope):
            return cls(0.0, 0.0, surprises, mean)
        rest = apart * (residuals - slope * apart)
        error = standard_error(rest, rounds.logs, rounds.logs.groups) * float(counts.sum()) / square
        trusted = max(0.0, 1.0 - (error / slope) ** 2)
        return cls(trusted * slope, trusted * rounds.mean_residual, surprises, mean, trusted)

    def corrected(self, policy: PolicyResiduals) -> PolicyResiduals:
        """A policy with the rewards that model and trend expect together."""
        if self.slope == 0.0:
            return policy
        return replace(
            policy,
            at_logged=policy.at_logged + self.level + self.slope * (self.surprises - self.mean),
            expected=policy.expected + self.level + self.slope * self.extra_surprise(policy),
        )

    def extra_surprise(self, policy: PolicyResiduals) -> float:
        """The mean surprise of a policy's choices, minus that of the log's.

        It is the mean over the logged rounds by the policy's weights. Choices that the log has missed count as one more
        round that carries the missing weight w: its surprise is log w.
        """
        counts, weights = policy.counts, policy.weights
        n, total = float(counts.sum()), float(np.sum(counts * weights))
        missing = max(n - total, 0.0)
        surprise = float(np.sum(counts * weights * self.surprises))
        if missing > 0.0:
            # No farther than the log reaches.
            surprise += missing * float(np.clip(np.log(missing), self.surprises.min(), self.surprises.max()))
        return surprise / max(total, n) - self.mean

    def flatters(self, policy: PolicyResiduals) -> float:
        """The extent to which hidden reasons flatter a policy, from 0 to 1.

        It is 0 where residuals show no such reasons, and where the trend says more of the policy than the model does: a
        policy that does what the log did for good reasons gains from them. Beyond that, it grows with the distance to
        which the line is drawn out, and is full at one nat.
        """
        extra = self.extra_surprise(policy)
        return self.trust * min(1.0, abs(extra)) if self.slope * extra < 0.0 else 0.0


def _carriers(leverage: Float[Array, " n"], groups: Int[Array, " n"] | None) -> float:
    """The effective number of rounds, or of groups, that a slope rests on: fewer where a few of them are far out."""
    parts = leverage if groups is None else sum_by(groups, leverage)[1]
    return float(np.sum(parts)) ** 2 / float(np.sum(parts**2))


LEAST_CARRIERS = 10
"""With fewer rounds a line passes so close to them that its noise cannot be told from their residuals."""
