"""Logged data are read in batches that cover the log in order, and split by time without a look ahead."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import manyarms as ma
from manyarms.core.feature_map import FeatureMap, Numeric
from manyarms.core.logged_data import COLUMNS
from manyarms.errors import DataTypeError, InputError, NonFiniteError, ShapeError


def test_batches_cover_the_log_in_order():
    rng = np.random.default_rng(0)
    logs = ma.LoggedData(
        rng.normal(size=(25, 2)), rng.integers(0, 4, 25), rng.normal(size=25), rng.uniform(0.1, 1, 25), 4,
        weights=np.ones(25), groups=np.arange(25) // 5, times=np.arange(25.0), segments=np.arange(25) % 3,
        logging_policy=ma.Uniform(4),
    )  # fmt: skip
    parts = list(logs.batches(size=10))
    assert [len(part) for part in parts] == [10, 10, 5]
    for name in COLUMNS:
        assert_array_equal(np.concatenate([getattr(part, name) for part in parts]), getattr(logs, name))


DAYS = np.datetime64("2024-01-01") + np.arange(20).astype("timedelta64[D]")


def timed(times, **columns):
    n = len(times)
    return ma.LoggedData(np.ones((n, 1)), np.arange(n) % 3, np.arange(float(n)), times=times, **columns)


@pytest.mark.parametrize("kind", ["datetime64[D]", "datetime64[ns]", np.int64, np.float64])
@pytest.mark.parametrize("fraction", [0.3, 0.5, 0.8])
def test_the_first_part_of_a_split_by_time_ends_before_the_second_begins(kind, fraction):
    logs = timed(np.random.default_rng(0).permutation(DAYS).astype(kind))
    first, second = logs.split(fraction, by="time")
    assert first.times.max() < second.times.min()
    assert len(first) == fraction * len(logs)
    assert_array_equal(np.sort([*first.rows, *second.rows]), np.arange(20))
    assert_array_equal(first.times, logs.times[first.rows])


def test_rounds_of_one_instant_stay_together():
    logs = timed(np.repeat([3, 1, 2], [4, 9, 7]))
    first, second = logs.split(0.5, by="time")
    assert set(first.times) == {1} and set(second.times) == {2, 3}
    with pytest.raises(InputError, match=r"fraction of 0\.95 leaves one side"):
        logs.split(0.95, by="time")


@pytest.mark.parametrize("seed", range(5))
def test_groups_are_whole_and_those_of_the_second_part_begin_after_those_of_the_first(seed):
    rng = np.random.default_rng(seed)
    users = rng.integers(0, 60, 400)
    # A user comes back for a while after the first visit.
    times = rng.uniform(0, 100, 60)[users] + rng.exponential(5.0, 400)
    first, second = timed(times, groups=users).split(0.5, by="time")
    assert not set(first.groups) & set(second.groups)
    begins = [first.times[first.groups == user].min() for user in set(first.groups)]
    assert max(begins) < second.times.min()
    assert abs(len(first) - 200) <= np.bincount(users).max() / 2


def test_times_do_not_change_the_fingerprint():
    assert timed(DAYS).fingerprint == timed(DAYS[::-1]).fingerprint
    plain = ma.LoggedData(np.ones((20, 1)), np.arange(20) % 3, np.arange(20.0))
    assert plain.fingerprint == timed(DAYS).fingerprint
    assert plain.times is None and "times" in repr(timed(DAYS)) and "times" not in repr(plain)


@pytest.mark.parametrize(
    ("times", "error", "message"),
    [
        (np.array(["2024-01-01", "NaT", "2024-01-02"], "datetime64[D]"), NonFiniteError, "times must be finite; row 1"),
        ([0.0, 1.0, np.inf], NonFiniteError, "times must be finite; row 2 has inf"),
        (np.ma.array([1, 2, 3], mask=[0, 0, 1]), NonFiniteError, "times has masked values; the first is in row 2"),
        (["2024-01-01"] * 3, DataTypeError, "times must be datetime64 or numbers.*as in np.asarray"),
        ([True, False, True], DataTypeError, "times must be datetime64 or numbers"),
        ([1, 2], ShapeError, "times must have 3 rows; got 2"),
        ([[1], [2], [3]], ShapeError, "times must have 1 axis"),
        ([[1], [2, 3], [3]], ShapeError, "times must be one time per row"),
        (3, ShapeError, "times must have 1 axis"),
    ],
)
def test_times_that_are_not_times_are_refused_with_the_row(times, error, message):
    with pytest.raises(error, match=message) as caught:
        ma.LoggedData(np.ones((3, 1)), [0, 1, 0], [0.0, 1.0, 1.0], times=times)
    assert caught.value.argument == "times"


def test_times_that_are_all_alike_cannot_split():
    with pytest.raises(InputError, match=r'times are the same for all rounds.*Split by "group" or "row"'):
        timed(np.zeros(20)).split(0.5, by="time")
    with pytest.raises(InputError, match="times are the same where groups begin"):
        timed(np.arange(20) // 10, groups=np.arange(20) % 10).split(0.5, by="time")


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        (dict(n_actions=4, catalog=ma.Catalog(list("abc"))), ShapeError, "catalog has 3 actions; n_actions is 4"),
        (dict(features=FeatureMap([Numeric("age")])), ShapeError, "features makes 2 columns; contexts have 1"),
    ],
)
def test_logs_and_what_describes_them_are_of_one_size(columns, error, message):
    with pytest.raises(error, match=message):
        timed(DAYS, **{"catalog": None} | columns)


def test_an_empty_log_needs_the_number_of_actions():
    with pytest.raises(ShapeError, match=r"an empty log does not show how many actions there are. Pass n_actions="):
        ma.LoggedData(np.ones((0, 2)), [], [])
    assert ma.LoggedData(np.ones((0, 2)), [], [], n_actions=3).n_actions == 3


def test_a_split_is_by_row_group_or_time(own_errors):
    with pytest.raises(InputError, match='by must be "row", "group" or "time"; got \'day\''):
        timed(DAYS).split(0.5, by="day")


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_the_kept_columns_come_back_as_a_table_of_the_library_that_they_came_from(library):
    module = pytest.importorskip(library)
    columns = {"x": [1.0, 2.0, 3.0], "a": [0, 1, 0], "r": [1.0, 0.0, 1.0], "city": ["Oslo", "Riga", "Oslo"]}
    table = module.table(columns) if library == "pyarrow" else module.DataFrame(columns)
    frame = ma.read_logs(table, "x", "a", "r").take(np.array([2, 0])).frame
    assert type(frame) is type(table)
    assert list(frame["city"]) == list(table["city"].take([2, 0]) if library == "pyarrow" else table["city"][[2, 0]])
