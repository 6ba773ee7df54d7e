"""Learned policies: near the best one with plenty of data, and what they remember."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from small_learners import D, K, N, bandit, make_logs, prior, random_policy, with_and_without_eligible

import manyarms as ma
from manyarms import learners


def learners_of_four(training):
    some = ma.fit(bandit(300, 8)[0], ma.priors.independent(4, dim=3))
    return [
        ma.IPSLearner(training=training),
        ma.SNIPSLearner(training=training),
        ma.DRLearner(some, training=training),
        ma.MIPSLearner(np.arange(4), training=training),
        ma.PolicyConvolutionLearner(np.arange(4.0)[:, None], 1, training=training),
        ma.LogarithmicSmoothingLearner(0.1, training=training),
    ]


@pytest.mark.parametrize(
    "training",
    [
        ma.Training(),
        ma.Training(learners.Adam(0.1, n_epochs=20), holdout=0.2, rng=np.random.default_rng(0)),
    ],
    ids=["lbfgs", "adam"],
)
def test_with_plenty_of_data_learners_come_close_to_the_best_policy(training):
    logs, chances = bandit(3000, 0)
    best = chances.max(axis=1).mean()
    direct = ma.DMLearner(ma.priors.independent(4, dim=3), ma.Gaussian(0.5))
    for learner in [*learners_of_four(training), direct]:
        value = np.mean(np.sum(learner.learn(logs).probabilities(np.eye(3)) * chances, axis=1))
        assert value > 0.95 * best, learner.name


def test_the_pull_towards_logged_actions_ends_at_the_logging_policy():
    logs, _ = bandit(3000, 0)
    actions = np.where(logs.contexts[:, 0] > 0, 1, logs.actions)
    skewed = ma.LoggedData(logs.contexts, actions, logs.rewards, n_actions=4, logging_policy=ma.Uniform(4))
    learner = ma.IPSLearner(training=ma.Training(imitation=1e4, ridge=0.0))
    counts = np.stack([np.bincount(actions[logs.contexts[:, j] > 0], minlength=4) for j in range(3)])
    found = learner.learn(skewed).probabilities(np.eye(3))
    assert_allclose(found, counts / counts.sum(axis=1, keepdims=True), atol=2e-3)


def test_what_was_never_eligible_is_never_preferred(logs):
    # Action 6 pays most but may not be chosen: its scores do not move at all.
    rewards = np.where(logs.actions == 6, 50.0, logs.rewards)
    rich = ma.LoggedData(logs.contexts, logs.actions, rewards, logs.propensities, K)
    allowed = np.ones((N, K), dtype=bool)
    allowed[:, 6] = False
    for eligible in (allowed, sparse.csr_array(allowed), lambda rows: allowed[rows], allowed[0]):
        policy = ma.IPSLearner(training=ma.Training(learners.LBFGS(10))).learn(rich, eligible=eligible)
        assert_array_equal(policy.weights[6], 0.0)
        assert np.abs(policy.weights[:6]).min() > 0


def test_the_direct_method_is_a_fit_and_a_choice(logs):
    posterior = ma.fit(logs, prior(), ma.Gaussian(0.7))
    learner = ma.DMLearner(prior(), ma.Gaussian(0.7), policy=ma.Pessimistic)
    assert_array_equal(learner.learn(logs).actions(logs.contexts), ma.Pessimistic(posterior).actions(logs.contexts))
    assert isinstance(ma.DMLearner(prior()).learn(logs), ma.Greedy)


def test_a_learned_policy_remembers_its_rounds(logs):
    mine, others = make_logs(weights=None).split(0.5, rng=np.random.default_rng(0))
    elsewhere = make_logs(50, seed=11, weights=None)
    training = ma.Training(learners.LBFGS(3))
    policies = [
        ma.IPSLearner(training=training).learn(mine),
        ma.DRLearner(ma.fit(elsewhere, prior()), training=training).learn(mine),
        ma.DMLearner(prior()).learn(mine),
    ]
    for policy in policies:
        warned = [any("learned from" in w for w in ma.IPS().estimate(policy, part).warnings)
                  for part in (mine, others)]  # fmt: skip
        assert warned == [True, False]
    assert policies[1].learned_from == (mine.fingerprint, elsewhere.fingerprint)


def brute_force(weights, contexts, eligible=None):
    scores = np.exp(contexts @ weights.T)
    if eligible is not None:
        for i, ids in enumerate(eligible):
            scores[i, np.setdiff1d(np.arange(len(weights)), ids)] = 0.0
    return scores / scores.sum(axis=1, keepdims=True)


@with_and_without_eligible
def test_a_linear_softmax_is_its_formula(restricted, logs, eligible):
    policy, x = random_policy(), logs.contexts
    sets = eligible if restricted else None
    expected = brute_force(policy.weights, x, sets)
    assert_allclose(policy.probabilities(x, eligible=sets), expected, rtol=1e-12)
    chance = policy.probability_of(x, logs.actions, eligible=sets)
    assert_allclose(chance, expected[np.arange(N), logs.actions], rtol=1e-12)
    assert_array_equal(policy.actions(x, eligible=sets), expected.argmax(axis=1))
    order = np.argsort(-expected, axis=1, kind="stable")[:, :3]
    top = np.where(np.take_along_axis(expected, order, axis=1) > 0, order, -1)
    assert_array_equal(policy.top_k(x, 3, eligible=sets), top)
    mass = policy.feature_mass(x, eligible=sets)
    assert_allclose(mass.vectors, (expected.T @ x / N)[mass.actions], rtol=1e-10, atol=1e-14)
    drawn = np.stack([policy.sample(x, np.random.default_rng(s), eligible=sets) for s in range(400)])
    shares = np.mean(drawn == logs.actions, axis=0)
    assert np.all(np.abs(shares - chance) < 5 * np.sqrt(chance * (1 - chance) / 400) + 1e-9)


def test_the_likeliest_action_is_found_without_probabilities_of_all(monkeypatch):
    policy = ma.LinearSoftmax(np.random.default_rng(0).normal(size=(3000, D)))
    x = np.random.default_rng(1).normal(size=(20, D))
    expected = np.argsort(-(x @ policy.weights.T), axis=1)
    monkeypatch.setattr(ma.LinearSoftmax, "choices", None)
    assert_array_equal(policy.top_k(x, 5), expected[:, :5])
    assert_array_equal(policy.actions(x), expected[:, 0])
