"""The recommendation in one sentence: ship a policy, keep the current one, or neither yet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from manyarms.core.estimate import Estimate
from manyarms.core.result_tables import (
    number,
    percent,
    percent_in_words,
    required_percent,
    signed_number,
    signed_percent,
)
from manyarms.decision.decision_checks import contradicting
from manyarms.decision.diagnostic_lights import THRESHOLDS
from manyarms.decision.guardrail import GuardrailResult
from manyarms.jobs import Evaluation
from manyarms.jobs.evaluate import PolicyResult

SURE = 0.975
"""Probability of beating the current policy that a policy needs to be shipped: its 95 % interval lies above zero."""
SURE_WHERE_CHECKED = 0.9
"""Probability of beating the current policy that a policy needs where its gain is checked with known propensities.

Such probabilities are cautious: on real data, fewer than one in a hundred policies that reach this one are not better
(docs/decisions.md). With estimated propensities they are not cautious enough for it.
"""
VERY_FAR = 3.0
"""Standard errors beyond which two figures contradict each other, where one contradiction decides alone."""
FEWEST_ROUNDS = 10
"""With fewer rounds than this, rewards cannot check a model, whatever the interval of the gain says."""
NO_MATCH = 0.5
"""With a smaller effective sample size, which rounds to zero, no round of the log is like the choices of a policy."""
SWAPPED = (
    "The gain is the average over two policies, each learned from one half of the log and evaluated on the other. "
    "The policy to deploy was then learned in the same way from all rounds."
)
"""The policy that a gain over swapped halves belongs to, and the one to use."""
GIVEN = (
    "The gain uses all rounds: the policy was not learned from this log, and the model from each half is corrected "
    "with the rewards of the other half."
)
"""The rounds behind the gain of a policy that was given, where halves are swapped."""
Verdict = Literal["ship", "keep", "undecided", "estimated", "nothing"]


@dataclass(frozen=True)
class Recommendation:
    """The verdict, the policy that it is about, and two sentences for the reader; all as in `Decision`."""

    verdict: Verdict
    policy: str
    sentence: str
    reason: str
    next_step: str = field(default="", kw_only=True)
    cautions: tuple[str, ...] = field(default=(), kw_only=True)


def recommend(
    evaluation: Evaluation,
    *,
    sure: float | None = None,
    doubts: Sequence[str] = (),
    cautions: Sequence[str] = (),
    guardrails: Sequence[GuardrailResult] = (),
    n_failed: int = 0,
) -> Recommendation:
    """The recommendation that follows from an evaluation.

    A policy is shipped when its gain over the current policy is positive with a probability of at least `sure`, and it
    was not learned from the very rounds that it is evaluated on. The gain is the checked one: rewards have already
    corrected the model where they could, and the interval counts how far models are usually off. So `doubts` about the
    model are stated with a shipped policy as `cautions` are; they decide only where the gain could not be checked. If
    several policies qualify, the one with the largest gain is shipped. The current policy is kept when every candidate
    is worse with a probability of at least `sure`.

    A policy that may break a guardrail is not shipped. If every policy that would be shipped surely breaks one, the
    current policy is kept. The sentence names the goal that blocks. If `n_failed` checks failed, the next step is a
    test of the policy to ship.

    Where halves of a log were swapped, the reason says whose gain it is.
    """
    recommendation = _recommend(evaluation, sure_of(evaluation, sure), doubts, cautions, guardrails, n_failed)
    if evaluation.pooled_rounds is None:
        return recommendation
    given = any(row.given for row in evaluation.policies if row.name == recommendation.policy)
    return replace(recommendation, reason=f"{recommendation.reason} {GIVEN if given else SWAPPED}")


def _recommend(  # noqa: PLR0911  one line for each verdict
    evaluation: Evaluation,
    sure: float,
    doubts: Sequence[str],
    cautions: Sequence[str],
    guardrails: Sequence[GuardrailResult],
    n_failed: int,
) -> Recommendation:
    results = [row for row in evaluation.policies if row.gain is not None]
    if not results:
        return _recommend_without_model(evaluation)
    results.sort(key=lambda row: _gain(row).value, reverse=True)
    best = results[0]
    if all(_gain(row).value == 0.0 == _gain(row).std for row in results):
        sentence = f"Nothing to decide: {best.name} makes the same choices as the current policy."
        remedy = "Add a candidate that differs from it."
        return Recommendation("keep", best.name, sentence, remedy, next_step=remedy)
    promising = [row for row in results if _gain(row).probability_positive >= sure]
    # The logs show the value of the current policy without any model.
    model, mean, error = evaluation.baseline.value, evaluation.mean_reward, evaluation.mean_reward_error
    if model is not None and abs(model.value - mean) > VERY_FAR * math.hypot(model.std, error):
        doubt = f"the model values the current policy at {number(model.value)} while the logs show {number(mean)}"
        doubts = [doubt, *doubts]
    if promising and evaluation.gain_rounds < FEWEST_ROUNDS:
        sentence = _open_sentence(best, evaluation, len(results))
        remedy = "Log more rounds."
        reason = f"{evaluation.gain_rounds} rounds are too few to check the model."
        return Recommendation("undecided", best.name, sentence, reason, next_step=remedy)
    held_out = [row for row in promising if not row.trained]
    sound = [row for row in held_out if row.checked is not None or not (doubts or contradicting(row, evaluation))]
    blocked = {result.policy for result in guardrails if not result.holds}
    allowed = [row for row in sound if row.name not in blocked]
    if allowed:
        best = allowed[0]
        against = [f"{name} contradicts it" for name in contradicting(best, evaluation)]
        recommendation = _ship(best, evaluation, sure, [*doubts, *against, *cautions], n_failed)
        kept = _goals_sentence([result for result in guardrails if result.policy == best.name])
        larger = blocked_policies(sound[: sound.index(best)], guardrails)
        return replace(recommendation, reason=" ".join([recommendation.reason, *([kept] if kept else []), *larger]))
    if sound:
        return _blocked(sound, evaluation, guardrails)
    if held_out:
        return _contradicted(held_out[0], evaluation, doubts)
    if promising:
        return _trained(promising[0], evaluation)
    if all(_gain(row).probability_positive <= 1.0 - sure for row in results):
        sentence = f"Keep the current policy: the best candidate is {best.name}; {_gain_clause(best, evaluation)}."
        reason = f"No candidate has more than a {required_percent(1.0 - sure)} probability of being better."
        advice = "Keep it, and look for other candidates."
        return Recommendation("keep", best.name, sentence, reason, next_step=advice)
    sentence = _open_sentence(best, evaluation, len(results))
    remedy = f"Log more rounds, or test {best.name} on a share of the traffic."
    if _gain(best).probability_positive < 0.5:
        remedy = keep_sentence(best.name)
    evidence = tuple(result.sentence for result in guardrails if result.policy == best.name and not result.holds)
    shown = [f"{text[:1].upper()}{text[1:]}." for text in evidence]
    reason = " ".join([needed_probability(sure), *shown])
    return Recommendation("undecided", best.name, sentence, reason, next_step=remedy, cautions=evidence)


def sure_of(evaluation: Evaluation, sure: float | None) -> float:
    """The probability that a policy needs to be shipped: `sure`, or one that fits the gains."""
    if sure is not None:
        return sure
    gains = [row.gain for row in evaluation.policies if row.gain is not None]
    cautious = all(gain.kind == "checked" and not gain.diagnostics.get("estimated_propensities") for gain in gains)
    return SURE_WHERE_CHECKED if cautious else SURE


def _open_sentence(best: PolicyResult, evaluation: Evaluation, n_candidates: int) -> str:
    """The sentence of a verdict that is open; a single candidate is not called the best of all."""
    if best.checked is not None and best.checked.diagnostics.get("effective_sample_size", 1.0) < NO_MATCH:
        return f"Undecided: the log says too little about {best.name} to give a useful interval."
    if n_candidates == 1:
        return f"Undecided: {_gain_clause(best, evaluation, f'the gain of {best.name}')}."
    return f"Undecided: {best.name} looks best; {_gain_clause(best, evaluation)}."


def needed_probability(sure: float) -> str:
    """The probability that a recommendation to ship needs, in a sentence."""
    return f"Shipping requires a gain with a probability of at least {required_percent(sure)}."


def keep_sentence(name: str) -> str:
    """The advice, in a sentence, where even the best candidate is probably worse than the current policy."""
    return f"Keep the current policy, unless you have another reason to test {name}."


def _ship(
    best: PolicyResult, evaluation: Evaluation, sure: float, cautions: Sequence[str], n_failed: int
) -> Recommendation:
    assert best.value is not None
    remaining = _gain(best).diagnostics.get("prior_share", 0.0)
    unsupported = best.value.diagnostics.get("unsupported_mass", 0.0)
    uncertain = (
        "the gain rests more on the model's prior than on the logged rounds, which leave "
        f"{percent(remaining)} of its prior variance"
    )
    caveats = {
        uncertain: remaining > 0.5,
        f"{percent(unsupported)} of its choices are actions that were never logged": unsupported > 0.1,
        **dict.fromkeys(cautions, True),
        "it was evaluated on a single context": evaluation.n_rounds == 1,
    }
    reason = (
        f"The probability of a gain is {percent_in_words(_gain(best).probability_positive)}; shipping requires at "
        f"least {required_percent(sure)}. The comparison used {evaluation.gain_rounds:,} logged rounds."
    )
    listed = tuple(text for text, applies in caveats.items() if applies)
    remedy = f"Ship {best.name}. Then run manyarms backtest on new logs to check that the forecasts hold."
    if listed or n_failed:
        failed = f": {n_failed} check{'s' if n_failed > 1 else ''} failed" if n_failed else ""
        remedy = f"Test {best.name} on a share of the traffic first{failed}."
        reason = f"Caution: {'; '.join(listed)}. {remedy}" if listed else f"{reason} {remedy}"
    sentence = f"Ship {best.name}: {_gain_clause(best, evaluation)}."
    return Recommendation("ship", best.name, sentence, reason, next_step=remedy, cautions=listed)


def blocked_policies(rows: Sequence[PolicyResult], guardrails: Sequence[GuardrailResult]) -> list[str]:
    """The policies that a recommendation passes over although they gain more, as a guardrail blocks them; in words."""
    goals = {row.name: [r.name for r in guardrails if r.policy == row.name and not r.holds] for row in rows}
    return [f"{name} gains more, but {_blocks(names)} it." for name, names in goals.items() if names]


def _blocks(names: Sequence[str]) -> str:
    many = len(names) > 1
    return f"the guardrail{'s' if many else ''} on {' and '.join(names)} block{'' if many else 's'}"


def _blocked(
    rows: Sequence[PolicyResult], evaluation: Evaluation, guardrails: Sequence[GuardrailResult]
) -> Recommendation:
    """The recommendation where every policy that would be shipped may break a guardrail."""
    best = rows[0]
    blocking = [result for result in guardrails if result.policy == best.name and not result.holds]
    gain = _gain_clause(best, evaluation, f"the gain of {best.name}")
    claim = f"{gain}, but {_blocks([r.name for r in blocking])} it"
    broken = {result.policy for result in guardrails if result.is_broken}
    verdict, opening, remedy = (
        "undecided",
        "Undecided",
        "Log more rounds, or limit how often the items that may harm it are shown (CappedPolicy).",
    )
    if all(row.name in broken for row in rows):
        verdict, opening = "keep", "Keep the current policy"
        remedy = "Limit how often the items that harm it are shown (CappedPolicy), or weigh the goals (trade_off)."
    evidence = tuple(result.sentence for result in blocking)
    reason = " ".join([*(f"{text[:1].upper()}{text[1:]}." for text in evidence), remedy])
    sentence = f"{opening}: {claim}."
    return Recommendation(verdict, best.name, sentence, reason, next_step=remedy, cautions=evidence)


def _trained(best: PolicyResult, evaluation: Evaluation) -> Recommendation:
    reason = "Split the log with `logs.split`, learn the policy from one part, and evaluate it on the other."
    claim = f"{best.name} was learned from the rounds that it is evaluated on, so it looks better than it is"
    sentence = f"Undecided: {claim}; {_gain_clause(best, evaluation)}."
    return Recommendation("undecided", best.name, sentence, reason, next_step=reason)


def _contradicted(best: PolicyResult, evaluation: Evaluation, doubts: Sequence[str]) -> Recommendation:
    names = contradicting(best, evaluation)
    verb = "contradicts" if len(names) == 1 else "contradict"
    objections = [*doubts, *([f"{' and '.join(names)} {verb} it"] if names else [])]
    gain = f"according to the model, {_gain_clause(best, evaluation, f'the gain of {best.name}')}"
    reason = "Find out why before you trust the model, or test the policy on a share of the traffic."
    sentence = f"Undecided: {gain}, but {', and '.join(objections)}."
    return Recommendation("undecided", best.name, sentence, reason, next_step=reason, cautions=tuple(objections))


def _recommend_without_model(evaluation: Evaluation) -> Recommendation:
    estimates = [(row, name, estimate) for row in evaluation.policies for name, estimate in row.estimates.items()]
    if not estimates:
        failures = [reason for row in evaluation.policies for reason in row.left_out.values()]
        reason = f"No estimator could evaluate a policy: {failures[0]}" if failures else "Add a candidate or a model."
        return Recommendation("nothing", "", "There is no policy to decide on.", reason)
    limit = THRESHOLDS.min_effective_sample_size
    sound = [entry for entry in estimates if entry[2].diagnostics.get("effective_sample_size", limit) >= limit]
    if not sound:
        sentence = f"Undecided: no estimator reaches an effective sample size of {limit:.0f} rounds."
        reason, remedy = "The policies rarely choose the logged actions.", "Fit a model: it needs no weights."
        return Recommendation("undecided", "", sentence, f"{reason} {remedy}", next_step=remedy)
    row, name, estimate = max(sound, key=lambda entry: entry[2].value)
    low, high = estimate.interval()
    return Recommendation(
        "estimated",
        row.name,
        f"{name} values {row.name} at {number(estimate.value)} per round (95 % interval {number(low)} to "
        f"{number(high)}); the current policy earned {number(evaluation.mean_reward)}.",
        "Without a model there is no probability that one policy beats another, and nothing is known about actions "
        "that were never logged. Fit a model to get both.",
        next_step="Fit a model.",
    )


def _goals_sentence(results: Sequence[GuardrailResult]) -> str:
    """The guardrails that a shipped policy keeps, in one sentence; empty if there are none."""
    if not results:
        return ""
    held = ", ".join(f"{result.name} with probability {percent_in_words(result.probability)}" for result in results)
    return f"It keeps to the guardrails: {held}."


def _gain(row: PolicyResult) -> Estimate:
    assert row.gain is not None
    return row.gain


def _gain_clause(row: PolicyResult, evaluation: Evaluation, subject: str = "its gain") -> str:
    """The gain in percent where a relative change is defined, else in units of the reward, and its probability."""
    gain, written, unit = _gain(row), signed_number, "per round"
    if row.lift is not None:
        gain, written, unit = row.lift, signed_percent, f"of {_base(row, evaluation)}"
    low, high = gain.interval()
    probability = _gain(row).probability_positive
    certainty = f"better is {percent_in_words(probability)}"
    if probability < 0.5:
        certainty = f"worse is {percent_in_words(1.0 - probability)}"
    ends = f"95 % interval {written(low)} to {written(high)}"
    size = f"{subject} over the current policy is {written(gain.value)} {unit} ({ends})"
    return f"{size}, and the probability that it is {certainty}"


def _base(row: PolicyResult, evaluation: Evaluation) -> str:
    """The figure that a relative gain is a percentage of, in words; where it is below zero, its size."""
    base, name = evaluation.mean_reward, "mean logged reward"
    if row.checked is None and evaluation.baseline.value is not None:
        base, name = evaluation.baseline.value.value, "current policy's value"
    return f"the size of the {name}" if base < 0.0 else f"the {name}"
