"""Policies that were made elsewhere, such as your own recommender: they read what they choose from a table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from manyarms._base.arrow import pa
from manyarms._base.checks import Array
from manyarms.core import FeatureMap, FeatureMass, Policy, PolicyWithOwnFeatures
from manyarms.core.action_numbering import ActionNumbering


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

    def write(self, table: pa.Table | pa.RecordBatch, out: Float[Array, "n k"]) -> Float[Array, "n k"]:
        out[...] = self(table)
        return out

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
