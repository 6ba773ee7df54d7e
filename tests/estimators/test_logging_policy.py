"""Propensities that were not logged: from the logging policy, or estimated."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import manyarms as ma
from manyarms.estimators.logging_policy import propensities_of


def test_propensities_come_from_the_log_else_the_policy_else_an_estimate(problem):
    logs, _, _ = problem
    assert propensities_of(logs)[0] is logs.propensities
    bare = ma.LoggedData(logs.contexts, logs.actions, logs.rewards, n_actions=5, logging_policy=logs.logging_policy)
    assert_allclose(propensities_of(bare)[0], logs.propensities)
    unknown = ma.LoggedData(logs.contexts, logs.actions, logs.rewards, n_actions=5)
    assert propensities_of(unknown)[1]
    found = ma.IPS().estimate(ma.Uniform(5), unknown)
    assert found.diagnostics["estimated_propensities"] == 1
    assert "propensities were estimated from the logs" in found.warnings


@pytest.mark.parametrize("n_actions", [6, 400])
def test_estimated_propensities_are_calibrated(n_actions):
    """A softmax logger by category, given the categories; few actions by regression on each, many by category."""
    rng = np.random.default_rng(0)
    n, n_categories = 20_000, 3
    category = np.arange(n_actions) % n_categories
    x = rng.normal(size=(n, 2))
    logits = x @ rng.normal(size=(2, n_categories))
    by_category = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    drawn = np.array([rng.choice(n_categories, p=p) for p in by_category])
    popularity = rng.dirichlet(np.ones(n_actions))
    within = popularity / np.bincount(category, weights=popularity)[category]
    actions = np.array([rng.choice(np.flatnonzero(category == c), p=within[category == c]) for c in drawn])
    truth = by_category[np.arange(n), category[actions]] * within[actions]
    logs = ma.LoggedData(x, actions, np.zeros(n), n_actions=n_actions)
    fitted = ma.EstimatedLogging(logs, category)
    p = fitted.probability_of(x, actions)
    assert np.abs(np.log(p / truth)).mean() < 0.12
    # The weights of another policy average to one.
    weights = ma.TablePolicy(popularity).probability_of(x, actions) / p
    assert_allclose(weights.mean(), 1.0, atol=0.05)
    few = x[:20]
    assert_allclose(fitted.probabilities(few).sum(axis=1), 1.0)
    assert_allclose(fitted.probabilities(few)[np.arange(20), actions[:20]], p[:20])


def test_among_eligible_actions_estimated_probabilities_keep_their_odds():
    rng = np.random.default_rng(0)
    logs = ma.LoggedData(rng.normal(size=(80, 2)), rng.integers(5, size=80), np.zeros(80), n_actions=5)
    fitted = ma.EstimatedLogging(logs)
    everyone, allowed = fitted.probabilities(logs.contexts), rng.random((80, 5)) < 0.5
    allowed[np.arange(80), logs.actions] = True
    expected = np.where(allowed, everyone, 0.0)
    expected /= expected.sum(axis=1, keepdims=True)
    assert_allclose(fitted.probabilities(logs.contexts, eligible=allowed), expected)
    assert_allclose(
        fitted.probability_of(logs.contexts, logs.actions, eligible=allowed), expected[np.arange(80), logs.actions]
    )


def test_estimated_logging_covers_labels_never_logged():
    logs = ma.LoggedData(np.random.default_rng(0).normal(size=(50, 2)), np.arange(50) % 3, np.zeros(50), n_actions=5)
    p = ma.EstimatedLogging(logs).probabilities(logs.contexts)
    assert_allclose(p.sum(axis=1), 1.0)
    assert (p > 0).all()


@pytest.mark.parametrize("n_actions", [1, 6, 8, 400])
@pytest.mark.parametrize("with_categories", [False, True])
def test_a_round_of_weight_two_is_that_round_twice_for_estimated_propensities(n_actions, with_categories):
    """One action, a regression on each, with two never logged, and with many actions by category or by counts."""
    rng = np.random.default_rng(0)
    categories = np.arange(n_actions) % 4 if with_categories else None
    x, actions = rng.normal(size=(300, 2)), rng.integers(0, min(n_actions, 6), 300)
    # Weights that depend on the action: without them the shares are others.
    counts = rng.integers(0, 2, 300) + (actions % 3) * (x[:, 0] > 0)
    logs = ma.LoggedData(x, actions, np.zeros(300), n_actions=n_actions, weights=counts)
    again = ma.LoggedData(x, actions, np.zeros(300), n_actions=n_actions).take(np.repeat(np.arange(300), counts))
    weighted, repeated = (ma.EstimatedLogging(log, categories).probabilities(x) for log in (logs, again))
    assert_allclose(weighted, repeated, atol=1e-4)
    if n_actions > 1:
        unweighted = ma.EstimatedLogging(ma.LoggedData(x, actions, np.zeros(300), n_actions=n_actions), categories)
        assert np.abs(weighted - unweighted.probabilities(x)).max() > 0.02


def test_an_action_logged_with_weight_zero_only_was_never_logged():
    x, actions = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 3
    logs = ma.LoggedData(x, actions, np.zeros(60), n_actions=3, weights=(actions < 2).astype(float))
    without = ma.LoggedData(x[actions < 2], actions[actions < 2], np.zeros(40), n_actions=3)
    assert_allclose(ma.EstimatedLogging(logs).probabilities(x), ma.EstimatedLogging(without).probabilities(x))


def test_a_log_of_one_action_is_counted_by_weight():
    x = np.zeros((4, 1))
    logs = ma.LoggedData(x, [1, 1, 1, 1], np.zeros(4), n_actions=3, weights=[5.0, 0.0, 2.0, 2.0])
    assert_allclose(ma.EstimatedLogging(logs).probabilities(x[:1]), [np.array([0.5, 9.5, 0.5]) / 10.5])
