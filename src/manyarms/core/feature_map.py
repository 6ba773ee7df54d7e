"""The feature map from the columns of a table to the features φ(x): plain data, applied alike everywhere."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from manyarms._base.arrow import pa, table_of
from manyarms._base.checks import Array, all_finite, as_flag, as_instance, as_matrix
from manyarms._base.row_numbers import row_name
from manyarms.core.arrow_columns import Level, codes_of, column_of, lists_of, numbers_of, unchecked_numbers_of
from manyarms.core.feature_expansion import FeatureExpansion
from manyarms.core.labels import other_type
from manyarms.errors import DataTypeError, InputError, NonFiniteError, ShapeError
from manyarms.linalg.indexing import chunks
from manyarms.model_file.arrow_file import UnknownPart, WrongPart
from manyarms.model_file.part_checks import check_saved_names, is_count, is_finite, is_flag, is_text
from manyarms.model_file.save import Saved

OTHER = "(other)"
"""The feature of all levels of a category that do not have one of their own."""


@dataclass(frozen=True)
class Feature(ABC):
    """One column of a table, given by name, as one or more features. Plain data: saved as JSON, never as code."""

    kind: ClassVar[str]
    column: str

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The names of its features."""

    @abstractmethod
    def read(self, column: pa.ChunkedArray) -> Array:
        """The raw values of the column, one per row. None is missing, but numbers may be infinite or NaN."""

    @abstractmethod
    def fill(self, out: Float[Array, "n k"], raw: Array) -> None:
        """Write the features of some rows, given their raw values from `read`."""


@dataclass(frozen=True)
class Numeric(Feature):
    """(x - mean) / std."""

    kind = "numeric"
    mean: float = 0.0
    std: float = 1.0

    @property
    def names(self) -> tuple[str, ...]:
        return (self.column,)

    def read(self, column: pa.ChunkedArray) -> Array:
        return unchecked_numbers_of(self.column, column)

    def fill(self, out: Float[Array, "n k"], raw: Array) -> None:
        # Numbers that lie apart are written once, since that takes longer than the arithmetic.
        centred = raw if self.mean == 0.0 else raw - self.mean
        out[:, 0] = centred if self.std == 1.0 else centred / self.std


@dataclass(frozen=True)
class Categorical(Feature):
    """One-hot: a one at the row's level, zeros elsewhere; levels that are not listed share the last, "(other)"."""

    kind = "categorical"
    levels: tuple[Level, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return (*(f"{self.column}={level}" for level in self.levels), f"{self.column}={OTHER}")

    def read(self, column: pa.ChunkedArray) -> Array:
        places: dict[Any, int] = {level: place for place, level in enumerate(self.levels)}
        codes, distinct = codes_of(column)
        numbers = [places.get(value, -1) for value in distinct]
        for place, value in enumerate(distinct):
            if numbers[place] < 0:
                # Integers and texts match where they are written alike, as the ids of a catalog do.
                numbers[place] = places.get(other_type(value), len(places))
        return np.array(numbers, dtype=np.int64)[codes]

    def fill(self, out: Float[Array, "n k"], raw: Array) -> None:
        out[...] = 0.0
        out[np.arange(len(raw)), raw] = 1.0


@dataclass(frozen=True)
class Embedding(Feature):
    """A list of `size` numbers per row, used as they are."""

    kind = "embedding"
    size: int

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.column}[{place}]" for place in range(self.size))

    def read(self, column: pa.ChunkedArray) -> Array:
        return lists_of(self.column, column, self.size)

    def fill(self, out: Float[Array, "n k"], raw: Array) -> None:
        out[...] = raw


FEATURE_KINDS: dict[str, type[Numeric | Categorical | Embedding]] = {
    kind.kind: kind for kind in (Numeric, Categorical, Embedding)
}


MAX_FEATURES = 1 << 16
"""The largest number of features of a map in a model file: a list of any size takes a few bytes there."""


def _saved_dim(features: list[dict[str, Any]]) -> float:
    """The number of features of a map that a file describes; infinity if a description is wrong."""
    sizes = [0.0]
    for feature in features:
        numeric = (
            is_finite(feature.get("mean", 0.0)) and is_finite(feature.get("std", 1.0)) and feature.get("std", 1.0) > 0
        )
        levels, size = feature.get("levels", []), feature.get("size", 0)
        plain = isinstance(levels, list) and all(isinstance(level, str | int | float | None) for level in levels)
        good = is_text(feature["column"]) and numeric and plain and is_count(size)
        of_kind = {"numeric": 1, "categorical": len(levels) + 1, "embedding": size}[feature["kind"]] if good else np.inf
        sizes.append(of_kind)
    return sum(sizes)


class FeatureMap(Saved):
    """φ maps the columns of a table to R^d: numbers are standardised, categories one-hot, lists kept as they are.

    The same map is applied when fitting, evaluating and scoring, and it is saved with the model.

    Args:
        features: The features of each column, in order.
        intercept: If true, a column of ones comes first.
        expansion: Further features, computed from all of these and appended to them.

    Examples:
        >>> import pyarrow as pa
        >>> from manyarms.core.feature_map import Categorical, FeatureMap, Numeric
        >>> table = pa.table({"age": [20.0, 40.0], "city": ["Riga", "Oslo"]})
        >>> phi = FeatureMap([Numeric("age", mean=30.0, std=10.0), Categorical("city", ("Oslo", "Riga"))])
        >>> phi.names
        ('(intercept)', 'age', 'city=Oslo', 'city=Riga', 'city=(other)')
        >>> phi(table)
        array([[ 1., -1.,  0.,  1.,  0.],
               [ 1.,  1.,  1.,  0.,  0.]])
    """

    saved_as = "feature map"
    saved_fields = ("json",)
    saved_checks: ClassVar = {"json": is_text}

    expansion: FeatureExpansion | None = None
    is_context: ClassVar[bool] = True
    """False where it reads choices that were made elsewhere: an array of contexts cannot stand for them."""
    reads_frames: ClassVar[bool] = False
    """True where it needs the table of the user's own library."""

    def __init__(
        self, features: Sequence[Feature], *, intercept: bool = True, expansion: FeatureExpansion | None = None
    ):
        if not isinstance(features, list | tuple):
            raise DataTypeError(f"must be a list of features; got a {type(features).__name__}.", argument="features")
        self.features = tuple(as_instance("features", feature, Feature, "features of columns") for feature in features)
        self.expansion = expansion
        self.intercept = as_flag("intercept", intercept)
        repeated = [name for name, count in Counter(self.columns).items() if count > 1]
        if repeated:
            raise InputError(f"must name each column once; {repeated[0]!r} comes twice.", argument="context")
        if self.dim == 0:
            raise ShapeError("a feature map needs at least one column or an intercept.")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads, in order."""
        return tuple(feature.column for feature in self.features)

    @property
    def categories(self) -> tuple[str, ...]:
        """The columns whose texts or integers are the levels of a category."""
        kinds = (feature for feature in self.features if isinstance(feature, Categorical))
        return tuple(kind.column for kind in kinds if not any(isinstance(level, bool) for level in kind.levels))

    @property
    def names(self) -> tuple[str, ...]:
        """(d,) the name of each feature."""
        first = ("(intercept)",) if self.intercept else ()
        more = () if self.expansion is None else self.expansion.suffixes
        return first + tuple(name for feature in self.features for name in feature.names) + more

    @property
    def dim(self) -> int:
        """d."""
        return len(self.names)

    def __call__(self, table: pa.Table | pa.RecordBatch) -> Float[Array, "n d"]:
        """φ of every row.

        Raises:
            InputError: If a value is missing or of the wrong type; the message names its column and row.
        """
        return self.write(table, np.empty((table.num_rows, self.dim)))

    def write(self, table: pa.Table | pa.RecordBatch, out: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """φ of every row, written to memory that is there already: new memory costs more than the features."""
        raw, finite = [feature.read(column_of(table, feature.column)) for feature in self.features], True
        starts = np.cumsum([int(self.intercept), *(len(feature.names) for feature in self.features)])
        # Columns become rows: in chunks, so that both stay in the cache.
        for rows in chunks(len(out), 1 << 12):
            if self.intercept:
                out[rows, 0] = 1.0
            # A feature that overflows is refused below, by name.
            with np.errstate(over="ignore", invalid="ignore"):
                for feature, part, start, stop in zip(self.features, raw, starts, starts[1:], strict=False):
                    feature.fill(out[rows, start:stop], part[rows])
                if self.expansion is not None:
                    out[rows, starts[-1] :] = self.expansion(out[rows, : starts[-1]])
            finite = finite and all_finite(out[rows])
        if not finite:
            self._refuse(table, out)
        return out

    def read(self, frame: Any, table: pa.Table) -> Float[Array, "n d"]:
        """φ of every row of a table of any library, which `table` is as an Arrow table."""
        return self(table)

    def _refuse(self, table: pa.Table | pa.RecordBatch, out: Float[Array, "n d"]) -> None:
        """Raise an error that names the column and row of a feature that is not finite."""
        for feature in self.features:
            if isinstance(feature, Numeric):
                numbers_of(feature.column, column_of(table, feature.column))
        row, place = np.argwhere(~np.isfinite(out))[0]
        raise NonFiniteError(f"feature {self.names[place]} overflows in {row_name(row)}.", "Rescale its column.")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FeatureMap) and self.as_json() == other.as_json()

    def __hash__(self) -> int:
        return hash((self.features, self.intercept, self.expansion))

    def __repr__(self) -> str:
        return f"FeatureMap({', '.join(self.columns)}: d={self.dim})"

    def as_json(self) -> dict[str, Any]:
        """The map as plain values."""
        features = [{"kind": feature.kind, **asdict(feature)} for feature in self.features]
        more = {} if self.expansion is None else {"expansion": asdict(self.expansion)}
        return {"intercept": self.intercept, "features": features, **more}

    def saved(self) -> dict[str, Any]:
        # Numbers and levels may have NumPy types.
        return {"json": json.dumps(self.as_json(), default=lambda value: value.item())}

    @classmethod
    def from_saved(cls, parts: dict[str, Any]) -> FeatureMap:
        data = json.loads(parts["json"])
        for feature in data["features"]:
            if feature["kind"] not in FEATURE_KINDS:
                raise UnknownPart(f"a {feature['kind']!r:.80} feature")
            known = (field.name for field in fields(FEATURE_KINDS[feature["kind"]]))
            check_saved_names(feature, ("kind", *known), f"a {feature['kind']!r} feature")
        check_saved_names(data, ("intercept", "features", "expansion"), "a feature map")
        if "expansion" in data:
            known = tuple(field.name for field in fields(FeatureExpansion))
            check_saved_names(data["expansion"], known, "an expansion of features")
        if not (is_flag(data["intercept"]) and _saved_dim(data["features"]) <= MAX_FEATURES):
            raise WrongPart("a feature map is not what it should be")
        out = cls.from_json(data)
        if out.expansion is not None and not out.expansion.fits(int(out.intercept + _saved_dim(data["features"]))):
            raise WrongPart("an expansion of features is not what it should be")
        return out

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> FeatureMap:
        """The map that `as_json` described."""
        try:
            features = list[Feature]()
            for part in data["features"]:
                values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in part.items()}
                features.append(FEATURE_KINDS[values.pop("kind")](**values))
            expansion = FeatureExpansion.from_json(data["expansion"]) if "expansion" in data else None
            return cls(features, intercept=bool(data["intercept"]), expansion=expansion)
        except (KeyError, TypeError, AttributeError) as damage:
            raise InputError(f"this is not a feature map: {damage!r} is wrong or missing.") from damage


def levels_of(features: FeatureMap | None, contexts: Float[Array, "n d"], column: str) -> Array | None:
    """The level of a categorical column of a feature map in each row of φ(x); None if it has no such column."""
    start = 0 if features is None else int(features.intercept)
    for feature in () if features is None else features.features:
        size = len(feature.names)
        if feature.column == column and isinstance(feature, Categorical):
            levels = np.array([*feature.levels, OTHER], dtype=object)
            return levels[contexts[:, start : start + size].argmax(axis=1)]
        start += size
    return None


def as_contexts(
    value: Any, features: FeatureMap | None, *, columns: int | None = None, rows: int | None = None
) -> Float[Array, "n d"]:
    """φ(x) of every row: an array is taken as it is, a table is read through the feature map.

    Args:
        value: (n, d) features, or a table of pandas, Polars or Arrow with the columns that the map reads.
        features: The map; without one, tables are refused.
        columns: d, where it is known.
        rows: n, where it is known.

    Raises:
        InputError: If a column is missing or a value is wrong; the message names the column and the row.
    """
    if hasattr(value, "batches"):
        part = ".contexts" if "contexts" in vars(value) else ".collect().contexts, or those of a sample"
        problem = f"must be rows in memory here; got a {type(value).__name__}."
        raise DataTypeError(problem, f"Pass its {part}.", argument="contexts")
    if isinstance(value, _ReadChoices):
        return value
    table = table_of(value)
    if table is not None and features is None:
        raise InputError(
            "is a table, and there is no feature map to read it with: the fit used arrays.",
            "Pass the same features as an array, or fit on logs from ma.read_logs.",
            argument="contexts",
        )
    if features is not None and not features.is_context:
        return _read_choices(value, table, features)
    matrix = value if table is None or features is None else features.read(value, table)
    return as_matrix("contexts", matrix, columns=columns, rows=rows)


class _ReadChoices(np.ndarray):
    """Choices made elsewhere, as a policy has read them from a table: one row per context."""


def _read_choices(value: Any, table: pa.Table | None, features: FeatureMap) -> _ReadChoices:
    if table is None:
        columns = f"the column {', '.join(features.columns)}" if features.columns else "the rows"
        raise InputError(
            f"must be a table here: the policy reads {columns} itself.",
            "Pass the table, or logs that have kept it, as ma.read_logs does for a table.",
            argument="contexts",
        )
    return as_matrix("the choices", features.read(value, table), rows=table.num_rows).view(_ReadChoices)


class StackedMap(FeatureMap):
    """Feature maps side by side, so that logs are read once for models with maps of their own.

    Args:
        maps: The maps; those that are equal stand there once.
    """

    def __init__(self, maps: Sequence[FeatureMap]):
        self.maps = [part for i, part in enumerate(maps) if part not in maps[:i]]
        self.features, self.intercept = (), False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that any of the maps reads."""
        return tuple(dict.fromkeys(name for part in self.maps for name in part.columns))

    @property
    def categories(self) -> tuple[str, ...]:
        """The columns that any of the maps reads as a category."""
        return tuple(dict.fromkeys(name for part in self.maps for name in part.categories))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all features, map by map."""
        return tuple(name for part in self.maps for name in part.names)

    def write(self, table: pa.Table | pa.RecordBatch, out: Float[Array, "n d"]) -> Float[Array, "n d"]:
        start = 0
        for part in self.maps:
            part.write(table, out[:, start : start + part.dim])
            start += part.dim
        return out

    def part(self, contexts: Float[Array, "n d"], features: FeatureMap) -> Float[Array, "n k"]:
        """The columns of one of the maps."""
        place = self.maps.index(features)
        start = sum(part.dim for part in self.maps[:place])
        return contexts[:, start : start + features.dim]
