"""The checks behind a decision, and what they say against it: doubts that may block, cautions to state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from manyarms.core import LoggedData
from manyarms.core.result_tables import percent
from manyarms.decision.decision_evidence import Calibration, TrafficChanges
from manyarms.decision.diagnostic_lights import THRESHOLDS, Colour
from manyarms.errors import InputError
from manyarms.jobs import Evaluation
from manyarms.jobs.evaluate import PolicyResult
from manyarms.posterior import RewardPosterior
from manyarms.posterior.misfit import PriorCheck
from manyarms.prior_checks.check_categories import CategoryChecks, check_categories

Outcome = Literal["passed", "failed", "not run"]

FEW_MATCHES = 10.0
"""With fewer effective rounds than this, the rewards of a log hardly check the model for a policy."""
FAR = 2.0
"""Standard errors beyond which two figures contradict each other."""
TINY = 1e-300
MUCH_MORE = 1.5
"""Nothing is shipped when rewards vary more than this many times as much as the model expects."""
MANY_FLAGGED = 0.25
"""Nothing is shipped when more than this share of the categories contradicts the model."""
MANY_CATEGORIES = 1000
"""With more categories than this, they are not checked one by one."""


@dataclass(frozen=True)
class Check:
    """A check behind a decision, which passed, failed or could not be run.

    Attributes:
        question: The question that it answers.
        outcome: "passed", "failed" or "not run".
        finding: The figure behind the outcome, or what the check would need.
    """

    question: str
    outcome: Outcome
    finding: str

    @property
    def colour(self) -> Colour:
        """The colour of its traffic light: green if it passed, red if it failed, amber if it was not run."""
        colours: dict[Outcome, Colour] = {"passed": "green", "failed": "red", "not run": "amber"}
        return colours[self.outcome]


def check_log(result: PolicyResult | None) -> list[Check]:
    """The checks behind a decision that the log allows: held-out rounds, overlap and weights."""
    checked = None if result is None else result.checked
    if result is None or checked is None:
        needs = "This needs a model and a policy."
        return [Check(question, "not run", needs) for question in _LOG_QUESTIONS]
    figures = checked.diagnostics
    held_out, matches, weights = _LOG_QUESTIONS
    size, mean = figures["effective_sample_size"], figures["mean_weight"]
    seen = result.trained or bool(figures["evaluated_on_training_rounds"])
    finding = (
        "The model or the policy was learned from these rounds."
        if seen
        else "Neither the model nor the policy was learned from them."
    )
    off = abs(mean - 1.0) > THRESHOLDS.mean_weight_error
    guessed = figures.get("estimated_propensities", 0.0) > 0
    size_found = f"effective sample size is {size:,.0f}; at least {FEW_MATCHES:.0f} rounds are needed."
    weighing = f"The mean importance weight is {mean:.3g}."
    if off:
        weighing = (
            f"The mean importance weight is {mean:.3g} and should be about 1: either the logged propensities are "
            "wrong, or too few rounds match the policy."
        )
    return [
        Check(held_out, "failed" if seen else "passed", finding),
        Check(matches, "failed", f"Too few rounds of the log match the policy's choices: their {size_found}")
        if size < FEW_MATCHES
        else Check(matches, "passed", f"Their {size_found}"),
        Check(weights, "not run", "Propensities were estimated from the same log.")
        if guessed
        else Check(weights, "failed" if off else "passed", weighing),
    ]


_LOG_QUESTIONS = (
    "Are the rounds new to the model and to the policy?",
    "Does the log contain enough rounds that match the policy's choices?",
    "Do the importance weights average about 1, as they should?",
)


def model_checks(
    evaluation: Evaluation, result: PolicyResult | None, prior: PriorCheck | None, categories: CategoryChecks | None
) -> list[Check]:
    """The checks of the model behind a decision: by other estimators, by the spread of rewards, and by category."""
    checks = list[Check]()
    question = "Do other estimators agree?"
    names = [] if result is None or result.value is None else sound_estimators(result)
    if result is None or not names:
        tried = result is not None and bool(result.estimates)
        reason = "has a large enough effective sample size" if tried else "was run"
        checks.append(Check(question, "not run", f"No other estimator {reason}."))
    else:
        against = contradicting(result, evaluation)
        finding = f"{_contradiction(against)} the model." if against else f"{_agreement(names)} the model."
        checks.append(Check(question, "failed" if against else "passed", finding))
    question = "Do rewards vary as the model expects?"
    if prior is None or (prior.unchecked and prior.mean is None):
        checks.append(Check(question, "not run", "This needs a model that records the spread of its rewards."))
    else:
        finding = prior.warnings[0] if prior.warnings else "Yes: any deviation is too small to matter."
        checks.append(Check(question, "failed" if prior.warnings else "passed", finding))
    question = "Does every category earn what the model expects?"
    if categories is None:
        checks.append(Check(question, "not run", "This needs categories, and rounds that the model has not seen."))
    else:
        verb = "contradicts" if len(categories.flagged) == 1 else "contradict"
        flagged = f"{len(categories.flagged):,} of {len(categories):,} categories {verb} the model."
        checks.append(Check(question, "failed" if categories.flagged else "passed", flagged))
    return checks


def _contradiction(names: Sequence[str]) -> str:
    return f"{' and '.join(names)} {'contradicts' if len(names) == 1 else 'contradict'}"


def _agreement(names: Sequence[str]) -> str:
    """The estimators that do not contradict, for the beginning of a sentence."""
    if len(names) == 1:
        return f"{names[0]} does not contradict"
    if len(names) == 2:
        return f"Neither {names[0]} nor {names[1]} contradicts"
    return f"None of {', '.join(names)} contradicts"


def contradicting(row: PolicyResult, evaluation: Evaluation) -> list[str]:
    """The estimators that contradict the gain when a decision is checked, among those with enough effective rounds.

    An estimator contradicts the gain when it values the policy clearly below the current one, or when it values it far
    below the model without a clear gain of its own.
    """
    model, names = row.value, list[str]()
    assert model is not None
    for name in sound_estimators(row):
        estimate = row.estimates[name]
        error = max(math.hypot(estimate.std, evaluation.mean_reward_error), TINY)
        gain = (estimate.value - evaluation.mean_reward) / error
        shortfall = (model.value - estimate.value) / max(math.hypot(estimate.std, model.std), TINY)
        if gain < -FAR or (shortfall > FAR and gain < FAR):
            names.append(name)
    return names


def sound_estimators(row: PolicyResult) -> list[str]:
    """The estimators with enough effective rounds to check a decision by."""
    limit = THRESHOLDS.min_effective_sample_size
    sizes = {name: estimate.diagnostics.get("effective_sample_size", 0.0) for name, estimate in row.estimates.items()}
    return [name for name, size in sizes.items() if size >= limit]


def doubts(check: PriorCheck | None, categories: CategoryChecks | None) -> list[str]:
    """Doubts from checks of the model, where rewards differ so much from it that its intervals mean nothing."""
    parts = {} if check is None else {"noise": check.noise, "prior": check.prior}
    texts = [
        f"rewards vary {part.ratio:.3g} times as much as the model's {name} implies"
        for name, part in parts.items()
        if part is not None and part.contradicts and part.ratio > MUCH_MORE
    ]
    if categories is not None and len(categories.flagged) > max(1.0, MANY_FLAGGED * len(categories)):
        share = f"{len(categories.flagged):,} of {len(categories):,}"
        texts.append(f"the rewards of {share} categories contradict the model")
    return texts


def cautions(changes: TrafficChanges | None, calibrated: Calibration | None, check: PriorCheck | None) -> list[str]:
    """Cautions from the checks of a decision, to state when a policy is shipped; they are joined into one sentence."""
    texts = list[str]()
    top = None if changes is None else max(changes.rows, key=lambda row: row.chosen, default=None)
    if top is not None and top.chosen > 0.5:
        rounds = f"{top.n_rounds:,.6g} logged round{'' if top.n_rounds == 1 else 's'}"
        shown = top.name or f"action {top.action}"
        texts.append(f"{percent(top.chosen)} of its choices fall on {shown}, which has {rounds}")
    if calibrated is not None and not calibrated.held_out:
        texts.append("the model was fitted on the same rounds that the policies are evaluated on")
    return texts + ([] if check is None else [text.rstrip(".") for text in check.warnings])


def checks_by_category(
    model: RewardPosterior, logs: LoggedData, column: Any, n: int, held_out: bool
) -> tuple[CategoryChecks | None, list[str]]:
    """The checks of a decision that go category by category, or the reason why there are none."""
    if n > MANY_CATEGORIES:
        return None, [f"Categories were not checked one by one: there are {n:,}, more than {MANY_CATEGORIES:,}."]
    try:
        return check_categories(model, logs, column, held_out=held_out), []
    except InputError as cause:
        return None, [f"Categories were not checked: {cause}"]
