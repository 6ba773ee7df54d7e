"""The section of the report on segments of the traffic: who wins, who loses, and what shipping to some would bring."""

from __future__ import annotations

from html import escape
from typing import Any

from manyarms.core.result_tables import percent, signed_number
from manyarms.decision import plots
from manyarms.decision.decide import Decision
from manyarms.decision.report_parts import (
    Charts,
    Section,
    TableCell,
    count_cell,
    estimate_cell,
    figure,
    folded,
    number_cell,
    table,
)

OUTCOMES = {
    "wins": TableCell("● Better", css="light green"),
    "loses": TableCell("● Worse", css="light red"),
    "open": TableCell("Not clear"),
}


def _segments(decision: Decision, charts: Charts) -> str:
    by_segment = decision.evaluation.segments
    if by_segment is None or decision.policy not in by_segment.summaries:
        return ""
    rows = by_segment.of_policy(decision.policy)
    columns = {
        "Segment": lambda row: TableCell(row.segment),
        "Rounds": lambda row: count_cell(row.n_rounds),
        "Gain per round [95 % interval]": lambda row: estimate_cell(row.gain, signed_number),
        "Probability of a gain": lambda row: number_cell(row.gain.probability_positive, percent),
        "Outcome": lambda row: OUTCOMES[row.outcome],
        "From its own rewards": lambda row: number_cell(row.observed, signed_number),
    }
    joined = (
        f" The {by_segment.n_joined:,} segments with the fewest rounds are shown as one." if by_segment.n_joined else ""
    )
    finding, *others = decision.segment_sentences
    more = "".join(f"<p>{escape(sentence)}</p>" for sentence in others)
    caption = (
        "Thick lines are 50 % intervals and thin lines 95 % intervals. Where the thin line lies wholly to the right of "
        "zero, the policy is probably better than the current one."
    )
    return (
        f"{figure('segments', charts, caption, finding)}{more}"
        + folded(len(rows), table("Gain by segment", rows, columns), "segments")
        + "<details><summary>How to read these figures</summary><p>The gain of a segment combines the model, the "
        "rewards of its rounds, and the other segments: the fewer rounds a segment has, the more it follows the "
        "others. Gains of segments add up to the overall gain"
        + ("" if decision.evaluation.pooled_rounds is None else ", and their differences come from the second half")
        + ". The more segments there are, the stronger the evidence must be before one is called better or worse: if "
        "no segment is in fact worse, at most 5 % of reports name one. From its own rewards: the model's gain, "
        f"corrected with the rewards of this segment alone.{joined}</p></details>"
    )


def _chart(decision: Decision) -> Any:
    by_segment = decision.evaluation.segments
    if by_segment is None or decision.policy not in by_segment.summaries:
        return None
    return plots.segments(decision.evaluation, decision.policy)


SEGMENT_SECTION = Section("segments", "Who gains, who loses", _segments, {"segments": _chart})
