"""Tables of a page: cells that are escaped, sort by their numbers, and stand in columns that are told what they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from manyarms.core.estimate import Estimate
from manyarms.decision.verdict import number, percent

NOTHING = "–"


@dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes:
        text: What it shows, as plain text.
        value: By what it is sorted, when that is a number; None for something that has none.
        is_number: Whether it belongs to a column of numbers.
        css: A class of its own.
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


def figure(value: float | None) -> Cell:
    """A number of three digits."""
    return Cell(NOTHING if value is None else number(value), value, is_number=True)


def share(value: float | None) -> Cell:
    """A share as percent."""
    text = NOTHING if value is None else "0 %" if value == 0 else "100 %" if value == 1 else percent(value)
    return Cell(text, value, is_number=True)


def sureness(value: float | None) -> Cell:
    """A probability."""
    return Cell(NOTHING if value is None else percent(value), value, is_number=True)


def count(value: float | int) -> Cell:
    """How many."""
    return Cell(f"{value:,.6g}", float(value), is_number=True)


def estimate(found: Estimate | None, *, sign: bool = False) -> Cell:
    """A value and its 95 % interval."""
    if found is None:
        return Cell(NOTHING, None, is_number=True)
    low, high = found.interval()
    text = f"{number(found.value)} [{number(low)}, {number(high)}]"
    if sign:
        text = f"{found.value:+.3g} [{low:+.3g}, {high:+.3g}]"
    return Cell(text, found.value, is_number=True)


def relative(found: Estimate | None) -> Cell:
    """A relative change and its 95 % interval."""
    if found is None:
        return Cell(NOTHING, None, is_number=True)
    low, high = found.interval()
    return Cell(f"{100 * found.value:+.3g} % [{100 * low:+.3g}, {100 * high:+.3g}]", found.value, is_number=True)


def table(heads: Sequence[str], rows: Iterable[Sequence[Cell]], *, caption: str) -> str:
    """A table that sorts by a click on a head.

    Args:
        heads: Of its columns.
        rows: Its cells.
        caption: What it is, for those who do not see it.
    """
    cells = [list(row) for row in rows]
    numbers = [bool(cells) and cells[0][place].is_number for place in range(len(heads))]
    head = "".join(
        f'<th scope="col" class="{"number" if is_number else "word"}">'
        f'<button type="button">{escape(name)}</button></th>'
        for name, is_number in zip(heads, numbers, strict=True)
    )
    body = "".join(f"<tr>{''.join(cell.html() for cell in row)}</tr>" for row in cells)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption, quote=True)}">'
        f'<table class="sorts"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )
