"""Columns of a catalog, one value per action: the checks of metadata, for catalogs and for the builders of priors."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Set
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import sparse

from manyarms._base.checks import Array, as_numbers, check_rows, frozen
from manyarms.core.labels import TagRow, check_hashable, is_hashable, is_missing, unhashable
from manyarms.errors import DataTypeError, NonFiniteError, RangeError, ShapeError
from manyarms.linalg.sparse_matrices import pair_rows


def as_column(name: str, value: Any, *, length: int | None = None, minimum: int = 1) -> Array:
    """Check an action column: one value per action, as a read-only array."""
    array = _as_array(name, value)
    if array.ndim != 1:
        raise ShapeError(f"must have 1 axis; got shape {array.shape}.", argument=name)
    _check_length(name, array, length, minimum)
    return frozen(array)


def as_tag_column(name: str, value: Any, *, length: int | None = None) -> sparse.csr_array | tuple[TagRow, ...]:
    """Check an action column of tags: labels, weights by label, or a sparse matrix of weights."""
    if sparse.issparse(value):
        if value.ndim != 2 or value.dtype.kind not in "biuf":
            raise DataTypeError(f"must be a matrix of numbers; got {value.ndim} axes of {value.dtype}.", argument=name)
        matrix = sparse.csr_array(value, dtype=np.float64)
        if not np.isfinite(matrix.data).all():
            bad = int(np.argmin(np.isfinite(matrix.data)))
            row, tag = pair_rows(matrix)[bad], matrix.indices[bad]
            problem = f"must have finite weights; row {row} has {matrix.data[bad]} for tag {tag}."
            raise NonFiniteError(problem, argument=name)
        _check_length(name, np.diff(matrix.indptr), length)
        return matrix
    if isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype.kind in "biuf":
        raise DataTypeError(
            "must not be a dense matrix of numbers: they could be labels or weights.",
            "Pass scipy.sparse.csr_array(tags) for weights, or lists of labels.",
            argument=name,
        )
    rows = _rows_of(name, value, length)
    return tuple(dict(row) if isinstance(row, Mapping) else _labels_in(name, i, row) for i, row in enumerate(rows))


def as_path_column(name: str, value: Any, *, length: int | None = None) -> Array | tuple[tuple[Hashable, ...], ...]:
    """Check an action column of paths in a taxonomy, top first: (K, depth), or tuples of any length."""
    if hasattr(value, "to_numpy") and not hasattr(value, "to_pylist"):  # a data frame with one column per level
        value = value.to_numpy()
    if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray) and value.ndim == 2:
        _check_length(name, value, length)
        check_hashable(name, value.reshape(-1), np.repeat(np.arange(len(value)), value.shape[1]))
        return frozen(value)
    return tuple(_labels_in(name, i, row) for i, row in enumerate(_rows_of(name, value, length)))


def as_embedding_column(name: str, value: Any, *, length: int | None = None) -> Float[Array, "K e"]:
    """Check an action column of embeddings: finite numbers, or rows entirely NaN, which are missing."""
    if isinstance(value, np.ma.MaskedArray):
        value = np.ma.filled(value.astype(np.float64), np.nan)
    if hasattr(value, "to_pylist"):
        value = value.to_pylist()
    if isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.dtype == object and value.ndim == 1):
        # A column of lists, as in a table: a row of NaN takes the place of a missing list.
        rows = list(value)
        lists = (row for row in rows if isinstance(row, list | tuple) or (isinstance(row, np.ndarray) and row.ndim))
        width = next(map(len, lists), None)
        value = rows if width is None else [[np.nan] * width if row is None else row for row in rows]
    array = np.asarray(as_numbers(name, value), dtype=np.float64)
    if array.ndim != 2 or array.shape[1] == 0:
        raise ShapeError(f"must have 2 axes and at least a column; got shape {array.shape}.", argument=name)
    _check_length(name, array, length)
    missing = np.isnan(array).all(axis=1, keepdims=True)
    check_rows(
        name, array, lambda a: np.isfinite(a) | missing, NonFiniteError,
        "must be finite, or NaN in a whole row that is missing", "Fill such values in, or make the whole row NaN.",
    )  # fmt: skip
    check_rows(name, array, lambda a: (np.abs(a) < 1e150) | missing, RangeError, "must be below 1e150", "Rescale them.")
    return frozen(array)


def _as_array(name: str, value: Any) -> Array:
    if isinstance(value, str | bytes | Mapping | Set) or not hasattr(value, "__iter__"):
        raise DataTypeError(f"must be a column with one value per action; got {type(value).__name__}.", argument=name)
    if isinstance(value, np.ma.MaskedArray):
        value = value.tolist() if np.ma.getmaskarray(value).any() else value.data
    elif hasattr(value, "to_pylist"):
        # Arrow's to_numpy would turn integers beside nulls into floats.
        value = value.to_pylist()
    elif hasattr(value, "to_numpy"):
        value = value.to_numpy()
    if isinstance(value, np.ndarray):
        return value
    values = list(value)
    return np.fromiter(values, dtype=object, count=len(values))


def _rows_of(name: str, value: Any, length: int | None) -> list[Any]:
    # Arrays with two axes become lists of lists; masked values become None.
    return as_column(name, value.tolist() if isinstance(value, np.ndarray) else value, length=length).tolist()


def _labels_in(name: str, row: int, value: Any) -> tuple[Hashable, ...]:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        if not isinstance(value, str) and is_missing(value):
            return ()
        raise DataTypeError(
            f"must hold a list of labels per action; row {row} has {value!r}.",
            'Wrap a single label as [label]; split a joined one first, as in value.split("/").',
            argument=name,
        )
    labels = tuple(value)
    if not is_hashable(labels):
        raise unhashable(name, list(labels), np.full(len(labels), row))
    return labels


def _check_length(name: str, rows: Array, length: int | None, minimum: int = 1) -> None:
    if len(rows) < minimum:
        raise ShapeError(f"must have at least {minimum} row; got none.", argument=name)
    if length is not None and len(rows) != length:
        raise ShapeError(f"must have {length} rows, one per action; got {len(rows)}.", argument=name)
