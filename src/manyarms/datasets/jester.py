"""Jester: the users who rated every joke, and a world in which their ratings are the rewards."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, as_count, as_floats, as_scalar, check_rows, frozen
from manyarms._base.rng import split
from manyarms.datasets.data_files import cache_folder
from manyarms.datasets.rating_matrix import MatrixEnvironment, factorise
from manyarms.errors import DataFileError, DataTypeError, InputError, RangeError, ShapeError, without_full_stop

NAME = "jester_data_1.parquet"

WHERE = (
    'Get "Jester dataset 1" from the Jester project at UC Berkeley and save it as a Parquet file with columns user, '
    "joke and rating, a row a rating."
)


@dataclass(frozen=True)
class JesterWorld:
    """Some jokes are known of every user, the others are actions; a joke is worth what the user really gave it.

    The context of a user is an intercept and the largest principal components of their ratings of the known jokes, of
    mean zero and unit variance over all users but those that policies are judged on.

    Attributes:
        environment: The truth: real ratings of real users.
        items: (K,) which jokes the actions are, as columns of the matrix.
        known: (k,) which jokes the contexts are made of.
        item_vectors: (K, d) what is known of the actions beforehand: weights fitted by least squares to the ratings
            of `n_prior_users` users who are neither logged nor judged on.
    """

    environment: MatrixEnvironment
    items: Int[Array, " K"]
    known: Int[Array, " k"]
    item_vectors: Float[Array, "K d"]

    @property
    def prior_vectors(self) -> Float[Array, "K d"]:
        """The vectors to fit a prior on: those of the actions."""
        return self.item_vectors


def jester_world(
    matrix: Any,
    *,
    rank: int = 5,
    n_actions: int = 50,
    n_prior_users: int = 100,
    test_share: float = 0.5,
    rng: np.random.Generator,
) -> JesterWorld:
    """A world on a fully observed matrix: see `JesterWorld`. Jokes and users change sides from draw to draw.

    Args:
        matrix: (users, jokes) ratings, none missing, as `load_jester` gives them.
        rank: How many principal components a context has, beside the intercept.
        n_actions: K; the jokes that remain are known.
        n_prior_users: Set apart for `item_vectors`; few, since thousands would give the truth away.
        test_share: The share of the other users that policies are judged on.
        rng: Draws the actions, the users set apart and those to judge on.
    """
    ratings = as_floats("matrix", matrix, ndim=2)
    _check_sizes(ratings.shape, rank, n_actions, n_prior_users)
    share = as_scalar("test_share", test_share, above=0.0, below=1.0)
    jokes_rng, users_rng, start_rng = split(rng, "jokes", "users", "start")
    items, known = np.split(jokes_rng.permutation(ratings.shape[1]), [n_actions])
    early, rest = np.split(users_rng.permutation(ratings.shape[0]), [n_prior_users])
    test = np.arange(len(rest)) < min(max(round(share * len(rest)), 1), len(rest) - 1)
    seen = np.concatenate([early, rest[~test]])
    features = _features(ratings[:, known], seen, rank, start_rng)
    vectors = np.linalg.lstsq(features[early], ratings[np.ix_(early, items)], rcond=None)[0].T
    environment = MatrixEnvironment(ratings[np.ix_(rest, items)], features[rest], np.flatnonzero(test))
    return JesterWorld(environment, frozen(items), frozen(known), frozen(vectors))


def _check_sizes(shape: tuple[int, ...], rank: int, n_actions: int, n_prior_users: int) -> None:
    n_users, n_jokes = shape
    if as_count("n_actions", n_actions) + as_count("rank", rank) > n_jokes:
        raise RangeError(f"n_actions + rank must be at most {n_jokes}, the number of jokes; got {n_actions} + {rank}.")
    if as_count("n_prior_users", n_prior_users, minimum=rank + 1) > n_users - 2:
        raise RangeError(f"n_prior_users must be at most {n_users - 2}, to leave users; got {n_prior_users}.")


def _features(
    ratings: Float[Array, "users k"], seen: Int[Array, " s"], rank: int, rng: np.random.Generator
) -> Float[Array, "users d"]:
    """An intercept and principal components; centre, axes and scale come from the users who may be seen."""
    centred = ratings - ratings[seen].mean(axis=0)
    axes = factorise(centred[seen], rank, rng)[1]
    scores = centred @ axes
    spread = scores[seen].std(axis=0)
    if spread.min() <= 1e-12 * spread.max():
        raise RangeError(f"rank must be at most that of the known ratings; got {rank}.")
    return np.column_stack([np.ones(len(ratings)), scores / spread])


def load_jester(path: str | os.PathLike[str] | None = None) -> Float[Array, "users jokes"]:
    """Ratings of the users who rated every joke of the file: 7,200 by 100 in Jester dataset 1, from -10 to 10.

    Args:
        path: A Parquet file with columns user, joke and rating, or a folder that holds it as jester_data_1.parquet;
            the cache folder by default. There is no download: the owners publish spreadsheets.

    Returns:
        Rows in the order of user ids, columns in that of joke ids.

    Raises:
        DataFileError: The file is missing or damaged; says where to get it.
        InputError: Naming the column, the first bad row and a way out.
    """
    columns = _read_columns(_find(cache_folder() if path is None else Path(path)))
    users, user_rows = np.unique(columns["user"], return_inverse=True)
    jokes, joke_rows = np.unique(columns["joke"], return_inverse=True)
    counts = np.zeros((len(users), len(jokes)), dtype=np.int64)
    np.add.at(counts, (user_rows, joke_rows), 1)
    if counts.max(initial=0) > 1:
        user, joke = np.unravel_index(int(counts.argmax()), counts.shape)
        raise InputError(f"user {users[user]} rated joke {jokes[joke]} {counts.max()} times. Keep one rating.")
    complete = (counts == 1).all(axis=1)
    if not complete.any():
        raise ShapeError(f"no user rated all {len(jokes)} jokes, so there is no full matrix. {WHERE}")
    ratings = np.zeros(counts.shape)
    ratings[user_rows, joke_rows] = columns["rating"]
    return frozen(ratings[complete])


def _find(where: Path) -> Path:
    options = [where, where / NAME, where / "jester" / NAME]
    found = next((option for option in options if option.is_file()), None)
    if found is None:
        raise DataFileError(f"{where} is no Parquet file and no folder that holds {NAME}.", WHERE)
    return found


def _read_columns(path: Path) -> dict[str, Array]:
    """Ids as integers and ratings as floats, all there and in range."""
    import pyarrow as pa  # noqa: PLC0415  slow to import, and only readers need it
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as damage:
        raise DataFileError(f"{path} cannot be read as Parquet: {without_full_stop(damage)}.", WHERE) from damage
    kinds = {"user": pa.types.is_integer, "joke": pa.types.is_integer, "rating": pa.types.is_floating}
    for name, fits in kinds.items():
        if name not in table.column_names:
            raise ShapeError(f"{path} must have columns {', '.join(kinds)}; it has {table.column_names}. {WHERE}")
        if not fits(table.schema.field(name).type):
            raise DataTypeError(f"column {name} of {path} has type {table.schema.field(name).type}. {WHERE}")
        if table[name].null_count:
            row = table[name].is_null().to_pylist().index(True)
            raise InputError(f"column {name} of {path} is empty in row {row}. Leave such rows out.")
    columns = {name: table[name].to_numpy() for name in kinds}
    columns["rating"] = as_floats("rating", columns["rating"], ndim=1)
    check_rows(
        "rating", columns["rating"], lambda r: np.abs(r) <= 10.0, RangeError, "must lie in [-10, 10]",
        "Leave out the 99 that stands for no rating.",
    )  # fmt: skip
    return columns
