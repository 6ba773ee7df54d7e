"""The error of a model is learned from the log: small where the model predicts what test policies earn, else large."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import integrate, stats

from manyarms import LoggedData
from manyarms.estimators.model_error import ModelError
from manyarms.estimators.policy_residuals import PolicyResiduals

N = 4000


def rounds(off=0.0, n=N, seed=0, propensities=None, noise=0.5):
    """Rounds whose rewards have the mean (1 + off z) times the prediction, where z varies with the prediction."""
    rng = np.random.default_rng(seed)
    predicted = rng.uniform(1.0, 3.0, size=n)
    rewards = predicted * (1.0 + off * np.sign(predicted - 2.0)) + noise * rng.normal(size=n)
    propensities = np.full(n, 0.25) if propensities is None else propensities
    logs = LoggedData(np.ones((n, 1)), np.zeros(n, dtype=int), rewards, n_actions=4, propensities=propensities)
    return PolicyResiduals(logs, np.ones(n), predicted, predicted), propensities


@pytest.mark.parametrize("right", [0.1, 0.0])
def test_the_scale_is_that_of_bayes_rule_by_brute_force(right):
    """An oracle without the library: five weighted means, and an integral over the scale."""
    seen, propensities = rounds(off=0.3, n=500, propensities=np.random.default_rng(1).uniform(0.1, 0.9, size=500))
    predicted, rewards = seen.at_logged, seen.logs.rewards
    residual = rewards - predicted
    tests = []
    knee = 0.5 * max(predicted.mean(), rewards.mean())
    if rewards.min() < 0:
        knee = 0.5 * max(abs(predicted.mean() - rewards.mean()), predicted.std())
    for part in np.array_split(np.argsort(predicted), 5):
        share = (1 / propensities[part]) / (1 / propensities[part]).sum()
        error, size = share @ residual[part], 1 / (share**2).sum()
        here = share @ (residual[part] - error) ** 2
        spread = (10 * residual.var() + size * here) / (10 + size)
        scale = np.hypot(share @ predicted[part], knee)
        # The spread of a few residuals is itself uncertain.
        tests.append((error / scale, np.sqrt((1 + 10 / 500) * spread / size) / scale))

    def likelihood(kappa):
        return np.prod([stats.norm.pdf(e, scale=np.hypot(s, kappa)) for e, s in tests])

    half_cauchy = stats.halfcauchy(scale=0.7)
    span = half_cauchy.cdf(3.0) - half_cauchy.cdf(0.01)

    def moment(function):
        inside = integrate.quad(lambda k: function(k) * likelihood(k) * half_cauchy.pdf(k) / span, 0.01, 3.0, limit=500)
        return right * function(0.0) * likelihood(0.0) + (1 - right) * inside[0]

    learned = ModelError.learn(seen, propensities, may_be_right=right > 0)
    total = moment(lambda k: 1.0)
    # A candidate's error may be three times as large as that of the test policies.
    for function in (lambda k: k, lambda k: k**2, lambda k: float(k < 0.2)):
        expected = moment(function) / total
        actual = learned.shares @ np.array([function(scale / 3) for scale in learned.scales])
        assert_allclose(actual, expected, rtol=0.05, atol=0.01)


def test_a_model_that_predicts_what_is_earned_is_trusted_and_one_that_does_not_is_not():
    right, wrong = (ModelError.learn(*rounds(off)) for off in (0.0, 0.3))
    assert right.scale < 0.03
    assert 0.3 < wrong.scale < 1.8
    assert right.shares[right.scales == 0.0].sum() > 0.8
    assert wrong.shares[wrong.scales == 0.0].sum() < 0.01


def test_a_model_without_any_error_that_is_known_to_be_wrong_has_the_least_scale():
    """The evidence for an error of zero is then infinite; without it, the smallest error is the likeliest."""
    error = ModelError.learn(*rounds(noise=0.0), may_be_right=False)
    assert_allclose(error.shares.sum(), 1.0)
    assert error.scales.min() == pytest.approx(3 * 0.01)
    assert error.scale < 0.05


def test_noisy_rounds_leave_the_usual_doubt():
    few = ModelError.learn(*rounds(n=10, noise=20.0))
    assert 0.2 < few.scale < 1.5


def test_errors_that_logging_hides_are_found_by_weights():
    """Logging prefers rounds in which the model is right. The error shows in the others, which weights restore."""
    rng = np.random.default_rng(0)
    seen, propensities = rounds(n=N)
    rare = rng.random(N) < 0.05
    rewards = np.where(rare, 0.3, 1.0) * seen.logs.rewards
    logs = LoggedData(np.ones((N, 1)), np.zeros(N, dtype=int), rewards, n_actions=4, propensities=propensities)
    hidden = PolicyResiduals(logs, np.ones(N), seen.at_logged, seen.at_logged)
    unaware = ModelError.learn(hidden, propensities)
    aware = ModelError.learn(hidden, np.where(rare, 0.01, 0.9))
    assert aware.scale > 3 * unaware.scale


def test_the_normal_parts_are_a_normal_distribution_with_a_half_student_scale():
    stds, shares = ModelError.fixed(0.5).normal_parts()
    assert_allclose(shares.sum(), 1.0)
    for x in (0.2, 0.5, 1.0, 2.0):
        exact = integrate.quad(lambda t, x=x: 2 * stats.t.pdf(t, 3) * stats.norm.cdf(x / (0.5 * t)), 0, np.inf)[0]
        assert_allclose(shares @ stats.norm.cdf(x / stds), exact, atol=0.005)


@pytest.mark.parametrize("tiny", [1e-160, 1e-320])
def test_tiny_propensities_do_not_overflow(tiny):
    propensities = np.full(N, 0.5)
    propensities[::100] = tiny
    error = ModelError.learn(*rounds(propensities=propensities))
    assert np.isfinite(error.shares).all() and np.isfinite(error.scale)


def test_rounds_of_weight_zero_are_no_rounds_wherever_their_predictions_lie():
    seen, propensities = rounds(off=0.3, n=500)
    logs, predicted = seen.logs, seen.at_logged
    counted = (predicted > 1.2) & (predicted < 2.8)
    weighted = LoggedData(
        logs.contexts, logs.actions, logs.rewards, propensities, n_actions=4, weights=counted.astype(float)
    )
    all_rounds = PolicyResiduals(weighted, np.ones(500), predicted, predicted)
    some = PolicyResiduals(logs.take(np.flatnonzero(counted)), np.ones(counted.sum()), *2 * (predicted[counted],))
    expected = ModelError.learn(some, propensities[counted])
    learned = ModelError.learn(all_rounds, propensities)
    # Not to the last digit: the size of the log, which the counts add up to, is that of all rounds.
    assert_allclose(learned.shares @ learned.scales, expected.shares @ expected.scales, rtol=0.02)


@pytest.mark.parametrize(("reasons", "share", "least"), [(0.0, 0.15, 0.0), (0.5, 0.575, 0.25), (1.0, 1.0, 0.5)])
def test_downwards_little_of_the_error_is_left_where_no_hidden_reasons_flatter_the_policy(reasons, share, least):
    error = ModelError(np.array([0.0, 0.5, 2.0]), np.array([0.2, 0.5, 0.3]))
    assert_allclose(error.downwards(reasons).scales, np.maximum([0.0, 0.5 * share, 2.0 * share], least))
    assert_allclose(error.downwards(reasons).shares, error.shares)
