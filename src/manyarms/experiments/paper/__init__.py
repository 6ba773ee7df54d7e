"""Every figure by name: `manyarms reproduce --list`."""

from __future__ import annotations

from manyarms.experiments.figure import Figure
from manyarms.experiments.paper.figures_coverage_cost import COST, COVERAGE
from manyarms.experiments.paper.figures_misspecified import MISSPECIFIED_LIKELIHOOD, MISSPECIFIED_PRIOR
from manyarms.experiments.paper.figures_real_data import (
    digits,
    jester,
    kuairec,
    movielens,
    movielens_epsilon_greedy,
    movielens_halves,
    open_bandit,
)
from manyarms.experiments.paper.figures_synthetic import (
    GREEDY_OR_PESSIMISTIC,
    GRID_OPE,
    GRID_OPL,
    LOGGING_EPSILON_GREEDY,
    SCALING_K,
    SYNTHETIC_OPE,
    SYNTHETIC_OPL,
)

SYNTHETIC = (
    SYNTHETIC_OPL,
    SYNTHETIC_OPE,
    SCALING_K,
    GRID_OPL,
    GRID_OPE,
    MISSPECIFIED_LIKELIHOOD,
    MISSPECIFIED_PRIOR,
    GREEDY_OR_PESSIMISTIC,
    LOGGING_EPSILON_GREEDY,
)


def figures(data: str | None = None) -> dict[str, Figure]:
    """All of them by name: those of the paper in its order, then those beyond it.

    Args:
        data: The folder that real data lies in; None for the cache folder.
    """
    real = (make(data) for make in (movielens, movielens_epsilon_greedy, kuairec))
    more = (make(data) for make in (movielens_halves, jester, open_bandit))
    return {figure.name: figure for figure in (*SYNTHETIC, *real, COST, COVERAGE, *more, digits())}
