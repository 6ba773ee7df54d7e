"""Diagnostics of all estimates as traffic lights: green, amber or red, each with an explanation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from manyarms.core.estimate import Estimate
from manyarms.estimators.estimator import Thresholds
from manyarms.jobs import Evaluation

Colour = Literal["green", "amber", "red"]


@dataclass(frozen=True)
class Diagnostic:
    """One figure that says how far an estimate of one policy can be trusted.

    Attributes:
        policy: The policy.
        estimator: The estimator, or "model" for the posterior.
        figure: The name of the figure in `Estimate.diagnostics`.
        value: Its value.
        limit: The limit beyond which it is red.
        colour: Red beyond the limit, amber from half way there, else green.
        meaning: An explanation of the figure.
    """

    policy: str
    estimator: str
    figure: str
    value: float
    limit: float
    colour: Colour
    meaning: str


MODEL = "model"
"""The name of the posterior among the estimators."""

_MEANINGS = {
    "unsupported_mass": "share of its choices on actions that were never logged; their rewards rest on the prior",
    "prior_share": "share of the prior variance that remains after the logs; at 100 % the logs have added nothing",
    "effective_sample_size": "number of equally weighted rounds that would be as informative",
    "max_weight_share": "share of the total importance weight on a single round",
    "mean_weight": "mean importance weight; it is 1 when propensities and support are right",
    "rounded_propensities": "the propensities look rounded, so small ones are inaccurate",
    "evaluated_on_training_rounds": "policy or model was trained on these rounds, so the estimate is optimistic",
}


def diagnose(evaluation: Evaluation) -> tuple[Diagnostic, ...]:
    """All diagnostics in an evaluation that have a limit. The limits are those of the estimators' own warnings."""
    limits = Thresholds()
    return tuple(
        diagnostic
        for row in evaluation.policies
        for estimator, estimate in {MODEL: row.value, **row.estimates}.items()
        if estimate is not None
        for diagnostic in _diagnose_estimate(row.name, estimator, estimate, limits)
    )


def _diagnose_estimate(policy: str, estimator: str, estimate: Estimate, limits: Thresholds) -> Iterator[Diagnostic]:
    upper_limits = {
        "unsupported_mass": limits.max_unsupported_mass,
        "prior_share": limits.max_prior_share,
        "max_weight_share": limits.max_weight_share,
    }
    for figure, value in estimate.diagnostics.items():
        if figure in upper_limits:
            limit, severity = upper_limits[figure], value / upper_limits[figure]
        elif figure == "effective_sample_size":
            limit, severity = limits.min_effective_sample_size, limits.min_effective_sample_size / max(value, 1e-12)
        elif figure == "mean_weight":
            limit, severity = limits.mean_weight_error, abs(value - 1.0) / limits.mean_weight_error
        elif figure in _MEANINGS:
            limit, severity = 0.0, 2.0 * value
        else:
            continue
        colour: Colour = "red" if severity > 1 else "amber" if severity > 0.5 else "green"
        yield Diagnostic(policy, estimator, figure, float(value), limit, colour, _MEANINGS[figure])
