"""A figure drawn as SVG, PDF and PNG: means over instances with their standard errors. Altair is slow to import."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias
from xml.sax.saxutils import quoteattr

import altair as alt
import numpy as np
import vl_convert
from jaxtyping import Float

from manyarms._base.checks import Array
from manyarms._base.files import replace_files
from manyarms.core.result_tables import printable
from manyarms.experiments.cell import INTERVAL_LEVEL, Outcome, Table, score
from manyarms.experiments.figure import Figure, Measure, Panel
from manyarms.experiments.method_style import Style, in_legend_order, style_columns, styles
from manyarms.experiments.methods import MISSPECIFIED
from manyarms.experiments.number_requirements import covered
from manyarms.experiments.problem import Kind

Drawing: TypeAlias = alt.VConcatChart | alt.HConcatChart

WIDTH, WIDE = 860, 4
"""Width of a figure in pixels: on a page of 900 px, type is shown at its own size; columns of a wide one."""

_LITERAL: dict[str, Any] = {"scale": None, "legend": None}
STROKE = alt.Stroke("colour:N", **_LITERAL)
LINE = (STROKE, alt.StrokeDash("dash:N", **_LITERAL), alt.StrokeWidth("width:Q", **_LITERAL))
MARK = (STROKE, alt.Shape("shape:N", **_LITERAL), alt.Fill("fill:N", **_LITERAL))
"""Encodings by columns that hold colours and shapes themselves; the legend is drawn here."""


@dataclass(frozen=True)
class _MeanPoint:
    """A mean score, share of intervals that contain the truth, or mean CPU time; with its error, NaN for one instance.

    `x` counts rounds, or actions where these are on the axis.
    """

    panel: str
    method: str
    x: int
    mean: float
    error: float
    count: int

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of its error bar: the mean itself where there is none."""
        bar = self.error if math.isfinite(self.error) else 0.0
        return self.mean - bar, self.mean + bar


def mean_points(figure: Figure, table: Table) -> list[_MeanPoint]:
    """The points that the chart of a figure shows: one for each panel, method and place on the axis that has rows."""
    return [point for panel in figure.panels for point in _points(figure, panel, table)]


def draw_figure(figure: Figure, table: Table) -> Drawing:
    """The chart of a figure: lines through means over instances, a plot for each panel, or one plot over all K.

    A log axis has no place for zero: a point at zero lies on the lower edge, and an error bar across zero ends there. A
    panel without rows says so. Only the rows that the panels name are used.
    """
    plots = [
        _Plot(panel.title, panel.kind, _points(figure, panel, table), _family(figure, place))
        for place, panel in enumerate(figure.panels)
    ]
    if figure.axis == "n_actions":
        plots = [_Plot("", figure.panels[0].kind, mean_points(figure, table))]
    looks = styles(point.method for plot in plots for point in plot.points)
    beside = len(plots) == 1 and _legend_width(looks) <= 220
    row = min(len(plots), figure.columns)
    width = (WIDTH - (_legend_width(looks) if beside else 0)) / row - 66
    axes = {plot.scale: _vertical(figure, plot.scale, plots) for plot in plots}
    charts = [
        _panel_chart(
            plot, figure, axes[plot.scale], looks, width, titled=i % row == 0 or plot.scale != plots[i - 1].scale
        )
        for i, plot in enumerate(plots)
    ]
    panels = alt.concat(*charts, columns=row, spacing=14)
    names = [legend(looks, one_column=beside)] if looks else []
    whole = alt.hconcat(panels, *names, spacing=10) if beside else alt.vconcat(panels, *names, spacing=14)
    return (
        whole.properties(description=_describe(figure, plots, looks))
        .configure(background="white", padding=6, font="Arial, Helvetica, sans-serif", aria=False)
        .configure_axis(labelFontSize=11, titleFontSize=12, titleFontWeight="normal", gridColor="#e8e8e8")
        .configure_view(stroke="#bbb")
    )


def save_figure(chart: Drawing, path: Path) -> None:
    """Save the chart of a figure as `path`.svg, .pdf and, twice as fine, .png; each file is the old or the new one."""
    spec = chart.to_dict()
    # The conversion loses the chart's own description: the SVG becomes one image with a text.
    image = f'<svg role="img" aria-label={quoteattr(str(spec.get("description", "")))} '
    svg = vl_convert.vegalite_to_svg(spec).replace("<svg ", image, 1)
    png = vl_convert.svg_to_png(svg, scale=2)
    # Not with_suffix: a figure may be called "k-0.5".
    contents = {"svg": svg.encode(), "png": png, "pdf": vl_convert.svg_to_pdf(svg)}
    replace_files({path.with_name(f"{path.name}.{suffix}"): content for suffix, content in contents.items()})


@dataclass(frozen=True)
class _Plot:
    """The content of one frame. Plots of one kind and one `family` share a vertical axis."""

    title: str
    kind: Kind
    points: list[_MeanPoint]
    family: tuple[str, int] = ("", 0)

    @property
    def scale(self) -> tuple[Kind, tuple[str, int]]:
        """The key of its vertical axis."""
        return self.kind, self.family


def _family(figure: Figure, place: int) -> tuple[str, int]:
    """The plots that share the vertical axis of the panel at a place: in a wide figure, of its problem only."""
    group = {"figure": 0, "row": place // figure.columns, "panel": place}[figure.share_axes]
    return figure.panels[place].problem.label * (figure.columns >= WIDE), group


def _points(figure: Figure, panel: Panel, table: Table) -> list[_MeanPoint]:
    methods = in_legend_order(panel.methods)
    label, kind = panel.problem.label, panel.kind
    run = {n for method in methods for n in table.rounds(label, kind, method)}
    rounds = sorted(run if panel.rounds is None else run & set(panel.rounds))
    points: list[_MeanPoint] = []
    for method in methods:
        for n in rounds if figure.axis == "n" else rounds[-1:]:
            outcomes = list(table.outcomes(label, kind, method, n).values())
            values = _values(figure.measure, kind, outcomes)
            if len(values):
                x = n if figure.axis == "n" else outcomes[0].n_actions
                error = _standard_error(figure.measure, values)
                points.append(_MeanPoint(panel.title, method, x, float(values.mean()), error, len(values)))
    return points


def _values(measure: Measure, kind: Kind, outcomes: Iterable[Outcome]) -> Float[Array, " m"]:
    if measure == "coverage":
        return covered(outcomes)
    if measure == "seconds":
        seconds = np.array([outcome.seconds for outcome in outcomes], dtype=float)
        # Without the file of costs, times are NaN.
        return seconds[np.isfinite(seconds)]
    scores = np.array([score(kind, outcome) for outcome in outcomes], dtype=float)
    return 1.0 - scores if measure == "regret" else scores


def _standard_error(measure: Measure, values: Float[Array, " m"]) -> float:
    if len(values) == 1:
        return float("nan")
    with np.errstate(over="ignore", invalid="ignore"):  # an infinite score has no error and is not drawn
        variance = values.mean() * (1 - values.mean()) if measure == "coverage" else values.var(ddof=1)
    return math.sqrt(variance / len(values))


@dataclass(frozen=True)
class _Vertical:
    """A vertical axis; `ticks` of None leave their places to the chart."""

    title: str
    log: bool
    low: float
    high: float
    ticks: list[float] | None = None


def _vertical(figure: Figure, scale: tuple[Kind, tuple[str, int]], plots: Sequence[_Plot]) -> _Vertical:
    """The vertical axis that several plots share, so that they can be compared."""
    kind = scale[0]
    points = [point for plot in plots if plot.scale == scale for point in plot.points if math.isfinite(point.mean)]
    if figure.measure == "coverage":
        axis = _linear("intervals that contain the truth", points)
        return replace(axis, low=max(axis.low, 0.0), high=1.0)
    if figure.measure == "seconds":
        return _log("CPU seconds", points)
    if figure.measure == "regret":
        return _log("1 - relative reward", points)
    return _log("MSE", points) if kind == "ope" else _linear("relative reward", points)


def _linear(title: str, points: Iterable[_MeanPoint]) -> _Vertical:
    ends = [end for point in points for end in point.ends]
    lowest, top = min(ends, default=0.0), max(1.0, math.ceil(max(ends, default=1.0) * 10 - 0.5) / 10)
    # Zero is shown only when some point is near it; otherwise it wastes space.
    low = 0.0 if 0 <= lowest < 0.3 else math.floor(min(lowest, 0.95) * 10) / 10
    return _Vertical(title, False, low, top, None if ends else [])


def _log(title: str, points: Iterable[_MeanPoint]) -> _Vertical:
    positive = [point for point in points if point.mean > 0]
    # A bar that nearly reaches zero would take decades of the axis: below a third of the mean it is cut off.
    low = min((max(point.ends[0], point.mean / 3) for point in positive), default=0.1) / 1.25
    high = max((point.ends[1] for point in positive), default=1.0) * 1.25
    if high < 10 * low:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(10), middle * math.sqrt(10)
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    decades = math.log10(high / low)
    digits = (1, 2, 5) if decades < 2.5 else (1, 3) if decades < 4 else (1,)
    step = 1 + len(exponents) // 11
    ticks = [float(f"{digit}e{exponent}") for exponent in exponents if exponent % step == 0 for digit in digits]
    return _Vertical(title, True, low, high, [tick for tick in ticks if low <= tick <= high] if positive else [])


SHORT = (
    "datum.value >= 1e9 ? format(datum.value, '~e') : datum.value >= 1e6 ? format(datum.value / 1e6, '~g') + 'M' : "
    "datum.value >= 1e3 ? format(datum.value / 1e3, '~g') + 'k' : "
    "abs(datum.value) < 1e-3 && datum.value != 0 ? format(datum.value, '~e') : format(datum.value, '~g')"
)
"""Labels such as 100, 1k, 10k, 1M; 0.001, 1e-6."""
PERCENT = "format(datum.value, '.0%')"


def _panel_chart(
    plot: _Plot, figure: Figure, vertical: _Vertical, looks: dict[str, Style], width: float, *, titled: bool
) -> Any:
    height = min(340.0, max(200.0, 0.8 * width))
    rows = _rows(plot, vertical, looks)
    y, low = (_y_axis(field, figure, vertical, titled) for field in ("mean", "low"))

    def base(rows: list[dict[str, Any]]) -> alt.Chart:
        return alt.Chart(alt.Data(values=rows)).encode(x=_x_axis(figure, plot), detail="method:N")

    lines = base(rows).mark_line(fill=None).encode(y, *LINE)
    # The first method has a thick line, below the others; its marks are above theirs, and below those that are hollow.
    bars = base(rows[::-1]).mark_rule(strokeWidth=1.25, opacity=0.8).encode(low, alt.Y2("high:Q"), STROKE)
    upward = sorted(rows[::-1], key=lambda row: looks[row["method"]].hollow)
    marks = base(upward).mark_point(size=46, strokeWidth=1.5, opacity=1).encode(y, *MARK)
    level = alt.Chart(alt.Data(values=[{}])).mark_rule(strokeDash=[5, 4], color="#444", strokeWidth=1.25)
    nominal = [level.encode(y=alt.datum(INTERVAL_LEVEL, type="quantitative"))] * (figure.measure == "coverage")
    texts = [_text(printable(plot.title), width / 2, -14.0, 13)] if plot.title else []
    texts += [] if rows else [_text("not run", width / 2, height / 2, 14)]
    return alt.layer(lines, *nominal, bars, marks, *texts).properties(width=width, height=height)


def _text(text: str, x: float, y: float, size: int) -> alt.Chart:
    """Text at a place in the frame; the height of a chart title would depend on the axis."""
    chart = alt.Chart(alt.Data(values=[{}])).mark_text(fontSize=size, color="black")
    return chart.encode(x=alt.value(x), y=alt.value(y), text=alt.value(text))


def _rows(plot: _Plot, vertical: _Vertical, looks: dict[str, Style]) -> list[dict[str, Any]]:
    """The points of a plot as data for the chart."""
    rows: list[dict[str, Any]] = []
    for point in plot.points:
        if math.isfinite(point.mean):
            mean, bottom, top = (min(max(y, vertical.low), vertical.high) for y in (point.mean, *point.ends))
            place = {"x": point.x, "mean": mean, "low": bottom, "high": top}
            rows.append({"method": point.method} | place | style_columns(looks[point.method]))
    return rows


def _ends(plot: _Plot) -> tuple[float, float]:
    """The ends of the horizontal axis."""
    places = [point.x for point in plot.points] or [1]
    room = max((max(places) / min(places)) ** 0.06, 1.2)
    return min(places) / room, max(places) * room


def _x_axis(figure: Figure, plot: _Plot) -> alt.X:
    places = sorted({point.x for point in plot.points})
    scale = alt.Scale(type="log", domain=list(_ends(plot)), nice=False)
    axis = alt.Axis(values=places, labelExpr=SHORT, grid=False, labelOverlap="greedy", labelSeparation=3)
    title = "rounds in the log, n" if figure.axis == "n" else "actions, K"
    return alt.X("x:Q", scale=scale, axis=axis, title=title if places else None)


def _y_axis(field: str, figure: Figure, vertical: _Vertical, titled: bool) -> alt.Y:
    scale = alt.Scale(type="log" if vertical.log else "linear", domain=[vertical.low, vertical.high], nice=False)
    label = PERCENT if figure.measure == "coverage" else SHORT
    ticks: dict[str, Any] = {"tickCount": 6} if vertical.ticks is None else {"values": vertical.ticks}
    axis = alt.Axis(labelExpr=label, minExtent=34, **ticks)
    return alt.Y(f"{field}:Q", scale=scale, axis=axis, title=vertical.title if titled else None)


def _describe(figure: Figure, plots: Sequence[_Plot], looks: dict[str, Style]) -> str:
    """A text for readers who cannot see the picture."""
    across = "number of rounds in the log" if figure.axis == "n" else "number of actions"
    scores = {"Mean squared error" if plot.kind == "ope" else "Mean relative reward" for plot in plots}
    upward = {
        "score": " and ".join(sorted(scores)),
        "regret": "Mean of what the relative reward lacks to 1",
        "coverage": "Share of instances whose 95 % interval contains the truth",
        "seconds": "Mean CPU seconds",
    }[figure.measure]
    panels = "; ".join(plot.title for plot in plots if plot.title)
    methods = ", ".join(looks) or "none"
    text = f"{figure.title}. {upward} against the {across}, with standard errors. Methods: {methods}."
    return printable(f"{text} Panels: {panels}." if panels else text)


_SAMPLE, _LINE = 30, 20
"""Width of a line sample in the legend, and height of a row, in pixels."""


def _legend_width(looks: dict[str, Style]) -> int:
    """The width in pixels of one column in the legend of method styles, by the usual widths of letters."""

    def width(letter: str) -> float:
        return 13.0 if letter > "\u2e80" else 10.0 if letter in "mwMW@%" else 8.0 if letter.isupper() else 5.6

    return min(_SAMPLE + 20 + math.ceil(max((sum(map(width, name)) for name in looks), default=0)), WIDTH)


def _columns(looks: dict[str, Style]) -> list[list[str]]:
    """Names in as many columns as there is room for; families of misspecified priors get columns of their own."""
    names, columns = list(looks), max(1, min((WIDTH + 20) // _legend_width(looks), 5))
    families = [family for methods in MISSPECIFIED.values() if (family := [name for name in methods if name in looks])]
    others = [name for name in names if not any(name in family for family in families)]
    if families and len(others) <= len(families[0]) and len(families) < columns:
        return [others, *families]
    height = math.ceil(len(names) / columns)
    return [names[i : i + height] for i in range(0, len(names), height)]


def legend(looks: dict[str, Style], *, one_column: bool) -> Any:
    """The legend of a figure, itself a small chart: for each method a piece of its line with its mark, and its name.

    Vega's own legends show a mark without the dashes and the width of its line. The names are in one column, or in as
    many as there is room for.
    """
    step, lines = _legend_width(looks), [list(looks)] if one_column else _columns(looks)
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
