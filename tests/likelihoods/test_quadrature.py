"""A likelihood of a user has only log p and its derivatives; expectations come by quadrature."""

import numpy as np
from numpy.testing import assert_allclose

from manyarms.likelihoods.likelihood import QuadratureLikelihood


class WaitingTime(QuadratureLikelihood):
    """r ~ Exponential with mean e^η, whose expectations have a closed form: E e^{-η} = e^{-m + v / 2}."""

    treatment = "variational"

    def log_density(self, rewards, predictor):
        return -predictor - rewards * np.exp(-predictor)

    def derivatives(self, rewards, predictor):
        ratio = rewards * np.exp(-predictor)
        return ratio - 1.0, -ratio

    def mean_reward(self, mean, variance):
        return np.exp(mean + variance / 2)

    def mean_slope(self, mean, variance):
        return np.exp(mean + variance / 2)


def test_expected_derivatives_are_those_of_the_closed_form_for_any_spread():
    mean, variance = (grid.ravel() for grid in np.meshgrid([-0.7, 0.0, 1.3], [0.0, 1e-8, 0.04, 0.5, 1.0]))
    rewards = np.linspace(0.2, 3.0, len(mean))
    slope, weight = WaitingTime().slopes(rewards, mean, variance)
    ratio = rewards * np.exp(-mean + variance / 2)
    assert_allclose(slope, ratio - 1.0, rtol=1e-6, atol=1e-6)
    assert_allclose(weight, ratio, rtol=1e-6)
    assert_allclose(WaitingTime().expected_log_density(rewards, mean, variance), -mean - ratio, rtol=1e-6)
