"""Values by draws: exact means, and a warning where tails are too heavy."""

import numpy as np
import pytest
from small_purchases import bought, flat

import manyarms as ma


def test_draws_keep_the_exact_mean_and_tell_of_a_tail_too_heavy_for_them():
    """E r = e^(9/2 + 1/2); with 1000 draws of a log-normal of variance 9 the mean is anywhere between 60 and 300."""
    rng = np.random.default_rng(3)
    empty = ma.LoggedData(np.empty((0, 1)), [], [], n_actions=1)
    posterior = ma.fit(empty, flat(0.0, 9.0, 1), ma.LogNormal(1.0))
    policy, x = ma.Uniform(1), np.ones((2, 1))
    drawn = posterior.value_draws(policy, x, n_draws=1000, rng=rng)
    assert drawn.value == posterior.value(policy, x).value == pytest.approx(np.exp(5.0))
    draws = drawn.posterior_shape.draws
    assert drawn.diagnostics["monte_carlo_std"] == pytest.approx(draws.std(ddof=1) / np.sqrt(1000))
    assert any("one of 1000 draws" in text for text in drawn.warnings)
    narrow = ma.fit(empty, flat(0.0, 0.25, 1), ma.LogNormal(1.0)).value_draws(policy, x, n_draws=200, rng=rng)
    assert not any("draws" in text for text in narrow.warnings)
    probit = ma.fit(empty, flat(-4.0, 4.0, 1), ma.Bernoulli(expected="probit"))
    found = probit.value_draws(policy, x, n_draws=2000, rng=rng)
    assert found.value == found.posterior_shape.draws.mean() != probit.value(policy, x).value


def test_an_estimate_is_printed_without_its_draws():
    posterior = ma.fit(bought([1.0, 0.0, 1.0]), flat(0.0, 1.0), ma.Bernoulli())
    drawn = posterior.value_draws(ma.Uniform(3), np.ones((2, 1)), n_draws=500, rng=np.random.default_rng(0))
    assert drawn.diagnostics["monte_carlo_std"] > 0
    assert len(repr(drawn)) < 100
