"""A policy on the rounds of a log: the weights of the rounds, and how far a held-out model is off in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtri, stdtrit

from manyarms._base.checks import Array, row_weights
from manyarms.core import LoggedData
from manyarms.estimators.intervals import standard_error

KNEE = 0.5
"""Errors of a model are factors where a value is above this share of the usual one, and differences below."""
SPREAD_ROUNDS = 10.0
"""The observed spread of the residuals decides only with many more effective rounds than this."""
MANY_ROUNDS = 30
"""From so many rounds on, their variance is taken as it is."""
RATE_MARGIN = 1e-3
"""A rate of 0 or 1 would have no spread at all."""
SMALLEST = 1e-140
"""Values whose squares would vanish count as zero."""


@dataclass(frozen=True)
class PolicyResiduals:
    """The residuals of a policy on logged rounds: weights of the rounds, and the rewards that a held-out model expects.

    Attributes:
        logs: The rounds.
        weights: (n,) π(a_i | x_i) / π_0(a_i | x_i); ones for the policy that repeats the log.
        at_logged: (n,) r̂(x_i, a_i).
        expected: (n,) Σ_a π(a | x_i) r̂(x_i, a).
    """

    logs: LoggedData
    weights: Float[Array, " n"]
    at_logged: Float[Array, " n"]
    expected: Float[Array, " n"]

    @classmethod
    def join(cls, parts: Sequence[PolicyResiduals], logs: LoggedData) -> PolicyResiduals:
        """Several parts of a log as one, `logs`, which holds their rounds in this order."""
        columns = ([getattr(part, name) for part in parts] for name in ("weights", "at_logged", "expected"))
        return cls(logs, *map(np.concatenate, columns))

    def take(self, rows: Int[Array, " m"]) -> PolicyResiduals:
        """The policy on some of the rounds."""
        columns = (column[rows] for column in (self.weights, self.at_logged, self.expected))
        return PolicyResiduals(self.logs.take(rows), *columns)

    @cached_property
    def counts(self) -> Float[Array, " n"]:
        """The number of times that each round counts."""
        return row_weights(self.logs.weights, len(self.logs))

    @cached_property
    def is_binary(self) -> bool:
        """True where rewards are 0 or 1."""
        return bool(np.isin(self.logs.rewards, (0.0, 1.0)).all())

    @property
    def model(self) -> float:
        """The value of the policy by the model."""
        return float(np.average(self.expected, weights=self.counts))

    @property
    def mean_reward(self) -> float:
        """The mean logged reward."""
        return float(np.average(self.logs.rewards, weights=self.counts))

    @property
    def shares(self) -> Float[Array, " n"]:
        """The weight of a round in the self-normalised mean; zeros where no round has any weight."""
        total = float(self.counts @ self.weights)
        return self.weights / total if total > 0 else np.zeros(len(self.weights))

    @property
    def mean_weight(self) -> float:
        """About 1 if the log covers the policy's choices."""
        return float(np.average(self.weights, weights=self.counts))

    @property
    def effective_size(self) -> float:
        """The number of equally weighted rounds that would tell as much.

        Weights sum to the number of rounds on average. Where they fall short, the log has missed some of the policy's
        choices: they count as a single round that would carry all the missing weight.
        """
        n, total = float(self.counts.sum()), float(self.counts @ self.weights)
        if total == 0:
            return 0.0
        whole = max(total, n)
        return 1.0 / (float(self.counts @ (self.weights / whole) ** 2) + (max(n - total, 0.0) / whole) ** 2)

    @property
    def missed(self) -> float:
        """The factor by which the variance grows because the log has missed some of the policy's choices."""
        of_seen = float((self.counts * self.shares**2).sum())
        return 1.0 if of_seen == 0 else 1.0 / (self.effective_size * of_seen)

    @cached_property
    def residuals(self) -> Float[Array, " n"]:
        """r_i - r̂(x_i, a_i)."""
        return self.logs.rewards - self.at_logged

    @property
    def mean_residual(self) -> float:
        """The model's error on the logged rounds."""
        return float(np.average(self.residuals, weights=self.counts))

    @property
    def correction(self) -> float:
        """The model's error for this policy: the self-normalised mean of the weighted residuals."""
        return float((self.counts * self.shares) @ self.residuals)

    @property
    def spread_everywhere(self) -> float:
        """The variance of the residuals of all rounds, larger by as much as in a t interval if they are few.

        If rewards are 0 or 1, it is at least that of one more reward of each kind: a log without a click does not show
        that there are none.
        """
        spread = float(np.average((self.residuals - self.mean_residual) ** 2, weights=self.counts))
        spread *= _few_rounds(int(np.count_nonzero(self.counts)))
        if not self.is_binary:
            return spread
        rate = (float(self.counts @ self.logs.rewards) + 1.0) / (float(self.counts.sum()) + 2.0)
        return max(spread, min(rate * (1.0 - rate), 1.0 / (float(self.counts.sum()) + 2.0)))

    def spread_by(self, parts: Float[Array, " n"]) -> float:
        """The mean square of the residuals around the policy's, where each round has some part in it."""
        total = float(self.counts @ parts)
        return 0.0 if total == 0 else float((self.counts * parts) @ (self.residuals - self.correction) ** 2) / total


def _few_rounds(n: int) -> float:
    """The square of how many times as wide as a normal interval a t interval of n rounds is; 1 for many rounds."""
    if not 1 < n < MANY_ROUNDS:
        return 1.0
    return float((stdtrit(n - 1, 0.975) / ndtri(0.975)) ** 2) * n / (n - 1)


def clustering(policy: PolicyResiduals, gap: Float[Array, " n"]) -> float:
    """The factor by which the variance of a policy's residuals grows because those of one user or session agree."""
    logs, terms = policy.logs, gap * (policy.residuals - policy.correction)
    alone = standard_error(terms, logs, None)
    if logs.groups is None or alone == 0:
        return 1.0
    return max(1.0, (standard_error(terms, logs, logs.groups) / alone) ** 2)
