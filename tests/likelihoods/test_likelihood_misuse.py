"""Wrong turns with likelihoods are refused with a remedy."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from small_purchases import SHOP, bought, flat

import manyarms as ma
from manyarms.errors import DataTypeError, InputError, NumericalError, RangeError, ShapeError


def test_a_policy_learned_from_clicks_is_told_when_judged_on_the_spend_of_the_same_rounds():
    rng = np.random.default_rng(5)
    x, actions = rng.normal(size=(200, 2)), rng.integers(0, 3, 200)
    clicks = (rng.random(200) < 0.5).astype(float)
    columns = {"propensities": np.full(200, 1 / 3), "n_actions": 3}
    learned = ma.fit(ma.LoggedData(x, actions, clicks, **columns), ma.priors.independent(3, dim=2), ma.Bernoulli())
    for rounds, reused in ((x, True), (rng.normal(size=(200, 2)), False)):
        spend = ma.LoggedData(rounds, actions, clicks * rng.lognormal(size=200), **columns)
        found = ma.IPS().estimate(ma.Greedy(learned), spend)
        assert found.diagnostics["evaluated_on_training_rounds"] == reused


def test_sums_of_rewards_are_not_read_as_sums_of_logarithms():
    sums = ma.Gaussian().statistics(bought([1.0, 2.0, 3.0]), 3)
    for likelihood in (ma.LogNormal(), ma.StudentT(), ma.Poisson()):
        with pytest.raises(InputError, match="needs the rounds themselves"):
            ma.fit(sums, flat(0.0, 1.0), likelihood)


@pytest.mark.parametrize(
    ("likelihood", "bad"),
    [(ma.Bernoulli(), 0.5), (ma.Poisson(), -1.0), (ma.LogNormal(), 0.0), (SHOP, -3.0)],
    ids=["clicks", "counts", "amounts", "hurdle"],
)
def test_rounds_of_weight_zero_may_hold_anything_and_rows_keep_their_numbers(likelihood, bad):
    rewards = [bad, 1.0, 1.0, 1.0, 1.0]
    got = ma.fit(bought(rewards, weights=[0.0, 1.0, 1.0, 1.0, 1.0]), flat(0.0, 1.0), likelihood)
    kept = ma.fit(bought(rewards).take(np.arange(1, 5)), flat(0.0, 1.0), likelihood)
    x = np.ones((1, 1))
    assert_allclose(got.expected_reward(x), kept.expected_reward(x))
    assert np.isfinite(got.log_evidence)
    with pytest.raises(RangeError, match=f"row 4 has {bad}"):
        ma.fit(bought([bad, 1.0, 1.0, 1.0, bad], weights=[0.0, 1, 1, 1, 1]), flat(0.0, 1.0), likelihood)


def test_a_class_for_a_likelihood_is_to_be_called(own_errors):
    for kind in (ma.Bernoulli, ma.Hurdle):
        with pytest.raises(DataTypeError, match=rf"Pass {kind.__name__}\(\)"):
            ma.fit(bought([1.0, 0.0, 1.0]), flat(0.0, 1.0), kind)
        with pytest.raises(DataTypeError, match=rf"Pass {kind.__name__}\(\)"):
            ma.CrossFit(flat(0.0, 1.0), kind, rng=np.random.default_rng(0))
    with pytest.raises(DataTypeError, match="likelihood must be a likelihood"):
        ma.CrossFit(flat(0.0, 1.0), "clicks", rng=np.random.default_rng(0))


def test_what_runs_now_is_tied_to_the_rows_of_its_log():
    logs = bought([1.0, 0.0, 1.0])
    posterior = ma.fit(logs, flat(0.0, 1.0), ma.Bernoulli())
    with pytest.raises(ShapeError, match="3 rows of its log, and there are 5 contexts"):
        posterior.difference(ma.Greedy(posterior), ma.Logged(logs), np.ones((5, 1)))


def test_an_overflow_is_an_error_of_its_own_kind_and_no_warning():
    """Warnings are errors in these tests."""
    logs = bought([1.0, 2.0, 1.0])
    wide = ma.fit(logs, flat(0.0, 1e5), ma.LogNormal(1.0))
    both = ma.fit(logs, (flat(0.0, 1.0), flat(0.0, 1e5)), SHOP)
    x = 100.0 * np.ones((400, 1))
    for posterior in (wide, both):
        for verb in (
            lambda p=posterior: p.value(ma.Uniform(3), x),
            lambda p=posterior: p.value(ma.Greedy(p), x),
            lambda p=posterior: p.difference(ma.Greedy(p), ma.Uniform(3), x),
            lambda p=posterior: p.value_draws(ma.Uniform(3), x, n_draws=10, rng=np.random.default_rng(0)),
        ):
            with pytest.raises(NumericalError):
                verb()
