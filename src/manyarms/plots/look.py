"""How charts look, on a light and on a dark page.

Colours are those of Okabe and Ito, which stay apart for most colour-blind readers, the lighter ones on dark ground.
"""

from __future__ import annotations

from typing import Any

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
