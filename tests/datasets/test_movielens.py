"""The MovieLens reader, and the worlds made from its ratings."""

import pickle
import zipfile

import numpy as np
import pytest
from data_set_files import REAL
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import orthogonal_procrustes
from world_data import rng

import manyarms as ma
from manyarms.datasets import (
    MovieLens,
    factorise,
    load_movielens,
    movielens,
    movielens_factors,
    movielens_world,
)
from manyarms.errors import DataTypeError, InputError, RangeError, ShapeError

MOVIES = "1::Léon: The Professional (1994)::Crime|Drama\n7::Never Rated (1990)::Comedy\n30::Amélie, le film::Romance\n"
RATINGS = "5::30::4::978300760\n2::1::5::0\n5::1::1::0\n9::30::3::978300761\n"


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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_worlds_are_given_by_their_generator_and_travel_to_processes(ratings):
    worlds = [movielens_world(ratings, n_actions=20, rank=2, half=True, rng=rng(seed)) for seed in (1, 1, 2)]
    assert_array_equal(worlds[0].items, worlds[1].items)
    assert_allclose(worlds[0].item_vectors, worlds[1].item_vectors, atol=1e-10)
    assert not np.array_equal(worlds[0].items, worlds[2].items)
    copy = pickle.loads(pickle.dumps(worlds[0]))
    assert_array_equal(copy.environment.contexts(5, rng(3)), worlds[0].environment.contexts(5, rng(3)))
    with pytest.raises(RangeError, match="n_actions must be at most"):
        movielens_world(ratings, n_actions=5000, rank=2, rng=rng())
