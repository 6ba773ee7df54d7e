"""Do 95 % intervals cover 95 %? Worlds are drawn from the prior, logged, fitted, and compared with their truth.

Every problem has its own numbers of actions, features, latent dimensions and rounds, its own mixing (dense, or category
effects) and scales. For the greedy, pessimistic, uniform, softmax and logged policies, and for greedy minus logged:
the share of intervals from `posterior_std` that contain the value on the given contexts (should be 93.5 to 96.5 %), and
of those from `std` that contain the value in the population (should be at least 94 %).

    python studies/interval_coverage.py [--problems 2000] [--seed 0]
"""

from __future__ import annotations

import argparse

import numpy as np

import manyarms as ma
from manyarms._base.rng import split
from manyarms.datasets import LinearEnvironment

POPULATION = 20_000
"""Fresh contexts that represent the population: so many that their own error is negligible."""


def draw_prior(rng: np.random.Generator) -> tuple[ma.HierarchicalGaussian, float]:
    """A prior of random size, structure and scale, and a noise standard deviation."""
    n_actions, dim, noise_std = int(rng.integers(2, 80)), int(rng.integers(1, 6)), float(rng.uniform(0.3, 2.0))
    if rng.random() < 0.5:
        latent_dim = int(rng.integers(0, 6))
        mixing = rng.uniform(-1, 1, (n_actions, dim, latent_dim))
    else:
        n_effects = int(rng.integers(1, 8))
        mixing = ma.MixedEffects(np.eye(n_effects)[rng.integers(0, n_effects, n_actions)], dim)
        latent_dim = mixing.latent_dim
    mean = rng.uniform(-1, 1, latent_dim)
    prior = ma.HierarchicalGaussian(mean, rng.uniform(0.1, 3.0), mixing, rng.uniform(0.0, 1.0))
    return prior, noise_std


def draw_estimates(rng: np.random.Generator) -> dict[str, tuple[ma.Estimate, float, float]]:
    """For each quantity of a problem: the estimate, the truth on the contexts, and the truth in the population."""
    prior_rng, world_rng, log_rng, test_rng = split(rng, "prior", "world", "log", "test")
    prior, noise_std = draw_prior(prior_rng)
    centre = prior_rng.normal(size=prior.dim)
    world = LinearEnvironment(
        prior.sample(world_rng)[0], noise_std, lambda r, n: centre + r.normal(size=(n, prior.dim))
    )
    logs = world.log(ma.Uniform(prior.n_actions), int(prior_rng.integers(50, 400)), log_rng)
    posterior = ma.fit(logs, prior, ma.Gaussian(noise_std))
    population, uniform = world.contexts(POPULATION, test_rng), ma.Uniform(prior.n_actions)
    logged = ma.Logged(logs)
    policies = {
        "greedy": ma.Greedy(posterior),
        "pessimistic": ma.Pessimistic(posterior),
        "softmax": ma.Softmax(posterior, temperature=1.0),
        "uniform": uniform,
        "logged": logged,
    }
    estimates: dict[str, tuple[ma.Estimate, float, float]] = {}
    truth: dict[str, tuple[float, float]] = {}
    for name, policy in policies.items():
        # The log came from the uniform policy: in the population, that is the logged policy.
        everywhere = uniform if policy is logged else policy
        truth[name] = world.value(policy, logs.contexts), world.value(everywhere, population)
        estimates[name] = posterior.value(policy, logs.contexts), *truth[name]
    gain = posterior.difference(policies["greedy"], logged, logs.contexts)
    on_contexts, in_population = np.subtract(truth["greedy"], truth["logged"])
    estimates["greedy - logged"] = gain, float(on_contexts), float(in_population)
    return estimates


def run_problem(rng: np.random.Generator) -> dict[str, tuple[bool, bool]]:
    """For each quantity, whether the interval for the contexts covers, and whether that for the population does."""
    return {name: covers(*answer) for name, answer in draw_estimates(rng).items()}


def covers(estimate: ma.Estimate, on_contexts: float, in_population: float, level: float = 0.95) -> tuple[bool, bool]:
    """Whether each of the two intervals contains its true value."""
    low, high = estimate.interval(level, of="contexts")
    wide_low, wide_high = estimate.interval(level)
    # An interval of zero width (no noise) covers when it is right up to rounding.
    slack = 1e-9 * (1 + abs(on_contexts))
    return low - slack <= on_contexts <= high + slack, wide_low <= in_population <= wide_high


def run(n_problems: int, seed: int) -> dict[str, tuple[float, float]]:
    """Coverage of each quantity over all problems: (on the contexts, in the population)."""
    results = [run_problem(rng) for rng in np.random.default_rng(seed).spawn(n_problems)]
    shares = {name: np.mean([result[name] for result in results], axis=0) for name in results[0]}
    return {name: (float(share[0]), float(share[1])) for name, share in shares.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    shares = run(args.problems, args.seed)
    error = np.sqrt(0.95 * 0.05 / args.problems)
    print(f"{args.problems} problems, seed {args.seed}; standard error of a coverage of 95 %: {error:.2%}")
    print(f"{'quantity':<18} {'on the contexts':>16} {'in the population':>18}")
    for name, (contexts, population) in shares.items():
        print(f"{name:<18} {contexts:>16.1%} {population:>18.1%}")


if __name__ == "__main__":
    main()
