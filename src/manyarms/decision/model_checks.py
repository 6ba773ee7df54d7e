"""Checks of the model behind a decision, and what they say against it: doubts that may block, cautions to state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from manyarms.core import LoggedData
from manyarms.core.result_tables import percent
from manyarms.decision.decision_evidence import Calibration, TrafficChanges
from manyarms.decision.diagnostic_lights import Check
from manyarms.decision.recommendation import contradicting, sound_estimators
from manyarms.errors import InputError
from manyarms.jobs import Evaluation
from manyarms.jobs.evaluate import PolicyResult
from manyarms.posterior import RewardPosterior
from manyarms.posterior.misfit import PriorCheck
from manyarms.prior_checks.check_categories import CategoryChecks, check_categories

MUCH_MORE = 1.5
"""Nothing is shipped when rewards vary more than this many times as much as the model expects."""
MANY_FLAGGED = 0.25
"""Nothing is shipped when more than this share of the categories contradicts the model."""
MANY_CATEGORIES = 1000
"""With more categories than this, they are not checked one by one."""


def model_checks(
    evaluation: Evaluation, result: PolicyResult | None, prior: PriorCheck | None, categories: CategoryChecks | None
) -> list[Check]:
    """The checks of the model: by other estimators, by the spread of rewards, and by category."""
    checks = list[Check]()
    question = "Do other estimators agree?"
    names = [] if result is None or result.value is None else sound_estimators(result)
    if result is None or not names:
        checks.append(Check(question, "not possible", "No other estimator had enough effective rounds."))
    else:
        against = contradicting(result, evaluation)
        finding = f"{_contradiction(against)} the model." if against else f"{_agreement(names)} the model."
        checks.append(Check(question, "failed" if against else "passed", finding))
    question = "Do rewards vary as the model expects?"
    if prior is None or (prior.unchecked and prior.mean is None):
        checks.append(Check(question, "not possible", "This needs a model that records the spread of its rewards."))
    else:
        finding = prior.warnings[0] if prior.warnings else "They are consistent with its prior and its noise."
        checks.append(Check(question, "failed" if prior.warnings else "passed", finding))
    question = "Does every category earn what the model expects?"
    if categories is None:
        checks.append(Check(question, "not possible", "This needs categories and new rounds."))
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


def doubts(check: PriorCheck | None, categories: CategoryChecks | None) -> list[str]:
    """The ways in which rewards differ so much from what the model says that its intervals mean nothing."""
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
    """Caveats to state when a policy is shipped, without full stops, to be joined into one sentence."""
    texts = list[str]()
    top = None if changes is None else max(changes.rows, key=lambda row: row.chosen, default=None)
    if top is not None and top.chosen > 0.5:
        rounds = f"{top.n_rounds:,.6g} logged round{'' if top.n_rounds == 1 else 's'}"
        texts.append(f"{percent(top.chosen)} of its choices fall on action {top.action}, which has {rounds}")
    if calibrated is not None and not calibrated.held_out:
        texts.append("the model was fitted on the same rounds that the policies are evaluated on")
    return texts + ([] if check is None else [text.rstrip(".") for text in check.warnings])


def checks_by_category(
    model: RewardPosterior, logs: LoggedData, column: Any, n: int, held_out: bool
) -> tuple[CategoryChecks | None, list[str]]:
    """The model checks of each category, or the reason why there are none."""
    if n > MANY_CATEGORIES:
        return None, [f"Categories were not checked one by one: there are {n:,}, more than {MANY_CATEGORIES:,}."]
    try:
        return check_categories(model, logs, column, held_out=held_out), []
    except InputError as cause:
        return None, [f"Categories were not checked: {cause}"]
