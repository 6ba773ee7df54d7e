"""The worlds of studies/decisions.py: real data as items with known rewards, logging policies, candidates, logs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
from scipy import sparse
from scipy.special import softmax
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.decomposition import TruncatedSVD
from sklearn.linear_model import Ridge

import manyarms as ma
from manyarms._base.rng import split
from manyarms.datasets import KuaiRec, MovieLens, jester_world, load_jester, load_kuairec, load_movielens, split_cells

LOGGING = ("uniform", "mild", "sharp", "popular")
COMPONENTS = 12
N_VIDEOS = N_MOVIES = 500
"""Actions of KuaiRec and MovieLens: those with the most rewards."""
FEWEST_CHOICES = 10
"""A user of KuaiRec or MovieLens with fewer known rewards than this is left out: there is too little to choose from."""


@dataclass(frozen=True)
class World:
    """Items with a known reward for every action.

    Attributes:
        contexts: (m, d) Features of the items, with an intercept.
        rewards: (m, K) The reward of every action for every item.
        scores: (m, K) Rewards by a regression on other items: what the owner of the log knew beforehand.
        categories: (K,) A category of every action, from other items.
        observed: (m, K) The rewards that are known; None for all. Where it is given, every policy chooses among the
            actions whose reward is known for the item, so that the value of a policy is known without any model.
    """

    contexts: np.ndarray
    rewards: np.ndarray
    scores: np.ndarray
    categories: np.ndarray
    observed: np.ndarray | None = None

    @property
    def n_actions(self) -> int:
        return self.rewards.shape[1]

    def value(self, policy: np.ndarray) -> float:
        """The true value of a policy, given as probabilities of all actions for all items."""
        return float(np.einsum("ma,ma->m", policy, self.rewards).mean())

    def eligible(self, items: np.ndarray) -> sparse.csr_array | None:
        """The actions that may be chosen for these items; None for all."""
        return None if self.observed is None else sparse.csr_array(self.observed[items])

    def allowed(self, scores: np.ndarray) -> np.ndarray:
        """Scores of all actions for all items, with -inf for an action that may not be chosen."""
        return scores if self.observed is None else np.where(self.observed, scores, -np.inf)


def load_world(name: str, data: Path | None, seed: int = 0) -> World:
    """A data set as a world. Digits come with scikit-learn, ratings are simulated; others need the folder `data`."""
    if name == "digits":
        images, digits = load_digits(return_X_y=True)
        return labelled_world(images, np.eye(10)[digits], seed)
    if name == "ratings":
        return joke_world(simulated_ratings(seed), seed)
    if data is None:
        raise SystemExit(f"{name} needs MANYARMS_DATA, a folder with multilabel/, jester/, kuairec/ and ml-1m/.")
    if name == "jester":
        return joke_world(load_jester(data / "jester"), seed)
    if name == "kuairec":
        return video_world(load_kuairec(data / "kuairec"), seed)
    if name == "movielens":
        return movie_world(load_movielens(data / "ml-1m"), seed)
    content = scipy.io.loadmat(data / "multilabel" / f"{name}.mat")
    target = content["target"]
    labels = (np.asarray(target.todense()) if sparse.issparse(target) else target).T > 0
    return labelled_world(sparse.csr_matrix(content["data"].astype(float)), labels.astype(float), seed)


def labelled_world(features: Any, labels: np.ndarray, seed: int) -> World:
    """Contexts are singular vectors of the features. A tenth of the items is set apart for scores and categories."""
    labels = labels[:, labels.sum(axis=0) > 0]
    order = np.random.default_rng(seed).permutation(len(labels))
    apart, items = np.split(order, [len(order) // 10])
    x = TruncatedSVD(COMPONENTS, random_state=seed).fit_transform(features)
    x = np.column_stack([np.ones(len(x)), x / x.std(axis=0)])
    centres = (labels[apart].T @ x[apart] + x[apart].mean(axis=0)) / (labels[apart].sum(axis=0)[:, None] + 1)
    scores = Ridge(10.0).fit(x[apart], labels[apart]).predict(x[items])
    return World(x[items], labels[items], scores, clusters(centres, seed))


def joke_world(ratings: np.ndarray, seed: int) -> World:
    """Half of the jokes give the contexts, the other half are the actions; 100 users are set apart."""
    world = jester_world(ratings, rank=COMPONENTS, n_actions=50, rng=np.random.default_rng(seed))
    x = world.environment.features
    return World(x, np.asarray(world.environment.matrix), x @ world.item_vectors.T, clusters(world.item_vectors, seed))


def simulated_ratings(seed: int, n_users: int = 3600, n_jokes: int = 100) -> np.ndarray:
    """(users, jokes) Ratings of users who differ in generosity, in tastes, and in how much of the scale they use.

    A linear model is right about levels here, and wrong about which jokes a user likes best, as it is on Jester.
    """
    rng = np.random.default_rng(seed)
    generosity, use = 2.5 * rng.normal(size=(n_users, 1)), np.exp(0.5 * rng.normal(size=(n_users, 1)))
    means = 1.0 + generosity + rng.normal(size=n_jokes)
    tastes = rng.normal(size=(n_users, 5)) @ rng.normal(size=(5, n_jokes))
    return np.clip(means + use * (tastes + 2.5 * rng.normal(size=(n_users, n_jokes))), -10.0, 10.0)


def video_world(data: KuaiRec, seed: int, n_actions: int = N_VIDEOS) -> World:
    """Users of KuaiRec choose videos. The reward is the watch ratio, at most 2; half of the cells give the contexts.

    The truth is the watch ratio that was measured. Of KuaiRec's small matrix, which is nearly full, a published part
    has 83 videos per user, so every policy chooses among the videos of the user that are in the other half.
    """
    cells = data.small
    ratios = np.minimum(cells.watch_ratio, 2.0)
    matrix = sparse.csr_array((ratios, (cells.user_rows, cells.video_rows)), shape=(len(data.users), len(data.videos)))
    topics = np.array([categories[0] if categories else -1 for categories in data.categories])
    return partly_observed_world(matrix, topics, n_actions, seed)


def movie_world(data: MovieLens, seed: int, n_actions: int = N_MOVIES) -> World:
    """Users of MovieLens choose movies. The reward is 1 for four or five stars; half of the ratings give the contexts.

    The truth is the rating that the user really gave, so every policy chooses among the movies that the user has rated.
    Users decide what they rate, so this says nothing about movies that they have not rated: a missing rating is not
    filled in, since a filled-in rating would come from a model like the one under test.
    """
    topics = np.array([genres[0] if genres else "" for genres in data.genres])
    liked = data.matrix()
    liked.data = (liked.data >= 4).astype(float)
    return partly_observed_world(liked, topics, n_actions, seed)


def partly_observed_world(matrix: sparse.csr_array, topics: np.ndarray, n_actions: int, seed: int) -> World:
    """A world on a matrix of which some cells are known, stored zeros too.

    A random half of the cells of each user gives the context: an intercept, the mean of what is above or below the mean
    of its column, and singular vectors of that. The other half has the rewards. Actions are the columns with the most
    rewards. A tenth of the users is set apart for the scores.
    """
    known, rewards = split_cells(matrix, np.random.default_rng(seed))
    counts = np.bincount(rewards.indices, minlength=len(topics))
    actions = np.sort(np.argsort(-counts, kind="stable")[:n_actions])
    pattern = sparse.csr_array((np.ones(rewards.nnz), rewards.indices, rewards.indptr), shape=rewards.shape)
    observed = pattern[:, actions].toarray() > 0
    users = np.flatnonzero(observed.sum(axis=1) >= FEWEST_CHOICES)
    values, observed = rewards[:, actions].toarray()[users], observed[users]
    x = user_contexts(known, seed)[users]
    apart, items = np.split(np.random.default_rng(seed).permutation(len(users)), [len(users) // 10])
    weights = weights_of_observed(x[apart], values[apart], observed[apart])
    _, categories = np.unique(topics[actions], return_inverse=True)
    return World(x[items], values[items], x[items] @ weights.T, categories, observed[items])


def user_contexts(known: sparse.csr_array, seed: int) -> np.ndarray:
    """(users, d) An intercept, how far a user's cells are from the means of their columns, and singular vectors."""
    counts = np.bincount(known.indices, minlength=known.shape[1])
    sums = np.bincount(known.indices, weights=known.data, minlength=known.shape[1])
    centres = (sums + known.data.mean()) / (counts + 1)
    # Zeros of the matrix of differences are cells that are not known, or as expected.
    differences = known.copy()
    differences.data = known.data - centres[known.indices]
    level = differences.sum(axis=1) / (np.diff(known.indptr) + 5)
    vectors = TruncatedSVD(COMPONENTS - 1, random_state=seed).fit_transform(differences)
    x = np.column_stack([level, vectors])
    return np.column_stack([np.ones(len(x)), x / x.std(axis=0)])


def weights_of_observed(x: np.ndarray, rewards: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """(K, d) A ridge regression per action on the users whose reward is known, around the mean reward."""
    mean = rewards[observed].mean()
    gram = (observed.T @ np.einsum("ui,uj->uij", x, x).reshape(len(x), -1)).reshape(-1, x.shape[1], x.shape[1])
    moment = (observed * (rewards - mean)).T @ x
    weights = np.linalg.solve(gram + 10.0 * np.eye(x.shape[1]), moment[..., None])[..., 0]
    weights[:, 0] += mean
    return weights


def clusters(vectors: np.ndarray, seed: int) -> np.ndarray:
    n_clusters = max(5, int(np.sqrt(len(vectors))))
    return KMeans(n_clusters, n_init=3, random_state=seed).fit_predict(vectors)


def logging_policy(world: World, kind: str) -> np.ndarray:
    """The probabilities of all actions for all items."""
    scores, uniform = world.scores / world.scores.std(), softmax(world.allowed(np.zeros(world.scores.shape)), axis=1)
    if kind == "uniform":
        return uniform
    if kind == "mild":
        return softmax(world.allowed(scores), axis=1)
    if kind == "sharp":
        return 0.95 * softmax(world.allowed(3 * scores), axis=1) + 0.05 * uniform
    popularity = world.scores.mean(axis=0)
    shares = np.where(uniform > 0, popularity - min(popularity.min(), 0.0), 0.0)
    return 0.8 * shares / shares.sum(axis=1, keepdims=True) + 0.2 * uniform


def given_policies(world: World, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Policies from elsewhere, as probabilities of all actions for all items: two good ones, and one that is random."""
    noise_rng, trap_rng = split(rng, "noise", "trap")
    noise = noise_rng.normal(size=world.scores.shape)
    trap = world.contexts @ trap_rng.normal(size=(world.contexts.shape[1], world.n_actions))
    return {
        "outside": best(world.allowed(world.scores)),
        "outside, noisy": best(world.allowed(world.scores + 2 * world.scores.std() * noise)),
        "random": best(world.allowed(trap)),
    }


def best(scores: np.ndarray) -> np.ndarray:
    """The policy that always takes the action of the highest score."""
    policy = np.zeros(scores.shape)
    policy[np.arange(len(scores)), scores.argmax(axis=1)] = 1.0
    return policy


def write_log(world: World, logging: np.ndarray, n: int, rng: np.random.Generator) -> tuple[ma.LoggedData, np.ndarray]:
    """Rounds with random items, and the item of every round."""
    items = rng.integers(len(world.contexts), size=n)
    sums = logging[items].cumsum(axis=1)
    actions = np.minimum((sums < rng.random((n, 1)) * sums[:, -1:]).sum(axis=1), world.n_actions - 1)
    logs = ma.LoggedData(
        world.contexts[items],
        actions,
        world.rewards[items, actions],
        n_actions=world.n_actions,
        propensities=logging[items, actions],
    )
    return logs, items
