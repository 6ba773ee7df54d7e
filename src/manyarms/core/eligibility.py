"""Eligibility: the actions that may be chosen in each row, because of stock, targeting or candidate sets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from manyarms.errors import ActionError, DataTypeError, EligibilityError, NonFiniteError, ShapeError
from manyarms.linalg.indexing import chunks
from manyarms.linalg.sparse_matrices import shape_of


class Eligibility(ABC):
    """The eligible sets of n rows, read block by block."""

    def __init__(self, n_rows: int, n_actions: int):
        self.n_rows = n_rows
        self.n_actions = n_actions

    @abstractmethod
    def block(self, rows: slice) -> sparse.csr_array:
        """Matrix for these rows, with ones where an action may be chosen: columns sorted and distinct, no row empty."""


class _UserSets(Eligibility):
    """Sets as a user gives them, sorted and checked when they are read."""

    def __init__(self, read: Callable[[slice], Any], n_rows: int, n_actions: int):
        super().__init__(n_rows, n_actions)
        self._read = read

    def block(self, rows: slice) -> sparse.csr_array:
        matrix = _clean(self._read(rows), rows.start, rows.stop - rows.start, self.n_actions)
        sizes = np.diff(matrix.indptr)
        if len(sizes) and sizes.min() == 0:
            raise EligibilityError(
                f"leaves nothing to choose from in row {rows.start + int(np.argmin(sizes))}.",
                "Give every row at least one action, or leave such rows out.",
                argument="eligible",
            )
        return matrix


def as_eligibility(value: Any, n_rows: int, n_actions: int) -> Eligibility | None:
    """Check the argument `eligible` of a user.

    Args:
        value: None (all actions everywhere); a boolean (K,) array, the same for all rows; an (n, K) SciPy sparse matrix
            or boolean array; a list with one list per row, of action numbers or of K booleans; or a function of a slice
            of rows that returns one of the last three for that slice.
        n_rows: Number of contexts.
        n_actions: K.
    """
    if value is None:
        return value
    if isinstance(value, Eligibility):
        # A longer one would be read without complaint, as the sets of other rows.
        _check_n_rows(value.n_rows, n_rows)
        return value
    # A class can be called, too, but is not a function of rows.
    if callable(value) and not isinstance(value, type):
        return _UserSets(value, n_rows, n_actions)
    if sparse.issparse(value):
        value = sparse.csr_array(value)
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind == "b":
        return SharedSet(value, n_rows, n_actions)
    single = isinstance(value, np.ndarray) and value.ndim == 0
    if single or not isinstance(value, np.ndarray | Sequence | sparse.csr_array):
        given = "a single number" if single else type(value).__name__
        raise DataTypeError(
            f"must be a sparse matrix, a list of id lists or a function; got {given}.", argument="eligible"
        )
    _check_n_rows(shape_of(value)[0] if isinstance(value, sparse.csr_array) else len(value), n_rows)
    return _UserSets(value.__getitem__, n_rows, n_actions)


def _check_n_rows(given: int, n_rows: int) -> None:
    if given != n_rows:
        raise ShapeError(f"must have one row per context: {n_rows}; got {given}.", argument="eligible")


def eligible_blocks(
    eligible: Eligibility | None, n_rows: int, size: int
) -> Iterator[tuple[slice, sparse.csr_array | None]]:
    """Blocks of up to `size` rows with at most about PAIRS_PER_BLOCK eligible pairs: (rows, their sets)."""
    if eligible is None:
        yield from ((rows, None) for rows in chunks(n_rows, size))
        return
    # The size of the sets is known only after some rows were read.
    step, start = min(size, 64), 0
    while start < n_rows:
        rows = slice(start, min(start + step, n_rows))
        block = eligible.block(rows)
        yield rows, block
        each = max(1, block.nnz // (rows.stop - rows.start))
        step, start = int(np.clip(PAIRS_PER_BLOCK // each, 1, size)), rows.stop


PAIRS_PER_BLOCK = 1 << 20
"""Approximate number of (row, eligible action) pairs held at a time."""


class SharedSet(Eligibility):
    """One eligible set for every row, such as the items in stock."""

    def __init__(self, mask: np.ndarray, n_rows: int, n_actions: int):
        super().__init__(n_rows, n_actions)
        if len(mask) != n_actions:
            raise ShapeError(
                f"must have one entry per action as a mask for all rows: {n_actions}; got {len(mask)}.",
                argument="eligible",
            )
        self._ids = np.flatnonzero(mask)
        if len(self._ids) == 0:
            raise EligibilityError(
                "leaves nothing to choose from in row 0: the mask for all rows is empty.", argument="eligible"
            )

    def block(self, rows: slice) -> sparse.csr_array:
        n, k = rows.stop - rows.start, len(self._ids)
        shape = (n, self.n_actions)
        return sparse.csr_array((np.ones(n * k), np.tile(self._ids, n), np.arange(n + 1) * k), shape=shape)


def _clean(sets: Any, first_row: int, n_rows: int, n_actions: int) -> sparse.csr_array:
    if sparse.issparse(sets) or (isinstance(sets, np.ndarray) and sets.ndim == 2 and sets.dtype.kind == "b"):
        matrix = sparse.csr_array(sets)
        if shape_of(matrix) != (n_rows, n_actions):
            raise ShapeError(
                f"must have shape ({n_rows}, {n_actions}) for these rows; got {matrix.shape}.", argument="eligible"
            )
        if matrix.data.dtype.kind == "f" and np.isnan(matrix.data).any():
            remedy = "Store True (or 1) where an action may be chosen, and nothing elsewhere."
            raise NonFiniteError("holds NaN.", remedy, argument="eligible")
        indptr, indices, keep = matrix.indptr, matrix.indices, matrix.data != 0
    else:
        indptr, indices = _from_lists(sets, first_row, n_rows, n_actions)
        keep = np.ones(len(indices), dtype=bool)
        # Lists as long as the catalog that hold only 0 and 1 are a mask, which integers would silently turn into ids.
        if n_actions > 2 and len(indices) == n_rows * n_actions > 0 and indices.max() <= 1:
            raise DataTypeError(
                "looks like a 0 / 1 mask, and integers would be read as action numbers.",
                "Pass np.asarray(eligible, dtype=bool).",
                argument="eligible",
            )
        outside = (indices < 0) | (indices >= n_actions)
        if outside.any():
            bad = int(np.argmax(outside))
            row = first_row + int(np.searchsorted(indptr, bad, side="right")) - 1
            raise ActionError(
                f"must name actions below n_actions={n_actions}; row {row} has {indices[bad]}.",
                "Number actions by their position in the catalog.",
                argument="eligible",
            )
    rows = np.repeat(np.arange(n_rows), np.diff(indptr))
    # Duplicates and order do not matter in a set: from here on there is one canonical form.
    code = rows[keep] * n_actions + indices[keep].astype(np.int64)
    if (np.diff(code) <= 0).any():
        code.sort()
        code = code[np.diff(code, prepend=-1) > 0]
    starts = np.searchsorted(code, np.arange(n_rows + 1) * n_actions)
    return sparse.csr_array((np.ones(len(code)), code % n_actions, starts), shape=(n_rows, n_actions))


def _from_lists(sets: Any, first_row: int, n_rows: int, n_actions: int) -> tuple[np.ndarray, np.ndarray]:
    try:
        lists = [_ids(np.asarray(row), n_actions) for row in sets]
    except (TypeError, ValueError) as cause:
        raise DataTypeError(f"must give a list of action numbers per row: {cause}", argument="eligible") from cause
    if len(lists) != n_rows:
        raise ShapeError(f"must give {n_rows} lists from row {first_row} on; got {len(lists)}.", argument="eligible")
    for i, ids in enumerate(lists):
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise DataTypeError(
                f"must give a flat list of integer action numbers; row {first_row + i} does not.",
                f"A mask must be boolean, with {n_actions} entries per row.",
                argument="eligible",
            )
    sizes = [len(ids) for ids in lists]
    flat = np.concatenate([ids.astype(np.int64) for ids in lists]) if lists else np.empty(0, np.int64)
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), flat


def _ids(row: np.ndarray, n_actions: int) -> np.ndarray:
    """The action numbers of a row, which may be written as a boolean for each action."""
    return np.flatnonzero(row) if row.dtype.kind == "b" and row.shape == (n_actions,) else row
