"""An estimate is a normal distribution unless it has another shape, and joins two errors."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import optimize, stats

import manyarms as ma
from manyarms.core.estimate import NormalMixture
from manyarms.errors import InputError


def test_intervals_and_probabilities_are_those_of_a_normal():
    estimate = ma.Estimate(value=1.0, std=2.0, posterior_std=1.0, context_std=np.sqrt(3.0))
    assert_allclose(estimate.interval(0.9), stats.norm(1, 2).interval(0.9))
    assert_allclose(estimate.interval(0.9, of="contexts"), stats.norm(1, 1).interval(0.9))
    assert_allclose(estimate.probability_positive, stats.norm(1, 2).sf(0))
    certain = [ma.Estimate(value, 0.0).probability_positive for value in (-1.0, 0.0, 1.0)]
    assert certain == [0.0, 0.5, 1.0]
    assert str(estimate) == "1 [-2.92, 4.92]"


def test_both_errors_of_a_value_join_in_its_std():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 2))
    posterior = ma.fit(ma.LoggedData(x, rng.integers(0, 3, 50), rng.normal(size=50)), ma.priors.independent(3, dim=2))
    value = posterior.value(ma.Greedy(posterior), x)
    assert value.posterior_std > 0
    assert value.context_std > 0
    assert_allclose(value.std, np.hypot(value.posterior_std, value.context_std))


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_a_far_part_of_hardly_any_share_does_not_blur_the_quantiles_of_a_mixture(share):
    means = np.array([0.0, 1.0, 2.0, 3.0, 1e20])
    mixture = NormalMixture(means, np.ones(5), np.array([0.4, 0.3, 0.2, 0.1, 1e-17]))
    near = stats.norm(means[:4]).cdf(mixture.quantile(share)) @ mixture.shares[:4]
    assert near == pytest.approx(share, abs=1e-9)


@pytest.mark.parametrize("blur", [0.0, 1e-6, 1.0, "each its own"])
def test_quantiles_of_a_mixture_are_those_that_another_root_finder_gives(blur):
    rng = np.random.default_rng(3)
    for size in (2, 7, 900):
        means = 10.0 ** rng.uniform(-2, 3) * rng.normal(size=size)
        stds = 10.0 ** rng.uniform(-4, 1, size) if isinstance(blur, str) else np.full(size, blur)
        mixture = NormalMixture(means, stds, rng.dirichlet(np.ones(size)))
        low, high = means.min() - 41 * stds.max() - 1.0, means.max() + 41 * stds.max() + 1.0
        for share in (1e-6, 0.025, 0.5, 0.9):
            expected = optimize.brentq(lambda x, of, p: of.below(x) - p, low, high, (mixture, share), xtol=1e-13)
            assert_allclose(mixture.quantile(share), expected, rtol=0, atol=1e-12 * (high - low))


def test_an_estimate_is_shown_in_one_short_line():
    estimate = ma.Estimate(1.25, 0.5, diagnostics={"n_contexts": 400.0}, warnings=("take care",))
    assert repr(estimate) == "Estimate(1.25 [0.27, 2.23] (1 warning, see .warnings))"


def test_an_estimate_without_an_error_given_the_contexts_has_no_interval_for_them():
    with pytest.raises(
        InputError, match=r'this estimate has no posterior_std. Ask for the interval of the "population"'
    ):
        ma.Estimate(1.0, 0.5).interval(of="contexts")


def test_quantiles_of_a_mixture_of_points_are_those_of_the_points():
    """Points have steps, of which half is below: shares beyond the last step are at the last point."""
    points = NormalMixture(np.array([0.0, 1.0]), np.zeros(2), np.array([0.5, 0.5]))
    assert [points.quantile(share) for share in (0.01, 0.9, 0.99)] == [0.0, 1.0, 1.0]
