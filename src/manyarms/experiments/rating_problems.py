"""Problems made of real ratings: MovieLens, KuaiRec, Jester; and a classification set as bandit feedback."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array
from manyarms._base.rng import split
from manyarms.core.hierarchical_gaussian import HierarchicalGaussian
from manyarms.core.logged_data import LoggedData
from manyarms.core.policy import Policy
from manyarms.datasets import (
    ClassificationEnvironment,
    KuaiRec,
    MatrixEnvironment,
    MovieLens,
    MovieLensFactors,
    jester_world,
    kuairec_world,
    load_jester,
    load_kuairec,
    load_movielens,
    movielens_factors,
    split_cells,
)
from manyarms.errors import DataFileError
from manyarms.experiments.cell import generator
from manyarms.experiments.problem import Known, Origin, Problem, World, digest_of, shortfall
from manyarms.experiments.synthetic_world import Logging, ScoredWorld, clusters_of, greedy_by
from manyarms.linalg.indexing import shape_of
from manyarms.policies import EpsilonGreedy, Uniform
from manyarms.priors import from_categories, from_embeddings, from_tags, independent

Target = Literal["hindsight", "context"]

N_COMPONENTS = 5
"""J of the Gaussian mixture that the structured prior is."""


class MatrixWorld(World):
    """Real ratings of real users, logged uniformly over what each user has a rating of.

    Args:
        environment: The truth.
        known: What methods may know.
        target: "hindsight" picks, half the time, what the user really rated best: more than any policy can know from
            contexts, and more than any reward model can say of it. "context" picks what the vectors of the actions
            say is best, as a policy that someone could run.
    """

    def __init__(self, environment: MatrixEnvironment, known: Known, target: Target = "hindsight"):
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


def known_by_vectors(
    vectors: Float[Array, "K d"], noise_std: float, learnable: HierarchicalGaussian, rng: np.random.Generator
) -> Known:
    """What the paper's recipe makes of vectors of the actions in the space of θ.

    sDM: a Gaussian mixture of them, μ and Σ its means and variances, w_a the memberships, Σ_a the mean variance. DM
    (Bayes): their mean and variance. MIPS: as many k-means clusters; PC: the vectors.
    """
    seed = int(rng.integers(1 << 62))
    prior, own = (
        from_embeddings(vectors, N_COMPONENTS, action_variance=form, rng=np.random.default_rng(seed))
        for form in ("shared", "own")
    )
    return Known(
        prior=prior,
        unstructured=independent(len(vectors), mean=vectors.mean(axis=0), cov=vectors.var(axis=0)),
        noise_std=noise_std,
        vectors=vectors,
        learnable=learnable,
        make_clusters=lambda: clusters_of(vectors, np.random.default_rng(seed), N_COMPONENTS),
        make_other_priors=lambda: {"own variances": own},
    )


@dataclass(frozen=True)
class MovieLensProblem(Problem):
    """1,000 movies drawn at random, contexts and θ from a factorisation of the ratings; see `movielens_factors`.

    Args:
        data: A folder or zip; None for the cache folder.
        logging: Uniform, or half the time the truly best movie.
        half: Whether the prior's vectors come from other ratings than the truth.
    """

    data: str | None = None
    logging: Logging = "uniform"
    half: bool = False

    @property
    def label(self) -> str:
        return f"MovieLens K=1000 d=5, {self.logging}{', prior from other ratings' if self.half else ''}"

    def draw(self, rng: np.random.Generator) -> ScoredWorld:
        world_rng, known_rng, test_rng = split(rng, "world", "known", "test")
        world = _movielens(self.data, self.half).draw_world(n_actions=1000, noise_std=1.0, rng=world_rng)
        learnable = from_tags(world.genres, dim=5, shared_std=1.0)
        known = known_by_vectors(world.item_vectors, 1.0, learnable, known_rng)
        return ScoredWorld(world.environment, known, self.logging, test_rng)

    def origin(self) -> Origin:
        return _movielens_origin(self.data)


@lru_cache(maxsize=2)
def _movielens(data: str | None, half: bool) -> MovieLensFactors:
    return movielens_factors(_ratings(data), rank=5, half=half, rng=generator("movielens", half))


@lru_cache(maxsize=1)
def _ratings(data: str | None) -> MovieLens:
    return load_movielens(data_path(data, "ml-1m"))


@lru_cache(maxsize=1)
def _movielens_origin(data: str | None) -> Origin:
    found = _ratings(data)
    digest = digest_of(found.users, found.movies, found.user_rows, found.movie_rows, found.ratings, found.genres)
    return Origin(
        digest,
        shortfall(
            ratings=(len(found.ratings), 1_000_209), users=(len(found.users), 6_040), movies=(len(found.movies), 3_706)
        ),
    )


@dataclass(frozen=True)
class KuaiRecProblem(Problem):
    """Watch ratios of real users: nothing is well specified for anyone.

    With all of KuaiRec, contexts and vectors come from the big matrix, rewards from the small one. With the published
    part of the small matrix alone, half of its cells, drawn anew for each instance, stand in for the big matrix and the
    other half for the small one; a user's choices are the videos with a cell in the second half. Users are split into
    those who are logged and those policies are judged on.

    Args:
        data: A folder or zip; None for the cache folder.
        partial: Whether it is the published part.
        rank: Of the factorisation.
        target: What is judged in off-policy evaluation; see `MatrixWorld`.
    """

    data: str | None = None
    partial: bool = True
    rank: int = 5
    target: Target = "hindsight"

    @property
    def label(self) -> str:
        words = [f"KuaiRec rank={self.rank}", *["partial"] * self.partial]
        return ", ".join(words + ["target by context"] * (self.target == "context"))

    def draw(self, rng: np.random.Generator) -> MatrixWorld:
        cells_rng, world_rng, known_rng = split(rng, "cells", "world", "known")
        data = _kuairec(self.data)
        small = data.matrix(data.small)
        prior, rewards = split_cells(small, cells_rng) if data.partial else (_big(data), small)
        world = kuairec_world(rewards, prior, data.categories, rank=self.rank, rng=world_rng)
        topics = np.array([categories[0] if categories else -1 for categories in world.categories])
        learnable = from_categories(topics, dim=world.environment.dim, shared_std=1.0)
        # Cells that are not stored count as zero in the factorisation: bring its products to the scale of rewards.
        vectors = world.item_vectors * (np.prod(shape_of(prior)) / prior.nnz)
        known = known_by_vectors(vectors, float(prior.data.std()), learnable, known_rng)
        _, clusters = np.unique(topics, return_inverse=True)
        return MatrixWorld(world.environment, with_clusters(known, clusters), self.target)

    def origin(self) -> Origin:
        return _kuairec_origin(self.data)


@lru_cache(maxsize=1)
def _kuairec(data: str | None) -> KuaiRec:
    return load_kuairec(data_path(data, "kuairec"))


@lru_cache(maxsize=1)
def _kuairec_origin(data: str | None) -> Origin:
    found = _kuairec(data)
    matrices = [found.small] if found.big is None else [found.small, found.big]
    cells = [part for one in matrices for part in (one.user_rows, one.video_rows, one.watch_ratio)]
    return Origin(digest_of(found.users, found.videos, *cells, found.categories))


def _big(data: KuaiRec) -> sparse.csr_array:
    if data.big is None:
        raise DataFileError("big_matrix.csv is missing beside small_matrix.csv; vectors of users and videos need it.")
    return data.matrix(data.big)


@dataclass(frozen=True)
class JesterProblem(Problem):
    """Jokes that users rated from -10 to 10; contexts from half of the jokes, the other half are actions.

    Args:
        data: A folder or file; None for the cache folder.
    """

    data: str | None = None

    @property
    def label(self) -> str:
        return "Jester K=50 d=6"

    def draw(self, rng: np.random.Generator) -> MatrixWorld:
        world_rng, learnable_rng, known_rng = split(rng, "world", "learnable", "known")
        world = jester_world(_jester(self.data), rank=5, n_actions=50, rng=world_rng)
        vectors = world.item_vectors
        learnable = from_embeddings(vectors, N_COMPONENTS, dim=world.environment.dim, shared_std=1.0, rng=learnable_rng)
        return MatrixWorld(world.environment, known_by_vectors(vectors, 4.0, learnable, known_rng))

    def origin(self) -> Origin:
        ratings = _jester(self.data)
        n_users, n_jokes = ratings.shape
        return Origin(digest_of(ratings), shortfall(users=(n_users, 7_200), jokes=(n_jokes, 100)))


@lru_cache(maxsize=1)
def _jester(data: str | None) -> Float[Array, "users jokes"]:
    return load_jester(data_path(data, "jester"))


@dataclass(frozen=True)
class DigitsProblem(Problem):
    """Handwritten digits (of scikit-learn, 1,797 images): guess which of ten it is, and be told right or wrong only."""

    @property
    def label(self) -> str:
        return "digits K=10 d=65"

    def draw(self, rng: np.random.Generator) -> MatrixWorld:
        from sklearn.datasets import load_digits  # noqa: PLC0415

        world_rng, cluster_rng = split(rng, "world", "clusters")
        pixels, labels = load_digits(return_X_y=True)
        contexts = np.column_stack([np.ones(len(pixels)), pixels / 16.0])
        environment = ClassificationEnvironment(contexts, labels, rng=world_rng)
        prior = independent(10, dim=contexts.shape[1])
        known = Known(
            prior=prior,
            unstructured=prior,
            noise_std=0.3,
            vectors=np.eye(10),
            learnable=prior,
            make_clusters=lambda: clusters_of(np.eye(10), cluster_rng, 5),
        )
        return MatrixWorld(environment, known)


def with_clusters(known: Known, clusters: Int[Array, " K"]) -> Known:
    """The same, with clusters that are given."""
    return Known(
        known.prior, known.unstructured, known.noise_std, known.vectors, known.learnable,
        lambda: clusters.astype(np.int64), known.make_other_priors,
    )  # fmt: skip


def data_path(data: str | None, name: str) -> Path | None:
    """Where a data set lies: in a folder of its own below the one named, or in that one; None is the cache folder."""
    if data is None:
        return None
    inner = Path(data) / name
    return inner if inner.exists() else Path(data)
