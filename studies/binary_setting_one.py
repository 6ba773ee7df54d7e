"""The paper's synthetic setting with clicks: sDM with a Bernoulli likelihood compared with the linear-Gaussian sDM.

d = d' = 10, Σ = 3 I, Σ_a = I, uniform logging, rewards 1 with probability g(xᵀ θ_a) and otherwise 0. For every K and n
it prints the squared error (OPE) of the estimated value of a target that takes the truly best action half the time and
a random one otherwise, and the value of the greedy policy divided by that of the best policy (OPL). The truth is
computed on 2000 fresh contexts. All methods have the same prior. The linear model is misspecified, as in the paper: it
takes rewards as they are, and their standard deviation as noise; "centred" first subtracts their mean, and adds it to
the value. The tables show means over instances with standard errors; the last column is the paired gain in OPL over
"linear".

Required of the variational treatment: an OPE error at least ten times below the linear model's, and OPL no worse.

    python studies/binary_setting_one.py [--instances 20] [--actions 100 1000] [--rounds 1000 5000] [--seed 0]
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import expit

import manyarms as ma
from manyarms._base.rng import split
from manyarms.datasets import LinearEnvironment, SyntheticProblem

TREATMENTS = ("variational", "laplace")
METHODS = ("variational", "variational, probit", "laplace", "laplace, probit", "linear", "linear, centred")


class Score(NamedTuple):
    """The squared error of the target's value, and the relative value of the greedy policy, of a method on a log."""

    error: float
    relative: float


def run_instance(n_actions: int, rounds: tuple[int, ...], rng: np.random.Generator) -> dict[tuple[int, str], Score]:
    """The scores on one world, logged at every size."""
    prior_rng, world_rng, test_rng, *log_rngs = split(rng, "prior", "world", "test", *(f"log {n}" for n in rounds))
    problem = SyntheticProblem(n_actions=n_actions)
    prior = problem.draw_prior(prior_rng)
    world = problem.draw_environment(prior, world_rng)
    contexts = world.contexts(2000, test_rng)
    rewards = expit(contexts @ world.weights.T)
    best = float(rewards.max(axis=1).mean())
    truth = 0.5 * best + 0.5 * float(rewards.mean())
    target = ma.EpsilonGreedy(world.optimal_policy(), 0.5)
    results: dict[tuple[int, str], Score] = {}
    for n, log_rng in zip(rounds, log_rngs, strict=True):
        logs = clicks(world, n, log_rng)
        for name, (posterior, shift) in fits(logs, prior).items():
            chosen = ma.Greedy(posterior).actions(contexts)
            relative = float(rewards[np.arange(len(contexts)), chosen].mean()) / best
            error = posterior.value(target, logs.contexts).value + shift - truth
            results[n, name] = Score(error**2, relative)
    return results


def clicks(world: LinearEnvironment, n: int, rng: np.random.Generator) -> ma.LoggedData:
    """Uniform choices and their rewards; here the world's linear rewards are the log odds."""
    context_rng, choice_rng, click_rng = split(rng, "contexts", "choices", "clicks")
    contexts, actions = world.contexts(n, context_rng), choice_rng.integers(0, world.n_actions, n)
    rewards = click_rng.random(n) < expit(world.expected_reward(contexts, actions))
    return ma.LoggedData(contexts, actions, rewards.astype(float), np.full(n, 1 / world.n_actions), world.n_actions)


def fits(logs: ma.LoggedData, prior: ma.HierarchicalGaussian) -> dict[str, tuple[ma.RewardPosterior, float]]:
    """The posterior of each method, and a constant to add to its values."""
    posteriors: dict[str, tuple[ma.RewardPosterior, float]] = {}
    for treatment in TREATMENTS:
        posterior = ma.fit(logs, prior, ma.Bernoulli(treatment, "quadrature"))
        posteriors[treatment] = posterior, 0.0
        posteriors[f"{treatment}, probit"] = replace(posterior, likelihood=ma.Bernoulli(treatment, "probit")), 0.0
    mean, noise = float(logs.rewards.mean()), ma.Gaussian(float(logs.rewards.std()))
    centred = ma.LoggedData(logs.contexts, logs.actions, logs.rewards - mean, logs.propensities, logs.n_actions)
    posteriors["linear"] = ma.fit(logs, prior, noise), 0.0
    posteriors["linear, centred"] = ma.fit(centred, prior, noise), mean
    return posteriors


def run(n_actions: int, rounds: tuple[int, ...], n_instances: int, seed: int) -> list[dict[tuple[int, str], Score]]:
    """The scores of all instances with this number of actions."""
    rngs = np.random.default_rng([seed, n_actions]).spawn(n_instances)
    return [run_instance(n_actions, rounds, rng) for rng in rngs]


def scores(runs: list[dict[tuple[int, str], Score]], n: int, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Squared errors and relative rewards, one for each instance."""
    error, relative = np.array([results[n, name] for results in runs]).T
    return error, relative


def _show(values: np.ndarray, form: str) -> str:
    return f"{values.mean():>{form}} ± {values.std(ddof=1) / np.sqrt(len(values)):<8.2g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=20)
    parser.add_argument("--actions", type=int, nargs="+", default=(100, 1000))
    parser.add_argument("--rounds", type=int, nargs="+", default=(1000, 5000))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for n_actions in args.actions:
        runs = run(n_actions, tuple(args.rounds), args.instances, args.seed)
        print(f"\nK = {n_actions}, {args.instances} instances, seed {args.seed}")
        print(f"{'n':>6}  {'sDM':<20} {'OPE squared error':>21} {'OPL relative reward':>21} {'minus linear':>15}")
        for n in args.rounds:
            linear_error, linear_relative = scores(runs, n, "linear")
            for name in METHODS:
                error, relative = scores(runs, n, name)
                gain = "" if name == "linear" else _show(relative - linear_relative, "+10.5f")
                line = f"{n:>6}  {name:<20} {_show(error, '10.3g')} {_show(relative, '10.5f')} {gain}"
                print(line.rstrip())
            error, relative = scores(runs, n, "variational")
            ratio, gain = linear_error.mean() / error.mean(), (relative - linear_relative).mean()
            verdict = "holds" if ratio >= 10 and gain >= 0 else "FAILS"
            print(f"{n:>6}  linear error / variational error: {ratio:,.0f}; OPL gain {gain:+.4f}: {verdict}")


if __name__ == "__main__":
    main()
