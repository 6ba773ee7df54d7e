"""Every estimator on a log with many actions: time and peak memory, each in its own process.

n = 100,000 rounds, K = 10,000 actions, d = 10: an n x K array would take 8 GB. Prints, asserts nothing.

    python studies/estimators_at_scale.py [--actions 10000] [--rounds 200000]
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import resource
import time
from multiprocessing.queues import Queue

import numpy as np
from scipy import sparse

import manyarms as ma

N_CATEGORIES = 50


def problem(n: int, k: int) -> tuple[ma.LoggedData, ma.RewardPosterior, np.ndarray]:
    """A log by popularity, a posterior fitted on its first half, and the categories of the actions."""
    rng = np.random.default_rng(0)
    category = rng.integers(0, N_CATEGORIES, k)
    popularity = rng.dirichlet(np.full(k, 0.5))
    logging = ma.EpsilonGreedy(ma.TablePolicy(popularity), 0.1)
    x = np.column_stack([rng.normal(size=(n, 9)), np.ones(n)])
    actions = logging.sample(x, rng)
    rewards = x[:, 0] * (category[actions] % 3) + rng.normal(size=n)
    logs = ma.LoggedData(
        x, actions, rewards - rewards.min(), logging.probability_of(x, actions), k, logging_policy=logging
    )
    one_hot = sparse.csr_array((np.ones(k), category, np.arange(k + 1)), shape=(k, N_CATEGORIES))
    prior = ma.HierarchicalGaussian(np.zeros(N_CATEGORIES * 10), 1.0, ma.MixedEffects(one_hot, 10), 0.1)
    return logs.split(0.5, by="time")[1], ma.fit(logs.split(0.5, by="time")[0], prior), category


def estimators(posterior: ma.RewardPosterior, category: np.ndarray, logs: ma.LoggedData) -> dict[str, ma.Estimator]:
    """Every estimator, by name."""
    rng = np.random.default_rng(1)
    strata = np.zeros(len(logs), dtype=int)
    embeddings = rng.normal(size=(len(category), 3)) + category[:, None]
    return {
        "DM (sDM)": ma.DM(posterior),
        "IPS": ma.IPS(),
        "snIPS": ma.SNIPS(),
        "IPS, bootstrap": ma.IPS(interval=ma.Bootstrap(200, rng=rng)),
        "DR": ma.DR(posterior),
        "DR, cross-fitted": ma.DR(ma.CrossFit(posterior.prior, rng=rng)),
        "snDR": ma.SNDR(posterior),
        "SG-DR": ma.SubGaussianDR(posterior, 0.1),
        "Switch-DR": ma.SwitchDR(posterior, 10.0),
        "DRos": ma.DRos(posterior, 10.0),
        "SG-IPS": ma.SubGaussianIPS(0.1),
        "ES": ma.ExponentialSmoothing(0.7),
        "LS": ma.LogarithmicSmoothing(0.01),
        "MIPS": ma.MIPS(category),
        "OffCEM": ma.OffCEM(category, posterior),
        "PC": ma.PolicyConvolution(embeddings, 20),
        "weighted IPS": ma.WeightedIPS(strata),
        "balanced IPS": ma.BalancedIPS([logs.logging_policy], strata),
        "replay": ma.Replay(),
    }


def run(name: str, n: int, k: int, out: Queue[tuple[float, float, float]]) -> None:
    logs, posterior, category = problem(n, k)
    # Replay can only evaluate a deterministic policy.
    target = ma.Greedy(posterior) if name == "replay" else ma.EpsilonGreedy(ma.Greedy(posterior), 0.2)
    estimator = estimators(posterior, category, logs)[name]
    start = time.process_time()
    estimate = estimator.estimate(target, logs)
    out.put((estimate.value, time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actions", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=200_000, help="half of them to learn from, half to evaluate on")
    args = parser.parse_args()
    small = problem(1000, 100)
    names = list(estimators(small[1], small[2], small[0]))
    context = mp.get_context("spawn")
    print(f"evaluated on {args.rounds // 2:,} rounds, {args.actions:,} actions; memory of the whole process")
    for name in names:
        out: Queue[tuple[float, float, float]] = context.Queue()
        process = context.Process(target=run, args=(name, args.rounds, args.actions, out))
        process.start()
        value, cpu, memory = out.get()
        process.join()
        print(f"{name:<18} value {value:8.4f}   {cpu:7.2f} s CPU   peak memory {memory:6.0f} MB", flush=True)


if __name__ == "__main__":
    main()
