"""MovieLens 1M: the owners' files, and worlds made from their ratings by factorisation."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

from manyarms._base.checks import Array, as_count, frozen
from manyarms._base.rng import split
from manyarms.datasets.data_files import MOVIELENS_1M, locate
from manyarms.datasets.environment import LinearEnvironment
from manyarms.datasets.rating_matrix import alignment, factorise
from manyarms.errors import DataTypeError, InputError, RangeError, ShapeError, without_full_stop

WHERE = MOVIELENS_1M.where

SEPARATOR = "\x1f"
"""Takes the place of "::" for a reader that splits at a single character; no file has it."""

COLUMNS = ("user", "movie", "rating", "time")

NUMBER = re.compile(r"\s*\d{1,18}\s*", re.ASCII)


@dataclass(frozen=True)
class MovieLens:
    """User `users[user_rows[i]]` gave `ratings[i]` of five stars to movie `movies[movie_rows[i]]`, at most once.

    Movies without a rating are left out.

    Attributes:
        users: (U,) The owners' ids of the users, ascending.
        movies: (M,) The owners' ids of the rated movies, ascending.
        user_rows: (n,) The user of each rating, as a row of `users`.
        movie_rows: (n,) The movie of each rating, as a row of `movies`.
        ratings: (n,) Whole stars, 1 to 5.
        titles: The title of each of `movies`.
        genres: The genres of each of `movies`.
    """

    users: Int[Array, " U"]
    movies: Int[Array, " M"]
    user_rows: Int[Array, " n"]
    movie_rows: Int[Array, " n"]
    ratings: Float[Array, " n"]
    titles: list[str]
    genres: list[tuple[str, ...]]

    def matrix(self, keep: Bool[Array, " n"] | None = None) -> sparse.csr_array:
        """(U, M) Ratings, with zeros where unrated. With `keep`, only those ratings."""
        kept = slice(None) if keep is None else keep
        cells = (self.ratings[kept], (self.user_rows[kept], self.movie_rows[kept]))
        return sparse.csr_array(cells, shape=(len(self.users), len(self.movies)))


@dataclass(frozen=True)
class MovieLensFactors:
    """A factorisation to draw worlds from: the reward of movie a for a user with vector x is xᵀ θ_a on average.

    Attributes:
        users: (U, r) x of each user.
        items: (M, r) The true θ_a of each movie.
        prior_vectors: (M, r) Vectors of the same movies to fit a prior on.
        movies: (M,) The movies, as rows of `MovieLens.movies`.
        genres: The genres of each movie.
    """

    users: Float[Array, "U r"]
    items: Float[Array, "M r"]
    prior_vectors: Float[Array, "M r"]
    movies: Int[Array, " M"]
    genres: list[tuple[str, ...]]

    def draw_world(self, *, n_actions: int = 1000, noise_std: float = 1.0, rng: np.random.Generator) -> MovieLensWorld:
        """A world on `n_actions` random movies."""
        (items_rng,) = split(rng, "items")
        if as_count("n_actions", n_actions) > len(self.items):
            raise RangeError(
                f"must be at most {len(self.items)}, the number of movies; got {n_actions}.", argument="n_actions"
            )
        drawn = items_rng.choice(len(self.items), size=n_actions, replace=False)
        environment = LinearEnvironment(self.items[drawn], noise_std, _DrawRows(self.users))
        genres = [self.genres[row] for row in drawn]
        return MovieLensWorld(environment, frozen(self.movies[drawn]), genres, frozen(self.prior_vectors[drawn]))


@dataclass(frozen=True)
class MovieLensWorld:
    """A random user with vector x arrives; the reward of movie a is N(xᵀ θ_a, σ²).

    Attributes:
        environment: The true environment.
        items: (K,) The movie of each action, as a row of `MovieLens.movies`.
        genres: The genres of each action.
        item_vectors: (K, r) Prior knowledge of the actions: vectors to fit a prior on.
    """

    environment: LinearEnvironment
    items: Int[Array, " K"]
    genres: list[tuple[str, ...]]
    item_vectors: Float[Array, "K r"]


@dataclass(frozen=True)
class _DrawRows:
    """Draws rows of `vectors` as contexts, with replacement. An object, so that worlds can be sent to processes."""

    vectors: Float[Array, "U r"]

    def __call__(self, rng: np.random.Generator, n: int) -> Float[Array, "n r"]:
        return self.vectors[rng.integers(len(self.vectors), size=n)]


def movielens_world(
    data: MovieLens,
    *,
    n_actions: int = 1000,
    rank: int = 5,
    noise_std: float = 1.0,
    half: bool = False,
    rng: np.random.Generator,
) -> MovieLensWorld:
    """A MovieLens world in one call. For many worlds, draw each from one `movielens_factors`."""
    factors_rng, world_rng = split(rng, "factors", "world")
    factors = movielens_factors(data, rank=rank, half=half, rng=factors_rng)
    return factors.draw_world(n_actions=n_actions, noise_std=noise_std, rng=world_rng)


def movielens_factors(
    data: MovieLens, *, rank: int = 5, half: bool = False, rng: np.random.Generator
) -> MovieLensFactors:
    """Vectors x_u of users and θ_a of movies, with x_uᵀ θ_a the best approximation of that rank to the ratings.

    Missing ratings are zeros. As in the paper, the vectors to fit a prior on are the true θ_a themselves, so such a
    prior knows much before any data. With `half` it does not: the ratings are split at random, the truth comes from one
    half and the prior's vectors from the other.

    Each half counts double, so that its expectation is the whole matrix and rewards keep their scale against the noise.
    The two halves have different bases, so the second is rotated by the orthogonal matrix that brings its user vectors
    nearest to those of the first. User vectors, not movie vectors: a log shows the true x but never a true θ_a, so the
    rotation tells the prior nothing about θ. A movie without a rating in one half is left out.

    Args:
        data: The ratings.
        rank: r, the dimension of contexts and weights.
        half: True to take truth and prior from separate halves of the ratings.
        rng: A NumPy generator, which splits the ratings.
    """
    halves_rng, truth_rng, prior_rng = split(rng, "halves", "truth", "prior")
    if not half:
        users, items = (frozen(side) for side in factorise(data.matrix(), rank, truth_rng))
        return MovieLensFactors(users, items, items, frozen(np.arange(len(items))), data.genres)
    n = len(data.ratings)
    first = halves_rng.permutation(n) < n // 2
    users, items = factorise(2.0 * data.matrix(first), rank, truth_rng)
    other_users, other_items = factorise(2.0 * data.matrix(~first), rank, prior_rng)
    vectors = other_items @ alignment(other_users, users)
    movies = np.intersect1d(data.movie_rows[first], data.movie_rows[~first])
    genres = [data.genres[row] for row in movies]
    return MovieLensFactors(frozen(users), frozen(items[movies]), frozen(vectors[movies]), frozen(movies), genres)


def load_movielens(path: str | os.PathLike[str] | None = None, *, download: bool = False) -> MovieLens:
    """Read MovieLens 1M in its owners' format: ratings.dat and movies.dat, columns separated by `::`, in Latin-1.

    Args:
        path: A folder that holds the two files, itself, in ml-1m/ or in ml-1m.zip; or the zip. By default the cache
            folder.
        download: True to download the zip into the cache folder (6 MB, for research, not to be passed on) when it is
            not there.

    Raises:
        DataFileError: When a file is missing or damaged. The message says where to get it.
        InputError: Naming the file, the first bad line and a remedy.
    """
    archive = locate(MOVIELENS_1M, path, "ratings.dat", fetch=download)
    ratings_name, movies_name = archive.full_name("ratings.dat"), archive.full_name("movies.dat")
    numbers = _parse_ratings(archive.read("ratings.dat"), ratings_name)
    catalog = _parse_movies(archive.read("movies.dat"), movies_name)
    _check_ratings(ratings_name, movies_name, numbers, np.fromiter(catalog, dtype=np.int64, count=len(catalog)))
    users, user_rows = np.unique(numbers["user"], return_inverse=True)
    movies, movie_rows = np.unique(numbers["movie"], return_inverse=True)
    titles, genres = zip(*(catalog[movie] for movie in movies.tolist()), strict=True)
    stars = numbers["rating"].astype(np.float64)
    users, movies, user_rows, movie_rows, stars = map(frozen, (users, movies, user_rows, movie_rows, stars))
    return MovieLens(users, movies, user_rows, movie_rows, stars, list(titles), list(genres))


def _parse_ratings(data: bytes, name: str) -> dict[str, Int[Array, " n"]]:
    """Four columns of whole numbers, one rating per line."""
    import pyarrow as pa  # noqa: PLC0415  slow to import, and only readers need it
    from pyarrow import csv  # noqa: PLC0415

    data = data.rstrip()
    try:
        table = csv.read_csv(
            io.BytesIO(data.replace(b"::", SEPARATOR.encode())),
            read_options=csv.ReadOptions(column_names=COLUMNS),
            parse_options=csv.ParseOptions(delimiter=SEPARATOR, quote_char=False, ignore_empty_lines=False),
            convert_options=csv.ConvertOptions(column_types=dict.fromkeys(COLUMNS, pa.int64()), null_values=[]),
        )
    except pa.ArrowInvalid as problem:
        _refuse_line(data, name, str(problem))
    return {name: table[name].to_numpy() for name in COLUMNS}


def _refuse_line(data: bytes, name: str, problem: str) -> NoReturn:
    """Raise the error of the first bad line. The fast reader does not name it, so it is searched for."""
    if not data:
        raise ShapeError(f"{name} is empty.", WHERE)
    for line, fields in _lines(data, name, len(COLUMNS)):
        if not all(NUMBER.fullmatch(field) for field in fields):
            raise DataTypeError(f"{name} must hold whole numbers; line {line} is {'::'.join(fields)[:60]!r}.", WHERE)
    raise InputError(f"{name} cannot be read: {without_full_stop(problem)}.", WHERE)


def _lines(data: bytes, name: str, count: int) -> Iterator[tuple[int, list[str]]]:
    """Lines with their numbers, each split into `count` fields."""
    for line, text in enumerate(data.decode("latin-1").rstrip().split("\n"), start=1):
        fields = text.rstrip("\r").split("::")
        if len(fields) != count:
            raise ShapeError(
                f"{name} must have {count} columns separated by '::'; line {line} has {len(fields)}: {text[:60]!r}.",
                WHERE,
            )
        yield line, fields


def _parse_movies(data: bytes, name: str) -> dict[int, tuple[str, tuple[str, ...]]]:
    """Title and genres by movie id."""
    catalog: dict[int, tuple[str, tuple[str, ...]]] = {}
    for line, (number, title, genres) in _lines(data, name, 3):
        if not NUMBER.fullmatch(number):
            raise DataTypeError(f"{name} must begin with a whole number; line {line} has {number!r}.", WHERE)
        movie = int(number)
        if movie in catalog:
            raise InputError(f"{name} must have each movie once; line {line} repeats movie {movie}.", WHERE)
        catalog[movie] = (title, tuple(genre for genre in genres.split("|") if genre))
    return catalog


def _check_ratings(ratings_name: str, movies_name: str, numbers: dict[str, Array], known: Int[Array, " m"]) -> None:
    """Refuse a wrong rating, and a second one of a movie by a user, which the matrix would add to the first."""
    user, movie, stars = numbers["user"], numbers["movie"], numbers["rating"]
    wrong = np.flatnonzero((stars < 1) | (stars > 5))
    if len(wrong):
        raise RangeError(f"{ratings_name} must have ratings 1 to 5; line {wrong[0] + 1} has {stars[wrong[0]]}.", WHERE)
    unknown = np.flatnonzero(~np.isin(movie, known))
    if len(unknown):
        raise InputError(
            f"{movies_name} must list every rated movie; line {unknown[0] + 1} of ratings.dat has movie "
            f"{movie[unknown[0]]}.",
            f"Take both files from one download. {WHERE}",
        )
    order = np.lexsort((movie, user))
    again = order[1:][(np.diff(user[order]) == 0) & (np.diff(movie[order]) == 0)]
    if len(again):
        row = int(again.min())
        raise InputError(
            f"{ratings_name} must have one rating per user and movie; line {row + 1} is another one of user "
            f"{user[row]} for movie {movie[row]}.",
            "Keep one of them.",
        )
