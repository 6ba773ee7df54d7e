"""Where a command's passes run; Java's harmless lines about how it was started stay off the terminal."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from manyarms.engines import Engine

HARMLESS = re.compile(
    rb"Using incubator modules|Picked up _?JAVA_|Using Spark's default log4j profile|Setting default log level to"
    rb"|To adjust logging level use|WARN NativeCodeLoader"
)
"""What every Spark says when it starts, whatever it is started for."""


def check_engine(name: str) -> None:
    """Refuse an engine that is not known, or not installed, before any rows are read."""
    from manyarms.engines import as_engine  # noqa: PLC0415

    as_engine(name)


def open_engine(name: str) -> Engine:
    """The engine of a name; one on Spark is started at once, and all that it says later is heard."""
    from manyarms.engines import as_engine  # noqa: PLC0415

    engine = as_engine(name)
    if name.partition(":")[0] != "spark":
        return engine
    from manyarms.engines.spark import Spark  # noqa: PLC0415  an extra

    assert isinstance(engine, Spark)
    with _stderr_of_children_filtered():
        _ = engine.session
    return engine


@contextmanager
def _stderr_of_children_filtered() -> Generator[None]:
    """Processes started inside speak to us, for as long as they live, and we pass on what is not harmless."""
    ours, theirs = os.pipe()
    stderr = os.dup(2)
    threading.Thread(target=_pass_on, args=(ours, stderr), daemon=True).start()
    os.dup2(theirs, 2)
    os.close(theirs)
    try:
        yield
    finally:
        # A duplicate, since the thread goes on writing to its own.
        os.dup2(stderr, 2)


def _pass_on(source: int, target: int) -> None:
    with os.fdopen(source, "rb") as lines, os.fdopen(target, "wb", buffering=0) as out:
        for line in lines:
            if not HARMLESS.search(line):
                out.write(line)
