"""Engines by name."""

from __future__ import annotations

from typing import Any

from manyarms.engines.base import LOCAL, Engine
from manyarms.errors import InputError


def as_engine(value: Any) -> Engine:
    """What was passed as `engine`: None for this process, a name, or an engine with options of its own.

    A name may go on with the cluster that is meant, as in "dask:tcp://10.0.0.1:8786" and "spark:yarn".
    """
    if isinstance(value, Engine):
        return value
    if value is None or value == "local":
        return LOCAL
    name, _, cluster = value.partition(":") if isinstance(value, str) else ("", "", "")
    if name == "dask":
        from manyarms.engines.dask import Dask  # noqa: PLC0415  an extra

        return Dask(cluster or None)
    if name == "spark":
        from manyarms.engines.spark import Spark  # noqa: PLC0415  an extra

        return Spark(cluster or None)
    raise InputError(f'engine must be "local", "dask", "spark" or an engine; got {value!r}.')
