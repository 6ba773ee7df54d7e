"""One cell of an experiment: a problem, a method, a task, a number of rounds and an instance; and what it gave."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256

import numpy as np

from manyarms._base.checks import as_instance
from manyarms.core.estimate import Estimate
from manyarms.core.logged_data import LoggedData
from manyarms.core.policy import Policy
from manyarms.errors import NonFiniteError
from manyarms.experiments.methods import Method
from manyarms.experiments.problem import Kind, Problem, Task, World

RECIPE = 1
"""Raised whenever cells come to mean something else: rows of two recipes are not mixed."""

LEVEL = 0.95
"""Of the intervals that rows hold."""


@dataclass(frozen=True, order=True)
class Cell:
    """What is computed once, and found again by this key.

    Attributes:
        problem: The label of a problem.
        kind: "ope" or "opl".
        method: The name of a method.
        n: Rounds in the log.
        instance: Which draw of the problem, from 0.
    """

    problem: str
    kind: Kind
    method: str
    n: int
    instance: int


@dataclass(frozen=True)
class Outcome:
    """What a cell gave.

    Attributes:
        value: The estimate (ope), or the true value of the learned policy (opl).
        truth: The true value of the target (ope), or of the best policy (opl).
        low: The lower end of the method's own 95 % interval; None when it has none.
        high: The upper end.
        n_actions: K of the instance.
        dim: Its d.
        truth_error: The standard error of `truth` in ope, where that was taken on a sample of contexts; else 0.
        seconds: CPU time of the method. A measurement: it differs from run to run, all else does not.
        peak_bytes: Memory at the height of it, beyond the task; measured for instance 0 only.
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


def generator(*parts: object) -> np.random.Generator:
    """A generator that depends on these words and numbers alone."""
    digest = sha256("\x1f".join(map(str, parts)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "big"))


@lru_cache(maxsize=2)
def world_of(problem: Problem, instance: int) -> World:
    """The instance: the same for all methods, tasks and numbers of rounds."""
    return problem.draw(generator("world", problem.label, instance))


@lru_cache(maxsize=2)
def log_of(problem: Problem, instance: int, n: int) -> LoggedData:
    """Its log: the same for all methods and tasks."""
    return world_of(problem, instance).log(n, generator("log", problem.label, instance, n))


def compute(problem: Problem, method: Method, kind: Kind, n: int, instance: int) -> Outcome:
    """One cell, alone: it comes out the same in any order and company."""
    world, logs = world_of(problem, instance), log_of(problem, instance, n)

    eligible = world.eligible(logs)

    def answer() -> Policy | Estimate:
        rng = generator("method", problem.label, kind, method.name, n, instance)
        task = Task(logs, world.known, eligible, rng)
        return method.learn(task) if kind == "opl" else method.estimate(task, world.target_on(logs))

    start = time.process_time()
    found = answer()
    seconds = time.process_time() - start
    peak = _peak(answer) if instance == 0 else None
    sizes = world.known.n_actions, world.known.dim
    if kind == "opl":
        policy = as_instance(f"what {method.name} learned", found, Policy, "a policy")
        value = finite(f"the value of what {method.name} learned", world.value(policy))
        return Outcome(value, world.best_value, None, None, *sizes, 0.0, seconds, peak)
    estimate = as_instance(f"what {method.name} estimated", found, Estimate, "an ma.Estimate")
    value = finite(f"what {method.name} estimated", estimate.value)
    low, high = (float(end) for end in estimate.interval(LEVEL))
    return Outcome(value, world.target_value, low, high, *sizes, world.target_error, seconds, peak)


def finite(name: str, value: float) -> float:
    """A plain number that rows can hold."""
    if not np.isfinite(value):
        raise NonFiniteError(f"{name} is {value}.")
    return float(value)


def score(kind: Kind, outcome: Outcome) -> float:
    """Squared error (ope; less is better), or relative reward (opl; more is better; NaN where the best is worth 0)."""
    if kind == "ope":
        error = outcome.value - outcome.truth
        return error * error
    return outcome.value / outcome.truth if outcome.truth else float("nan")


def _peak(work: Callable[[], object]) -> int:
    """Bytes that a second run allocates at most; tracing would spoil the time of the first."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
