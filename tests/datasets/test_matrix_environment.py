"""Worlds on fully observed matrices: their values and logs are those of the real ratings."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from world_data import rng

import manyarms as ma
from manyarms.core.choices import Choices
from manyarms.datasets import (
    MatrixEnvironment,
)
from manyarms.errors import InputError, ShapeError


class Tilted(ma.Policy):
    """Softmax of fixed scores: depends on the context, and its probabilities are easy to write down."""

    def __init__(self, weights):
        self.weights, (self.n_actions, self.dim) = weights, weights.shape

    def table(self, contexts):
        scores = np.exp(contexts @ self.weights.T)
        return scores / scores.sum(axis=1, keepdims=True)

    def choices(self, contexts, eligible):
        dense = self.table(contexts) * (1.0 if eligible is None else eligible.toarray())
        return Choices(len(contexts), self.n_actions, dense=dense / dense.sum(axis=1, keepdims=True))


@pytest.fixture
def known_matrix():
    table, features = rng(30).normal(size=(60, 8)), rng(31).normal(size=(60, 3))
    return MatrixEnvironment(table, features, np.arange(5, 60, 3)), table, features


def test_value_is_the_mean_real_rating_over_the_test_users(known_matrix):
    environment, table, features = known_matrix
    policy = Tilted(rng(32).normal(size=(8, 3)))
    policy.rows_per_block = 4
    users = range(5, 60, 3)
    chances = policy.table(features)
    brute = np.mean([sum(chances[u, a] * table[u, a] for a in range(8)) for u in users])
    assert_allclose(environment.value(policy), brute, rtol=1e-12)
    assert_allclose(environment.value(ma.Uniform(8)), np.mean([table[u].mean() for u in users]), rtol=1e-12)
    assert_allclose(environment.optimal_value(), np.mean([max(table[u]) for u in users]), rtol=1e-12)
    best = ma.TablePolicy(np.eye(8)[table[list(users)].argmax(axis=1)])
    assert_allclose(environment.value(best), environment.optimal_value(), rtol=1e-12)
    allowed = [[u % 8, (u + 1) % 8] for u in users]
    two = np.mean([table[u, pair].mean() for u, pair in zip(users, allowed, strict=True)])
    assert_allclose(environment.value(ma.Uniform(8), eligible=allowed), two, rtol=1e-12)
    with pytest.raises(ShapeError, match="7 actions; the environment has 8"):
        environment.value(ma.Uniform(7))


def test_logs_are_real_ratings_of_logging_users_only(known_matrix):
    environment, table, features = known_matrix
    policy = Tilted(rng(33).normal(size=(8, 3)))
    logs = environment.log(policy, 20_000, rng(34))
    logging_users = np.setdiff1d(np.arange(60), np.arange(5, 60, 3))
    assert_array_equal(np.unique(logs.groups), logging_users)
    assert_array_equal(logs.contexts, features[logs.groups])
    assert_array_equal(logs.rewards, table[logs.groups, logs.actions])
    chances = policy.table(features)
    assert_allclose(logs.propensities, chances[logs.groups, logs.actions], rtol=1e-12)
    assert logs.logging_policy is policy
    # Every pair of user and action comes as often as it should.
    counts = np.zeros((60, 8))
    np.add.at(counts, (logs.groups, logs.actions), 1)
    expected = 20_000 * chances[logging_users] / len(logging_users)
    assert (np.abs(counts[logging_users] - expected) < 5 * np.sqrt(expected) + 1).all()
    x = environment.contexts(200, rng(35))
    assert {tuple(row) for row in x} <= {tuple(features[u]) for u in logging_users}
    assert_array_equal(environment.test_contexts, features[5:60:3])


def test_a_wrong_matrix_world_is_refused():
    table, features = np.ones((6, 3)), np.ones((6, 2))
    wrong = [
        ((table, features[:5], [1]), ShapeError, "features must have 6 rows"),
        ((table * np.nan, features, [1]), InputError, "matrix must be finite"),
        ((table, features, [6]), InputError, "test_users"),
        ((table, features, [1, 1]), InputError, "distinct"),
        ((table, features, np.arange(6)), ShapeError, "both sides"),
        ((table, features, np.arange(0)), ShapeError, "both sides"),
        ((table, features[:, :0], [1]), ShapeError, "at least one column"),
    ]
    for arguments, error, message in wrong:
        with pytest.raises(error, match=message):
            MatrixEnvironment(*arguments)
