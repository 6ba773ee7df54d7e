"""Diagnostics as traffic lights: green, amber, red, and what each means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from manyarms.core.estimate import Estimate
from manyarms.estimators.weight_diagnostics import Thresholds
from manyarms.jobs import Evaluation

Colour = Literal["green", "amber", "red"]


@dataclass(frozen=True)
class Light:
    """One figure of one judge on one policy.

    Attributes:
        policy: Whom it is about.
        judge: Whose estimate it belongs to.
        figure: Its name in `Estimate.diagnostics`.
        value: What it is.
        limit: Where it turns red.
        colour: Green, amber from half way to the limit, red beyond it.
        meaning: What it is, in words.
    """

    policy: str
    judge: str
    figure: str
    value: float
    limit: float
    colour: Colour
    meaning: str


MODEL = "model"
"""The judge that is no estimator."""

_MEANINGS = {
    "unsupported_mass": "share of its choices on actions never logged: there the prior decides",
    "prior_share": "share of the prior's variance that the logs left: at 100 % the answer is the prior's",
    "effective_sample_size": "how many rounds the importance weights are worth",
    "max_weight_share": "share of all weight on a single round",
    "mean_weight": "mean importance weight: 1 when propensities and support are right",
    "rounded_propensities": "propensities look rounded: small ones have lost their digits",
    "evaluated_on_training_rounds": "policy or model was learned from these very rounds",
}


def lights(evaluation: Evaluation, thresholds: Thresholds | None = None) -> tuple[Light, ...]:
    """The diagnostics of all estimates in an evaluation that have a limit.

    Args:
        evaluation: What `evaluate` returned.
        thresholds: Where figures turn red; None for those that estimators warn by.
    """
    limits = Thresholds() if thresholds is None else thresholds
    found = list[Light]()
    for row in evaluation.policies:
        judges = {MODEL: row.value, **row.estimates}
        for judge, estimate in judges.items():
            if estimate is not None:
                found += _of_estimate(row.name, judge, estimate, limits)
    return tuple(found)


def _of_estimate(policy: str, judge: str, estimate: Estimate, limits: Thresholds) -> Iterator[Light]:
    at_most = {
        "unsupported_mass": limits.max_unsupported_mass,
        "prior_share": limits.max_prior_share,
        "max_weight_share": limits.max_weight_share,
    }
    for figure, value in estimate.diagnostics.items():
        if figure in at_most:
            limit, badness = at_most[figure], value / at_most[figure]
        elif figure == "effective_sample_size":
            limit, badness = limits.min_effective_sample_size, limits.min_effective_sample_size / max(value, 1e-12)
        elif figure == "mean_weight":
            limit, badness = limits.mean_weight_error, abs(value - 1.0) / limits.mean_weight_error
        elif figure in _MEANINGS:
            limit, badness = 0.0, 2.0 * value
        else:
            continue
        colour: Colour = "red" if badness > 1 else "amber" if badness > 0.5 else "green"
        yield Light(policy, judge, figure, float(value), limit, colour, _MEANINGS[figure])
