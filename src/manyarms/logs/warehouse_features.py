"""Features of rows in a database: learned from a few numbers per column, and computed there as columns of a query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, import_optional
from manyarms._base.job_options import Expand
from manyarms.core.feature_expansion import DEGREE, FeatureExpansion, spline_pieces
from manyarms.core.feature_map import Categorical, Embedding, Feature, FeatureMap, Numeric
from manyarms.core.labels import other_type
from manyarms.errors import InputError, NonFiniteError, ShapeError
from manyarms.logs.learn_features import (
    MAX_DISTINCT,
    SAMPLE,
    LevelSummary,
    ListSummary,
    NumberSummary,
    learned_map,
    summary_of,
)
from manyarms.logs.warehouse_table import EXTRA, Expression, WarehouseTable

MOST_FEATURES = 100
"""With more features than this, a pass over the rows is faster than the sums of all their products."""


NO_LIMIT = 1 << 62
"""A limit that no table reaches."""


def learn_warehouse_features(
    rows: WarehouseTable,
    columns: Sequence[str],
    *,
    categorical: Sequence[str],
    max_levels: int,
    expand: Expand | None,
) -> FeatureMap:
    """The feature map that `learn_features` gives for the same rows, from a few numbers per column.

    Args:
        rows: Rows that lack no value.
        columns: The context columns.
        categorical: Those of whole numbers that are categories.
        max_levels: The most levels of a category with a feature of their own.
        expand: Further features; they are fitted to SAMPLE rows, whichever the database gives first.
    """
    if not rows.n_rows:
        raise InputError("there are no rows to learn features from.")
    features = list[Feature]()
    for name in columns:
        summary = summary_of(name, rows.schema.field(name).type, name in categorical, False, max_levels)
        if isinstance(summary, LevelSummary):
            summary.merge(rows.counts(name, MAX_DISTINCT + 1))
        elif isinstance(summary, ListSummary):
            summary.merge(_list_size(rows, name))
        else:
            _summarise_numbers(rows, name, summary)
        features.append(summary.feature())
    sample = [] if expand is None else [rows.ask(rows.table.select(*columns).limit(SAMPLE))]
    return learned_map(features, True, expand, sample)


def _summarise_numbers(rows: WarehouseTable, name: str, summary: NumberSummary) -> None:
    """Mean and variance in two queries: the second sums squares about the mean, so that no digits cancel."""
    column = rows.table[name].cast("float64")
    mean = rows.ask(rows.table.aggregate(mean=column.mean()))["mean"][0].as_py()
    if not np.isfinite(mean):
        raise NonFiniteError(
            "has a number that is not finite.", "Leave such rows out first.", argument=f"column {name}"
        )
    square = rows.ask(rows.table.aggregate(square=((column - mean) * (column - mean)).sum()))["square"][0].as_py()
    summary.merge(rows.n_rows, mean, square)


def _list_size(rows: WarehouseTable, name: str) -> int:
    length = rows.table[name].length()
    shortest, longest = rows.ask(rows.table.aggregate(low=length.min(), high=length.max())).to_pylist()[0].values()
    if shortest != longest:
        problem = f"must hold as many numbers in every row; it has between {shortest} and {longest}."
        raise ShapeError(problem, argument=f"column {name}")
    return shortest


def can_be_computed(features: FeatureMap) -> bool:
    """True if `with_features` can write the map as a query that a database answers in reasonable time.

    Random Fourier and Nystroem features are too many: every pair of features is a sum.
    """
    expansion = features.expansion
    return features.dim <= MOST_FEATURES and (expansion is None or expansion.kind in ("splines", "products"))


def with_features(table: Expression, features: FeatureMap) -> tuple[Expression, list[str]]:
    """A table with one more column per feature φ_j, and the names of these columns."""
    columns = [table[feature.column] for feature in features.features]
    parts = [_lit(1)] if features.intercept else []
    for feature, column in zip(features.features, columns, strict=True):
        parts += _columns_of(feature, column)
    table, names = _with_columns(table, "_feature", parts)
    if features.expansion is None:
        return table, names
    table, more = _expanded(table, names, features.expansion)
    return table, names + more


def _with_columns(table: Expression, name: str, parts: list[Expression]) -> tuple[Expression, list[str]]:
    """A table with further columns, each computed once per row, and their names.

    PostgreSQL merges a subquery into the query around it, and writes its expressions out wherever they are used. Of
    700 sums, each of which then holds two polynomials in several pieces, its compiler runs out of time and memory. It
    leaves a subquery with a limit alone.
    """
    names = [f"{name}_{place}" for place in range(len(parts))]
    table = table.mutate(**dict(zip(names, parts, strict=True)))
    return (table.limit(NO_LIMIT) if table.get_backend().name == "postgres" else table), names


def _lit(value: int) -> Expression:
    ibis: Any = import_optional("ibis", "a database table", EXTRA)
    return ibis.literal(value, type="int64").cast("float64")


def _columns_of(feature: Feature, column: Expression) -> list[Expression]:
    if isinstance(feature, Numeric):
        return [(column.cast("float64") - feature.mean) / feature.std]
    if isinstance(feature, Embedding):
        return [column[place].cast("float64") for place in range(feature.size)]
    levels = [_in_type_of(column, level) for level in cast(Categorical, feature).levels]
    known = [level for level in levels if level is not None]
    # Whole numbers first: PostgreSQL takes 1.0 for an exact decimal number, and multiplies these slowly.
    own = [_lit(0) if level is None else (column == level).ifelse(1, 0).cast("float64") for level in levels]
    other = column.isin(known).ifelse(0, 1).cast("float64") if known else _lit(1)
    return [*own, other]


def _in_type_of(column: Expression, level: Any) -> Any:
    """A level as the column may hold it: integers and texts match where they are written alike."""
    if column.type().is_boolean() or column.type().is_string() == isinstance(level, str):
        return level
    return other_type(level)


def _expanded(table: Expression, names: list[str], expansion: FeatureExpansion) -> tuple[Expression, list[str]]:
    """A table with the columns of an expansion by splines or products."""
    z = [table[names[place]] for place in expansion.columns]
    if expansion.kind == "products":
        left, right = np.triu_indices(len(z), 1)
        return _with_columns(table, "_expanded", [z[i] * z[j] for i, j in zip(left, right, strict=True)])
    knots = np.array(expansion.first)
    inner = knots[:, DEGREE : knots.shape[1] - DEGREE]
    ends = [(float(row[0]), float(row[-1])) for row in inner]
    table, clipped = _with_columns(table, "_clipped", [x.clip(*low_high) for x, low_high in zip(z, ends, strict=True)])
    columns = zip(clipped, inner, knots, strict=True)
    splines = [part for name, places, own in columns for part in _splines(table[name], places, spline_pieces(own))]
    return _with_columns(table, "_expanded", splines)


def _splines(x: Expression, inner: Float[Array, " t"], splines: Float[Array, "k p c"]) -> list[Expression]:
    """B-splines as what they are between two inner knots: polynomials."""
    ibis: Any = import_optional("ibis", "a database table", EXTRA)
    out = list[Expression]()
    for pieces in splines:
        parts = [_polynomial(x - float(left), piece) for left, piece in zip(inner, pieces, strict=False)]
        cases = ((x < float(right), part) for right, part in zip(inner[1:-1], parts, strict=False))
        out.append(ibis.cases(*cases, else_=parts[-1]))
    return out


def _polynomial(x: Expression, coefficients: Any) -> Expression:
    result = x * float(coefficients[-1]) + float(coefficients[-2])
    for coefficient in coefficients[-3::-1]:
        result = result * x + float(coefficient)
    return result
