"""The look of charts on light and dark pages, their labels and their rows of data.

The colours are those of Okabe and Ito, which most colour-blind readers can tell apart. Dark pages use lighter ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from manyarms.core.estimate import Estimate
from manyarms.decision.format_figures import CURRENT, percent
from manyarms.jobs import Evaluation

LIGHT = {
    "ground": "#ffffff", "ink": "#1f2328", "faint": "#6b7280", "line": "#d8dee4",
    "series": ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8C6D00", "#56B4E9", "#555555"],
    "ramp": ["#D55E00", "#f6f6f6", "#0072B2"],
}  # fmt: skip
DARK = {
    "ground": "#161b22", "ink": "#e6edf3", "faint": "#9aa4b2", "line": "#30363d",
    "series": ["#56B4E9", "#F08A4B", "#2FC79A", "#E29CC4", "#E6C229", "#8FB8FF", "#B0B8C4"],
    "ramp": ["#F08A4B", "#2a313c", "#56B4E9"],
}  # fmt: skip

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif"


def theme(*, dark: bool = False) -> dict[str, Any]:
    """The `config` of Vega-Lite for a light or a dark page.

    Args:
        dark: True for a dark page.
    """
    look: dict[str, Any] = DARK if dark else LIGHT
    first = look["series"][0]
    words = {"labelColor": look["ink"], "titleColor": look["faint"], "labelFontSize": 12, "titleFontSize": 12}
    return {
        "background": "transparent" if dark else look["ground"],
        "font": FONT,
        "view": {"stroke": None},
        "axis": {
            **words, "gridColor": look["line"], "domainColor": look["line"], "tickColor": look["line"],
            "titleFontWeight": "normal", "labelLimit": 170,
        },
        "axisX": {"titleAnchor": "start", "tickCount": 5},
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


LONG = 40
"""Characters of a label that are shown."""


def printable(text: str) -> str:
    """Text without the characters that XML does not allow."""
    return "".join(character if character.isprintable() else " " for character in text)


def label(text: str) -> str:
    """Printable text, cut so that it leaves room for the chart."""
    text = printable(text)
    return text if len(text) <= LONG else text[: LONG - 1] + "…"


def labels(texts: Iterable[str]) -> dict[str, str]:
    """A distinct label for each text."""
    shown = dict[str, str]()
    for text in texts:
        short, count = label(text), 1
        while short in shown.values():
            count += 1
            short = f"{label(text)} ({count})"
        shown[text] = short
    return shown


def policy_labels(evaluation: Evaluation) -> dict[str, str]:
    """A distinct label for each policy, the current one included."""
    names = [row.name for row in evaluation.policies]
    candidates = labels([CURRENT, *names])
    return {evaluation.baseline.name: CURRENT, **{name: candidates[name] for name in names}}


def interval_row(name: str, estimate: Estimate) -> dict[str, Any]:
    """An estimate with the ends of its 95 % and 50 % intervals, as a row of chart data."""
    low, high = estimate.interval()
    inner_low, inner_high = estimate.interval(0.5)
    return {
        "name": name, "value": estimate.value, "low": low, "high": high, "inner_low": inner_low,
        "inner_high": inner_high, "shown": f"{estimate.value:.4g} [{low:.4g}, {high:.4g}]",
        "probability": percent(estimate.probability_positive),
    }  # fmt: skip


def listed(rows: Sequence[dict[str, Any]]) -> str:
    """Names and figures of a chart of intervals as text, for readers who cannot see it."""
    return "; ".join(f"{row['name']} {row['shown']}" for row in rows)
