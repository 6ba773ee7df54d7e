"""A million actions on one machine: time and memory of a fit and of greedy choices.

K = 1,000,000 actions in 50 categories, n = 100,000 rounds, d = 16. Prints the seconds of each step and the peak
memory of the process; asserts nothing, since times on shared machines mean little.

    python studies/large_catalog.py [--actions K] [--rounds N] [--dim D] [--categories J]
"""

from __future__ import annotations

import argparse

import numpy as np
from timing import Step, peak_mb

import manyarms as ma


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actions", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--categories", type=int, default=50)
    args = parser.parse_args()
    k, n, d, j = args.actions, args.rounds, args.dim, args.categories
    rng = np.random.default_rng(0)
    print(f"{k:,} actions in {j} categories, {n:,} rounds, d = {d}; memory after imports {peak_mb():.0f} MB")

    with Step("make the logs"):
        category = rng.integers(0, j, k)
        effects = rng.normal(size=(j, d))
        contexts, actions = rng.normal(size=(n, d)), rng.integers(0, k, n)
        rewards = np.einsum("nd,nd->n", contexts, effects[category[actions]]) + rng.normal(size=n)
        logs = ma.LoggedData(contexts, actions, rewards, n_actions=k)
    with Step("prior: mixed effects, one category per action"):
        prior = ma.priors.from_categories(category, dim=d, action_std=0.5)
    with Step("fit"):
        posterior = ma.fit(logs, prior, ma.Gaussian(noise_std=1.0))
    print(f"    {posterior}")
    candidates = contexts[:1000]
    greedy, pessimistic = ma.Greedy(posterior), ma.Pessimistic(posterior)
    with Step("greedy actions for 1,000 contexts (first call: all means)"):
        greedy.actions(candidates)
    with Step("greedy actions for 1,000 contexts"):
        greedy.actions(candidates)
    with Step("ten best actions for 1,000 contexts"):
        greedy.top_k(candidates, 10)
    with Step("value of the current policy and of uniform on all contexts"):
        for policy in (ma.Logged(logs), ma.Uniform(k)):
            posterior.value(policy, contexts)
    with Step("value of greedy on 1,000 contexts"):
        posterior.value(greedy, candidates)
    with Step("pessimistic actions for 100 contexts"):
        pessimistic.actions(candidates[:100])
    with Step("update with 10,000 more rounds"):
        posterior.update(logs.take(slice(0, 10_000)))


if __name__ == "__main__":
    main()
