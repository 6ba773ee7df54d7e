"""Ratings of which some are missing: what may be chosen for whom, and a policy that keeps to it."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

from manyarms._base.checks import Array, as_floats
from manyarms.core.choices import Choices, RowError
from manyarms.core.eligibility import PAIRS_PER_BLOCK, Eligibility
from manyarms.core.policy import Policy
from manyarms.errors import DataTypeError, EligibilityError, InputError, NonFiniteError, ShapeError
from manyarms.linalg.indexing import pair_rows, shape_of


class ObservedActions(Eligibility):
    """Row i may choose what is observed of user users[i]; read some rows at a time, since all of them are n x K.

    It is passed as `eligible`; `sets[rows]` has the same for some rows, and `sets.tocsr()` writes them out.

    Args:
        pattern: (users, K) ones where observed: columns sorted, none twice, no row empty.
        users: (n,) the user of each row.
    """

    def __init__(self, pattern: sparse.csr_array, users: Int[Array, " n"]):
        super().__init__(len(users), shape_of(pattern)[1])
        self._pattern, self._users = pattern, users

    def __len__(self) -> int:
        return self.n_rows

    def __getitem__(self, rows: slice | Int[Array, " m"]) -> ObservedActions:
        return ObservedActions(self._pattern, self._users[rows])

    @property
    def largest(self) -> int:
        """The most actions that any user has to choose from."""
        return int(np.diff(self._pattern.indptr).max())

    def block(self, rows: slice) -> sparse.csr_array:
        if rows.stop > self.n_rows:
            raise ShapeError(f"eligible must have one row a context; it has {self.n_rows}, contexts have more.")
        return self._pattern[self._users[rows]]

    def tocsr(self) -> sparse.csr_array:
        """(n, K) ones where an action may be chosen."""
        return self.block(slice(0, self.n_rows))


class WithinObserved(Policy):
    """What another policy does when it may choose observed actions only; tied to rows, whose users are known.

    Args:
        policy: The policy to follow.
        sets: What is observed in each row.
    """

    def __init__(self, policy: Policy, sets: ObservedActions):
        if policy.n_rows not in (None, sets.n_rows):
            raise ShapeError(f"policy is tied to {policy.n_rows} rows; there are {sets.n_rows} contexts.")
        self.policy, self.sets = policy, sets
        self.n_actions, self.n_rows, self.dim = policy.n_actions, sets.n_rows, policy.dim
        self.learned_from = policy.learned_from
        self.rows_per_block = int(np.clip(PAIRS_PER_BLOCK // sets.largest, 1, policy.rows_per_block))

    def take(self, rows: slice | Int[Array, " m"]) -> WithinObserved:
        return WithinObserved(self.policy.take(rows), self.sets[rows])

    def choices(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None) -> Choices:
        own = self.sets.tocsr()
        return self.policy.choices(contexts, own if eligible is None else meet(own, eligible))


def meet(observed: sparse.csr_array, eligible: sparse.csr_array) -> sparse.csr_array:
    """What is observed and eligible too."""
    both = sparse.csr_array(observed.multiply(eligible))
    sizes = np.diff(both.indptr)
    if len(sizes) and sizes.min() == 0:
        raise RowError(int(np.argmin(sizes)), "may choose observed actions only, of which none is eligible")
    return both


def as_ratings(matrix: Any, observed: Any) -> tuple[Array | sparse.csr_array, sparse.csr_array | None]:
    """The ratings, and where they are observed: None for everywhere, else the cells that the ratings store."""
    if observed is None:
        return as_sparse("matrix", matrix) if sparse.issparse(matrix) else as_floats("matrix", matrix, ndim=2), None
    pattern = _as_pattern(observed)
    if sparse.issparse(matrix):
        values = as_sparse("matrix", matrix)
    else:
        # Cells that are not observed may hold anything, NaN above all.
        blank = type(matrix) is np.ndarray and matrix.dtype.kind == "f" and matrix.shape == shape_of(pattern)
        values = as_floats("matrix", np.where(pattern.toarray() > 0, matrix, 0.0) if blank else matrix, ndim=2)
    if shape_of_ratings(values) != shape_of(pattern):
        raise ShapeError(f"observed must have the shape of matrix, {shape_of_ratings(values)}; got {pattern.shape}.")
    cells = np.asarray(values[pair_rows(pattern), pattern.indices], dtype=np.float64).reshape(-1)
    return sparse.csr_array((cells, pattern.indices, pattern.indptr), shape=pattern.shape), pattern


def _as_pattern(observed: Any) -> sparse.csr_array:
    """Ones where observed, with something in every row."""
    if sparse.issparse(observed) and observed.ndim == 2:
        pattern = sparse.csr_array(observed, copy=True)
        pattern.sum_duplicates()
        if pattern.dtype.kind == "b":
            pattern.eliminate_zeros()
    else:
        mask = np.asarray(observed)
        if mask.ndim != 2 or mask.dtype.kind != "b":
            raise DataTypeError(
                f"observed must be a boolean mask with 2 axes or SciPy sparse; got {mask.dtype}, {mask.ndim} axes. "
                "Pass ~np.isnan(matrix) where NaN stands for missing."
            )
        pattern = sparse.csr_array(mask)
    sizes = np.diff(pattern.indptr)
    if len(sizes) and sizes.min() == 0:
        raise EligibilityError(f"observed has nothing to choose from in row {int(np.argmin(sizes))}. Leave it out.")
    return sparse.csr_array((np.ones(pattern.nnz), pattern.indices, pattern.indptr), shape=pattern.shape)


def as_sparse(name: str, value: Any) -> sparse.csr_array:
    """A SciPy sparse `value` as a CSR matrix of its own: finite, columns sorted, none twice, stored zeros kept."""
    if not sparse.issparse(value) or value.ndim != 2 or value.dtype.kind not in "biuf":
        raise DataTypeError(f"{name} must be a SciPy sparse matrix of real numbers with 2 axes.")
    table = sparse.csr_array(value, dtype=np.float64, copy=True)
    table.sum_duplicates()
    check_cells(name, table, np.isfinite(table.data), NonFiniteError, "must be finite", "Leave such cells out.")
    return table


def check_cells(
    name: str, table: sparse.csr_array, fine: Bool[Array, " p"], error: type[InputError], must: str, way_out: str
) -> None:
    """Raise `error` naming the row of the first stored cell that is not fine."""
    if not fine.all():
        cell = int(np.argmin(fine))
        raise error(f"{name} {must}; row {pair_rows(table)[cell]} holds {table.data[cell]}. {way_out}")


def shape_of_ratings(matrix: Array | sparse.csr_array) -> tuple[int, int]:
    """(users, actions)."""
    return cast(tuple[int, int], matrix.shape)
