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


def test_estimated_logging_covers_labels_never_logged():
    logs = ma.LoggedData(np.random.default_rng(0).normal(size=(50, 2)), np.arange(50) % 3, np.zeros(50), n_actions=5)
    p = ma.EstimatedLogging(logs).probabilities(logs.contexts)
    assert_allclose(p.sum(axis=1), 1.0)
    assert (p > 0).all()
