"""The policy that follows a column of the table, such as the picks of your own recommender."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from scipy import sparse

from manyarms._base.arrow import pa
from manyarms._base.checks import Array, as_text
from manyarms.core import Catalog, Choices
from manyarms.core.action_numbering import ActionNumbering, as_numbering
from manyarms.core.arrow_columns import column_of
from manyarms.model_file.part_checks import floats, instance_of, is_size, is_text, maybe
from manyarms.policies.given_policy import ChoiceMap, GivenPolicy
from manyarms.policies.picks import PositionWeights, as_position_weights, listed_picks, single_picks


class ColumnPolicy(GivenPolicy):
    """Chooses what a column of the table says: one id per row, or a list of ids, whose positions have weights.

    Args:
        column: The column of picks: ids; or lists of ids, or texts such as a|b|c, where `position_weights` are given.
        actions: The numbering of the actions: the logs, a `Catalog`, a posterior, or the number of actions.
        position_weights: How much each position of a list counts, best first; a shorter list shares them among its own.
        separator: The character between the ids in a text.

    Examples:
        >>> import pyarrow as pa
        >>> import manyarms as ma
        >>> table = pa.table({"age": [31, 58], "recommended": ["mug", "tea"]})
        >>> ma.ColumnPolicy("recommended", ma.Catalog(["tea", "mug"])).actions(table)
        array([1, 0])
    """

    saved_as = "column"
    saved_fields = ("column", "n_actions", "catalog", "position_weights", "separator")
    saved_checks: ClassVar = {
        "column": is_text,
        "n_actions": is_size,
        "catalog": maybe(instance_of(Catalog)),
        "position_weights": maybe(floats(1)),
        "separator": is_text,
    }

    def __init__(self, column: str, actions: Any, *, position_weights: Any = None, separator: str = "|"):
        self.column, self.separator = as_text("column", column), as_text("separator", separator)
        self._number_by(as_numbering(actions))
        self._positions = as_position_weights(position_weights)
        self.features = _ColumnMap(self.column, as_numbering(actions), self._positions, self.separator)

    def saved(self) -> dict[str, Any]:
        weights = None if self._positions is None else self._positions.weights
        return {**{name: getattr(self, name) for name in ("column", "n_actions", "catalog", "separator")},
                "position_weights": weights}  # fmt: skip

    @classmethod
    def from_saved(cls, parts: dict[str, Any]) -> ColumnPolicy:
        actions = ActionNumbering(parts["n_actions"], parts["catalog"])
        weights = parts["position_weights"]
        return cls(parts["column"], actions, position_weights=weights, separator=parts["separator"])

    def consistent(self) -> bool:
        """True if the catalog has as many actions as the policy."""
        return self.catalog is None or self.catalog.n_actions == self.n_actions

    def __repr__(self) -> str:
        return f"ColumnPolicy({self.column!r}, {self.n_actions:,} actions)"

    def choices(self, contexts: Float[Array, "n k"], eligible: sparse.csr_array | None) -> Choices:
        picks = contexts.astype(np.int64)
        if self._positions is not None:
            return Choices.of_table(self._positions.table(picks, self.n_actions), eligible)
        chosen = Choices.of_actions(picks[:, 0], self.n_actions)
        return chosen if eligible is None or chosen.named is None else Choices.of_table(chosen.named, eligible)


class _ColumnMap(ChoiceMap):
    """The numbers of the actions that a column names."""

    def __init__(self, column: str, numbering: ActionNumbering, positions: PositionWeights | None, separator: str):
        super().__init__((column,), 1 if positions is None else len(positions))
        self._numbering, self._positions, self._separator = numbering, positions, separator

    def __call__(self, table: pa.Table | pa.RecordBatch) -> Float[Array, "n k"]:
        name = self.columns[0]
        column = column_of(table, name)
        if self._positions is None:
            return single_picks(name, column, self._numbering)[:, None].astype(np.float64)
        picks = listed_picks(name, column, self._numbering, len(self._positions), self._separator)
        return picks.astype(np.float64)
