"""Report parts: a section, and the tables, figures and folds that sections are made of.

A new section is a function from a decision and its charts to HTML, and one line in `report_sections.SECTIONS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from html import escape
from typing import Any

from manyarms.core.estimate import Estimate
from manyarms.core.result_tables import number
from manyarms.errors import InputError

Charts = Mapping[str, Any]
"""Charts as Vega-Lite without a theme, by name."""
LONG_TABLE = 25
"""Rows beyond which a table is folded."""


@dataclass(frozen=True)
class Section:
    """A section, the part of which reports are made: those of a decision, and of other results such as a backtest.

    Attributes:
        anchor: Its place on the page, for links.
        heading: Its heading.
        html: A function that writes its content, empty to leave the section out; it places charts with `figure`.
        charts: A function for each of its charts, by name. It returns None where the decision has no data for it, and
            may refuse with an `InputError` as the functions of `ma.plots` do.
    """

    anchor: str
    heading: str
    html: Callable[[Any, Charts], str]
    charts: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict[str, Callable[[Any], Any]])

    def draw(self, decision: Any) -> dict[str, dict[str, Any]]:
        """The charts that the decision has the data for."""
        charts = dict[str, dict[str, Any]]()
        for name, draw in self.charts.items():
            # A chart refuses when there is nothing to draw: the section says so in words, or is left out.
            with suppress(InputError):
                chart = draw(decision)
                if chart is not None:
                    spec = chart.to_dict(validate=False)
                    charts[name] = {key: value for key, value in spec.items() if key not in ("config", "$schema")}
        return charts


@dataclass(frozen=True)
class TableCell:
    """One cell of an HTML table. A column of numbers is sorted by `key`, which is empty where a figure is missing."""

    text: str
    css: str = ""
    key: str | None = None

    def html(self, column: str) -> str:
        """The cell as HTML; on a phone, where rows are stacked, it shows the name of its column."""
        attributes = f' class="{self.css}"' if self.css else ""
        attributes += f' data-label="{escape(column, quote=True)}"'
        attributes += "" if self.key is None else f' data-value="{self.key}"'
        return f"<td{attributes}>{escape(self.text)}</td>"


def number_cell(value: float | None, written: Callable[[float], str] = number) -> TableCell:
    """A cell with one number, or a dash where there is none."""
    if value is None:
        return TableCell("–", "number", "")
    return TableCell(written(value), "number", repr(float(value)))


def count_cell(value: float | int) -> TableCell:
    """A cell with a count of rounds or actions."""
    return number_cell(float(value), lambda count: f"{count:,.6g}")


def estimate_cell(estimate: Estimate | None, written: Callable[[float], str] = number) -> TableCell:
    """A cell with an estimate and its 95 % interval, or a dash where there is none."""
    if estimate is None:
        return number_cell(None)
    low, high = estimate.interval()
    return number_cell(estimate.value, lambda value: f"{written(value)} [{written(low)}, {written(high)}]")


def table(caption: str, rows: Sequence[Any], columns: Mapping[str, Callable[[Any], TableCell]]) -> str:
    """A table of the report as HTML: it sorts by a column when its header is clicked; `columns` makes the cells."""
    cells = [[make(row) for make in columns.values()] for row in rows]
    kinds = ["word" if cell.key is None else "number" for cell in cells[0]] if cells else ["word"] * len(columns)
    names = [name.replace(" %", "\N{NO-BREAK SPACE}%") for name in columns]
    head = "".join(
        f'<th scope="col" class="{kind}"><button type="button">{escape(name)}</button></th>'
        for name, kind in zip(names, kinds, strict=True)
    )
    body = "".join(
        f"<tr>{''.join(cell.html(name) for name, cell in zip(names, row, strict=True))}</tr>" for row in cells
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption, quote=True)}">'
        f'<table class="sorts"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def figure(name: str, charts: Charts, caption: str, finding: str = "") -> str:
    """The part of a report for a chart, with a description for screen readers, what it shows, and how to read it."""
    if name not in charts:
        return ""
    shown = f"<strong>{escape(finding)}</strong> " if finding else ""
    description = escape(str(charts[name].get("description", "")), quote=True)
    return (
        f'<figure><div class="chart" id="chart-{name}" role="img" aria-label="{description}"></div>'
        f"<figcaption>{shown}{escape(caption)}</figcaption></figure>"
    )


def fold(summary: str, html: str) -> str:
    """A part of a report that readers open if they want to see the details."""
    return f"<details><summary>{escape(summary)}</summary>{html}</details>" if html else ""


def folded(n_rows: int, html: str, noun: str) -> str:
    """A table of the report, folded when it is long."""
    return html if n_rows <= LONG_TABLE else f"<details><summary>{n_rows:,} {escape(noun)}</summary>{html}</details>"


def notes(lines: Iterable[str]) -> str:
    """A list of sentences as a part of a report; empty where there are none."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="notes">{items}</ul>' if items else ""
