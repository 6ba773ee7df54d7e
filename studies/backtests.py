"""Do forecasts of the next day hold, and does the drift alarm keep its promise?

Worlds are drawn from the prior, logged for 20 days, and backtested with the true prior from the second day on: without
drift, and with a shift of all rewards from the eleventh day on by half a standard deviation of a single reward. Then
the Open Bandit logs of two policies, if MANYARMS_DATA has them, whose prior is learned from the first day.

    python studies/backtests.py [--problems 300] [--seed 0]
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np

import manyarms as ma
from manyarms.datasets import load_open_bandit

DAYS, PER_DAY, K = 20, 60, 20
SHIFTED_FROM, SHIFT = 10, 0.5


def draw_backtest(rng: np.random.Generator, *, clicks: bool = False, drift: bool = False) -> ma.Backtest:
    """One world, logged, and forecast from its second day on."""
    n, category = DAYS * PER_DAY, np.arange(K) % 4
    prior = ma.priors.from_categories(category, dim=2, effect_std=0.7, action_std=0.5)
    weights = prior.sample(rng)[0]
    contexts, actions = np.column_stack([np.ones(n), rng.normal(size=n)]), rng.integers(K, size=n)
    day = np.repeat(np.arange(DAYS), PER_DAY)
    eta = (contexts * weights[actions]).sum(axis=1) + SHIFT * (day >= SHIFTED_FROM) * drift
    rewards = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float) if clicks else eta + rng.normal(size=n)
    logs = ma.LoggedData(contexts, actions, rewards, n_actions=K, times=day)
    likelihood = ma.Bernoulli() if clicks else ma.Gaussian(1.0)
    model = ma.fit(logs.take(np.flatnonzero(day == 0)), prior, likelihood)
    return ma.backtest(logs.take(np.flatnonzero(day > 0)), model, categories=category, period=1.0)


def run(n_problems: int, seed: int, *, clicks: bool = False) -> dict[str, float]:
    """Coverage of all rounds and of categories, false alarms, and the alarms and their delay under drift."""
    steady = [draw_backtest(rng, clicks=clicks) for rng in np.random.default_rng(seed).spawn(n_problems)]
    drifting = [
        draw_backtest(rng, clicks=clicks, drift=True) for rng in np.random.default_rng(seed).spawn(n_problems // 3 + 1)
    ]
    alarms = [next((a for a in result.alarms if a.series == "all"), None) for result in drifting]
    delays = [int(alarm.period) - SHIFTED_FROM + 1 for alarm in alarms if alarm is not None]
    return {
        "coverage": float(np.mean([result.coverage for result in steady])),
        "coverage by category": float(np.mean([result.coverage_of("category") or 0.0 for result in steady])),
        "false alarms": float(np.mean([any(a.series == "all" for a in result.alarms) for result in steady])),
        "false alarms by category": float(
            np.mean([any(a.series == "category" for a in result.alarms) for result in steady])
        ),
        "alarms under drift": float(np.mean([alarm is not None for alarm in alarms])),
        "median days to the alarm": float(np.median(delays)) if delays else np.nan,
    }


def open_bandit(folder: Path) -> ma.Backtest:
    """The logs of both policies of the campaign "all", one after the other within each day."""
    parts = [load_open_bandit(folder, campaign="all", policy=policy) for policy in ("random", "bts")]
    rounds = [part.logged_data("position") for part in parts]
    _, groups = np.unique(parts[0].item_features["item_feature_1"].astype(str), return_inverse=True)
    columns = {
        name: np.concatenate([getattr(own, name) for own in rounds]) for name in ("contexts", "actions", "rewards")
    }
    times = np.concatenate([part.timestamps for part in parts])
    logs = ma.LoggedData(**columns, n_actions=rounds[0].n_actions, times=times)
    names = np.repeat(["random", "bts"], [len(part) for part in parts])
    return ma.backtest(logs, likelihood=ma.Bernoulli(), categories=groups, logged_by=names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for clicks in (False, True):
        print(
            f"{'clicks' if clicks else 'Gaussian rewards'}, {args.problems} problems of {DAYS} days, seed {args.seed}"
        )
        for name, value in run(args.problems, args.seed, clicks=clicks).items():
            print(f"  {name:<26} {value:.3g}")
    folder = Path(os.environ.get("MANYARMS_DATA", "")) / "obd"
    if folder.exists():
        result = open_bandit(folder)
        shares = {name: result.coverage_of(name) for name in ("all", "category", "logged by")}
        print(result)
        print(shares)


if __name__ == "__main__":
    main()
