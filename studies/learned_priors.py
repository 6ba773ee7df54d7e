"""Priors learned from logs: are their standard errors right, and do intervals of values under them cover?

    python studies/learned_priors.py                 both tables (minutes)
    python studies/learned_priors.py --sets 20       a quick look

First: data sets drawn from a known prior (200 seen actions in 20 categories, d = 4, 2,000 rounds). The z-score of a
learned log standard deviation is its distance from the truth divided by its own standard error.

Second: catalogs of which half was never shown, so that the prior decides much of a value. It prints how often 95 %
intervals contain the true value, with the learned prior treated as certain (plug-in) and averaged over its uncertainty.
"""

from __future__ import annotations

import argparse

import numpy as np

import manyarms as ma
from manyarms._base.rng import split
from manyarms.datasets import LinearEnvironment

TRUE_STDS = {"noise std": 1.0, "actions std": 0.5, "category std": 0.8}


def draw_world(
    n_actions: int, n_categories: int, dim: int, rng: np.random.Generator
) -> tuple[LinearEnvironment, ma.HierarchicalGaussian]:
    """A world drawn from a category prior with a mean, and the structure of that prior with scales of 1."""
    category = np.arange(n_actions) % n_categories
    start = ma.priors.from_categories(category, dim=dim)
    scales = {"effect_std": TRUE_STDS["category std"], "action_std": TRUE_STDS["actions std"]}
    truth = ma.priors.from_categories(category, dim=dim, **scales)
    theta = truth.sample(rng)[0] + np.linspace(1.0, -1.0, dim)
    return LinearEnvironment(theta, TRUE_STDS["noise std"], _contexts(dim)), start


def _contexts(dim: int):
    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        x = rng.normal(size=(n, dim))
        x[:, 0] = 1.0
        return x

    return draw


def z_scores(n_sets: int, seed: int) -> dict[str, np.ndarray]:
    """The z-score of every learned standard deviation in every data set."""
    scores: dict[str, list[float]] = {name: [] for name in TRUE_STDS}
    for rng in np.random.default_rng(seed).spawn(n_sets):
        world_rng, log_rng = split(rng, "world", "log")
        world, start = draw_world(200, 20, 4, world_rng)
        learned = ma.learn_prior(world.log(ma.Uniform(200), 2000, log_rng), start)
        for parameter in learned.parameters:
            if parameter.name in TRUE_STDS and parameter.error is not None:
                z = np.log(parameter.value / TRUE_STDS[parameter.name]) / parameter.error
                scores[parameter.name].append(float(z))
    return {name: np.array(values) for name, values in scores.items()}


def coverage(n_seen: int, n_sets: int, seed: int) -> tuple[dict[str, tuple[float, float]], int]:
    """Coverage of the true value on the given contexts, (plug-in, averaged), and the number of warnings."""
    covered: dict[str, list[tuple[bool, bool]]] = {"uniform": [], "greedy": [], "greedy - uniform": []}
    warned = 0
    for rng in np.random.default_rng(seed).spawn(n_sets):
        world_rng, log_rng, draw_rng, test_rng = split(rng, "world", "log", "draws", "test")
        world, start = draw_world(2 * n_seen, max(2, n_seen // 5), 3, world_rng)
        shown = np.where(np.arange(2 * n_seen) < n_seen, 1.0 / n_seen, 0.0)
        logs = world.log(ma.TablePolicy(shown), 5 * n_seen, log_rng)
        contexts = world.contexts(200, test_rng)
        learned = ma.learn_prior(logs, start)
        averaged = learned.averaged(64, rng=draw_rng)
        uniform, greedy = ma.Uniform(2 * n_seen), ma.Greedy(learned.posterior)
        values = {"uniform": world.value(uniform, contexts), "greedy": world.value(greedy, contexts)}
        values["greedy - uniform"] = values["greedy"] - values["uniform"]
        for name, truth in values.items():
            plain, mixed = (
                _estimate(posterior, name, uniform, greedy, contexts) for posterior in (learned.posterior, averaged)
            )
            covered[name].append((_covers(plain, truth), _covers(mixed, truth)))
            warned += name == "uniform" and any("hardly" in text for text in mixed.warnings)
    return {name: tuple(np.mean(pairs, axis=0)) for name, pairs in covered.items()}, warned


def _estimate(posterior, name: str, uniform: ma.Policy, greedy: ma.Policy, contexts: np.ndarray) -> ma.Estimate:
    if name == "greedy - uniform":
        return posterior.difference(greedy, uniform, contexts)
    return posterior.value(uniform if name == "uniform" else greedy, contexts)


def _covers(estimate: ma.Estimate, truth: float) -> bool:
    low, high = estimate.interval(of="contexts")
    return bool(low <= truth <= high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=200, help="data sets for the z-scores; twice as many for coverage")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    print(f"z-scores of learned log standard deviations, {args.sets} data sets")
    for name, z in z_scores(args.sets, args.seed).items():
        print(f"  {name:<14} mean {z.mean():+.3f}   standard deviation {z.std(ddof=1):.3f}")

    error = 100 * np.sqrt(0.95 * 0.05 / (2 * args.sets))
    print(f"\ncoverage of the true value by 95 % intervals, {2 * args.sets} data sets (standard error {error:.1f} %)")
    print(f"  {'seen actions':<14}{'value of':<18}{'plug-in':>10}{'averaged':>10}")
    for n_seen in (5, 20, 50, 200):
        shares, warned = coverage(n_seen, 2 * args.sets, args.seed + n_seen)
        for name, (plain, mixed) in shares.items():
            print(f"  {n_seen:<14}{name:<18}{100 * plain:>9.1f}%{100 * mixed:>9.1f}%")
        print(f"  {'':<14}warned in {warned} of {2 * args.sets}")


if __name__ == "__main__":
    main()
