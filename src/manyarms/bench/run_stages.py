"""`run_stages`: times every stage at several sizes, in one run with the limits of the machine."""

from __future__ import annotations

import platform
import tempfile
import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from manyarms._base.checks import check_choice
from manyarms._base.progress import Progress, reporter
from manyarms._version import __version__
from manyarms.bench.bench_problem import BenchProblem, BenchSize
from manyarms.bench.machine_limits import CallTime, MachineLimits, measure_limits, time_call
from manyarms.bench.speed_rows import SpeedRow, SpeedRows
from manyarms.bench.stages import MOST_FLOATS, OURS, READING, STAGES, Stage

PEERS = ("obp", "skdr-eval", "bayesianbandits", "statsmodels")


class BenchPlan(NamedTuple):
    """The sizes to time stages at: a middle, and curves through it along K, n and d.

    Attributes:
        middle: The size that the curves have in common.
        actions: K along its curve.
        rounds: n along its curve.
        dims: d along its curve.
        patience: A form that took more CPU seconds than this is not run at larger sizes.
        repeats: The most runs of a form at one size; forms that take long are run once.
    """

    middle: BenchSize
    actions: tuple[int, ...]
    rounds: tuple[int, ...]
    dims: tuple[int, ...]
    patience: float
    repeats: int

    def sizes(self, share: float) -> list[BenchSize]:
        """All sizes, each once and the smaller ones first, with this share of the actions and rounds."""
        K, n, d = self.middle
        sizes = [(k, n, d) for k in self.actions] + [(K, m, d) for m in self.rounds] + [(K, n, e) for e in self.dims]
        scaled = [BenchSize(*size).shared(share) for size in sizes]
        return sorted(dict.fromkeys(scaled), key=lambda size: float(np.prod(np.asarray(size, dtype=float))))


SMALL = BenchPlan(BenchSize(1000, 10_000, 8), (100, 1000, 10_000), (2000, 10_000, 50_000), (4, 8, 16), 0.3, 2)
"""About a minute."""
FULL = BenchPlan(
    BenchSize(10_000, 100_000, 10),
    (1000, 10_000, 100_000, 1_000_000),
    (10_000, 100_000, 1_000_000),
    (4, 10, 32),
    10.0,
    3,
)
"""For the docs: some twenty minutes."""
LONG = 0.3
"""Runs of a form stop when they have taken so many CPU seconds together."""


def run_stages(
    stages: Iterable[str] = (),
    *,
    plan: BenchPlan = SMALL,
    seed: int = 0,
    progress: Progress = False,
) -> SpeedRows:
    """Time stages of the library beside plain forms, other libraries where installed, and the limits of this machine.

    Every form computes the same thing from the same arrays, and the answers are compared. Times are CPU seconds of all
    threads in this process, the least of a few runs. Memory is measured in a run of its own.

    Args:
        stages: Names of stages; none for all.
        plan: The sizes.
        seed: The seed of the made-up rounds.
        progress: True shows a bar; a function is called as progress(done, total).
    """
    names = list(dict.fromkeys(stages)) or list(STAGES)
    for name in names:
        check_choice("stage", name, tuple(STAGES))
    work = [(name, size) for name in names for size in plan.sizes(STAGES[name].share)]
    limits, rows = measure_limits(), list[SpeedRow]()
    slow = dict[str, list[tuple[str, BenchSize]]]()
    with tempfile.TemporaryDirectory() as folder, reporter(progress, len(work), "timing") as report:
        for done, (name, size) in enumerate(work):
            report(done, len(work))
            problem = BenchProblem(size, seed, Path(folder))
            rows += _time_stage(name, STAGES[name], problem, plan, limits, slow.setdefault(name, []))
        report(len(work), len(work))
    return SpeedRows(tuple(rows), limits._asdict(), _made_with())


def _time_stage(
    name: str,
    stage: Stage,
    problem: BenchProblem,
    plan: BenchPlan,
    limits: MachineLimits,
    slow: list[tuple[str, BenchSize]],
) -> list[SpeedRow]:
    """The rows of a stage at one size; forms that took long are added to `slow`, and are skipped where it has them."""
    size, rows, ours = problem.size, list[SpeedRow](), None
    limit = None if stage.limit is None else limits.seconds(*map(float, stage.limit(size)))
    for form_name, form in stage.forms(problem).items():
        if form.floats > MOST_FLOATS or any(form_name == other and _within(past, size) for other, past in slow):
            continue
        times, answer = _fastest(form.call, plan.repeats)
        if times.cpu_s > plan.patience and form_name != OURS:
            slow.append((form_name, size))
        numbers = form.answer(answer)
        ours = numbers if form_name == OURS else ours
        peak = peak_mb(form.call) if times.cpu_s < plan.patience / 3 else None
        gap = None if form_name == OURS or stage.tolerance is None or numbers is None else difference(ours, numbers)
        rows.append(SpeedRow(name, form_name, *size, *times, peak, limit, gap))
    if limit is None:
        # Where the work is reading, the limit is the time of only reading.
        reading = next((row.cpu_s for row in rows if row.form == READING), None)
        rows = [replace(row, limit_s=reading) for row in rows if row.form != READING]
    return rows


def _within(small: BenchSize, large: BenchSize) -> bool:
    return all(a <= b for a, b in zip(small, large, strict=True))


def _fastest(call: Callable[[], Any], repeats: int) -> tuple[CallTime, Any]:
    """The least CPU and wall time of a few runs, and the answer of the last one."""
    runs, answer = list[CallTime](), None
    while len(runs) < repeats and sum(run.cpu_s for run in runs) < LONG:
        run, answer = time_call(call)
        runs.append(run)
    return CallTime(min(run.cpu_s for run in runs), min(run.wall_s for run in runs)), answer


def peak_mb(call: Callable[[], Any]) -> float:
    """The most memory that Python and NumPy held during a call beyond what they held before, in MB."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def difference(first: Any, second: Any) -> float:
    """The largest difference of two answers, divided by the largest number in the first."""
    a, b = np.asarray(first, dtype=float).ravel(), np.asarray(second, dtype=float).ravel()
    scale = float(np.abs(a).max(initial=0.0)) or 1.0
    return float(np.abs(a - b).max(initial=0.0)) / scale


def _made_with() -> dict[str, str]:
    """Versions of the library, of Python, NumPy and the installed peers, and the kind of processor."""
    versions = {"manyarms": __version__, "python": platform.python_version()}
    for name in ("numpy", "scipy", "pyarrow", *PEERS):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {**versions, "machine": f"{platform.machine()} {platform.system()}"}
