"""Warnings and notes about a prior that was learned from logs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from manyarms.core import HierarchicalGaussian
from manyarms.prior_learning.evidence import NOTHING, Evidence
from manyarms.prior_learning.hyperparameters import Hyperparameters

FEW = 20
"""Fewer numbers than this (actions or effects, times d) hardly determine how far they spread."""
SURE = 1.1
"""Warn when an honest interval is this much wider: 95 % intervals then hold the truth 92.5 % of the time."""
UNEVEN = 30.0
"""A note is made of columns whose sizes differ by more than this factor."""
_AVERAGE = "average over learned priors, as `manyarms decide --averaged` does, for intervals that include this"


def when_averaged(warnings: Sequence[str]) -> tuple[str, ...]:
    """The warnings about a learned prior that remain once values are averaged over learned priors."""
    narrow = f", or {_AVERAGE}"
    return tuple(text.replace(_AVERAGE, "the intervals include this") for text in warnings if narrow not in text)


def fractional_weights_warnings(evidence: Evidence) -> list[str]:
    """A warning that a prior was learned from rounds with weights below one, which inflate the learned noise."""
    if evidence.summary is None or evidence.total_weight >= 0.9 * evidence.summary.n_rounds:
        return []
    return [
        "the prior was learned from rounds whose weights are not counts: its standard deviations are too small where "
        "weights are below one. Learn the prior without weights, then fit with them"
    ]


def few_data_warnings(hyper: Hyperparameters, evidence: Evidence) -> tuple[str, ...]:
    """Warnings about numbers of a learned prior that the data hardly determine."""
    # Further columns of the contexts do not help with so few actions: one may repeat another.
    seen, notes = len(evidence.seen), list[str]()
    if hyper.forms[0] is not None and seen < FEW:
        actions = "1 action was" if seen == 1 else f"{seen} actions were"
        notes.append(f"only {actions} seen, so how far actions spread is hardly known; {_AVERAGE}")
    for group, form in zip(hyper.groups, hyper.forms[1:], strict=True):
        # Every round informs the effect that all actions share, so little depends on how far it might have spread.
        if form is not None and group.name != "shared" and group.count * group.part_dim < FEW:
            effects = "is 1 effect" if group.count == 1 else f"are {group.count} effects"
            notes.append(f"{group.name}: there {effects}, so how far effects spread is hardly known; {_AVERAGE}")
    if hyper.learn_noise and evidence.residual_degrees < 1:
        notes.append("no action has more rounds than weights, so noise is hardly distinguishable from spread")
    return tuple(notes)


def certain_mean_warnings(
    hyper: Hyperparameters, evidence: Evidence, plugged: HierarchicalGaussian, flexible: HierarchicalGaussian
) -> tuple[str, ...]:
    """A warning about a learned prior whose mean is not certain, though intervals of a value take it to be.

    The value of choosing seen actions evenly, in a context of ordinary size, depends on the mean as much as any value.
    Its standard deviation with the mean held at its learned value is compared with the one with the mean integrated
    out. Means that were maximised have no such posterior, and there is no warning for them.
    """
    if not (hyper.integrated and hyper.means):
        return ()
    size = evidence.feature_sizes / np.linalg.norm(evidence.feature_sizes)
    even = np.tile(size / len(evidence.seen), (len(evidence.seen), 1))
    without, whole = (np.sqrt(weights.variance_of(even, evidence.seen)) for weights in (plugged, flexible))
    if not whole > SURE * without:
        return ()
    names = " and ".join(mean.name for mean in hyper.means)
    return (
        f"the learned mean of {names} is taken for certain, and actions are so alike that all depend on it: the "
        f"interval of a value may be {100 * (1 - without / whole):.0f}% too narrow, that of a gain is hardly affected; "
        f"build the prior with an effect that all actions share, or {_AVERAGE}",
    )


def uneven_columns_notes(evidence: Evidence) -> list[str]:
    """A note with the warnings about a learned prior if features differ much in size: one spread for all fits none."""
    sizes = evidence.feature_sizes
    used = np.flatnonzero(sizes > NOTHING * sizes.max(initial=0.0))
    if len(used) < 2 or sizes[used].max() < UNEVEN * sizes[used].min():
        return []
    large, small = used[np.argmax(sizes[used])], used[np.argmin(sizes[used])]
    return [
        f"context column {large} is {sizes[large] / sizes[small]:.0f} times as large as column {small}, and their "
        "weights share one scale: rescale the columns, or learn diagonal covariances of effects and actions"
    ]
