"""Picks of a policy that was made elsewhere, in the columns of a table: ids, or lists of ids with position weights."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from difflib import get_close_matches
from os import PathLike
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int
from scipy import sparse

from manyarms._base.arrow import compute, pa
from manyarms._base.checks import Array, as_floats, as_text, check_rows
from manyarms._base.row_numbers import row_of, rows_from
from manyarms.core.action_numbering import ActionNumbering
from manyarms.errors import DataTypeError, InputError, NonFiniteError, RangeError
from manyarms.logs.sources import Source, as_source

LEAVE_OUT = "Add it to the catalog, without which only logged items are known, or leave such rows out."

INDEX = r"__index_level_\d+__"
"""The columns that Arrow makes of an index of pandas without a name."""

TABLE = "the table of the policy"
"""The name of a table of picks in errors, where it is not a file."""


class PositionWeights:
    """The share of each position in a list of picks, best first; None where there is one pick per row."""

    check: ClassVar[str] = "position_weights"

    def __init__(self, value: Any):
        weights = as_floats(self.check, value, ndim=1)
        check_rows(self.check, weights, lambda w: w >= 0, RangeError, "must not be negative", "Pass shares.")
        if not len(weights) or weights[0] <= 0:
            raise RangeError("must begin with the weight of the first position, above zero.", argument=self.check)
        self.weights = weights / weights.sum()

    def __len__(self) -> int:
        return len(self.weights)

    def table(self, picks: Int[Array, "n k"], n_actions: int) -> sparse.csr_array:
        """(n, K) probabilities of lists that -1 pads: each position counts by its weight among those that are there."""
        n, k = picks.shape
        rows, places = np.nonzero(picks >= 0)
        data = self.weights[:k][places]
        data = data / np.bincount(rows, weights=data, minlength=n)[rows]
        table = sparse.csr_array((data, (rows, picks[rows, places])), shape=(n, n_actions))
        table.eliminate_zeros()
        return table


def as_position_weights(value: Any) -> PositionWeights | None:
    """Check the position weights of lists of picks; None for none."""
    return value if value is None or isinstance(value, PositionWeights) else PositionWeights(value)


def column_of_picks(table: Any, action: str | None, others: Sequence[str], numbering: ActionNumbering) -> str:
    """The column of picks of a table: the one named, that of the logs' actions, `action`, or the only one left."""
    if action is not None:
        return as_text("action", action)
    left = [name for name in _rows_of(table).columns if name not in others and not re.fullmatch(INDEX, str(name))]
    usual = [name for name in (numbering.column, "action") if name in left]
    if usual or len(left) == 1:
        return (usual or left)[0]
    wanted = numbering.column or "action"
    has = f"several columns may hold the picks: {', '.join(map(str, left))}" if left else "no column is left for picks"
    raise InputError(
        f"has no column {wanted!r}, and {has}.",
        f"Rename the column of picks to {wanted!r}, or name it with action=.",
        argument=table_name(table),
        flag_remedy=f"Rename the column of picks to {wanted!r}.",
    )


def _rows_of(table: Any) -> Source:
    if callable(table) and not hasattr(table, "columns"):
        raise DataTypeError("must be a table or a file; got a function.", argument="table")
    return as_source(table)


def read_picks(table: Any, columns: Sequence[str], labels: Sequence[str]) -> pa.Table:
    """Read picks from some columns of a table or file, without gaps; ids in `labels` are read as they are written."""
    source = _rows_of(table)
    absent = [name for name in columns if name not in source.columns]
    holder = table_name(table)
    if absent:
        has = ", ".join(map(str, source.columns))
        near = get_close_matches(absent[0], list(map(str, source.columns)), 1)
        remedy = f"Did you mean {near[0]}?" if near else "Name one of them, or rename it in the table."
        raise InputError(f"has no column {absent[0]!r}; its columns are {has}.", remedy, argument=holder)
    source.need(columns)
    batches = list(source.with_labels(labels).batches(columns, 1 << 16))
    if not sum(batch.num_rows for batch in batches):
        raise InputError("has no rows.", "Write one row per key, or per action of shares.", argument=holder)
    content = pa.Table.from_batches(batches)
    for name in columns:
        gaps = content.column(name).is_null(nan_is_null=True).to_pylist()
        if any(gaps):
            row = row_of(gaps.index(True), holder)
            raise NonFiniteError(f"{row} has no value in column {name}.", "Fill it in, or delete the row.")
    return content


def table_name(table: Any) -> str:
    """The name of a table of picks in errors: that of its file, if it is one."""
    return str(table) if isinstance(table, str | PathLike) else TABLE


def rows_of_picks(table: Any) -> AbstractContextManager[None]:
    """Name rows of picks in errors raised inside this block: by number in their table, and by line if it is a file."""
    is_file = isinstance(table, str | PathLike)
    return rows_from(0, as_source(table).place_of if is_file else lambda row: "")


def single_picks(name: str, column: pa.ChunkedArray, numbering: ActionNumbering, holder: str = "") -> Int[Array, " n"]:
    """The picks in a column of ids: one action number per row; `holder` is the table that is not the log, in errors."""
    if _is_list(column.type):
        raise InputError(
            f"column {name} holds lists of picks, and it is not known how much each position counts.",
            "Pass position_weights=, such as [1, 0.5, 0.25].",
            flag_remedy="Pass --position-weights, such as 1,0.5,0.25.",
        )
    numbered = numbering.of_column(name, column)
    if not numbered.known.all():
        example = str(column[int(np.argmin(numbered.known))].as_py())
        lists = " If they are lists, pass position_weights=." if "|" in example else ""
        flag = " If they are lists, pass --position-weights." if lists else ""
        raise numbering.unknown(name, column, numbered, LEAVE_OUT + lists, LEAVE_OUT + flag, holder=holder)
    return numbered.actions


def listed_picks(
    name: str, column: pa.ChunkedArray, numbering: ActionNumbering, k: int, separator: str, holder: str = ""
) -> Int[Array, "n k"]:
    """The first k picks of each row in a column of lists, or of texts such as a|b; -1 pads shorter rows."""
    call: Any = compute
    if not _is_list(column.type):
        texts = column.cast(pa.string())
        column = call.split_pattern(texts, pattern=as_text("separator", separator))
    lengths = call.list_value_length(column).to_numpy()
    if len(lengths) and lengths.min() == 0:
        row = row_of(int(np.argmin(lengths)), holder)
        raise NonFiniteError(f"column {name} has an empty list in {row}.", "Fill it in.")
    rows = np.repeat(np.arange(len(lengths)), lengths)
    places = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    flat = call.list_flatten(column)
    flat = flat if isinstance(flat, pa.ChunkedArray) else pa.chunked_array([flat])
    if pa.types.is_string(flat.type):
        flat = call.utf8_trim_whitespace(flat)
    gaps = call.fill_null(call.equal(flat, ""), True) if pa.types.is_string(flat.type) else flat.is_null()
    first_gap = call.index(gaps, True).as_py()
    if first_gap >= 0:
        row = row_of(rows[first_gap], holder)
        raise NonFiniteError(f"column {name} has a gap in the list of {row}.", "Leave the gap out.")
    numbered = numbering.of_column(name, flat)
    if not numbered.known.all():
        raise numbering.unknown(name, flat, numbered, LEAVE_OUT, rows=rows, holder=holder)
    out = np.full((len(lengths), k), -1, dtype=np.int64)
    inside = places < k
    out[rows[inside], places[inside]] = numbered.actions[inside]
    return out


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
