"""Contexts as their owners have them: features φ(x) already, or a table that a feature map reads."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float

from manyarms._arrays import Array, as_matrix
from manyarms.core.columns import table_of
from manyarms.core.features import FeatureMap
from manyarms.errors import DataTypeError, InputError


def as_contexts(
    value: Any, features: FeatureMap | None, *, columns: int | None = None, rows: int | None = None
) -> Float[Array, "n d"]:
    """φ(x) of every row: of an array as it stands, of a table through the feature map.

    Args:
        value: (n, d) features, or a table of pandas, Polars or Arrow with the columns that the map reads.
        features: The map; None where there is none, and tables are refused.
        columns: d, where it is known.
        rows: n, where it is known.

    Raises:
        InputError: Naming the column that is missing, or the first bad row.
    """
    if hasattr(value, "batches"):
        way_out = ".collect().contexts, or those of a sample" if hasattr(value, "collect") else ".contexts"
        raise DataTypeError(f"contexts must be rows in memory here; got a {type(value).__name__}. Pass its {way_out}.")
    table = table_of(value)
    if table is not None and features is None:
        raise InputError(
            "contexts is a table, and there is no feature map to read it with: what was fitted came as arrays. Pass "
            "the same features as an array, or fit on logs from ma.read_logs."
        )
    found = value if table is None or features is None else features(table)
    return as_matrix("contexts", found, columns=columns, rows=rows)
