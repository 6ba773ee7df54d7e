"""Policies side by side: their values by a posterior and by estimators, and their gains over the current policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from manyarms._base.arrow import table_of
from manyarms._base.checks import as_flag, as_instance, as_matrix, check_choice, row_weights
from manyarms._base.progress import Progress, reporter
from manyarms.core import Estimate, Fingerprint, LoggedData, Policy, Tabular, any_shared, html_table
from manyarms.core.bound_policy import on_rounds
from manyarms.core.choices import ChoiceShares
from manyarms.core.labels import free_label
from manyarms.core.result_tables import percent
from manyarms.errors import InputError, ShapeError, UndefinedLiftError
from manyarms.estimators.checked_value import Checked, pooled_difference, scaled
from manyarms.estimators.estimator import Estimator
from manyarms.estimators.weight_diagnostics import effective_size
from manyarms.jobs.best_policy import Choice, best_choices
from manyarms.jobs.open_policies import PolicySource, open_in_memory
from manyarms.jobs.segments import SegmentLabels, Segments, evaluate_segments, segment_labels
from manyarms.policies import Logged
from manyarms.posterior.policy_profile import POLICY_ALONE, POLICY_AND_BASELINE, PolicyProfiles
from manyarms.posterior.posterior import Posterior

BASELINE = "logged"
"""The name of the current policy in records, JSON and arguments."""

CURRENT = "current policy"
"""The name of the policy that made the logs, wherever a reader sees it."""

POSTERIOR = "posterior"
"""The name of the model among the estimators."""

TRAINED = "the policy was learned from these rounds, so its estimates on them are too high"
"""The warning about a policy that is evaluated on its own training rounds."""


@dataclass(frozen=True)
class PolicyResult:
    """One policy, evaluated by the posterior and by all estimators.

    Attributes:
        name: The name of the policy.
        value: Its value by the posterior; None without a posterior.
        difference: Its value minus that of the baseline; None for the baseline, and without a posterior.
        lift: The gain over the size of the baseline's value; None where that may be zero.
        checked: The difference by `Checked`: the posterior's, corrected by the rewards of these rounds as far as they
            can tell, with an interval that also counts how far models are usually off. None without a posterior.
        trained: True if the policy was learned from the rounds that it is evaluated on.
        given: True if the policy learned nothing here, so that all parts of a log are about one and the same policy.
        choices: The share of contexts in which it chooses each action.
        estimates: Its value by each estimator, by name.
        left_out: Estimators that could not evaluate it, with the reason.
        warnings: Warnings beyond those of the estimates, in plain words.
    """

    name: str
    value: Estimate | None = None
    difference: Estimate | None = None
    lift: Estimate | None = None
    choices: ChoiceShares | None = None
    checked: Estimate | None = None
    trained: bool = False
    given: bool = False
    estimates: Mapping[str, Estimate] = field(default_factory=dict[str, Estimate])
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])
    warnings: tuple[str, ...] = ()

    @property
    def gain(self) -> Estimate | None:
        """The gain over the current policy, on which decisions are based: checked where possible."""
        return self.difference if self.checked is None else self.checked

    @property
    def all_warnings(self) -> tuple[str, ...]:
        """All warnings about the policy, each once, with the names of the estimators it comes from."""
        return tuple(warning_text("", names, text) for names, text in self.warnings_with_estimators)

    @property
    def warnings_with_estimators(self) -> tuple[tuple[str, str], ...]:
        """All warnings about the policy, each once, after the names of its estimators; "" for the model's."""
        own = [*self.warnings, *(self.value.warnings if self.value is not None else ())]
        estimators = dict[str, list[str]]()
        for name, estimate in self.estimates.items():
            for warning in estimate.warnings:
                estimators.setdefault(warning, []).append(name)
        others = [(", ".join(names), warning) for warning, names in estimators.items()]
        missing = [("", f"{name} left out: {reason}") for name, reason in self.left_out.items()]
        return tuple(dict.fromkeys([*(("", text) for text in own), *others, *missing]))


@dataclass(frozen=True)
class SwappedHalf:
    """The other half of a log, for an evaluation that swaps halves, with what was learned from the first.

    Attributes:
        policies: Policies with the names of those to evaluate, learned in the same way from the rounds to evaluate on.
        logs: The rounds that these policies have not seen: those that the policies to evaluate were learned from.
        posterior: The model behind these policies.
    """

    policies: Mapping[str, Policy]
    logs: LoggedData
    posterior: Posterior

    @cached_property
    def checked(self) -> Checked:
        """The checked estimate by this model, which all policies share."""
        return Checked(self.posterior)


@dataclass(frozen=True)
class Evaluation(Tabular):
    """Policies evaluated side by side on the same rounds.

    Attributes:
        n_rounds: The number of rounds that policies were evaluated on.
        mean_reward: The mean reward of these rounds: the value of the logging policy, without any model.
        mean_reward_error: The standard error of the mean reward.
        baseline: The current policy.
        policies: The candidates, in their order.
        pairs: The value of the first minus that of the second, by the names of two candidates, on request.
        pooled_rounds: The number of rounds behind the gains where policies were learned from each half of a log and
            evaluated on the other; None where the gains are of the same `n_rounds` rounds as all other figures.
        segments: The gains by segment; None where no segments were given, or no gain could be checked.
    """

    n_rounds: int
    mean_reward: float
    baseline: PolicyResult
    policies: tuple[PolicyResult, ...]
    pairs: Mapping[tuple[str, str], Estimate] = field(default_factory=dict[tuple[str, str], Estimate])
    mean_reward_error: float = 0.0
    pooled_rounds: int | None = None
    segments: Segments | None = None

    @property
    def gain_rounds(self) -> int:
        """The number of rounds behind the gains."""
        return self.n_rounds if self.pooled_rounds is None else self.pooled_rounds

    @property
    def rows(self) -> tuple[PolicyResult, ...]:
        """The baseline, then the candidates."""
        return (self.baseline, *self.policies)

    @property
    def policies_by_warning(self) -> dict[tuple[str, str], list[str]]:
        """The names of the policies that each warning is about; see `PolicyResult.warnings_with_estimators`."""
        policies = dict[tuple[str, str], list[str]]()
        for row in self.rows:
            for warning in row.warnings_with_estimators:
                policies.setdefault(warning, []).append(CURRENT if row is self.baseline else row.name)
        return policies

    def probability_better(self, first: str, second: str) -> float | None:
        """The probability that the first policy has the higher value; None where the two were not compared."""
        known = (self.baseline.name, *(row.name for row in self.policies))
        check_choice("first", first, known)
        check_choice("second", second, known)
        for sign, pair in ((1, (first, second)), (-1, (second, first))):
            gain = next((row.gain for row in self.policies if row.name == pair[0]), None)
            if gain is not None and pair[1] == self.baseline.name:
                return gain.probability_positive if sign > 0 else 1.0 - gain.probability_positive
        choice = self.choices.get(first)
        return None if choice is None or first == second else choice.probability_better[second]

    @cached_property
    def choices(self) -> Mapping[str, Choice]:
        """Every policy as a choice among all; empty without a posterior, or where pairs were not compared."""
        return best_choices(self)

    @property
    def probability_best(self) -> dict[str, float]:
        """The probability of each policy to be the best of all, the current one included, by name."""
        return {name: choice.probability_best for name, choice in self.choices.items()}

    @property
    def expected_loss(self) -> dict[str, float]:
        """The reward per round lost on average by choosing each policy instead of the best one, by name."""
        return {name: choice.expected_loss for name, choice in self.choices.items()}

    def records(self, level: float = 0.95) -> list[dict[str, Any]]:
        """A plain record for each policy and estimator, the posterior first.

        Args:
            level: The level of the intervals.
        """
        records = list[dict[str, Any]]()
        for row in self.rows:
            if row.value is not None:
                record: dict[str, Any] = {"policy": row.name, "estimator": POSTERIOR}
                if row.gain is not None:
                    low, high = row.gain.interval(level)
                    record |= {"difference": row.gain.value, "difference_low": low, "difference_high": high}
                    record["probability_better"] = row.gain.probability_positive
                records.append(record | row.value.record(level))
            for name, estimate in row.estimates.items():
                records.append({"policy": row.name, "estimator": name, **estimate.record(level)})
        return records

    def _repr_html_(self) -> str:
        wanted = ("policy", "estimator", "value", "low", "high", "difference", "probability_better", "warnings")
        rows = [{name: record[name] for name in wanted if name in record} for record in self.records()]
        for row in rows:
            # In full, as .rows has them, they would push the figures off the screen.
            row["warnings"] = len(row["warnings"].split("; ")) if row["warnings"] else 0
        return html_table(rows)

    def __str__(self) -> str:
        names = [CURRENT, *(row.name for row in self.policies)]
        width = max(len(name) for name in names)
        lines = list[str]()
        for name, row in zip(names, self.rows, strict=True):
            line = f"{name:<{width}}"
            if row.value is not None:
                line += f"  {_with_place(row.value, 'value')}"
            if row.gain is not None:
                figures = str(replace(row.gain, warnings=()))
                line += f"  gain {figures}, better with probability {percent(row.gain.probability_positive)}"
                line += _with_place(row.gain, "gain").removeprefix(figures)
            others = row.estimates.items()
            lines.append(line + "".join(f"  {name} {_with_place(one, f'estimates[{name!r}]')}" for name, one in others))
        return "\n".join(lines)


def _with_place(estimate: Estimate, place: str) -> str:
    """An estimate as text, with the place of its warnings in a `PolicyResult`."""
    return str(estimate).replace("see .warnings", f"see .{place}.warnings")


def evaluate(
    policies: Mapping[str, PolicySource],
    logs: LoggedData,
    posterior: Posterior | None = None,
    *,
    estimators: Sequence[Estimator] = (),
    contexts: Any = None,
    fingerprints: tuple[Fingerprint, ...] = (),
    pairs: bool = False,
    segments: Any = None,
    swapped: SwappedHalf | None = None,
    progress: Progress = False,
) -> Evaluation:
    """Evaluate policies on logged contexts: by a posterior, against the logged actions, and by estimators.

    The values and differences are those of `posterior.value` and `posterior.difference`; each policy is asked once.

    Args:
        policies: The candidates by name: policies; names such as "greedy", made from the posterior; "column:picks" for
            a column that the logs have kept; or functions from a table to picks (`CallablePolicy`).
        logs: Rounds to evaluate on, ideally held out from the fit of the posterior and of the policies.
        posterior: The model, any `Posterior`; None to use estimators alone.
        estimators: Estimators, which use the rewards of these rounds.
        contexts: The rows of `logs` as a table, for policies with a feature map other than that of `logs`.
        fingerprints: Other fingerprints of these rounds, such as those of the files they came from.
        pairs: True to compare all candidates with one another, too.
        segments: (n,) labels of parts of the traffic, such as countries, to show gains by; the name of a categorical
            context column; or None for the segments that the logs have, if any. Needs a posterior.
        swapped: The other half of the log with policies that were learned from these rounds, to pool the checked gains
            over both halves, as `decide(None, logs)` does. All other figures are of `logs` alone.
        progress: True shows how many policies are done; a function is called as progress(done, total).
    """
    _check_inputs(policies, logs, posterior, estimators, contexts, pairs)
    policies = open_in_memory(policies, logs, posterior)
    known = (logs.fingerprint, *fingerprints)
    if BASELINE in policies:
        raise InputError(f"{BASELINE!r} is the name of the current policy.", "Give the candidate another name.")
    for name, policy in policies.items():
        mine, theirs = as_instance(name, policy, Policy, "a policy").catalog, logs.catalog
        # Other actions than the logs have, even if there are as many.
        if mine is not None and theirs is not None and not (len(mine) == len(theirs) and mine.begins_with(theirs)):
            raise InputError(f"{name} was learned with another catalog than that of the logs, so its actions differ.")
    own = {name: on_rounds(policy, logs, contexts, name) for name, policy in policies.items()}
    candidates: dict[str, Policy] = {BASELINE: Logged(logs), **own}
    rows = list[PolicyResult]()
    profiles = dict[str, Any]()
    seen = posterior is not None and any_shared(posterior.learned_from, known)
    checked = None if posterior is None or len(logs) < 2 else Checked(posterior, seen=seen)
    labels = segment_labels(segments, logs)
    with reporter(progress, len(candidates), "policies") as report:
        for name, policy in candidates.items():
            result, profile = _evaluate_by_posterior(name, policy, logs, posterior, profiles.get(BASELINE))
            if profile is not None and (pairs or name == BASELINE):
                profiles[name] = profile
            if name != BASELINE:
                result = _check(result, policy, logs, checked, swapped)
                result = _add_estimates(result, policy, logs, estimators, known)
            rows.append(result)
            report(len(rows), len(candidates))
    profiles.pop(BASELINE, None)
    mean = float(np.average(logs.rewards, weights=logs.weights))
    spread = float(np.average((logs.rewards - mean) ** 2, weights=logs.weights))
    error = float(np.sqrt(spread / max(effective_size(logs.weights, len(logs)) - 1.0, 1.0)))
    # Where no gain could be checked, the model's own gains are of these rounds alone.
    is_pooled = any(row.checked is not None for row in rows)
    pooled = len(logs) + len(swapped.logs) if swapped is not None and is_pooled else None
    by_segment = _by_segment({row.name: (own[row.name], row) for row in rows[1:]}, logs, posterior, checked, labels)
    compared = _pairs(profiles, logs, posterior)
    return Evaluation(len(logs), mean, rows[0], tuple(rows[1:]), compared, error, pooled, by_segment)


def _by_segment(
    results: Mapping[str, tuple[Policy, PolicyResult]],
    logs: LoggedData,
    posterior: Posterior | None,
    checked: Checked | None,
    labels: Any,
) -> Segments | None:
    """The gains by segment of all policies whose gain could be checked."""
    gains = {name: (policy, row.checked) for name, (policy, row) in results.items() if row.checked is not None}
    if labels is None or posterior is None or checked is None or not gains:
        return None
    if logs.weights is not None and not logs.weights.all():
        rows = np.flatnonzero(logs.weights)
        logs, labels = logs.take(rows), labels[rows]
        gains = {name: (policy.take(rows), gain) for name, (policy, gain) in gains.items()}
    return evaluate_segments(gains, logs, posterior, checked, SegmentLabels(labels))


def _pairs(profiles: Mapping[str, Any], logs: LoggedData, posterior: Any) -> dict[tuple[str, str], Estimate]:
    """The differences between candidates; without a posterior, there are no profiles."""
    return {
        (first, second): posterior.estimate(
            PolicyProfiles.of([own, other], POLICY_AND_BASELINE, logs.weights, logs.groups)
        )
        for (first, own), (second, other) in combinations(profiles.items(), 2)
    }


def _check_inputs(
    policies: Any, logs: LoggedData, posterior: Posterior | None, estimators: Any, contexts: Any, pairs: bool
) -> None:
    """Refuse arguments of `evaluate` that are of a wrong kind, or with which there is nothing to evaluate."""
    logs = as_instance("logs", logs, LoggedData, "a LoggedData; collect() a stream first")
    if posterior is not None:
        as_instance("posterior", posterior, Posterior, "a fitted posterior, as fit() returns")
    elif not estimators:
        raise InputError(
            "there is nothing to evaluate with.",
            "Pass a posterior, or estimators.",
            flag_remedy="Pass --model, or --estimators.",
        )
    if not policies:
        raise InputError("there is no policy to evaluate.", "Pass at least one.")
    if len(logs) == 0:
        raise InputError("there are no rounds to evaluate on.")
    if logs.weights is not None and not logs.weights.any():
        raise InputError("all rounds have weight zero, so there is nothing to evaluate on.")
    as_instance("policies", policies, Mapping, "a mapping from names to policies")
    as_flag("pairs", pairs)
    for estimator in as_instance("estimators", estimators, Sequence, "a list of estimators"):
        as_instance("estimators", estimator, Estimator, "estimators")
    table = None if contexts is None else table_of(contexts)
    if contexts is not None and table is None:
        as_matrix("contexts", contexts, rows=len(logs))
    if table is not None and len(table) != len(logs):
        problem = f"must be a table or an array with a row for each of {len(logs)} rounds; got {len(table)} rows."
        raise ShapeError(problem, argument="contexts")


def _evaluate_by_posterior(
    name: str, policy: Policy, logs: LoggedData, posterior: Posterior | None, base: Any
) -> tuple[PolicyResult, Any]:
    if posterior is None:
        mass = policy.feature_mass(logs.contexts, weights=logs.weights)
        return PolicyResult(name, choices=ChoiceShares(mass.actions, mass.probability)), None
    profile = posterior.profile(policy, logs.contexts, None, logs.weights, name)
    choices = ChoiceShares(profile.masses[0].actions, profile.masses[0].probability)
    if base is None:
        profiles = PolicyProfiles.of([profile], POLICY_ALONE, logs.weights, logs.groups)
        return PolicyResult(name, posterior.estimate(profiles), choices=choices), profile
    # The policy minus its baseline, and the baseline itself: their sum is the policy.
    profiles = PolicyProfiles.of([profile, base], POLICY_AND_BASELINE, logs.weights, logs.groups)
    try:
        lift = posterior.estimate_lift(profiles)
    except UndefinedLiftError:
        lift = None
    value, difference = posterior.estimate(profiles, (1.0, 1.0)), posterior.estimate(profiles)
    return PolicyResult(name, value, difference, lift, choices), profile


def _check(
    result: PolicyResult, policy: Policy, logs: LoggedData, checked: Checked | None, swapped: SwappedHalf | None
) -> PolicyResult:
    """The result with its checked gain, over both halves where they were swapped, or the reason why there is none."""
    if checked is None:
        return result
    try:
        if swapped is None:
            gain, scale = checked.difference(policy, Logged(logs), logs), abs(_mean_reward(logs))
        else:
            here = (checked, policy, Logged(logs), logs)
            there = (swapped.checked, swapped.policies[result.name], Logged(swapped.logs), swapped.logs)
            gain, scale = pooled_difference([here, there]), abs(_mean_reward(logs, swapped.logs))
    except InputError as cause:
        return replace(result, left_out={**result.left_out, checked.name: str(cause)})
    lift = None if result.lift is None or scale == 0.0 else scaled(gain, 1.0 / scale)
    return replace(result, checked=gain, lift=lift, given=not policy.learned_from)


def _mean_reward(*parts: LoggedData) -> float:
    """The mean logged reward of all parts together."""
    weights = np.concatenate([row_weights(part.weights, len(part)) for part in parts])
    return float(np.average(np.concatenate([part.rewards for part in parts]), weights=weights))


def warning_text(policies: str, estimators: str, text: str) -> str:
    """A warning of an evaluation after the policies and estimators it is about, if any: "greedy (snIPS, DR): ..."."""
    places = f"{policies} ({estimators})" if policies and estimators else policies or estimators
    return f"{places}: {text}" if places else text


def _add_estimates(
    result: PolicyResult,
    policy: Policy,
    logs: LoggedData,
    estimators: Sequence[Estimator],
    known: tuple[Fingerprint, ...],
) -> PolicyResult:
    estimates, left_out = dict[str, Estimate](), dict[str, str]()
    for estimator in estimators:
        try:
            estimates[free_label(estimator.name, estimates)] = estimator.estimate(policy, logs)
        except InputError as cause:
            # An estimator that cannot evaluate a policy must not cost the others their answer.
            left_out[free_label(estimator.name, left_out)] = str(cause)
    trained = any_shared(policy.learned_from, known)
    noted = any(estimate.diagnostics.get("evaluated_on_training_rounds") for estimate in estimates.values())
    warnings = (TRAINED,) if trained and not noted else ()
    return replace(
        result, estimates=estimates, left_out={**result.left_out, **left_out}, warnings=warnings, trained=trained
    )
