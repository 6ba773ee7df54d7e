"""Gains by segment of the traffic, such as country: who wins, who loses, and how many losses chance alone explains.

The gains are those of `estimators.segment_pooling`: the model's, corrected by the rewards of each segment and drawn
together, so that they add up to the checked gain on which a decision rests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array, check_choice, row_weights
from manyarms.core import OTHER, Estimate, LoggedData, Policy, Tabular, encode
from manyarms.core.feature_map import levels_of
from manyarms.core.labels import with_missing
from manyarms.core.logged_data import as_segments
from manyarms.errors import InputError
from manyarms.estimators.checked_value import Checked, checked_value_parts
from manyarms.estimators.segment_pooling import SegmentEvidence, surely_below
from manyarms.policies import Logged
from manyarms.posterior import RewardPosterior
from manyarms.posterior.policy_profile import POLICY_AND_BASELINE, PolicyProfiles
from manyarms.posterior.posterior import Posterior

MOST_SEGMENTS = 200
"""Segments that are evaluated one by one: those with the most rounds. All others together are one more."""
Outcome = Literal["wins", "loses", "open"]


class SegmentLabels:
    """The segments of a log: the code of each round, and for each code its label and its name in tables.

    Args:
        labels: (n,) any hashable labels; None or NaN where one is missing. Rounds without a label are one segment.
    """

    def __init__(self, labels: Array):
        codes, names, _ = with_missing(encode("segments", labels))
        sizes = np.bincount(codes, minlength=len(names))
        self.n_joined = max(0, len(names) - MOST_SEGMENTS)
        if self.n_joined:
            # The smallest segments say least: together they are one.
            kept = np.sort(np.argsort(-sizes, kind="stable")[:MOST_SEGMENTS])
            number = np.full(len(names), MOST_SEGMENTS)
            number[kept] = np.arange(MOST_SEGMENTS)
            codes, names = number[codes], (*(names[code] for code in kept), f"{OTHER}: {self.n_joined:,} segments")
        self.codes: Int[Array, " n"] = codes
        self.labels = names
        self.names = tuple(str(name) for name in names)

    def __len__(self) -> int:
        return len(self.names)

    def rows(self, code: int) -> Int[Array, " m"]:
        """The rounds of a segment."""
        return np.flatnonzero(self.codes == code)


def segment_labels(segments: Any, logs: LoggedData) -> Array | None:
    """Check the argument `segments` of an evaluation, which is labels or the name of a context column.

    None stands for the labels that the logs have, if any.
    """
    if segments is None:
        return logs.segments
    if isinstance(segments, str):
        labels = levels_of(logs.features, logs.contexts, segments)
        if labels is None:
            raise InputError(
                f"names the column {segments!r}, which is not a categorical context column of these logs.",
                "Name the column when the logs are read, as in read_logs(..., segment=...), or pass a label per round.",
                argument="segments",
            )
        return labels
    return as_segments(segments, len(logs))


@dataclass(frozen=True)
class SegmentResult:
    """One policy in one segment.

    Attributes:
        segment: The label of the segment.
        policy: The name of the policy.
        n_rounds: The number of rounds of the segment, by their weights.
        value: The value of the policy there, by the posterior.
        model: Its gain over the current policy there, by the posterior.
        observed: The same by model and rewards of this segment alone; None where no round is like the policy's choices.
        observed_std: The standard error of `observed`.
        gain: The gain: model and rewards, drawn together with those of the other segments.
        outcome: "wins" or "loses" if that is sure enough, given the number of segments, else "open".
    """

    segment: str
    policy: str
    n_rounds: float
    value: Estimate
    model: Estimate
    observed: float | None
    observed_std: float | None
    gain: Estimate
    outcome: Outcome


@dataclass(frozen=True)
class SegmentSummary:
    """One policy over all segments.

    Attributes:
        spread: How much more the gains of segments differ than the model says, as a standard deviation.
        n_losses: The number of segments whose own rewards show a loss.
        losses_by_chance: The number of such segments that chance alone would produce if all had the overall gain.
    """

    spread: float
    n_losses: int
    losses_by_chance: float


@dataclass(frozen=True, repr=False)
class Segments(Tabular):
    """Policies evaluated by segment.

    Attributes:
        rows: One row per policy and segment, in the order of the policies; the largest segment first.
        summaries: By the name of the policy: how much segments differ, and how many losses chance would produce.
        n_joined: The number of small segments that are one row together; 0 where all have a row of their own.
    """

    rows: tuple[SegmentResult, ...]
    summaries: Mapping[str, SegmentSummary]
    n_joined: int = 0

    def of_policy(self, name: str) -> tuple[SegmentResult, ...]:
        """The rows of one policy."""
        check_choice("name", name, tuple(self.summaries))
        return tuple(row for row in self.rows if row.policy == name)

    def named(self, policy: str, outcome: Outcome) -> tuple[str, ...]:
        """The segments in which a policy wins, loses, or neither is sure."""
        check_choice("outcome", outcome, get_args(Outcome))
        return tuple(row.segment for row in self.of_policy(policy) if row.outcome == outcome)

    def sentence(self, policy: str) -> str:
        """Who wins and who loses under a policy, in plain words."""
        check_choice("policy", policy, tuple(self.summaries))
        rows, summary = self.of_policy(policy), self.summaries[policy]
        if len(rows) == 1:
            return f"There is only one segment, {rows[0].segment}, so its gain is the overall gain."
        wins, loses = self.named(policy, "wins"), self.named(policy, "loses")
        better = f"{policy} is clearly better in {_listed(wins, len(rows))}"
        worse = f"clearly worse in {_listed(loses, len(rows))}"
        if wins or loses:
            parts = [
                better if wins else f"{policy} is clearly better in no segment",
                f"and {worse}." if loses else "and clearly worse in none.",
            ]
        else:
            parts = [f"In no single segment is {policy} clearly better or worse."]
        chance = (
            f"Rewards of {summary.n_losses} of {len(rows)} segments show a loss. If all segments had the same gain, "
            f"chance alone would produce about {summary.losses_by_chance:.0f}."
        )
        return f"{' '.join(parts)} {chance}"

    def records(self, level: float = 0.95) -> list[dict[str, Any]]:
        """One plain record per policy and segment.

        Args:
            level: The level of the intervals.
        """
        return [
            {
                "segment": row.segment,
                "policy": row.policy,
                "rounds": row.n_rounds,
                "difference": row.gain.value,
                "low": low,
                "high": high,
                "probability": row.gain.probability_positive,
                "outcome": row.outcome,
                "value": row.value.value,
                "model": row.model.value,
                "observed": row.observed,
                "observed_std": row.observed_std,
            }
            for row in self.rows
            for low, high in [row.gain.interval(level)]
        ]

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return "\n".join(self.sentence(policy) for policy in self.summaries)


def _listed(names: Sequence[str], total: int) -> str:
    """Up to five names, or how many there are."""
    if len(names) == total:
        return f"all {total} segments"
    return ", ".join(names) if len(names) <= 5 else f"{len(names)} of {total} segments"


@dataclass(frozen=True)
class SegmentGains:
    """The values and gains of a policy in every segment by the posterior, and the joint covariance of the gains."""

    values: tuple[Estimate, ...]
    gains: tuple[Estimate, ...]
    covariance: Float[Array, "S S"]

    @property
    def means(self) -> Float[Array, " S"]:
        """The gain of each segment."""
        return np.array([gain.value for gain in self.gains])


def gains_by_posterior(policy: Policy, logs: LoggedData, posterior: Posterior, labels: SegmentLabels) -> SegmentGains:
    """The values and gains of a policy by segment, exact under the posterior: other contexts, the same weights.

    Gains of segments covary, since the same items are chosen in several. Their covariance is exact where the posterior
    has one set of Gaussian weights. For other posteriors they count as independent.
    """
    values, gains, vectors, actions = list[Estimate](), list[Estimate](), list[Array](), list[Array]()
    for code in range(len(labels)):
        rows = labels.rows(code)
        part = logs.take(rows)
        weights, x = part.weights, part.contexts
        own = posterior.profile(policy.take(rows), x, None, weights)
        base = posterior.profile(Logged(part), x, None, weights)
        profiles = PolicyProfiles.of([own, base], POLICY_AND_BASELINE, weights, part.groups)
        values.append(posterior.estimate(profiles, (1.0, 1.0)))
        gains.append(posterior.estimate(profiles))
        mass = profiles.masses_of((1.0, 0.0))[0]
        vectors.append(mass.vectors)
        actions.append(mass.actions)
    stds = np.array([gain.posterior_std if gain.posterior_std is not None else gain.std for gain in gains])
    if not isinstance(posterior, RewardPosterior):
        return SegmentGains(tuple(values), tuple(gains), np.diag(stds**2))
    return SegmentGains(tuple(values), tuple(gains), _covariance(posterior, vectors, actions, stds))


def _covariance(
    posterior: RewardPosterior, vectors: Sequence[Array], actions: Sequence[Array], stds: Float[Array, " S"]
) -> Float[Array, "S S"]:
    """Cov(Σ_a v_saᵀ θ_a, Σ_a v_taᵀ θ_a) of all pairs of segments."""
    used, dim = np.unique(np.concatenate(actions)), posterior.dim
    starts = np.concatenate([[0], np.cumsum([own.size for own in vectors])])
    columns = [(np.searchsorted(used, own)[:, None] * dim + np.arange(dim)).ravel() for own in actions]
    parts = np.concatenate([own.ravel() for own in vectors]), np.concatenate(columns), starts
    forms = sparse.csr_array(parts, shape=(len(vectors), len(used) * dim))
    out = np.empty((len(vectors), len(vectors)))
    for s in range(len(vectors)):
        own = forms[[s]].toarray().reshape(len(used), dim)
        out[s] = forms @ posterior.weights.covariances_with(own, used).ravel()
    np.fill_diagonal(out, stds**2)
    return (out + out.T) / 2


def evaluate_segments(
    results: Mapping[str, tuple[Policy, Estimate]],
    logs: LoggedData,
    posterior: Posterior,
    checked: Checked,
    labels: SegmentLabels,
) -> Segments:
    """The gains of several policies by segment.

    Args:
        results: Each policy by name, with its checked gain over all rounds.
        logs: The rounds.
        posterior: The model.
        checked: The checked estimate by this model on these rounds.
        labels: The segment of each round.
    """
    rows, summaries = list[SegmentResult](), dict[str, SegmentSummary]()
    counts = np.bincount(labels.codes, row_weights(logs.weights, len(logs)), len(labels))
    order = np.argsort(-counts, kind="stable")
    for name, (policy, overall) in results.items():
        model = gains_by_posterior(policy, logs, posterior, labels)
        residuals, baseline, error = checked_value_parts(checked, policy, logs)
        evidence = SegmentEvidence.collect(residuals, baseline, labels.codes, model.means, model.covariance, error)
        pooled = evidence.pooled(overall)
        estimates = pooled.estimates()
        outcomes = _outcomes(estimates)
        for code in order.tolist():
            known = bool(np.isfinite(evidence.variance[code]))
            rows.append(
                SegmentResult(
                    labels.names[code], name, float(counts[code]), model.values[code], model.gains[code],
                    float(evidence.observed[code]) if known else None,
                    float(evidence.raw_std[code]) if known else None,
                    estimates[code], outcomes[code],
                )
            )  # fmt: skip
        n_losses = int((evidence.observed < 0).sum())
        summaries[name] = SegmentSummary(pooled.spread, n_losses, evidence.losses_by_chance(overall.value))
    return Segments(tuple(rows), summaries, labels.n_joined)


def _outcomes(estimates: Sequence[Estimate]) -> list[Outcome]:
    probabilities = np.array([estimate.probability_positive for estimate in estimates])
    loses, wins = surely_below(probabilities), surely_below(1.0 - probabilities)
    return ["loses" if lost else "wins" if won else "open" for lost, won in zip(loses, wins, strict=True)]
