"""A reproduction: the figures by name, run into a folder of results, drawn from it, and put on a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from manyarms._base.files import replace_files
from manyarms.datasets.data_files import KUAIREC, MOVIELENS_1M, OPEN_BANDIT, download
from manyarms.experiments import paper_real_data as real_data
from manyarms.experiments import paper_robustness as robustness
from manyarms.experiments import paper_synthetic as synthetic
from manyarms.experiments.cell import Cell, Table, draw_world
from manyarms.experiments.claim import Claim, ClaimResult
from manyarms.experiments.figure import Figure, HeadToHead, Size, head_to_heads
from manyarms.experiments.figure_chart import draw_chart, save_chart
from manyarms.experiments.methods import METHODS, check_names, methods_by_name
from manyarms.experiments.reproduction_page import PageFigure, reproduction_page
from manyarms.experiments.result_store import Provenance, Store
from manyarms.experiments.run import missing_cells, run

SOURCES = {"ml-1m": MOVIELENS_1M, "kuairec": KUAIREC, "obd": OPEN_BANDIT}
"""Data that can be downloaded, by the folder that figures name."""


def figures(data: str | None = None) -> dict[str, Figure]:
    """Every figure by name: those of the paper in its order, then those beyond it.

    Args:
        data: The folder of the real data; None for the cache folder.
    """
    ordered = (
        *(
            synthetic.SYNTHETIC_OPL,
            synthetic.SYNTHETIC_OPE,
            synthetic.SCALING_K,
            synthetic.GRID_OPL,
            synthetic.GRID_OPE,
        ),
        *(robustness.MISSPECIFIED_LIKELIHOOD, robustness.MISSPECIFIED_PRIOR),
        *(synthetic.GREEDY_OR_PESSIMISTIC, synthetic.LOGGING_EPSILON_GREEDY),
        *(real_data.movielens(data), real_data.movielens_epsilon_greedy(data), real_data.kuairec(data)),
        *(robustness.COST, robustness.COVERAGE),
        *(real_data.movielens_halves(data), real_data.jester(data), real_data.open_bandit(data), real_data.digits()),
    )
    return {figure.name: figure for figure in ordered}


class Reproduction:
    """Results in a folder, at one size, with user methods beside those of the library.

    Args:
        folder: The folder for rows and figures; made if it does not exist.
        size: How much is run.
        specs: User methods, as file.py:Class or module:Class.
        redo: Methods and problems whose rows are deleted first, by name and label.
        workers: Processes; None for one per core.
    """

    def __init__(
        self,
        folder: Path,
        size: Size,
        specs: tuple[str, ...] = (),
        redo: tuple[str, ...] = (),
        workers: int | None = None,
    ):
        self.folder, self.size, self._specs, self._workers = folder, size, specs, workers
        self._user_methods = [method for name, method in methods_by_name(specs).items() if name not in METHODS]
        self._store = Store(folder)
        with self._store.lock():
            with_rows = {name for cell in self._store.read() for name in (cell.method, cell.problem)}
            check_names(redo, {*METHODS, *(m.name for m in self._user_methods), *with_rows}, "method or problem")
            self._results = self._store.compact(drop=redo)

    def run(
        self,
        figure: Figure,
        progress: Callable[[int, int], None] = lambda done, total: None,
        on_interrupt: Callable[[], None] = lambda: None,
    ) -> None:
        """Compute the missing cells of a figure; see `experiments.run`."""
        grids = figure.grids(self.size, self._user_methods)
        missing = missing_cells(grids, self._results)
        if missing:
            # Here rather than in a worker: errors in the data are then reported before anything is run.
            draw_world(missing[0].problem, missing[0].cells[0].instance)
        self._results = run(
            grids,
            self._store,
            extra_methods=self._specs,
            workers=self._workers,
            progress=progress,
            on_interrupt=on_interrupt,
        )

    def draw(self, figure: Figure) -> None:
        """Draw a figure as SVG and PNG."""
        save_chart(draw_chart(self._with_user_methods(figure), self.table(figure)), self.folder / figure.name)

    def test_claims(self, figure: Figure) -> list[tuple[Claim, ClaimResult]]:
        """Test the claims of a figure."""
        return figure.test_claims(self.table(figure), self.size)

    def head_to_heads(self, figure: Figure) -> list[HeadToHead]:
        """Compare the user methods in a figure with the others."""
        names = [method.name for method in self._user_methods]
        return head_to_heads(self._with_user_methods(figure), names, self.table(figure), self.size)

    def caveats(self, figure: Figure) -> list[str]:
        """Caveats: what is missing from the data behind the rows of a figure, in words."""
        origins = Provenance.read(self.folder).problems
        labels = dict.fromkeys(panel.problem.label for panel in figure.panels)
        caveats = dict.fromkeys(origins[label].caveat for label in labels if label in origins)
        return [caveat for caveat in caveats if caveat]

    def write_page(self, figures: Sequence[Figure], path: Path, command: str, *, everything: bool) -> None:
        """Put figures on one page.

        Args:
            figures: The figures to show.
            path: The page.
            command: The command that makes it again.
            everything: Whether these are all the figures there are.
        """
        shown = [
            PageFigure(
                self._with_user_methods(figure), self.table(figure), self.head_to_heads(figure), self.caveats(figure)
            )
            for figure in figures
        ]
        published = everything and self.size.is_paper
        text = reproduction_page(shown, self.size, self.folder, path, command, published=published)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_files({path: text.encode()})

    def prune(self, figures: Iterable[Figure]) -> int:
        """Delete all rows that these figures do not need at this size; returns how many."""
        with self._store.lock():
            before = len(self._results)
            self._results = self._store.keep(cell for figure in figures for cell in self._cells(figure))
            record = Provenance.read(self.folder)
            if record.only(self._results) != record:
                record.only(self._results).write(self.folder)
        return before - len(self._results)

    def table(self, figure: Figure) -> Table:
        """The results of a figure at this size; the folder may hold more."""
        return Table(self._results, self._cells(figure))

    def _cells(self, figure: Figure) -> Iterator[Cell]:
        return (cell for grid in figure.grids(self.size, self._user_methods) for cell in grid.cells())

    def _with_user_methods(self, figure: Figure) -> Figure:
        return figure.with_methods(self._user_methods)


def download_data(names: Iterable[str], folder: Path | None) -> None:
    """Download these data sets from their owners, where that is possible.

    Args:
        names: Data folders, as figures name them.
        folder: Each goes into a folder of its own below this one; None for the cache folder.
    """
    for name in dict.fromkeys(names):
        if name in SOURCES:
            download(SOURCES[name], None if folder is None else folder / name)
