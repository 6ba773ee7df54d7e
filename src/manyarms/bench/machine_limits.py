"""The limits of this machine, measured in the run that uses them: a matrix product, a copy, and reading Parquet."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq


class CallTime(NamedTuple):
    """The time of a call.

    Attributes:
        cpu_s: CPU seconds of all threads.
        wall_s: Seconds on the clock.
    """

    cpu_s: float
    wall_s: float


def time_call(call: Callable[[], Any]) -> tuple[CallTime, Any]:
    """The time that this machine takes for one call, and the result of the call."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = call()
    return CallTime(time.process_time() - cpu, time.perf_counter() - wall), result


class MachineLimits(NamedTuple):
    """The speed of this machine.

    Attributes:
        flops: Operations of a double-precision matrix product per CPU second.
        copied: Bytes copied per CPU second, each counted when read and when written.
    """

    flops: float
    copied: float

    def seconds(self, flops: float, moved: float) -> float:
        """The least CPU time for so many operations and so many bytes: the larger of the two."""
        return max(flops / self.flops, moved / self.copied)


def measure_limits(size: int = 1024, repeats: int = 5) -> MachineLimits:
    """Measure the speed of this machine: the fastest of a few products of two square matrices, and of a few copies."""
    a, b = np.random.default_rng(0).normal(size=(2, size, size))
    block = np.zeros(8 * size * size)
    target = np.empty_like(block)
    product = min(time_call(lambda: a @ b)[0].cpu_s for _ in range(repeats))
    copy = min(time_call(lambda: np.copyto(target, block))[0].cpu_s for _ in range(repeats))
    return MachineLimits(2 * size**3 / product, 2 * block.nbytes / copy)


def read_parquet(path: Path) -> int:
    """Read all columns of a Parquet file batch by batch and drop them; the number of rows."""
    return sum(batch.num_rows for batch in pq.ParquetFile(path).iter_batches())
