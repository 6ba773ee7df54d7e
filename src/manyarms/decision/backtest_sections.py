"""The sections of the page of a backtest; one of them is also a section of the report of a decision."""

from __future__ import annotations

from html import escape
from typing import Any

from manyarms.core.result_tables import number, percent, share
from manyarms.decision import backtest_plots
from manyarms.decision.report_parts import (
    Charts,
    Section,
    TableCell,
    count_cell,
    figure,
    fold,
    folded,
    number_cell,
    table,
)
from manyarms.decision.report_sentences import backtest_sentence, coverage_sentence, in_unit
from manyarms.jobs.backtest_result import Backtest, odds_in_words
from manyarms.jobs.reward_forecast import Series

GROUPS: dict[Series, str] = {"category": "Category", "logged by": "Logged by", "policy": "Policy"}
"""The headings of the groups of each kind of series."""


def _days(result: Backtest, charts: Charts) -> str:
    level = f"{100 * result.level:g} %"
    caption = (
        f"Points are observed mean rewards, ticks the forecasts, and bars their {level} intervals, which include the "
        "noise of single rewards. A dashed line marks a drift alarm."
    )
    rows = result.series()
    columns = {
        "Period": lambda row: TableCell(row.period),
        "Observed": lambda row: number_cell(row.observed),
        "Forecast": lambda row: number_cell(row.forecast),
        f"{level} interval": lambda row: TableCell(f"{number(row.low)} to {number(row.high)}"),
        "Inside": lambda row: TableCell("yes" if row.is_inside else "no", css="" if row.is_inside else "light amber"),
        "Rounds": lambda row: count_cell(row.n_rounds),
    }
    fitted_on = (
        f"<p>The first {result.n_training:,} periods were used only to fit the model.</p>"
        if result.n_training > 1
        else "<p>The first period was used only to fit the model.</p>"
        if result.n_training
        else ""
    )
    empty = (
        f"<p>{result.n_empty:,} periods had no rounds, so nothing was forecast for them.</p>" if result.n_empty else ""
    )
    return (
        figure("backtest", charts, caption, backtest_sentence(result))
        + fitted_on
        + empty
        + fold(f"Figures for these {len(rows):,} periods", table("Forecasts of all rounds", rows, columns))
    )


def _coverage(result: Backtest, charts: Charts) -> str:
    goal = f"If the model is right, about {100 * result.level:g} % of forecasts hold, and more if there are few clicks."
    caption = f"The share of forecasts that held, up to each period. {goal}"
    return figure("coverage", charts, caption, coverage_sentence(result))


def _alarms(result: Backtest, _: Charts) -> str:
    about = (
        "<p>The evidence says how much more probable the forecast errors are if there is drift than if the forecasts "
        f"are right. An alarm is raised when it exceeds {1 / result.false_alarm:,.3g} to 1. Where several categories "
        "or policies are forecast, each of them needs more. The probability of a false alarm, at any time, is "
        f"therefore at most {percent(result.false_alarm)} for all rounds, for the categories together, and for the "
        "policies together.</p>"
    )
    if not result.alarms:
        return f"<p>There was no alarm.</p>{about}"
    columns = {
        "Forecasts of": lambda alarm: TableCell(alarm.group),
        "Alarm in": lambda alarm: TableCell(alarm.period),
        "Drift since about": lambda alarm: TableCell(alarm.since),
        "Rewards are": lambda alarm: TableCell("higher" if alarm.z > 0 else "lower"),
        "Evidence": lambda alarm: number_cell(alarm.evidence, odds_in_words),
    }
    html = table("Drift alarms", result.alarms, columns)
    return folded(len(result.alarms), html, "alarms") + about


def _groups(result: Backtest, _: Charts) -> str:
    html = ""
    for series, heading in GROUPS.items():
        rows = result.series(series)
        names = list(dict.fromkeys(row.group for row in rows))
        if not names:
            continue
        own = {name: [row for row in rows if row.group == name] for name in names}
        alarms = {alarm.group: alarm for alarm in result.alarms if alarm.series == series}
        columns: dict[str, Any] = {
            heading: TableCell,
            "Observed": lambda name, own=own: number_cell(_mean(own[name], "observed")),
            "Forecast": lambda name, own=own: number_cell(_mean(own[name], "forecast")),
            "Inside": lambda name, own=own: number_cell(
                sum(row.is_inside for row in own[name]) / len(own[name]), share
            ),
            "Alarm": lambda name, alarms=alarms: TableCell(
                alarms[name].period if name in alarms else "none", css="light amber" if name in alarms else ""
            ),
            "Rounds": lambda name, own=own: count_cell(sum(row.n_rounds for row in own[name])),
        }
        html += f"<h3>By {escape(heading.lower())}</h3>" if heading != "Logged by" else "<h3>By logging policy</h3>"
        html += folded(len(names), table(f"Forecasts by {heading.lower()}", names, columns), "groups")
    return html


def _mean(rows: list[Any], name: str) -> float:
    """The mean over all rounds of several periods."""
    return sum(row.n_rounds * getattr(row, name) for row in rows) / sum(row.n_rounds for row in rows)


BACKTEST_SECTIONS = (
    Section("days", "Forecasts and what happened", _days, {"backtest": backtest_plots.backtest}),
    Section("coverage", "Did the intervals hold?", _coverage, {"coverage": backtest_plots.coverage}),
    Section("alarms", "Is there drift?", _alarms),
    Section("groups", "Categories and policies", _groups),
)
"""The sections of the page of a backtest, in their order."""


def backtest_cards(result: Backtest) -> dict[str, str]:
    """The main figures of a backtest by their headings, to stand above its sections."""
    rows = result.series()
    figures = {
        "Periods forecast": f"{len(rows):,}",
        f"Inside the {100 * result.level:g} % intervals": share(result.coverage),
        "Drift alarms": f"{len(result.alarms):,}",
        "Last forecast": in_unit(number(rows[-1].forecast), result.unit),
        "Last observed": in_unit(number(rows[-1].observed), result.unit),
    }
    if result.coverage_of("category") is not None:
        figures["Inside, by category"] = share(result.coverage_of("category") or 0.0)
    return figures


def backtest_answer(result: Backtest) -> dict[str, str]:
    """The first screen of a backtest below its answer: how far forecasts were off, how sure that is, and what to do."""
    return {"How far off": result.size, "How sure": result.reason, "What to do next": result.next_step}


def backtest_section(decision: Any, charts: Charts) -> str:
    """The section on the backtest in the report of a decision; empty without a backtest."""
    result: Backtest | None = decision.backtest
    if result is None:
        return ""
    caption = f"Points are observed mean rewards, bars the {100 * result.level:g} % intervals of their forecasts."
    chart = figure("backtest", charts, caption, backtest_sentence(result))
    words = " ".join(text for text in (result.sentence, result.size, result.reason, result.next_step) if text)
    return f"<p>{escape(words)}</p>{chart}"
