"""Clicks at scale: K = 100,000 actions, n = 1,000,000 rounds, d = 10, a click rate of about 2 %.

Prints the time of a Gaussian and of a variational fit, per step, and the peak memory of the process.

    python studies/clicks_at_scale.py [--actions K] [--rounds N]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from timing import Step, peak_mb

import manyarms as ma


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actions", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1_000_000)
    args = parser.parse_args()
    K, n, d = args.actions, args.rounds, 10
    rng = np.random.default_rng(0)
    category = rng.integers(0, 50, K)
    prior = ma.priors.from_categories(category, dim=d, effect_std=0.3, action_std=0.2)
    prior += ma.priors.independent(K, mean=np.array([-4.0] + [0.0] * (d - 1)), cov=0.0)
    theta = prior.sample(rng)[0]
    contexts, actions = rng.normal(size=(n, d)), rng.integers(0, K, n)
    contexts[:, 0] = 1.0
    chance = 1.0 / (1.0 + np.exp(-np.einsum("nd,nd->n", contexts, theta[actions])))
    clicks = (rng.random(n) < chance).astype(float)
    logs = ma.LoggedData(contexts, actions, clicks, n_actions=K)
    print(f"{K:,} actions, {n:,} rounds, d = {d}, click rate {100 * clicks.mean():.2f} %; before {peak_mb():.0f} MB")
    with Step("Gaussian fit"):
        ma.fit(logs, prior, ma.Gaussian(0.15))
    began = time.process_time()
    with Step("variational fit"):
        posterior = ma.fit(logs, prior, ma.Bernoulli())
    steps = len(posterior.trace)
    each = (time.process_time() - began) / steps
    print(f"    {steps - 1} steps, {each:.2f} s CPU per solve; converged: {posterior.converged}")
    with Step("value of the current policy on 10,000 contexts"):
        value = posterior.value(ma.Logged(logs.take(slice(0, 10_000))), contexts[:10_000])
    print(f"    {value}, true {chance[:10_000].mean():.5f}")
    with Step("greedy actions for 1,000 contexts"):
        ma.Greedy(posterior).actions(contexts[:1000])


if __name__ == "__main__":
    main()
