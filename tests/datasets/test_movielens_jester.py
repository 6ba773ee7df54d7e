"""Readers of MovieLens and Jester, and the worlds made of them.

The files are small ones written here in the owners' formats. Where the environment variable MANYARMS_DATA names a
folder with ml-1m/ml-1m.zip and jester/jester_data_1.parquet, those take their place and have the published counts.
"""

import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.linalg import orthogonal_procrustes
from scipy.stats import special_ortho_group
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression

import manyarms as ma
from manyarms.core.choices import Choices
from manyarms.datasets import (
    MatrixEnvironment,
    MovieLens,
    factorise,
    jester_world,
    load_jester,
    load_movielens,
    movielens,
    movielens_factors,
    movielens_world,
    rating_matrix,
)
from manyarms.datasets.rating_matrix import alignment
from manyarms.errors import DataTypeError, InputError, RangeError, ShapeError

REAL = Path(os.environ["MANYARMS_DATA"]) if os.environ.get("MANYARMS_DATA") else None
"""Real data, where there are any; they are never part of this project."""

MOVIES = "1::Léon: The Professional (1994)::Crime|Drama\n7::Never Rated (1990)::Comedy\n30::Amélie, le film::Romance\n"
RATINGS = "5::30::4::978300760\n2::1::5::0\n5::1::1::0\n9::30::3::978300761\n"


def rng(seed=0):
    return np.random.default_rng(seed)


# --- MovieLens: the files


def write(where, files, layout="folder"):
    """The files of MovieLens in one of the ways that users have them; returns the path to load."""
    where.mkdir(exist_ok=True, parents=True)
    packed = {name: text.encode("latin-1") for name, text in files.items()}
    if "zip" in layout:
        with zipfile.ZipFile(where / "ml-1m.zip", "w") as archive:
            for name, content in packed.items():
                archive.writestr(f"ml-1m/{name}", content)
        return where if layout == "folder with zip" else where / "ml-1m.zip"
    folder = where / "ml-1m" if layout == "nested" else where
    folder.mkdir(exist_ok=True)
    for name, content in packed.items():
        (folder / name).write_bytes(content)
    return where


@pytest.mark.parametrize("layout", ["folder", "nested", "zip", "folder with zip"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_movielens_is_read_from_a_folder_or_a_zip(tmp_path, layout, newline):
    files = {"ratings.dat": RATINGS.replace("\n", newline), "movies.dat": MOVIES.replace("\n", newline)}
    data = load_movielens(write(tmp_path, files, layout))
    assert data.users.tolist() == [2, 5, 9]
    assert data.movies.tolist() == [1, 30]
    assert data.users[data.user_rows].tolist() == [5, 2, 5, 9]
    assert data.movies[data.movie_rows].tolist() == [30, 1, 1, 30]
    assert data.ratings.tolist() == [4, 5, 1, 3]
    assert data.titles == ["Léon: The Professional (1994)", "Amélie, le film"]
    assert data.genres == [("Crime", "Drama"), ("Romance",)]
    assert_array_equal(data.matrix().toarray(), [[5, 0], [1, 4], [0, 3]])
    assert_array_equal(data.matrix(data.ratings > 3).toarray(), [[5, 0], [0, 4], [0, 0]])
    with pytest.raises(ValueError, match="read-only"):
        data.ratings[0] = 1


BAD_FILES = {
    "three columns": (dict(ratings=RATINGS + "5::30::4\n"), ShapeError, r"ratings\.dat .*line 5 has 3"),
    "a line left empty": (dict(ratings="\n" + RATINGS), ShapeError, "line 1 has 1"),
    "another separator": (dict(ratings=RATINGS.replace("::", ",")), ShapeError, "line 1 has 1: '5,30,4,978300760'"),
    "a comma in a number": (dict(ratings=RATINGS + "1,2::1::5::0"), DataTypeError, "line 5 is '1,2::1::5::0'"),
    "a word": (dict(ratings=RATINGS + "5::x::4::0\n"), DataTypeError, "ratings.dat must hold whole numbers; line 5"),
    "half a star": (dict(ratings=RATINGS + "2::30::4.5::0\n"), DataTypeError, "line 5"),
    "an id beyond int64": (dict(ratings=RATINGS + f"{10**30}::30::4::0"), DataTypeError, "line 5"),
    "no number": (dict(ratings=RATINGS + "2::30::::0\n"), DataTypeError, "line 5"),
    "six stars": (dict(ratings=RATINGS + "2::30::6::0\n"), RangeError, "ratings 1 to 5; line 5 has 6"),
    "no star": (dict(ratings="2::30::0::0\n" + RATINGS), RangeError, "line 1 has 0"),
    "unknown movie": (dict(ratings=RATINGS + "2::8::4::0\n"), InputError, r"line 5 of ratings\.dat has movie 8"),
    "rated twice": (dict(ratings=RATINGS + "9::30::5::0\n"), InputError, "line 5 is another one of user 9 .* 30"),
    "no ratings": (dict(ratings=""), ShapeError, "ratings.dat is empty"),
    "movies without genres": (dict(movies=MOVIES + "31::Title\n"), ShapeError, r"movies\.dat .*line 4 has 2"),
    "movies without a number": (dict(movies="x::Title::Drama\n" + MOVIES), DataTypeError, "line 1 has 'x'"),
    "a movie twice": (dict(movies=MOVIES + "1::Again::Drama\n"), InputError, "line 4 repeats movie 1"),
    "no movies": (dict(movies=""), ShapeError, r"movies\.dat .*line 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_damaged_file_is_refused_by_file_and_line(tmp_path, name):
    change, error, message = BAD_FILES[name]
    files = {f"{key}.dat": text for key, text in (dict(ratings=RATINGS, movies=MOVIES) | change).items()}
    with pytest.raises(error, match=message) as caught:
        load_movielens(write(tmp_path, files))
    assert isinstance(caught.value, InputError)


@pytest.mark.parametrize("layout", ["folder", "zip"])
@pytest.mark.parametrize("missing", ["ratings.dat", "movies.dat"])
def test_a_missing_file_is_named_with_where_to_get_it(tmp_path, layout, missing):
    files = {"ratings.dat": RATINGS, "movies.dat": MOVIES}
    del files[missing]
    with pytest.raises(InputError, match=rf"{missing}.*MovieLens 1M.*GroupLens"):
        load_movielens(write(tmp_path, files, layout))


def test_what_is_not_there_or_no_zip_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"nowhere does not exist; ratings\.dat was expected.*GroupLens"):
        load_movielens(tmp_path / "nowhere")
    (tmp_path / "ratings.dat").write_text(RATINGS)
    with pytest.raises(InputError, match=r"cannot be read from .*not a zip file"):
        load_movielens(tmp_path / "ratings.dat")
    path = write(tmp_path / "other", {"ratings.dat": RATINGS, "movies.dat": MOVIES}, "zip")
    path.write_bytes(path.read_bytes().replace(b"978300760", b"978300769"))
    with pytest.raises(InputError, match=r"ratings\.dat cannot be read from .*CRC"):
        load_movielens(path)


@pytest.fixture(scope="module")
def movielens_file(tmp_path_factory):
    """The real file, or one of the same format with four thousand ratings of 300 movies, 20 of them unrated."""
    if REAL is not None:
        return REAL / "ml-1m" / "ml-1m.zip"
    draw = rng(1)
    cells = draw.choice(150 * 280, size=4000, replace=False)
    liking = draw.normal(size=(150, 2)) @ draw.normal(size=(2, 280))
    stars = np.clip(np.round(3.5 + liking.reshape(-1)[cells]), 1, 5).astype(int)
    lines = [f"{1 + cell // 280}::{1 + cell % 280}::{star}::0" for cell, star in zip(cells, stars, strict=True)]
    films = [f"{number}::Film {number} (2000)::{'Drama' if number % 3 else 'Comedy|War'}" for number in range(1, 301)]
    files = {"ratings.dat": "\n".join(lines) + "\n", "movies.dat": "\n".join(films) + "\n"}
    return write(tmp_path_factory.mktemp("movielens"), files, "zip")


@pytest.fixture(scope="module")
def ratings(movielens_file):
    return load_movielens(movielens_file)


def test_counts_are_those_of_the_lines(movielens_file, ratings):
    with zipfile.ZipFile(movielens_file) as archive:
        lines = archive.read("ml-1m/ratings.dat").decode().splitlines()
        films = archive.read("ml-1m/movies.dat").decode("latin-1").splitlines()
    rows = np.array([line.split("::")[:3] for line in lines], dtype=int)
    ids = ratings.users[ratings.user_rows], ratings.movies[ratings.movie_rows]
    assert_array_equal(np.column_stack([*ids, ratings.ratings]), rows)
    assert ratings.users.tolist() == sorted(set(rows[:, 0].tolist()))
    by_id = {int(film.split("::")[0]): film.split("::")[1:] for film in films}
    for k in range(0, len(ratings.movies), 7):
        assert by_id[ratings.movies[k]] == [ratings.titles[k], "|".join(ratings.genres[k])]
    counts = (len(ratings.ratings), len(ratings.users), len(ratings.movies))
    assert counts == ((1_000_209, 6040, 3706) if REAL else (4000, 150, 280))
    assert len(films) > len(ratings.movies)
    if REAL:
        assert_allclose(ratings.ratings.mean(), 3.58156, atol=5e-6)


# --- Factorisation


@pytest.mark.parametrize("path", ["dense", "sparse", "iterated"])
@pytest.mark.parametrize("shape", [(30, 20), (20, 30)])
def test_factors_are_the_largest_singular_vectors(monkeypatch, path, shape):
    given = rng(2).normal(size=shape) * (rng(3).random(shape) < 0.5)
    if path == "iterated":
        monkeypatch.setattr(rating_matrix, "DENSE_CELLS", 0)
    users, items = factorise(given if path == "dense" else sparse.coo_array(given), 4, rng(4))
    U, s, Vt = np.linalg.svd(given)
    assert_allclose(users @ items.T, U[:, :4] @ np.diag(s[:4]) @ Vt[:4], atol=1e-10)
    assert_allclose(users.T @ users, np.diag(s[:4]), atol=1e-10)
    assert_allclose(items.T @ items, np.diag(s[:4]), atol=1e-10)
    assert (items.max(axis=0) > -items.min(axis=0)).all()
    for again in (factorise(given, 4, rng(4)), factorise(given, 4, rng(5))):
        assert_allclose(again[0], users, atol=1e-10)
        assert_allclose(again[1], items, atol=1e-10)


def test_factors_of_full_rank_give_the_matrix_back(monkeypatch):
    monkeypatch.setattr(rating_matrix, "DENSE_CELLS", 0)
    given = rng(6).normal(size=(7, 5))
    users, items = factorise(given, 5, rng())
    assert_allclose(users @ items.T, given, atol=1e-12)


def test_alignment_finds_a_known_rotation_and_the_best_one_otherwise():
    source = rng(7).normal(size=(40, 4))
    turn = special_ortho_group(4, seed=8).rvs() * [1, 1, -1, 1]  # a reflection is allowed too
    assert_allclose(alignment(source, source @ turn), turn, atol=1e-12)
    target = source @ turn + rng(9).normal(size=(40, 4))
    assert_allclose(alignment(source, target), orthogonal_procrustes(source, target)[0], atol=1e-12)


def test_what_cannot_be_factorised_is_refused():
    for rank, error in ((0, RangeError), (4, RangeError), (2.0, DataTypeError)):
        with pytest.raises((error, TypeError), match="rank"):
            factorise(np.ones((3, 5)), rank, rng())
    with pytest.raises(InputError, match="not zero"):
        factorise(np.zeros((3, 5)), 2, rng())
    for bad in (np.array([[1.0, np.nan], [1.0, 1.0]]), sparse.csr_array([[1.0, np.inf], [1.0, 1.0]])):
        with pytest.raises(InputError, match="matrix must be finite"):
            factorise(bad, 1, rng())


# --- MovieLens: worlds


def test_the_prior_may_see_the_truth_unless_ratings_are_halved(ratings):
    factors = movielens_factors(ratings, rank=3, rng=rng())
    assert_array_equal(factors.prior_vectors, factors.items)
    assert_array_equal(factors.movies, np.arange(len(ratings.movies)))
    table = ratings.matrix()
    s = np.linalg.svd(table.toarray(), compute_uv=False)[:3] if REAL is None else [1893.21, 671.34, 574.85]
    assert_allclose((factors.users**2).sum(axis=0), s, rtol=1e-5)
    # ‖R - X Θᵀ‖² is what the singular values left out hold.
    cross = np.einsum("ur,ur->", factors.users, table @ factors.items)
    assert_allclose(cross, np.square(s).sum(), rtol=1e-5)


def test_halves_share_no_rating_and_meet_in_the_space_of_the_users(ratings, monkeypatch):
    seen = []

    def spy(table, rank, rng):
        seen.append((table, factorise(table, rank, rng)))
        return seen[-1][1]

    monkeypatch.setattr(movielens, "factorise", spy)
    factors = movielens_factors(ratings, rank=3, half=True, rng=rng(10))
    (first, (users, items)), (second, (other_users, other_items)) = seen
    assert abs(first - second).sum() == (first + second).sum() == 2 * ratings.ratings.sum()
    assert abs(first.nnz - second.nnz) <= 1
    assert abs((first + second) - 2 * ratings.matrix()).max() == 0
    rated = [(table != 0).sum(axis=0) > 0 for table in (first, second)]
    assert_array_equal(factors.movies, np.flatnonzero(rated[0] & rated[1]))
    assert_array_equal(factors.users, users)
    assert_array_equal(factors.items, items[factors.movies])
    turned = other_items @ orthogonal_procrustes(other_users, users)[0]
    assert_allclose(factors.prior_vectors, turned[factors.movies], atol=1e-8)
    assert factors.genres == [ratings.genres[row] for row in factors.movies]
    # The same scale as the whole: what a half has more of is the noise of the split.
    whole = movielens_factors(ratings, rank=3, rng=rng())
    assert 0.9 < np.square(factors.items).sum() / np.square(whole.items).sum() < 1.6
    assert not np.array_equal(factors.prior_vectors, factors.items)


def test_the_turn_makes_the_two_halves_agree_where_bases_are_arbitrary():
    """Two groups, alike, who rate all movies of their own kind: two equal singular values, and any basis will do."""
    n, m = 600, 200
    user, movie = np.divmod(np.arange(n * m), m)
    user, movie = user[user % 2 == movie % 2], movie[user % 2 == movie % 2]
    data = MovieLens(np.arange(n), np.arange(m), user, movie, np.full(len(user), 5.0), ["x"] * m, [()] * m)
    for seed in range(5):
        factors = movielens_factors(data, rank=2, half=True, rng=rng(seed))
        apart = np.square(factors.prior_vectors - factors.items).sum() / np.square(factors.items).sum()
        assert apart < 0.05
        # In expectation a doubled half is the whole: the ratings come back at their own scale.
        guess = factors.users @ factors.items.T
        assert_allclose(guess[user, movie].mean(), 5.0, atol=0.1)
        assert_allclose(guess[1 - user % 2, movie].mean(), 0.0, atol=0.1)


@pytest.mark.parametrize("half", [False, True])
def test_a_world_is_a_linear_one_on_movies_drawn_without_replacement(ratings, half):
    factors = movielens_factors(ratings, rank=3, half=half, rng=rng(11))
    world = factors.draw_world(n_actions=40, noise_std=0.5, rng=rng(12))
    assert len(set(world.items.tolist())) == 40
    rows = np.searchsorted(factors.movies, world.items)
    assert_array_equal(world.environment.weights, factors.items[rows])
    assert_array_equal(world.item_vectors, factors.prior_vectors[rows])
    assert world.genres == [ratings.genres[row] for row in world.items]
    x = world.environment.contexts(500, rng(13))
    assert {tuple(row) for row in x} <= {tuple(row) for row in factors.users}
    assert len({tuple(row) for row in x}) > 50
    logs = world.environment.log(ma.Uniform(40), 4000, rng(14))
    noise = logs.rewards - np.einsum("nd,nd->n", logs.contexts, factors.items[rows[logs.actions]])
    assert abs(noise.std() / 0.5 - 1) < 4 / np.sqrt(8000)
    assert abs(noise.mean()) < 4 * 0.5 / np.sqrt(4000)
    assert_allclose(world.environment.optimal_value(x), (x @ factors.items[rows].T).max(axis=1).mean())


def test_worlds_are_given_by_their_generator_and_travel_to_processes(ratings):
    worlds = [movielens_world(ratings, n_actions=20, rank=2, half=True, rng=rng(seed)) for seed in (1, 1, 2)]
    assert_array_equal(worlds[0].items, worlds[1].items)
    assert_allclose(worlds[0].item_vectors, worlds[1].item_vectors, atol=1e-10)
    assert not np.array_equal(worlds[0].items, worlds[2].items)
    copy = pickle.loads(pickle.dumps(worlds[0]))
    assert_array_equal(copy.environment.contexts(5, rng(3)), worlds[0].environment.contexts(5, rng(3)))
    with pytest.raises(RangeError, match="n_actions must be at most"):
        movielens_world(ratings, n_actions=5000, rank=2, rng=rng())


# --- Jester: the file


def write_jester(path, user, joke, rating, **types):
    columns = dict(user=pa.array(user), joke=pa.array(joke), rating=pa.array(rating)) | types
    pq.write_table(pa.table({name: column for name, column in columns.items() if column is not None}), path)
    return path


LONG = dict(user=[4, 4, 7, 7, 7, 2, 2, 2], joke=[1, 5, 5, 3, 1, 1, 3, 5], rating=[1.0, 2, 3, 4, 5, 6, 7, -8])


def test_jester_keeps_users_who_rated_every_joke(tmp_path):
    path = write_jester(tmp_path / "jester_data_1.parquet", **LONG)
    for where in (path, tmp_path, str(tmp_path)):
        assert_array_equal(load_jester(where), [[6, 7, -8], [5, 4, 3]])
    with pytest.raises(ValueError, match="read-only"):
        load_jester(path)[0, 0] = 1


def changed(name, row, value):
    return {name: [value if k == row else old for k, old in enumerate(LONG[name])]}


BAD_JESTER = {
    "no joke column": (dict(joke=None), ShapeError, "must have columns joke too; it has user, rating"),
    "ids as words": (
        dict(user=pa.array(list("abcdefgh"))),
        DataTypeError,
        "column user .* must be integer; it is string",
    ),
    "ratings as words": (dict(rating=pa.array(list("abcdefgh"))), DataTypeError, "column rating"),
    "an id missing": (changed("joke", 3, None), InputError, "joke of .* must not be empty or NaN; row 3 has no value"),
    "a rating missing": (
        changed("rating", 5, None),
        InputError,
        "rating of .* must not be empty or NaN; row 5",
    ),
    "a rating that is no number": (changed("rating", 2, np.nan), InputError, "rating of .* must be finite; row 2"),
    "99 for no rating": (changed("rating", 4, 99.0), RangeError, r"\[-10, 10\]; row 4 has 99"),
    "a rating twice": (changed("joke", 1, 1), InputError, "user 4 rated joke 1 2 times"),
    "no complete user": (dict(joke=[1, 5, 5, 3, 2, 1, 3, 5]), ShapeError, "no user rated all 4 jokes"),
}


@pytest.mark.parametrize("name", BAD_JESTER)
def test_a_wrong_jester_file_is_refused_by_column_and_row(tmp_path, name):
    change, error, message = BAD_JESTER[name]
    columns = {key: None if value is None else pa.array(value) for key, value in (LONG | change).items()}
    pq.write_table(
        pa.table({key: value for key, value in columns.items() if value is not None}), tmp_path / "j.parquet"
    )
    with pytest.raises(error, match=message) as caught:
        load_jester(tmp_path / "j.parquet")
    assert isinstance(caught.value, InputError)


def test_a_missing_or_damaged_jester_file_is_named_with_where_to_get_it(tmp_path):
    with pytest.raises(InputError, match=r"holds jester_data_1\.parquet.*Jester dataset 1.*Berkeley"):
        load_jester(tmp_path)
    (tmp_path / "jester_data_1.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(InputError, match=r"cannot be read as Parquet.*Berkeley"):
        load_jester(tmp_path)


@pytest.fixture(scope="module")
def jester_file(tmp_path_factory):
    """The real file, or one of the same format: 300 users, 30 jokes, the first 250 users rated all of them."""
    if REAL is not None:
        return REAL / "jester" / "jester_data_1.parquet"
    draw = rng(20)
    table = np.clip(draw.normal(size=(300, 4)) @ draw.normal(size=(4, 30)) + draw.normal(size=(300, 30)), -10, 10)
    kept = draw.random(table.shape) < 0.7
    kept[:250], kept[250:, 0] = True, False
    user, joke = np.nonzero(kept)
    shuffled = draw.permutation(len(user))
    columns = (
        user[shuffled].astype(np.int32),
        joke[shuffled].astype(np.int16),
        table[kept][shuffled].astype(np.float32),
    )
    return write_jester(tmp_path_factory.mktemp("jester") / "jester_data_1.parquet", *columns)


@pytest.fixture(scope="module")
def jokes(jester_file):
    return load_jester(jester_file)


def test_complete_users_are_counted_and_keep_their_ratings(jester_file, jokes):
    table = pq.read_table(jester_file)
    of_user = {}
    for user, joke, rating in zip(*(table[name].to_pylist() for name in ("user", "joke", "rating")), strict=True):
        of_user.setdefault(user, {})[joke] = rating
    complete = [of_user[user] for user in sorted(of_user) if len(of_user[user]) == jokes.shape[1]]
    assert jokes.shape == (len(complete), len(complete[0])) == ((7200, 100) if REAL else (250, 30))
    assert_array_equal(jokes, [[row[joke] for joke in sorted(row)] for row in complete])


# --- Fully observed matrices: worlds


class Tilted(ma.Policy):
    """Softmax of fixed scores: depends on the context, and its probabilities are easy to write down."""

    def __init__(self, weights):
        self.weights, (self.n_actions, self.dim) = weights, weights.shape

    def table(self, contexts):
        scores = np.exp(contexts @ self.weights.T)
        return scores / scores.sum(axis=1, keepdims=True)

    def choices(self, contexts, eligible):
        dense = self.table(contexts) * (1.0 if eligible is None else eligible.toarray())
        return Choices(len(contexts), self.n_actions, dense=dense / dense.sum(axis=1, keepdims=True))


@pytest.fixture
def known_matrix():
    table, features = rng(30).normal(size=(60, 8)), rng(31).normal(size=(60, 3))
    return MatrixEnvironment(table, features, np.arange(5, 60, 3)), table, features


def test_value_is_the_mean_real_rating_over_the_test_users(known_matrix):
    environment, table, features = known_matrix
    policy = Tilted(rng(32).normal(size=(8, 3)))
    policy.rows_per_block = 4
    users = range(5, 60, 3)
    chances = policy.table(features)
    brute = np.mean([sum(chances[u, a] * table[u, a] for a in range(8)) for u in users])
    assert_allclose(environment.value(policy), brute, rtol=1e-12)
    assert_allclose(environment.value(ma.Uniform(8)), np.mean([table[u].mean() for u in users]), rtol=1e-12)
    assert_allclose(environment.optimal_value(), np.mean([max(table[u]) for u in users]), rtol=1e-12)
    best = ma.TablePolicy(np.eye(8)[table[list(users)].argmax(axis=1)])
    assert_allclose(environment.value(best), environment.optimal_value(), rtol=1e-12)
    allowed = [[u % 8, (u + 1) % 8] for u in users]
    two = np.mean([table[u, pair].mean() for u, pair in zip(users, allowed, strict=True)])
    assert_allclose(environment.value(ma.Uniform(8), eligible=allowed), two, rtol=1e-12)
    with pytest.raises(ShapeError, match="7 actions; the environment has 8"):
        environment.value(ma.Uniform(7))


def test_logs_are_real_ratings_of_logging_users_only(known_matrix):
    environment, table, features = known_matrix
    policy = Tilted(rng(33).normal(size=(8, 3)))
    logs = environment.log(policy, 20_000, rng(34))
    logging_users = np.setdiff1d(np.arange(60), np.arange(5, 60, 3))
    assert_array_equal(np.unique(logs.groups), logging_users)
    assert_array_equal(logs.contexts, features[logs.groups])
    assert_array_equal(logs.rewards, table[logs.groups, logs.actions])
    chances = policy.table(features)
    assert_allclose(logs.propensities, chances[logs.groups, logs.actions], rtol=1e-12)
    assert logs.logging_policy is policy
    # Every pair of user and action comes as often as it should.
    counts = np.zeros((60, 8))
    np.add.at(counts, (logs.groups, logs.actions), 1)
    expected = 20_000 * chances[logging_users] / len(logging_users)
    assert (np.abs(counts[logging_users] - expected) < 5 * np.sqrt(expected) + 1).all()
    x = environment.contexts(200, rng(35))
    assert {tuple(row) for row in x} <= {tuple(features[u]) for u in logging_users}
    assert_array_equal(environment.test_contexts, features[5:60:3])


def test_a_wrong_matrix_world_is_refused():
    table, features = np.ones((6, 3)), np.ones((6, 2))
    wrong = [
        ((table, features[:5], [1]), ShapeError, "features must have 6 rows"),
        ((table * np.nan, features, [1]), InputError, "matrix must be finite"),
        ((table, features, [6]), InputError, "test_users"),
        ((table, features, [1, 1]), InputError, "distinct"),
        ((table, features, np.arange(6)), ShapeError, "both sides"),
        ((table, features, np.arange(0)), ShapeError, "both sides"),
        ((table, features[:, :0], [1]), ShapeError, "at least one column"),
    ]
    for arguments, error, message in wrong:
        with pytest.raises(error, match=message):
            MatrixEnvironment(*arguments)


def test_a_jester_world_is_made_of_real_ratings_with_no_user_or_joke_on_two_sides(jokes):
    n_users, n_jokes = jokes.shape
    world = jester_world(jokes, rank=3, n_actions=n_jokes // 2, n_prior_users=60, test_share=0.4, rng=rng(40))
    environment = world.environment
    assert sorted([*world.items, *world.known]) == list(range(n_jokes))
    number = {row.tobytes(): user for user, row in enumerate(jokes[:, world.items])}
    rest = np.array([number[row.tobytes()] for row in environment.matrix])
    assert len(set(rest.tolist())) == n_users - 60
    assert len(environment.test_users) == round(0.4 * (n_users - 60))
    early = np.setdiff1d(np.arange(n_users), rest)
    seen = np.concatenate([early, rest[environment.logging_users]])

    pca = PCA(3, whiten=True, svd_solver="full").fit(jokes[np.ix_(seen, world.known)])
    scores = pca.transform(jokes[:, world.known]) * np.sqrt(len(seen) / (len(seen) - 1))
    assert_array_equal(environment.features[:, 0], 1.0)
    sign = np.sign((environment.features[:, 1:] * scores[rest]).sum(axis=0))
    assert_allclose(environment.features[:, 1:], sign * scores[rest], atol=1e-8)
    fitted = LinearRegression().fit(sign * scores[early], jokes[np.ix_(early, world.items)])
    assert_allclose(world.item_vectors, np.column_stack([fitted.intercept_, fitted.coef_]), atol=1e-8)


def test_contexts_of_a_jester_world_tell_of_ratings_to_come(jokes):
    """Choosing by the weights that all logging users' ratings give beats the one best joke."""
    world = jester_world(jokes, rank=4, n_actions=jokes.shape[1] // 2, n_prior_users=60, rng=rng(41))
    environment = world.environment
    x, r = environment.features[environment.logging_users], environment.matrix[environment.logging_users]
    weights = np.linalg.lstsq(x, r, rcond=None)[0].T
    by_context = environment.matrix[
        environment.test_users, (environment.test_contexts @ weights.T).argmax(axis=1)
    ].mean()
    fixed = environment.matrix[environment.test_users, r.mean(axis=0).argmax()].mean()
    assert environment.value(ma.Uniform(environment.n_actions)) < fixed < by_context < environment.optimal_value()


def test_a_jester_world_is_given_by_its_generator_and_refuses_what_does_not_fit(jokes):
    worlds = [jester_world(jokes, rank=2, n_actions=10, n_prior_users=20, rng=rng(seed)) for seed in (1, 1, 2)]
    assert_array_equal(worlds[0].items, worlds[1].items)
    assert_array_equal(worlds[0].environment.matrix, worlds[1].environment.matrix)
    assert not np.array_equal(worlds[0].items, worlds[2].items)
    many = jokes.shape[1]
    with pytest.raises(RangeError, match="n_actions \\+ rank must be at most"):
        jester_world(jokes, rank=2, n_actions=many - 1, n_prior_users=20, rng=rng())
    with pytest.raises(RangeError, match="n_prior_users must be at least 3"):
        jester_world(jokes, rank=2, n_actions=10, n_prior_users=2, rng=rng())
    with pytest.raises(RangeError, match="n_prior_users must be at most"):
        jester_world(jokes, rank=2, n_actions=10, n_prior_users=len(jokes), rng=rng())
    with pytest.raises(RangeError, match="rank must be at most that of the known ratings"):
        twins = np.repeat(rng(3).normal(size=(40, 1)), 12, axis=1)
        jester_world(twins, rank=3, n_actions=5, n_prior_users=10, rng=rng())
