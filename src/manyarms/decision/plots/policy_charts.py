"""Policies: what they are worth, by how much they beat what runs now and one another, and whether judges agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from manyarms._base.checks import as_instance
from manyarms.decision.plots.chart_style import ROW, chart, interval_row, labels, listed, sized
from manyarms.decision.verdict import percent
from manyarms.errors import InputError
from manyarms.jobs import Evaluation

if TYPE_CHECKING:
    import altair as alt


def values(evaluation: Evaluation, *, truth: Mapping[str, float] | None = None) -> alt.LayerChart:
    """The value of each policy with its 50 % and 95 % intervals; a dashed line at what the log brought.

    Args:
        evaluation: What `evaluate` returned.
        truth: The true value by name, shown as a diamond.
    """
    import altair as alt  # noqa: PLC0415

    evaluation = as_instance("evaluation", evaluation, Evaluation, "what ma.evaluate() returned")
    called = labels(row.name for row in evaluation.rows)
    rows = [interval_row(called[row.name], row.value) for row in evaluation.rows if row.value is not None]
    if not rows:
        raise InputError("no model judged these policies: draw plots.agreement, which shows the estimators.")
    drawn = _intervals(rows, "value of the policy, a round", [row["name"] for row in rows])
    now = chart([{"value": evaluation.mean_reward, "what": "mean reward in the log"}]).mark_rule(style="reference")
    parts: list[Any] = [now.encode(x="value:Q", tooltip=["what:N", alt.Tooltip("value:Q", format=".4g")]), *drawn]
    true = [{"name": called[name], "value": value} for name, value in (truth or {}).items() if name in called]
    if true:
        tips = ["name:N", alt.Tooltip("value:Q", title="truth", format=".4g")]
        marks = chart(true).mark_point(shape="diamond", size=110, filled=False, strokeWidth=2)
        parts.append(marks.encode(x="value:Q", y=_policy_axis(rows), color=alt.value("#D55E00"), tooltip=tips))
    return sized(parts, ROW * len(rows), f"Values with 95 % intervals: {listed(rows)}.")


def gains(evaluation: Evaluation) -> alt.LayerChart:
    """What each policy is worth over what runs now, with its 50 % and 95 % intervals; a dashed line at zero.

    Args:
        evaluation: What `evaluate` returned.
    """
    evaluation = as_instance("evaluation", evaluation, Evaluation, "what ma.evaluate() returned")
    called = labels(row.name for row in evaluation.rows)
    rows = [interval_row(called[row.name], row.difference) for row in evaluation.policies if row.difference is not None]
    if not rows:
        raise InputError("no model judged these policies, so there are no differences to draw.")
    zero = chart([{"value": 0.0}]).mark_rule(style="reference").encode(x="value:Q")
    title = f"value over that of {evaluation.baseline.name}, a round"
    drawn = _intervals(rows, title, [row["name"] for row in rows], sure=True)
    return sized([zero, *drawn], ROW * len(rows), f"Differences with 95 % intervals: {listed(rows)}.")


def better(evaluation: Evaluation) -> alt.LayerChart:
    """How probable it is that the policy of a row is worth more than that of a column.

    Args:
        evaluation: What `evaluate(..., pairs=True)` returned.
    """
    import altair as alt  # noqa: PLC0415

    evaluation = as_instance("evaluation", evaluation, Evaluation, "what ma.evaluate() returned")
    called = labels(row.name for row in evaluation.rows)
    pairs = [(called[a], called[b], evaluation.probability_better(a, b)) for a in called for b in called if a != b]
    rows = [
        {"row": a, "column": b, "probability": sure, "shown": percent(sure)} for a, b, sure in pairs if sure is not None
    ]
    if not rows:
        raise InputError("no model compared these policies, so there are no probabilities to draw.")
    names = list(called.values())
    base = chart(rows).encode(
        x=alt.X("column:N", sort=names, title="than", axis=alt.Axis(orient="top", labelAngle=-30)),
        y=alt.Y("row:N", sort=names, title="better"),
        tooltip=[
            alt.Tooltip("row:N", title="policy"),
            alt.Tooltip("column:N", title="against"),
            alt.Tooltip("shown:N", title="P(better)"),
        ],
    )
    ramp = alt.Scale(domain=[0, 0.5, 1], range="diverging", interpolate="rgb")
    cells = base.mark_rect(opacity=0.55).encode(color=alt.Color("probability:Q", scale=ramp, legend=None))
    text = base.mark_text().encode(text="shown:N")
    words = "; ".join(f"{row['row']} better than {row['column']}: {row['shown']}" for row in rows)
    return sized([cells, text], ROW * (len(names) + 1), f"Probabilities of being better: {words}.")


def agreement(evaluation: Evaluation) -> alt.LayerChart:
    """The value of each policy by every judge, side by side with 95 % intervals.

    Args:
        evaluation: What `evaluate` returned, with estimators.
    """
    import altair as alt  # noqa: PLC0415

    evaluation = as_instance("evaluation", evaluation, Evaluation, "what ma.evaluate() returned")
    called = labels(row.name for row in evaluation.rows)
    rows = list[dict[str, Any]]()
    for row in evaluation.rows:
        judges = {} if row.value is None else {"model": row.value}
        for judge, estimate in {**judges, **row.estimates}.items():
            rows.append({**interval_row(called[row.name], estimate), "judge": judge})
    if not rows:
        raise InputError("nobody judged these policies.")
    judges = list(dict.fromkeys(row["judge"] for row in rows))
    names = [name for name in called.values() if any(row["name"] == name for row in rows)]
    base = chart(rows).encode(
        y=alt.Y("name:N", sort=names, title=None),
        yOffset=alt.YOffset("judge:N", sort=judges),
        color=alt.Color("judge:N", sort=judges, scale=alt.Scale(range="category")),
        tooltip=["name:N", "judge:N", alt.Tooltip("shown:N", title="value [95 %]")],
    )
    # Clipped: an estimator that knows nothing would otherwise squeeze all others into a dot.
    scale = alt.Scale(domain=_domain(rows), clamp=False, nice=True)
    x = alt.X("low:Q", title="value of the policy, a round", scale=scale)
    bars = base.mark_rule(strokeWidth=2, clip=True).encode(x=x, x2="high:Q")
    points = base.mark_point(clip=True).encode(x=alt.X("value:Q", scale=scale))
    height = round(ROW * len(names) * max(1.0, 0.5 * len(judges)))
    words = "; ".join(f"{row['name']} by {row['judge']} {row['shown']}" for row in rows)
    return sized([bars, points], height, f"Values by judge with 95 % intervals: {words}.")


def _domain(rows: list[dict[str, Any]]) -> list[float]:
    """From the least to the largest value, with room for intervals that are not many times wider than all of it."""
    points = [row["value"] for row in rows]
    middle = [row for row in rows if row["judge"] == "model"] or rows
    low = min([*points, *(row["low"] for row in middle)])
    high = max([*points, *(row["high"] for row in middle)])
    room = 0.35 * (high - low) or abs(high) or 1.0
    return [max(low - room, min(row["low"] for row in rows)), min(high + room, max(row["high"] for row in rows))]


def _policy_axis(rows: list[dict[str, Any]]) -> alt.Y:
    import altair as alt  # noqa: PLC0415

    return alt.Y("name:N", sort=[row["name"] for row in rows], title=None)


def _intervals(rows: list[dict[str, Any]], title: str, names: list[str], *, sure: bool = False) -> list[Any]:
    """A thin rule for 95 %, a thick one for 50 %, a point for the value."""
    import altair as alt  # noqa: PLC0415

    tips = [alt.Tooltip("name:N", title="policy"), alt.Tooltip("shown:N", title="value [95 %]")]
    if sure:
        tips.append(alt.Tooltip("probability:N", title="P(above 0)"))
    base = chart(rows).encode(y=alt.Y("name:N", sort=names, title=None), tooltip=tips)
    scale = alt.Scale(zero=False)
    return [
        base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=title, scale=scale), x2="high:Q"),
        base.mark_rule(strokeWidth=7, opacity=0.45).encode(x=alt.X("inner_low:Q", scale=scale), x2="inner_high:Q"),
        base.mark_point(size=90).encode(x=alt.X("value:Q", scale=scale)),
    ]
