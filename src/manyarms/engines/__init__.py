"""Where passes over the logs run: in this process, on Dask, on Spark. Nothing else knows an engine."""

from manyarms.engines.base import LOCAL, Engine, Local, Spread, Tally, Task, Work
from manyarms.engines.by_name import as_engine

__all__ = ["LOCAL", "Engine", "Local", "Spread", "Tally", "Task", "Work", "as_engine"]
