"""Sentences of the report: the first screen in plain words, and what each chart shows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from manyarms.core.estimate import Estimate
from manyarms.core.result_tables import number, percent_in_words, required_percent, share, signed_number
from manyarms.decision import recommendation
from manyarms.decision.decide import Decision
from manyarms.decision.plan import Plan, rounded_count
from manyarms.jobs.backtest_result import Backtest
from manyarms.jobs.evaluate import CURRENT, PolicyResult


def in_unit(text: str, unit: str) -> str:
    """A number in a sentence, followed by its unit if there is one."""
    return f"{text} {unit}" if unit else text


def gain_sentence(decision: Decision) -> str:
    """The gain that the verdict is about, with its interval, in the unit of the reward; empty without a model."""
    gain = decision.gains.get(decision.policy)
    if gain is None:
        return ""
    low, high = gain.interval()
    return (
        f"{in_unit(signed_number(gain.value), decision.unit)} per round over the {CURRENT} "
        f"(95 % interval {signed_number(low)} to {signed_number(high)})"
    )


def blockers(decision: Decision) -> list[str]:
    """Sentences of the report on what stands in the way of shipping: too low a probability, guardrails, objections."""
    if decision.verdict == "ship":
        return []
    texts = list[str]()
    probability = decision.probability
    if decision.verdict == "undecided" and probability is not None and probability < decision.sure:
        texts.append(
            f"The probability of a gain is {percent_in_words(probability)}. Shipping requires at least "
            f"{required_percent(decision.sure)}."
        )
    return texts + _as_sentences(decision.cautions)


def concerns(decision: Decision) -> list[str]:
    """Sentences of the report on what to be careful about: the cautions of a policy to ship, and failed checks."""
    known = {text.rstrip(".") for text in decision.cautions}
    failed = [check.finding for check in decision.checks if check.outcome == "failed"]
    return [
        *(_as_sentences(decision.cautions) if decision.verdict == "ship" else []),
        *(text for text in failed if text.rstrip(".") not in known),
    ]


def _as_sentences(texts: Sequence[str]) -> list[str]:
    return [f"{text[:1].upper()}{text[1:]}." for text in texts]


def passed_over(decision: Decision) -> list[str]:
    """Sentences of the report on policies with a larger gain than the one to ship, which a guardrail blocks."""
    best = decision.gains.get(decision.policy)
    if decision.verdict != "ship" or best is None:
        return []
    rows = [row for row in decision.evaluation.policies if row.gain is not None and row.gain.value > best.value]
    sure = [row for row in rows if _gain(row).probability_positive >= decision.sure]
    return recommendation.blocked_policies(sure, decision.guardrails)


def gains_sentence(decision: Decision) -> str:
    """The chart of gains in one sentence."""
    rows = [row for row in decision.evaluation.policies if row.gain is not None]
    above = [row.name for row in rows if _gain(row).interval()[0] > 0]
    below = [row.name for row in rows if _gain(row).interval()[1] < 0]
    open_ = [row.name for row in rows if row.name not in above and row.name not in below]
    parts = [
        f"{_names(names)} {'is' if len(names) == 1 else 'are'} {word}"
        for names, word in ((above, "clearly better"), (open_, "not clearly different"), (below, "clearly worse"))
        if names
    ]
    return f"Compared with the {CURRENT}, {'; '.join(parts)}." if parts else ""


def values_sentence(decision: Decision) -> str:
    """The chart of values in one sentence."""
    evaluation = decision.evaluation
    rows = [(row.value.value, row.name) for row in evaluation.rows if row.value is not None]
    if not rows:
        return ""
    value, name = max(rows)
    shown, unit = f"the {CURRENT}" if name == evaluation.baseline.name else name, decision.unit
    return (
        f"According to the model, {shown} has the highest value, {in_unit(number(value), unit)} per round; the logged "
        f"rounds earned {in_unit(number(evaluation.mean_reward), unit)} on average."
    )


def shrinkage_sentence(decision: Decision) -> str:
    """The chart of shrinkage in one sentence: how far the least logged actions are drawn from their own means."""
    rows = [] if decision.shrinkage is None else decision.shrinkage.rows
    if len(rows) < 4:
        return ""
    moves = np.array([abs(row.posterior - row.own) for row in rows])
    quarter = max(1, len(rows) // 4)
    return (
        "For the quarter of these actions with the fewest evaluated rounds, the model's estimate differs from the mean "
        f"logged reward by {number(moves[:quarter].mean())} on average; for the quarter with the most rounds, by "
        f"{number(moves[-quarter:].mean())}."
    )


def pairs_sentence(decision: Decision) -> str:
    """The chart of pairs in one sentence: the policy that is most likely to beat each other one."""
    evaluation = decision.evaluation
    names = [row.name for row in evaluation.rows]
    worst = dict[str, float]()
    for name in names:
        beaten = [evaluation.probability_better(name, other) for other in names if other != name]
        if beaten and all(value is not None for value in beaten):
            worst[name] = min(value for value in beaten if value is not None)
    if not worst:
        return ""
    best = max(worst, key=lambda name: worst[name])
    shown = CURRENT if best == evaluation.baseline.name else best
    least = percent_in_words(worst[best])
    least = f"of at least {least}" if least[0].isdigit() else least
    return f"{shown[:1].upper()}{shown[1:]} beats each of the others with a probability {least}."


def agreement_sentence(decision: Decision) -> str:
    """The chart of estimators in one sentence: how many intervals contain the model's value."""
    pairs = [
        (row.value.value, estimate.interval())
        for row in decision.evaluation.policies
        if row.value is not None
        for estimate in row.estimates.values()
    ]
    inside = sum(low <= value <= high for value, (low, high) in pairs)
    return f"{inside} of {len(pairs)} intervals contain the model's value." if pairs else ""


def traffic_sentence(decision: Decision) -> str:
    """The chart of traffic in one sentence: the actions that gain and lose most."""
    changes = decision.traffic_changes
    if changes is None or not changes.rows:
        return ""
    first, last = changes.rows[0], changes.rows[-1]
    texts = [
        f"{row.name or f'action {row.action}'} {word} the most, from {share(row.logged)} to {share(row.chosen)} of "
        "rounds"
        for row, word in ((first, "gains"), (last, "loses"))
        if (row.change > 0) == (word == "gains")
    ]
    text = "; ".join(texts)
    return f"{text[:1].upper()}{text[1:]}."


def support_sentence(decision: Decision) -> str:
    """The chart of categories in one sentence: the share of choices without any logged round."""
    evidence = decision.support
    if evidence is None or decision.policy not in evidence.rows[0].chosen:
        return ""
    unseen = sum(row.unsupported[decision.policy] for row in evidence.rows)
    grows = max(evidence.rows, key=lambda row: row.chosen[decision.policy] - row.logged)
    return (
        f"The category {grows.category} grows the most, from {share(grows.logged)} to "
        f"{share(grows.chosen[decision.policy])} of rounds. {share(unseen)} of all choices fall on actions that were "
        "never logged."
    )


def calibration_sentence(decision: Decision) -> str:
    """The answer of the chart of calibration: do groups lie within two standard errors of the diagonal, and where not?

    Groups without an error are not counted: those of a single round, or of rewards that are all the same.
    """
    evidence = decision.calibration
    groups = [] if evidence is None else [group for group in evidence.bins if group.error]
    if evidence is None or not groups:
        return ""
    off = [(group.expected - group.observed) / (2 * group.error) for group in groups if group.error]
    far = sum(abs(deviation) > 1 for deviation in off)
    near, n = len(off) - far, len(off)
    count = f"{near} of {n} group{'' if n == 1 else 's'} lie{'s' if near == 1 else ''}"
    count += " within two standard errors of the diagonal"
    if far <= n / 10:
        return f"Yes: {count}."
    sides = {
        word: [i for i, deviation in enumerate(off) if sign * deviation > 1]
        for word, sign in (("little", -1), ("much", 1))
    }
    parts = [f"too {word} in {_places(groups, n)}" for word, groups in sides.items() if groups]
    opening = "Only approximately" if evidence.against_truth or far <= n / 2 else "No"
    known = " Because the true means are known here, even small deviations show." if evidence.against_truth else ""
    return (
        f"{opening}. {'Just ' if far > n / 2 else ''}{count}: the model expects {', and '.join(parts)}.{known} This is "
        "not one of the checks counted at the top of the page."
    )


def _places(groups: Sequence[int], n: int) -> str:
    """Some of n groups, which are ordered by their expected reward, in words."""
    text, verb = (f"{len(groups)} groups", "have") if len(groups) > 1 else ("1 group", "has")
    if max(groups) < n / 2:
        return f"{text}, which {verb} low expected rewards"
    if min(groups) >= n / 2:
        return f"{text}, which {verb} high expected rewards"
    return text


def plan_sentence(plan: Plan) -> str:
    """The chart of a plan in one sentence: the rounds that each way of logging takes."""
    words = ("logged as now", f"with {plan.traffic[1].name}", "with the exploration policy")
    ways = [
        f"{text}, about {rounded_count(way.rounds)}" if np.isfinite(way.rounds) else f"{text}, no number is enough"
        for way, text in zip(plan.traffic, words, strict=True)
    ]
    return f"More rounds needed to decide with a probability of {100 * plan.chance:.3g} %: {'; '.join(ways)}."


def backtest_sentence(result: Backtest) -> str:
    """The chart of a backtest in one sentence: how many means lie inside, and which is farthest outside."""
    rows = result.series()
    inside = sum(row.is_inside for row in rows)
    count = f"{inside:,} of {len(rows):,} observed means lie inside their intervals"
    if inside == len(rows):
        return f"{count}."
    worst = max(rows, key=lambda row: max(row.low - row.observed, row.observed - row.high))
    side = "above" if worst.observed > worst.high else "below"
    return f"{count}. The farthest outside is {worst.period}: {number(worst.observed)} is {side} its interval."


def coverage_sentence(result: Backtest) -> str:
    """The chart of coverage in one sentence: the share of forecasts that held, against the promised one."""
    expected = f"{100 * result.level:g} %"
    return f"Over all periods, {share(result.coverage)} of the forecasts for all rounds held; {expected} is expected."


def _gain(row: PolicyResult) -> Estimate:
    assert row.gain is not None
    return row.gain


def _names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
