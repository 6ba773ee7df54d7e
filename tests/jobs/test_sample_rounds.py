"""Rounds drawn from a stream, read through one feature map or several."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import manyarms as ma
from manyarms.errors import InputError
from manyarms.jobs import StackedMap, sample_rounds


@pytest.mark.slow
def test_every_round_is_equally_likely_to_be_drawn(shop):
    stream = ma.read_logs(shop / "old", ["age"], "item", "spend")
    ages, counts = stream.collect().contexts[:, 1], np.zeros(600)
    place = {age: i for i, age in enumerate(ages)}
    for seed in range(200):
        drawn = sample_rounds(stream, 30, rng=np.random.default_rng(seed))
        rows = [place[age] for age in drawn.logs.contexts[:, 1]]
        assert rows == sorted(set(rows)) and len(rows) == 30 and drawn.total == 600
        counts[rows] += 1
    # Binomial(200, 1/20) in every file.
    assert_allclose(counts.reshape(3, 200).mean(axis=1), 10, atol=5 * np.sqrt(200 * 0.05 / 200))
    assert counts.max() < 30


def test_a_stacked_map_gives_the_features_of_each_map(shop):
    tables = [pq.read_table(shop / one) for one in ("old", "new")]
    maps = [ma.read_logs(one, ["age", "city"], "item", "spend").features for one in tables]
    stacked = StackedMap([*maps, maps[0]])
    assert len(stacked.maps) == 2
    for one in maps:
        assert_array_equal(stacked.part(stacked(tables[1]), one), one(tables[1]))


def test_a_sample_counts_every_round_of_the_stream(shop):
    stream = ma.read_logs(shop / "old", ["age"], "item", "spend")
    drawn = sample_rounds(stream, 30, rng=np.random.default_rng(0))
    assert drawn.total == 600 and len(drawn.logs) == 30
    assert set(drawn.logs.contexts[:, 1]) <= set(stream.collect().contexts[:, 1])


def test_rounds_read_through_several_maps_have_the_contexts_of_the_first(shop):
    tables = [pq.read_table(shop / one) for one in ("old", "new")]
    maps = [ma.read_logs(one, ["age", "city"], "item", "spend").features for one in tables]
    stream = ma.read_logs(shop / "old", ["age", "city"], "item", "spend", features=StackedMap(maps))
    drawn = sample_rounds(stream, 1000, rng=np.random.default_rng(0))
    assert drawn.logs.features == maps[0]
    assert_array_equal(drawn.logs.contexts, maps[0](tables[0]))
    assert_array_equal(drawn.features.part(drawn.contexts, maps[1]), maps[1](tables[0]))


def test_further_columns_follow_the_rounds_through_dropped_rows_and_samples(shop):
    """Ages stand for the rounds: they are also a context, and distinct."""
    options = dict(catalog=ma.Catalog([f"i{k:02d}" for k in range(9)]), missing="drop", unknown="drop")
    stream = ma.read_logs(shop / "old", ["age"], "item", "spend", keep=["user"], **options)
    rounds = stream.collect()
    assert 0 < len(rounds) < 600
    table = pq.read_table(shop / "old").to_pylist()
    for logs in (rounds, sample_rounds(stream, 30, rng=np.random.default_rng(3)).logs):
        assert_allclose(stream.features(logs.table), logs.contexts)
        assert [table[row]["user"] for row in logs.table["row"].to_pylist()] == logs.table["user"].to_pylist()
    with pytest.raises(InputError, match="no column 'country'"):
        ma.read_logs(shop / "old", ["age"], "item", "spend", keep="country")


def test_a_policy_with_a_map_that_the_rounds_were_not_read_through_is_refused(shop):
    stream = ma.read_logs(shop / "old", ["age"], "item", "spend")
    drawn = sample_rounds(stream, 30, rng=np.random.default_rng(0))
    other = ma.Greedy(ma.load(shop / "model.arrow"))
    with pytest.raises(InputError, match="these rounds were not read through the feature map of the policy"):
        drawn.bound(other)
    assert drawn.bound(plain := ma.Uniform(15)) is plain
