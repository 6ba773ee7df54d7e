"""The traffic lights of the report for the diagnostics of all estimates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from manyarms.estimators.weight_diagnostics import Thresholds
from manyarms.jobs import Evaluation

THRESHOLDS = Thresholds()
"""The limits of the estimators' own warnings."""


Colour = Literal["green", "amber", "red"]


@dataclass(frozen=True)
class Diagnostic:
    """A traffic light of the report: a figure of `Estimate.diagnostics`, for one policy and one estimator.

    It is red beyond the limit, amber from half way there, else green. The estimator is "model" for the posterior.
    """

    policy: str
    estimator: str
    figure: str
    value: float
    limit: float
    colour: Colour
    meaning: str


_MEANINGS = {
    "unsupported_mass": "share of the policy's choices on actions with no logged round (for the model: in the log it "
    "was fitted on; for other estimators: in the evaluated log). The model can then rely only on what such actions "
    "share with others, such as a category. Importance weights can say nothing about them",
    "prior_share": "share of the prior variance of the value that remains once the logs have been used; at 100 %, the "
    "logs have added nothing",
    "effective_sample_size": "number of equally weighted rounds that would be as informative as the weighted ones. "
    f"Below {2 * THRESHOLDS.min_effective_sample_size:.0f}, treat an estimator's own value with caution; below "
    f"{THRESHOLDS.min_effective_sample_size:.0f}, it is unreliable. The check above needs only 10",
    "max_weight_share": "share of the total importance weight that comes from the round with the largest weight",
    "pareto_k": f"how heavy the tail of the weights is; above {THRESHOLDS.max_pareto_k:g}, the error bar is too narrow",
    "mean_weight": "mean importance weight; should be close to 1",
    "rounded_propensities": "whether propensities look rounded; if so, small ones are inaccurate",
    "evaluated_on_training_rounds": "whether the policy, or this estimator's reward model, is known to have been "
    'trained on these rounds, which makes the estimate too high. "No" means that no such training is known',
}


_LIMITS = {
    "unsupported_mass": THRESHOLDS.max_unsupported_mass,
    "prior_share": THRESHOLDS.max_prior_share,
    "effective_sample_size": THRESHOLDS.min_effective_sample_size,
    "max_weight_share": THRESHOLDS.max_weight_share,
    "pareto_k": THRESHOLDS.max_pareto_k,
    "mean_weight": THRESHOLDS.mean_weight_error,
}


def diagnose(evaluation: Evaluation) -> tuple[Diagnostic, ...]:
    """The traffic lights of the report: the diagnostics in an evaluation that tell how far to trust it."""
    return tuple(
        _diagnostic(row.name, estimator, figure, value)
        for row in evaluation.policies
        for estimator, estimate in {"model": row.value, **row.estimates}.items()
        if estimate is not None
        for figure, value in estimate.diagnostics.items()
        if figure in _MEANINGS
    )


def _diagnostic(policy: str, estimator: str, figure: str, value: float) -> Diagnostic:
    limit = _LIMITS.get(figure, 0.0)
    severity = value / limit if limit else 2.0 * value
    if figure == "effective_sample_size":
        severity = limit / max(value, 1e-12)
    elif figure == "mean_weight":
        severity = abs(value - 1.0) / limit
    colour: Colour = "red" if severity > 1 else "amber" if severity > 0.5 else "green"
    return Diagnostic(policy, estimator, figure, float(value), limit, colour, _MEANINGS[figure])
