"""Policies given by their probabilities."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array, as_floats, as_rows, as_text, check_rows
from manyarms._base.row_numbers import row_name, row_of
from manyarms.core import Choices, Policy
from manyarms.core.action_numbering import as_numbering
from manyarms.core.arrow_columns import column_of, numbers_of
from manyarms.errors import DataTypeError, InputError, PropensityError, ShapeError
from manyarms.linalg.sparse_matrices import shape_of
from manyarms.model_file.part_checks import floats, once
from manyarms.policies.picks import column_of_picks, read_picks, rows_of_picks, single_picks, table_name

SUM_ERROR = 1e-6
"""How far the sum of probabilities may be from one."""


class TablePolicy(Policy):
    """A policy given as a table of probabilities, wherever they come from.

    Args:
        probabilities: (n, K), one row per context, dense or SciPy sparse: the policy is then tied to these n rows. Or
            (K,), one distribution for every context.

    Raises:
        PropensityError: When a probability is negative or a row does not sum to 1.
    """

    saved_as = "table"
    saved_fields = ("probabilities",)
    saved_checks: ClassVar = {"probabilities": floats(1, repeated=True)}

    def __init__(self, probabilities: Any):
        if sparse.issparse(probabilities):
            if probabilities.ndim != 2 or probabilities.dtype.kind not in "biuf":
                raise DataTypeError(
                    f"must be real with 2 axes where they are sparse; got {probabilities.dtype}, {probabilities.ndim}.",
                    argument="probabilities",
                )
            table = sparse.csr_array(probabilities, dtype=np.float64, copy=True)
            table.sum_duplicates()
            # A stored zero is not a choice: sampling must not land on it for a rounding error in the sum of its row.
            table.eliminate_zeros()
            # The smallest and the largest of each row stand for its entries, so that an error names the row.
            lowest, highest = (
                np.asarray(part.todense()).reshape(-1) for part in (table.min(axis=1), table.max(axis=1))
            )
            values = as_floats("probabilities", np.column_stack([lowest, highest]), ndim=2)
            totals = np.asarray(table.sum(axis=1)).reshape(-1)
        else:
            table = as_floats("probabilities", probabilities, ndim=(1, 2))
            values, totals = table, np.atleast_1d(table.sum(axis=-1))
        shape = table.shape if isinstance(table, np.ndarray) else shape_of(table)
        if shape[-1] == 0:
            raise ShapeError("must have at least one action.", argument="probabilities")
        negative = "must not be negative", "Clip and renormalise."
        check_rows("probabilities", values, lambda p: p >= 0, PropensityError, *negative)
        uneven = "must be 1", "Divide each row by its sum."
        check_rows("the sum of probabilities", totals, lambda s: np.abs(s - 1.0) <= SUM_ERROR, PropensityError, *uneven)
        self._table = table
        self.n_actions = int(shape[-1])
        self.n_rows = None if len(shape) == 1 else int(shape[0])
        if isinstance(table, np.ndarray) and table.ndim == 2:
            self.rows_per_block = max(1, (1 << 21) // self.n_actions)

    @classmethod
    def from_shares(cls, table: Any, actions: Any, *, action: str | None = None, share: str = "share") -> TablePolicy:
        """The policy that gives each action a fixed share of all rounds, as a table of items and shares says.

        Args:
            table: A table of pandas, Polars or Arrow, or a file: one row per action. Those not listed have share 0.
            actions: The numbering of the actions: the logs, a `Catalog`, a posterior, or the number of actions.
            action: The column of ids; None for the logs' column of actions, `action`, or the only column left.
            share: The column of shares, which sum to 1.
        """
        numbering = as_numbering(actions)
        with rows_of_picks(table):
            action = column_of_picks(table, action, [as_text("share", share)], numbering)
            content = read_picks(table, [action, share], [action])
            holder = table_name(table)
            numbers = single_picks(action, column_of(content, action), numbering, holder)
            shares = numbers_of(share, column_of(content, share))
            order = np.argsort(numbers, kind="stable")
            twice = np.flatnonzero(np.diff(numbers[order]) == 0)
            if len(twice):
                first, second = (int(order[twice[0] + step]) for step in (0, 1))
                raise InputError(
                    f"{row_of(second, holder)} names the same {action} as {row_name(first)}.", "Add their shares up."
                )
            check_rows(f"column {share}", shares, lambda p: p >= 0, PropensityError, "must not be negative", "Clip it.")
            total = float(shares.sum())
            if abs(total - 1.0) > SUM_ERROR:
                problem = f"sum to {total:.6g}, not to 1."
                raise PropensityError(problem, "Divide each by their sum.", argument=f"the shares in column {share}")
        return cls(np.bincount(numbers, weights=shares, minlength=numbering.n_actions))

    def saved(self) -> dict[str, Any]:
        if self.n_rows is not None:
            raise DataTypeError(
                f"a TablePolicy of {self.n_rows} rows cannot be saved: it is tied to their contexts.",
                "Save the probabilities with these, or a (K,) table, which applies to every context.",
            )
        return {"probabilities": self._table}

    @classmethod
    def from_saved(cls, parts: dict[str, Any]) -> TablePolicy:
        out = object.__new__(cls)
        out._table, out.n_actions, out.n_rows = parts["probabilities"], len(parts["probabilities"]), None
        return out

    def consistent(self) -> bool:
        """True if the probabilities are those of some action, not negative, and sum to one."""
        stored = once(np.asarray(self._table))
        total = stored.sum() * (self.n_actions / max(len(stored), 1))
        return bool(self.n_actions > 0 and (stored >= 0).all() and abs(total - 1.0) <= SUM_ERROR)

    def take(self, rows: slice | Int[Array, " m"]) -> TablePolicy:
        if self.n_rows is None:
            return self
        rows = as_rows(rows, self.n_rows)
        part = object.__new__(TablePolicy)
        part._table, part.n_actions, part.rows_per_block = self._table[rows], self.n_actions, self.rows_per_block
        part.n_rows = len(np.arange(self.n_rows)[rows])
        return part

    def choices(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None) -> Choices:
        if self._table.ndim == 1:
            return Choices.of_shared(np.asarray(self._table), len(contexts), eligible)
        return Choices.of_table(self._table, eligible)
