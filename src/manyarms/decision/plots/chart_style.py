"""How charts look, on a light and on a dark page.

Colours are those of Okabe and Ito, which stay apart for most colour-blind readers, the lighter ones on dark ground.

What charts have in common: rows as data, labels that any format can hold, and a size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from manyarms.core.estimate import Estimate
from manyarms.decision.verdict import percent

if TYPE_CHECKING:
    import altair as alt


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
    """Vega-Lite's `config` for a light or a dark page.

    Args:
        dark: Which of the two.
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
        # Marks that explain rather than show: a zero line, what runs now.
        "style": {"reference": {"stroke": look["faint"], "strokeDash": [4, 3], "strokeWidth": 1}},
    }  # fmt: skip


WIDTH = 620
"""Of a chart by itself, in pixels; a page may stretch it."""
ROW = 34
"""Height of a row of a chart that lists things."""
LONG = 40
"""Letters of a label that are shown."""


def plain(text: str) -> str:
    """Without what XML has no place for."""
    return "".join(character if character.isprintable() else " " for character in text)


def label(text: str) -> str:
    """The same, and not so long that it leaves no room for the chart."""
    text = plain(text)
    return text if len(text) <= LONG else text[: LONG - 1] + "…"


def labels(texts: Iterable[str]) -> dict[str, str]:
    """A label for each, all of them different."""
    found = dict[str, str]()
    for text in texts:
        short, count = label(text), 1
        while short in found.values():
            count += 1
            short = f"{label(text)} ({count})"
        found[text] = short
    return found


def chart(rows: Sequence[dict[str, Any]]) -> alt.Chart:
    """A chart of these rows, to be given marks."""
    import altair as alt  # noqa: PLC0415  slow to import

    return alt.Chart(alt.Data(values=list(rows)))


def interval_row(name: str, estimate: Estimate) -> dict[str, Any]:
    """An estimate with the ends of its 95 % and 50 % intervals, as data of a chart."""
    low, high = estimate.interval()
    inner_low, inner_high = estimate.interval(0.5)
    return {
        "name": name, "value": estimate.value, "low": low, "high": high, "inner_low": inner_low,
        "inner_high": inner_high, "shown": f"{estimate.value:.4g} [{low:.4g}, {high:.4g}]",
        "probability": percent(estimate.probability_positive),
    }  # fmt: skip


def listed(rows: Sequence[dict[str, Any]]) -> str:
    """Names and figures in words: what a chart of intervals says to those who cannot see it."""
    return "; ".join(f"{row['name']} {row['shown']}" for row in rows)


def sized(parts: Sequence[Any], height: int, words: str) -> alt.LayerChart:
    """Marks over one another, with a size, and words in the place of the picture."""
    import altair as alt  # noqa: PLC0415

    drawn: Any = alt.layer(*parts)
    return drawn.properties(width=WIDTH, height=height, description=words)
