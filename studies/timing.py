"""Time and memory of a block of code, for the studies of scale."""

from __future__ import annotations

import resource
import time
from contextlib import AbstractContextManager


class Step(AbstractContextManager["Step", None]):
    """Prints the time of a block of code, and the peak memory so far."""

    def __init__(self, name: str):
        self.name = name

    def __enter__(self) -> Step:
        self.wall, self.cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        wall, cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu
        print(f"{self.name:<58} {wall:8.3f} s wall {cpu:8.3f} s CPU   peak memory {peak_mb():6.0f} MB")


def peak_mb() -> float:
    """Peak resident memory of this process, in MB (Linux counts in KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
