"""Objectives are the estimates of the estimators, and gradients those of finite differences."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from small_learners import (
    EMBEDDINGS,
    MAKERS,
    D,
    K,
    N,
    every_learner,
    make_learner,
    make_logs,
    prior,
    random_policy,
    with_and_without_eligible,
)

import manyarms as ma
from manyarms import errors, learners
from manyarms.core.eligibility import as_eligibility
from manyarms.learners.objective import Objective, Ratio


@every_learner
@with_and_without_eligible
def test_an_objective_is_the_estimate_of_its_estimator(which, restricted, logs, eligible):
    sets = eligible if restricted else None
    estimate = MAKERS[which][1]().estimate(random_policy(), logs, eligible=sets)
    found = make_learner(which).objective(random_policy(), logs, eligible=sets)
    assert_allclose(found, estimate.value, rtol=1e-10)


@pytest.mark.parametrize("which", ["IPS", "snIPS", "MIPS", "PC"])
@pytest.mark.parametrize("known", [{"propensities": None}, {"propensities": None, "logging_policy": None}])
def test_propensities_that_logs_lack_are_those_of_the_estimator(which, known):
    logs = make_logs(**known)
    estimate = MAKERS[which][1]().estimate(random_policy(), logs)
    assert_allclose(make_learner(which).objective(random_policy(), logs), estimate.value, rtol=1e-10)


def test_clusters_of_one_action_and_neighbourhoods_of_one_are_ips(logs):
    ips = ma.IPSLearner().objective(random_policy(), logs)
    alone = ma.MIPSLearner(np.arange(K)[::-1]).objective(random_policy(), logs)
    nearest = ma.PolicyConvolutionLearner(EMBEDDINGS, 1).objective(random_policy(), logs)
    assert_allclose([alone, nearest], ips, rtol=1e-12)


def test_one_cluster_and_one_neighbourhood_leave_the_mean_reward_and_nothing_to_learn(logs):
    mean = np.average(logs.rewards, weights=logs.weights)
    for learner in (ma.MIPSLearner(np.zeros(K, dtype=int)), ma.PolicyConvolutionLearner(EMBEDDINGS, K)):
        assert_allclose(learner.objective(random_policy(), logs), mean, rtol=1e-12)
        assert_allclose(learner.learn(logs).weights, 0.0, atol=1e-6)


def central_differences(function, at, step=1e-5):
    out = np.empty(at.shape)
    for place in np.ndindex(*at.shape):
        move = np.zeros(at.shape)
        move[place] = step
        out[place] = (function(at + move) - function(at - move)) / (2 * step)
    return out


@every_learner
@with_and_without_eligible
def test_gradients_are_those_of_finite_differences(which, restricted, logs, eligible):
    learner = make_learner(which, training=ma.Training(imitation=0.4, ridge=0.05))
    problem = learner.training_rounds(logs, as_eligibility(eligible if restricted else None, N, K))
    objective = learner.training.objective(problem, learner.criterion)
    weights = random_policy().weights
    value, gradient = objective.value_and_gradient(weights)
    expected = central_differences(objective.value, weights)
    assert_allclose(gradient, expected, rtol=1e-6, atol=1e-8 * np.abs(expected).max())
    assert value == objective.value(weights)


def test_penalties_are_as_written(logs):
    learner, policy = ma.IPSLearner(training=ma.Training(imitation=0.4, ridge=0.05)), random_policy()
    chance = policy.probability_of(logs.contexts, logs.actions)
    pull = 0.4 * np.average(np.log(chance), weights=logs.weights)
    found = learner.training.objective(learner.training_rounds(logs, None), learner.criterion).value(policy.weights)
    expected = learner.objective(policy, logs) + pull - 0.05 / 2 * np.sum(policy.weights**2)
    assert_allclose(found, expected, rtol=1e-12)


@every_learner
def test_results_do_not_depend_on_the_size_of_blocks(which, logs):
    learner = make_learner(which)
    problem = learner.training_rounds(logs, None)
    weights = random_policy().weights
    found = [
        Objective(problem, learner.criterion, imitation=0.2, block_numbers=size).value_and_gradient(weights)
        for size in (1, 50 * K, 1 << 18)
    ]
    for value, gradient in found[1:]:
        assert_allclose(value, found[0][0], rtol=1e-12)
        assert_allclose(gradient, found[0][1], rtol=1e-9, atol=1e-12)


@every_learner
def test_a_row_of_weight_two_is_that_row_twice_and_of_weight_zero_none(which):
    whole = make_logs(60)
    counts = np.arange(60) % 3
    weighted = make_logs(60, weights=counts)
    repeated = make_logs(60, weights=None).take(np.repeat(np.arange(60), counts))
    learner = make_learner(which, training=ma.Training(learners.LBFGS(5), imitation=0.1))
    if which == "DR cross-fitted":  # rows that are copies of one another may fall into different folds
        learner = ma.DRLearner(ma.fit(whole, prior()), training=learner.training)
    found, expected = learner.learn(weighted), learner.learn(repeated)
    assert_allclose(found.weights, expected.weights, rtol=1e-6, atol=1e-9)


def test_scores_far_apart_neither_overflow_nor_become_nan(logs):
    objective = Objective(ma.IPSLearner().training_rounds(logs, None), ma.IPSLearner().criterion, imitation=1.0)
    value, gradient = objective.value_and_gradient(1e4 * random_policy().weights)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


def test_rewards_too_large_are_an_error_and_not_infinity():
    logs = ma.LoggedData(np.ones((5, D)), np.zeros(5, int), np.full(5, 1e308), np.full(5, 1e-3), K)
    with pytest.raises(errors.NumericalError, match="Rescale"):
        ma.IPSLearner().learn(logs)


def test_a_batch_without_any_weight_has_a_ratio_of_zero_and_no_slope():
    value, slope = Ratio().combined(np.zeros(2))
    assert value == 0.0 and slope.tolist() == [0.0, 0.0]
    # Elsewhere it is a / b with its derivatives.
    value, slope = Ratio().combined(np.array([3.0, 4.0]))
    assert value == 0.75
    np.testing.assert_allclose(slope, [1 / 4, -3 / 16])
