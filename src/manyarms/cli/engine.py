"""Engines by name for the commands; the greetings of a Spark that they start stay off the terminal."""

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
"""Lines that every Spark prints when it starts."""


def open_engine(name: str) -> Engine:
    """The engine with a given name. Spark is started at once; what it prints later reaches the terminal."""
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
    """Filter the stderr of processes started in the block, as long as they live: harmless lines are dropped."""
    reader, writer = os.pipe()
    stderr = os.dup(2)
    threading.Thread(target=_pass_on, args=(reader, stderr), daemon=True).start()
    os.dup2(writer, 2)
    os.close(writer)
    try:
        yield
    finally:
        # A duplicate, since the thread goes on writing to the original.
        os.dup2(stderr, 2)


def _pass_on(source: int, target: int) -> None:
    with os.fdopen(source, "rb") as lines, os.fdopen(target, "wb", buffering=0) as out:
        for line in lines:
            if not HARMLESS.search(line):
                out.write(line)
