"""Columns of Arrow tables as arrays, every value that cannot be used named by column and row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, all_finite, row_name
from manyarms.errors import DataTypeError, InputError, NonFiniteError, ShapeError

if TYPE_CHECKING:
    import pyarrow as pa

Level = str | int | bool
"""What a category can be called."""


def table_of(value: Any) -> pa.Table | None:
    """A table or data frame of any library as an Arrow table; None when it is none."""
    if isinstance(value, np.ndarray | list | tuple | str):
        return None
    import pyarrow as pa  # noqa: PLC0415  slow to import, and only tables need it

    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    import narwhals as nw  # noqa: PLC0415

    try:
        frame = nw.from_native(value)
    except TypeError:
        return None
    frame = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
    return frame.to_arrow()


def column_of(table: pa.Table | pa.RecordBatch, name: str) -> pa.ChunkedArray:
    """A column by name, without missing values."""
    import pyarrow as pa  # noqa: PLC0415

    if name not in table.schema.names:
        raise InputError(f"there is no column {name!r}; there are {', '.join(table.schema.names)}.")
    column = table.column(name)
    column = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    if column.null_count:
        row = row_name(column.is_null().to_pylist().index(True))
        raise NonFiniteError(f"column {name} is missing in {row}. {_FILL}")
    return column


def numbers_of(name: str, column: pa.ChunkedArray) -> Float[Array, " n"]:
    """Numbers as float64, all finite."""
    values = unchecked_numbers_of(name, column)
    if not all_finite(values):
        row = int(np.argmin(np.isfinite(values)))
        raise NonFiniteError(
            f"column {name} has {values[row]} in {row_name(row)}. {_FILL if np.isnan(values[row]) else _BOUND}"
        )
    return values


def unchecked_numbers_of(name: str, column: pa.ChunkedArray) -> Float[Array, " n"]:
    """Numbers as float64, for callers that look at all columns at once."""
    import pyarrow as pa  # noqa: PLC0415

    try:
        return column.cast(pa.float64()).to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
        raise DataTypeError(f"column {name} must hold numbers; its type is {column.type}.") from problem


def whole_numbers_of(name: str, column: pa.ChunkedArray) -> Array:
    """Numbers as they are, when they are whole by type; else as float64."""
    import pyarrow as pa  # noqa: PLC0415

    return column.to_numpy() if pa.types.is_integer(column.type) else numbers_of(name, column)


def codes_of(column: pa.ChunkedArray) -> tuple[Array, list[Level]]:
    """Each row's place among the distinct values, and these."""
    import pyarrow as pa  # noqa: PLC0415

    coded = column.combine_chunks() if not isinstance(column, pa.Array) else column
    if pa.types.is_dictionary(coded.type):
        # A dictionary may name values that no row has.
        coded = coded.dictionary_decode()
    try:
        coded = coded.dictionary_encode()
    except pa.ArrowNotImplementedError as problem:
        raise DataTypeError(f"a column of {coded.type} holds no ids or categories.") from problem
    return coded.indices.to_numpy(zero_copy_only=False), coded.dictionary.to_pylist()


def lists_of(name: str, column: pa.ChunkedArray, size: int) -> Float[Array, "n k"]:
    """Lists of one length as rows."""
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import compute  # noqa: PLC0415

    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise DataTypeError(f"column {name} must hold lists of numbers; its type is {kind}.")
    lengths = compute.call_function("list_value_length", [column]).to_numpy()
    wrong = np.flatnonzero(lengths != size)
    if len(wrong):
        raise ShapeError(f"column {name} must hold {size} numbers a row; {row_name(wrong[0])} has {lengths[wrong[0]]}.")
    flat = compute.call_function("list_flatten", [column])
    flat = flat if isinstance(flat, pa.ChunkedArray) else pa.chunked_array([flat])
    if flat.null_count:
        place = flat.is_null().to_pylist().index(True)
        raise NonFiniteError(f"column {name} has a missing number in {row_name(place // size)}. {_LEAVE_OUT}")
    values = unchecked_numbers_of(name, flat).reshape(len(column), size)
    if not all_finite(values):
        row = int(np.argmin(np.isfinite(values).all(axis=1)))
        raise NonFiniteError(f"column {name} has a number that is not finite in {row_name(row)}. {_LEAVE_OUT}")
    return values


_FILL = 'Fill it in, or pass missing="drop".'
_BOUND = "Infinity is a value and not a missing one, so it is not dropped: bound it, or leave such rows out first."
_LEAVE_OUT = "Fill it in, or leave such rows out first."
