"""A check of importance weights: their tail, the rounds that count most, the effect of a clip, and their balance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, as_count, as_vector, check_rows, row_weights
from manyarms.core import LoggedData, Policy, Records, Tabular, as_column, encode
from manyarms.core.catalog import metadata
from manyarms.core.labels import with_missing
from manyarms.errors import RangeError
from manyarms.estimators.estimator import check_target
from manyarms.estimators.importance_weighted import SNIPS
from manyarms.estimators.logging_policy import propensities_of
from manyarms.estimators.pareto_tail import pareto_k
from manyarms.estimators.weight_diagnostics import Thresholds
from manyarms.linalg.indexing import sum_by

CLIPS = 12
"""Points of the curve of the estimate against the clip."""
BINS = 10
"""Groups of actions, where there are no categories."""
FAR = 3.0
"""A group whose weighted share is this many standard errors off is flagged."""


@dataclass(frozen=True, repr=False)
class WeightCheck(Tabular):
    """The result of `check_weights`.

    Attributes:
        n_rounds: The number of rounds.
        effective_sample_size: (Σw)² / Σw².
        pareto_k: The shape of the tail of the weights; None where it has none. Above 0.7, error bars are too narrow.
        mean_weight: 1 on average when propensities are right and the log supports the policy.
        mean_weight_error: The standard error of the mean weight.
        largest: The rounds that count most in the estimate: row, action, weight, reward, and the share of the total
            weight.
        clip_curve: The estimate by snIPS as a function of the clip, a floor on the propensity: clip, value, low, high,
            effective sample size, and the share of rounds that are clipped.
        balance: By group of actions, the share that the policy chooses, the weighted share in the log, its standard
            error, and how many of these they differ by. They agree when propensities are right.
    """

    n_rounds: int
    effective_sample_size: float
    pareto_k: float | None
    mean_weight: float
    mean_weight_error: float
    largest: Records
    clip_curve: Records
    balance: Records

    @property
    def warnings(self) -> tuple[str, ...]:
        """Everything that is wrong with the weights, in plain words."""
        texts = list[str]()
        if self.pareto_k is not None and self.pareto_k > Thresholds().max_pareto_k:
            texts.append(
                f"the tail of the weights is heavy (Pareto k = {self.pareto_k:.2f}): error bars are too narrow"
            )
        if abs(self.mean_weight - 1.0) > FAR * max(self.mean_weight_error, 1e-12):
            texts.append(f"the mean weight is {self.mean_weight:.3g}, not 1 within {FAR:.0f} standard errors")
        flagged = [str(row["group"]) for row in self.balance if abs(row["z"]) > FAR]
        if flagged:
            why = "propensities are wrong, or the log never shows some of their actions"
            texts.append(f"the weights of these groups do not add up: {', '.join(flagged)}; {why}")
        return tuple(texts)

    def records(self) -> list[dict[str, Any]]:
        """The balance of the groups, one row each."""
        return list(self.balance)

    def __repr__(self) -> str:
        k = "no tail" if self.pareto_k is None else f"Pareto k {self.pareto_k:.2f}"
        size = f"{self.effective_sample_size:,.1f} effective of {self.n_rounds:,} rounds"
        lines = [f"{size}, {k}, mean weight {self.mean_weight:.3g} ± {self.mean_weight_error:.2g}"]
        return "\n".join([*lines, *(self.warnings or ("nothing contradicts the propensities",))])


def check_weights(
    policy: Policy,
    logs: LoggedData,
    *,
    categories: Any = None,
    clips: Any = None,
    n_largest: int = 10,
    eligible: Any = None,
) -> WeightCheck:
    """Check the importance weights w = π / π_0 of a policy on a log, and with them the propensities.

    Propensities are right only if E[w 1(a in g)] is the share of the policy's choices in g, for every group g of
    actions that the log supports. Groups are categories or, without them, ten groups of actions of about equal share,
    from those that the policy chooses least to those that it chooses most.

    Args:
        policy: The target policy.
        logs: Logged rounds.
        categories: (K,) Labels of all actions, or a `Catalog` with categories; None for groups by share.
        clips: Floors on the propensity at which the estimate is shown; by default from none to the median propensity.
        n_largest: The number of rounds in `largest`.
        eligible: The actions that may be chosen in each round; None for all.
    """
    check_target(policy, logs)
    n_largest = as_count("n_largest", n_largest)
    propensities, _ = propensities_of(logs)
    target = policy.probability_of(logs.contexts, logs.actions, eligible=eligible)
    counts = row_weights(logs.weights, len(logs))
    weights = target / propensities
    total, square = float(counts @ weights), float(counts @ weights**2)
    mean = total / counts.sum()
    error = float(np.sqrt(counts @ (weights - mean) ** 2 / counts.sum() / max(counts.sum() - 1.0, 1.0)))
    return WeightCheck(
        n_rounds=len(logs),
        effective_sample_size=total**2 / max(square, np.finfo(float).tiny),
        pareto_k=pareto_k(weights[counts > 0]),
        mean_weight=mean,
        mean_weight_error=error,
        largest=_largest(weights * counts, weights, logs, n_largest),
        clip_curve=_clip_curve(policy, logs, propensities, clips, eligible),
        balance=_balance(policy, logs, weights, counts, categories, eligible),
    )


def _largest(total: Float[Array, " n"], weights: Float[Array, " n"], logs: LoggedData, n: int) -> Records:
    """The rounds with the largest weights."""
    rows, everything = np.argsort(-total, kind="stable")[:n], max(float(total.sum()), np.finfo(float).tiny)
    names = None if logs.catalog is None else logs.catalog.ids
    return Records(
        {
            "row": int(row),
            "action": int(logs.actions[row]) if names is None else names[int(logs.actions[row])],
            "weight": float(weights[row]),
            "reward": float(logs.rewards[row]),
            "share": float(total[row] / everything),
        }
        for row in rows
        if total[row] > 0
    )


def _clip_curve(
    policy: Policy, logs: LoggedData, propensities: Float[Array, " n"], clips: Any, eligible: Any
) -> Records:
    """The estimate by snIPS at every clip."""
    if clips is None:
        low, middle = propensities.min(), np.median(propensities)
        grid = np.append(0.0, np.geomspace(low, middle, CLIPS)[1:] if low < middle else [])
    else:
        grid = as_vector("clips", clips)
        check_rows("clips", grid, lambda c: (c >= 0) & (c <= 1), RangeError, "must be from 0 to 1", "They are floors.")
    rows = Records()
    for clip in grid.tolist():
        estimate = SNIPS(clip or None).estimate(policy, logs, eligible=eligible)
        low, high = estimate.interval()
        clipped = float(np.mean(propensities < clip))
        size = estimate.diagnostics["effective_sample_size"]
        rows.append({"clip": clip, "value": estimate.value, "low": low, "high": high, "size": size, "clipped": clipped})
    return rows


def _balance(
    policy: Policy,
    logs: LoggedData,
    weights: Float[Array, " n"],
    counts: Float[Array, " n"],
    categories: Any,
    eligible: Any,
) -> Records:
    """The chosen and the weighted share of each group of actions, and how far they are apart."""
    mass = policy.feature_mass(logs.contexts, eligible=eligible, weights=logs.weights)
    share = np.zeros(logs.n_actions)
    share[mass.actions] = mass.probability
    if categories is None and logs.catalog is not None and logs.catalog.categories is not None:
        categories = logs.catalog
    if categories is None:
        # By what the policy chooses, not by what was logged: a group must not depend on the luck of the log.
        order = np.argsort(share, kind="stable")
        place = np.empty(logs.n_actions, dtype=np.int64)
        place[order] = np.minimum((np.cumsum(share[order]) * BINS * (1 - 1e-12)).astype(int), BINS - 1)
        _, labels = np.unique(place, return_inverse=True)
        names: tuple[Any, ...] = tuple(f"group {i + 1}" for i in range(int(labels.max()) + 1))
    else:
        column = as_column("categories", metadata(categories, "categories", as_column), length=logs.n_actions)
        labels, names, _ = with_missing(encode("categories", column))
    chosen = np.bincount(labels, weights=share, minlength=len(names))
    n, group = counts.sum(), labels[logs.actions]
    keys, sums = sum_by(group, np.column_stack([counts * weights, counts * weights**2]))
    first, second = (np.bincount(keys, weights=sums[:, i], minlength=len(names)) / n for i in (0, 1))
    error = np.sqrt(np.maximum(second - first**2, 0.0) / max(n - 1.0, 1.0))
    z = np.divide(first - chosen, error, out=np.zeros(len(names)), where=error > 0)
    columns = zip(names, chosen.tolist(), first.tolist(), error.tolist(), z.tolist(), strict=True)
    return Records(
        dict(zip(("group", "chosen", "weighted", "error", "z"), row, strict=True)) for row in columns if row[1] > 0
    )
