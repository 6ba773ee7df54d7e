"""A cell is one problem, kind, method, number of rounds and instance: its key, its outcome, and tables of outcomes."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, as_count, as_instance, check_choice
from manyarms._base.rng import generator
from manyarms.core import Estimate, LoggedData, Policy
from manyarms.errors import NonFiniteError
from manyarms.experiments.methods import Method, MethodTask
from manyarms.experiments.problem import Kind, Problem, World

RECIPE = 2
"""Version of what a cell means. Raise it when that changes: rows of two versions are never mixed."""

INTERVAL_LEVEL = 0.95
"""Level of the intervals in result rows."""


@dataclass(frozen=True, order=True)
class Cell:
    """The key of one computation: labels of a problem and a method, rounds in the log, and the number of the draw."""

    problem: str
    kind: Kind
    method: str
    n: int
    instance: int


@dataclass(frozen=True)
class Outcome:
    """The result of a cell.

    Attributes:
        value: The estimate (ope), or the true value of the learned policy (opl).
        truth: The true value of the target (ope), or of the best policy (opl).
        low: The lower end of the method's own 95 % interval; None when it has none.
        high: The upper end.
        truth_error: The standard error of `truth` in ope, where it was measured on a sample of contexts; else 0.
        seconds: CPU time of the method. It differs from run to run; everything else does not.
        peak_bytes: Peak memory beyond the task itself; measured for instance 0 only.
    """

    value: float
    truth: float
    low: float | None
    high: float | None
    n_actions: int
    dim: int
    truth_error: float
    seconds: float
    peak_bytes: int | None


Results = dict[Cell, Outcome]


@lru_cache(maxsize=2)
def draw_world(problem: Problem, instance: int) -> World:
    """The world of a cell, an instance of a problem: the same for all methods, kinds and numbers of rounds."""
    return problem.draw(generator("world", problem.label, instance))


@lru_cache(maxsize=2)
def draw_log(problem: Problem, instance: int, n: int) -> LoggedData:
    """The log of a cell: the same for all methods and kinds."""
    return draw_world(problem, instance).log(n, generator("log", problem.label, instance, n))


def compute(problem: Problem, method: Method, kind: Kind, n: int, instance: int) -> Outcome:
    """Compute one cell. The outcome does not depend on what else is computed, or in which order."""
    as_instance("problem", problem, Problem, "a problem")
    as_instance("method", method, Method, "a method")
    check_choice("kind", kind, ("ope", "opl"))
    n, instance = as_count("n", n), as_count("instance", instance, minimum=0)
    world, logs = draw_world(problem, instance), draw_log(problem, instance, n)
    eligible = world.eligible(logs)

    def run_method() -> Policy | Estimate:
        rng = generator("method", problem.label, kind, method.stream or method.name, n, instance)
        task = MethodTask(logs, world.known, eligible, rng)
        return method.learn(task) if kind == "opl" else method.estimate(task, world.target_on(logs))

    start = time.process_time()
    answer = run_method()
    seconds = time.process_time() - start
    peak = _peak_bytes(run_method) if instance == 0 else None
    low = high = None
    if kind == "opl":
        policy = as_instance(f"what {method.name} learned", answer, Policy, "a policy")
        value, truth, truth_error = world.value(policy), world.best_value, 0.0
    else:
        estimate = as_instance(f"what {method.name} estimated", answer, Estimate, "an ma.Estimate")
        value, truth, truth_error = estimate.value, world.target_value, world.target_error
        low, high = (float(end) for end in estimate.interval(INTERVAL_LEVEL))
    if not np.isfinite(value):
        raise NonFiniteError(f"the value that {method.name} {'learned' if kind == 'opl' else 'estimated'} is {value}.")
    sizes = world.known.n_actions, world.known.dim
    return Outcome(float(value), truth, low, high, *sizes, truth_error, seconds, peak)


def _peak_bytes(work: Callable[[], object]) -> int:
    """Peak allocation of a second run; tracing the first would distort its time."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def score(kind: Kind, outcome: Outcome) -> float:
    """The score of a cell: squared error (ope, less is better) or relative reward (opl; NaN if the best value is 0)."""
    if kind == "ope":
        error = outcome.value - outcome.truth
        return error * error
    return outcome.value / outcome.truth if outcome.truth else float("nan")


class Table:
    """Finished cells as a table of outcomes and scores by problem, kind, method and number of rounds.

    A score is the squared error of the estimate (ope), or the value of the learned policy over that of the best (opl).

    Args:
        results: Finished cells.
        only: The cells that count; None for all. A folder may hold more instances of one method than of another.
    """

    def __init__(self, results: Results, only: Iterable[Cell] | None = None):
        wanted = sorted(results) if only is None else sorted(results.keys() & set(only))
        self.columns: dict[tuple[str, Kind, str, int], dict[int, Outcome]] = {}
        for cell in wanted:
            key = cell.problem, cell.kind, cell.method, cell.n
            self.columns.setdefault(key, {})[cell.instance] = results[cell]

    def outcomes(self, problem: str, kind: Kind, method: str, n: int) -> Mapping[int, Outcome]:
        """Outcomes by instance; empty when nothing was run."""
        return self.columns.get((problem, kind, method, n), {})

    def rounds(self, problem: str, kind: Kind, method: str) -> list[int]:
        """Numbers of rounds that were run, ascending."""
        return sorted(n for *key, n in self.columns if key == [problem, kind, method])

    def scores(self, problem: str, kind: Kind, method: str, n: int) -> Float[Array, " m"]:
        """Scores of all instances."""
        return np.array([score(kind, outcome) for outcome in self.outcomes(problem, kind, method, n).values()])

    def gains(self, problem: str, kind: Kind, ours: str, rival: str, n: int) -> dict[int, float]:
        """The gain of ours over the rival by instance; above 0 is better, in either kind."""
        mine, theirs = (self.outcomes(problem, kind, name, n) for name in (ours, rival))
        sign = -1.0 if kind == "ope" else 1.0
        both = sorted(mine.keys() & theirs.keys())
        return {i: sign * (score(kind, mine[i]) - score(kind, theirs[i])) for i in both}
