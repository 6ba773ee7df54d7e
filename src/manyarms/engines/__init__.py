"""Engines run passes over the logs: in this process, on Dask or on Spark. No other package knows where a pass runs."""

from __future__ import annotations

from manyarms.engines.engine import LOCAL, Engine, Local, Shards, Tally, Task, Work, as_engine

__all__ = ["LOCAL", "Engine", "Local", "Shards", "Tally", "Task", "Work", "as_engine"]
