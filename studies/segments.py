"""Do intervals by segment cover, and how often is a loser named where there is none?

python studies/segments.py [--problems 200] [--refresh docs/how-to/segments.md]

Every problem is a new world of 60 items in six categories, logged uniformly on 48 of them; 8,000 rounds in 50 segments
of very different sizes. Half of the rounds teach a model and a softmax policy, the other half evaluates it. The true
gain of each segment is known.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import manyarms as ma

N_ROUNDS, N_ACTIONS, N_LOGGED, N_SEGMENTS, DIM = 8_000, 60, 48, 50, 3
FRESH = 2_000
"""Contexts per segment behind a true gain."""

Effects = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]
"""Draws the weights of all actions, and what each segment adds to them: (K, d) and (S, K, d)."""


def no_gain(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """All actions are alike: no policy gains anything, in any segment."""
    return np.tile(rng.normal(size=DIM), (N_ACTIONS, 1)), np.zeros((N_SEGMENTS, N_ACTIONS, DIM))


def same_everywhere(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Actions differ, and segments do not."""
    return _weights(rng), np.zeros((N_SEGMENTS, N_ACTIONS, DIM))


def unknown_to_the_model(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """In each segment categories are worth something else, and the model does not know segments."""
    shift = np.zeros((N_SEGMENTS, N_ACTIONS, DIM))
    shift[:, :, 0] = rng.normal(scale=0.7, size=(N_SEGMENTS, 6))[:, np.arange(N_ACTIONS) % 6]
    return _weights(rng), shift


def _weights(rng: np.random.Generator) -> np.ndarray:
    return 0.5 * rng.normal(size=(6, DIM))[np.arange(N_ACTIONS) % 6] + 0.1 * rng.normal(size=(N_ACTIONS, DIM))


WORLDS: dict[str, Effects] = {
    "no gain anywhere": no_gain,
    "the same gain everywhere": same_everywhere,
    "segments differ, unknown to the model": unknown_to_the_model,
}


def contexts_of(segments: np.ndarray, centres: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Customers of each segment: they differ a little between segments."""
    n = len(segments)
    return np.column_stack([np.ones(n), rng.normal(size=(n, DIM - 1)) + centres[segments]])


def problem(effects: Effects, seed: int) -> tuple[ma.Evaluation, dict[str, float]]:
    """One evaluation by segment, and the true gain of each segment."""
    rng = np.random.default_rng(seed)
    weights, shift = effects(rng)
    centres = 0.3 * rng.normal(size=(N_SEGMENTS, DIM - 1))
    sizes = rng.dirichlet(np.full(N_SEGMENTS, 0.7))
    segments = rng.choice(N_SEGMENTS, size=N_ROUNDS, p=sizes)
    x, actions = contexts_of(segments, centres, rng), rng.integers(N_LOGGED, size=N_ROUNDS)
    rewards = np.einsum("nd,nd->n", x, weights[actions] + shift[segments, actions]) + rng.normal(size=N_ROUNDS)
    logs = ma.LoggedData(x, actions, rewards, np.full(N_ROUNDS, 1 / N_LOGGED), N_ACTIONS)
    train, test = logs.take(np.arange(N_ROUNDS // 2)), logs.take(np.arange(N_ROUNDS // 2, N_ROUNDS))
    prior = ma.priors.from_categories(np.arange(N_ACTIONS) % 6, dim=DIM, shared_std=1.0)
    posterior = ma.learn_prior(train, prior).posterior
    policy = ma.Softmax(posterior, temperature=0.3)
    evaluation = ma.evaluate({"softmax": policy}, test, posterior, segments=segments[N_ROUNDS // 2 :])
    gains = dict[str, float]()
    for segment in np.unique(segments[N_ROUNDS // 2 :]):
        fresh = contexts_of(np.full(FRESH, segment), centres, rng)
        means = fresh @ (weights + shift[segment]).T
        policy_value = (policy.probabilities(fresh) * means).sum(axis=1).mean()
        gains[str(segment)] = float(policy_value - means[:, :N_LOGGED].mean())
    return evaluation, gains


def rows(n_problems: int) -> Iterator[tuple[str, ...]]:
    """One row of the table per world."""
    for name, effects in WORLDS.items():
        inside, small, model_inside, losers, wrong, width, raw_width = [], [], [], [], [], [], []
        for seed in range(n_problems):
            evaluation, gains = problem(effects, seed)
            assert evaluation.segments is not None
            for row in evaluation.segments.rows:
                low, high = row.gain.interval()
                hit = low <= gains[row.segment] <= high
                inside.append(hit)
                if row.n_rounds <= 10:
                    small.append(hit)
                low, high = row.model.interval()
                model_inside.append(low <= gains[row.segment] <= high)
                width.append(row.gain.std)
                raw_width.append(row.observed_std if row.observed_std is not None else np.nan)
            named = evaluation.segments.named("softmax", "loses")
            losers.append(bool(named))
            wrong.append(any(gains[segment] >= 0 for segment in named))
        error = np.sqrt(np.mean(losers) * (1 - np.mean(losers)) / n_problems)
        yield (
            name, f"{np.mean(inside):.1%}", f"{np.mean(small):.1%}", f"{np.mean(model_inside):.1%}",
            f"{np.median(width):.3g} / {np.nanmedian(raw_width):.3g}", f"{np.mean(losers):.1%} ± {error:.1%}",
            f"{np.mean(wrong):.1%}",
        )  # fmt: skip


HEADER = (
    "world", "95 % intervals that cover", "of segments with at most 10 rounds", "by the model alone",
    "standard error / by the segment's own rewards", "reports that name a loser", "that name one wrongly",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--refresh", type=Path, help="A page whose table is replaced.")
    options = parser.parse_args()
    lines = ["| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
    print("\n".join(lines))
    for row in rows(options.problems):
        lines.append("| " + " | ".join(row) + " |")
        print(lines[-1], flush=True)
    if options.refresh is not None:
        page = options.refresh.read_text(encoding="utf-8")
        start = page.index(lines[0].split(" |")[0])
        end = page.index("\n\n", start)
        options.refresh.write_text(page[:start] + "\n".join(lines) + page[end:], encoding="utf-8")


if __name__ == "__main__":
    main()
