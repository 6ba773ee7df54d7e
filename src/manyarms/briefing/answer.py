"""The answer in one sentence: ship this policy, keep what runs now, or not decided."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from manyarms.briefing.words import number, percent
from manyarms.estimators.diagnostics import Thresholds
from manyarms.jobs import Evaluation
from manyarms.jobs.evaluating import Judged

SURE = 0.975
"""How probable it must be that a policy beats what runs now before the answer is: ship it.

The 95 % interval of its gain then lies above zero.
"""
FAR = 2.0
"""Standard errors between two judges of one policy beyond which they contradict one another."""

Verdict = Literal["ship", "keep", "undecided", "estimated", "nothing"]


@dataclass(frozen=True)
class Answer:
    """What to do.

    Attributes:
        verdict: "ship" a policy; "keep" what runs now; "undecided"; "estimated" where no model could say how sure it
            is, and estimators alone spoke; "nothing" when there is no candidate.
        policy: The policy it is about; empty when it is about none.
        sentence: The answer.
        reason: One more, on what it rests and what to do next.
        probability: That the policy beats what runs now, where it is known.
    """

    verdict: Verdict
    policy: str
    sentence: str
    reason: str
    probability: float | None = None


def answer(evaluation: Evaluation, *, sure: float = SURE) -> Answer:
    """The answer that an evaluation gives.

    A policy is shipped when it beats what runs now with a probability of at least `sure` and no estimator whose weights
    are worth enough rounds contradicts the model on it; of several the one that is expected to gain most. Where every
    candidate is worse with that probability, what runs now stays.

    Args:
        evaluation: What `evaluate` returned.
        sure: How probable is probable enough.
    """
    now = evaluation.baseline.name
    judged = [row for row in evaluation.policies if row.difference is not None]
    if not judged:
        return _without_model(evaluation)
    promising = [row for row in judged if _probability(row) >= sure]
    better = [row for row in promising if not contradicting(row)]
    if better:
        best = max(better, key=_gain)
        return Answer(
            "ship",
            best.name,
            f"Ship {best.name}: {_change(best)} over what runs now, {percent(_probability(best))} sure.",
            _caveat(best)
            or f"Judged on {evaluation.n_rounds:,} logged contexts against {now}, by the model's posterior.",
            _probability(best),
        )
    if promising:
        best = max(promising, key=_gain)
        return Answer(
            "undecided",
            best.name,
            f"Not decided: by the model {best.name} brings {_change(best)} over what runs now, "
            f"{percent(_probability(best))} sure, but {' and '.join(contradicting(best))} "
            f"{'contradicts' if len(contradicting(best)) == 1 else 'contradict'} it.",
            "The logged rewards alone do not confirm what the model expects of it. Find out why, or test it on a share "
            "of the traffic.",
            _probability(best),
        )
    best = max(judged, key=_gain)
    if all(_probability(row) <= 1.0 - sure for row in judged):
        return Answer(
            "keep",
            best.name,
            f"Keep what runs now: the best candidate, {best.name}, is worse by {_change(best, sign=False)}, "
            f"{percent(1.0 - _probability(best))} sure.",
            f"No candidate of {len(judged)} has a chance of more than {percent(1.0 - sure)}.",
            _probability(best),
        )
    return Answer(
        "undecided",
        best.name,
        f"Not decided: {best.name} looks best with {_change(best)} over what runs now, {percent(_probability(best))} "
        "sure.",
        f"That is less than the {percent(sure)} asked for. More rounds, or a test of {best.name} on a share of the "
        "traffic, would tell.",
        _probability(best),
    )


def contradicting(row: Judged, thresholds: Thresholds | None = None) -> list[str]:
    """Estimators that put the value of a policy far below where the model has it, with weights that are worth rounds.

    Args:
        row: The policy.
        thresholds: When weights are worth enough; None for the default.
    """
    limit = (Thresholds() if thresholds is None else thresholds).min_effective_sample_size
    model = row.value
    return (
        []
        if model is None
        else [
            name
            for name, one in row.estimates.items()
            if one.diagnostics.get("effective_sample_size", 0.0) >= limit
            and model.value - one.value > FAR * math.hypot(one.std, model.std)
        ]
    )


def _without_model(evaluation: Evaluation) -> Answer:
    estimated = [(row, name, one) for row in evaluation.policies for name, one in row.estimates.items()]
    if not estimated:
        return Answer("nothing", "", "There is no policy to decide on.", "Name candidates, or a model to make them of.")
    row, name, one = max(estimated, key=lambda found: found[2].value)
    low, high = one.interval()
    return Answer(
        "estimated",
        row.name,
        f"{row.name} is worth {number(one.value)} [{number(low)}, {number(high)}] by {name}; what runs now brought "
        f"{number(evaluation.mean_reward)}.",
        "No model was given, so there is no probability that one policy beats another, and no word on actions that "
        "were never logged. Fit one with `manyarms fit`.",
    )


def _gain(row: Judged) -> float:
    return -float("inf") if row.difference is None else row.difference.value


def _probability(row: Judged) -> float:
    return 0.0 if row.difference is None else row.difference.probability_positive


def _change(row: Judged, *, sign: bool = True) -> str:
    """+12 % [+8 %, +16 %] where a share means something, else in units of the reward."""
    if row.lift is not None:
        low, high = row.lift.interval()
        if not sign:
            return f"{abs(100 * row.lift.value):.3g} % [{-100 * high:.3g}, {-100 * low:.3g}]"
        return f"{100 * row.lift.value:+.3g} % [{100 * low:+.3g}, {100 * high:+.3g}]"
    assert row.difference is not None
    low, high = row.difference.interval()
    if not sign:
        return f"{number(abs(row.difference.value))} [{number(-high)}, {number(-low)}]"
    return f"{row.difference.value:+.3g} [{low:+.3g}, {high:+.3g}] a round"


def _caveat(row: Judged) -> str:
    """What must be said in the same breath."""
    assert row.value is not None and row.difference is not None
    worries = list[str]()
    share = row.difference.diagnostics.get("prior_share", 0.0)
    if share > 0.5:
        worries.append(f"{percent(share)} of the prior's variance is left in that figure: it rests on the prior")
    unseen = row.value.diagnostics.get("unsupported_mass", 0.0)
    if unseen > 0.1:
        worries.append(f"{percent(unseen)} of its choices were never logged")
    return f"Mind that {' and '.join(worries)}. Try it on a share of the traffic first." if worries else ""
