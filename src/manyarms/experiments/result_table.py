"""Results side by side: a column of instances for each problem, task, method and number of rounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from manyarms._base.checks import Array
from manyarms.experiments.cell import Cell, Outcome, score
from manyarms.experiments.problem import Kind
from manyarms.experiments.result_store import Results


class Table:
    """Scores by problem, task, method and number of rounds.

    A score is the squared error of the estimate (ope), or the value of the learned policy over that of the best (opl).

    Args:
        results: Finished cells.
        only: Cells that count; None for all. A folder may hold more instances of one method than of another.
    """

    def __init__(self, results: Results, only: Iterable[Cell] | None = None):
        wanted = sorted(results) if only is None else sorted(results.keys() & set(only))
        self._columns: dict[tuple[str, Kind, str, int], dict[int, Outcome]] = {}
        for cell in wanted:
            key = cell.problem, cell.kind, cell.method, cell.n
            self._columns.setdefault(key, {})[cell.instance] = results[cell]

    def outcomes(self, problem: str, kind: Kind, method: str, n: int) -> Mapping[int, Outcome]:
        """By instance; empty when nothing was run."""
        return self._columns.get((problem, kind, method, n), {})

    def rounds(self, problem: str, kind: Kind, method: str) -> list[int]:
        """Numbers of rounds that were run, ascending."""
        return sorted(n for label, task, name, n in self._columns if (label, task, name) == (problem, kind, method))

    def scores(self, problem: str, kind: Kind, method: str, n: int) -> Float[Array, " m"]:
        """Of every instance."""
        return np.array([score(kind, outcome) for outcome in self.outcomes(problem, kind, method, n).values()])

    def gains(self, problem: str, kind: Kind, ours: str, rival: str, n: int) -> dict[int, float]:
        """By how much ours is better, on each instance that both were run on: above 0 is better, in either task."""
        mine, theirs = (self.outcomes(problem, kind, name, n) for name in (ours, rival))
        sign = -1.0 if kind == "ope" else 1.0
        both = sorted(mine.keys() & theirs.keys())
        return {i: sign * (score(kind, mine[i]) - score(kind, theirs[i])) for i in both}


def covered(outcomes: Iterable[Outcome]) -> Float[Array, " m"]:
    """1 where a method's own interval holds the truth, 0 where it does not; instances without interval are left out.

    A truth that was itself measured, on a sample of contexts, may miss by its own error: the half-width of the interval
    and that error, at the same level, add up in squares.
    """
    ends = [(o.low, o.high, o.truth, o.truth_error) for o in outcomes if o.low is not None and o.high is not None]
    return np.array([float(_holds(*one)) for one in ends])


def _holds(low: float, high: float, truth: float, truth_error: float) -> bool:
    middle, half = (low + high) / 2, (high - low) / 2
    return abs(truth - middle) <= float(np.hypot(half, ndtri(0.975) * truth_error))
