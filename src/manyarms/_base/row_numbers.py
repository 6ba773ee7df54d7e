"""Numbers and names of rows in errors, counted from the start of a log of which the current batch is a part."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

Place = Callable[[int], str]
"""Maps a row number to its place, as in "row 3 of b.parquet", or to "" where the number says enough."""


@dataclass
class _BatchRows:
    """The rows of a longer log that the current batch holds: they start at `first`; `kept` lists those not dropped."""

    first: int = 0
    place: Place | None = None
    kept: Int[np.ndarray, " m"] | None = None


_batch_rows: ContextVar[_BatchRows | None] = ContextVar("batch_rows", default=None)


@contextmanager
def rows_from(first: int, place: Place | None = None) -> Generator[None]:
    """Make errors raised inside this block count rows from `first`, because the batch is part of a longer log.

    Without it, an error in the tenth file of a log would name a row of that file as if it were a row of the whole.
    `place` is called for the first bad row only, so it may be slow; None keeps that of an enclosing block.
    """
    outer = _batch_rows.get()
    token = _batch_rows.set(_BatchRows(first, outer.place if place is None and outer is not None else place))
    try:
        yield
    finally:
        _batch_rows.reset(token)


def keep_rows(kept: Bool[np.ndarray, " n"]) -> None:
    """Record that only these rows of the current batch remain, so that errors still give their original numbers."""
    rows = _batch_rows.get()
    if rows is not None:
        rows.kept = np.flatnonzero(kept) if rows.kept is None else rows.kept[kept]


def row_number(row: Any) -> int:
    """Number in the whole log of a row of the current batch."""
    rows = _batch_rows.get() or _BatchRows()
    if rows.kept is None or row >= len(rows.kept):
        return rows.first + int(row)
    return rows.first + int(rows.kept[row])


def row_numbers(n_rows: int) -> Int[np.ndarray, " n"]:
    """Numbers in the whole log of the `n_rows` rows of the current batch."""
    rows = _batch_rows.get() or _BatchRows()
    return rows.first + (np.arange(n_rows) if rows.kept is None else rows.kept[:n_rows])


def row_name(row: Any) -> str:
    """Name of a row of the current batch in errors, as in "row 1203 (row 3 of b.parquet)"."""
    return numbered_row(row_number(row))


def row_of(row: Any, holder: str) -> str:
    """Name of a row that is not one of the log, as in "row 3 (line 5 of picks.csv)", or "row 3 of the shares"."""
    name = row_name(row)
    return name if name.endswith(")") or not holder else f"{name} of {holder}"


def numbered_row(number: Any) -> str:
    """Name of a row in errors, as `row_name` gives it, by its number in the whole log."""
    rows = _batch_rows.get()
    place = "" if rows is None or rows.place is None else rows.place(int(number))
    return f"row {number} ({place})" if place else f"row {number}"
