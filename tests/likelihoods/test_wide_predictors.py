"""Expectations under predictors of any width are the integrals."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import integrate, stats
from scipy.special import expit, log_expit

import manyarms as ma
from manyarms.likelihoods.likelihood import QuadratureLikelihood

WIDTHS = (0.1, 0.5, 1.0, 1.49, 1.51, 2.0, 3.0, 5.0, 10.0, 30.0)


def integral(f, m, s):
    """E f(η) for η ~ N(m, s²), by scipy between the places where the integrand turns."""
    bends = np.clip([-40.0, -m / s - 40 / s, -m / s - 5 / s, -m / s, -m / s + 5 / s, -m / s + 40 / s, 0.0, s], -40, 40)
    edges = np.unique([*bends, -10.0, 10.0, 40.0])
    return sum(
        integrate.quad(lambda z: f(m + s * z) * stats.norm.pdf(z), a, b, epsabs=0, epsrel=1e-9, full_output=1)[0]
        for a, b in pairwise(edges)
    )


@pytest.mark.slow
@pytest.mark.parametrize("s", WIDTHS)
def test_expectations_of_clicks_are_the_integrals_however_wide_the_predictor(s):
    one, means = ma.Bernoulli(), np.array([-30.0, -20.0, -10.0, -5.0, -2.0, -0.3, 0.0, 1.0, 5.0])
    v, clicked, not_clicked = np.full_like(means, s**2), np.ones_like(means), np.zeros_like(means)
    rate = np.array([integral(expit, m, s) for m in means])
    assert_allclose(one.mean_reward(means, v), rate, rtol=1e-6)
    assert_allclose(one.score(means, v), rate, rtol=1e-6)
    assert_allclose(one.log_predictive(clicked, means, v), np.log(rate), rtol=1e-6, atol=1e-6)
    slope = np.array([integral(lambda eta: expit(eta) * expit(-eta), m, s) for m in means])
    assert_allclose(one.mean_slope(means, v), slope, rtol=1e-5)
    found, weight = one.slopes(not_clicked, means, v)
    assert_allclose(-found, rate, rtol=1e-6)
    assert_allclose(weight, slope, rtol=1e-5)
    for reward, sign in ((clicked, 1.0), (not_clicked, -1.0)):
        exact = [integral(lambda eta, sign=sign: log_expit(sign * eta), m, s) for m in means]
        assert_allclose(one.expected_log_density(reward, means, v), exact, rtol=1e-6)


def test_where_quadrature_ends_the_closed_form_goes_on():
    m, (left, right) = np.linspace(-30.0, 30.0, 301), (1.5**2, np.nextafter(1.5, 2.0) ** 2)
    one, click = ma.Bernoulli(), np.ones(301)
    for f in (one.mean_reward, one.mean_slope, lambda m, v: one.expected_log_density(click, m, v)):
        assert_allclose(f(m, np.full(301, left)), f(m, np.full(301, right)), rtol=2e-6, atol=1e-15)


class ByQuadrature(QuadratureLikelihood):
    """Clicks again, as a likelihood of one's own."""

    treatment = "variational"

    def log_density(self, rewards, predictor):
        return log_expit((2 * rewards - 1) * predictor)

    def derivatives(self, rewards, predictor):
        return rewards - expit(predictor), -expit(predictor) * expit(-predictor)

    def mean_reward(self, mean, variance):
        return ma.Bernoulli().mean_reward(mean, variance)

    def mean_slope(self, mean, variance):
        return ma.Bernoulli().mean_slope(mean, variance)


def test_a_likelihood_of_ones_own_is_integrated_however_wide_the_predictor():
    m, s = (grid.ravel() for grid in np.meshgrid([-30.0, -10.0, -3.0, 0.0, 3.0, 10.0], WIDTHS))
    for reward in (0.0, 1.0):
        r = np.full_like(m, reward)
        for name in ("expected_log_density", "slopes", "log_predictive"):
            got, closed = (getattr(one, name)(r, m, s**2) for one in (ByQuadrature(), ma.Bernoulli()))
            assert_allclose(got, closed, rtol=1e-3, atol=1e-5)
