"""The answer in one sentence: ship this policy, keep what runs now, or not decided.

Figures in words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from manyarms.estimators.weight_diagnostics import Thresholds
from manyarms.jobs import Evaluation
from manyarms.jobs.evaluate import PolicyResult

SURE = 0.975
"""How probable it must be that a policy beats what runs now before the answer is: ship it.

The 95 % interval of its gain then lies above zero.
"""
FAR, VERY_FAR = 2.0, 3.0
"""Standard errors between two figures beyond which they contradict one another; the second for what decides alone."""
TINY = 1e-300

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


def answer(
    evaluation: Evaluation, *, sure: float = SURE, doubts: Sequence[str] = (), worries: Sequence[str] = ()
) -> Answer:
    """The answer that an evaluation gives.

    A policy is shipped when it beats what runs now with a probability of at least `sure`, nothing speaks against the
    model, and no estimator whose weights are worth enough rounds refutes the gain; of several the one that is expected
    to gain most. Where every candidate is worse with that probability, what runs now stays.

    Args:
        evaluation: What `evaluate` returned.
        sure: How probable is probable enough.
        doubts: What speaks against the model: with any of these nothing is shipped.
        worries: What else must be said in the same breath.
    """
    judged = [row for row in evaluation.policies if row.difference is not None]
    if not judged:
        return _without_model(evaluation)
    best = max(judged, key=_gain)
    if all(row.difference.value == 0.0 == row.difference.std for row in judged if row.difference is not None):
        said = f"Nothing to decide: {best.name} chooses what runs now chooses."
        return Answer("keep", best.name, said, "Name a policy that differs from it.", _probability(best))
    promising = [row for row in judged if _probability(row) >= sure]
    doubts = [*_off_the_mark(evaluation), *doubts]
    better = [] if doubts else [row for row in promising if not contradicting(row, evaluation)]
    if better:
        return _ship(max(better, key=_gain), evaluation, worries)
    if promising:
        best = max(promising, key=_gain)
        against = contradicting(best, evaluation)
        judges = f"{' and '.join(against)} {'refutes' if len(against) == 1 else 'refute'} it" if against else ""
        return Answer(
            "undecided",
            best.name,
            f"Not decided: by the model {best.name} brings {_change(best)} over what runs now, "
            f"{percent(_probability(best))} sure, but {', and '.join([*doubts, *([judges] if judges else [])])}.",
            "Find out why before you trust the model, or test the policy on a share of the traffic.",
            _probability(best),
        )
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


def _ship(best: PolicyResult, evaluation: Evaluation, worries: Sequence[str]) -> Answer:
    said = [*_caveats(best), *worries]
    if evaluation.n_rounds == 1:
        said.append("it was judged on a single context")
    reason = (
        f"Mind that {'; '.join(said)}. Try it on a share of the traffic first."
        if said
        else f"Judged on {evaluation.n_rounds:,} logged contexts against what runs now, by the model's posterior."
    )
    sentence = f"Ship {best.name}: {_change(best)} over what runs now, {percent(_probability(best))} sure."
    return Answer("ship", best.name, sentence, reason, _probability(best))


def _off_the_mark(evaluation: Evaluation) -> list[str]:
    """Whether the model is wrong about what runs now, which the log knows without any model."""
    model, mean = evaluation.baseline.value, evaluation.mean_reward
    if model is None or abs(model.value - mean) <= VERY_FAR * math.hypot(model.std, evaluation.mean_reward_error):
        return []
    return [f"it puts what runs now at {number(model.value)}, which brought {number(mean)}"]


def contradicting(row: PolicyResult, evaluation: Evaluation, thresholds: Thresholds | None = None) -> list[str]:
    """Estimators, with weights that are worth rounds, that refute the gain that the model sees.

    They put the policy clearly below what runs now; or far below where the model has it, without a clear gain of their
    own.

    Args:
        row: The policy.
        evaluation: Where it was judged.
        thresholds: When weights are worth enough; None for the default.
    """
    limit = (Thresholds() if thresholds is None else thresholds).min_effective_sample_size
    model, found = row.value, list[str]()
    if model is None:
        return found
    for name, one in row.estimates.items():
        if one.diagnostics.get("effective_sample_size", 0.0) < limit:
            continue
        gain = (one.value - evaluation.mean_reward) / max(math.hypot(one.std, evaluation.mean_reward_error), TINY)
        short = (model.value - one.value) / max(math.hypot(one.std, model.std), TINY)
        if gain < -FAR or (short > FAR and gain < FAR):
            found.append(name)
    return found


def _without_model(evaluation: Evaluation) -> Answer:
    estimated = [(row, name, one) for row in evaluation.policies for name, one in row.estimates.items()]
    if not estimated:
        left = [why for row in evaluation.policies for why in row.left_out.values()]
        reason = f"No estimator could judge any: {left[0]}" if left else "Name candidates, or a model to make them of."
        return Answer("nothing", "", "There is no policy to decide on.", reason)
    limit = Thresholds().min_effective_sample_size
    sound = [found for found in estimated if found[2].diagnostics.get("effective_sample_size", limit) >= limit]
    if not sound:
        return Answer(
            "undecided",
            "",
            f"Not decided: no estimator's weights are worth {limit:.0f} rounds.",
            "Policies choose too little of what was logged. Fit a model with `manyarms fit`, which needs no weights.",
        )
    row, name, one = max(sound, key=lambda found: found[2].value)
    low, high = one.interval()
    return Answer(
        "estimated",
        row.name,
        f"{row.name} is worth {number(one.value)} [{number(low)}, {number(high)}] by {name}; what runs now brought "
        f"{number(evaluation.mean_reward)}.",
        "No model was given, so there is no probability that one policy beats another, and no word on actions that "
        "were never logged. Fit one with `manyarms fit`.",
    )


def _gain(row: PolicyResult) -> float:
    return -float("inf") if row.difference is None else row.difference.value


def _probability(row: PolicyResult) -> float:
    return 0.0 if row.difference is None else row.difference.probability_positive


def _change(row: PolicyResult, *, sign: bool = True) -> str:
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


def _caveats(row: PolicyResult) -> list[str]:
    """What must be said in the same breath."""
    assert row.value is not None and row.difference is not None
    found = list[str]()
    share = row.difference.diagnostics.get("prior_share", 0.0)
    if share > 0.5:
        found.append(f"{percent(share)} of the prior's variance is left in that figure, so it rests on the prior")
    unseen = row.value.diagnostics.get("unsupported_mass", 0.0)
    if unseen > 0.1:
        found.append(f"{percent(unseen)} of its choices were never logged")
    return found


def number(value: float) -> str:
    """Three digits."""
    return f"{value:,.3g}" if abs(value) < 1e4 else f"{value:,.0f}"


def percent(share: float) -> str:
    """A probability or a share. Never 0 or 100 %: a posterior is not that sure."""
    if share > 0.999:
        return "> 99.9 %"
    return "< 0.1 %" if share < 0.001 else f"{100 * share:.1f} %"
