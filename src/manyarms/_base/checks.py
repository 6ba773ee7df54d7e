"""The door: what users pass becomes float64 or int64 arrays, finite and read-only, or a typed error.

Every public constructor and method calls these once; what lies behind trusts its arguments.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int

from manyarms.errors import (
    ActionError,
    DataTypeError,
    MissingLibraryError,
    NonFiniteError,
    NumericalError,
    RangeError,
    ShapeError,
)

Array = np.ndarray
Kind = TypeVar("Kind")


Place = Callable[[int], str]
"""Where a row of the whole lies, as in "row 3 of b.parquet"; nothing where its number says it all."""


@dataclass
class _Rows:
    """Which rows of something longer are at hand: from `first` on, and of those only the `kept` ones (None: all)."""

    first: int = 0
    place: Place | None = None
    kept: Int[Array, " m"] | None = None


_rows: ContextVar[_Rows | None] = ContextVar("rows", default=None)


@contextmanager
def rows_from(first: int, place: Place | None = None) -> Generator[None]:
    """Errors raised inside count rows from `first`: the batch at hand is a part of something longer.

    Args:
        first: The number of its first row.
        place: Asked for the first bad row only, so it may take its time; None for what was said further out.
    """
    outer = _rows.get()
    token = _rows.set(_Rows(first, outer.place if place is None and outer is not None else place))
    try:
        yield
    finally:
        _rows.reset(token)


def keep_rows(kept: Bool[Array, " n"]) -> None:
    """From here on the batch at hand has these of its rows only; those that are left still have their numbers."""
    rows = _rows.get()
    if rows is not None:
        rows.kept = np.flatnonzero(kept) if rows.kept is None else rows.kept[kept]


def row_number(row: Any) -> int:
    """The number of a row of the batch at hand, in the whole."""
    rows = _rows.get() or _Rows()
    if rows.kept is None or row >= len(rows.kept):
        return rows.first + int(row)
    return rows.first + int(rows.kept[row])


def row_name(row: Any) -> str:
    """A row of the batch at hand as errors call it: by its number in the whole and, where it has one, its file."""
    return numbered_row(row_number(row))


def numbered_row(number: Any) -> str:
    """The same of a row whose number in the whole is known."""
    rows = _rows.get()
    where = "" if rows is None or rows.place is None else rows.place(int(number))
    return f"row {number} ({where})" if where else f"row {number}"


def frozen(array: Array) -> Array:
    """A read-only view: the caller's own array stays writable, ours cannot be changed by accident."""
    view = array.view()
    view.flags.writeable = False
    return view


def as_floats(name: str, value: Any, *, ndim: int | tuple[int, ...]) -> Float[Array, ...]:
    """`value` as a finite float64 array with one of the numbers of axes in `ndim`."""
    array = _numeric(name, value)
    allowed = (ndim,) if isinstance(ndim, int) else ndim
    if array.ndim not in allowed:
        axes = " or ".join(str(n) for n in allowed) + (" axis" if allowed == (1,) else " axes")
        raise ShapeError(f"{name} must have {axes}; got shape {array.shape}.")
    array = np.asarray(array, dtype=np.float64)
    if not all_finite(array):
        check_rows(name, array, np.isfinite, NonFiniteError, "must be finite", "Drop such rows or fill them in first.")
    return frozen(array)


def all_finite(array: Float[Array, ...]) -> bool:
    """Whether no number is NaN or infinite; by their sum first, which is half the work of looking at each."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(array.sum())) or bool(np.isfinite(array).all())


def as_matrix(name: str, value: Any, *, columns: int | None = None, rows: int | None = None) -> Float[Array, "n d"]:
    """`value` as a finite float64 matrix, with the number of rows and columns demanded."""
    array = as_floats(name, value, ndim=2)
    if columns is not None and array.shape[1] != columns:
        raise ShapeError(
            f"{name} must have {columns} columns; got {array.shape[1]}. Apply the same features as at the fit."
        )
    _check_length(name, array, rows)
    return array


def as_vector(name: str, value: Any, *, length: int | None = None) -> Float[Array, " n"]:
    """`value` as a finite float64 vector of the length demanded."""
    array = as_floats(name, value, ndim=1)
    _check_length(name, array, length)
    return array


def as_actions(name: str, value: Any, *, n_actions: int | None = None, length: int | None = None) -> Int[Array, " n"]:
    """`value` as int64 action numbers in 0 ... n_actions - 1."""
    array = _numeric(name, value, _MAP_IDS)
    if array.ndim != 1:
        raise ShapeError(f"{name} must have 1 axis; got shape {array.shape}.")
    if array.dtype.kind == "f" and array.size:
        check_rows(name, array, lambda a: np.equal(np.mod(a, 1), 0), DataTypeError, "must be integers", _MAP_IDS)
    if array.dtype.kind == "b":
        raise DataTypeError(f"{name} must be integers, not booleans. {_MAP_IDS}")
    # An unsigned id beyond int64 would wrap around and could land inside the range.
    if array.dtype.kind in "uf" and array.size and float(array.max()) >= 2.0**63:
        raise ActionError(f"{name} holds {array.max()}, which is no action number. {_MAP_IDS}")
    array = array.astype(np.int64, copy=False)
    check_rows(name, array, lambda a: a >= 0, ActionError, "must not be negative", _MAP_IDS)
    if n_actions is not None:
        hint = f"Pass a larger n_actions= if the catalog has more than {n_actions} actions."
        check_rows(name, array, lambda a: a < n_actions, ActionError, f"must be below n_actions={n_actions}", hint)
    _check_length(name, array, length)
    return frozen(array)


def as_count(name: str, value: Any, *, minimum: int = 1) -> int:
    """`value` as a Python integer of at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise DataTypeError(f"{name} must be an integer; got {value!r}.")
    if value < minimum:
        raise RangeError(f"{name} must be at least {minimum}; got {value}.")
    if value > np.iinfo(np.int64).max // 8:
        raise RangeError(f"{name} is too large to count with: {value}.")
    return int(value)


def as_scalar(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
) -> float:
    """`value` as a finite float within the bounds given."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise DataTypeError(f"{name} must be a number; got {value!r}.")
    if not np.isfinite(float(value)):
        raise NonFiniteError(f"{name} must be finite; got {value!r}.")
    wrong = (
        (above is not None and value <= above)
        or (at_least is not None and value < at_least)
        or (below is not None and value >= below)
        or (at_most is not None and value > at_most)
    )
    if wrong:
        bounds = [f"above {above}"] * (above is not None) + [f"at least {at_least}"] * (at_least is not None)
        bounds += [f"below {below}"] * (below is not None) + [f"at most {at_most}"] * (at_most is not None)
        raise RangeError(f"{name} must be {' and '.join(bounds)}; got {value}.")
    return float(value)


def check_overflow(name: str, array: Float[Array, "..."]) -> Float[Array, "..."]:
    """A result, or an error when finite input has overflowed on its way to it."""
    if not np.isfinite(array).all():
        row = int(np.argwhere(~np.isfinite(np.atleast_1d(array)))[0][0])
        raise NumericalError(f"{name} overflow in row {row}. Rescale contexts, rewards or the prior.")
    return array


def as_instance(name: str, value: Any, kind: type[Kind], hint: str) -> Kind:
    """`value` itself when it is of the kind that is needed."""
    if not isinstance(value, kind):
        inside = [part for part in ("posterior", "prior", "weights") if isinstance(getattr(value, part, None), kind)]
        way_out = f" Pass its .{inside[0]}." if inside else ""
        raise DataTypeError(f"{name} must be {hint}; got {type(value).__name__}.{way_out}")
    return value


def check_rows(
    name: str, array: Array, good: Callable[[Array], Any], error: type[Exception], must: str, way_out: str
) -> None:
    """Raise `error` naming the first row for which `good` does not hold.

    Args:
        name: The argument, as the caller wrote it.
        array: Its values; the first axis counts rows.
        good: Elementwise predicate.
        error: What to raise.
        must: What holds of good values, as in "must be finite".
        way_out: What the caller can do about it.
    """
    fine = np.asarray(good(array))
    if fine.all():
        return
    where = np.unravel_index(int(np.argmin(fine)), fine.shape)
    place = "" if array.ndim == 0 else f"{row_name(where[0])} {'has' if array.ndim == 1 else 'holds'} "
    raise error(f"{name} {must}; {place}{array[where]!s}. {way_out}")


def _numeric(name: str, value: Any, way_out: str = "") -> Array:
    if isinstance(value, np.ma.MaskedArray) and np.ma.getmaskarray(value).any():
        row = int(np.argwhere(np.ma.getmaskarray(value))[0][0])
        raise NonFiniteError(
            f"{name} has masked values; the first is in row {row}. Drop such rows or fill them in first."
        )
    if isinstance(value, Mapping):
        raise DataTypeError(f"{name} must be an array of numbers; got a {type(value).__name__}. {_TABLE}")
    if hasattr(value, "toarray"):
        raise DataTypeError(f"{name} must be a dense array; got a sparse one. Pass {name}.toarray().")
    try:
        array = np.asarray(value)
    except ValueError as ragged:
        raise ShapeError(f"{name} must be a rectangular array of numbers: {ragged}") from ragged
    if array.dtype.kind not in "biuf":
        raise DataTypeError(f"{name} must hold numbers; got dtype {array.dtype}. {way_out or _CONVERT.format(name)}")
    return array


def _check_length(name: str, array: Array, length: int | None) -> None:
    if length is not None and len(array) != length:
        raise ShapeError(f"{name} must have {length} rows; got {len(array)}.")


_MAP_IDS = "Number ids first, those never logged too: ma.Catalog(all_ids).numbers(ids)."
_TABLE = "Columns by name are a table: pyarrow.table(columns), or pandas.DataFrame(columns), where tables are taken."
_CONVERT = "Convert it first, as in {}.astype(float)."


def import_optional(module: str, who: str, install: str | None = None) -> Any:
    """A module of another library.

    Args:
        module: Its name.
        who: What needs it, as the caller wrote it.
        install: What to give to pip, where that is not the module's name.

    Raises:
        MissingLibraryError: When it is not installed, with the way out.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise MissingLibraryError(f'{who} needs {module}: pip install "{install or module}".') from missing
