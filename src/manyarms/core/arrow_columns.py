"""Columns of Arrow tables as arrays; an error names the column and the row of the first bad value."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from manyarms._base.arrow import compute, pa
from manyarms._base.checks import Array, all_finite
from manyarms._base.row_numbers import row_name
from manyarms.errors import DataTypeError, InputError, NonFiniteError, ShapeError

Level = str | int | bool
"""The types that the levels of a category can have."""


def column_of(table: pa.Table | pa.RecordBatch, name: str) -> pa.ChunkedArray:
    """A column of an Arrow table by name, without missing values."""
    if name not in table.schema.names:
        raise InputError(f"there is no column {name!r}; the columns are {', '.join(table.schema.names)}.")
    column = table.column(name)
    column = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    if column.null_count:
        row = row_name(column.is_null().to_pylist().index(True))
        raise NonFiniteError(f"is missing in {row}.", _FILL, argument=f"column {name}", flag_remedy=_FLAG_FILL)
    return column


def numbers_of(name: str, column: pa.ChunkedArray) -> Float[Array, " n"]:
    """Numbers of an Arrow column as float64, all finite."""
    values = unchecked_numbers_of(name, column)
    if not all_finite(values):
        row = int(np.argmin(np.isfinite(values)))
        remedy, flag_remedy = (_FILL, _FLAG_FILL) if np.isnan(values[row]) else (_BOUND, "")
        problem = f"has {values[row]} in {row_name(row)}."
        raise NonFiniteError(problem, remedy, argument=f"column {name}", flag_remedy=flag_remedy)
    return values


def unchecked_numbers_of(name: str, column: pa.ChunkedArray) -> Float[Array, " n"]:
    """Numbers of an Arrow column as float64, for callers that check all columns at once."""
    try:
        return column.cast("float64").to_numpy()
    except (ValueError, NotImplementedError) as problem:
        place = _first_text(column)
        has = f"its type is {column.type}" if place is None else f"{row_name(place)} has {column[place].as_py()!r}"
        remedy = "" if place is None else "Write plain numbers, such as 1250.00, and leave unknown ones empty."
        raise DataTypeError(f"must hold numbers; {has}.", remedy, argument=f"column {name}") from problem


def _first_text(column: pa.ChunkedArray) -> int | None:
    """The first row of a column of texts that is not a number; None for other types."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return None
    for place, text in enumerate(column.to_pylist()):
        try:
            float(text)
        except (TypeError, ValueError):
            return place
    return None


def whole_numbers_of(name: str, column: pa.ChunkedArray) -> Array:
    """Numbers of an Arrow column in their own type if it is an integer type; else as float64."""
    return column.to_numpy() if pa.types.is_integer(column.type) else numbers_of(name, column)


def codes_of(column: pa.ChunkedArray) -> tuple[Array, list[Any]]:
    """Codes of an Arrow column: the code of each row, and the distinct values in the order of their codes."""
    coded = column.combine_chunks() if not isinstance(column, pa.Array) else column
    if pa.types.is_dictionary(coded.type):
        # A dictionary may list values that no row has.
        coded = coded.dictionary_decode()
    try:
        coded = coded.dictionary_encode()
    except pa.ArrowNotImplementedError as problem:
        raise DataTypeError(f"a column of type {coded.type} cannot hold ids or categories.") from problem
    return coded.indices.to_numpy(zero_copy_only=False), coded.dictionary.to_pylist()


def lists_of(name: str, column: pa.ChunkedArray, size: int) -> Float[Array, "n k"]:
    """Lists of `size` numbers in an Arrow column, as the rows of a matrix."""
    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise DataTypeError(f"must hold lists of numbers; its type is {kind}.", argument=f"column {name}")
    lengths = compute.call_function("list_value_length", [column]).to_numpy()
    wrong = np.flatnonzero(lengths != size)
    if len(wrong):
        problem = f"must hold {size} numbers per row; {row_name(wrong[0])} has {lengths[wrong[0]]}."
        raise ShapeError(problem, argument=f"column {name}")
    flat = compute.call_function("list_flatten", [column])
    flat = flat if isinstance(flat, pa.ChunkedArray) else pa.chunked_array([flat])
    if flat.null_count:
        row = flat.is_null().to_pylist().index(True) // size
        raise NonFiniteError(f"has a missing number in {row_name(row)}.", _LEAVE_OUT, argument=f"column {name}")
    values = unchecked_numbers_of(name, flat).reshape(len(column), size)
    if not all_finite(values):
        row = int(np.argmin(np.isfinite(values).all(axis=1)))
        problem = f"has a number that is not finite in {row_name(row)}."
        raise NonFiniteError(problem, _LEAVE_OUT, argument=f"column {name}")
    return values


_FILL = 'Fill it in, or pass missing="drop".'
_FLAG_FILL = "Fill it in, or pass --missing drop."
_BOUND = "Infinity is not a missing value, so it is not dropped: bound it, or leave such rows out first."
_LEAVE_OUT = "Fill it in, or leave such rows out first."
