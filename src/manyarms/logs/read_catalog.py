"""The door for catalogs that are tables or files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from manyarms.core.catalog import Catalog
from manyarms.core.feature_map import OTHER
from manyarms.errors import DataTypeError
from manyarms.logs.log_stream import BATCH
from manyarms.logs.sources import as_source

if TYPE_CHECKING:
    import pyarrow as pa


def read_catalog(
    catalog: Any,
    id: str,
    *,
    category: str | None = None,
    tags: str | None = None,
    taxonomy: str | Sequence[str] | None = None,
    embedding: str | Sequence[str] | None = None,
    separator: str = "|",
    other: bool = False,
) -> Catalog:
    """Every action there is, with what is known of it, from a table or from files; columns are mapped by name.

    Args:
        catalog: A table of pandas, Polars or Arrow; a Parquet, CSV or Arrow file, a folder or a glob; or Arrow batches.
        id: The column of action ids, each once.
        category: A column with one label for each action.
        tags: A column with several: lists, or texts joined by the separator.
        taxonomy: A column for each level from the top down; or one with the whole path, as lists or joined texts.
        embedding: A column of lists of numbers; or several columns of numbers.
        separator: What joins labels in a text.
        other: Add an action "(other)" of which nothing is known, for `read_logs(..., unknown="other")`.

    Raises:
        InputError: Naming the column, the first bad row and a way out.
    """
    import pyarrow as pa  # noqa: PLC0415

    levels, numbers = ([one] if isinstance(one, str) else list(one or ()) for one in (taxonomy, embedding))
    names = [id, *(name for name in (category, tags) if name is not None), *levels, *numbers]
    source = as_source(catalog)
    source.need(names)
    batches = list(source.batches(names, BATCH))
    table = pa.Table.from_batches(batches) if batches else pa.table({name: [] for name in names})
    ids = table[id].to_pylist()
    columns: dict[str, list[Any] | None] = {
        "categories": None if category is None else table[category].to_pylist(),
        "tags": None if tags is None else _labels(tags, table[tags], separator),
        "paths": _paths(table, levels, separator) if levels else None,
        "embeddings": _embeddings(table, numbers) if numbers else None,
    }
    if other and OTHER not in ids:
        ids = [*ids, OTHER]
        columns = {name: None if values is None else [*values, None] for name, values in columns.items()}
    return Catalog(ids, **columns)


def _labels(name: str, column: pa.ChunkedArray, separator: str) -> list[Any]:
    """Several labels a row: lists as they are, texts split; None where there is none."""
    import pyarrow as pa  # noqa: PLC0415

    if _is_list(column.type):
        return column.to_pylist()
    if pa.types.is_null(column.type) or pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        texts = (None if text is None else text.split(separator) for text in column.to_pylist())
        return [None if labels is None else [label.strip() for label in labels if label.strip()] for labels in texts]
    raise DataTypeError(f"column {name} must hold lists or texts of labels; its type is {column.type}.")


def _paths(table: pa.Table, levels: list[str], separator: str) -> list[Any]:
    if len(levels) == 1:
        return _labels(levels[0], table[levels[0]], separator)
    rows = zip(*(table[name].to_pylist() for name in levels), strict=True)
    return [list(row) for row in rows]


def _embeddings(table: pa.Table, columns: list[str]) -> list[Any]:
    """A list of numbers a row, None where it is missing."""
    import pyarrow as pa  # noqa: PLC0415

    if len(columns) == 1 and _is_list(table[columns[0]].type):
        return table[columns[0]].to_pylist()
    try:
        numbers = [table[name].cast(pa.float64()).to_numpy() for name in columns]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
        raise DataTypeError(f"columns {', '.join(columns)} must hold numbers: {problem}.") from problem
    rows = np.column_stack(numbers)
    return [None if np.isnan(row).all() else row.tolist() for row in rows]


def _is_list(kind: pa.DataType) -> bool:
    import pyarrow as pa  # noqa: PLC0415

    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
