"""The style of each method in the figures: its colour, mark and dash.

The paper's methods have the colours of Okabe and Ito, which stay apart for most colour-blind readers, with grey for
their yellow, which is too pale for a line on white. Methods beyond the paper are dashed, with hollow marks that one can
see through: where two methods agree, both are visible.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any
from zlib import crc32

import numpy as np

from manyarms.experiments.methods import (
    CROSS_FITTED,
    FIXED_FREQ,
    METHODS,
    MISSPECIFIED,
    PAPER_CLICKS,
    SWEPT_MIPS,
    SWEPT_PC,
    WEAK,
)


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
    PAPER_CLICKS: Style("#3B6FB6", "triangle-right"),
    "DR (sDM)": Style("#882E72", "cross"),
    "OffCEM (sDM)": Style("#00563F", "diamond"),
    "sDM, no data": Style("#8C8C8C", "square"),
    "sDM, own variances": Style("#B8860B", "triangle-up"),
    "joint posterior": Style("#000000", "diamond"),
    FIXED_FREQ: Style("#56B4E9", "triangle-up"),
    "IPS, no clip": Style("#444444", "diamond"),
    CROSS_FITTED: Style("#CC79A7", "cross"),
    WEAK[0]: Style("#009E73", "triangle-right"),
    WEAK[1]: Style("#E69F00", "triangle-left"),
    "logged": Style("#555555", "triangle-left"),
}
_MISSPECIFIED = {
    "prior": ("triangle-down", ("#D9A7CF", "#AA4499", "#5E1A54")),
    "means": ("triangle-up", ("#8FD3BC", "#009E73", "#00503A")),
    "covariances": ("diamond", ("#E8C872", "#C08A00", "#6B4C00")),
}
"""A hue for each part of the prior that is misspecified; the darker, the further off."""

_SWEPT = {
    name: Style(shade, shape)
    for names, shape, shades in (
        (SWEPT_MIPS, "circle", ("#A6DBC8", "#55B894", "#1B8A63", "#00402C")),
        (SWEPT_PC, "square", ("#F2D08A", "#D9A441", "#A87514", "#5C3D00")),
    )
    for name, shade in zip(names, shades, strict=True)
}
"""The larger the sets, the darker."""

STYLES = (
    _PAPER
    | {name: replace(style, dash=BEYOND_DASH, hollow=True) for name, style in _BEYOND.items()}
    | {PAPER_CLICKS: replace(_BEYOND[PAPER_CLICKS], dash=OWN_DASH, hollow=True)}
    | _SWEPT
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


def in_legend_order(names: Iterable[str]) -> list[str]:
    """Names of methods without repeats, in the order of the legend: of the paper, beyond it, then user methods."""
    return sorted(dict.fromkeys(names), key=lambda name: _ORDER.get(name, len(_ORDER)))


def styles(names: Iterable[str]) -> dict[str, Style]:
    """A style for each method, in the order of the legend.

    A user method gets a spare colour by its name, or the next one where that is taken. So it looks alike in all figures
    unless two names collide, and then they still differ. When colours are used up, marks change.
    """
    wanted = in_legend_order(names)
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
    return asdict(style) | {"dash": list(style.dash), "fill": "transparent" if style.hollow else style.colour}
