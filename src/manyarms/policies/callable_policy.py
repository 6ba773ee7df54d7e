"""The policy that any Python function makes: it gets a table and returns picks or probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import sparse

from manyarms._base.arrow import pa
from manyarms._base.checks import Array, as_flag, as_matrix, as_names, as_text, check_callable
from manyarms._base.row_numbers import row_name
from manyarms.core import Choices
from manyarms.core.action_numbering import ActionNumbering, as_numbering
from manyarms.errors import DataTypeError, NonFiniteError, ShapeError
from manyarms.policies.given_policy import ChoiceMap, GivenPolicy
from manyarms.policies.picks import single_picks
from manyarms.policies.table import TablePolicy


class CallablePolicy(GivenPolicy):
    """Chooses what a function of a table returns, such as the `predict` of your own model.

    The function gets the table as it was given, a frame of pandas or Polars or an Arrow table; rows of files come as
    Arrow tables. It may be called with some of the rows at a time, so it must treat each row by itself. A function
    cannot be saved.

    Args:
        function: From a table of n rows to n ids; or to (n, K) probabilities in the order of the catalog.
        actions: The numbering of the actions: the logs, a `Catalog`, a posterior, or the number of actions.
        columns: The columns that the function reads; needed where the logs are files.
        probabilities: True if the function returns probabilities.

    Examples:
        >>> import pyarrow as pa
        >>> import manyarms as ma
        >>> policy = ma.CallablePolicy(lambda table: ["tea"] * len(table), ma.Catalog(["mug", "tea"]))
        >>> policy.actions(pa.table({"age": [31, 58]}))
        array([1, 1])
    """

    not_saved = "It is Python code. Write its picks to a table and pass that to ma.LookupPolicy, which can be saved."

    def __init__(
        self,
        function: Callable[[Any], Any],
        actions: Any,
        *,
        columns: str | Iterable[str] = (),
        probabilities: bool = False,
    ):
        check_callable("function", function)
        self._number_by(as_numbering(actions))
        self.gives_probabilities = as_flag("probabilities", probabilities)
        names = [as_text("columns", name) for name in as_names("columns", columns)]
        self.features = self._function = _FunctionMap(function, names, as_numbering(actions), self.gives_probabilities)

    def __repr__(self) -> str:
        return f"CallablePolicy({self._function.name}, {self.n_actions:,} actions)"

    def choices(self, contexts: Float[Array, "n k"], eligible: sparse.csr_array | None) -> Choices:
        if self.gives_probabilities:
            return Choices.of_table(np.asarray(contexts), eligible)
        chosen = Choices.of_actions(contexts[:, 0].astype(np.int64), self.n_actions)
        return chosen if eligible is None or chosen.named is None else Choices.of_table(chosen.named, eligible)


class _FunctionMap(ChoiceMap):
    """The numbers of the actions that a function chooses, or their probabilities."""

    reads_frames = True

    def __init__(
        self, function: Callable[[Any], Any], columns: list[str], numbering: ActionNumbering, probabilities: bool
    ):
        super().__init__(columns, numbering.n_actions if probabilities else 1)
        self._function, self._numbering, self._probabilities = function, numbering, probabilities
        self.name = getattr(function, "__name__", type(function).__name__)

    @property
    def categories(self) -> tuple[str, ...]:
        """No column: a function gets numbers as numbers."""
        return ()

    def __call__(self, table: pa.Table | pa.RecordBatch) -> Float[Array, "n k"]:
        return self.read(table, table if isinstance(table, pa.Table) else pa.Table.from_batches([table]))

    def read(self, frame: Any, table: pa.Table) -> Float[Array, "n k"]:
        result = self._function(frame)
        if self._probabilities:
            matrix = as_matrix(f"the result of {self.name}", result, columns=self._numbering.n_actions)
            self._check_length(len(matrix), table.num_rows)
            # The checks of a table of probabilities: none is negative, and rows sum to one.
            TablePolicy(matrix)
            return matrix
        column = self._as_column(result)
        self._check_length(len(column), table.num_rows)
        name = f"returned by {self.name}"
        column = pa.table({name: column}).column(name)
        if column.null_count:
            row = row_name(column.is_null().to_pylist().index(True))
            raise NonFiniteError(f"{self.name} returned no id for {row}.", "Return an id for every row.")
        return single_picks(name, column, self._numbering)[:, None].astype(np.float64)

    def _as_column(self, result: Any) -> Any:
        """The result of the function as an Arrow column of ids."""
        if isinstance(result, pa.Array | pa.ChunkedArray):
            return result
        try:
            values = (
                result.to_arrow() if hasattr(result, "to_arrow") else pa.array(np.asarray(result), from_pandas=True)
            )
        except (pa.ArrowException, ValueError, TypeError) as problem:
            raise DataTypeError(
                f"must be one id per row; {self.name} returned a {type(result).__name__}.",
                "Return a list, an array or a column; pass probabilities=True for an (n, K) array.",
                argument="the result of the function",
            ) from problem
        return values

    def _check_length(self, length: int, n_rows: int) -> None:
        if length != n_rows:
            raise ShapeError(
                f"must have a row for each of the {n_rows} rows it was given; {self.name} returned {length}.",
                argument="the result of the function",
            )
