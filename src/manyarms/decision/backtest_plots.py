"""Plots of a backtest: forecasts beside what happened, and the share of forecasts that held."""

from __future__ import annotations

from typing import Any

import altair as alt

from manyarms._base.checks import as_instance
from manyarms.decision.chart_parts import chart_of, layered, tooltips
from manyarms.errors import InputError
from manyarms.jobs.backtest_result import Backtest, PeriodForecast
from manyarms.jobs.reward_forecast import Series

SMALL_CHARTS = 12
"""The most groups with a chart of their own."""


def backtest(result: Backtest, *, series: Series = "all", group: str | None = None) -> alt.LayerChart:
    """A plot of the mean reward of each period beside its forecast with an interval. A dashed line marks an alarm.

    Args:
        result: The result of `ma.backtest`.
        series: The kind of series: "all", "category", "logged by" or "policy".
        group: The category or policy; None for the first.
    """
    result = as_instance("result", result, Backtest, "what ma.backtest() returned")
    rows = result.series(series)
    if not rows:
        raise InputError(f"There are no forecasts by {series} to draw.")
    wanted = rows[0].group if group is None else group
    own = [row for row in rows if row.group == wanted]
    if not own:
        known = ", ".join(dict.fromkeys(row.group for row in rows))
        raise InputError(f"must be one of {known}; got {group!r}.", argument="group")
    return _forecast_chart(result, own, 260)


def _forecast_chart(result: Backtest, rows: list[PeriodForecast], height: int) -> alt.LayerChart:
    level = f"{100 * result.level:g} %"
    values = [
        {
            "period": row.period, "low": row.low, "high": row.high, "forecast": row.forecast, "observed": row.observed,
            "rounds": row.n_rounds, "side": "inside" if row.is_inside else "outside", "shown": f"{level} interval",
        }
        for row in rows
    ]  # fmt: skip
    tips = [
        *tooltips({"period:N": "period", "rounds:Q": "rounds"}, ",.6~g"),
        *tooltips({"observed:Q": "observed", "forecast:Q": "forecast", "low:Q": "from", "high:Q": "to"}, ".4g"),
    ]
    scale, sides = alt.Scale(zero=False), alt.Scale(domain=["inside", "outside"], range="category")
    axis = alt.Axis(labelAngle=0, labelOverlap=True, tickCount=6, grid=False)
    x = alt.X("period:O", title=None, axis=axis, sort=[row.period for row in rows])
    base = chart_of(values).encode(x=x)
    title = "mean reward per round"
    layers = [
        base.mark_bar(opacity=0.22, cornerRadius=1).encode(y=alt.Y("low:Q", title=title, scale=scale), y2="high:Q"),
        base.mark_tick(thickness=2, opacity=0.7).encode(y=alt.Y("forecast:Q", scale=scale)),
        base.mark_point(size=55).encode(
            y=alt.Y("observed:Q", scale=scale), color=alt.Color("side:N", scale=sides, title="observed"), tooltip=tips
        ),
    ]
    alarm = next((one for one in result.alarms if (one.series, one.group) == (rows[0].series, rows[0].group)), None)
    if alarm is not None:
        line = chart_of([{"period": alarm.period, "meaning": "drift alarm"}]).mark_rule(style="reference")
        layers.append(line.encode(x=x, tooltip=tooltips({"meaning:N": " ", "period:N": "period"})))
    inside = sum(row.is_inside for row in rows)
    words = f"Observed mean rewards and forecasts of {rows[0].group} in {len(rows)} periods; {inside} lie inside."
    return layered(layers, height, words)


def coverage(result: Backtest) -> alt.LayerChart:
    """A plot of the share of forecasts that held so far, by kind of series. A dashed line marks the level.

    Args:
        result: The result of `ma.backtest`.
    """
    result = as_instance("result", result, Backtest, "what ma.backtest() returned")
    names: dict[Series, str] = {
        "all": "all rounds",
        "category": "categories",
        "logged by": "logging policies",
        "policy": "policies",
    }
    order = [row.period for row in result.series()]
    rows = list[dict[str, Any]]()
    for series, name in names.items():
        inside, total = 0, 0
        own = result.series(series)
        for period in order if own else ():
            here = [row.is_inside for row in own if row.period == period]
            inside, total = inside + sum(here), total + len(here)
            rows.append({"period": period, "series": name, "share": inside / max(total, 1), "forecasts": total})
    axis = alt.Axis(labelAngle=0, labelOverlap=True, tickCount=6, grid=False)
    base = chart_of(rows).encode(
        x=alt.X("period:O", title=None, axis=axis, sort=order),
        y=alt.Y("share:Q", title="share inside, so far", axis=alt.Axis(format="%"), scale=alt.Scale(zero=False)),
        color=alt.Color("series:N", sort=list(names.values()), scale=alt.Scale(range="category")),
        tooltip=[
            *tooltips({"series:N": "forecasts of", "period:N": "up to"}),
            *tooltips({"share:Q": "share inside"}, ".1%"),
            *tooltips({"forecasts:Q": "forecasts"}, ",.0f"),
        ],
    )
    goal = chart_of([{"share": result.level, "meaning": "wished"}]).mark_rule(style="reference")
    line = goal.encode(y="share:Q", tooltip=tooltips({"meaning:N": " ", "share:Q": "share"}, ".0%"))
    last = {row["series"]: row["share"] for row in rows}
    words = "; ".join(f"{name} {100 * share:.1f} %" for name, share in last.items())
    points = base.mark_line(point=True, strokeWidth=2)
    return layered([line, points], 200, f"Share of forecasts inside their intervals, so far: {words}.")
