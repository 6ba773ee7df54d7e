"""How results look in a notebook: small tables of HTML, with everything in them escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

SHOWN = 60
"""Rows of a table at most: the beginning and the end of a longer one."""


def html_table(rows: Sequence[Mapping[str, Any]], *, caption: str = "") -> str:
    """Records as a table.

    Args:
        rows: The records; a figure that one does not have is left empty.
        caption: A line above, as plain text.
    """
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
    """A title, names with their values, and notes such as warnings."""
    lines = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>{_cell(value)}</tr>' for name, value in facts.items()
    )
    said = "".join(f"<li>{escape(note)}</li>" for note in notes)
    below = f"<ul>{said}</ul>" if said else ""
    return f"<div><strong>{escape(title)}</strong><table><tbody>{lines}</tbody></table>{below}</div>"


def _cell(value: Any) -> str:
    return f'<td style="text-align:{"right" if _is_number(value) else "left"}">{escape(_text(value))}</td>'


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _side(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    values = [row[name] for row in rows if row.get(name) is not None]
    return "right" if values and all(map(_is_number, values)) else "left"
