"""Where the model is right: coverage and width of `Checked` beside the posterior that it checks.

    python studies/checked_when_right.py
    python studies/checked_when_right.py --logging true

Rewards are drawn from the very prior that the model has. The first half of a log fits the model and gives a greedy
policy, the second half evaluates its gain over the logging policy: a softmax of rewards that are drawn from the same
prior, but are not the true ones, or else are. A policy that knows the true rewards says something about them by its
choices, which no posterior allows for; then the model is only nearly right.
"""

from __future__ import annotations

import argparse

import numpy as np

import manyarms as ma

N_CATEGORIES, DIM, EFFECT_STD, ACTION_STD, SHARPNESS, N_TRUTH = 5, 3, 0.5, 0.3, 0.5, 20_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--logging", choices=("other", "true"), default="other", help="the rewards that logging knows")
    arguments = parser.parse_args()
    print(f"{'actions':>8} {'rounds':>7} {'coverage: model':>16} {'checked':>8} {'median width, checked / model':>30}")
    for n_actions, n_rounds in ((20, 2000), (100, 5000)):
        seeds = range(arguments.problems)
        problems = np.array([problem(n_actions, n_rounds, seed, arguments.logging) for seed in seeds])
        (model, checked), ratio = problems[:, :2].mean(axis=0), np.median(problems[:, 2])
        print(f"{n_actions:>8} {n_rounds:>7,} {model:>16.1%} {checked:>8.1%} {ratio:>30.2f}")


def problem(n_actions: int, n_rounds: int, seed: int, logging: str) -> tuple[float, float, float]:
    """Whether each interval holds the true gain, and the ratio of their widths."""
    rng = np.random.default_rng(seed)
    categories = np.arange(n_actions) % N_CATEGORIES
    theta = draw_weights(categories, rng)
    known = theta if logging == "true" else draw_weights(categories, np.random.default_rng([seed, 1]))
    train, test = (draw(theta, known, n_rounds // 2, rng)[0] for _ in range(2))
    prior = ma.priors.from_categories(categories, dim=DIM, effect_std=EFFECT_STD, action_std=ACTION_STD)
    posterior = ma.fit(train, prior, ma.Gaussian(1.0))
    policy = ma.Greedy(posterior)
    everyone, shares = draw(theta, known, N_TRUTH, rng)
    rewards = everyone.contexts @ theta.T
    chosen = rewards[np.arange(N_TRUTH), policy.actions(everyone.contexts)]
    truth = float(chosen.mean() - (shares * rewards).sum(axis=1).mean())
    current = ma.Logged(test)
    estimates = (
        posterior.difference(policy, current, test.contexts),
        ma.Checked(posterior).difference(policy, current, test),
    )
    (low, high), (checked_low, checked_high) = (estimate.interval() for estimate in estimates)
    ratio = (checked_high - checked_low) / (high - low)
    return float(low <= truth <= high), float(checked_low <= truth <= checked_high), ratio


def draw_weights(categories: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The weights of all actions, from the prior."""
    effects = EFFECT_STD * rng.normal(size=(N_CATEGORIES, DIM))
    return effects[categories] + ACTION_STD * rng.normal(size=(len(categories), DIM))


def draw(theta: np.ndarray, known: np.ndarray, n: int, rng: np.random.Generator) -> tuple[ma.LoggedData, np.ndarray]:
    """Logged rounds, and the probability of every action in each, by a softmax of the rewards that logging knows."""
    contexts = np.column_stack([np.ones(n), rng.normal(size=(n, DIM - 1))])
    scores = SHARPNESS * contexts @ known.T
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    actions = np.minimum((shares.cumsum(axis=1) < rng.random(n)[:, None]).sum(axis=1), len(theta) - 1)
    rewards = np.einsum("nd,nd->n", contexts, theta[actions]) + rng.normal(size=n)
    return ma.LoggedData(contexts, actions, rewards, shares[np.arange(n), actions], len(theta)), shares


if __name__ == "__main__":
    main()
