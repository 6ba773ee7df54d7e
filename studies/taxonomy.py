"""A deep taxonomy on one machine: 3 levels, 20,000 nodes, 200,000 actions, d = 8, solved along the tree.

A dense latent matrix would have 160,000 rows and take 205 GB. Prints the seconds of each step and the peak memory of
the process. It then does so for half and a quarter of the nodes, each in a process of its own, which shows how the
cost grows with the number of nodes.

    python studies/taxonomy.py [--actions K] [--rounds N] [--nodes M] [--learn]
"""

from __future__ import annotations

import argparse
import subprocess
import sys

import numpy as np
from timing import Step, peak_mb

import manyarms as ma


def run(n_actions: int, n_rounds: int, n_nodes: int, dim: int, learn: bool) -> None:
    rng = np.random.default_rng(0)
    leaves = 9 * n_nodes // 10
    leaf = rng.integers(0, leaves, n_actions)
    paths = np.stack([leaf // 90, leaf // 10, leaf], axis=1)
    contexts, actions = rng.normal(size=(n_rounds, dim)), rng.integers(0, n_actions, n_rounds)
    effects = [std * rng.normal(size=(leaves, dim)) for std in (0.8, 0.4, 0.2)]
    theta = sum(effect[paths[:, level]] for level, effect in enumerate(effects))
    rewards = np.einsum("nd,nd->n", contexts, theta[actions]) + rng.normal(size=n_rounds)
    logs = ma.LoggedData(contexts, actions, rewards, n_actions=n_actions)
    print(f"{n_nodes:,} nodes, {n_actions:,} actions, {n_rounds:,} rounds, d = {dim}; before {peak_mb():.0f} MB")
    with Step("prior: from_taxonomy, with a shared effect"):
        prior = ma.priors.from_taxonomy(paths, dim=dim, effect_std=[0.8, 0.4, 0.2], action_std=0.1, shared_std=1.0)
    with Step("fit"):
        posterior = ma.fit(logs, prior, ma.Gaussian(1.0))
    with Step("greedy actions for 1,000 contexts"):
        greedy = ma.Greedy(posterior).actions(contexts[:1000])
    with Step("value of uniform on 1,000 contexts"):
        posterior.value(ma.Uniform(n_actions), contexts[:1000])
    with Step("covariances of 10,000 actions"):
        posterior.weights.action_cov(np.arange(10_000))
    print(
        f"    mean true weight of greedy's choices {np.einsum('nd,nd->n', contexts[:1000], theta[greedy]).mean():.3f}"
    )
    if learn:
        with Step("learn_prior: five standard deviations"):
            learned = ma.learn_prior(logs, ma.priors.from_taxonomy(paths, dim=dim, shared_std=1.0))
        print(learned)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actions", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=500_000)
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--learn", action="store_true", help="also learn the standard deviation of every level")
    args = parser.parse_args()
    if args.nodes:
        run(args.actions, args.rounds, args.nodes, 8, args.learn)
        return
    for nodes in (20_000, 10_000, 5_000):
        command = [sys.executable, __file__, f"--nodes={nodes}", f"--actions={args.actions}", f"--rounds={args.rounds}"]
        subprocess.run(command + ["--learn"] * args.learn, check=True)


if __name__ == "__main__":
    main()
