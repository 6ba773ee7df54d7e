"""Which prior helps on real ratings? MovieLens 1M by the paper's recipe, and Jester, a fully observed matrix.

    python studies/real_priors.py movielens DATA             DATA: a folder with ml-1m/, or the zip
    python studies/real_priors.py movielens-halves DATA      prior from one half of the ratings, truth from the other
    python studies/real_priors.py jester DATA                DATA: the folder or the Parquet file

MovieLens: users and movies are the two sides of a rank-5 factorisation, rewards N(xᵀθ_a, 1), 1,000 movies per instance,
uniform logging. The score is the value of the greedy policy divided by that of the best one. The Gaussian mixture of
the paper is fitted to the movie vectors, which are the true weights: it knows the answer up to its own coarseness, and
its row without any data shows how much of it. Jester: contexts come from half of the jokes, the other half are the
actions, and rewards are the real ratings. The mixture is fitted to regression weights of 100 users who appear nowhere
else. The score is the mean rating on test users.

Each method is paired with the others on the same worlds and logs. `picked` is how often `compare_priors` ranks a prior
first by its held-out score.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import manyarms as ma
from manyarms._base.rng import split
from manyarms.datasets import jester_world, load_jester, load_movielens, movielens_factors

ROUNDS = (100, 500, 1000, 2000, 5000, 10_000)


@dataclass(frozen=True)
class World:
    """An instance of either data set."""

    log: Callable[[int, np.random.Generator], ma.LoggedData]
    score: Callable[[ma.Policy], float]
    vectors: np.ndarray
    groups: ma.HierarchicalGaussian
    """Effects by genre (MovieLens) or cluster (Jester), to be learned from the logs."""
    noise_std: float


def movielens(path: str, half: bool, rng: np.random.Generator) -> Callable[[np.random.Generator], World]:
    factors = movielens_factors(load_movielens(path), rank=5, half=half, rng=rng)

    def draw(rng: np.random.Generator) -> World:
        world_rng, test_rng = split(rng, "world", "test")
        world = factors.draw_world(n_actions=1000, noise_std=1.0, rng=world_rng)
        contexts = world.environment.contexts(2000, test_rng)
        best = world.environment.optimal_value(contexts)
        return World(
            log=lambda n, log_rng: world.environment.log(ma.Uniform(1000), n, log_rng),
            score=lambda policy: world.environment.value(policy, contexts) / best,
            vectors=world.item_vectors,
            groups=ma.priors.from_tags(world.genres, dim=5, shared_std=1.0),
            noise_std=1.0,
        )

    return draw


def jester(path: str) -> Callable[[np.random.Generator], World]:
    matrix = load_jester(path)

    def draw(rng: np.random.Generator) -> World:
        world_rng, cluster_rng = split(rng, "world", "clusters")
        world = jester_world(matrix, rank=5, n_actions=50, rng=world_rng)
        return World(
            log=lambda n, log_rng: world.environment.log(ma.Uniform(50), n, log_rng),
            score=world.environment.value,
            vectors=world.item_vectors,
            groups=ma.priors.from_embeddings(
                world.item_vectors, 5, dim=world.environment.dim, shared_std=1.0, rng=cluster_rng
            ),
            noise_std=4.0,
        )

    return draw


def given_priors(world: World, rng: np.random.Generator) -> dict[str, ma.HierarchicalGaussian]:
    """The priors that exist before any logs."""
    mixture_seed = int(rng.integers(2**32))
    mixture, own = (
        ma.priors.from_embeddings(world.vectors, 5, action_variance=form, rng=np.random.default_rng(mixture_seed))
        for form in ("shared", "own")
    )
    centre, spread = world.vectors.mean(axis=0), world.vectors.var(axis=0)
    independent = ma.priors.independent(len(world.vectors), mean=centre, cov=spread)
    return {"mixture": mixture, "mixture, own variances": own, "independent": independent}


def learned_priors(world: World, logs: ma.LoggedData) -> dict[str, ma.LearnedPrior]:
    """The priors that are learned from the logs."""
    noise, plain = ma.Gaussian(world.noise_std), ma.priors.independent(len(world.vectors), dim=logs.dim)
    return {
        "groups, learned": ma.learn_prior(logs, world.groups, noise),
        "shared mean, learned": ma.learn_prior(logs, plain, noise),
    }


def run_instance(world: World, rng: np.random.Generator, rounds: tuple[int, ...]) -> dict[tuple[int, str], float]:
    """The scores on one world, logged at every size."""
    prior_rng, *log_rngs = split(rng, "prior", *(str(n) for n in rounds))
    given, noise = given_priors(world, prior_rng), ma.Gaussian(world.noise_std)
    scores: dict[tuple[int, str], float] = {}
    for n, log_rng in zip(rounds, log_rngs, strict=True):
        logs = world.log(n, log_rng)
        learned = learned_priors(world, logs)
        nothing = logs.take(slice(0, 0))
        scores[n, "mixture, no data"] = world.score(ma.Greedy(ma.fit(nothing, given["mixture"], noise)))
        for name, prior in given.items():
            scores[n, name] = world.score(ma.Greedy(ma.fit(logs, prior, noise)))
        for name, prior in learned.items():
            scores[n, name] = world.score(ma.Greedy(prior.posterior))
        table = ma.compare_priors(logs, {**given, **learned}, noise)
        for name in (*given, *learned):
            scores[n, "picked " + name] = float(table.best == name)
    return scores


def report(runs: dict[tuple[int, str], list[float]], rounds: tuple[int, ...]) -> None:
    names = list(dict.fromkeys(name for _, name in runs if not name.startswith("picked")))
    print(f"{'':<26}" + "".join(f"{n:>16,}" for n in rounds))
    for name in names:
        cells = [np.array(runs[n, name]) for n in rounds]
        print(f"{name:<26}" + "".join(f"{c.mean():>9.3f} ± {_error(c):.3f}" for c in cells))
    print("\nminus independent, paired")
    for name in names:
        if name != "independent":
            gaps = [np.array(runs[n, name]) - np.array(runs[n, "independent"]) for n in rounds]
            print(f"{name:<26}" + "".join(f"{g.mean():>+9.3f} ± {_error(g):.3f}" for g in gaps))
    print("\npicked by compare_priors")
    for name in names:
        if (rounds[0], "picked " + name) in runs:
            print(f"{name:<26}" + "".join(f"{100 * np.mean(runs[n, 'picked ' + name]):>15.0f}%" for n in rounds))


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=["movielens", "movielens-halves", "jester"])
    parser.add_argument("data")
    parser.add_argument("--instances", type=int, default=30)
    parser.add_argument("--rounds", type=int, nargs="+", default=list(ROUNDS))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    data_rng, *rngs = np.random.default_rng(args.seed).spawn(1 + args.instances)
    draw = jester(args.data) if args.which == "jester" else movielens(args.data, args.which != "movielens", data_rng)
    rounds = tuple(args.rounds)
    runs = defaultdict[tuple[int, str], list[float]](list)
    for number, rng in enumerate(rngs, start=1):
        world_rng, run_rng = split(rng, "world", "run")
        for key, value in run_instance(draw(world_rng), run_rng, rounds).items():
            runs[key].append(value)
        print(f"{number} of {args.instances}", file=sys.stderr, end="\r")
    print(f"{args.which}, {args.instances} instances, seed {args.seed}: mean ± standard error")
    report(runs, rounds)


if __name__ == "__main__":
    main()
