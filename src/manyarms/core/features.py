"""From the columns of a table to the features φ(x): plain data, applied alike everywhere."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float

from manyarms._arrays import Array
from manyarms._saving import Saved
from manyarms.core.columns import Level, codes_of, column_of, lists_of, numbers_of
from manyarms.errors import InputError, ShapeError

if TYPE_CHECKING:
    import pyarrow as pa

OTHER = "(other)"
"""The column of a categorical feature for levels that have none of their own."""


class Feature(ABC):
    """One column of a table, as one or more features. Plain data: it is saved as JSON and never as code.

    Attributes:
        column: The name of the column.
    """

    kind: ClassVar[str]
    column: str

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """What its features are called."""

    @abstractmethod
    def values(self, column: pa.ChunkedArray) -> Float[Array, "n k"]:
        """The features of every row; there are no missing values."""

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """All of it, as plain values."""


@dataclass(frozen=True)
class Numeric(Feature):
    """(x - mean) / std.

    Attributes:
        column: The name of the column.
        mean: Of the rows it was learned on; 0 to leave values where they are.
        std: Of these rows; 1 to leave values as large as they are.
    """

    kind = "numeric"
    column: str
    mean: float = 0.0
    std: float = 1.0

    @property
    def names(self) -> tuple[str, ...]:
        return (self.column,)

    def values(self, column: pa.ChunkedArray) -> Float[Array, "n k"]:
        return ((numbers_of(self.column, column) - self.mean) / self.std)[:, None]

    def as_json(self) -> dict[str, Any]:
        return {"column": self.column, "mean": self.mean, "std": self.std}


@dataclass(frozen=True)
class Categorical(Feature):
    """A one in the place of the row's level, zeros elsewhere; levels without a place share the last, "(other)".

    Attributes:
        column: The name of the column.
        levels: Those with a place of their own.
    """

    kind = "categorical"
    column: str
    levels: tuple[Level, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return (*(f"{self.column}={level}" for level in self.levels), f"{self.column}={OTHER}")

    def values(self, column: pa.ChunkedArray) -> Float[Array, "n k"]:
        places = {level: place for place, level in enumerate(self.levels)}
        codes, distinct = codes_of(column)
        of_distinct = np.array([places.get(value, len(places)) for value in distinct], dtype=np.int64)
        table = np.zeros((len(codes), len(places) + 1))
        table[np.arange(len(codes)), of_distinct[codes]] = 1.0
        return table

    def as_json(self) -> dict[str, Any]:
        return {"column": self.column, "levels": list(self.levels)}


@dataclass(frozen=True)
class Embedding(Feature):
    """A list of numbers a row, all of one length, as they are.

    Attributes:
        column: The name of the column.
        size: How many numbers.
    """

    kind = "embedding"
    column: str
    size: int

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.column}[{place}]" for place in range(self.size))

    def values(self, column: pa.ChunkedArray) -> Float[Array, "n k"]:
        return lists_of(self.column, column, self.size)

    def as_json(self) -> dict[str, Any]:
        return {"column": self.column, "size": self.size}


KINDS: dict[str, Callable[..., Feature]] = {kind.kind: kind for kind in (Numeric, Categorical, Embedding)}


class FeatureMap(Saved):
    """φ: the columns of a table to R^d. Numbers are standardised, categories one-hot, lists of numbers as they are.

    The same map is applied when fitting, evaluating and scoring, and travels with the model.

    Args:
        features: The features of each column, in order.
        intercept: Whether a column of ones comes first.

    Example:
        >>> import pyarrow as pa
        >>> from manyarms.core.features import Categorical, FeatureMap, Numeric
        >>> table = pa.table({"age": [20.0, 40.0], "city": ["Riga", "Oslo"]})
        >>> phi = FeatureMap([Numeric("age", mean=30.0, std=10.0), Categorical("city", ("Oslo", "Riga"))])
        >>> phi.names
        ('(intercept)', 'age', 'city=Oslo', 'city=Riga', 'city=(other)')
        >>> phi(table)
        array([[ 1., -1.,  0.,  1.,  0.],
               [ 1.,  1.,  1.,  0.,  0.]])
    """

    saved_as = "feature map"

    def __init__(self, features: Sequence[Feature], *, intercept: bool = True):
        self.features = tuple(features)
        self.intercept = intercept
        repeated = [name for name, count in Counter(self.columns).items() if count > 1]
        if repeated:
            raise InputError(f"context must name each column once; {repeated[0]!r} comes twice.")
        if self.dim == 0:
            raise ShapeError("a feature map needs at least one column, or an intercept.")

    @property
    def columns(self) -> tuple[str, ...]:
        """What it reads, in order."""
        return tuple(feature.column for feature in self.features)

    @property
    def names(self) -> tuple[str, ...]:
        """(d,) what each feature is called."""
        first = ("(intercept)",) if self.intercept else ()
        return first + tuple(name for feature in self.features for name in feature.names)

    @property
    def dim(self) -> int:
        """d."""
        return len(self.names)

    def __call__(self, table: pa.Table | pa.RecordBatch) -> Float[Array, "n d"]:
        """φ of every row.

        Raises:
            InputError: Naming the column, and the first row that is missing or not of its kind.
        """
        blocks = [np.ones((table.num_rows, 1))] if self.intercept else []
        blocks += [feature.values(column_of(table, feature.column)) for feature in self.features]
        return np.hstack(blocks)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FeatureMap) and self.as_json() == other.as_json()

    def __hash__(self) -> int:
        return hash((self.features, self.intercept))

    def __repr__(self) -> str:
        return f"FeatureMap({', '.join(self.columns)}: d={self.dim})"

    def as_json(self) -> dict[str, Any]:
        """All of it, as plain values."""
        features = [{"kind": feature.kind, **feature.as_json()} for feature in self.features]
        return {"intercept": self.intercept, "features": features}

    def saved(self) -> dict[str, Any]:
        # Numbers and levels of NumPy's types are as good as Python's own.
        return {"json": json.dumps(self.as_json(), default=lambda value: value.item())}

    @classmethod
    def from_saved(cls, parts: dict[str, Any]) -> FeatureMap:
        return cls.from_json(json.loads(parts["json"]))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> FeatureMap:
        """What `as_json` gave."""
        try:
            parts = [dict(feature) for feature in data["features"]]
            features = [
                KINDS[part.pop("kind")](**{key: _plain(value) for key, value in part.items()}) for part in parts
            ]
            return cls(features, intercept=bool(data["intercept"]))
        except (KeyError, TypeError, AttributeError) as damage:
            raise InputError(f"this is no feature map: {damage!r} is wrong or missing.") from damage


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
