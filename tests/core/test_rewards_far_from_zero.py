"""Rewards far from zero in units of their noise: the evidence keeps its digits, however rounds are split and merged."""

from dataclasses import replace

import mpmath
import numpy as np
import pytest
from numpy.testing import assert_allclose

import manyarms as ma
from manyarms.core.statistics import StatisticsSum
from manyarms.inference.condition import condition

N, K, D = 72, 3, 2


def rounds(offset, n=N, n_actions=K, seed=0):
    rng = np.random.default_rng(seed)
    contexts = np.column_stack([np.ones(n), rng.normal(size=n)])
    rewards = offset + 0.5 * contexts[:, 1] + rng.normal(size=n)
    return ma.LoggedData(contexts, np.arange(n) % n_actions, rewards, n_actions=n_actions)


def wide_prior(offset):
    """Actions independent of one another, with weights of the size of the rewards."""
    return ma.HierarchicalGaussian(np.zeros(D), 1.0, ma.MixedEffects(np.zeros((K, 1)), D), max(offset, 1.0) ** 2)


def exact_log_evidence(logs, offset, weights=None):
    """The density of all rewards under their joint Gaussian, with 60 digits; a weight w divides the noise by √w."""
    weights = np.ones(len(logs)) if weights is None else weights
    total = mpmath.mpf(0)
    with mpmath.workdps(60):
        for action in range(K):
            own = logs.actions == action
            x = mpmath.matrix(logs.contexts[own].tolist())
            r = mpmath.matrix([mpmath.mpf(value) for value in logs.rewards[own].tolist()])
            noise = mpmath.diag([1 / mpmath.mpf(w) for w in weights[own].tolist()])
            lower = mpmath.cholesky(x * x.T * mpmath.mpf(max(offset, 1.0)) ** 2 + noise)
            z = mpmath.lu_solve(lower, r)
            logs_of_pivots = sum(mpmath.log(lower[i, i]) for i in range(x.rows))
            total -= (x.rows * mpmath.log(2 * mpmath.pi) + mpmath.fdot(z, z)) / 2 + logs_of_pivots
    return float(total)


@pytest.mark.parametrize("offset", [0.0, 1e5, 1e7, 1e8, 1e9])
def test_log_evidence_keeps_its_digits_in_one_fit_in_updates_and_in_sums(offset):
    logs, prior = rounds(offset), wide_prior(offset)
    truth = exact_log_evidence(logs, offset)
    close = dict(rtol=0, atol=1e-6)
    assert_allclose(ma.fit(logs, prior, ma.Gaussian(1.0)).log_evidence, truth, **close)
    parts = [logs.take(np.arange(*ends)) for ends in ((0, 5), (5, 40), (40, N))]
    updated = ma.fit(parts[0], prior, ma.Gaussian(1.0)).update(parts[1]).update(parts[2])
    assert_allclose(updated.log_evidence, truth, **close)
    each = [ma.Statistics.of_rounds(p.contexts, p.actions, p.rewards, K) for p in parts]
    for statistics in (sum(each), sum(each[::-1]), sum(sum(each).shards(2))):
        assert_allclose(condition(prior, statistics, 1.0).log_evidence, truth, **close)


def test_nearly_collinear_features_keep_the_digits_of_rewards_that_only_their_difference_explains():
    rng, offset = np.random.default_rng(0), 1e9
    z, w, noise = rng.normal(size=(3, 30))
    logs = ma.LoggedData(np.column_stack([z, z + 1e-3 * w]), np.arange(30) % K, 1e6 * w + noise, n_actions=K)
    log_evidence = ma.fit(logs, wide_prior(offset), ma.Gaussian(1.0)).log_evidence
    assert_allclose(log_evidence, exact_log_evidence(logs, offset), rtol=0, atol=2e-5)


def test_batches_buffers_and_scaled_weights_keep_the_digits():
    logs, prior, offset = rounds(1e8), wide_prior(1e8), 1e8
    total = StatisticsSum(K, D)
    total._capacity = 16
    for start in range(0, N, 7):
        part = logs.take(np.arange(start, min(start + 7, N)))
        total.add_rounds(part.contexts, part.actions, part.rewards)
    statistics = total.total()
    assert_allclose(condition(prior, statistics, 1.0).log_evidence, exact_log_evidence(logs, offset), atol=1e-6, rtol=0)
    # Rounds of half the weight are rounds of twice the noise variance; the evidence differs by a constant.
    half = condition(prior, statistics.scaled(0.5), 1.0)
    truth = exact_log_evidence(logs, offset, np.full(N, 0.5)) + N / 4 * np.log(2 * np.pi) + N / 2 * np.log(2.0)
    assert_allclose(half.log_evidence, truth, atol=1e-6, rtol=0)


def test_statistics_of_earlier_versions_have_no_sums_about_a_fit_and_still_add_up():
    logs, prior = rounds(30.0), wide_prior(30.0)
    first, second = (logs.take(np.arange(*ends)) for ends in ((0, 36), (36, N)))
    old, new = (ma.Statistics.of_rounds(p.contexts, p.actions, p.rewards, K) for p in (first, second))
    old = replace(old, sums=replace(old.sums, about=None))
    truth = exact_log_evidence(logs, 30.0)
    for statistics in (old + new, new + old, sum((old + new).shards(2)), (old + new).scaled(1.0)):
        assert_allclose(condition(prior, statistics, 1.0).log_evidence, truth, rtol=1e-9)
    assert condition(prior, old.scaled(1.0), 1.0).log_evidence == condition(prior, old, 1.0).log_evidence


@pytest.mark.parametrize("offset", [0.0, 1e7, 1e8])
def test_the_noise_that_is_learned_does_not_depend_on_where_rewards_lie(offset):
    logs = rounds(offset, 2000, 20)
    learned = ma.learn_prior(logs, ma.priors.independent(20, dim=D))
    # The least squares of each action, on rewards about the offset: its residuals show the noise.
    gap = 0.0
    for action in range(20):
        own = logs.actions == action
        fitted = np.linalg.lstsq(logs.contexts[own], logs.rewards[own] - offset, rcond=None)[0]
        gap += float(np.sum((logs.rewards[own] - offset - logs.contexts[own] @ fitted) ** 2))
    assert_allclose(learned.likelihood.noise_std, np.sqrt(gap / (2000 - 40)), rtol=0.02)
    assert not any("noise" in note and "zero" in note for note in learned.notes)
