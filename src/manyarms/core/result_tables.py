"""Results as tables: Arrow, pandas and Polars for programs, small HTML tables for notebooks, and numbers as text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from manyarms._base.arrow import pa
from manyarms._base.checks import import_optional

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


class Tabular(ABC):
    """A result that is a table, or can be read as one.

    A class gives its `records`, or its columns as an Arrow table where there are too many rows for records.
    """

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """The rows as plain records, for a file or a loop."""

    def _repr_html_(self) -> str:
        return html_table(self.records())

    def to_arrow(self, **options: Any) -> pa.Table:
        """The table as a `pyarrow.Table`; a figure that a row lacks is null.

        Args:
            options: The options of `records`, such as `level` where there are intervals.
        """
        rows = self.records(**options)
        names = dict.fromkeys(name for row in rows for name in row)
        return pa.table({name: as_arrow([row.get(name) for row in rows]) for name in names})

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """The table as a `pandas.DataFrame`; options as in `to_arrow`."""
        import_optional("pandas", "to_pandas")
        return self.to_arrow(**options).to_pandas()

    def to_polars(self, **options: Any) -> pl.DataFrame:
        """The table as a `polars.DataFrame`; options as in `to_arrow`."""
        polars: Any = import_optional("polars", "to_polars")
        return polars.from_arrow(self.to_arrow(**options))


class Records(list[dict[str, Any]], Tabular):
    """A list of plain records that is also a table."""

    def records(self) -> list[dict[str, Any]]:
        return list(self)


def as_arrow(values: Sequence[Any]) -> pa.Array:
    """A column of a result table, from plain values; as text if they are of several types, as labels may be."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else str(value) for value in values])


SHOWN = 60
"""Maximum number of rows shown: the beginning and the end of a longer table."""


def html_table(rows: Sequence[Mapping[str, Any]], *, caption: str = "") -> str:
    """Records as an HTML table below a line of plain text; a figure that a record lacks is left empty."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    half = SHOWN // 2
    shown = [*rows[:half], None, *rows[-half:]] if len(rows) > SHOWN else list(rows)
    head = "".join(f'<th style="text-align:{_side(rows, name)}">{escape(name)}</th>' for name in names)
    lines = [
        f'<tr><td colspan="{len(names)}" style="text-align:center">… {len(rows) - 2 * half:,} more …</td></tr>'
        if row is None
        else "<tr>" + "".join(_cell(row.get(name)) for name in names) + "</tr>"
        for row in shown
    ]
    above = f'<caption style="text-align:left">{escape(caption)}</caption>' if caption else ""
    return f"<table>{above}<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def html_facts(title: str, facts: Mapping[str, Any], notes: Sequence[str] = ()) -> str:
    """A result as HTML: a title, names with their values, and notes such as warnings."""
    lines = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>{_cell(value)}</tr>' for name, value in facts.items()
    )
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    below = f"<ul>{items}</ul>" if items else ""
    return f"<div><strong>{escape(title)}</strong><table><tbody>{lines}</tbody></table>{below}</div>"


def _cell(value: Any) -> str:
    side = "right" if _is_number(value) else "left"
    text = f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if side == "right" else str(value)
    return f'<td style="text-align:{side}">{"" if value is None else escape(text)}</td>'


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _side(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    values = [row[name] for row in rows if row.get(name) is not None]
    return "right" if values and all(map(_is_number, values)) else "left"


def shorten(text: str, width: int) -> str:
    """Text cut to the width of a column of a table."""
    return text if len(text) <= width else text[: width - 1] + "…"


def number(value: float) -> str:
    """A number as text in a table of results, with three significant digits, or as a whole number from 1,000 on."""
    return _three_digits(value, "")


def signed_number(value: float) -> str:
    """A gain or loss as text in a table of results, with its sign."""
    return _three_digits(value, "+")


def _three_digits(value: float, sign: str) -> str:
    """A number with three significant digits, zeros at the end included, so that numbers in a column look alike."""
    if value == 0.0 or abs(value) >= 999.5:
        return f"{value:{sign},.0f}"
    return f"{value:{sign}#.3g}".removesuffix(".")


def signed_percent(value: float) -> str:
    """A relative change as text in a table of results: in percent, with its sign."""
    return f"{signed_number(100 * value)} %"


def percent(probability: float) -> str:
    """A probability as text in a table of results: in percent, and never 0 or 100 %, as nothing is that certain."""
    if probability > 0.999:
        return "> 99.9 %"
    return "< 0.1 %" if probability < 0.001 else f"{100 * probability:.1f} %"


def required_percent(probability: float) -> str:
    """A probability that somebody asked for, as text: with the digits that it was given, as 90 % or 97.5 %."""
    return f"{100 * probability:.6g} %"


def percent_in_words(probability: float) -> str:
    """A probability as text in a sentence: as `percent` writes it, but with words for > and <."""
    return percent(probability).replace(">", "above").replace("<", "below")


def share(value: float) -> str:
    """A share as text in a table of results, in percent. Unlike a probability, it may be exactly 0 or 100 %."""
    return f"{100 * value:.0f} %" if value in (0.0, 1.0) else percent(value)


def printable(text: str) -> str:
    """Text for a table or chart of results, without the characters that XML does not allow."""
    return "".join(character if character.isprintable() else " " for character in text)
