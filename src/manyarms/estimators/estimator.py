"""What every estimator does: contributions of rounds first, their mean and its error after."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, TypedDict, Unpack

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, as_instance, check_overflow
from manyarms.core.estimate import Estimate
from manyarms.core.fingerprint import Fingerprint, any_shared
from manyarms.core.logged_data import LoggedData
from manyarms.core.policy import Policy, row_weights, with_own_features
from manyarms.errors import InputError, ShapeError
from manyarms.estimators.intervals import Interval, Normal, as_units
from manyarms.estimators.weight_diagnostics import (
    Thresholds,
    diagnostic_warnings,
    propensity_figures,
    unsupported_mass,
    weight_figures,
)


@dataclass(frozen=True)
class Rounds:
    """What an estimator makes of each round: the estimate is mean(direct) + mean(numerator) / mean(denominator).

    Attributes:
        direct: (n,) what is averaged as it is.
        numerator: (n,) what is divided.
        denominator: (n,) what it is divided by; None when nothing is.
        weights: (n,) importance weights π / π_0 as they are, for the diagnostics.
        propensities: (n,) what they were divided by.
        figures: More diagnostics.
        used: (n,) what the estimator made of the weights (clipped, switched off); None when nothing.
        centre: (n,) what each numerator is on average, where that is known to differ between rounds (strata): only the
            deviation from it counts as error.
    """

    direct: Float[Array, " n"]
    numerator: Float[Array, " n"]
    denominator: Float[Array, " n"] | None = None
    weights: Float[Array, " n"] | None = None
    propensities: Float[Array, " n"] | None = None
    figures: dict[str, float] = field(default_factory=dict[str, float])
    centre: Float[Array, " n"] | None = None
    used: Float[Array, " n"] | None = None


class EstimatorOptions(TypedDict, total=False):
    """What every estimator can be told.

    Attributes:
        interval: How the error is told: `Normal()`, `Bootstrap(rng=...)` or `EmpiricalBernstein()`.
        thresholds: When to warn.
        name: What to call it in a table.
    """

    interval: Interval
    thresholds: Thresholds
    name: str


class Estimator(ABC):
    """Estimates the value of a policy from logged rounds.

    Attributes:
        name: The name that tables and reports use.
    """

    name: str

    @abstractmethod
    def estimate(self, policy: Policy, logs: LoggedData, *, eligible: Any = None) -> Estimate:
        """The value of a policy.

        Args:
            policy: The target policy, on the same actions as the logs.
            logs: Logged rounds, best those that the policy was not learned from.
            eligible: The actions that the target may choose in each round; None for all.
        """


class SamplingEstimator(Estimator):
    """An estimate that is a mean over rounds, with the error of that mean.

    A new estimator of this kind implements `rounds` and sets `name`.

    Args:
        options: See `EstimatorOptions`.
    """

    def __init__(self, **options: Unpack[EstimatorOptions]):
        self.interval = as_instance("interval", options.get("interval", Normal()), Interval, "an interval, as Normal()")
        self.thresholds = as_instance("thresholds", options.get("thresholds", Thresholds()), Thresholds, "Thresholds()")
        self.name = options.get("name", getattr(type(self), "name", type(self).__name__))

    @abstractmethod
    def rounds(self, policy: Policy, logs: LoggedData, eligible: Any) -> Rounds:
        """The contributions of the rounds; arguments are checked already."""

    @property
    def has_model(self) -> bool:
        """Whether a reward model answers where the weights do not."""
        return False

    @property
    def learned_from(self) -> tuple[Fingerprint, ...]:
        """The rounds that the estimator's own models were learned from, other than by cross-fitting."""
        return ()

    def estimate(self, policy: Policy, logs: LoggedData, *, eligible: Any = None) -> Estimate:
        """The value of a policy.

        Args:
            policy: The target, on the same actions as the logs.
            logs: Logged rounds; those the policy was not learned from.
            eligible: Which actions the target may choose where; None for all.

        Returns:
            An `Estimate` of kind "sampling"; when the logs have groups, its error is that of independent groups.
        """
        check_target(policy, logs)
        rounds = self._checked_rounds(policy, logs, eligible)
        numerator = rounds.numerator
        if rounds.centre is not None:
            numerator = numerator - rounds.centre + np.average(rounds.centre, weights=logs.weights)
        units = as_units(rounds.direct, numerator, rounds.denominator, logs.weights, logs.groups)
        figures = self._figures(policy, logs, eligible, rounds)
        with np.errstate(over="ignore", invalid="ignore"):
            value, std = units.value, units.std
        check_overflow("the estimate and its error", np.array([value, std]))
        return Estimate(
            value=value,
            std=std,
            kind="sampling",
            method=self.interval.method,
            diagnostics=figures,
            warnings=diagnostic_warnings(figures, self.thresholds),
            shape=self.interval.shape(units),
        )

    def contributions(self, policy: Policy, logs: LoggedData, *, eligible: Any = None) -> Float[Array, " n"]:
        """What each round adds: their mean is the estimate."""
        check_target(policy, logs)
        rounds = self._checked_rounds(policy, logs, eligible)
        if rounds.denominator is None:
            return rounds.direct + rounds.numerator
        return rounds.direct + rounds.numerator / np.average(rounds.denominator, weights=logs.weights)

    def _checked_rounds(self, policy: Policy, logs: LoggedData, eligible: Any) -> Rounds:
        rounds = self.rounds(policy, logs, eligible)
        used = rounds.weights if rounds.used is None else rounds.used
        needed = not self.has_model or rounds.denominator is not None
        if needed and used is not None and not (used * row_weights(logs.weights, len(logs))).any():
            raise InputError(
                "all weights are zero: the policy never chooses a logged action, so the log says nothing of it. "
                "Use DM or sDM, or logs with some support."
            )
        return rounds

    def _figures(self, policy: Policy, logs: LoggedData, eligible: Any, rounds: Rounds) -> dict[str, float]:
        figures = {"n_rounds": float(len(logs))}
        if logs.groups is not None:
            figures["n_groups"] = float(len(np.unique(logs.groups)))
        if rounds.weights is not None:
            used = rounds.weights if rounds.used is None else rounds.used
            figures |= weight_figures(rounds.weights, used, row_weights(logs.weights, len(logs)))
        if rounds.propensities is not None:
            figures |= propensity_figures(rounds.propensities)
        mass = policy.feature_mass(logs.contexts, eligible=eligible, weights=logs.weights)
        figures["unsupported_mass"] = unsupported_mass(mass, logs)
        reused = any_shared((*policy.learned_from, *self.learned_from), (logs.fingerprint,))
        return figures | {"evaluated_on_training_rounds": float(reused)} | rounds.figures


def check_target(policy: Policy, logs: LoggedData) -> None:
    """Refuse a policy or logs that cannot be judged, before any work is done."""
    policy = as_instance("policy", policy, Policy, "a policy")
    logs = as_instance("logs", logs, LoggedData, "a LoggedData")
    if policy.n_actions != logs.n_actions:
        raise ShapeError(
            f"policy has {policy.n_actions} actions; the logs have {logs.n_actions}. Pass n_actions= to LoggedData."
        )
    with_own_features(policy, logs.contexts, logs.features)
    if len(logs) < 2 or row_weights(logs.weights, len(logs)).sum() < 2:
        raise InputError(
            "an estimate needs at least 2 rounds, and weights count rounds: weight 2 is the row twice. "
            "Weights that sum to 1 must be multiplied by the number of rounds."
        )
    if logs.groups is not None and len(np.unique(logs.groups)) < 2:
        raise InputError("all rounds are in one group, which says nothing of how groups differ. Leave groups out.")
