"""Hurdles: two parts in one posterior, with the verbs of any other."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit
from small_purchases import SHOP, bought, flat

import manyarms as ma
from manyarms.errors import DataTypeError, InputError, RangeError


def test_an_action_shown_but_never_bought_is_unsupported():
    """Action 1 was shown and never bought: what it would fetch is the prior's."""
    posterior = ma.fit(bought([2.0, 0.0, 0.0] * 10), flat(0.0, 1.0), SHOP)
    for action, share in ((0, 0.0), (1, 1.0)):
        always = ma.TablePolicy(np.eye(3)[[action] * 4])
        estimate = posterior.value(always, np.ones((4, 1)))
        assert estimate.diagnostics["unsupported_mass"] == share
        assert any("never with a reward" in text for text in estimate.warnings) == (share > 0)


def test_a_part_without_rounds_is_said_to_be_the_priors():
    posterior = ma.fit(bought([0.0] * 9), flat(0.0, 1.0), SHOP)
    warnings = posterior.value(ma.Uniform(3), np.ones((4, 1))).warnings
    assert any("how much a reward is" in text for text in warnings)
    assert not any("whether there is" in text for text in warnings)


def test_the_spread_of_a_hurdle_counts_the_product_of_both_errors():
    """Amounts as uncertain as they are large; draws of all weights are the oracle, actions share what they have."""
    rng = np.random.default_rng(0)
    shared = ma.priors.from_categories(np.zeros(3, dtype=int), dim=1, effect_std=0.5, action_std=0.3)
    priors = (shared + flat(-0.5, 0.0), ma.HierarchicalGaussian(np.ones(1), 4.0, np.ones((3, 1, 1)), 1.0))
    empty = ma.LoggedData(np.empty((0, 1)), [], [], n_actions=3)
    posterior = ma.fit(empty, priors, ma.Hurdle(ma.Bernoulli(), ma.Gaussian(1.0)))
    x = np.ones((3, 1))
    drawn = [part.sample(rng, 400_000)[:, :, 0] for part in priors]
    rewards = expit(drawn[0]) * drawn[1]
    assert_allclose(posterior.reward_std(x, [0, 1, 2]), rewards.std(axis=0), rtol=0.01)
    assert_allclose(posterior.value(ma.Uniform(3), x).posterior_std, rewards.mean(axis=1).std(), rtol=0.01)
    gap, table = rewards @ [0.5, -0.5, 0.0], ma.TablePolicy(np.eye(3)[[0, 0]])
    found = posterior.difference(table, ma.TablePolicy(np.eye(3)[[1, 1]]), x[:2])
    assert_allclose(found.posterior_std, 2 * gap.std(), rtol=0.01)


def test_a_hurdle_names_the_row_of_the_log_as_it_was_given():
    rewards = [0.0, 0.0, 5.0, 0.0, -2.0]
    for verb in (
        lambda logs: ma.fit(logs, flat(0.0, 1.0), SHOP),
        ma.fit(bought([0.0, 1.0, 2.0]), flat(0.0, 1.0), SHOP).update,
        ma.fit(bought([0.0, 1.0, 2.0]), flat(0.0, 1.0), SHOP).refit,
    ):
        with pytest.raises(RangeError, match=r"row 4 has -2\.0.*Hurdle\(Bernoulli\(\), Gaussian"):
            verb(bought(rewards))
    assert ma.fit(bought(rewards), flat(0.0, 1.0), ma.Hurdle(ma.Bernoulli(), ma.Gaussian())).converged


def test_a_hurdle_has_the_verbs_of_a_posterior():
    rng = np.random.default_rng(1)
    logs = bought(np.where(rng.random(60) < 0.5, rng.lognormal(size=60), 0.0))
    first = ma.fit(logs.take(slice(0, 30)), flat(0.0, 1.0), SHOP, max_iterations=1)
    assert not first.converged
    assert any("allow more iterations" in text for text in first.warnings)
    whole, again = ma.fit(logs, flat(0.0, 1.0), SHOP), first.refit(logs)
    assert again.converged
    assert again.warnings == whole.warnings
    assert_allclose(again.expected_reward(np.ones((1, 1))), whole.expected_reward(np.ones((1, 1))), rtol=1e-3)
    grown = whole.with_actions(np.zeros((2, 1, 0)))
    assert grown.n_actions == 5
    assert grown.value(ma.Uniform(5), np.ones((4, 1))).diagnostics["unsupported_mass"] == pytest.approx(0.4)


def test_estimators_take_a_hurdle():
    """DM is its value; DR is mean of w (r - r̂) + Σ_a π r̂, with the product of both parts for r̂."""
    rng = np.random.default_rng(2)
    train, test = (
        ma.LoggedData(
            np.ones((90, 1)), np.arange(90) % 3, np.where(rng.random(90) < 0.5, rng.lognormal(size=90), 0.0),
            np.full(90, 1 / 3), n_actions=3,
        )
        for _ in range(2)
    )  # fmt: skip
    prior = flat(0.0, 1.0)
    posterior, policy = ma.fit(train, prior, SHOP), ma.TablePolicy(np.tile([0.5, 0.5, 0.0], (90, 1)))
    expected = posterior.expected_reward(np.ones((1, 1)))[0]
    direct = expected @ [0.5, 0.5, 0.0]
    assert ma.DM(posterior).estimate(policy, test).value == pytest.approx(direct)
    weights = np.array([1.5, 1.5, 0.0])[test.actions]
    doubly = np.mean(weights * (test.rewards - expected[test.actions])) + direct
    assert ma.DR(posterior).estimate(policy, test).value == pytest.approx(doubly)
    crossed = ma.DR(ma.CrossFit((prior, prior), SHOP, n_folds=3, rng=rng)).estimate(policy, test)
    assert crossed.value == pytest.approx(doubly, abs=3 * crossed.std)
    with pytest.raises(DataTypeError, match="Gaussian or StudentT"):
        ma.DRLearner(posterior).learn(test)


def test_a_hurdle_starts_from_an_earlier_one_and_has_one_prior_or_two():
    rng = np.random.default_rng(0)
    x, actions = rng.normal(size=(150, 2)), rng.integers(4, size=150)
    spend = np.where(rng.random(150) < 0.5, np.exp(0.3 * rng.normal(size=150)), 0.0)
    logs, prior = ma.LoggedData(x, actions, spend, n_actions=4), ma.priors.independent(4, dim=2)
    first = ma.fit(logs, prior, ma.Hurdle(), tolerance=1e-10)
    again = ma.fit(logs, (prior, prior), ma.Hurdle(), start=first, tolerance=1e-10)
    assert len(again.occurs.trace) < len(first.occurs.trace)
    np.testing.assert_allclose(again.expected_reward(x), first.expected_reward(x), rtol=1e-5)
    with pytest.raises(InputError, match="prior must be one prior, or a pair for a hurdle; got 3"):
        ma.fit(logs, (prior, prior, prior), ma.Hurdle())
