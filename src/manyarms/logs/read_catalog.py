"""Catalogs read from tables or files."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from manyarms._base.arrow import pa
from manyarms._base.checks import as_instance, as_names, as_text
from manyarms._base.job_options import CatalogOptions, takes, with_defaults
from manyarms.core import OTHER, Catalog
from manyarms.core.labels import labels_from_texts
from manyarms.errors import DataTypeError, InputError
from manyarms.logs.log_stream import BATCH
from manyarms.logs.sources import as_source
from manyarms.logs.warehouse_table import WarehouseTable


@takes(CatalogOptions)
def read_catalog(catalog: Any, id: str, *, other: bool = False, **options: Unpack[CatalogOptions]) -> Catalog:
    """The catalog of all actions, with what is known about each, from a table or from files.

    Args:
        catalog: A table of pandas, Polars or Arrow; a Parquet, CSV or Arrow file, a folder or a glob; or Arrow batches.
        id: The column of action ids, each once.
        other: Add an action "(other)" of which nothing is known, for `read_logs(..., unknown="other")`.
        options: The columns that say what actions have in common: `category`, one label per action; `tags`, several
            labels, as lists or as texts joined by the `separator`; `taxonomy`, one column per level from the top down,
            or one column with the whole path; `embedding`, one column of lists of numbers, or several of numbers. And
            `name`, the column of names that a report shows instead of ids.

    Raises:
        InputError: Naming the column, the first bad row and a way out.
    """
    given = with_defaults("read_catalog", options, CatalogOptions)
    if not as_instance("separator", given.separator, str, "a text"):
        raise InputError("must not be empty.", "Pass the text between two labels, such as |.", argument="separator")
    levels, numbers = (as_names(name, vars(given)[name]) for name in ("taxonomy", "embedding"))
    names = [id, *(name for name in (given.category, given.name, given.tags) if name is not None), *levels, *numbers]
    for name in names:
        as_text("the name of a column", name)
    source = as_source(catalog)
    source.need(names, "the catalog")
    source = source.with_labels(name for name in names if name not in numbers)
    batches = list(source.batches(names, BATCH))
    table = pa.Table.from_batches(batches) if batches else pa.table({name: [] for name in names})
    if isinstance(source, WarehouseTable):
        # A database keeps no order, and the numbers of actions follow it.
        table = table.sort_by(id)

    def labels(name: str) -> list[Any]:
        values = table[name].to_pylist()
        return labels_from_texts(values) if name in source.written else values

    ids = labels(id)
    columns: dict[str, list[Any] | None] = {
        "categories": None if given.category is None else labels(given.category),
        "names": None if given.name is None else table[given.name].to_pylist(),
        "tags": None if given.tags is None else _labels(given.tags, table[given.tags], given.separator),
        "paths": None,
        "embeddings": _embeddings(table, numbers) if numbers else None,
    }
    if len(levels) == 1:
        columns["paths"] = _labels(levels[0], table[levels[0]], given.separator)
    elif levels:
        columns["paths"] = [list(row) for row in zip(*map(labels, levels), strict=True)]
    if other and OTHER not in ids:
        ids = [*ids, OTHER]
        columns = {name: None if values is None else [*values, None] for name, values in columns.items()}
    return Catalog(ids, **columns)


def _labels(name: str, column: pa.ChunkedArray, separator: str) -> list[Any]:
    """Several labels per row: lists as they are, texts split; None where there is none."""
    if _is_list(column.type):
        return column.to_pylist()
    if pa.types.is_null(column.type) or pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        texts = (None if text is None else text.split(separator) for text in column.to_pylist())
        return [None if labels is None else [label.strip() for label in labels if label.strip()] for labels in texts]
    raise DataTypeError(f"column {name} must hold lists or texts of labels; its type is {column.type}.")


def _embeddings(table: pa.Table, columns: list[str]) -> list[Any]:
    """A list of numbers per row, None where it is missing."""
    if len(columns) == 1 and _is_list(table[columns[0]].type):
        return table[columns[0]].to_pylist()
    try:
        numbers = [table[name].cast(pa.float64()).to_numpy() for name in columns]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
        raise DataTypeError(f"columns {', '.join(columns)} must hold numbers: {problem}.") from problem
    rows = np.column_stack(numbers)
    return [None if np.isnan(row).all() else row.tolist() for row in rows]


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _check_id(catalog: Any, action: str) -> None:
    """Refuse a catalog whose ids have another name than the actions of the log, and ask for that name."""
    columns = as_source(catalog).columns
    if action not in columns:
        raise InputError(
            f"the catalog has no column {action!r}, the action column of the logs; its columns are "
            f"{', '.join(columns)}.",
            "Name the catalog's id column with id=.",
            flag_remedy="Name the catalog's id column with --id COLUMN.",
        )


def open_catalog(given: Any, action: str, columns: CatalogOptions, *, required: bool = True) -> Catalog | None:
    """The catalog that a user passed to a job, read where it is a table or a file; None where none was given.

    Columns of a catalog whose file was forgotten are refused, unless it is not required: without it, actions would have
    nothing in common.
    """
    as_text("action", action)
    if isinstance(given.catalog, Catalog):
        return given.catalog
    if given.catalog is not None:
        if not given.id:
            _check_id(given.catalog, action)
        return read_catalog(given.catalog, given.id or action, other=given.unknown == "other", **columns)
    named = [name for name, column in {"id": given.id, **columns}.items() if column and name != "separator"]
    if required and named:
        raise InputError(
            f"the {named[0]} of a catalog is named, but not its file.",
            "Pass the catalog too. To do without a catalog, name none of its columns.",
            flag_remedy="Pass --catalog, or path under [catalog] in the --spec file. To do without a catalog, name "
            "none of its columns.",
        )
    return None
