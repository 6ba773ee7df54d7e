"""Worker processes: each computes cells and writes them down at once, until all are done or it is told to stop."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import SpawnContext
from multiprocessing.synchronize import Event
from pathlib import Path
from threading import Thread

from manyarms.errors import InputError, ManyarmsError
from manyarms.experiments.cell import Cell, compute
from manyarms.experiments.method_files import methods_by_name
from manyarms.experiments.problem import Problem
from manyarms.experiments.result_store import Journal
from manyarms.linalg.threads import stay_on_one_core

GUARD = (
    "A worker imports the script that calls `run`: save it in a file, and put the call behind "
    '`if __name__ == "__main__":`.'
)


class CellError(ManyarmsError):
    """A method failed in a cell."""


class WorkerError(CellError):
    """A worker process died."""


@dataclass(frozen=True)
class Work:
    """Cells that share an instance and its log.

    Attributes:
        problem: The problem itself: what a cell only names.
        cells: Those to compute.
    """

    problem: Problem
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Watch:
    """Who is told what while cells are computed.

    Attributes:
        progress: Called with the number of cells done and of all, whenever some are finished.
        on_interrupt: Called at once on Ctrl-C; the cells under way are then finished.
    """

    progress: Callable[[int, int], None]
    on_interrupt: Callable[[], None]


def compute_all(
    stages: Iterable[Sequence[Work]], folder: Path, places: tuple[str, ...], count: int, watch: Watch
) -> None:
    """Compute all cells of a stage, then those of the next.

    Args:
        stages: What to compute.
        folder: Where journals go.
        places: Methods of one's own, as file.py:Class or module:Class.
        count: Processes.
        watch: Whom to tell.
    """
    todo = [list(stage) for stage in stages]
    total, finished = sum(len(item.cells) for stage in todo for item in stage), 0
    # Spawned, not forked: a fork would copy the threads' locks of BLAS without the threads.
    context = multiprocessing.get_context("spawn")
    begun, stop = context.Event(), context.Event()
    with _pool(context, min(count, max(map(len, todo))), (folder, places, begun, stop)) as pool:
        try:
            for stage in todo:
                with _interrupts_held():
                    futures: dict[Future[None], Work] = {pool.submit(_do, item): item for item in stage}
                for future in as_completed(futures):
                    future.result()
                    finished += len(futures[future].cells)
                    watch.progress(finished, total)
        except BrokenProcessPool as death:
            raise WorkerError(_why(begun.is_set())) from death
        except KeyboardInterrupt:
            watch.on_interrupt()
            raise


def refuse_in_worker() -> None:
    """Raise in a worker that is still importing the script that started it: that script would start workers again."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise InputError(GUARD)


def _why(begun: bool) -> str:
    if not begun:
        return f"no worker process could begin. {GUARD}"
    return (
        "a worker process died, perhaps for want of memory. What was finished is kept: run the same again, with fewer "
        "workers if memory was short."
    )


@contextmanager
def _pool(
    context: SpawnContext, count: int, initargs: tuple[Path, tuple[str, ...], Event, Event]
) -> Generator[ProcessPoolExecutor]:
    """Processes that end with the block: after the cells they are at, or, on a second Ctrl-C, at once."""
    others, stop = set(multiprocessing.active_children()), initargs[-1]
    pool = ProcessPoolExecutor(count, context, initializer=_begin, initargs=initargs)
    try:
        yield pool
    finally:
        stop.set()
        try:
            pool.shutdown(wait=True, cancel_futures=True)
        except KeyboardInterrupt:
            for process in set(multiprocessing.active_children()) - others:
                process.kill()
            raise


@contextmanager
def _interrupts_held() -> Generator[None]:
    """Ctrl-C waits for the end of the block, and never reaches processes that are started in it: they are told."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows.
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Worker:
    """What a worker process keeps between calls."""

    journal: Journal
    places: tuple[str, ...]
    stop: Event


def _begin(folder: Path, places: tuple[str, ...], begun: Event, stop: Event) -> None:
    """In each worker, once."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    begun.set()
    _Worker.journal, _Worker.places, _Worker.stop = Journal(folder), places, stop
    Thread(target=_end_with_parent, daemon=True).start()
    stay_on_one_core()


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _do(work: Work) -> None:
    methods = methods_by_name(_Worker.places)
    for cell in work.cells:
        if _Worker.stop.is_set():
            return
        try:
            outcome = compute(work.problem, methods[cell.method], cell.kind, cell.n, cell.instance)
        except (Exception, SystemExit) as error:
            # The cause may not travel between processes; its words do.
            raise CellError(
                f"{cell.method} failed on {cell.problem!r} ({cell.kind}, n = {cell.n}, instance {cell.instance}): "
                f"{type(error).__name__}: {error}"
            ) from None
        _Worker.journal.add(cell, outcome)
