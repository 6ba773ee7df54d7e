"""The strength of a hidden cause that overturns a gain, against a search over all biases of a small log."""

from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose

import manyarms as ma
from manyarms.errors import InputError

N, K, D, NOISE = 9, 4, 2, 0.7


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(4)
    prior = ma.priors.from_categories([0, 0, 1, 1], dim=D, action_std=0.6)
    contexts, actions = rng.normal(size=(N, D)) + 0.5, rng.integers(K, size=N)
    rewards = contexts[:, 0] * (actions + 1.0) + NOISE * rng.normal(size=N)
    policies = ma.TablePolicy([0.7, 0.1, 0.1, 0.1]), ma.TablePolicy([0.1, 0.1, 0.1, 0.7])
    return prior, contexts, actions, rewards, policies, rng.normal(size=(6, D)) + 0.5


def gain(world, bias=0.0, hidden=()):
    """The gain of a fit to rewards without some bias, with some columns hidden: the dense joint Gaussian."""
    _, contexts, actions, rewards, policies, others = world
    contexts, others = contexts.copy(), others.copy()
    contexts[:, list(hidden)] = others[:, list(hidden)] = 0.0
    cov = np.kron(np.kron(np.eye(2), np.ones((2, 2))) + 0.6**2 * np.eye(K), np.eye(D))
    rows = np.zeros((N, K, D))
    rows[np.arange(N), actions] = contexts
    rows = rows.reshape(N, K * D)
    shares = policies[0].probabilities(others[:1]) - policies[1].probabilities(others[:1])
    mass = np.kron(shares[0], others.mean(axis=0))
    pull = np.linalg.solve(rows @ cov @ rows.T + NOISE**2 * np.eye(N), rows @ cov @ mass)
    return float(pull @ (rewards - bias))


def result(world, with_logs=True, **options):
    prior, contexts, actions, rewards, policies, others = world
    logs = ma.LoggedData(contexts, actions, rewards, n_actions=K)
    posterior = ma.fit(logs, prior, ma.Gaussian(NOISE))
    return ma.hidden_cause(posterior, *policies, others, logs=logs if with_logs else None, **options)


def test_the_gain_is_that_of_the_dense_joint_gaussian(world):
    assert result(world).gain.value == pytest.approx(gain(world))


def test_the_tipping_point_is_that_of_a_search_over_all_signs(world):
    tipping, base = result(world).tipping, gain(world)
    gains = [gain(world, tipping * np.array(signs)) for signs in product((-1.0, 1.0), repeat=N)]
    assert base > 0
    assert min(gains) == pytest.approx(0.0, abs=1e-9 * base)


def test_the_tipping_point_in_mean_square_is_that_of_the_steepest_bias(world):
    tipping, slopes = (
        result(world, with_logs=False).tipping,
        np.array([gain(world) - gain(world, row) for row in np.eye(N)]),
    )
    worst = slopes / np.sqrt(np.mean(slopes**2))
    assert gain(world, tipping * worst) == pytest.approx(0.0, abs=1e-9)
    rng = np.random.default_rng(0)
    for _ in range(50):
        other = rng.normal(size=N)
        assert gain(world, tipping * other / np.sqrt(np.mean(other**2))) > 0


@pytest.mark.parametrize("with_logs", [True, False])
def test_a_column_is_as_strong_as_the_bias_that_hiding_it_causes(world, with_logs):
    prior, contexts, actions, rewards, _, _ = world
    cause = result(world, with_logs)
    full = ma.fit(ma.LoggedData(contexts, actions, rewards, n_actions=K), prior, ma.Gaussian(NOISE))
    slopes = np.abs([gain(world) - gain(world, row) for row in np.eye(N)])
    for column in cause.columns:
        place = int(column.column.removeprefix("column "))
        seen = contexts.copy()
        seen[:, place] = 0.0
        hidden = ma.fit(ma.LoggedData(seen, actions, rewards, n_actions=K), prior, ma.Gaussian(NOISE))
        bias = np.abs(full.expected_reward(contexts, actions) - hidden.expected_reward(seen, actions))
        expected = slopes @ bias / slopes.sum() if with_logs else np.sqrt(np.mean(bias**2))
        assert column.strength == pytest.approx(expected)
        assert column.gain_without == pytest.approx(gain(world, hidden=[place]))
        assert column.times * column.strength == pytest.approx(cause.tipping)
    assert len(cause.columns) == D


def test_the_interval_reaches_zero_before_the_gain_does(world):
    cause = result(world, level=0.4)
    low = cause.gain.interval(0.4)[0]
    assert low > 0
    assert cause.tipping_to_doubt == pytest.approx(cause.tipping * low / cause.gain.value)
    assert "times the bias that hiding column 0, the strongest context column, would cause" in cause.sentence
    wide = result(world, level=0.999999)
    assert wide.tipping_to_doubt == 0.0
    assert "contains zero already" in wide.sentence


def test_weights_count_rounds(world):
    prior, contexts, actions, rewards, policies, others = world
    counts = np.arange(N) % 3 + 1.0
    twice = np.repeat(np.arange(N), counts.astype(int))
    answers = []
    for logs in (
        ma.LoggedData(contexts, actions, rewards, n_actions=K, weights=counts),
        ma.LoggedData(contexts[twice], actions[twice], rewards[twice], n_actions=K),
    ):
        posterior = ma.fit(logs, prior, ma.Gaussian(NOISE))
        answers.append([ma.hidden_cause(posterior, *policies, others, logs=part).tipping for part in (logs, None)])
    assert_allclose(*answers)


def test_what_is_not_linear_in_the_rewards_is_refused(world):
    prior, contexts, actions, rewards, policies, others = world
    clicks = ma.LoggedData(contexts, actions, (rewards > 1) * 1.0, n_actions=K)
    with pytest.raises(InputError, match="must have Gaussian rewards"):
        ma.hidden_cause(ma.fit(clicks, prior, ma.Bernoulli()), *policies, others)
    posterior = ma.fit(clicks, prior, ma.Gaussian(NOISE))
    with pytest.raises(InputError, match="logs has 5 rounds; the posterior was fitted to 9"):
        ma.hidden_cause(posterior, *policies, others, logs=clicks.take(np.arange(5)))


def test_columns_that_are_mixed_or_seen_before_are_no_yardstick(world):
    prior, contexts, actions, rewards, policies, others = world
    table = {"age": contexts[:, 0], "size": contexts[:, 1], "item": actions, "reward": rewards}
    by_name, mixed = (
        ma.read_logs(pa.table(table), ["age", "size"], "item", "reward", n_actions=K, **options)
        for options in ({}, {"expand": "splines"})
    )
    names = []
    for logs in (by_name, mixed):
        posterior = ma.fit(logs, ma.priors.independent(K, dim=logs.dim), ma.Gaussian(NOISE))
        answer = ma.hidden_cause(posterior, *policies, logs.contexts, logs=logs)
        names.append({strength.column for strength in answer.columns})
    assert names == [{"age", "size"}, set()]
    first = ma.fit(ma.LoggedData(contexts, actions, rewards, n_actions=K), prior, ma.Gaussian(NOISE))
    logs = ma.LoggedData(contexts + 1.0, actions, rewards, n_actions=K)
    later = ma.fit(logs, first.weights, ma.Gaussian(NOISE))
    assert not ma.hidden_cause(later, *policies, others, logs=logs).columns
