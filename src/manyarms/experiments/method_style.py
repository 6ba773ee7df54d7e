"""The style of each method, the same in every figure, and the legend.

The paper's methods have the colours of Okabe and Ito, which stay apart for most colour-blind readers, with grey for
their yellow, which is too pale for a line on white. Methods beyond the paper are dashed, with hollow marks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any
from zlib import crc32

import altair as alt
import numpy as np

from manyarms.core.result_tables import printable
from manyarms.experiments.methods import METHODS, MISSPECIFIED

WIDTH = 860
"""Width of a figure in pixels: on a page of 900 px, type is shown at its own size."""

_LITERAL: dict[str, Any] = {"scale": None, "legend": None}
STROKE = alt.Stroke("colour:N", **_LITERAL)
LINE = (STROKE, alt.StrokeDash("dash:N", **_LITERAL), alt.StrokeWidth("width:Q", **_LITERAL))
MARK = (STROKE, alt.Shape("shape:N", **_LITERAL), alt.Fill("fill:N", **_LITERAL))
"""Encodings by columns that hold colours and shapes themselves; the legend is drawn here."""


@dataclass(frozen=True)
class Style:
    """The style of one method.

    `shape` is that of its mark, by its name in Vega. `dash` has the lengths of strokes and gaps. `width` is in pixels.
    """

    colour: str
    shape: str
    dash: tuple[int, ...] = ()
    width: float = 1.5
    hollow: bool = False


BEYOND_DASH, OWN_DASH = (6, 3), (2, 2)

_PAPER = {
    "sDM": Style("#D55E00", "circle", width=3.5),
    "DM (Bayes)": Style("#0072B2", "square"),
    "DM (Freq)": Style("#56B4E9", "triangle-up"),
    "IPS": Style("#000000", "diamond"),
    "snIPS": Style("#8C8C8C", "triangle-down"),
    "DR": Style("#CC79A7", "cross"),
    "MIPS": Style("#009E73", "triangle-right"),
    "PC": Style("#E69F00", "triangle-left"),
}
_BEYOND = {
    "sDM (learned prior)": Style("#A50026", "circle"),
    "sDM, pessimistic": Style("#E0775A", "triangle-down"),
    "sDM (Bernoulli)": Style("#7F3B08", "square"),
    "DR (sDM)": Style("#882E72", "cross"),
    "OffCEM (sDM)": Style("#00563F", "diamond"),
    "sDM, no data": Style("#8C8C8C", "square"),
    "sDM, own variances": Style("#B8860B", "triangle-up"),
    "joint posterior": Style("#000000", "diamond"),
    "logged": Style("#555555", "triangle-left"),
}
_MISSPECIFIED = {
    "prior": ("triangle-down", ("#D9A7CF", "#AA4499", "#5E1A54")),
    "means": ("triangle-up", ("#8FD3BC", "#009E73", "#00503A")),
    "covariances": ("diamond", ("#E8C872", "#C08A00", "#6B4C00")),
}
"""A hue for each part of the prior that is misspecified; the darker, the further off."""

STYLES = (
    _PAPER
    | {name: replace(style, dash=BEYOND_DASH, hollow=True) for name, style in _BEYOND.items()}
    | {
        name: Style(shade, shape)
        for part, (shape, shades) in _MISSPECIFIED.items()
        for name, shade in zip(MISSPECIFIED[part], shades, strict=True)
    }
)
"""Styles of the library's methods."""

_ORDER = {name: place for place, name in enumerate([*_PAPER, *(name for name in METHODS if name not in _PAPER)])}
_SPARE_COLOURS = ("#332288", "#44AA99", "#999933", "#AA4499", "#661100", "#4477AA")
_SPARE_SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross")


def in_order(names: Iterable[str]) -> list[str]:
    """Names of methods without repeats, in the order of the legend: of the paper, beyond it, then user methods."""
    return sorted(dict.fromkeys(names), key=lambda name: _ORDER.get(name, len(_ORDER)))


def styles(names: Iterable[str]) -> dict[str, Style]:
    """A style for each method, in the order of `in_order`.

    A user method gets a spare colour by its name, or the next one where that is taken. So it looks alike in all figures
    unless two names collide, and then they still differ. When colours are used up, marks change.
    """
    wanted = in_order(names)
    user_styles: dict[str, Style] = {}
    count, free = len(_SPARE_COLOURS), list[int]()
    for i, name in enumerate(sorted(name for name in wanted if name not in STYLES)):
        free = free or list(range(count))
        start = crc32(name.encode(errors="replace"))
        place = free.pop(int(np.argmin([(place - start) % count for place in free])))
        shape = _SPARE_SHAPES[i // count % len(_SPARE_SHAPES)]
        user_styles[name] = Style(_SPARE_COLOURS[place], shape, dash=OWN_DASH, width=2.0)
    return {name: STYLES.get(name) or user_styles[name] for name in wanted}


def style_columns(style: Style) -> dict[str, Any]:
    """A style as columns of a chart: colour, fill, shape, dash, width."""
    return asdict(style) | {"dash": list(style.dash), "fill": "white" if style.hollow else style.colour}


_SAMPLE, _LINE = 30, 20
"""Width of a line sample in the legend, and height of a row, in pixels."""


def legend_width(looks: dict[str, Style]) -> int:
    """The width in pixels of one column in the legend of method styles, by the usual widths of letters."""

    def width(letter: str) -> float:
        return 13.0 if letter > "\u2e80" else 10.0 if letter in "mwMW@%" else 8.0 if letter.isupper() else 5.6

    return min(_SAMPLE + 20 + math.ceil(max((sum(map(width, name)) for name in looks), default=0)), WIDTH)


def _columns(looks: dict[str, Style]) -> list[list[str]]:
    """Names in as many columns as there is room for; families of misspecified priors get columns of their own."""
    names, columns = list(looks), max(1, min((WIDTH + 20) // legend_width(looks), 5))
    families = [family for methods in MISSPECIFIED.values() if (family := [name for name in methods if name in looks])]
    others = [name for name in names if not any(name in family for family in families)]
    if families and len(others) <= len(families[0]) and len(families) < columns:
        return [others, *families]
    height = math.ceil(len(names) / columns)
    return [names[i : i + height] for i in range(0, len(names), height)]


def legend(looks: dict[str, Style], *, one_column: bool) -> Any:
    """The legend of method styles, a small chart: for each method a piece of its line with its mark, and its name.

    Vega's own legends show a mark without the dashes and the width of its line. The names are in one column, or in as
    many as there is room for.
    """
    step, lines = legend_width(looks), [list(looks)] if one_column else _columns(looks)
    rows: list[dict[str, Any]] = []
    for column, names in enumerate(lines):
        left = column * step
        places = {"left": left, "middle": left + _SAMPLE / 2, "right": left + _SAMPLE, "text": left + _SAMPLE + 8}
        for line, name in enumerate(names):
            rows.append({"name": printable(name), "y": (line + 0.5) * _LINE} | places | style_columns(looks[name]))
    size = {"width": len(lines) * step, "height": max(map(len, lines)) * _LINE}
    downward = alt.Scale(domain=[size["height"], 0], nice=False)
    base = alt.Chart(alt.Data(values=rows)).encode(y=alt.Y("y:Q", scale=downward, axis=None))

    def x(field: str) -> Any:
        return alt.X(f"{field}:Q", scale=alt.Scale(domain=[0, size["width"]], nice=False), axis=None)

    strokes = base.mark_rule().encode(x("left"), alt.X2("right:Q"), *LINE)
    marks = base.mark_point(size=46, strokeWidth=1.5, opacity=1).encode(x("middle"), *MARK)
    texts = base.mark_text(align="left", baseline="middle", fontSize=12, limit=WIDTH - 60)
    texts = texts.encode(x("text"), alt.Text("name:N"))
    return alt.layer(strokes, marks, texts).properties(view=alt.ViewBackground(stroke=None), **size)
