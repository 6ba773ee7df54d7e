"""One reproduction: figures run into a folder of results, drawn from it, and put on a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from manyarms._files import replace_files
from manyarms.datasets.files import KUAIREC, MOVIELENS_1M, OPEN_BANDIT, download
from manyarms.experiments.cells import world_of
from manyarms.experiments.claims import Claim, Finding
from manyarms.experiments.figures import Figure, Size
from manyarms.experiments.loading import check_names, methods_by_name
from manyarms.experiments.methods import METHODS
from manyarms.experiments.runner import outstanding, run
from manyarms.experiments.store import Store
from manyarms.experiments.table import Table
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
            found = self._store.read()
            check_names(redo, {*METHODS, *(m.name for m in self._own), *(cell.method for cell in found)}, "method")
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
        save(draw(self._with_own(figure), self.table(figure)), self.folder / figure.name)

    def findings(self, figure: Figure) -> list[tuple[Claim, Finding]]:
        """What becomes of its claims."""
        return figure.findings(self.table(figure), self.size)

    def write_page(self, figures: Sequence[Figure], path: Path, command: str) -> None:
        """All of them on one page."""
        shown = [(self._with_own(figure), self.table(figure)) for figure in figures]
        text = page(shown, self.size, self.folder, path, command)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_files({path: text.encode()})

    def table(self, figure: Figure) -> Table:
        """The results that a figure is made of at this size: the folder may hold more."""
        grids = figure.grids(self.size, self._own)
        return Table(self._results, (cell for grid in grids for cell in grid.cells()))

    def _with_own(self, figure: Figure) -> Figure:
        return figure.with_methods(self._own)


def fetch(names: Iterable[str], folder: Path | None) -> None:
    """Download these data sets from their owners, those that can be.

    Args:
        names: Folders of data, as figures name them.
        folder: Each goes into a folder of its own below; None for the cache folder.
    """
    for name in dict.fromkeys(names):
        if name in SOURCES:
            download(SOURCES[name], None if folder is None else folder / name)
