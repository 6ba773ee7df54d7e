"""Policies that were made elsewhere, such as your own recommender: they read what they choose from a table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.arrow import compute, pa
from manyarms._base.checks import Array, as_floats, as_text, check_rows
from manyarms._base.row_numbers import row_name
from manyarms.core import FeatureMap, FeatureMass, Policy, PolicyWithOwnFeatures
from manyarms.core.action_numbering import ActionNumbering
from manyarms.core.arrow_columns import column_of
from manyarms.errors import DataTypeError, InputError, NonFiniteError, RangeError
from manyarms.logs.sources import as_source

LEAVE_OUT = "Add it to the catalog, or leave such rows out."


class ChoiceMap(FeatureMap):
    """A map from the columns of a table to what a given policy chooses in each row, as plain numbers.

    It takes the place of the feature map of a policy, so that whatever reads logs for several policies reads these too.

    Args:
        columns: The columns that it reads.
        width: How many numbers it makes of a row.
    """

    is_context = False

    def __init__(self, columns: Sequence[str], width: int = 1):
        self.features, self.intercept = (), False
        self._columns, self._width = tuple(columns), width

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads, in order."""
        return self._columns

    @property
    def categories(self) -> tuple[str, ...]:
        """The columns of ids and keys: CSV files are read as they are written there."""
        return self._columns

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its numbers."""
        return tuple(f"choice {place}" for place in range(self._width))

    @abstractmethod
    def __call__(self, table: pa.Table | pa.RecordBatch) -> Float[Array, "n k"]:
        """The choices in every row; an error names the column and the row."""

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


class GivenPolicy(Policy):
    """A policy that was made elsewhere. Its contexts are tables, from which it reads what it chooses.

    It learned nothing here, so it may be evaluated on any rounds that it was not trained on elsewhere.
    """

    features: ChoiceMap  # pyright: ignore[reportIncompatibleVariableOverride]

    def _number_by(self, numbering: ActionNumbering) -> None:
        self.n_actions, self.catalog = numbering.n_actions, numbering.catalog

    def profile(
        self, contexts: Any, means: Float[Array, "K d"] | None, *, eligible: Any = None, weights: Any = None
    ) -> tuple[FeatureMass, Float[Array, " n"]]:
        # What it reads are choices, not features: without a model, the only feature is a constant.
        choices = self._check_contexts(contexts)
        bound = PolicyWithOwnFeatures(self, choices)
        return bound.profile(np.ones((len(choices), 1)), means, eligible=eligible, weights=weights)


class PositionWeights:
    """The share of each position of a list of picks, best first; None where there is one pick per row."""

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
    """Check position weights; None for none."""
    return value if value is None or isinstance(value, PositionWeights) else PositionWeights(value)


def read_table(table: Any, columns: Sequence[str], labels: Sequence[str]) -> pa.Table:
    """Some columns of a table or of a file, without gaps; ids in `labels` are read as they are written."""
    if callable(table) and not hasattr(table, "columns"):
        raise DataTypeError("must be a table or a file; got a function.", argument="table")
    source = as_source(table)
    absent = [name for name in columns if name not in source.columns]
    if absent:
        has = ", ".join(map(str, source.columns))
        raise InputError(f"has no column {absent[0]!r}; its columns are {has}.", argument="the table of the policy")
    source.need(columns)
    batches = list(source.with_labels(labels).batches(columns, 1 << 16))
    if not sum(batch.num_rows for batch in batches):
        raise InputError("has no rows.", argument="the table of the policy")
    content = pa.Table.from_batches(batches)
    for name in columns:
        column_of(content, name)
    return content


def single_picks(name: str, column: pa.ChunkedArray, numbering: ActionNumbering) -> Int[Array, " n"]:
    """The action number of each row of a column of ids."""
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
        raise numbering.unknown(name, column, numbered, LEAVE_OUT + lists, LEAVE_OUT + flag)
    return numbered.actions


def listed_picks(
    name: str, column: pa.ChunkedArray, numbering: ActionNumbering, k: int, separator: str
) -> Int[Array, "n k"]:
    """The first k action numbers of each row of a column of lists, or of texts such as a|b; -1 pads shorter rows."""
    call: Any = compute
    if not _is_list(column.type):
        texts = column.cast(pa.string())
        column = call.split_pattern(texts, pattern=as_text("separator", separator))
    lengths = call.list_value_length(column).to_numpy()
    if len(lengths) and lengths.min() == 0:
        raise NonFiniteError(f"column {name} has an empty list in {row_name(int(np.argmin(lengths)))}.", "Fill it in.")
    rows = np.repeat(np.arange(len(lengths)), lengths)
    places = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    flat = call.list_flatten(column)
    flat = flat if isinstance(flat, pa.ChunkedArray) else pa.chunked_array([flat])
    if pa.types.is_string(flat.type):
        flat = call.utf8_trim_whitespace(flat)
    if flat.null_count:
        row = rows[flat.is_null().to_pylist().index(True)]
        raise NonFiniteError(f"column {name} has a gap in the list of {row_name(row)}.", "Leave the gap out.")
    numbered = numbering.of_column(name, flat)
    if not numbered.known.all():
        raise numbering.unknown(name, flat, numbered, LEAVE_OUT, rows=rows)
    out = np.full((len(lengths), k), -1, dtype=np.int64)
    inside = places < k
    out[rows[inside], places[inside]] = numbered.actions[inside]
    return out


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
