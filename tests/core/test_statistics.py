"""Statistics are sums over rounds, and those of two logs add up."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import manyarms as ma
from manyarms.core.statistics import StatisticsSum
from manyarms.engines.engine import LOCAL
from manyarms.likelihoods.collect_statistics import CollectStatistics


def dense_sums(statistics):
    """Gram, moment and Σ r² of every action, whatever form the statistics keep them in."""
    k, d = statistics.n_actions, statistics.dim
    gram, moment, square = np.zeros((k, d, d)), np.zeros((k, d)), np.zeros(k)
    rows, sums = statistics.rows, statistics.sums
    for a, x, r in zip(rows.actions, rows.features, rows.rewards, strict=True):
        gram[a] += np.outer(x, x)
        moment[a] += r * x
        square[a] += r * r
    gram[sums.actions] += sums.gram
    moment[sums.actions] += sums.moment
    square[sums.actions] += sums.reward_sq
    return np.concatenate([gram.ravel(), moment.ravel(), square])


@pytest.mark.parametrize("n", [0, 1, 7, 200])
def test_statistics_are_sums_over_rounds_and_add_up(n):
    rng, k, d = np.random.default_rng(n), 9, 3
    x, a, r = rng.normal(size=(n, d)), rng.integers(0, k - 1, n), rng.normal(size=n)
    w = rng.uniform(0, 2, n) * (rng.random(n) < 0.9)
    whole = ma.Statistics.of_rounds(x, a, r, k, w)
    gram = np.stack([(x[a == i] * w[a == i, None]).T @ x[a == i] for i in range(k)])
    moment = np.stack([(w * r)[a == i] @ x[a == i] for i in range(k)])
    square = [(w * r * r)[a == i].sum() for i in range(k)]
    expected = np.concatenate([gram.ravel(), moment.ravel(), square])
    assert_allclose(dense_sums(whole), expected, atol=1e-10)
    assert_allclose(whole.total_weight, w.sum())
    cut = n // 3
    parts = [ma.Statistics.of_rounds(x[s], a[s], r[s], k, w[s]) for s in (slice(0, cut), slice(cut, n))]
    both = parts[0] + parts[1]
    assert_allclose(dense_sums(both), expected, atol=1e-10)
    # Merging leaves the same form as seeing all at once: rows below d rounds, sums from there on.
    assert_array_equal(np.sort(both.rows.actions), np.sort(whole.rows.actions))
    assert_array_equal(both.sums.actions, whole.sums.actions)
    counts = np.bincount(a[w > 0], minlength=k)
    assert_array_equal(np.unique(both.rows.actions), np.flatnonzero((counts > 0) & (counts < d)))
    assert_array_equal(both.sums.actions, np.flatnonzero(counts >= d))


def test_statistics_of_other_catalogs_do_not_add():
    with pytest.raises(ma.errors.ShapeError, match="3 actions"):
        _ = ma.Statistics.empty(3, 2) + ma.Statistics.empty(4, 2)


def sums_in_batches(ends, in_place, capacity=64):
    """Statistics of 300 rounds, added batch by batch, through a buffer that is smaller than all of them."""
    rng = np.random.default_rng(5)
    x, a, r = rng.normal(size=(300, 3)), rng.integers(0, 8, 300), rng.normal(size=300)
    total = StatisticsSum(9, 3)
    total._capacity = capacity
    n_in_place = 0
    for start, end in pairwise([0, *ends, 300]):
        rows = slice(start, end)
        features = place = total.room(end - start) if in_place else None
        if place is None:
            features = x[rows]
        else:
            place[...] = x[rows]
            n_in_place += 1
        total.add_rounds(features, a[rows], r[rows])
    return total.total(), n_in_place


@pytest.mark.parametrize("ends", [[], [64, 128], [1, 2, 70, 71, 200], range(10, 300, 10)])
def test_statistics_are_the_same_to_the_last_bit_however_rounds_are_batched_and_wherever_features_are_read(ends):
    whole, _ = sums_in_batches([], in_place=False)
    for in_place in (False, True):
        got, n_in_place = sums_in_batches(ends, in_place)
        assert (n_in_place > 0) == (in_place and len(ends) > 0)
        assert_array_equal(got.rows.actions, whole.rows.actions)
        assert_array_equal(got.rows.rounds, whole.rows.rounds)
        assert_array_equal(got.sums.squares, whole.sums.squares)
        assert_array_equal(got.sums.about, whole.sums.about)


def test_weights_count_where_features_were_read_into_the_sum():
    rng = np.random.default_rng(6)
    x, a, r, w = rng.normal(size=(50, 3)), rng.integers(0, 4, 50), rng.normal(size=50), rng.uniform(0.5, 2.0, 50)
    total = StatisticsSum(4, 3)
    place = total.room(50)
    place[...] = x
    total.add_rounds(place, a, r, w)
    assert_allclose(dense_sums(total.total()), dense_sums(ma.Statistics.of_rounds(x, a, r, 4, w)), rtol=1e-14)


def test_statistics_add_up_with_statistics_only(own_errors):
    statistics = ma.Statistics.of_rounds(np.ones((2, 1)), np.array([0, 1]), np.ones(2), 2)
    with pytest.raises(TypeError, match="unsupported operand"):
        _ = statistics + 3


def test_shards_of_what_was_collected_add_up_to_the_whole():
    """Sums per action go to one shard each; what belongs to no action is carried by the first, and counted once."""
    rng = np.random.default_rng(0)
    logs = ma.LoggedData(rng.normal(size=(50, 2)), rng.integers(7, size=50), np.exp(rng.normal(size=50)), n_actions=7)
    task = CollectStatistics(ma.LogNormal(0.5), 7, 2)
    whole = LOCAL.total(logs, task)
    parts = task.shards(whole, 3)
    assert len(parts) == 3 and whole.numbers.any()
    np.testing.assert_allclose(sum(part.numbers for part in parts), whole.numbers)
    prior = ma.priors.independent(7, dim=2)
    fitted = [ma.fit(part.statistics, prior, ma.Gaussian(1.0)).weights.action_mean() for part in parts]
    expected = ma.fit(whole.statistics, prior, ma.Gaussian(1.0)).weights.action_mean()
    for action in range(7):
        np.testing.assert_allclose(fitted[action % 3][action], expected[action])
    assert sum(part.statistics.n_rounds for part in parts) == 50
