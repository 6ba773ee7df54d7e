"""Do heavy-tailed action effects help? Scales of their own for actions and categories, on real data sets.

    python studies/heavy_tails.py [--logs 3]       MANYARMS_DATA: a folder with multilabel/

A learned prior gives the effects of all actions one covariance Σ_a, which shrinks the few large effects most. A scale
mixture gives action a the covariance τ_a Σ_a. With Student effects of ν degrees of freedom, EM sets τ_a to
(ν + q_a) / (ν + d), where q_a is the expected square δ_aᵀ Σ_a⁻¹ δ_a of the effect; the other steps are the usual
closed-form fit. `by category` gives all actions of a category the same scale.

For every prior: the true value of its greedy policy, what the model says of it, and what it says of a good policy from
elsewhere. The sets are those that choices may be based on.
"""

from __future__ import annotations

import argparse
import os
from itertools import product
from pathlib import Path

import numpy as np
from decisions import DEVELOPMENT, LOGGING, World, load_world, logging_policy, write_log

import manyarms as ma

STEPS = 8
ROUNDS = (1000, 5000)
MIXTURES = {"Student, ν = 3": (3.0, False), "Student, ν = 10": (10.0, False), "by category": (3.0, True)}


def mixture(
    learned: ma.LearnedPrior, logs: ma.LoggedData, degrees: float, by_category: np.ndarray | None
) -> ma.RewardPosterior:
    """The posterior under a scale mixture, by EM around the closed-form fit."""
    prior, posterior = learned.prior, learned.posterior
    n_actions, dim, everything = prior.n_actions, prior.dim, np.arange(prior.n_actions)
    covariance = prior.action_cov(everything[:1])[0]
    covariance = covariance + 1e-10 * np.trace(covariance) / dim * np.eye(dim)
    precision = np.linalg.inv(covariance)
    noise = posterior.likelihood.noise_std
    gram, sums = np.zeros((n_actions, dim, dim)), np.zeros((n_actions, dim))
    np.add.at(gram, logs.actions, logs.contexts[:, :, None] * logs.contexts[:, None, :] / noise**2)
    np.add.at(sums, logs.actions, logs.contexts * logs.rewards[:, None] / noise**2)
    seen, scales = np.bincount(logs.actions, minlength=n_actions) > 0, np.ones(n_actions)
    for _ in range(STEPS):
        centre = prior.mixing.apply(posterior.weights.latent_mean[None], everything)[0] + prior.offset_of(everything)
        spread = np.linalg.inv(precision / scales[:, None, None] + gram)
        effects = np.einsum("kij,kj->ki", spread, sums - np.einsum("kij,kj->ki", gram, centre))
        squares = np.einsum("ki,ij,kj->k", effects, precision, effects) + np.einsum("ij,kji->k", precision, spread)
        if by_category is None:
            scales = np.where(seen, (degrees + squares) / (degrees + dim), 1.0)
        else:
            total = np.bincount(by_category, seen * squares)[by_category]
            scales = (dim * degrees + total) / (dim * (degrees + np.bincount(by_category, seen)[by_category]))
        scaled = ma.HierarchicalGaussian(
            prior.latent_mean, prior.latent_cov, prior.mixing, scales[:, None, None] * covariance, prior.offset
        )
        posterior = ma.fit(logs, scaled, posterior.likelihood)
    return posterior


def run_log(world: World, kind: str, n: int, rng: np.random.Generator) -> dict[str, tuple[float, float, float]]:
    """For every prior: the greedy policy's true value, the model's value of it, and the model's value of the other."""
    logs, _ = write_log(world, logging_policy(world, kind), n // 2, rng)
    prior = ma.priors.from_categories(world.categories, dim=world.contexts.shape[1])
    learned = ma.learn_prior(logs, prior, ma.Gaussian(max(0.05, float(logs.rewards.std()))))
    posteriors = {"one covariance": learned.posterior}
    for name, (degrees, grouped) in MIXTURES.items():
        posteriors[name] = mixture(learned, logs, degrees, world.categories if grouped else None)
    rows, outside = np.arange(len(world.contexts)), world.scores.argmax(axis=1)
    figures = dict[str, tuple[float, float, float]]()
    for name, posterior in posteriors.items():
        expected = posterior.expected_reward(world.contexts)
        greedy = expected.argmax(axis=1)
        truth, says, of_other = world.rewards[rows, greedy], expected[rows, greedy], expected[rows, outside]
        figures[name] = float(truth.mean()), float(says.mean()), float(of_other.mean())
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=3, help="logs per set, size and logging policy")
    args = parser.parse_args()
    data = os.environ.get("MANYARMS_DATA")
    print("| set | rounds | prior | greedy earns | the model says | another policy earns | the model says |")
    print("|---|---|---|---|---|---|---|")
    for name, n in product(DEVELOPMENT, ROUNDS):
        world = load_world(name, Path(data) if data else None)
        other = world.rewards[np.arange(len(world.rewards)), world.scores.argmax(axis=1)].mean()
        results = [
            run_log(world, kind, n, np.random.default_rng([n, place, log]))
            for (place, kind), log in product(enumerate(LOGGING), range(args.logs))
        ]
        for prior in results[0]:
            truth, says, of_other = np.mean([result[prior] for result in results], axis=0)
            print(f"| {name} | {n:,} | {prior} | {truth:.3f} | {says:.3f} | {other:.3f} | {of_other:.3f} |", flush=True)


if __name__ == "__main__":
    main()
