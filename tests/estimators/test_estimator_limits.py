"""In their limits, estimators become other estimators; and eligible actions restrict the target."""

import numpy as np
from numpy.testing import assert_allclose
from scipy import sparse
from tiny_problem import CONTEXTS, REWARD, TARGET, Rule, model, value

import manyarms as ma


def test_limits_of_estimators_are_other_estimators(problem):
    logs, policy, posterior = problem
    k = logs.n_actions
    embeddings = np.random.default_rng(1).normal(size=(k, 2))
    dm = posterior.value(policy, logs.contexts).value
    ips, dr = value(ma.IPS(), problem), value(ma.DR(posterior), problem)
    for estimator, expected in (
        (ma.MIPS(np.arange(k)), ips),
        (ma.MIPS(np.column_stack([np.arange(k) // 2, np.arange(k) % 2])), ips),
        (ma.PolicyConvolution(embeddings, 1), ips),
        (ma.PolicyConvolution(embeddings, k), logs.rewards.mean()),
        (ma.MIPS(np.zeros(k, dtype=int)), logs.rewards.mean()),
        (ma.OffCEM(np.arange(k), posterior), dr),
        (ma.SwitchDR(posterior, 0.0), dm),
        (ma.SwitchDR(posterior, np.inf), dr),
        (ma.DRos(posterior, 0.0), dm),
        (ma.DRos(posterior, np.inf), dr),
        (ma.DRos(posterior, 1e14), dr),
        (ma.SubGaussianIPS(0.0), ips),
        (ma.SubGaussianDR(posterior, 0.0), dr),
        (ma.ExponentialSmoothing(1.0), ips),
        (ma.LogarithmicSmoothing(0.0), ips),
        (ma.LogarithmicSmoothing(1e-9), ips),
        (ma.BalancedIPS([logs.logging_policy], np.zeros(len(logs), dtype=int)), ips),
        (ma.WeightedIPS(np.zeros(len(logs), dtype=int)), ips),
        (ma.DM(posterior), dm),
    ):
        assert_allclose(value(estimator, problem), expected, rtol=1e-6 if "LS" in estimator.name else 1e-9)


def test_dr_with_a_perfect_model_and_no_noise_is_dm_whatever_the_weights(problem):
    logs, policy, posterior = problem
    rewards = posterior.expected_reward(logs.contexts, logs.actions)
    noiseless = ma.LoggedData(logs.contexts, logs.actions, rewards, np.full(len(logs), 1e-3), logs.n_actions)
    dm = posterior.value(policy, logs.contexts).value
    for estimator in (ma.DR(posterior), ma.SNDR(posterior), ma.DRos(posterior, 3.0), ma.SubGaussianDR(posterior, 0.5)):
        assert_allclose(estimator.estimate(policy, noiseless).value, dm, rtol=1e-10)


def test_self_normalised_estimates_stay_within_the_rewards(problem):
    logs, policy, _ = problem
    p = policy.probability_of(logs.contexts, logs.actions)
    w = p / logs.propensities
    assert_allclose(value(ma.SNIPS(), problem), w @ logs.rewards / w.sum())
    assert_allclose(ma.SNIPS().contributions(policy, logs).mean(), value(ma.SNIPS(), problem))


def test_replay_averages_the_matching_rounds(problem):
    logs, _, posterior = problem
    greedy = ma.Greedy(posterior)
    matched = greedy.actions(logs.contexts) == logs.actions
    assert_allclose(ma.Replay().estimate(greedy, logs).value, logs.rewards[matched].mean())


def test_eligible_reaches_the_target_policy():
    sets = [[0, 1], [1, 2]] * 10
    x, a = np.tile(CONTEXTS, (10, 1)), np.tile([1, 2], 10)
    logs = ma.LoggedData(x, a, np.ones(20), np.full(20, 0.5), 3)
    allowed = TARGET.copy()
    allowed[0, 2] = allowed[1, 0] = 0
    allowed /= allowed.sum(axis=1, keepdims=True)
    expected = np.mean(allowed[np.tile([0, 1], 10), a] / 0.5)
    assert_allclose(ma.IPS().estimate(Rule(TARGET), logs, eligible=sets).value, expected)
    assert_allclose(
        ma.DR(model(REWARD)).estimate(Rule(TARGET), logs, eligible=sets).value,
        np.mean((allowed * REWARD).sum(axis=1)[np.tile([0, 1], 10)])
        + np.mean(allowed[np.tile([0, 1], 10), a] / 0.5 * (1 - REWARD[np.tile([0, 1], 10), a])),
    )


def test_sets_may_be_asked_of_every_kind_of_choice():
    """Σ of probabilities over a set, for named, shared and dense parts, against the sum written out."""
    rng = np.random.default_rng(0)
    n, k = 20, 7
    sets = sparse.csr_array((rng.random((4, k)) < 0.5).astype(float))
    which, x = rng.integers(0, 4, n), rng.normal(size=(n, 2))
    table = rng.dirichlet(np.ones(k), n)
    for policy in (
        ma.TablePolicy(table), ma.TablePolicy(sparse.csr_array(table)), ma.TablePolicy(table[0]), ma.Uniform(k),
        ma.EpsilonGreedy(ma.TablePolicy(sparse.csr_array(table)), 0.3),
    ):  # fmt: skip
        expected = (policy.probabilities(x) * sets.toarray()[which]).sum(axis=1)
        assert_allclose(policy.probability_of_sets(x, sets, which), expected, atol=1e-12)
