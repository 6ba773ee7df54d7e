"""CPU time and peak memory of daily jobs, now and at an earlier commit, each job in a process of its own.

    python benchmarks/speed.py --against COMMIT      # every job at both commits in turn, and what became slower
    python benchmarks/speed.py --jobs greedy pessimistic --rows rows.json
    python benchmarks/speed.py --compare old.json new.json

CPU times cover all threads of a process, without imports and without making the data. Compare them within one run only:
machines differ, and so does their load. Answers are compared too: the largest difference is in the last column.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
SLOWER = 1.2
"""A job with a larger ratio of CPU times has become slower; smaller differences are noise on a shared machine."""


def logs_and_prior(n_actions: int, n_rounds: int, dim: int, *, clicks: bool = False, popular: bool = False) -> Any:
    """Rounds in 50 categories, actions uniform or by popularity, and the prior of the categories."""
    import manyarms as ma  # noqa: PLC0415  each process has its own version

    rng = np.random.default_rng(0)
    category, contexts = rng.integers(50, size=n_actions), rng.normal(size=(n_rounds, dim))
    shares = 1.0 / np.arange(1, n_actions + 1)
    actions = (
        rng.choice(n_actions, n_rounds, p=shares / shares.sum()) if popular else rng.integers(n_actions, size=n_rounds)
    )
    weights = rng.normal(size=(50, dim))[category] + 0.5 * rng.normal(size=(n_actions, dim))
    predictor = np.einsum("nd,nd->n", contexts, weights[actions])
    if clicks:
        rewards = (rng.random(n_rounds) < 1 / (1 + np.exp(2.0 - 0.3 * predictor))).astype(float)
        contexts = np.column_stack([np.ones(n_rounds), contexts[:, 1:]])
    else:
        rewards = predictor + rng.normal(size=n_rounds)
    prior = ma.priors.from_categories(category, dim=dim, action_std=0.5)
    return ma.LoggedData(
        contexts, actions, rewards, propensities=np.full(n_rounds, 1 / n_actions), n_actions=n_actions
    ), prior


def choose(policy: str, k: int = 1, **data: Any) -> Callable[[], Callable[[], Any]]:
    """Choices of a policy for 1,000 contexts among a million actions; means are computed beforehand."""

    def prepare() -> Callable[[], Any]:
        import manyarms as ma  # noqa: PLC0415

        logs, prior = logs_and_prior(1_000_000, data.pop("n_rounds", 100_000), 16, **data)
        posterior = ma.fit(logs, prior)
        posterior.weights.action_mean()
        chosen = getattr(ma, policy)(posterior)
        return lambda: chosen.top_k(logs.contexts[:1000], k)

    return prepare


def draw_job() -> Callable[[], Any]:
    """Shares of 100 draws for 100 contexts among a million actions; versions draw differently, so answers are zeros."""
    import manyarms as ma  # noqa: PLC0415

    logs, prior = logs_and_prior(1_000_000, 100_000, 16)
    policy = ma.Thompson(ma.fit(logs, prior), 100, rng=np.random.default_rng(0))
    return lambda: policy.top_k(logs.contexts[:100], 1) * 0


def fit_job(learn: bool, n_actions: int, n_rounds: int, clicks: bool) -> Callable[[], Callable[[], Any]]:
    """A fit, or a learned prior with its fit; the answer is the log evidence."""

    def prepare() -> Callable[[], Any]:
        import manyarms as ma  # noqa: PLC0415

        logs, prior = logs_and_prior(n_actions, n_rounds, 10, clicks=clicks)
        likelihood = ma.Bernoulli() if clicks else ma.Gaussian(1.0)
        if learn:
            return lambda: ma.learn_prior(logs, prior, likelihood).posterior.log_evidence
        return lambda: ma.fit(logs, prior, likelihood).log_evidence

    return prepare


def evaluate_job() -> Callable[[], Any]:
    """Evaluate greedy and pessimistic on held-out rounds, K = n = 100,000."""
    import manyarms as ma  # noqa: PLC0415

    logs, prior = logs_and_prior(100_000, 200_000, 10)
    train, test = logs.take(slice(0, 100_000)), logs.take(slice(100_000, 200_000))
    posterior = ma.fit(train, prior)

    def job() -> Any:
        policies = {"greedy": ma.Greedy(posterior), "pessimistic": ma.Pessimistic(posterior)}
        table = ma.evaluate(policies, test, posterior)
        return [number for row in table.records() for number in row.values() if isinstance(number, float)]

    return job


JOBS: dict[str, Callable[[], Callable[[], Any]]] = {
    "greedy": choose("Greedy"),
    "ten best": choose("Greedy", 10),
    "pessimistic": choose("Pessimistic"),
    "greedy, popular actions": choose("Greedy", n_rounds=1_000_000, popular=True),
    "pessimistic, popular actions": choose("Pessimistic", n_rounds=1_000_000, popular=True),
    "Thompson": draw_job,
    "fit": fit_job(False, 100_000, 1_000_000, False),
    "learn_prior": fit_job(True, 100_000, 1_000_000, False),
    "fit, clicks": fit_job(False, 10_000, 100_000, True),
    "learn_prior, clicks": fit_job(True, 10_000, 100_000, True),
    "evaluate": evaluate_job,
}


def measure(name: str, answers: Path) -> dict[str, float]:
    """Measure one job in this process and save its answer."""
    job = JOBS[name]()
    cpu, wall = time.process_time(), time.perf_counter()
    answer = job()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    np.save(answers, np.asarray(answer, dtype=float))
    return {"cpu_s": cpu, "wall_s": wall, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6}


def in_process(name: str, source: Path, answers: Path) -> dict[str, float]:
    """Measure one job in a process of its own with the library in `source`."""
    call = [sys.executable, __file__, "--job", name, "--answers", str(answers)]
    run = subprocess.run(call, check=True, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(source)})
    return json.loads(run.stdout.splitlines()[-1])


def compare_rows(old: dict[str, Any], new: dict[str, Any], differences: dict[str, float]) -> list[str]:
    """Print both runs side by side; the names of the jobs that became slower."""
    print(f"{'job':30} {'before':>9} {'after':>9} {'ratio':>7} {'peak MB':>16} {'difference':>11}")
    slower = list[str]()
    for name in [name for name in old if name in new]:
        before, after = old[name], new[name]
        ratio = after["cpu_s"] / before["cpu_s"]
        peaks = f"{before['peak_mb']:.0f} to {after['peak_mb']:.0f}"
        gap = f"{differences[name]:.1g}" if name in differences else "-"
        print(f"{name:30} {before['cpu_s']:9.2f} {after['cpu_s']:9.2f} {ratio:7.3f} {peaks:>16} {gap:>11}", flush=True)
        if ratio > SLOWER:
            slower.append(name)
    print(f"slower: {', '.join(slower) or 'none'}")
    return slower


def run_jobs(names: list[str], sources: list[Path], repeats: int) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """The fastest of a few runs of every job for every source, in turn, and the differences of their answers."""
    runs: list[dict[str, Any]] = [{} for _ in sources]
    differences = dict[str, float]()
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            answers = [Path(folder) / f"{i}.npy" for i in range(len(sources))]
            for _ in range(repeats):
                for rows, source, file in zip(runs, sources, answers, strict=True):
                    row = in_process(name, source, file)
                    rows[name] = min(rows.get(name, row), row, key=lambda run: run["cpu_s"])
                    print(f"  {name}: {row['cpu_s']:.2f} CPU s", file=sys.stderr, flush=True)
            if len(sources) > 1:
                first, second = (np.load(file) for file in answers)
                scale = max(1.0, float(np.abs(first).max(initial=0.0)))
                differences[name] = float(np.abs(first - second).max(initial=0.0)) / scale
    return runs, differences


def main() -> None:
    """Run jobs, or compare the rows of two runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", help="a commit to compare with")
    parser.add_argument("--jobs", nargs="*", choices=JOBS, default=list(JOBS))
    parser.add_argument("--rows", type=Path, help="where to write the rows, as JSON")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("OLD", "NEW"), help="rows of two runs")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--job", choices=JOBS, help=argparse.SUPPRESS)
    parser.add_argument("--answers", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        print(json.dumps(measure(args.job, args.answers)))
    elif args.compare:
        sys.exit(bool(compare_rows(*(json.loads(file.read_text()) for file in args.compare), {})))
    elif args.against:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(
                ["git", "-C", ROOT, "worktree", "add", "--detach", folder, args.against],
                check=True,
                capture_output=True,
            )
            try:
                (old, new), differences = run_jobs(args.jobs, [Path(folder) / "src", ROOT / "src"], args.repeats)
            finally:
                subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", folder], check=True)
        compare_rows(old, new, differences)
        save_rows(args.rows, new)
    else:
        (rows,), _ = run_jobs(args.jobs, [ROOT / "src"], args.repeats)
        for name, row in rows.items():
            print(f"{name:30} {row['cpu_s']:9.2f} CPU s {row['peak_mb']:7.0f} MB")
        save_rows(args.rows, rows)


def save_rows(file: Path | None, rows: dict[str, Any]) -> None:
    """Write rows where they were asked for."""
    if file is not None:
        file.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
