"""Threads over chunks, with BLAS at one thread each: faster than BLAS threads, and the same result for any number."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Lock, local
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")


def for_each(work: Callable[[Item], None], items: Iterable[Item]) -> None:
    """Call `work` on every item, in several threads; each call must write to its own place."""
    todo = list(items)
    workers = 1 if _users.alone or _users.beside_others else min(len(todo), n_cores())
    # Also for a single item: BLAS threads on a tile that fits the cache cost more than they save, and on a busy
    # machine they wait for one another.
    with one_blas_thread():
        if workers <= 1:
            for item in todo:
                work(item)
            return
        with ThreadPoolExecutor(workers) as pool:
            for _ in pool.map(work, todo):
                pass


@contextmanager
def one_blas_thread() -> Generator[None]:
    """Set BLAS to one thread: on small matrices its threads cost more than they save, on a busy machine far more.

    The setting holds for the whole process. The first caller sets it and the last one to leave restores it, so calls
    may be nested and may come from several threads.
    """
    with _lock:
        if _users.count == 0:
            _users.limiter = _controller().limit(limits=1, user_api="blas")
        _users.count += 1
    try:
        yield
    finally:
        with _lock:
            _users.count -= 1
            if _users.count == 0 and _users.limiter is not None:
                _users.limiter.restore_original_limits()


class Scratch(local):
    """Memory for intermediate results, of each thread its own: new memory often costs more than the work on it."""

    def __init__(self):
        self._kept = dict[str, np.ndarray]()

    def __call__(self, name: str, *shape: int, kind: Any = np.float64) -> np.ndarray:
        """An array with arbitrary content; the next one of the same name takes its place."""
        size = math.prod(shape)
        if name not in self._kept or len(self._kept[name]) < size:
            self._kept[name] = np.empty(size, dtype=kind)
        return self._kept[name][:size].reshape(shape)


class _Users:
    """Count of callers inside `one_blas_thread`, the limiter that restores the setting, switches for our threads."""

    count = 0
    limiter: Any = None
    alone = False
    beside_others = 0


_users, _lock = _Users(), Lock()


def stay_on_one_core() -> None:
    """Use one thread in this process from now on (ours, BLAS, OpenMP): for one of several processes on shared cores."""
    _users.alone = True
    ThreadpoolController().limit(limits=1)


@contextmanager
def on_one_core() -> Generator[None]:
    """Use one thread inside this block (ours and BLAS): for work that runs beside other work on the other cores."""
    with _lock:
        _users.beside_others += 1
    try:
        with one_blas_thread():
            yield
    finally:
        with _lock:
            _users.beside_others -= 1


def n_cores() -> int:
    """Number of cores, and so of threads, that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
