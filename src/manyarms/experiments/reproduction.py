"""One reproduction: figures run into a folder of results, drawn from it, and put on a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from manyarms._base.files import replace_files
from manyarms.datasets.data_files import KUAIREC, MOVIELENS_1M, OPEN_BANDIT, download
from manyarms.experiments.cell import Cell, world_of
from manyarms.experiments.figure import Claim, Figure, Finding, Size
from manyarms.experiments.figure_chart import draw, save
from manyarms.experiments.head_to_head import Standing, standings
from manyarms.experiments.method_files import check_names, methods_by_name
from manyarms.experiments.methods import METHODS
from manyarms.experiments.provenance import Ledger
from manyarms.experiments.reproduction_page import Shown, page
from manyarms.experiments.result_store import Store
from manyarms.experiments.result_table import Table
from manyarms.experiments.run import outstanding, run

SOURCES = {"ml-1m": MOVIELENS_1M, "kuairec": KUAIREC, "obd": OPEN_BANDIT}
"""What can be fetched, by the folder that figures name."""


class Reproduction:
    """Results in a folder, at one size, with methods of one's own beside those of the library.

    Args:
        folder: Rows and figures; made if it is not there.
        size: How much is run.
        places: Methods of one's own, as file.py:Class or module:Class.
        redo: Methods and problems whose rows are forgotten first, by name and label.
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
            with_rows = {name for cell in found for name in (cell.method, cell.problem)}
            check_names(redo, {*METHODS, *(m.name for m in self._own), *with_rows}, "method or problem")
            self._results = self._store.compact(drop=redo)

    def run(
        self,
        figure: Figure,
        progress: Callable[[int, int], None] = lambda done, total: None,
        on_interrupt: Callable[[], None] = lambda: None,
    ) -> None:
        """Compute what is missing for a figure; see `experiments.run`."""
        grids = figure.grids(self.size, self._own)
        todo = outstanding(grids, self._results)
        if todo:
            # Here rather than in a worker: what is wrong with the data is then said before anything is run.
            world_of(todo[0].problem, todo[0].cells[0].instance)
        self._results = run(
            grids,
            self._store,
            extra_methods=self._places,
            workers=self._workers,
            progress=progress,
            on_interrupt=on_interrupt,
        )

    def draw(self, figure: Figure) -> None:
        """Its SVG and PNG."""
        save(draw(self._with_own(figure), self.table(figure)), self.folder / figure.name)

    def findings(self, figure: Figure) -> list[tuple[Claim, Finding]]:
        """What becomes of its claims."""
        return figure.findings(self.table(figure), self.size)

    def standings(self, figure: Figure) -> list[Standing]:
        """Methods of one's own in a figure, against the others."""
        names = [method.name for method in self._own]
        return standings(self._with_own(figure), names, self.table(figure), self.size)

    def caveats(self, figure: Figure) -> list[str]:
        """What the data of a figure lacks, in words: that which its rows were made of."""
        origins = Ledger.read(self.folder).problems
        found = (origins[label].caveat for label in (p.problem.label for p in figure.panels) if label in origins)
        return [caveat for caveat in dict.fromkeys(found) if caveat]

    def write_page(self, figures: Sequence[Figure], path: Path, command: str, *, everything: bool) -> None:
        """All of them on one page.

        Args:
            figures: Those to show.
            path: The page.
            command: What to run to get it again.
            everything: Whether these are all there are.
        """
        shown = [
            Shown(self._with_own(figure), self.table(figure), self.standings(figure), self.caveats(figure))
            for figure in figures
        ]
        published = everything and self.size.is_paper
        text = page(shown, self.size, self.folder, path, command, published=published)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_files({path: text.encode()})

    def prune(self, figures: Iterable[Figure]) -> int:
        """Forget all rows that these figures do not want at this size; returns how many."""
        with self._store.lock():
            before = len(self._results)
            self._results = self._store.keep(cell for figure in figures for cell in self._cells(figure))
            ledger = Ledger.read(self.folder)
            if ledger.only(self._results) != ledger:
                ledger.only(self._results).write(self.folder)
        return before - len(self._results)

    def table(self, figure: Figure) -> Table:
        """The results that a figure is made of at this size: the folder may hold more."""
        return Table(self._results, self._cells(figure))

    def _cells(self, figure: Figure) -> Iterator[Cell]:
        return (cell for grid in figure.grids(self.size, self._own) for cell in grid.cells())

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
