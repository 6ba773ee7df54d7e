"""The gain of shipping to some: following a policy only in the segments in which it is better.

Segments that are chosen by their gains look better than they are. So they are chosen on one half of the rounds,
that choice is evaluated on the other half, and then the halves swap: no choice is evaluated on its own rounds.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool

from manyarms._base.checks import Array, row_weights
from manyarms.core import Estimate, LoggedData, Policy
from manyarms.core.result_tables import signed_number
from manyarms.decision.propose import MIN_SIDE
from manyarms.estimators.checked_value import Checked, checked_value_parts, scaled
from manyarms.estimators.segment_pooling import SegmentEvidence
from manyarms.jobs.segments import SegmentGains, SegmentLabels, gains_by_posterior
from manyarms.policies import Logged
from manyarms.posterior.posterior import Posterior


@dataclass(frozen=True)
class ShipToSome:
    """A policy that is followed in some segments only.

    Attributes:
        policy: The name of the policy.
        follow: The segments in which it is followed: those with a positive expected gain, given all rounds.
        n_segments: The number of all segments.
        gain: The checked gain over the current policy of following it there alone. The segments are chosen on
            one half of the rounds, and that choice is evaluated on the other, and vice versa.
        everywhere: The checked gain of following it in all segments, on the same rounds.
    """

    policy: str
    follow: tuple[Hashable, ...]
    n_segments: int
    gain: Estimate
    everywhere: Estimate

    @property
    def sentence(self) -> str:
        """The answer in plain words."""
        low, high = self.gain.interval()
        interval = f"{signed_number(low)} to {signed_number(high)}"
        if len(self.follow) in (0, self.n_segments):
            where = "in every segment, so there is no segment to leave out" if self.follow else "in no segment"
            return f"{self.policy} has a positive expected gain {where}."
        return (
            f"Followed only in the {len(self.follow)} of {self.n_segments} segments where it is expected to be better, "
            f"{self.policy} gains {signed_number(self.gain.value)} per round over all traffic (95 % interval "
            f"{interval}), compared with {signed_number(self.everywhere.value)} if it is followed everywhere."
        )


def ship_to_some(
    name: str, policy: Policy, logs: LoggedData, posterior: Posterior, gains: Mapping[str, float], *, seen: bool
) -> ShipToSome | None:
    """Choose the segments of a log in which a policy is better, and evaluate that choice on other rounds.

    Args:
        name: The name of the policy.
        policy: The policy.
        logs: Rounds with segments.
        posterior: The model.
        gains: The expected gain of each segment, given all rounds.
        seen: True if the posterior has seen these rounds.

    Returns:
        None where there are too few rounds to split, or only one segment.
    """
    counted = np.flatnonzero(np.ones(len(logs)) if logs.weights is None else logs.weights)
    if len(counted) < len(logs):
        logs, policy = logs.take(counted), policy.take(counted)
    labels = SegmentLabels(np.asarray(logs.segments))
    if len(labels) < 2 or min(map(len, _halves(logs))) < MIN_SIDE:
        return None
    # Predictions that learn from these rounds would carry rewards from one half to the other.
    choosing = Checked(posterior, n_folds=0, seen=seen)
    model = gains_by_posterior(policy, logs, posterior, labels)
    followed = np.flatnonzero(_chosen_by_other_half(choosing, policy, logs, labels, model))
    checked = Checked(posterior, seen=seen)
    return ShipToSome(
        policy=name,
        follow=tuple(
            label for label, shown in zip(labels.labels, labels.names, strict=True) if gains.get(shown, 0.0) > 0
        ),
        n_segments=len(labels),
        gain=_gain_there(checked, policy, logs, followed),
        everywhere=checked.difference(policy, Logged(logs), logs),
    )


def _gain_there(checked: Checked, policy: Policy, logs: LoggedData, rows: Array) -> Estimate:
    """The gain over all rounds of following a policy in some of them: nothing changes in the others."""
    if not len(rows):
        return Estimate(0.0, 0.0, kind="checked", method="quadrature")
    part, counts = logs.take(rows), row_weights(logs.weights, len(logs))
    share = float(counts[rows].sum() / counts.sum())
    return scaled(checked.difference(policy.take(rows), Logged(part), part), share)


def _chosen_by_other_half(
    checked: Checked, policy: Policy, logs: LoggedData, labels: SegmentLabels, model: SegmentGains
) -> Bool[Array, " n"]:
    """True for rounds whose segment is one to follow, by the rewards of the half of the log that they are not in."""
    chosen, halves = np.empty(len(logs), dtype=bool), _halves(logs)
    for own, other in (halves, halves[::-1]):
        chosen[own] = _better(checked, policy, logs, labels, model, other)[labels.codes[own]]
    return chosen


def _halves(logs: LoggedData) -> tuple[Array, Array]:
    """Random halves of the rounds; rounds of one group stay together. The split is the same every time."""
    keys = np.arange(len(logs)) if logs.groups is None else np.unique(logs.groups, return_inverse=True)[1]
    first = np.random.default_rng(0).permutation(int(keys.max(initial=-1)) + 1)[keys] % 2 == 0
    return np.flatnonzero(first), np.flatnonzero(~first)


def _better(
    checked: Checked, policy: Policy, logs: LoggedData, labels: SegmentLabels, model: SegmentGains, rows: Array
) -> Bool[Array, " S"]:
    """True for segments with a positive expected gain, by the model and the rewards of some rounds.

    As in the table of segments, their gains add up to the checked gain over these rounds.
    """
    residuals, baseline, error = checked_value_parts(checked, policy, logs)
    sides = residuals.take(rows), baseline.take(rows)
    evidence = SegmentEvidence.collect(*sides, labels.codes[rows], model.means, model.covariance, error)
    part = logs.take(rows)
    # Another one, since `checked` keeps the predictions of all rounds for the other half.
    here = Checked(checked.posterior, n_folds=checked.n_folds, seen=checked.seen)
    overall = here.difference(policy.take(rows), Logged(part), part)
    pooled = evidence.pooled(overall)
    return pooled.shares @ pooled.means > 0
