"""The base classes of all estimators, the step from contributions of rounds to a value with its error, and diagnostics.

Diagnostics say whether a log is usable for a policy: numbers, and warnings where they are bad.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, TypedDict, Unpack

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, as_instance, as_text, check_overflow, row_weights
from manyarms.core import Estimate, Fingerprint, LoggedData, any_shared
from manyarms.core.bound_policy import on_rounds
from manyarms.core.policy import Policy
from manyarms.errors import InputError, ShapeError
from manyarms.estimators.intervals import Interval, Normal, as_units
from manyarms.estimators.pareto_tail import pareto_k
from manyarms.estimators.weight_diagnostics import Thresholds, diagnostic_warnings
from manyarms.linalg.single_screen import binary_exponent


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

        Returns:
            An `Estimate`: of kind "sampling" with the error over rounds, or over groups when the logs have them; or of
            kind "posterior" for DM.
        """


@dataclass(frozen=True)
class Rounds:
    """The rounds' contributions to an estimator, which returns mean(direct) + mean(numerator) / mean(denominator).

    Attributes:
        direct: (n,) Terms that are averaged as they are.
        numerator: (n,) Terms that are averaged and divided.
        denominator: (n,) Terms whose mean they are divided by; None for no division.
        weights: (n,) Importance weights π / π_0 before any change, for the diagnostics.
        propensities: (n,) Propensities in these weights.
        diagnostics: Further diagnostics, by name.
        centre: (n,) Expectation of each numerator, where it is known to differ between rounds (strata). Only the
            deviation from it counts as error.
        used: (n,) Weights that the estimator really uses (clipped, switched off); None when they are `weights`.
    """

    direct: Float[Array, " n"]
    numerator: Float[Array, " n"]
    denominator: Float[Array, " n"] | None = None
    weights: Float[Array, " n"] | None = None
    propensities: Float[Array, " n"] | None = None
    diagnostics: dict[str, float] = field(default_factory=dict[str, float])
    centre: Float[Array, " n"] | None = None
    used: Float[Array, " n"] | None = None


class EstimatorOptions(TypedDict, total=False):
    """Options of every sampling estimator.

    Attributes:
        interval: The kind of interval: `Normal()`, `Bootstrap(rng=...)`, `EmpiricalBernstein()` or, for repeated
            looks, `ConfidenceSequence(low, high)`.
        thresholds: Limits of the diagnostics beyond which the estimate warns.
        name: The name that tables and reports use.
    """

    interval: Interval
    thresholds: Thresholds
    name: str


class SamplingEstimator(Estimator):
    """An estimate that is a mean over rounds, with the standard error of that mean.

    A new estimator of this kind implements `rounds` and sets `name`.

    Args:
        options: `interval`, `thresholds` and `name`; see `EstimatorOptions`.
    """

    def __init__(self, **options: Unpack[EstimatorOptions]):
        self.interval = as_instance("interval", options.get("interval", Normal()), Interval, "an interval, as Normal()")
        self.thresholds = as_instance("thresholds", options.get("thresholds", Thresholds()), Thresholds, "Thresholds()")
        self.name = as_text("name", options.get("name", getattr(type(self), "name", type(self).__name__)))

    @abstractmethod
    def rounds(self, policy: Policy, logs: LoggedData, eligible: Any) -> Rounds:
        """The contributions of the rounds. The arguments are already checked."""

    @property
    def has_model(self) -> bool:
        """True when a reward model answers where the weights do not."""
        return False

    @property
    def learned_from(self) -> tuple[Fingerprint, ...]:
        """The rounds that the estimator's own models were learned from, except by cross-fitting."""
        return ()

    def estimate(self, policy: Policy, logs: LoggedData, *, eligible: Any = None) -> Estimate:
        policy = check_target(policy, logs)
        rounds = self._checked_rounds(policy, logs, eligible)
        numerator = rounds.numerator
        if rounds.centre is not None:
            numerator = numerator - rounds.centre + np.average(rounds.centre, weights=logs.weights)
        units = as_units(rounds.direct, numerator, rounds.denominator, logs.weights, logs.groups)
        diagnostics = self._diagnostics(policy, logs, eligible, rounds)
        with np.errstate(over="ignore", invalid="ignore"):
            value, std = units.value, units.std
        check_overflow("the estimate and its error", np.array([value, std]))
        return Estimate(
            value=value,
            std=std,
            kind="sampling",
            method=self.interval.method,
            diagnostics=diagnostics,
            warnings=diagnostic_warnings(diagnostics, self.thresholds),
            shape=self.interval.shape(units),
        )

    def contributions(self, policy: Policy, logs: LoggedData, *, eligible: Any = None) -> Float[Array, " n"]:
        """The contribution of each round, with the arguments of `estimate`. Their mean is the estimate."""
        rounds = self._checked_rounds(check_target(policy, logs), logs, eligible)
        if rounds.denominator is None:
            return rounds.direct + rounds.numerator
        return rounds.direct + rounds.numerator / np.average(rounds.denominator, weights=logs.weights)

    def _checked_rounds(self, policy: Policy, logs: LoggedData, eligible: Any) -> Rounds:
        rounds = self.rounds(policy, logs, eligible)
        used = rounds.weights if rounds.used is None else rounds.used
        needed = not self.has_model or rounds.denominator is not None
        if needed and used is not None and not (used * row_weights(logs.weights, len(logs))).any():
            raise InputError(
                "all weights are zero: the policy never chooses a logged action, so the log has no information about "
                "it.",
                "Use DM or sDM, or logs with some support.",
                flag_remedy="Leave the weighted estimators out, or pass logs with some support.",
            )
        return rounds

    def _diagnostics(self, policy: Policy, logs: LoggedData, eligible: Any, rounds: Rounds) -> dict[str, float]:
        diagnostics = {"n_rounds": float(len(logs))}
        if logs.groups is not None:
            diagnostics["n_groups"] = float(len(np.unique(logs.groups)))
        if rounds.weights is not None:
            counts = row_weights(logs.weights, len(logs))
            used = rounds.weights if rounds.used is None else rounds.used
            # Before any change, the mean weight is near 1 when propensities are right.
            power = binary_exponent(rounds.weights)
            mean = float(counts @ np.ldexp(rounds.weights, -power) / counts.sum())
            diagnostics["mean_weight"] = float(np.ldexp(mean, power))
            # The unit of weights does not matter here, and squares of large ones overflow.
            used = np.ldexp(used, -binary_exponent(used))
            total, square = float(counts @ used), float(counts @ used**2)
            if square > 0:
                diagnostics["effective_sample_size"] = total**2 / square
                diagnostics["max_weight_share"] = float(used[counts > 0].max()) / total
            tail = pareto_k(used[counts > 0])
            if tail is not None:
                diagnostics["pareto_k"] = tail
        if rounds.propensities is not None:
            smallest = float(rounds.propensities.min(initial=1.0))
            # A few values may well be round (a uniform policy has one); many that all are have been cut.
            several = len(np.unique(rounds.propensities[:1000])) > 5
            rounded = several and smallest < 0.01 and np.all(rounds.propensities == np.round(rounds.propensities, 3))
            diagnostics |= {"min_propensity": smallest, "rounded_propensities": float(rounded)}
        mass = policy.feature_mass(logs.contexts, eligible=eligible, weights=logs.weights)
        diagnostics["unsupported_mass"] = float(mass.probability[~np.isin(mass.actions, logs.actions)].sum())
        reused = any_shared((*policy.learned_from, *self.learned_from), (logs.fingerprint,))
        return diagnostics | {"evaluated_on_training_rounds": float(reused)} | rounds.diagnostics


def check_target(policy: Policy, logs: LoggedData) -> Policy:
    """Check the arguments of an estimator: a policy that it can evaluate on these logs, bound to their rows."""
    policy = as_instance("policy", policy, Policy, "a policy")
    logs = as_instance("logs", logs, LoggedData, "a LoggedData")
    if policy.n_actions != logs.n_actions:
        raise ShapeError(
            f"has {policy.n_actions} actions; the logs have {logs.n_actions}.",
            "Pass n_actions= to LoggedData.",
            argument="policy",
            flag_remedy="Both need the same catalog.",
        )
    policy = on_rounds(policy, logs)
    if len(logs) < 2 or row_weights(logs.weights, len(logs)).sum() < 2:
        raise InputError(
            "an estimate needs at least 2 rounds, and weights count rounds: weight 2 is the row twice.",
            "Multiply weights that sum to 1 by the number of rounds.",
        )
    if logs.groups is not None and len(np.unique(logs.groups)) < 2:
        raise InputError("all rounds are in one group, so differences between groups are unknown.", "Leave groups out.")
    return policy
