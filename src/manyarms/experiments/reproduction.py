"""A reproduction: the figures by name, run into a folder of results, drawn from it, and put on a page."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from manyarms._base.files import replace_files
from manyarms._version import __version__
from manyarms.datasets.data_files import KUAIREC, MOVIELENS_1M, OPEN_BANDIT, download
from manyarms.experiments import paper_grids as grids
from manyarms.experiments import paper_robustness as robustness
from manyarms.experiments import paper_synthetic as synthetic
from manyarms.experiments.cell import Cell, Table, draw_world
from manyarms.experiments.changed_verdicts import changed_table
from manyarms.experiments.claim import Claim, ClaimResult
from manyarms.experiments.figure import Figure, HeadToHead, Size, head_to_heads
from manyarms.experiments.methods import METHODS, check_method_names
from manyarms.experiments.paper_real_data import real_data_figures
from manyarms.experiments.paper_text import NO_FIGURES
from manyarms.experiments.reproduction_page import (
    Instances,
    cell_text,
    comparison_table,
    cost_table,
    exceptions,
    folded_lines,
    instances_table,
    missing_lines,
    own_table,
    page_text,
    paper_table,
    verdict_marks,
)
from manyarms.experiments.result_store import Provenance, Store
from manyarms.experiments.run import missing_cells, run
from manyarms.experiments.user_methods import with_user_methods

SOURCES = {"ml-1m": MOVIELENS_1M, "kuairec": KUAIREC, "obd": OPEN_BANDIT}
"""Data that can be downloaded, by the folder that figures name."""


def figures(data: str | None = None) -> dict[str, Figure]:
    """Every figure by name: those of the paper, then those beyond it; `data` is the folder of the real data, if any."""
    real = real_data_figures(data)
    ordered = (
        real["figure-2"],
        *(synthetic.SYNTHETIC_OPL, synthetic.SYNTHETIC_OPE, synthetic.SCALING_K),
        *(synthetic.GRID_OPL, synthetic.GRID_OPE),
        *(robustness.MISSPECIFIED_LIKELIHOOD, grids.CLICKS_GRID_OPL, grids.CLICKS_GRID_OPE),
        *(robustness.MISSPECIFIED_PRIOR, grids.PRIOR_GRID_OPL, grids.PRIOR_GRID_OPE),
        *(synthetic.GREEDY_OR_PESSIMISTIC, synthetic.LOGGING_EPSILON_GREEDY, grids.GREEDY_GRID_OPL),
        *(real["movielens"], real["movielens-sizes"], real["movielens-epsilon-greedy"]),
        real["kuairec"],
        *(robustness.CLICK_TREATMENT, robustness.COST, robustness.COVERAGE, synthetic.SET_SIZES),
        *(real["movielens-halves"], real["jester"], real["open-bandit"], real["digits"]),
    )
    return {figure.name: figure for figure in ordered}


class Reproduction:
    """A reproduction in a folder of results, at one size, with user methods beside those of the library.

    Args:
        folder: The folder for rows and figures; made if it does not exist.
        specs: User methods, as file.py:Class or module:Class.
        redo: Methods and problems whose rows are deleted first, by name and label.
        workers: Processes; None for one per core.
    """

    def __init__(
        self, folder: Path, size: Size, specs: Sequence[str] = (), redo: Sequence[str] = (), workers: int | None = None
    ):
        self.folder, self.size, self._specs, self._workers = folder, size, tuple(specs), workers
        self._user_methods = [method for name, method in with_user_methods(self._specs).items() if name not in METHODS]
        self._store = Store(folder)
        with self._store.lock():
            with_rows = {name for cell in self._store.read() for name in (cell.method, cell.problem)}
            check_method_names(redo, {*METHODS, *(m.name for m in self._user_methods), *with_rows}, "method or problem")
            self._results = self._store.compact(drop=redo)

    def run(self, figure: Figure, **hooks: Callable[..., None]) -> None:
        """Compute the missing cells of a figure; the hooks are those of `experiments.run`."""
        grids = figure.grids(self.size, self._user_methods)
        missing = missing_cells(grids, self._results)
        if missing:
            # Here rather than in a worker: errors in the data are then reported before anything is run.
            draw_world(missing[0].problem, missing[0].cells[0].instance)
        self._results = run(grids, self._store, extra_methods=self._specs, workers=self._workers, **hooks)

    def draw(self, figure: Figure) -> None:
        """Draw a figure as SVG, PDF and PNG."""
        from manyarms.experiments.figure_chart import draw_figure, save_figure  # noqa: PLC0415  slow to import

        chart = draw_figure(figure.with_methods(self._user_methods), self.table(figure))
        save_figure(chart, self.folder / figure.name)

    def test_claims(self, figure: Figure) -> list[tuple[Claim, ClaimResult]]:
        """Test the claims of a figure."""
        return figure.test_claims(self.table(figure), self.size)

    def head_to_heads(self, figure: Figure) -> list[HeadToHead]:
        """Compare the user methods in a figure with the others."""
        names = [method.name for method in self._user_methods]
        return head_to_heads(figure.with_methods(self._user_methods), names, self.table(figure), self.size)

    def caveats(self, figure: Figure) -> list[str]:
        """Caveats: what is missing from the data behind the rows of a figure, in words."""
        origins = Provenance.read(self.folder).problems
        labels = dict.fromkeys(panel.problem.label for panel in figure.panels)
        caveats = dict.fromkeys(origins[label].caveat for label in labels if label in origins)
        return [caveat for caveat in caveats if caveat]

    def write_page(self, figures: Sequence[Figure], path: Path, command: str, *, everything: bool) -> None:
        """Put figures, or `everything`, on one page in Markdown, with the command that makes it again."""
        tested = [(figure, claim, result) for figure in figures for claim, result in self.test_claims(figure)]
        published = everything and self.size.is_paper
        lines = [
            *("# The paper, reproduced", ""),
            f"Written by `{command}` (manyarms {__version__}) from the rows beside the figures: edits here are lost. "
            "The paper is Aouali, Brunel, Rohde and Korba, *Bayesian Off-Policy Evaluation and Learning for Large "
            f"Action Spaces*, AISTATS 2025. {NO_FIGURES}",
            "",
            self._cpu_time(figures),
            "",
            *(f"**{figure.name}: {caveat}.**\n" for figure in figures for caveat in self.caveats(figure)),
            *missing_lines({figure.name: self._instances(figure) for figure in figures}),
            page_text("how-verdicts-are-made"),
            page_text("methods-beyond-the-paper"),
            *([page_text("decided-after-results"), *changed_table(tested)] if published else ()),
            *self._reruns(),
            *paper_table(tested, everything),
            *own_table(tested),
        ]
        for figure in figures:
            lines += self._section(figure, path)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_files({path: ("\n".join(lines).rstrip() + "\n").encode()})

    def _cpu_time(self, figures: Iterable[Figure]) -> str:
        """The CPU time that the methods took for the rows of figures, in words."""
        cells = {cell for figure in figures for cell in self._cells(figure)} & self._results.keys()
        seconds = np.array([self._results[cell].seconds for cell in cells])
        hours = float(np.nansum(seconds)) / 3600
        spent = f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.1f} minutes"
        return f"The {len(cells):,} rows of these figures took the methods {spent} of CPU time."

    def _reruns(self) -> list[str]:
        """Which rows were made by a later revision of a method than the first."""
        names = sorted(Provenance.read(self.folder).revisions)
        if not names:
            return []
        text = f"Run anew since the first edition of this page, with tuned settings: {', '.join(names)}. "
        return [text + "The rows of methods that did not change are those of that edition.", ""]

    def _section(self, figure: Figure, path: Path) -> list[str]:
        """A figure on the page, with its claims and costs."""
        link = Path(os.path.relpath(self.folder / f"{figure.name}.svg", path.parent)).as_posix()
        vector = link.removesuffix(".svg") + ".pdf"
        lines = [
            f"## {figure.name}",
            "",
            f"**{figure.title}.** " + (f"In the paper: {figure.where}." if figure.where else "Not in the paper."),
            "",
            f"![{figure.title}]({link})",
            "",
            f"[As PDF]({vector})",
            "",
            *(f"**Note: this is {caveat}.**\n" for caveat in self.caveats(figure)),
        ]
        for pair in self.head_to_heads(figure):
            title = f"**{cell_text(pair.method)} against each method: {cell_text(pair.panel.title)}** ({pair.unit}, "
            title += "paired; + where it is better, − where it is worse, each by a one-sided t-test at 5 %)"
            rows = comparison_table([(f"over {rival}", c, c.decision()) for rival, c in pair.comparisons])
            lines += [title, "", *rows, ""]
        for claim, result in self.test_claims(figure):
            lines += self._claim_lines(claim, result)
        lines += folded_lines("instances of each method", instances_table(self._instances(figure)))
        if figure.note:
            lines += [f"*Settings.* {figure.note}", ""]
        costs = cost_table(figure.with_methods(self._user_methods), self.table(figure))
        return lines + folded_lines("time and memory of each method", costs)

    def _claim_lines(self, claim: Claim, result: ClaimResult) -> list[str]:
        """A claim in the section of its figure: verdicts, the paper's words, exceptions, remark and comparisons."""
        verdict, averaged = verdict_marks(result)
        verdicts = verdict if result.averaged_verdict is None else f"{verdict}; averaged over n: {averaged}"
        quoted = "".join(f" The paper: “{quote}”" for quote in claim.quotes)
        lines = [f"**{verdicts}**: {claim.text} ({result}){quoted}", ""]
        lines += [cell_text(words), ""] if (words := exceptions(result.comparisons)) else []
        # Remarks were written for the paper-size run and hold for no other.
        lines += [claim.remark, ""] if claim.remark and self.size.is_paper else []
        lines += [f"Not testable: {claim.untestable}", ""] if claim.untestable else []
        comparisons = (*result.comparisons, *result.averages)
        rows = comparison_table([(c.title, c, result.decision(c)) for c in comparisons])
        return lines + folded_lines("comparisons", rows)

    def _instances(self, figure: Figure) -> Instances:
        """The instances of each method of a figure, and those wanted at this size."""
        table, counts = self.table(figure), dict[tuple[str, str], tuple[int, int, int]]()
        wanted: dict[tuple[str, str, str], int] = {}
        for grid in figure.grids(self.size, self._user_methods):
            for method in grid.methods:
                wanted[grid.problem.label, grid.kind, method] = grid.instances
        for panel in figure.with_methods(self._user_methods).panels:
            label, kind = panel.problem.label, panel.kind
            for method in panel.methods:
                run = [len(table.outcomes(label, kind, method, n)) for n in panel.rounds_at(self.size)]
                counts[panel.title, method] = min(run), max(run), wanted[label, kind, method]
        return counts

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


def download_data(figures: Iterable[Figure], folder: Path | None) -> None:
    """Download the data that the figures of a `Reproduction` need from its owners, to where they will look for it.

    Each data set goes into a folder of its own below the one named; None stands for the cache folder.
    """
    for name in dict.fromkeys(figure.data for figure in figures):
        if name in SOURCES:
            download(SOURCES[name], None if folder is None else folder / name)
