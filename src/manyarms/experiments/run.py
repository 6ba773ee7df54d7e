"""Many cells in parallel processes, each finished one on disk at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from manyarms.errors import InputError
from manyarms.experiments.cell import Cell, generator
from manyarms.experiments.method_files import as_places, check_names, methods_by_name, own_files
from manyarms.experiments.methods import Method
from manyarms.experiments.problem import Kind, Problem
from manyarms.experiments.provenance import agree
from manyarms.experiments.result_store import Results, Store
from manyarms.experiments.workers import CellError, Watch, Work, WorkerError, compute_all, refuse_in_worker
from manyarms.linalg.threads import n_cores

__all__ = ["CellError", "Grid", "Work", "WorkerError", "outstanding", "run"]


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
    on_interrupt: Callable[[], None] = lambda: None,
) -> Results:
    """Compute the cells that the store does not have yet.

    Args:
        grids: What is wanted; cells that several want are computed once.
        store: Where results are, and go.
        extra_methods: Methods of one's own, as file.py:Class or module:Class.
        workers: Processes; by default as many as there are cores. Results do not depend on it.
        progress: Called with the number of cells done and of all, whenever some are finished.
        on_interrupt: Called at once on Ctrl-C; the cells under way are then finished before this returns.

    Returns:
        All results in the store.

    Raises:
        CellError: When a method fails; what was finished stays.
        StaleRowsError: When rows in the store were made of other data, or by other code of one's own.
    """
    refuse_in_worker()
    wanted, places = list(grids), as_places(extra_methods)
    _check_methods(wanted, methods_by_name(places))
    own = own_files(places)
    with store.lock():
        done = store.compact()
        work = outstanding(wanted, done)
        problems = {grid.problem.label: grid.problem for grid in wanted}
        agree(store.folder, problems, own, done, (item.problem.label for item in work))
        progress(0, sum(len(item.cells) for item in work))
        if work:
            try:
                watch = Watch(progress, on_interrupt)
                compute_all(_own_first(work, set(own)), store.folder, places, workers or n_cores(), watch)
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


def _check_methods(grids: Iterable[Grid], methods: Mapping[str, Method]) -> None:
    """Refuse what does not exist before any process is started."""
    for grid in grids:
        check_names(grid.methods, methods, "method")
        for name in grid.methods:
            if not methods[name].offers(grid.kind):
                lacks = "estimate" if grid.kind == "ope" else "learn"
                raise InputError(f"{name} has no `{lacks}`, so that it cannot be run for {grid.kind!r}.")


def _own_first(work: Sequence[Work], own: set[str]) -> list[list[Work]]:
    """One small cell of each method of one's own in each task before all else: what is wrong with it shows at once."""
    small: dict[tuple[str, Kind], Work] = {}
    for item in sorted(work, key=lambda item: (item.cells[0].n, item.cells[0].instance)):
        for cell in item.cells:
            if cell.method in own:
                small.setdefault((cell.method, cell.kind), Work(item.problem, (cell,)))
    tried = {cell for item in small.values() for cell in item.cells}
    rest = (Work(item.problem, tuple(cell for cell in item.cells if cell not in tried)) for item in work)
    return [stage for stage in (list(small.values()), [item for item in rest if item.cells]) if stage]
