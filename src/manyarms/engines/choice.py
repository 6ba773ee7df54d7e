"""Engines by name."""

from __future__ import annotations

from typing import Any

from manyarms.engines.base import LOCAL, Engine
from manyarms.errors import InputError


def as_engine(value: Any) -> Engine:
    """What was passed as `engine`: None for this process, a name, or an engine with options of its own."""
    if isinstance(value, Engine):
        return value
    if value is None or value == "local":
        return LOCAL
    if value == "dask":
        from manyarms.engines.dask import Dask  # noqa: PLC0415  an extra

        return Dask()
    if value == "spark":
        from manyarms.engines.spark import Spark  # noqa: PLC0415  an extra

        return Spark()
    raise InputError(f'engine must be "local", "dask", "spark" or an engine; got {value!r}.')
