"""Estimators are exactly unbiased, or biased, as theory says: every log of a tiny problem is enumerated."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tiny_problem import CONTEXTS, LOGGING, NU, REWARD, TARGET, Rule, model

import manyarms as ma

CLUSTERS = np.array([0, 1, 1])
TRUTH = float(NU @ (TARGET * REWARD).sum(axis=1))


def every_log(reward=REWARD, logging=LOGGING, rounds=2):
    """(probability, log) for every outcome of so many rounds."""
    outcomes = []
    for x, a, r in itertools.product(range(2), range(3), range(2)):
        chance = NU[x] * logging[x, a] * (reward[x, a] if r else 1 - reward[x, a])
        outcomes.append((chance, x, a, r))
    for drawn in itertools.product(outcomes, repeat=rounds):
        chance = np.prod([one[0] for one in drawn])
        if chance > 0:
            x, a, r = (np.array([one[i] for one in drawn]) for i in (1, 2, 3))
            yield (
                chance,
                ma.LoggedData(
                    CONTEXTS[x], a, r, logging[x, a], n_actions=logging.shape[1], logging_policy=Rule(logging)
                ),
            )


def expectation(estimator, **problem):
    return sum(chance * estimator.estimate(Rule(TARGET), log).value for chance, log in every_log(**problem))


WRONG = REWARD + np.array([[0.3, -0.2, 0.1], [-0.4, 0.2, 0.5]])
SHIFTED = REWARD + np.array([[0.3, -0.2, -0.2], [-0.4, 0.5, 0.5]])  # wrong, but right within each cluster
CLUSTERED = np.array([[0.2, 0.9, 0.9], [0.5, 0.3, 0.3]])  # depends on the cluster only


@pytest.mark.parametrize(
    "estimator",
    [ma.IPS(), ma.DR(model(WRONG)), ma.MIPS([0, 1, 2]), ma.OffCEM(CLUSTERS, model(SHIFTED))],
    ids=lambda e: e.name,
)
def test_estimator_is_exactly_unbiased(estimator):
    assert_allclose(expectation(estimator), TRUTH, atol=1e-12)


def test_mips_is_exactly_unbiased_when_rewards_depend_on_the_cluster_only():
    truth = float(NU @ (TARGET * CLUSTERED).sum(axis=1))
    for clusters in (CLUSTERS, np.array(["tea", "mug"])[CLUSTERS], np.array([None, "mug"])[CLUSTERS]):
        assert_allclose(expectation(ma.MIPS(clusters), reward=CLUSTERED), truth, atol=1e-12)


def test_mips_has_the_known_bias_when_clusters_hide_differences():
    """E = Σ_x ν Σ_c π(c | x) Σ_a π_0(a | x, c) r(x, a)."""
    expected = 0.0
    for x in range(2):
        for c in range(2):
            inside = np.flatnonzero(CLUSTERS == c)
            within = LOGGING[x, inside] / LOGGING[x, inside].sum()
            expected += NU[x] * TARGET[x, inside].sum() * (within @ REWARD[x, inside])
    assert abs(expected - TRUTH) > 0.01
    assert_allclose(expectation(ma.MIPS(CLUSTERS)), expected, atol=1e-12)


def test_ips_has_the_known_bias_without_support():
    logging = np.array([[0.7, 0.3, 0.0], [0.2, 0.2, 0.6]])
    lost = NU[0] * TARGET[0, 2] * REWARD[0, 2]
    assert_allclose(expectation(ma.IPS(), logging=logging), TRUTH - lost, atol=1e-12)


def test_clipping_has_the_known_bias():
    clip = 0.4
    expected = np.sum(NU[:, None] * LOGGING * TARGET / np.maximum(LOGGING, clip) * REWARD)
    assert_allclose(expectation(ma.IPS(clip=clip)), expected, atol=1e-12)
    capped = np.sum(NU[:, None] * LOGGING * np.minimum(TARGET / LOGGING, 1.5) * REWARD)
    assert_allclose(expectation(ma.IPS(cap=1.5)), capped, atol=1e-12)


def test_offcem_with_a_wrong_model_is_biased():
    assert abs(expectation(ma.OffCEM(CLUSTERS, model(WRONG))) - TRUTH) > 0.01


def test_balanced_ips_is_exactly_unbiased_for_two_loggers():
    second = np.array([[0.1, 0.1, 0.8], [0.6, 0.3, 0.1]])
    total = 0.0
    for p1, first in every_log(rounds=1):
        for p2, other in every_log(logging=second, rounds=1):
            x = np.stack([first.contexts[0], other.contexts[0]])
            log = ma.LoggedData(
                x, [first.actions[0], other.actions[0]], [first.rewards[0], other.rewards[0]], n_actions=3
            )
            estimator = ma.BalancedIPS([Rule(LOGGING), Rule(second)], [0, 1])
            total += p1 * p2 * estimator.estimate(Rule(TARGET), log).value
    assert_allclose(total, TRUTH, atol=1e-12)


def test_eligible_restricts_the_target_and_not_the_logger():
    """MIPS on rewards that depend on the cluster only, an action ruled out for the target: still exactly unbiased."""
    allowed = np.array([True, True, False])
    kept = TARGET * allowed
    kept /= kept.sum(axis=1, keepdims=True)
    truth = float(NU @ (kept * CLUSTERED).sum(axis=1))
    total = sum(
        chance * ma.MIPS(CLUSTERS).estimate(Rule(TARGET), log, eligible=allowed).value
        for chance, log in every_log(reward=CLUSTERED)
    )
    assert_allclose(total, truth, atol=1e-12)
