"""Engines run passes over the logs: in this process, on Dask or on Spark. No other package knows where a pass runs."""

from __future__ import annotations

from typing import Any

from manyarms.engines.base import LOCAL, Engine, Local, Shards, Tally, Task, Work
from manyarms.errors import InputError

__all__ = ["LOCAL", "Engine", "Local", "Shards", "Tally", "Task", "Work", "as_engine"]


def as_engine(engine: Any) -> Engine:
    """The engine that a user passed as `engine`: None for this process, a name, or an engine with options of its own.

    A name may go on with the address of a cluster, as in "dask:tcp://10.0.0.1:8786" and "spark:yarn".
    """
    if isinstance(engine, Engine):
        return engine
    if engine is None or engine == "local":
        return LOCAL
    name, _, cluster = engine.partition(":") if isinstance(engine, str) else ("", "", "")
    if name == "dask":
        from manyarms.engines.dask import Dask  # noqa: PLC0415  an extra

        return Dask(cluster or None)
    if name == "spark":
        from manyarms.engines.spark import Spark  # noqa: PLC0415  an extra

        return Spark(cluster or None)
    raise InputError(
        f"must be local, dask or spark; got {engine!r}.",
        "Dask(...) and Spark(...) from manyarms.engines are accepted too.",
        argument="engine",
        flag_remedy="Add the address of a cluster after a colon, as in dask:tcp://10.0.0.1:8786.",
    )
