"""Run many cells in parallel processes; each finished cell is on disk at once."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, product
from multiprocessing.connection import wait
from multiprocessing.context import SpawnContext
from multiprocessing.synchronize import Event
from operator import attrgetter
from pathlib import Path
from threading import Thread

from manyarms._base.rng import generator
from manyarms.errors import CellError, InputError, WorkerError
from manyarms.experiments.cell import Cell, Results, compute
from manyarms.experiments.methods import METHODS, Method, check_method_names
from manyarms.experiments.problem import Kind, Problem
from manyarms.experiments.result_store import Journal, Store, check_provenance
from manyarms.experiments.user_methods import check_method_paths, method_files, with_user_methods
from manyarms.linalg.threads import n_cores, stay_on_one_core

GUARD = (
    "A worker process imports the script that calls `run`: save the script in a file, and put the call behind "
    '`if __name__ == "__main__":`.'
)


@dataclass(frozen=True)
class Grid:
    """The cells to run on one problem, one for each combination of method, number of rounds and instance."""

    problem: Problem
    kind: Kind
    methods: tuple[str, ...]
    rounds: tuple[int, ...]
    instances: int

    def cells(self) -> Iterator[Cell]:
        """All cells of the grid."""
        for method, n, instance in product(self.methods, self.rounds, range(self.instances)):
            yield Cell(self.problem.label, self.kind, method, n, instance)


@dataclass(frozen=True)
class _CellBatch:
    """Cells that share an instance and its log, with the problem itself, which they only name."""

    problem: Problem
    cells: tuple[Cell, ...]


def run(
    grids: Iterable[Grid],
    store: Store,
    *,
    extra_methods: Sequence[str] = (),
    workers: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    on_interrupt: Callable[[], None] = lambda: None,
) -> Results:
    """Compute the cells that the store does not have yet.

    Args:
        grids: The cells wanted; cells in several grids are computed once.
        store: The store that results are read from and written to.
        extra_methods: User methods, as file.py:Class or module:Class.
        workers: Processes; by default one per core. Results do not depend on it.
        progress: Called with the number of cells done and the total, whenever some are finished.
        on_interrupt: Called at once on Ctrl-C; the cells under way are then finished before this returns.

    Returns:
        All results in the store.

    Raises:
        CellError: When a method fails; finished cells are kept.
        StaleRowsError: When rows in the store were made from other data, or by other user code.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        # A worker that is still importing the script that started it would start workers again.
        raise InputError("`run` was called while a worker process started.", GUARD)
    wanted, specs = list(grids), check_method_paths(extra_methods)
    _check_methods(wanted, with_user_methods(specs))
    files = method_files(specs)
    with store.lock():
        done = store.compact()
        batches = missing_cells(wanted, done)
        problems = {grid.problem.label: grid.problem for grid in wanted}
        todo = (batch.problem.label for batch in batches)
        names = {name for grid in wanted for name in grid.methods} & set(METHODS)
        revisions = {name: METHODS[name].revision for name in names}
        check_provenance(store.folder, problems, files, done, todo, revisions)
        progress(0, sum(len(batch.cells) for batch in batches))
        if batches:
            try:
                stages = _user_methods_first(batches, set(files))
                _compute_all(stages, store.folder, specs, workers or n_cores(), progress, on_interrupt)
            finally:
                # Also after Ctrl-C or an error: finished cells are kept in one place.
                done = store.compact()
        return done


def missing_cells(grids: Iterable[Grid], done: Results) -> list[_CellBatch]:
    """The cells still to run: the first instances first, so that a run that is stopped leaves whole instances.

    Within an instance, long and short ones are mixed, so that the time left can be estimated; all logs of a world come
    one after the other, so that it is drawn once.
    """
    problems: dict[str, Problem] = {}
    missing: set[Cell] = set()
    for grid in grids:
        problems[grid.problem.label] = grid.problem
        missing.update(cell for cell in grid.cells() if cell not in done)
    ordered = sorted(missing, key=_log_key)
    batches = [_CellBatch(problems[key[0]], tuple(sorted(cells))) for key, cells in groupby(ordered, _log_key)]
    generator("order").shuffle(batches)
    places = {label: place for place, label in enumerate(dict.fromkeys(batch.problem.label for batch in batches))}
    return sorted(batches, key=lambda batch: (batch.cells[0].instance, places[batch.problem.label]))


_log_key = attrgetter("problem", "instance", "n")


def _check_methods(grids: Iterable[Grid], methods: Mapping[str, Method]) -> None:
    """Refuse methods that do not exist, or lack what is asked of them, before any process is started."""
    for grid in grids:
        check_method_names(grid.methods, methods, "method")
        for name in grid.methods:
            if not methods[name].offers(grid.kind):
                lacks = "estimate" if grid.kind == "ope" else "learn"
                raise InputError(f"{name} has no `{lacks}`, so it cannot be run for {grid.kind!r}.", "Leave it out.")


def _user_methods_first(batches: Sequence[_CellBatch], user_methods: set[str]) -> list[list[_CellBatch]]:
    """Put one small cell of each user method and kind before everything else: mistakes in it show at once."""
    trials: dict[tuple[str, Kind], _CellBatch] = {}
    for batch in sorted(batches, key=lambda batch: (batch.cells[0].n, batch.cells[0].instance)):
        for cell in batch.cells:
            if cell.method in user_methods:
                trials.setdefault((cell.method, cell.kind), _CellBatch(batch.problem, (cell,)))
    tried = {cell for batch in trials.values() for cell in batch.cells}
    rest = (_CellBatch(batch.problem, tuple(cell for cell in batch.cells if cell not in tried)) for batch in batches)
    return [stage for stage in (list(trials.values()), [batch for batch in rest if batch.cells]) if stage]


def _compute_all(
    stages: Sequence[Sequence[_CellBatch]],
    folder: Path,
    specs: tuple[str, ...],
    n_workers: int,
    progress: Callable[[int, int], None],
    on_interrupt: Callable[[], None],
) -> None:
    """Compute all cells of a stage, then those of the next; journals go into the folder."""
    total, finished = sum(len(batch.cells) for stage in stages for batch in stage), 0
    # Spawned, not forked: a fork would copy the locks of BLAS threads without the threads.
    context = multiprocessing.get_context("spawn")
    begun, stop = context.Event(), context.Event()
    with _pool(context, min(n_workers, max(map(len, stages))), (folder, specs, begun, stop)) as pool:
        try:
            for stage in stages:
                with _interrupts_held():
                    futures = {pool.submit(_compute_batch, batch): batch for batch in stage}
                for future in as_completed(futures):
                    future.result()
                    finished += len(futures[future].cells)
                    progress(finished, total)
        except BrokenProcessPool as death:
            if not begun.is_set():
                raise WorkerError("no worker process could start.", GUARD) from death
            raise WorkerError(
                "a worker process died, perhaps for lack of memory.",
                "Run the same again: finished cells are kept. Use fewer workers if memory was short.",
            ) from death
        except KeyboardInterrupt:
            on_interrupt()
            raise


@contextmanager
def _pool(
    context: SpawnContext, n_workers: int, initargs: tuple[Path, tuple[str, ...], Event, Event]
) -> Generator[ProcessPoolExecutor]:
    """Processes that end with the block: after their current cells or, on a second Ctrl-C, at once."""
    others, stop = set(multiprocessing.active_children()), initargs[-1]
    pool = ProcessPoolExecutor(n_workers, context, initializer=_start_worker, initargs=initargs)
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
    """Hold Ctrl-C until the end of the block; processes started in it never receive it, and are stopped by an event."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows.
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Worker:
    """The state that a worker process keeps between calls."""

    journal: Journal
    specs: tuple[str, ...]
    stop: Event


def _start_worker(folder: Path, specs: tuple[str, ...], begun: Event, stop: Event) -> None:
    """Set up a worker process, once."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    begun.set()
    _Worker.journal, _Worker.specs, _Worker.stop = Journal(folder), specs, stop
    Thread(target=_exit_with_parent, daemon=True).start()
    stay_on_one_core()


def _exit_with_parent() -> None:
    """End the worker when its parent is killed; it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _compute_batch(batch: _CellBatch) -> None:
    methods = with_user_methods(_Worker.specs)
    for cell in batch.cells:
        if _Worker.stop.is_set():
            return
        try:
            outcome = compute(batch.problem, methods[cell.method], cell.kind, cell.n, cell.instance)
        except (Exception, SystemExit) as error:
            # The cause may not travel between processes; its message does.
            raise CellError(
                f"{cell.method} failed on {cell.problem!r} ({cell.kind}, n = {cell.n}, instance {cell.instance}): "
                f"{type(error).__name__}: {error}"
            ) from None
        _Worker.journal.add(cell, outcome)
