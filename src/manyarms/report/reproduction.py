"""One reproduction: figures run into a folder of results, drawn from it, and put on a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from manyarms._files import replace_files
from manyarms.datasets.files import KUAIREC, MOVIELENS_1M, OPEN_BANDIT, download
from manyarms.errors import InputError
from manyarms.experiments.cells import world_of
from manyarms.experiments.claims import Claim, Finding, Table
from manyarms.experiments.figures import Figure, Size
from manyarms.experiments.loading import methods_by_name
from manyarms.experiments.methods import METHODS
from manyarms.experiments.runner import outstanding, run
from manyarms.experiments.store import Store
from manyarms.report.chart import draw, save
from manyarms.report.page import page

SOURCES = {"ml-1m": MOVIELENS_1M, "kuairec": KUAIREC, "obd": OPEN_BANDIT}
"""What can be fetched, by the folder that figures name."""


class Reproduction:
    """Results in a folder, at one size, with methods of one's own beside those of the library.

    Args:
        folder: Rows and figures; made if it is not there.
        size: How much is run.
        places: Methods of one's own, as file.py:Class or module:Class.
        redo: Methods whose rows are forgotten first.
        workers: Processes; None for one a core.
    """

    def __init__(
        self,
        folder: Path,
        size: Size,
        places: tuple[str, ...] = (),
        redo: tuple[str, ...] = (),
        workers: int | None = None,
    ):
        self.folder, self.size, self._places, self._workers = folder, size, places, workers
        self._own = [method for name, method in methods_by_name(places).items() if name not in METHODS]
        self._store = Store(folder)
        with self._store.lock():
            self._results = self._store.compact(drop=redo)

    def run(self, figure: Figure, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Compute what is missing for a figure."""
        grids = figure.grids(self.size, self._own)
        todo = outstanding(grids, self._results)
        if todo:
            # Here rather than in a worker: what is wrong with the data is then said before anything is run.
            world_of(todo[0].problem, todo[0].cells[0].instance)
        self._results = run(grids, self._store, extra_methods=self._places, workers=self._workers, progress=progress)

    def draw(self, figure: Figure) -> None:
        """Its SVG and PNG."""
        save(draw(self._with_own(figure), Table(self._results)), self.folder / figure.name)

    def findings(self, figure: Figure) -> list[tuple[Claim, Finding]]:
        """What becomes of its claims."""
        return figure.findings(Table(self._results), self.size)

    def write_page(self, figures: Sequence[Figure], path: Path, command: str) -> None:
        """All of them on one page."""
        shown = [self._with_own(figure) for figure in figures]
        text = page(shown, Table(self._results), self.size, self.folder, path, command)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_files({path: text.encode()})

    def _with_own(self, figure: Figure) -> Figure:
        return figure.with_methods(self._own)


def fetch(names: Iterable[str]) -> None:
    """Download these data sets from their owners into the cache folder."""
    for name in dict.fromkeys(names):
        if name not in SOURCES:
            raise InputError(f"{name} cannot be fetched: its owners offer no file of the kind that is read here.")
        download(SOURCES[name])
