"""Diagnostics of weights, and the warnings they lead to."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import manyarms as ma


def test_diagnostics_are_what_their_names_say(problem):
    logs, policy, _ = problem
    w = policy.probability_of(logs.contexts, logs.actions) / logs.propensities
    found = ma.IPS().estimate(policy, logs).diagnostics
    assert_allclose(found["effective_sample_size"], w.sum() ** 2 / (w**2).sum())
    assert_allclose(found["max_weight_share"], w.max() / w.sum())
    assert_allclose(found["mean_weight"], w.mean())
    assert found["unsupported_mass"] == 0


def test_mass_on_actions_never_logged_is_counted_and_warned_about():
    logs = ma.LoggedData(np.ones((30, 1)), np.zeros(30, dtype=int), np.ones(30), np.ones(30), 4)
    policy = ma.TablePolicy([0.25, 0.25, 0.5, 0.0])
    found = ma.IPS().estimate(policy, logs)
    assert_allclose(found.diagnostics["unsupported_mass"], 0.75)
    assert any("75%" in text for text in found.warnings)
    assert not any(
        "75%" in t for t in ma.IPS(thresholds=ma.Thresholds(max_unsupported_mass=0.8)).estimate(policy, logs).warnings
    )
    assert [row["category"] for row in ma.support_by_category(policy, logs, [7, 7, 3, 3])] == [3, 7]
    table = ma.support_by_category(policy, logs, ["a", "a", "b", "b"])
    assert [row["category"] for row in table] == ["a", "b"]
    assert_allclose([row["unsupported"] for row in table], [0.25, 0.5])
    assert_allclose([row["logged"] for row in table], [1.0, 0.0])


def test_share_of_the_prior_is_one_without_data_and_falls_with_it(problem):
    logs, policy, _ = problem
    prior = ma.priors.independent(5, dim=3)
    shares = []
    for n in (0, 20, 300):
        posterior = ma.fit(logs.take(slice(0, n)), prior)
        found = ma.DM(posterior).estimate(policy, logs)
        shares.append(found.diagnostics["prior_share"])
    assert shares[0] == pytest.approx(1.0)
    assert shares[0] > shares[1] > shares[2]
    assert any("prior" in text for text in ma.DM(ma.fit(logs.take(slice(0, 0)), prior)).estimate(policy, logs).warnings)


def test_rounded_propensities_are_noticed():
    propensities = np.round(np.random.default_rng(0).uniform(0.001, 0.4, 50), 3)
    logs = ma.LoggedData(np.ones((50, 1)), np.zeros(50, dtype=int), np.ones(50), np.maximum(propensities, 0.001), 2)
    assert any("rounded" in text for text in ma.IPS().estimate(ma.Uniform(2), logs).warnings)


def test_evaluation_on_training_rounds_is_noticed(problem):
    logs, _, _ = problem
    prior = ma.priors.independent(5, dim=3)
    train, test = logs.split(0.5, rng=np.random.default_rng(0))
    posterior = ma.fit(train, prior)
    greedy = ma.Greedy(posterior)

    def noticed(estimator, on, policy=greedy):
        return bool(estimator.estimate(policy, on).diagnostics["evaluated_on_training_rounds"])

    assert noticed(ma.IPS(), train)
    assert noticed(ma.IPS(), logs)
    assert noticed(ma.IPS(), train.take(slice(0, 5)))
    assert not noticed(ma.IPS(), test)
    assert noticed(ma.IPS(), train, ma.EpsilonGreedy(greedy, 0.1))
    assert noticed(ma.DR(posterior), train, ma.Uniform(5))
    assert not noticed(ma.DR(posterior), test, ma.Uniform(5))
    assert noticed(ma.IPS(), test, ma.Greedy(posterior.update(test)))
    # The same rows read once more are the same rows.
    again = ma.LoggedData(logs.contexts.copy(), logs.actions, logs.rewards, logs.propensities, 5)
    assert noticed(ma.IPS(), again)


def test_right_propensities_are_not_accused():
    rng = np.random.default_rng(0)
    n, k = 5000, 1000
    logs = ma.LoggedData(rng.normal(size=(n, 2)), rng.integers(0, k, n), rng.normal(size=n), np.full(n, 1 / k), k)
    policy = ma.TablePolicy(rng.dirichlet(np.full(k, 5.0)))
    for estimator in (ma.IPS(), ma.IPS(cap=0.5), ma.ExponentialSmoothing(0.5), ma.SubGaussianIPS(0.5)):
        text = " ".join(estimator.estimate(policy, logs).warnings)
        assert "rounded" not in text
        assert "mean weight" not in text
