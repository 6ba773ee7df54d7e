"""Numbers, percentages and estimates as text, and the sortable HTML tables of the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from manyarms.core.estimate import Estimate

NOTHING = "–"
CURRENT = "current policy"
"""The name of the policy that made the logs, wherever a reader sees it."""


def number(value: float) -> str:
    """A number with three significant digits."""
    return f"{value:,.3g}" if abs(value) < 1e4 else f"{value:,.0f}"


def signed_number(value: float) -> str:
    """A number with its sign, for gains and losses."""
    return f"{value:+.3g}"


def signed_percent(value: float) -> str:
    """A relative change in percent, with its sign."""
    return f"{100 * value:+.3g} %"


def percent(probability: float) -> str:
    """A probability in percent. It is never printed as 0 or 100 %: a posterior is not that certain."""
    if probability > 0.999:
        return "> 99.9 %"
    return "< 0.1 %" if probability < 0.001 else f"{100 * probability:.1f} %"


def share(value: float) -> str:
    """A share in percent. Unlike a probability, it may be exactly 0 or 100 %."""
    return f"{100 * value:.0f} %" if value in (0.0, 1.0) else percent(value)


@dataclass(frozen=True)
class TableCell:
    """One cell of an HTML table.

    Attributes:
        text: The text shown; it is escaped in `html`.
        value: The number that a column of numbers is sorted by; None where the figure is missing.
        is_number: True in a column of numbers.
        css: An extra CSS class.
    """

    text: str
    value: float | None = None
    is_number: bool = False
    css: str = ""

    def html(self) -> str:
        """The cell as HTML."""
        classes = " ".join(part for part in ("number" if self.is_number else "", self.css) if part)
        key = "" if self.value is None else repr(float(self.value))
        attributes = f' class="{classes}"' if classes else ""
        attributes += f' data-value="{key}"' if self.is_number else ""
        return f"<td{attributes}>{escape(self.text)}</td>"


def number_cell(value: float | None, written: Callable[[float], str] = number) -> TableCell:
    """A cell with one number, or a dash where there is none."""
    return TableCell(NOTHING if value is None else written(value), value, is_number=True)


def count_cell(value: float | int) -> TableCell:
    """A cell with a count of rounds or actions."""
    return number_cell(float(value), lambda count: f"{count:,.6g}")


def estimate_cell(estimate: Estimate | None, written: Callable[[float], str] = number) -> TableCell:
    """A cell with an estimate and its 95 % interval, or a dash where there is none."""
    if estimate is None:
        return number_cell(None)
    low, high = estimate.interval()
    text = f"{written(estimate.value)} [{written(low)}, {written(high)}]"
    return TableCell(text, estimate.value, is_number=True)


def table(caption: str, rows: Sequence[Any], columns: Mapping[str, Callable[[Any], TableCell]]) -> str:
    """An HTML table that sorts by a column when its header is clicked.

    Args:
        caption: The name of the table, read out by screen readers.
        rows: The results to show, one per row.
        columns: For each header, the function from a result to its cell.
    """
    cells = [[make(row) for make in columns.values()] for row in rows]
    numbers = [cell.is_number for cell in cells[0]] if cells else [False] * len(columns)
    head = "".join(
        f'<th scope="col" class="{"number" if is_number else "word"}">'
        f'<button type="button">{escape(name)}</button></th>'
        for name, is_number in zip(columns, numbers, strict=True)
    )
    body = "".join(f"<tr>{''.join(cell.html() for cell in row)}</tr>" for row in cells)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption, quote=True)}">'
        f'<table class="sorts"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )
