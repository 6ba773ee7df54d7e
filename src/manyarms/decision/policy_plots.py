"""Plots of policies: their values, gains and segments, each pair of them, and the trade-off between two goals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from manyarms._base.checks import as_instance, as_text, check_choice
from manyarms.core.result_tables import percent
from manyarms.decision.chart_parts import (
    ROW,
    chart_of,
    distinct_labels,
    interval_chart,
    interval_row,
    layered,
    reference_line,
    short_label,
    tooltips,
)
from manyarms.decision.trade_off import TradeOff
from manyarms.errors import InputError, ShapeError
from manyarms.jobs.evaluate import CURRENT, Evaluation

SHOWN_SEGMENTS = 30
"""Segments in a chart: those with the most rounds."""


def values(evaluation: Evaluation, *, truth: Mapping[str, float] | None = None) -> alt.LayerChart:
    """A plot of the value of each policy with 50 % and 95 % intervals. A dashed line marks the mean logged reward.

    Args:
        evaluation: The result of `evaluate`.
        truth: The true value of each policy by name, shown as a diamond.
    """
    shown = _labels(evaluation)
    rows = [interval_row(shown[row.name], row.value) for row in evaluation.rows if row.value is not None]
    if not rows:
        raise InputError("There are no values from a model to draw.", "Draw the estimators with plots.agreement.")
    diamonds: list[Any] = []
    true = [{"name": shown[name], "value": value} for name, value in (truth or {}).items() if name in shown]
    if true:
        tips = tooltips({"name:N": "policy", "value:Q": "true value"}, ".4g")
        marks = chart_of(true).mark_point(shape="diamond", size=110, filled=False, strokeWidth=2)
        axis = alt.Y("name:N", sort=[row["name"] for row in rows], title=None)
        diamonds = [marks.encode(x="value:Q", y=axis, color=alt.value("#D55E00"), tooltip=tips)]
    line = reference_line(evaluation.mean_reward, "mean logged reward")
    return interval_chart(rows, "value per round", {"shown:N": "value [95 %]"}, line, diamonds)


def gains(evaluation: Evaluation) -> alt.LayerChart:
    """A plot of the gain of each policy over the current one with 50 % and 95 % intervals. A dashed line marks zero.

    Args:
        evaluation: The result of `evaluate`.
    """
    shown = _labels(evaluation)
    rows = [interval_row(shown[row.name], row.gain) for row in evaluation.policies if row.gain is not None]
    if not rows:
        raise InputError("There are no gains to draw.", "Evaluate the policies with a posterior.")
    tips = {"shown:N": "gain [95 %]", "probability:N": "probability of a gain"}
    return interval_chart(rows, f"gain per round over the {CURRENT}", tips, reference_line(0.0, "no gain"))


def probability_better(evaluation: Evaluation) -> alt.LayerChart:
    """A plot of policies in pairs, as a heat map: the probability that the one in the row is better than in the column.

    Args:
        evaluation: The result of `evaluate(..., pairs=True)`.
    """
    shown = _labels(evaluation)
    pairs = {(a, b): evaluation.probability_better(a, b) for a in shown for b in shown if a != b}
    rows = [
        {"row": shown[a], "column": shown[b], "probability": probability, "shown": percent(probability)}
        for (a, b), probability in pairs.items()
        if probability is not None
    ]
    if not rows:
        remedy = "Evaluate the policies with a posterior and pairs=True."
        raise InputError("There are no probabilities to draw.", remedy)
    names = list(shown.values())
    base = chart_of(rows).encode(
        x=alt.X(
            "column:N",
            sort=names,
            # Two lines: a title wider than the chart would squeeze its cells on a phone.
            title=["probability that the policy in the row", "beats the one in the column"],
            axis=alt.Axis(orient="top", labelAngle=-45),
        ),
        y=alt.Y("row:N", sort=names, title=None),  # a title along so few rows would be cut off
        tooltip=tooltips({"row:N": "policy", "column:N": "compared with", "shown:N": "probability of being better"}),
    )
    ramp = alt.Scale(domain=[0, 0.5, 1], range="diverging", interpolate="rgb")
    cells = base.mark_rect(opacity=0.55).encode(color=alt.Color("probability:Q", scale=ramp, legend=None))
    text = base.mark_text().encode(text="shown:N")
    words = "; ".join(f"{row['row']} better than {row['column']}: {row['shown']}" for row in rows)
    return layered([cells, text], ROW * (len(names) + 1), f"Probability that one policy beats another: {words}.")


def agreement(evaluation: Evaluation) -> alt.LayerChart:
    """A plot of the value of each policy side by side, according to the model and to every estimator.

    Bars are 95 % intervals.

    Args:
        evaluation: The result of `evaluate` with estimators.
    """
    shown = _labels(evaluation)
    rows: list[dict[str, Any]] = [
        {**interval_row(shown[row.name], estimate), "estimator": estimator}
        for row in evaluation.rows
        for estimator, estimate in {"model": row.value, **row.estimates}.items()
        if estimate is not None
    ]
    if not rows:
        raise InputError("There are no estimates to draw.", "Evaluate the policies with a posterior or estimators.")
    estimators = list(dict.fromkeys(row["estimator"] for row in rows))
    names = list(dict.fromkeys(row["name"] for row in rows))
    encoding: dict[str, Any] = {
        "y": alt.Y("name:N", sort=names, title=None),
        "yOffset": alt.YOffset("estimator:N", sort=estimators),
        "color": alt.Color("estimator:N", sort=estimators, scale=alt.Scale(range="category")),
        "tooltip": tooltips({"name:N": "policy", "estimator:N": "estimator", "shown:N": "value [95 %]"}),
    }
    # Clipped: one very uncertain estimator would otherwise squeeze all others into a dot.
    low, high = _domain(rows)
    scale = alt.Scale(domain=[low, high], nice=False)
    beyond = [{**row, "end": high, "side": "right"} for row in rows if row["high"] > high]
    beyond += [{**row, "end": low, "side": "left"} for row in rows if row["low"] < low]
    title = ["value per round", *["(arrow: the interval goes on)"] * bool(beyond)]
    x = alt.X("low:Q", title=title, scale=scale)
    bars = chart_of(rows).encode(**encoding).mark_rule(strokeWidth=2, clip=True).encode(x=x, x2="high:Q")
    points = chart_of(rows).encode(**encoding).mark_point(clip=True).encode(x=alt.X("value:Q", scale=scale))
    arrows = [
        chart_of([row for row in beyond if row["side"] == side])
        .encode(**encoding)
        .mark_point(shape=f"triangle-{side}", size=40, opacity=1.0)
        .encode(x=alt.X("end:Q", scale=scale))
        for side in sorted({row["side"] for row in beyond})
    ]
    height = round(ROW * len(names) * max(1.0, 0.5 * len(estimators)))
    words = "; ".join(f"{row['name']} ({row['estimator']}) {row['shown']}" for row in rows)
    return layered([bars, points, *arrows], height, f"Value per round by estimator with 95 % intervals: {words}.")


def segments(evaluation: Evaluation, policy: str | None = None) -> alt.LayerChart:
    """A plot of the gain of a policy in each segment with 50 % and 95 % intervals, the largest segments first.

    Args:
        evaluation: The result of `evaluate(..., segments=labels)`.
        policy: The name of the policy; None for the first.
    """
    evaluation = as_instance("evaluation", evaluation, Evaluation, "what ma.evaluate() returned")
    by_segment = evaluation.segments
    if by_segment is None:
        raise InputError("There are no segments to draw.", "Evaluate the policies with segments=.")
    policy = next(iter(by_segment.summaries)) if policy is None else policy
    check_choice("policy", policy, tuple(by_segment.summaries))
    shown = by_segment.of_policy(policy)[:SHOWN_SEGMENTS]
    names = distinct_labels(row.segment for row in shown)
    rows = [{**interval_row(names[row.segment], row.gain), "rounds": row.n_rounds} for row in shown]
    tips = {"shown:N": "gain [95 %]", "probability:N": "probability of a gain", "rounds:Q": "rounds"}
    line = reference_line(0.0, "no gain")
    return interval_chart(rows, f"gain per round of {short_label(policy)}", tips, line, noun="segment")


def trade_off(result: TradeOff, *, names: tuple[str, str] = ("main goal", "other goal")) -> alt.LayerChart:
    """A plot of policies, one point each, by the main goal and the other, with 95 % intervals of both.

    Args:
        result: The result of `ma.trade_off`.
        names: The names of the two goals.
    """
    result = as_instance("result", result, TradeOff, "what ma.trade_off() returned")
    main, other = _two_names(names)
    rows = result.records()
    what = "change" if result.is_gain else "value"
    scale = alt.Scale(zero=False)
    tips = tooltips({"weight:Q": "weight of the other goal", "value:Q": main, "other:Q": other}, ".4g")
    base = chart_of(rows).encode(tooltip=tips)
    x = alt.X("other:Q", title=f"{other}, {what} per round", scale=scale)
    y = alt.Y("value:Q", title=f"{main}, {what} per round", scale=scale)
    layers = [
        base.mark_line(strokeWidth=1.5).encode(x=x, y=y, order="weight:Q"),
        base.mark_rule(opacity=0.4).encode(x=x, y=alt.Y("value_low:Q", scale=scale), y2="value_high:Q"),
        base.mark_rule(opacity=0.4).encode(x=alt.X("other_low:Q", scale=scale), x2="other_high:Q", y=y),
        base.mark_point(size=60).encode(x=x, y=y),
    ]
    words = "; ".join(f"{row['value']:.3g} and {row['other']:.3g}" for row in rows)
    return layered(layers, 300, f"{main} and {other} of {len(rows)} policies: {words}.")


def _labels(evaluation: Evaluation) -> dict[str, str]:
    """A distinct label for each policy, the current one included; refuses what is not an evaluation."""
    evaluation = as_instance("evaluation", evaluation, Evaluation, "what ma.evaluate() returned")
    names = [row.name for row in evaluation.policies]
    candidates = distinct_labels([CURRENT, *names])
    return {evaluation.baseline.name: CURRENT, **{name: candidates[name] for name in names}}


def _domain(rows: list[dict[str, Any]]) -> list[float]:
    """The range of all intervals; if they are far wider than the values and the model's intervals, a part of it."""
    points = [row["value"] for row in rows]
    central = [row for row in rows if row["estimator"] == "model"] or rows
    low = min([*points, *(row["low"] for row in central)])
    high = max([*points, *(row["high"] for row in central)])
    lowest, highest = min(row["low"] for row in rows), max(row["high"] for row in rows)
    if highest - lowest <= 3.0 * (high - low):
        edge = 0.02 * (highest - lowest)
        return [lowest - edge, highest + edge]
    room = 0.35 * (high - low) or abs(high) or 1.0
    return [max(low - room, lowest), min(high + room, highest)]


def _two_names(names: Sequence[str]) -> tuple[str, str]:
    """Check the names of the two goals; a text is not a list of its characters."""
    words = "the names of both goals"
    listed = [names] if isinstance(names, str) else as_instance("names", names, Sequence, words)
    if len(listed) != 2:
        example = 'Name the main goal first, as in names=("margin", "returns").'
        raise ShapeError(f"must be {words}; got {len(listed)}.", example, argument="names")
    return as_text("names", listed[0]), as_text("names", listed[1])
