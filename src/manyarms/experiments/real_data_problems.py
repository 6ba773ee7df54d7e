"""Problems made of real data: MovieLens, KuaiRec, Jester, the Open Bandit Dataset, and digits as bandit feedback."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from jaxtyping import Float

from manyarms import datasets
from manyarms._base.checks import Array
from manyarms._base.rng import generator, split
from manyarms.core import HierarchicalGaussian, LoggedData, Policy
from manyarms.errors import DataFileError, InputError
from manyarms.experiments.problem import (
    Known,
    Logging,
    Origin,
    Problem,
    ScoredWorld,
    World,
    clusters_of,
    digest_of,
    greedy_by,
)
from manyarms.policies import EpsilonGreedy, TablePolicy, Uniform
from manyarms.priors import from_categories, from_embeddings, from_tags, independent

Target = Literal["hindsight", "context"]
Loaded = TypeVar("Loaded")

N_COMPONENTS = 5
"""J, the components of the Gaussian mixture in the structured prior."""


class MatrixWorld(World):
    """A world of a real-data problem: ratings by real users, logged uniformly over the actions each user has rated.

    The target "hindsight" takes, half the time, the action that the user really rated best: more than any policy or
    reward model can know from contexts. "context" takes the best action by the actions' vectors, like a policy that
    someone could run.
    """

    def __init__(self, environment: datasets.MatrixEnvironment, known: Known, target: Target = "hindsight"):
        self.environment, self.known = environment, known
        best = environment.optimal_policy() if target == "hindsight" else greedy_by(known.vectors)
        self.target = EpsilonGreedy(best, 0.5)
        self.target_value, self.best_value = environment.value(self.target), environment.optimal_value()

    def log(self, n: int, rng: np.random.Generator) -> LoggedData:
        return self.environment.log(Uniform(self.environment.n_actions), n, rng)

    def value(self, policy: Policy) -> float:
        return self.environment.value(policy)

    def eligible(self, logs: LoggedData) -> Any:
        return self.environment.eligible(logs.groups)


def _known_by_vectors(
    vectors: Float[Array, "K d"],
    noise_std: float,
    learnable: HierarchicalGaussian,
    rng: np.random.Generator,
    n_components: int = N_COMPONENTS,
) -> Known:
    """Knowledge by the paper's recipe, from vectors of the actions in the space of θ.

    sDM: a Gaussian mixture of them, μ and Σ its means and variances, w_a the memberships, Σ_a the mean variance. DM
    (Bayes): their mean and variance. MIPS: as many k-means clusters; PC: the vectors.
    """
    seed = int(rng.integers(1 << 62))
    prior, own = (
        from_embeddings(vectors, n_components, action_variance=form, rng=np.random.default_rng(seed))
        for form in ("shared", "own")
    )
    return Known(
        prior=prior,
        unstructured=independent(len(vectors), mean=vectors.mean(axis=0), cov=vectors.var(axis=0)),
        noise_std=noise_std,
        vectors=vectors,
        learnable=learnable,
        make_clusters=lambda: clusters_of(vectors, np.random.default_rng(seed), n_components),
        make_other_priors=lambda: {"own variances": own},
        cluster_seed=seed,
    )


def data_path(data: str | None, name: str) -> Path | None:
    """The folder of the real data of a problem: one of its own below the one named, or that one; None for the cache."""
    if data is None:
        return None
    inner = Path(data) / name
    return inner if inner.exists() else Path(data)


@lru_cache(maxsize=8)
def load_once(loader: Callable[..., Loaded], data: str | None, name: str, **options: str) -> Loaded:
    """The real data of a folder or zip, None for the cache folder; each data set is kept in memory."""
    return loader(data_path(data, name), **options)


def shortfall(**counts: tuple[int, int]) -> str:
    """The caveat of a problem on real data, from (actual, published) counts of its data; empty when all agree."""
    wrong = [f"{actual:,} {name} instead of {full:,}" for name, (actual, full) in counts.items() if actual != full]
    return f"not the full data: {', '.join(wrong)}" if wrong else ""


@dataclass(frozen=True)
class MovieLensProblem(Problem):
    """Random movies; contexts and θ from a factorisation of the ratings; see `movielens_factors`.

    The log is uniform, or takes the truly best movie half the time. With `half`, the prior's vectors come from other
    ratings than the truth. The target "best" takes the truly best movie half the time; "prior" takes the best by the
    prior means of sDM instead, like a policy that was chosen before the log.
    """

    data: str | None = None
    logging: Logging = "uniform"
    half: bool = False
    target: Literal["best", "prior"] = "best"
    n_components: int = N_COMPONENTS
    n_actions: int = 1000

    @property
    def label(self) -> str:
        words = [f"MovieLens K={self.n_actions} d=5", self.logging, *["prior from other ratings"] * self.half]
        words += ["target by prior"] * (self.target == "prior")
        return ", ".join(words + [f"J={self.n_components}"] * (self.n_components != N_COMPONENTS))

    def draw(self, rng: np.random.Generator) -> ScoredWorld:
        world_rng, known_rng, test_rng = split(rng, "world", "known", "test")
        world = _movielens(self.data, self.half).draw_world(n_actions=self.n_actions, noise_std=1.0, rng=world_rng)
        learnable = from_tags(world.genres, dim=5, shared_std=1.0)
        known = _known_by_vectors(world.item_vectors, 1.0, learnable, known_rng, self.n_components)
        by_prior = EpsilonGreedy(greedy_by(known.prior.action_mean()), 0.5) if self.target == "prior" else None
        return ScoredWorld(world.environment, known, self.logging, test_rng, by_prior)

    def origin(self) -> Origin:
        loaded = load_once(datasets.load_movielens, self.data, "ml-1m")
        users, movies, ratings = loaded.users, loaded.movies, loaded.ratings
        digest = digest_of(users, movies, loaded.user_rows, loaded.movie_rows, ratings, loaded.genres)
        caveat = shortfall(ratings=(len(ratings), 1_000_209), users=(len(users), 6_040), movies=(len(movies), 3_706))
        return Origin(digest, caveat)


@lru_cache(maxsize=2)
def _movielens(data: str | None, half: bool) -> datasets.MovieLensFactors:
    ratings = load_once(datasets.load_movielens, data, "ml-1m")
    return datasets.movielens_factors(ratings, rank=5, half=half, rng=generator("movielens", half))


@dataclass(frozen=True)
class KuaiRecProblem(Problem):
    """Watch ratios of real users: nothing is well specified for anyone.

    Contexts have an intercept beside the factors of the user, and vectors the item's mean prior score beside its
    factors. With all of KuaiRec, contexts and vectors come from the big matrix, rewards from the small one. With the
    published part of the small matrix alone, half of its cells, drawn anew for each instance, replace the big matrix
    and the other half the small one; a user's eligible videos are those with a cell in the second half. Half of the
    users are logged; policies are evaluated on the others. `MatrixWorld` says what the targets are.
    """

    data: str | None = None
    partial: bool = True
    target: Target = "hindsight"

    @property
    def label(self) -> str:
        words = ["KuaiRec rank=5 with item means", *["partial"] * self.partial]
        return ", ".join(words + ["target by context"] * (self.target == "context"))

    def draw(self, rng: np.random.Generator) -> MatrixWorld:
        cells_rng, world_rng, known_rng = split(rng, "cells", "world", "known")
        data = load_once(datasets.load_kuairec, self.data, "kuairec")
        small = data.matrix(data.small)
        if data.partial:
            prior, rewards = datasets.split_cells(small, cells_rng)
        elif data.big is None:
            problem = "big_matrix.csv is missing beside small_matrix.csv. The vectors of users and videos come from it."
            raise DataFileError(problem)
        else:
            prior, rewards = data.matrix(data.big), small
        world = datasets.kuairec_world(rewards, prior, data.categories, rank=5, item_means=True, rng=world_rng)
        topics = np.array([categories[0] if categories else -1 for categories in world.categories])
        learnable = from_categories(topics, dim=world.environment.dim, shared_std=1.0)
        known = _known_by_vectors(world.item_vectors, float(prior.data.std()), learnable, known_rng)
        _, clusters = np.unique(topics, return_inverse=True)
        known = replace(known, make_clusters=lambda: clusters.astype(np.int64), clusters_given=True)
        return MatrixWorld(world.environment, known, self.target)

    def origin(self) -> Origin:
        loaded = load_once(datasets.load_kuairec, self.data, "kuairec")
        matrices = [loaded.small] if loaded.big is None else [loaded.small, loaded.big]
        cells = [part for matrix in matrices for part in (matrix.user_rows, matrix.video_rows, matrix.watch_ratio)]
        return Origin(digest_of(loaded.users, loaded.videos, *cells, loaded.categories))


@dataclass(frozen=True)
class JesterProblem(Problem):
    """Jokes rated from -10 to 10; contexts come from half of the jokes, the other half are the actions."""

    data: str | None = None

    @property
    def label(self) -> str:
        return "Jester K=50 d=6"

    def draw(self, rng: np.random.Generator) -> MatrixWorld:
        world_rng, learnable_rng, known_rng = split(rng, "world", "learnable", "known")
        world = datasets.jester_world(
            load_once(datasets.load_jester, self.data, "jester"), rank=5, n_actions=50, rng=world_rng
        )
        vectors = world.item_vectors
        learnable = from_embeddings(vectors, N_COMPONENTS, dim=world.environment.dim, shared_std=1.0, rng=learnable_rng)
        return MatrixWorld(world.environment, _known_by_vectors(vectors, 4.0, learnable, known_rng))

    def origin(self) -> Origin:
        ratings = load_once(datasets.load_jester, self.data, "jester")
        n_users, n_jokes = ratings.shape
        return Origin(digest_of(ratings), shortfall(users=(n_users, 7_200), jokes=(n_jokes, 100)))


@dataclass(frozen=True)
class DigitsProblem(Problem):
    """Handwritten digits (scikit-learn, 1,797 images): name one of ten digits, and learn only whether it was right."""

    @property
    def label(self) -> str:
        return "digits K=10 d=65"

    def draw(self, rng: np.random.Generator) -> MatrixWorld:
        from sklearn.datasets import load_digits  # noqa: PLC0415

        world_rng, cluster_rng = split(rng, "world", "clusters")
        pixels, labels = load_digits(return_X_y=True)
        contexts = np.column_stack([np.ones(len(pixels)), pixels / 16.0])
        environment = datasets.ClassificationEnvironment(contexts, labels, rng=world_rng)
        prior = independent(10, dim=contexts.shape[1])
        vectors = np.eye(10)
        known = Known(prior, prior, 0.3, vectors, prior, lambda: clusters_of(vectors, cluster_rng, 5))
        return MatrixWorld(environment, known)


CLICK_RATE = 0.005
"""The prior mean of a click rate: below one per cent on the web."""


class OpenBanditWorld(World):
    """A world of a real-data problem: estimate the value of the bts policy from the log of the random policy.

    The target shows each item as often as bts did at the same position in a random half of its log. Its true value is
    not known: `target_value` is the click rate of the other half, with an error of its own.
    """

    def __init__(self, random: datasets.OpenBanditLog, bts: datasets.OpenBanditLog, rng: np.random.Generator):
        half = rng.permutation(len(bts)) < len(bts) // 2
        self._logs = random.logged_data("position")
        K, d = self._logs.n_actions, self._logs.dim
        counts = np.zeros((d, K))
        np.add.at(counts, (bts.positions[half], bts.actions[half]), 1.0)
        self._shares = counts / counts.sum(axis=1, keepdims=True)
        rest = bts.clicks[~half]
        self.target_value, self.target_error = float(rest.mean()), float(rest.std() / np.sqrt(len(rest)))
        self.best_value = float("nan")
        groups = random.item_features["item_feature_1"]
        _, clusters = np.unique(groups.astype(str), return_inverse=True)
        prior = from_categories(groups, dim=d, effect_std=0.002, action_std=0.002, shared_std=CLICK_RATE)
        self.known = Known(
            prior=prior,
            unstructured=independent(K, mean=np.full(d, CLICK_RATE), cov=CLICK_RATE**2),
            noise_std=float(np.sqrt(CLICK_RATE * (1 - CLICK_RATE))),
            vectors=np.eye(len(np.unique(clusters)))[clusters],
            learnable=prior,
            make_clusters=lambda: clusters.astype(np.int64),
            clusters_given=True,
        )

    def log(self, n: int, rng: np.random.Generator) -> LoggedData:
        return self._logs.take(np.sort(rng.permutation(len(self._logs))[:n]))

    def target_on(self, logs: LoggedData) -> Policy:
        return TablePolicy(self._shares[logs.contexts.argmax(axis=1)])

    def value(self, policy: Policy) -> float:
        raise InputError("the value of a learned policy is not known on these logs.", 'Run evaluation only ("ope").')


@dataclass(frozen=True)
class OpenBanditProblem(Problem):
    """Estimate the value of bts from the log of random, campaign "all" of the Open Bandit Dataset."""

    data: str | None = None

    @property
    def label(self) -> str:
        return "Open Bandit, all"

    def draw(self, rng: np.random.Generator) -> OpenBanditWorld:
        (half_rng,) = split(rng, "half")
        return OpenBanditWorld(self._log_of("random"), self._log_of("bts"), half_rng)

    def origin(self) -> Origin:
        logs = self._log_of("random"), self._log_of("bts")
        rounds = [part for log in logs for part in (log.items, log.actions, log.positions, log.clicks)]
        return Origin(digest_of(*rounds, logs[0].propensities, logs[0].item_features["item_feature_1"]))

    def _log_of(self, policy: str) -> datasets.OpenBanditLog:
        return load_once(datasets.load_open_bandit, self.data, "obd", policy=policy)
