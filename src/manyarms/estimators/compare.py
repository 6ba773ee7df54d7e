"""Several policies under several estimators in one table; and SLOPE++, which chooses among estimators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from manyarms._base.checks import as_flag, as_instance, as_scalar
from manyarms._base.progress import Progress, reporter
from manyarms.core import Estimate, LoggedData, Policy, Tabular
from manyarms.errors import InputError
from manyarms.estimators.estimator import Estimator


@dataclass(frozen=True)
class ComparisonRow:
    """One policy under one estimator."""

    policy: str
    estimator: str
    estimate: Estimate


@dataclass(frozen=True)
class Comparison(Tabular):
    """Policies under estimators: the result of `compare`.

    Attributes:
        rows: One row per policy and estimator.
        left_out: Pairs of policy and estimator that were not reported, with the reason.
    """

    rows: tuple[ComparisonRow, ...]
    left_out: tuple[tuple[str, str, str], ...] = ()

    def records(self, level: float = 0.95) -> list[dict[str, Any]]:
        """One plain record per policy and estimator, with intervals of this level."""
        return [{"policy": row.policy, "estimator": row.estimator, **row.estimate.record(level)} for row in self.rows]

    def __iter__(self) -> Iterator[ComparisonRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        wide = max([len(r.policy) for r in self.rows] + [6]), max([len(r.estimator) for r in self.rows] + [9])
        lines = [f"{'policy':<{wide[0]}}  {'estimator':<{wide[1]}}  {'value':>10}  {'95 % interval':>24}  warnings"]
        for row in self.rows:
            low, high = row.estimate.interval()
            lines.append(
                f"{row.policy:<{wide[0]}}  {row.estimator:<{wide[1]}}  {row.estimate.value:>10.4g}  "
                f"{f'{low:.4g} to {high:.4g}':>24}  {len(row.estimate.warnings) or '-'}"
            )
        lines += [f"left out: {policy} under {estimator}: {reason}" for policy, estimator, reason in self.left_out]
        return "\n".join(lines)


def compare(
    policies: Mapping[str, Policy] | Sequence[Policy],
    logs: LoggedData,
    estimators: Sequence[Estimator],
    *,
    eligible: Any = None,
    allow_training_rounds: bool = False,
    progress: Progress = False,
) -> Comparison:
    """Evaluate every policy with every estimator.

    A sampling estimate is optimistic when the policy, or the estimator's reward model, was learned from these rounds.
    Such a pair is left out, with that reason, unless `allow_training_rounds` is set. An estimator that refuses a policy
    is left out with its reason too.

    Args:
        policies: Policies by name. A plain list is numbered.
        logs: Logged rounds, best the part of `logs.split(...)` that nothing was learned from.
        estimators: Estimators to evaluate by.
        eligible: The actions that the policies may choose in each round; None for all.
        allow_training_rounds: Report estimates on training rounds too. They carry a warning.
        progress: True draws a bar with the time left. A function is called as progress(done, total) after each pair.
    """
    if not policies or not estimators:
        raise InputError("compare needs at least one policy and one estimator.")
    if not isinstance(policies, Mapping):
        policies = {f"{type(policy).__name__} {i}": policy for i, policy in enumerate(_listed("policies", policies))}
    for policy in policies.values():
        as_instance("policies", policy, Policy, "policies")
    as_instance("logs", logs, LoggedData, "a LoggedData; collect() a stream first")
    estimators, again = _as_estimators(estimators), as_flag("allow_training_rounds", allow_training_rounds)
    rows: list[ComparisonRow] = []
    left_out: list[tuple[str, str, str]] = []
    pairs = [(name, policy, estimator) for name, policy in policies.items() for estimator in estimators]
    with reporter(progress, len(pairs), "estimates") as report:
        for done, (name, policy, estimator) in enumerate(pairs, start=1):
            try:
                estimate = estimator.estimate(policy, logs, eligible=eligible)
            except InputError as cause:
                # One estimator that refuses one policy must not cost the others their answer.
                left_out.append((name, estimator.name, str(cause)))
            else:
                if estimate.diagnostics.get("evaluated_on_training_rounds") and not again:
                    left_out.append((name, estimator.name, "learned from these rounds"))
                else:
                    rows.append(ComparisonRow(name, estimator.name, estimate))
            report(done, len(pairs))
    return Comparison(tuple(rows), tuple(left_out))


def _listed(name: str, given: Any) -> list[Any]:
    """A list or tuple that a user passed, as a list."""
    return list(as_instance(name, given, Sequence, "a list"))


def _as_estimators(given: Any) -> list[Estimator]:
    return [as_instance("estimators", each, Estimator, "estimators") for each in _listed("estimators", given)]


class SlopeChoice(NamedTuple):
    """The estimator that SLOPE++ chooses when it compares several, with its estimate."""

    estimator: Estimator
    estimate: Estimate


def slope(
    estimators: Sequence[Estimator], policy: Policy, logs: LoggedData, *, level: float = 0.95, eligible: Any = None
) -> SlopeChoice:
    """Choose the estimator with the narrowest interval that agrees with all wider ones (SLOPE++).

    See Su et al. (2020), and Tucker and Lee (2021).

    Estimators are sorted by the width of their intervals, widest (least biased) first. Estimator i is accepted as long
    as |value_i - value_j| ≤ width_i + (√6 - 1) width_j for all wider j, and the last one accepted is the answer. Use it
    to choose the clip, cap, threshold or shrinkage of one estimator.

    Args:
        estimators: Candidates of one kind, in any order.
        policy: The target policy.
        logs: Logged rounds.
        level: Level of the intervals.
        eligible: The actions that the target may choose in each round; None for all.
    """
    estimators = _as_estimators(estimators)
    if not estimators:
        raise InputError("slope needs at least one estimator to choose from.")
    level = as_scalar("level", level, above=0.0, below=1.0)
    candidates = [SlopeChoice(e, e.estimate(policy, logs, eligible=eligible)) for e in estimators]
    low, high = np.array([c.estimate.interval(level) for c in candidates]).T
    order = np.argsort(low - high, kind="stable")
    widths, values = ((high - low) / 2)[order], np.array([c.estimate.value for c in candidates])[order]
    chosen = 0
    for i in range(1, len(candidates)):
        gap = np.abs(values[i] - values[:i])
        if (gap > widths[i] + (np.sqrt(6.0) - 1.0) * widths[:i]).any():
            break
        chosen = i
    return candidates[order[chosen]]
