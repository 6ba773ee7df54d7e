"""Checks of arguments: they become float64 or int64 arrays, finite and read-only, or a typed error is raised.

Every public constructor and method calls these once. The code behind them trusts its arguments.
"""

from __future__ import annotations

import errno
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from operator import ge, gt, le, lt
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float, Int, Shaped

from manyarms._base.row_numbers import row_name
from manyarms.errors import (
    ActionError,
    CovarianceError,
    DataTypeError,
    InputError,
    ManyarmsError,
    MissingLibraryError,
    NonFiniteError,
    NumericalError,
    RangeError,
    ShapeError,
)

Array = np.ndarray
Kind = TypeVar("Kind")


def frozen(array: Array) -> Array:
    """Freeze a checked array: a read-only view, so that the caller's stays writable and ours cannot be changed."""
    view = array.view()
    view.flags.writeable = False
    return view


def as_floats(name: str, value: Any, *, ndim: int | tuple[int, ...]) -> Float[Array, "..."]:
    """Check `value` as a finite float64 array whose number of axes is in `ndim`."""
    array = as_numbers(name, value)
    allowed = (ndim,) if isinstance(ndim, int) else ndim
    if array.ndim not in allowed:
        axes = " or ".join(str(n) for n in allowed) + (" axis" if allowed == (1,) else " axes")
        raise ShapeError(f"must have {axes}; got shape {array.shape}.", argument=name)
    array = np.asarray(array, dtype=np.float64)
    if not all_finite(array):
        check_rows(name, array, np.isfinite, NonFiniteError, "must be finite", _FILL_IN)
    return frozen(array)


def all_finite(array: Float[Array, "..."]) -> bool:
    """Check that no number is NaN or infinite; their sum is tried first, which takes half the time."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(array.sum())) or bool(np.isfinite(array).all())


def as_matrix(name: str, value: Any, *, columns: int | None = None, rows: int | None = None) -> Float[Array, "n d"]:
    """Check `value` as a finite float64 matrix with the given numbers of rows and columns."""
    array = as_floats(name, value, ndim=2)
    if columns is not None and array.shape[1] != columns:
        raise ShapeError(
            f"must have {columns} columns; got {array.shape[1]}.",
            "Apply the same features as in the fit.",
            argument=name,
        )
    _check_length(name, array, rows)
    return array


def as_vector(name: str, value: Any, *, length: int | None = None) -> Float[Array, " n"]:
    """Check `value` as a finite float64 vector of the given length."""
    array = as_floats(name, value, ndim=1)
    _check_length(name, array, length)
    return array


def as_weights(value: Any, length: int) -> Float[Array, " n"]:
    """Check `value` as the weight of each row, not negative."""
    weights = as_vector("weights", value, length=length)
    remedy = "Weight 0 drops a row, weight 2 counts it twice."
    check_rows("weights", weights, lambda w: w >= 0, InputError, "must not be negative", remedy)
    # A weight counts rounds; the sums and squares of larger ones overflow.
    smaller = "Divide all weights by the same number."
    check_rows("weights", weights, lambda w: w < 1e100, RangeError, "must be below 1e100", smaller)
    return weights


def row_weights(weights: Any, n_rows: int) -> Float[Array, " n"]:
    """Check the argument `weights` of a mean over rows: not negative, not all zero, and one each if it is None."""
    if weights is None:
        return np.ones(n_rows)
    counts = as_weights(weights, n_rows)
    if not counts.any():
        raise InputError("are all zero: a mean over none is undefined.", argument="weights")
    return counts


def as_actions(name: str, value: Any, *, n_actions: int | None = None, length: int | None = None) -> Int[Array, " n"]:
    """Check `value` as int64 action numbers in 0 ... n_actions - 1."""
    remedy, flag_remedy = _NUMBER_IDS
    array = as_numbers(name, value, remedy, flag_remedy)
    if array.ndim != 1:
        raise ShapeError(f"must have 1 axis; got shape {array.shape}.", argument=name)
    if array.dtype.kind == "f" and array.size:
        check_rows(name, array, _is_whole, DataTypeError, "must be integers", *_NUMBER_IDS)
    if array.dtype.kind == "b":
        raise DataTypeError("must be integers, not booleans.", remedy, argument=name, flag_remedy=flag_remedy)
    # An unsigned id beyond int64 would wrap around and could land inside the range.
    if array.dtype.kind in "uf" and array.size and float(array.max()) >= 2.0**63:
        problem = f"holds {array.max()}, which is not an action number."
        raise ActionError(problem, remedy, argument=name, flag_remedy=flag_remedy)
    array = array.astype(np.int64, copy=False)
    check_rows(name, array, lambda a: a >= 0, ActionError, "must not be negative", *_NUMBER_IDS)
    if n_actions is not None:
        larger = f"Pass a larger n_actions= if the catalog has more than {n_actions} actions."
        check_rows(name, array, lambda a: a < n_actions, ActionError, f"must be below n_actions={n_actions}", larger)
    _check_length(name, array, length)
    return frozen(array)


def as_times(name: str, value: Any, *, length: int) -> Shaped[Array, " n"]:
    """Check `value` as a time per row, none missing: datetime64, or numbers that increase with time, in their type."""
    _refuse_masked(name, value)
    try:
        array = np.asarray(value)
    except ValueError as ragged:
        raise ShapeError(f"must be one time per row: {ragged}", argument=name) from ragged
    if array.dtype.kind not in "Miuf":
        problem = f"must be datetime64 or numbers; got dtype {array.dtype}."
        raise DataTypeError(problem, f'Convert them first, as in np.asarray({name}, "datetime64[us]").', argument=name)
    if array.ndim != 1:
        raise ShapeError(f"must have 1 axis; got shape {array.shape}.", argument=name)
    _check_length(name, array, length)
    check_rows(name, array, np.isfinite, NonFiniteError, "must be finite", _FILL_IN)
    return frozen(array)


def as_count(name: str, value: Any, *, minimum: int = 1) -> int:
    """Check `value` as a Python integer of at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise DataTypeError(f"must be an integer; got {value!r}.", argument=name)
    if value < minimum:
        raise RangeError(f"must be at least {minimum}; got {value}.", argument=name)
    if value > np.iinfo(np.int64).max // 8:
        raise RangeError(f"is too large to count with: {value}.", argument=name)
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
    """Check `value` as a finite float within the given bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise DataTypeError(f"must be a number; got {value!r}.", argument=name)
    try:
        number = float(value)
    except OverflowError:
        raise RangeError("is an integer too large for a number with a point.", argument=name) from None
    if not np.isfinite(number):
        raise NonFiniteError(f"must be finite; got {value!r}.", argument=name)
    limits = (("above", above, gt), ("at least", at_least, ge), ("below", below, lt), ("at most", at_most, le))
    if not all(limit is None or holds(value, limit) for _, limit, holds in limits):
        bounds = " and ".join(f"{words} {limit}" for words, limit, _ in limits if limit is not None)
        raise RangeError(f"must be {bounds}; got {value}.", argument=name)
    return number


def check_overflow(name: str, array: Float[Array, "..."]) -> Float[Array, "..."]:
    """`array` itself, or an error if finite input has overflowed on the way to it."""
    if not np.isfinite(array).all():
        row = int(np.argwhere(~np.isfinite(np.atleast_1d(array)))[0][0])
        raise NumericalError(f"{name} overflow in row {row}.", "Rescale contexts, rewards or the prior.")
    return array


def as_instance(name: str, value: Any, kind: type[Kind], expected: str) -> Kind:
    """Check that `value` is an instance of `kind`; the error says what was `expected`, as in "a policy"."""
    if not isinstance(value, kind):
        inside = [part for part in ("posterior", "prior", "weights") if isinstance(getattr(value, part, None), kind)]
        remedy = f"Pass its .{inside[0]}." if inside else ""
        raise DataTypeError(f"must be {expected}; got {type(value).__name__}.", remedy, argument=name)
    return value


def as_flag(name: str, value: Any) -> bool:
    """Check `value` as True or False: a text such as "no" would count as True."""
    if not isinstance(value, bool | np.bool_):
        raise DataTypeError(f"must be True or False; got {_shown(value)}.", argument=name)
    return bool(value)


def as_text(name: str, value: Any) -> str:
    """Check `value` as a text, such as the name that a table shows."""
    if not isinstance(value, str):
        raise DataTypeError(f"must be a text; got {_shown(value)}.", argument=name)
    return value


def as_path(argument: str, path: object) -> Path:
    """Check an argument that is the path of a file or a folder."""
    if not isinstance(path, str | os.PathLike):
        raise DataTypeError(f"must be a string or a Path; got {type(path).__name__}.", argument=argument)
    checked = Path(os.fsdecode(path))
    if os.fspath(path) == "" or "\0" in str(checked):
        raise InputError(f"must name a file; got {os.fspath(path)!r}.", argument=argument)
    try:
        os.lstat(checked)
    except UnicodeEncodeError:
        raise InputError(f"must name a file; {str(checked)!a} cannot be the name of one.", argument=argument) from None
    except OSError as problem:
        if problem.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            text = f"must name a file; {str(checked)[:60]}... cannot: {problem.strerror}."
            raise InputError(text, argument=argument) from None
    return checked


def as_rows(value: Any, n_rows: int) -> slice | Int[Array, " m"]:
    """Check the argument `rows` of a selection: a slice, a mask with one boolean per row, or integers."""
    if isinstance(value, slice):
        return value
    array = as_numbers("rows", value, "Pass a slice, a boolean mask or row numbers.")
    if array.dtype.kind == "b" and array.shape == (n_rows,):
        return np.flatnonzero(array)
    if array.ndim != 1 or array.dtype.kind == "b" or (array.dtype.kind == "f" and array.size):
        problem = f"must be a slice, {n_rows} booleans or row numbers; got {array.dtype} of shape {array.shape}."
        raise DataTypeError(problem, argument="rows")
    # An unsigned number beyond int64 would wrap around, and could land inside the range.
    fits = (array >= -n_rows) & (array < n_rows)
    if not fits.all():
        wrong = array[~fits][0]
        raise RangeError(f"must be from {-n_rows} to {n_rows - 1}; got {wrong}.", argument="rows")
    return array.astype(np.int64)


def check_callable(name: str, value: Any) -> None:
    """Refuse what cannot be called; the class of a function is not a function."""
    if not callable(value):
        raise DataTypeError(f"must be a function; got {type(value).__name__}.", argument=name)


def as_names(name: str, value: Any) -> list[str]:
    """Check an argument of one or several names: a text, a list of them, or an array such as the columns of a frame."""
    if value is None or isinstance(value, str):
        return [] if value is None else [value]
    # A set has no order, and a generator can be read only once.
    listed = value.tolist() if hasattr(value, "tolist") else value
    return list(as_instance(name, listed, Sequence, "the name of a column, or several"))


def check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    """Refuse a word that is not one of those allowed."""
    if not isinstance(value, str) or value not in allowed:
        raise InputError(f"must be one of {', '.join(map(repr, allowed))}; got {value!r}.", argument=name)


def check_rows(
    name: str,
    array: Array,
    good: Callable[[Array], Any],
    error: type[ManyarmsError],
    must: str,
    remedy: str,
    flag_remedy: str = "",
) -> None:
    """Check an array element by element: raise `error` with the first row for which `good` does not hold.

    `must` is the condition, as in "must be finite". `remedy` is a sentence of its own, and `flag_remedy` the one on the
    command line where that reads differently.
    """
    fine = np.asarray(good(array))
    if fine.all():
        return
    where = np.unravel_index(int(np.argmin(fine)), fine.shape)
    row = "" if array.ndim == 0 else f"{row_name(where[0])} {'has' if array.ndim == 1 else 'holds'} "
    raise error(f"{must}; {row}{array[where]!s}.", remedy, argument=name, flag_remedy=flag_remedy)


def as_numbers(name: str, value: Any, remedy: str = "", flag_remedy: str = "") -> Array:
    """Check `value` as an array of booleans, integers or floats, of any shape; they need not be finite."""
    _refuse_masked(name, value)
    if isinstance(value, Mapping):
        raise DataTypeError(f"must be an array of numbers; got a {type(value).__name__}.", _TABLE, argument=name)
    if hasattr(value, "toarray"):
        raise DataTypeError("must be a dense array; got a sparse one.", f"Pass {name}.toarray().", argument=name)
    try:
        array = np.asarray(value)
    except ValueError as ragged:
        raise ShapeError(f"must be a rectangular array of numbers: {ragged}", argument=name) from ragged
    if array.dtype.kind not in "biuf":
        remedy = remedy or f"Convert it first, as in {name}.astype(float)."
        problem = f"must hold numbers; got dtype {array.dtype}."
        raise DataTypeError(problem, remedy, argument=name, flag_remedy=flag_remedy)
    return array


def import_optional(module: str, needed_by: str, install: str = "") -> Any:
    """Check that a library that only some users need is installed, and import it, or raise a MissingLibraryError.

    The error names the call that needs it, and pip's name for it where that is not the module's (`install`).
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] != module.partition(".")[0]:
            raise
        remedy = f'Install it: pip install "{install or module}".'
        raise MissingLibraryError(f"{needed_by} needs {module}.", remedy) from missing


def _is_whole(array: Array) -> Array:
    """True for each number that is an integer; NaN and infinity are not."""
    with np.errstate(invalid="ignore"):
        return np.equal(np.mod(array, 1), 0)


def _shown(value: Any) -> str:
    """A short value as it is, and only the type of anything else."""
    return repr(value) if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"


def _refuse_masked(name: str, value: Any) -> None:
    if isinstance(value, np.ma.MaskedArray) and np.ma.getmaskarray(value).any():
        row = int(np.argwhere(np.ma.getmaskarray(value))[0][0])
        raise NonFiniteError(f"has masked values; the first is in row {row}.", _FILL_IN, argument=name)


def _check_length(name: str, array: Array, length: int | None) -> None:
    if length is not None and len(array) != length:
        raise ShapeError(f"must have {length} rows; got {len(array)}.", argument=name)


_FILL_IN = "Drop such rows or fill them in first."
_TABLE = "Columns by name are a table: pass pyarrow.table(columns) or pandas.DataFrame(columns) where a table will do."
_NUMBER_IDS = (
    "Number the ids first, including those never logged: ma.Catalog(all_ids).numbers(ids).",
    "Pass --catalog with all ids, including those never logged.",
)


def _is_symmetric(matrices: Float[Array, "k d d"]) -> np.ndarray:
    """True for each matrix that is symmetric up to rounding."""
    gap = np.abs(matrices - matrices.swapaxes(-1, -2)).max(axis=(-1, -2), initial=0.0)
    scale = np.abs(matrices).max(axis=(-1, -2), initial=0.0)
    return gap <= 1e-9 * scale


def _is_psd(matrices: Float[Array, "k d d"]) -> np.ndarray:
    """True for each symmetric matrix without a negative eigenvalue, up to rounding."""
    try:
        np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        values = np.linalg.eigvalsh(matrices)
        return values.min(axis=-1, initial=0.0) >= -1e-9 * np.abs(values).max(axis=-1, initial=0.0)
    return np.ones(len(matrices), dtype=bool)


def as_covariances(name: str, matrices: Float[Array, "k d d"]) -> Float[Array, "k d d"]:
    """Check an argument of covariance matrices, and return them exactly symmetric.

    An error names the first that is not symmetric (to rounding) or PSD.
    """
    for holds, must, remedy in (
        (_is_symmetric, "must be symmetric", "Use (S + S.T) / 2."),
        (_is_psd, "must be positive semi-definite", "An eigenvalue is negative; build the matrix as A @ A.T."),
    ):
        fine = holds(matrices)
        if not fine.all():
            which = f"; matrix {int(np.argmin(fine))} is not" if len(matrices) > 1 else ""
            raise CovarianceError(f"{must}{which}.", remedy, argument=name)
    mirrored = matrices.swapaxes(1, 2)
    # Products such as A @ A.T of a stack differ from their transpose in the last digit.
    return matrices if np.array_equal(matrices, mirrored) else (matrices + mirrored) / 2
