"""Which expected click rates may reach a floor: none that does is missed, and few others are kept."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import manyarms as ma
from manyarms.errors import NumericalError
from manyarms.likelihoods.expectation_bounds import reaches


@pytest.mark.parametrize(("centre", "width"), [(0.0, 1.0), (-5.0, 3.0), (5.0, 3.0), (0.0, 40.0), (-30.0, 5.0)])
@pytest.mark.parametrize("scale", [0.0, 1e-7, 0.1, 1.0, 30.0, 1e5])
def test_no_expectation_at_its_floor_is_missed(centre, width, scale):
    rng = np.random.default_rng(0)
    mean = centre + width * rng.normal(size=(40, 500))
    variance = scale * rng.chisquare(1.0, size=mean.shape)
    exact = ma.Bernoulli().mean_reward(mean, variance)
    for share in (0.0, 0.5, 0.99, 1.0):
        floor = np.quantile(exact, share, axis=1, method="higher")
        got = ma.Bernoulli().scores_above(floor, mean, variance)
        kept = np.isfinite(got)
        assert kept[exact >= floor[:, None]].all()
        assert_allclose(got[kept], exact[kept], rtol=1e-14)


def test_few_are_kept_beside_those_that_reach_the_floor():
    rng = np.random.default_rng(1)
    mean, variance = rng.normal(size=(100, 2000)) - 3.0, rng.uniform(0.0, 2.0, size=(100, 2000))
    floor = ma.Bernoulli().mean_reward(mean, variance).max(axis=1)
    rows, _ = reaches(floor, mean, variance)
    assert 100 <= len(rows) <= 400
    assert len(reaches(floor + 0.5, mean, variance)[0]) == 0


@pytest.mark.parametrize("k", [1, 3])
def test_the_best_actions_for_clicks_are_those_of_all_expected_rewards(k):
    rng = np.random.default_rng(2)
    logs = ma.LoggedData(rng.normal(size=(6000, 3)), rng.integers(2500, size=6000), rng.integers(2, size=6000))
    posterior = ma.fit(logs, ma.priors.independent(2600, dim=3), ma.Bernoulli())
    contexts = rng.normal(size=(300, 3)) * 2
    expected = posterior.expected_reward(contexts)
    best = np.argsort(-expected, axis=1, kind="stable")[:, :k]
    got = ma.Greedy(posterior).top_k(contexts, k)
    assert_allclose(np.take_along_axis(expected, got, 1), np.take_along_axis(expected, best, 1), rtol=1e-12)
    assert_array_equal(got[:, 0], best[:, 0])


def test_means_that_overflow_are_reported():
    mean, variance = np.array([[0.0, np.nan]]), np.ones((1, 2))
    assert 1 in reaches(np.array([0.9]), mean, variance)[1]
    posterior = ma.fit(ma.LoggedData(np.ones((2, 1)), [0, 1], [0, 1]), ma.priors.independent(2, dim=1), ma.Bernoulli())
    with pytest.raises(NumericalError, match="overflow"):
        ma.Greedy(posterior).top_k(np.full((1, 1), 1e300), 1)


def test_no_entries_reach_no_floor():
    for shape in ((0, 5), (3, 0)):
        rows, columns = reaches(np.zeros(shape[0]), np.zeros(shape), np.ones(shape))
        assert rows.tolist() == columns.tolist() == []
