"""The Jester reader, and the worlds made from its ratings."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_set_files import REAL
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression
from world_data import rng

import manyarms as ma
from manyarms.datasets import (
    jester_world,
    load_jester,
)
from manyarms.errors import DataTypeError, InputError, RangeError, ShapeError


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


def test_fifty_jokes_are_actions_unless_told_otherwise():
    jokes = rng(42).uniform(-10.0, 10.0, size=(130, 60))
    world = jester_world(jokes, rng=rng(43))
    assert world.environment.n_actions == len(world.items) == 50 and len(world.known) == 10
