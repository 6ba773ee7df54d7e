"""CPU time and peak memory of daily jobs, now and at an earlier commit, each job in a process of its own.

    python benchmarks/speed.py --against COMMIT      # every job at both commits in turn, and what became slower
    python benchmarks/speed.py --jobs greedy pessimistic --rows rows.json
    python benchmarks/speed.py --against COMMIT --scale 4   # a quarter of the actions and rounds
    manyarms bench --compare old.json new.json       # rows of two runs

CPU times cover all threads of a process, without imports and without making the data. Compare them within one run only:
machines differ, and so does their load. Answers are compared too: the largest difference is in the last column.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
SCALE = int(os.environ.get("SPEED_SCALE", "1"))
"""Numbers of actions and rounds are divided by this; `--scale` sets it for the processes of all jobs."""


def logs_and_prior(n_actions: int, n_rounds: int, dim: int, *, clicks: bool = False, popular: bool = False) -> Any:
    """Rounds in 50 categories, actions uniform or by popularity, and the prior of the categories."""
    import manyarms as ma  # noqa: PLC0415  each process has its own version

    rng, n_actions, n_rounds = np.random.default_rng(0), n_actions // SCALE, n_rounds // SCALE
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


def halves(logs: Any) -> tuple[Any, Any]:
    """The first half of the rounds, to learn from, and the second, to evaluate on."""
    half = len(logs) // 2
    return logs.take(slice(0, half)), logs.take(slice(half, 2 * half))


def posterior_values(evaluation: Any) -> list[float]:
    """Values and differences by the posterior, in which versions agree; checked gains changed with their method."""
    estimates = [e for row in evaluation.rows for e in (row.value, row.difference) if e is not None]
    return [number for estimate in estimates for number in (estimate.value, estimate.posterior_std)]


def evaluate_job() -> Callable[[], Any]:
    """Evaluate greedy and pessimistic on held-out rounds, K = n = 100,000."""
    import manyarms as ma  # noqa: PLC0415

    logs, prior = logs_and_prior(100_000, 200_000, 10)
    train, test = halves(logs)
    posterior = ma.fit(train, prior)

    def job() -> Any:
        policies = {"greedy": ma.Greedy(posterior), "pessimistic": ma.Pessimistic(posterior)}
        return posterior_values(ma.evaluate(policies, test, posterior))

    return job


def estimated_job() -> Callable[[], Any]:
    """Evaluate two policies by two estimators whose propensities come from a logistic regression over 200 actions."""
    import manyarms as ma  # noqa: PLC0415

    logs, prior = logs_and_prior(200, 40_000, 10)
    train, test = halves(ma.LoggedData(logs.contexts, logs.actions, logs.rewards, n_actions=logs.n_actions))
    posterior = ma.fit(train, prior)

    def job() -> Any:
        policies = {"greedy": ma.Greedy(posterior), "softmax": ma.Softmax(posterior, 0.5)}
        evaluation = ma.evaluate(policies, test, posterior, estimators=[ma.IPS(), ma.SNIPS(), ma.DR(posterior)])
        weighted = [estimate for row in evaluation.policies for estimate in row.estimates.values()]
        return posterior_values(evaluation) + [estimate.value for estimate in weighted]

    return job


def decide_job(n_actions: int, n_rounds: int) -> Callable[[], Callable[[], Any]]:
    """Decide between the current policy and two others by clicks."""

    def prepare() -> Callable[[], Any]:
        import manyarms as ma  # noqa: PLC0415

        logs, prior = logs_and_prior(n_actions, 2 * n_rounds, 5, clicks=True)
        train, test = halves(logs)
        posterior = ma.fit(train, prior, ma.Bernoulli())

        def job() -> Any:
            policies = {"greedy": ma.Greedy(posterior), "pessimistic": ma.Pessimistic(posterior)}
            return posterior_values(ma.decide(policies, test, posterior).evaluation)

        return job

    return prepare


def averaged_job() -> Callable[[], Any]:
    """Average a click model over the uncertainty of its prior, by 16 draws; the answer is what was learned before."""
    import manyarms as ma  # noqa: PLC0415

    logs, prior = logs_and_prior(500, 5000, 5, clicks=True)
    learned = ma.learn_prior(logs, prior, ma.Bernoulli())

    def job() -> Any:
        learned.averaged(16, rng=np.random.default_rng(0)).value(ma.Uniform(logs.n_actions), logs.contexts)
        return learned.posterior.log_evidence

    return job


def learner_job(name: str) -> Callable[[], Callable[[], Any]]:
    """A gradient learner with 1,000 actions and 5,000 rounds; the answer is the objective that it reaches."""

    def prepare() -> Callable[[], Any]:
        import manyarms as ma  # noqa: PLC0415

        logs, prior = logs_and_prior(1000, 5000, 10)
        learner = ma.DRLearner(ma.fit(logs, prior)) if name == "DR" else getattr(ma, f"{name}Learner")()
        return lambda: learner.objective(learner.learn(logs), logs)

    return prepare


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
    "evaluate, estimated propensities": estimated_job,
    "decide, clicks": decide_job(983, 10_000),
    "decide, clicks, many actions": decide_job(100_000, 20_000),
    "averaged(16), clicks": averaged_job,
    "IPS learner": learner_job("IPS"),
    "SNIPS learner": learner_job("SNIPS"),
    "DR learner": learner_job("DR"),
}


def measure(name: str, answers: Path) -> dict[str, float]:
    """Measure one job in this process and save its answer."""
    import manyarms as ma  # noqa: PLC0415  each process has its own version

    # Names are imported when they are first used, which is not to count.
    for public in dir(ma):
        getattr(ma, public)
    job = JOBS[name]()
    cpu, wall = time.process_time(), time.perf_counter()
    answer = job()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    np.save(answers, np.asarray(answer, dtype=float))
    return {"cpu_s": cpu, "wall_s": wall, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6}


def in_process(name: str, source: Path, answers: Path, scale: int) -> dict[str, float]:
    """Measure one job in a process of its own with the library in `source`."""
    call = [sys.executable, __file__, "--job", name, "--answers", str(answers)]
    variables = os.environ | {"PYTHONPATH": str(source), "SPEED_SCALE": str(scale)}
    run = subprocess.run(call, check=True, capture_output=True, text=True, env=variables)
    return json.loads(run.stdout.splitlines()[-1])


def compare_rows(old: dict[str, Any], new: dict[str, Any], differences: dict[str, float]) -> None:
    """Print both runs side by side, and the jobs that became slower."""
    from manyarms.bench.speed_rows import compare_speed  # noqa: PLC0415  not where jobs run at an earlier commit

    print(f"{'job':34} {'before':>9} {'after':>9} {'ratio':>7} {'peak MB':>16} {'difference':>11}")
    for change in compare_speed(speed_rows(old), speed_rows(new)).changes:
        before, after = old[change.stage], new[change.stage]
        peaks, gap = f"{before['peak_mb']:.0f} to {after['peak_mb']:.0f}", f"{differences[change.stage]:.1g}"
        print(f"{change.stage:34} {change.before:9.2f} {change.after:9.2f} {change.ratio:7.3f} {peaks:>16} {gap:>11}")
    print(compare_speed(speed_rows(old), speed_rows(new)).sentence)


def speed_rows(rows: dict[str, Any]) -> Any:
    """The measurements as `manyarms bench` keeps them; the size of a job is part of its name."""
    from manyarms.bench.speed_rows import OWN_FORM, SpeedRow, SpeedRows  # noqa: PLC0415

    return SpeedRows(tuple(SpeedRow(name, OWN_FORM, 0, 0, 0, **row) for name, row in rows.items()))


def run_jobs(
    names: list[str], sources: list[Path], repeats: int, scale: int
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """The fastest of a few runs of every job for every source, in turn, and the differences of their answers."""
    runs: list[dict[str, Any]] = [{} for _ in sources]
    differences = dict[str, float]()
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            answers = [Path(folder) / f"{i}.npy" for i in range(len(sources))]
            for _ in range(repeats):
                for rows, source, file in zip(runs, sources, answers, strict=True):
                    row = in_process(name, source, file, scale)
                    rows[name] = min(rows.get(name, row), row, key=lambda run: run["cpu_s"])
                    print(f"  {name}: {row['cpu_s']:.2f} CPU s", file=sys.stderr, flush=True)
            if len(sources) > 1:
                first, second = (np.load(file) for file in answers)
                largest = max(1.0, float(np.abs(first).max(initial=0.0)))
                differences[name] = float(np.abs(first - second).max(initial=0.0)) / largest
    return runs, differences


def main() -> None:
    """Run jobs here, or here and at another commit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", help="a commit to compare with")
    parser.add_argument("--jobs", nargs="*", choices=JOBS, default=list(JOBS))
    parser.add_argument("--rows", type=Path, help="where to write the rows, as JSON")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--scale", type=int, default=1, help="divide numbers of actions and rounds by this")
    parser.add_argument("--job", choices=JOBS, help=argparse.SUPPRESS)
    parser.add_argument("--answers", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        print(json.dumps(measure(args.job, args.answers)))
        return
    sys.path.insert(0, str(ROOT / "src"))
    if args.against:
        with tempfile.TemporaryDirectory() as folder:
            packed = subprocess.run(
                ["git", "-C", ROOT, "archive", args.against, "src"], check=True, capture_output=True
            )
            tarfile.open(fileobj=io.BytesIO(packed.stdout)).extractall(folder, filter="data")
            (old, new), differences = run_jobs(
                args.jobs, [Path(folder) / "src", ROOT / "src"], args.repeats, args.scale
            )
        compare_rows(old, new, differences)
        save_rows(args.rows, new)
    else:
        (rows,), _ = run_jobs(args.jobs, [ROOT / "src"], args.repeats, args.scale)
        for name, row in rows.items():
            print(f"{name:30} {row['cpu_s']:9.2f} CPU s {row['peak_mb']:7.0f} MB")
        save_rows(args.rows, rows)


def save_rows(file: Path | None, rows: dict[str, Any]) -> None:
    """Write rows where they were asked for."""
    if file is not None:
        speed_rows(rows).save(file)


if __name__ == "__main__":
    main()
