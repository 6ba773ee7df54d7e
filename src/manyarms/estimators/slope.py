"""Which of several estimators to believe: SLOPE++ (Su et al. 2020; Tucker and Lee 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from manyarms._arrays import as_scalar
from manyarms.core.data import LoggedData
from manyarms.core.estimate import Estimate
from manyarms.core.policy import Policy
from manyarms.errors import InputError
from manyarms.estimators.base import Estimator


class Chosen(NamedTuple):
    """The estimator that SLOPE++ settles on, and what it says."""

    estimator: Estimator
    estimate: Estimate


def slope(
    estimators: Sequence[Estimator], policy: Policy, logs: LoggedData, *, level: float = 0.95, eligible: Any = None
) -> Chosen:
    """The narrowest estimator whose interval is still at peace with all wider ones.

    Estimators are put in order of the width of their intervals, widest (least biased) first. One is accepted as long as
    |value_i - value_j| ≤ width_i + (√6 - 1) width_j for all wider j; the last accepted is the answer. Use it on one
    estimator at several clips, caps, thresholds or shrinkages.

    Args:
        estimators: Candidates of one kind, from cautious to bold; the order given does not matter.
        policy: The target.
        logs: Logged rounds.
        level: Level of the intervals.
        eligible: Which actions the target may choose where; None for all.
    """
    if not estimators:
        raise InputError("slope needs at least one estimator to choose from.")
    level = as_scalar("level", level, above=0.0, below=1.0)
    found = [Chosen(e, e.estimate(policy, logs, eligible=eligible)) for e in estimators]
    found.sort(key=lambda c: -_half_width(c.estimate, level))
    widths = np.array([_half_width(c.estimate, level) for c in found])
    values = np.array([c.estimate.value for c in found])
    chosen = 0
    for i in range(1, len(found)):
        gap = np.abs(values[i] - values[:i])
        if (gap > widths[i] + (np.sqrt(6.0) - 1.0) * widths[:i]).any():
            break
        chosen = i
    return found[chosen]


def _half_width(estimate: Estimate, level: float) -> float:
    low, high = estimate.interval(level)
    return (high - low) / 2
