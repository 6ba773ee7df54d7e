"""Where passes over the logs run: in this process, on Dask, on Spark. Nothing else knows an engine."""

from manyarms.engines.base import LOCAL, Engine, Local, Tally, Task, Work, merged
from manyarms.engines.choice import as_engine

__all__ = ["LOCAL", "Engine", "Local", "Tally", "Task", "Work", "as_engine", "merged"]
