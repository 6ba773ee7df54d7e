"""A feature map learned from tables, in one pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import cast

import numpy as np

from manyarms._base.arrow import pa
from manyarms._base.checks import as_count
from manyarms._base.job_options import Expand
from manyarms.core.arrow_columns import Level, codes_of, column_of, lists_of, numbers_of
from manyarms.core.feature_expansion import learn_expansion
from manyarms.core.feature_map import Categorical, Embedding, Feature, FeatureMap, Numeric
from manyarms.core.labels import integer_of
from manyarms.errors import DataTypeError, InputError, ShapeError

SAMPLE = 10_000
"""The number of first rows that an expansion of features is fitted to."""
MAX_DISTINCT = 1_000_000
"""A column with more distinct values than this is an id, not a category."""


def learn_features(
    batches: Iterable[pa.Table | pa.RecordBatch],
    columns: Sequence[str],
    *,
    categorical: Sequence[str] = (),
    written: Collection[str] = (),
    max_levels: int,
    intercept: bool = True,
    expand: Expand | None = None,
) -> FeatureMap:
    """The feature map of some columns: their kinds, means, standard deviations and commonest levels, in one pass.

    Texts and booleans are categories, numbers are numbers unless they are named as categories, lists are embeddings.

    Categories that are `written` in a CSV file come as texts, and become integers where all of them spell one exactly.

    Rows must lack no value. Of the levels of a category, the commonest `max_levels` get a feature of their own; rarer
    ones share "(other)". Numbers get mean 0 and standard deviation 1, and a column of ones comes first as the
    `intercept`. `expand` appends further features of the numbers, fitted to the first SAMPLE rows.
    """
    strangers = [name for name in categorical if name not in columns]
    if strangers:
        problem = f"names {strangers[0]!r}, which is not among the columns {list(columns)}."
        raise InputError(problem, argument="categorical")
    limit, seen = as_count("max_levels", max_levels), dict[str, ColumnSummary]()
    sample, n_sampled = list[pa.Table](), 0
    for batch in batches:
        if expand is not None and n_sampled < SAMPLE:
            part = batch.slice(0, SAMPLE - n_sampled)
            sample.append(pa.Table.from_batches([part]) if isinstance(part, pa.RecordBatch) else part)
            n_sampled += part.num_rows
        for name in columns:
            column = column_of(batch, name)
            if name not in seen:
                seen[name] = summary_of(name, column.type, name in categorical, name in written, limit)
            seen[name].take(column)
    if columns and not seen:
        raise InputError("there are no rows to learn features from.")
    return learned_map([seen[name].feature() for name in columns], intercept, expand, sample)


def learned_map(
    features: Sequence[Feature], intercept: bool, expand: Expand | None, sample: Iterable[pa.Table]
) -> FeatureMap:
    """The feature map that learning ends with: the features learned, and an expansion fitted to a sample of rows."""
    plain = FeatureMap(list(features), intercept=intercept)
    if expand is None:
        return plain
    ends = np.cumsum([int(intercept), *(len(feature.names) for feature in features)]).tolist()
    numbers = [
        place
        for feature, low, high in zip(features, ends, ends[1:], strict=False)
        if not isinstance(feature, Categorical)
        for place in range(low, high)
    ]
    expansion = learn_expansion(expand, np.vstack([plain(part) for part in sample]), numbers)
    return FeatureMap(list(features), intercept=intercept, expansion=expansion)


def summary_of(name: str, kind: pa.DataType, categorical: bool, written: bool, max_levels: int) -> ColumnSummary:
    """The summary that learns the feature of a column of some type, before any of it has been read."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_boolean(kind)
    if texts or (categorical and pa.types.is_integer(kind)):
        return LevelSummary(name, max_levels, written)
    if lists:
        return ListSummary(name)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return NumberSummary(name)
    if pa.types.is_null(kind):
        raise InputError(
            f"column {name} has no values: there are no rows to learn features from, or it is always empty."
        )
    raise DataTypeError(
        f"column {name} has type {kind}, which is not a number, text or list of numbers.",
        "Make numbers of it first, such as the hour of a time.",
    )


class NumberSummary:
    """Learns the feature of a column of numbers: mean and variance, merged batch by batch without cancellation."""

    def __init__(self, name: str):
        self._name, self._count, self._mean, self._square = name, 0, 0.0, 0.0

    def take(self, column: pa.ChunkedArray) -> None:
        """Add the numbers of a batch."""
        x = numbers_of(self._name, column)
        if len(x):
            mean = float(x.mean())
            self.merge(len(x), mean, float(np.square(x - mean).sum()))

    def merge(self, count: int, mean: float, square: float) -> None:
        """Add numbers of which only the count, the mean, and the sum of squares about the mean are known."""
        # As Chan et al. do it: nothing cancels when numbers are far from zero.
        gap, total = mean - self._mean, self._count + count
        self._square += square + gap**2 * self._count * count / total
        self._mean += gap * count / total
        self._count = total

    def feature(self) -> Feature:
        """The standardised column."""
        if self._count == 0:
            return Numeric(self._name)
        spread = float(np.sqrt(self._square / self._count))
        # A constant column says nothing: it becomes zero, rather than rounding errors divided by one another.
        tiny = 1e-12 * max(abs(self._mean), 1.0)
        return Numeric(self._name, self._mean, spread if spread > tiny else 1.0)


class LevelSummary:
    """Learns the feature of a column of categories: the number of rows with each level."""

    def __init__(self, name: str, max_levels: int, written: bool):
        self._name, self._max_levels, self._written = name, max_levels, written
        self._counts = Counter[Level]()

    def take(self, column: pa.ChunkedArray) -> None:
        """Add the levels of a batch."""
        codes, distinct = codes_of(column)
        counts = np.bincount(codes, minlength=len(distinct))
        self.merge(dict(zip(distinct, counts.tolist(), strict=True)))

    def merge(self, counts: Mapping[Level, int]) -> None:
        """Add levels of which only the counts are known."""
        self._counts.update(counts)
        if len(self._counts) > MAX_DISTINCT:
            raise InputError(
                f"column {self._name} has more than {MAX_DISTINCT:,} distinct values: an id is not a feature.",
                "Leave it out.",
            )

    def feature(self) -> Feature:
        """The one-hot column of the commonest levels."""
        # Ties by the text of a level, so that the order of rows does not matter.
        common = sorted(self._counts, key=lambda level: (-self._counts[level], str(level)))[: self._max_levels]
        if self._written and all(integer_of(cast(str, level)) is not None for level in self._counts):
            common = [int(level) for level in common]
        return Categorical(self._name, tuple(sorted(common, key=lambda level: (str(type(level)), level))))


class ListSummary:
    """Learns the feature of a column of lists: their length, which is the same in all rows."""

    def __init__(self, name: str):
        self._name = name
        self._size: int | None = None

    def take(self, column: pa.ChunkedArray) -> None:
        """Check the lists of a batch."""
        if len(column) == 0:
            return
        size = self._size or len(column[0])
        lists_of(self._name, column, size)
        self.merge(size)

    def merge(self, size: int) -> None:
        """Take the length of lists that have been checked elsewhere."""
        self._size = size

    def feature(self) -> Feature:
        """The list as it is."""
        if not self._size:
            raise ShapeError(f"column {self._name} has empty lists; an embedding needs numbers.")
        return Embedding(self._name, self._size)


ColumnSummary = NumberSummary | LevelSummary | ListSummary
