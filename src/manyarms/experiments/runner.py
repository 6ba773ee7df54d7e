"""Many cells in parallel processes, each finished one on disk at once."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import groupby
from multiprocessing.connection import wait
from pathlib import Path
from threading import Thread

from manyarms.errors import ManyarmsError
from manyarms.experiments.cells import Cell, compute, generator
from manyarms.experiments.loading import methods_by_name
from manyarms.experiments.store import Journal, Results, Store
from manyarms.experiments.world import Kind, Problem
from manyarms.linalg.threads import n_cores, stay_on_one_core


class CellError(ManyarmsError):
    """A method failed in a cell."""


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
class Grid:
    """Every combination of these.

    Attributes:
        problem: A problem.
        kind: "ope" or "opl".
        methods: Names of methods.
        rounds: Numbers of rounds.
        instances: How many instances, the first ones.
    """

    problem: Problem
    kind: Kind
    methods: tuple[str, ...]
    rounds: tuple[int, ...]
    instances: int

    def cells(self) -> Iterator[Cell]:
        """All of them."""
        for method in self.methods:
            for n in self.rounds:
                for instance in range(self.instances):
                    yield Cell(self.problem.label, self.kind, method, n, instance)


def run(
    grids: Iterable[Grid],
    store: Store,
    *,
    extra_methods: Sequence[str] = (),
    workers: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Results:
    """Compute the cells that the store does not have yet.

    Args:
        grids: What is wanted; cells that several want are computed once.
        store: Where results are, and go.
        extra_methods: Methods of one's own, as file.py:Class or module:Class.
        workers: Processes; by default as many as there are cores. Results do not depend on it.
        progress: Called with the number of cells done and of all, whenever some are finished.

    Returns:
        All results in the store.

    Raises:
        CellError: When a method fails; what was finished stays.
    """
    with store.lock():
        done = store.compact()
        work = outstanding(grids, done)
        total = sum(len(item.cells) for item in work)
        progress(0, total)
        if work:
            try:
                _run_all(work, store.folder, tuple(extra_methods), workers or n_cores(), progress, total)
            finally:
                # Also after Ctrl-C or an error: what was finished is kept in one place.
                done = store.compact()
        return done


def outstanding(grids: Iterable[Grid], done: Results) -> list[Work]:
    """What is still to be computed, in an order that mixes long and short: so the time left can be told."""
    problems: dict[str, Problem] = {}
    missing: set[Cell] = set()
    for grid in grids:
        problems[grid.problem.label] = grid.problem
        missing.update(cell for cell in grid.cells() if cell not in done)
    shared = sorted(missing, key=_shared)
    work = [Work(problems[key[0]], tuple(sorted(cells))) for key, cells in groupby(shared, _shared)]
    generator("order").shuffle(work)
    return work


def _shared(cell: Cell) -> tuple[str, int, int]:
    return cell.problem, cell.instance, cell.n


def _run_all(
    work: list[Work],
    folder: Path,
    extra_methods: tuple[str, ...],
    workers: int,
    progress: Callable[[int, int], None],
    total: int,
) -> None:
    finished = 0
    # Spawned, not forked: a fork would copy the threads' locks of BLAS without the threads.
    context = multiprocessing.get_context("spawn")
    count = min(workers, len(work))
    with ProcessPoolExecutor(count, context, initializer=_begin, initargs=(folder, extra_methods)) as pool:
        futures: dict[Future[None], Work] = {pool.submit(_do, item): item for item in work}
        try:
            for future in as_completed(futures):
                future.result()
                finished += len(futures[future].cells)
                progress(finished, total)
        except BrokenProcessPool as death:
            raise CellError(
                "a worker process died, perhaps for want of memory. What was finished is kept: run the same command "
                "again, with fewer --workers if memory was short."
            ) from death
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


class _Worker:
    """What a worker process keeps between calls."""

    journal: Journal
    extra_methods: tuple[str, ...]


def _begin(folder: Path, extra_methods: tuple[str, ...]) -> None:
    """In each worker, once."""
    _Worker.journal, _Worker.extra_methods = Journal(folder), extra_methods
    Thread(target=_end_with_parent, daemon=True).start()
    stay_on_one_core()


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _do(work: Work) -> None:
    methods = methods_by_name(_Worker.extra_methods)
    for cell in work.cells:
        try:
            outcome = compute(work.problem, methods[cell.method], cell.kind, cell.n, cell.instance)
        except (Exception, SystemExit) as error:
            # The cause may not travel between processes; its words do.
            raise CellError(
                f"{cell.method} failed on {cell.problem!r} ({cell.kind}, n = {cell.n}, instance {cell.instance}): "
                f"{type(error).__name__}: {error}"
            ) from None
        _Worker.journal.add(cell, outcome)
