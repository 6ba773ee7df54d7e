"""Chart parts: the theme, and the marks, labels and tooltips that the plots of a report share.

Colours come from `theme`, so that a page can be light or dark. They are those of Okabe and Ito, which most colour-blind
readers can tell apart, and lighter ones on dark pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt

from manyarms.core.estimate import Estimate
from manyarms.core.labels import free_label
from manyarms.core.result_tables import percent, printable

_LIGHT = {
    "ground": "#ffffff", "ink": "#1f2328", "faint": "#6b7280", "line": "#d8dee4",
    "series": ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8C6D00", "#56B4E9", "#555555"],
    "ramp": ["#D55E00", "#f6f6f6", "#0072B2"],
}  # fmt: skip
_DARK = {
    "ground": "#161b22", "ink": "#e6edf3", "faint": "#9aa4b2", "line": "#30363d",
    "series": ["#56B4E9", "#F08A4B", "#2FC79A", "#E29CC4", "#E6C229", "#8FB8FF", "#B0B8C4"],
    "ramp": ["#F08A4B", "#2a313c", "#56B4E9"],
}  # fmt: skip
WIDTH = 620
"""Width of a single chart in pixels; a page may stretch it."""
ROW = 34
"""Height of one row in a chart that lists policies."""


def theme(*, dark: bool = False) -> dict[str, Any]:
    """The theme of plots on a light or a dark page, as the `config` of Vega-Lite.

    Args:
        dark: True for a dark page.
    """
    look: dict[str, Any] = _DARK if dark else _LIGHT
    first = look["series"][0]
    words = {"labelColor": look["ink"], "titleColor": look["faint"], "labelFontSize": 12, "titleFontSize": 12}
    return {
        "background": "transparent" if dark else look["ground"],
        "font": "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif",
        "view": {"stroke": None},
        # Labels are measured in the fonts of this machine; a reader's may be wider.
        "padding": {"left": 16, "top": 5, "right": 10, "bottom": 5},
        "axis": {
            **words, "gridColor": look["line"], "domainColor": look["line"], "tickColor": look["line"],
            "titleFontWeight": "normal", "labelLimit": 170,
        },
        "axisX": {"titleAnchor": "start", "tickCount": 5},
        "axisXQuantitative": {"labelOverlap": "greedy", "labelSeparation": 8},
        # Numbers on axes are written as in tables: -12 %.
        "locale": {
            "number": {
                "decimal": ".", "thousands": ",", "grouping": [3], "currency": ["$", ""], "minus": "-",
                "percent": "\N{NO-BREAK SPACE}%",
            }
        },
        "axisY": {"domain": False, "ticks": False, "labelPadding": 6},
        "legend": {**words, "orient": "top", "title": None, "labelLimit": 220, "symbolStrokeWidth": 2},
        "title": {"color": look["ink"], "anchor": "start"},
        "range": {"category": look["series"], "diverging": look["ramp"]},
        "mark": {"color": first},
        "bar": {"color": first, "cornerRadiusEnd": 2},
        "point": {"color": first, "filled": True, "size": 60, "opacity": 1.0},
        "rule": {"color": first},
        "line": {"color": look["faint"]},
        "text": {"color": look["ink"], "fontSize": 12},
        # Reference lines: zero, or the current policy.
        "style": {"reference": {"color": look["faint"], "strokeDash": [4, 3], "strokeWidth": 1}},
    }  # fmt: skip


def short_label(text: str) -> str:
    """Printable text, cut to 40 characters so that it leaves room for the chart."""
    text = printable(text)
    return text if len(text) <= 40 else text[:39] + "…"


def distinct_labels(texts: Iterable[str]) -> dict[str, str]:
    """A short label in a chart for each text, all of them distinct."""
    shown = dict[str, str]()
    for text in texts:
        shown[text] = free_label(short_label(text), shown.values())
    return shown


def interval_row(name: str, estimate: Estimate) -> dict[str, Any]:
    """An estimate with the ends of its 95 % and 50 % intervals, as a row of chart data."""
    low, high = estimate.interval()
    inner_low, inner_high = estimate.interval(0.5)
    return {
        "name": name, "value": estimate.value, "low": low, "high": high, "inner_low": inner_low,
        "inner_high": inner_high, "shown": f"{estimate.value:#.4g} [{low:#.4g}, {high:#.4g}]",
        "probability": percent(estimate.probability_positive),
    }  # fmt: skip


def interval_chart(
    rows: list[dict[str, Any]],
    axis: str,
    tips: Mapping[str, str],
    line: Any,
    others: Sequence[Any] = (),
    noun: str = "policy",
) -> alt.LayerChart:
    """A thin line for each 95 % interval, a thick one for the 50 % interval, a point for the value."""
    y = alt.Y("name:N", sort=[row["name"] for row in rows], title=None)
    base = chart_of(rows).encode(y=y, tooltip=tooltips({"name:N": noun, **tips}))
    scale = alt.Scale(zero=False)
    layers = [
        base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=axis, scale=scale), x2="high:Q"),
        base.mark_rule(strokeWidth=7, opacity=0.45).encode(x=alt.X("inner_low:Q", scale=scale), x2="inner_high:Q"),
        base.mark_point(size=90).encode(x=alt.X("value:Q", scale=scale)),
    ]
    words = "; ".join(f"{row['name']} {row['shown']}" for row in rows)
    return layered([line, *layers, *others], ROW * len(rows), f"{axis.capitalize()} with 95 % intervals: {words}.")


def chart_of(rows: Sequence[dict[str, Any]]) -> alt.Chart:
    """A chart with these rows as its data, still without marks."""
    return alt.Chart(alt.Data(values=list(rows)))


def tooltips(shown: Mapping[str, str], format: str = "") -> list[Any]:
    """Tooltips with a title for each field; numbers (:Q) in this format."""
    return [
        alt.Tooltip(field, title=title, format=format) if field.endswith(":Q") else alt.Tooltip(field, title=title)
        for field, title in shown.items()
    ]


def reference_line(value: float, meaning: str) -> alt.Chart:
    """A dashed vertical line, explained by its tooltip."""
    line = chart_of([{"value": value, "meaning": meaning}]).mark_rule(style="reference")
    return line.encode(x="value:Q", tooltip=tooltips({"meaning:N": " ", "value:Q": "value"}, ".4g"))


def layered(layers: Sequence[Any], height: int, description: str) -> alt.LayerChart:
    """Marks drawn over each other, with a size and a description for readers who cannot see the chart."""
    drawn: Any = alt.layer(*layers)
    return drawn.properties(width=WIDTH, height=height, description=description)
