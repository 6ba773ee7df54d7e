"""The marginal sensitivity model: estimates by weights if a hidden cause has bent the propensities.

The odds of the logged action, given everything that decided it, may differ from those in the log by a factor of at most
Λ (Tan, 2006). Then every inverse propensity lies in an interval, and the extreme values of snIPS are found by sorting
the rewards (Zhao, Small and Bhattacharya, 2019).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, as_flag, as_scalar, row_weights
from manyarms.core import LoggedData, Policy, Tabular
from manyarms.core.result_tables import number, signed_number
from manyarms.errors import InputError
from manyarms.estimators.estimator import check_target
from manyarms.estimators.logging_policy import MAX_MULTINOMIAL, EstimatedLogging, propensities_of

LARGEST = 1e6
"""Odds that differ by more than this factor are as good as any."""
USUAL_SHARE = 0.95
"""A column is as strong as the factor by which hiding it changes the odds, in this share of the rounds."""


@dataclass(frozen=True, repr=False)
class PropensitySensitivity(Tabular):
    """The result of `propensity_sensitivity`.

    Attributes:
        value: The value of the policy by the weights as logged.
        gain: The same minus the mean reward of the log.
        tipping: The factor Λ on the odds of logged actions that brings the gain to zero; inf if none does.
        columns: The factor that hiding each context column would be, the strongest first.
    """

    value: float
    gain: float
    tipping: float
    columns: tuple[tuple[str, float], ...]
    _rounds: _WeightedRounds = field(repr=False)

    def bounds(self, odds: float) -> tuple[float, float]:
        """The smallest and the largest value of the policy if odds may be off by a factor of up to `odds`."""
        return self._rounds.bounds(as_scalar("odds", odds, at_least=1.0))

    @property
    def sentence(self) -> str:
        """The answer in plain words."""
        gain = signed_number(self.gain)
        if not np.isfinite(self.tipping):
            return f"No error in the propensities could overturn the gain of {gain}."
        change = f"changed the odds of logged actions {number(self.tipping)} times"
        text = f"The gain of {gain} is overturned if a hidden cause {change}"
        if not self.columns:
            return f"{text}."
        name, factor = self.columns[0]
        return f"{text}; hiding {name}, the strongest context column, would change them {number(factor)} times."

    def records(self) -> list[dict[str, Any]]:
        """One plain record per context column."""
        return [{"column": name, "odds": factor} for name, factor in self.columns]

    def record(self) -> dict[str, Any]:
        """The result as plain values, for JSON."""
        tipping = self.tipping if np.isfinite(self.tipping) else None
        figures = {"value": self.value, "gain": self.gain, "tipping_odds": tipping}
        return {"sentence": self.sentence, **figures, "columns": self.records()}

    def __repr__(self) -> str:
        return self.sentence


@dataclass(frozen=True)
class _WeightedRounds:
    """Rounds by ascending reward: π(a_i | x_i) times how often the round counts, 1 / π_0 - 1, and the reward."""

    target: Float[Array, " n"]
    excess: Float[Array, " n"]
    rewards: Float[Array, " n"]
    total: float
    self_normalised: bool

    def bounds(self, odds: float) -> tuple[float, float]:
        low, high = (self.target * (1.0 + self.excess * factor) for factor in (1.0 / odds, odds))
        if not self.self_normalised:
            positive = self.rewards > 0
            least, most = np.where(positive, low, high), np.where(positive, high, low)
            return float(least @ self.rewards) / self.total, float(most @ self.rewards) / self.total
        # At an extreme of a ratio, weights are large on one side of some reward and small on the other.
        return float(self._ratios(high, low).min()), float(self._ratios(low, high).max())

    def _ratios(self, below: Float[Array, " n"], above: Float[Array, " n"]) -> Float[Array, " m"]:
        """The estimate for every place at which the weights change from `below` to `above`."""

        def split_sums(numbers: Float[Array, " n"]) -> Float[Array, " m"]:
            first = np.append(0.0, np.cumsum(below * numbers))
            last = np.append(np.cumsum((above * numbers)[::-1])[::-1], 0.0)
            return first + last

        return split_sums(self.rewards) / split_sums(np.ones(len(self.rewards)))


def propensity_sensitivity(
    policy: Policy, logs: LoggedData, *, self_normalised: bool = True, columns: bool = True, eligible: Any = None
) -> PropensitySensitivity:
    """Measure how wrong propensities may be, due to a hidden cause, before a policy's gain over the log is overturned.

    The gain is that of snIPS over the mean reward of the log. A hidden cause of both choice and reward makes the
    true odds of a logged action differ from those in the log. `tipping` is the factor that brings the gain to zero in
    the worst case. The error of sampling is not part of it.

    Args:
        policy: The target policy.
        logs: Logged rounds.
        self_normalised: True for snIPS, False for IPS.
        columns: Compare with the context columns: by how much would hiding each of them change the odds? It needs a
            logistic regression per column, so it is left out with more than 300 actions.
        eligible: The actions that may be chosen in each round; None for all.
    """
    check_target(policy, logs)
    self_normalised, columns = as_flag("self_normalised", self_normalised), as_flag("columns", columns)
    propensities, _ = propensities_of(logs)
    order, counts = np.argsort(logs.rewards, kind="stable"), row_weights(logs.weights, len(logs))
    target = counts * policy.probability_of(logs.contexts, logs.actions, eligible=eligible)
    if not target.any():
        raise InputError(
            "all weights are zero: the policy never chooses a logged action, so the log has no information about it.",
            "Use hidden_cause with a model, or logs with some support.",
        )
    excess = np.maximum(1.0 / propensities - 1.0, 0.0)
    rounds = _WeightedRounds(target[order], excess[order], logs.rewards[order], float(counts.sum()), self_normalised)
    value, mean = rounds.bounds(1.0)[0], float(np.average(logs.rewards, weights=logs.weights))
    strengths = _column_odds(logs) if columns and logs.n_actions <= MAX_MULTINOMIAL else []
    return PropensitySensitivity(value, value - mean, _tipping(rounds, value - mean, mean), tuple(strengths), rounds)


def _tipping(rounds: _WeightedRounds, gain: float, mean: float) -> float:
    """The least factor at which the worst case of the value reaches the mean reward, by bisection of its logarithm."""
    side = 0 if gain > 0 else 1

    def overturned(log: float) -> bool:
        worst = rounds.bounds(float(np.exp(log)))[side]
        return worst <= mean if gain > 0 else worst >= mean

    low, high = 0.0, np.log(LARGEST)
    if overturned(low):
        return 1.0
    if not overturned(high):
        return np.inf
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if overturned(middle) else (middle, high)
    return float(np.exp(high))


def _column_odds(logs: LoggedData) -> list[tuple[str, float]]:
    """The factor on the odds of logged actions if a context column were hidden, for every column that varies."""
    features = logs.features
    names = [f"column {place}" for place in range(logs.dim)] if features is None else list(features.names)
    full = _log_odds(logs, logs.contexts)
    strengths = list[tuple[str, float]]()
    for place in np.flatnonzero(np.ptp(logs.contexts, axis=0) > 0):
        hidden = np.array(logs.contexts)
        hidden[:, place] = 0.0
        change = np.abs(_log_odds(logs, hidden) - full)
        strengths.append((names[place], float(np.exp(np.quantile(change, USUAL_SHARE)))))
    return sorted(strengths, key=lambda row: -row[1])


def _log_odds(logs: LoggedData, contexts: Float[Array, "n d"]) -> Float[Array, " n"]:
    seen = LoggedData(contexts, logs.actions, logs.rewards, n_actions=logs.n_actions, weights=logs.weights)
    p = np.clip(EstimatedLogging(seen).probability_of(contexts, logs.actions), 1e-12, 1.0 - 1e-12)
    return np.log(p) - np.log1p(-p)
