"""Jester: ratings of the users who rated every joke, and a world in which these ratings are the rewards."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, as_count, as_floats, as_path, as_scalar, frozen
from manyarms._base.rng import split
from manyarms.datasets.data_files import cache_folder
from manyarms.datasets.matrix_environment import MatrixEnvironment
from manyarms.datasets.rating_matrix import factorise
from manyarms.datasets.read_columns import read_parquet
from manyarms.errors import DataFileError, InputError, RangeError, ShapeError

NAME = "jester_data_1.parquet"

WHERE = (
    'Get "Jester dataset 1" from the Jester project at UC Berkeley and save it as a Parquet file with columns user, '
    "joke and rating, one row per rating."
)


@dataclass(frozen=True)
class JesterWorld:
    """Ratings of some jokes are known for every user; the other jokes are actions, with real ratings as rewards.

    The context of a user is an intercept and the largest principal components of their ratings of the known jokes, with
    mean zero and unit variance over all users except test users.

    Attributes:
        environment: The true environment: real ratings of real users.
        items: (K,) The joke of each action, as a column of the matrix.
        known: (k,) The jokes that contexts are made of, as columns of the matrix.
        item_vectors: (K, d) Prior knowledge of the actions: weights fitted by least squares to the ratings of
            `n_prior_users` users who are neither logged from nor evaluated on.
    """

    environment: MatrixEnvironment
    items: Int[Array, " K"]
    known: Int[Array, " k"]
    item_vectors: Float[Array, "K d"]


def jester_world(
    matrix: Any,
    *,
    rank: int = 5,
    n_actions: int = 50,
    n_prior_users: int = 100,
    test_share: float = 0.5,
    rng: np.random.Generator,
) -> JesterWorld:
    """A Jester world on ratings of which none is missing; see `JesterWorld`. Each call draws jokes and users anew.

    Args:
        matrix: (users, jokes) Ratings, none missing, from `load_jester`.
        rank: The number of principal components in a context, besides the intercept.
        n_actions: K. The remaining jokes are known.
        n_prior_users: The number of users set apart for `item_vectors`; few, since thousands would give the truth away.
        test_share: The share of the other users that policies are evaluated on.
        rng: A NumPy generator, which draws the actions, the users set apart and the test users.
    """
    ratings = as_floats("matrix", matrix, ndim=2)
    n_users, n_jokes = ratings.shape
    if as_count("n_actions", n_actions) + as_count("rank", rank) > n_jokes:
        raise RangeError(f"n_actions + rank must be at most {n_jokes}, the number of jokes; got {n_actions} + {rank}.")
    if as_count("n_prior_users", n_prior_users, minimum=rank + 1) > n_users - 2:
        raise RangeError(
            f"must be at most {n_users - 2}, to leave users; got {n_prior_users}.", argument="n_prior_users"
        )
    share = as_scalar("test_share", test_share, above=0.0, below=1.0)
    jokes_rng, users_rng, start_rng = split(rng, "jokes", "users", "start")
    items, known = np.split(jokes_rng.permutation(n_jokes), [n_actions])
    early, rest = np.split(users_rng.permutation(n_users), [n_prior_users])
    test = np.arange(len(rest)) < min(max(round(share * len(rest)), 1), len(rest) - 1)
    seen = np.concatenate([early, rest[~test]])
    features = _features(ratings[:, known], seen, rank, start_rng)
    vectors = np.linalg.lstsq(features[early], ratings[np.ix_(early, items)], rcond=None)[0].T
    environment = MatrixEnvironment(ratings[np.ix_(rest, items)], features[rest], np.flatnonzero(test))
    return JesterWorld(environment, frozen(items), frozen(known), frozen(vectors))


def _features(
    ratings: Float[Array, "users k"], seen: Int[Array, " s"], rank: int, rng: np.random.Generator
) -> Float[Array, "users d"]:
    """An intercept and principal components. Centre, axes and scale come from the users in `seen`."""
    centred = ratings - ratings[seen].mean(axis=0)
    axes = factorise(centred[seen], rank, rng)[1]
    scores = centred @ axes
    spread = scores[seen].std(axis=0)
    if spread.min() <= 1e-12 * spread.max():
        raise RangeError(f"must be at most that of the known ratings; got {rank}.", argument="rank")
    return np.column_stack([np.ones(len(ratings)), scores / spread])


def load_jester(path: str | os.PathLike[str] | None = None) -> Float[Array, "users jokes"]:
    """Ratings of the users who rated every joke of the file: 7,200 by 100 in Jester dataset 1, from -10 to 10.

    Args:
        path: A Parquet file with columns user, joke and rating, or a folder that holds it as jester_data_1.parquet;
            the cache folder by default. There is no download, since the owners publish spreadsheets.

    Returns:
        Ratings with rows in the order of user ids and columns in that of joke ids.

    Raises:
        DataFileError: When the file is missing or damaged. The message says where to get it.
        InputError: Naming the column, the first bad row and a remedy.
    """
    folder = cache_folder() if path is None else as_path("path", path)
    file = next((option for option in (folder, folder / NAME, folder / "jester" / NAME) if option.is_file()), None)
    if file is None:
        raise DataFileError(f"{folder} is not a Parquet file, nor a folder that holds {NAME}.", WHERE)
    columns = read_parquet(file, str(file), {"user": "integer", "joke": "integer", "rating": "number"}, WHERE)
    in_range = np.abs(columns.array("rating")) <= 10.0
    remedy = "Leave out the 99 that stands for no rating."
    columns.check("rating", in_range, RangeError, "must lie in [-10, 10]", remedy)
    users, user_rows = np.unique(columns.array("user"), return_inverse=True)
    jokes, joke_rows = np.unique(columns.array("joke"), return_inverse=True)
    counts = np.zeros((len(users), len(jokes)), dtype=np.int64)
    np.add.at(counts, (user_rows, joke_rows), 1)
    if counts.max(initial=0) > 1:
        user, joke = np.unravel_index(int(counts.argmax()), counts.shape)
        raise InputError(f"user {users[user]} rated joke {jokes[joke]} {counts.max()} times.", "Keep one rating.")
    complete = (counts == 1).all(axis=1)
    if not complete.any():
        raise ShapeError(f"no user rated all {len(jokes)} jokes, so there is no full matrix.", WHERE)
    ratings = np.zeros(counts.shape)
    ratings[user_rows, joke_rows] = columns.array("rating")
    return frozen(ratings[complete])
