"""Steps, starts and updates of fits that are not exact."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from small_purchases import bought, flat

import manyarms as ma
from manyarms.errors import InputError, ShapeError
from manyarms.likelihoods import Poisson


class Backwards(Poisson):
    """Slopes with the wrong sign: every step goes down."""

    def slopes(self, rewards, mean, variance):
        slope, weight = super().slopes(rewards, mean, variance)
        return -5.0 * slope, weight


def test_a_fit_that_no_step_helps_is_not_told_to_take_more_of_them():
    stuck = ma.fit(bought([3.0, 9.0, 0.0] * 4), flat(0.0, 1.0), Backwards())
    assert not stuck.converged
    assert any("no step raised the objective" in text for text in stuck.warnings)
    assert not any("more iterations" in text for text in stuck.warnings)


def test_an_update_does_not_mend_a_fit_that_was_cut_short():
    short = ma.fit(bought([1.0, 0.0, 0.0] * 9), flat(0.0, 1.0), ma.Bernoulli(), max_iterations=1)
    more = ma.LoggedData(np.full((6, 1), 0.5), [0, 1, 2] * 2, [1.0, 0.0, 1.0] * 2)
    assert not short.update(more).converged
    assert ma.fit(more, flat(0.0, 1.0), ma.Bernoulli()).update(more.with_rewards(np.ones(6))).converged


def test_refit_linearises_anew():
    """The mode moves far with more rounds; the slope of tanh there is another."""
    rng = np.random.default_rng(4)
    hierarchy = ma.NonlinearHierarchy(
        np.zeros(1), 4.0, lambda psi, items: np.tile(3.0 * np.tanh(psi), (len(items), 1)), 0.01, n_actions=4, dim=1
    )
    few, many = (
        ma.LoggedData(np.ones((n, 1)), np.arange(n) % 4, centre + 0.3 * rng.normal(size=n), n_actions=4)
        for n, centre in ((4, 0.5), (400, 2.7))
    )
    first = ma.fit_nonlinear(few, hierarchy, ma.Gaussian(0.3))
    again, fresh = first.refit(many), ma.fit_nonlinear(many, hierarchy, ma.Gaussian(0.3))
    assert_allclose(again.latent_mode, fresh.latent_mode, atol=1e-3)
    assert_allclose(again.weights.action_cov([0]), fresh.weights.action_cov([0]), rtol=1e-2)
    assert abs(again.latent_mode[0] - first.latent_mode[0]) > 0.5
    with pytest.raises(InputError, match="fit_nonlinear"):
        first.with_actions(np.ones((1, 1, 1)), offset=np.zeros(1)).refit(many)
    with pytest.raises(InputError, match="nonlinear hierarchy"):
        first.refit(many, device="cuda")


def test_starts_that_do_not_fit_are_refused():
    logs = bought([1.0, 0.0, 1.0])
    other = ma.fit(ma.LoggedData(np.ones((4, 1)), [0, 1, 2, 3], [1, 0, 1, 0]), flat(0.0, 1.0, 4), ma.Bernoulli())
    with pytest.raises(ShapeError, match="start has 4 actions in 1 dimensions; the prior has 3 in 1"):
        ma.fit(logs, flat(0.0, 1.0), ma.Bernoulli(), start=other)


def test_heavy_tails_say_that_intervals_are_too_narrow():
    for degrees, told in ((1.5, True), (3.0, True), (6.0, False)):
        posterior = ma.fit(bought([1.0, 0.0, 1.0]), flat(0.0, 1.0), ma.StudentT(1.0, degrees))
        assert any("too narrow" in text for text in posterior.warnings) == told
