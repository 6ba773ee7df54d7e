"""Standard errors and intervals of estimates, with groups and row weights."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from tiny_problem import CONTEXTS, LOGGING, NU, REWARD, TARGET, Rule

import manyarms as ma


@pytest.mark.slow
def test_standard_errors_are_those_of_many_repetitions():
    """IPS and snIPS (delta method), rounds in groups and not, against the spread over fresh logs."""
    rng = np.random.default_rng(0)
    target = Rule(TARGET)

    def draw(n_groups, size):
        x = np.repeat(rng.choice(2, n_groups, p=NU), size)
        u = np.repeat(rng.normal(size=n_groups), size) * 0.5  # a user's own taste: rounds of a group go together
        a = np.array([rng.choice(3, p=LOGGING[i]) for i in x])
        r = REWARD[x, a] + u + 0.3 * rng.normal(size=len(x))
        return ma.LoggedData(CONTEXTS[x], a, r, LOGGING[x, a], 3, groups=np.repeat(np.arange(n_groups), size))

    logs = [draw(60, 4) for _ in range(400)]
    for estimator in (ma.IPS(), ma.SNIPS()):
        found = [estimator.estimate(target, log) for log in logs]
        spread = np.std([e.value for e in found], ddof=1)
        assert_allclose(np.mean([e.std for e in found]), spread, rtol=0.12)
        # Pretending that rounds are independent promises too much.
        naive = [ma.LoggedData(g.contexts, g.actions, g.rewards, g.propensities, 3) for g in logs]
        assert np.mean([estimator.estimate(target, log).std for log in naive]) < 0.85 * spread


def test_bootstrap_and_normal_intervals_agree_on_many_rounds(problem):
    logs, policy, _ = problem
    for kind in (ma.IPS, ma.SNIPS):
        normal = kind().estimate(policy, logs)
        drawn = kind(interval=ma.Bootstrap(4000, rng=np.random.default_rng(0))).estimate(policy, logs)
        assert (normal.method, drawn.method) == ("normal", "bootstrap")
        assert_allclose(drawn.interval(0.8), normal.interval(0.8), atol=0.15 * normal.std)
        again = kind(interval=ma.Bootstrap(4000, rng=np.random.default_rng(0))).estimate(policy, logs)
        assert drawn.interval() == again.interval()


def test_bernstein_interval_is_maurer_and_pontils(problem):
    logs, policy, _ = problem
    found = ma.IPS(cap=5.0, interval=ma.EmpiricalBernstein(width=10.0)).estimate(policy, logs)
    rounds = ma.IPS(cap=5.0).contributions(policy, logs)
    n, log = len(rounds), np.log(4 / 0.05)
    half = np.sqrt(2 * rounds.var(ddof=1) * log / n) + 7 * 10.0 * log / (3 * (n - 1))
    assert_allclose(found.interval(0.95), (rounds.mean() - half, rounds.mean() + half))
    # How sure it is that the value is above zero: the level at which the lower bound reaches it.
    sure = found.probability_positive
    low, _ = found.interval(2 * sure - 1)
    assert_allclose(low, 0.0, atol=1e-6)


def test_rows_with_weights_count_as_often(problem):
    logs, policy, _ = problem
    counts = np.random.default_rng(0).integers(0, 3, len(logs))
    rows = np.repeat(np.arange(len(logs)), counts)
    weighted = ma.LoggedData(logs.contexts, logs.actions, logs.rewards, logs.propensities, 5, weights=counts)
    posterior = problem[2]
    strata = np.arange(len(logs)) % 2
    loggers = [ma.Uniform(5), ma.TablePolicy([0.1, 0.2, 0.3, 0.2, 0.2])]
    for estimator, repeated in (
        (ma.IPS(), ma.IPS()), (ma.SNIPS(), ma.SNIPS()), (ma.DR(posterior), ma.DR(posterior)),
        (ma.SNDR(posterior), ma.SNDR(posterior)), (ma.DM(posterior), ma.DM(posterior)),
        (ma.WeightedIPS(strata), ma.WeightedIPS(strata[rows])),
        (ma.BalancedIPS(loggers, strata), ma.BalancedIPS(loggers, strata[rows])),
    ):  # fmt: skip
        got = estimator.estimate(policy, weighted)
        expected = repeated.estimate(policy.take(rows), logs.take(rows))
        assert_allclose(got.value, expected.value, err_msg=estimator.name)
        assert_allclose(got.std, expected.std, err_msg=estimator.name)
        for figure in {"effective_sample_size", "mean_weight", "unsupported_mass"} & set(got.diagnostics):
            assert_allclose(got.diagnostics[figure], expected.diagnostics[figure], atol=1e-12)


def test_weighted_ips_tells_the_error_within_strata_only():
    """Two strata with the same mean and noises 0.1 and 3: the spread over many logs."""
    rng = np.random.default_rng(0)
    strata = np.repeat([0, 1], 200)
    found = []
    for _ in range(200):
        rewards = 10 + rng.normal(size=400) * np.where(strata == 0, 0.1, 3.0)
        logs = ma.LoggedData(np.ones((400, 1)), np.zeros(400, dtype=int), rewards, np.ones(400))
        found.append(ma.WeightedIPS(strata).estimate(ma.Uniform(1), logs))
    assert_allclose(np.mean([e.std for e in found]), np.std([e.value for e in found]), rtol=0.15)


@pytest.mark.parametrize(
    "interval", [ma.Normal(), ma.Bootstrap(3000, rng=np.random.default_rng(0)), ma.EmpiricalBernstein(3.0)]
)
def test_every_interval_counts_a_row_of_weight_two_twice(problem, interval):
    logs, policy, _ = problem
    counts = np.random.default_rng(0).integers(0, 4, len(logs))
    rows = np.repeat(np.arange(len(logs)), counts)
    weighted = ma.LoggedData(logs.contexts, logs.actions, logs.rewards, logs.propensities, 5, weights=counts)
    got = ma.IPS(interval=interval).estimate(policy, weighted)
    expected = ma.IPS(interval=interval).estimate(policy.take(rows), logs.take(rows))
    assert_allclose(got.interval(0.9), expected.interval(0.9), atol=0.08 * expected.std)


def test_errors_of_a_posterior_follow_groups_too():
    """Users who come back with the same context: twenty of them are twenty, however often they come."""
    rng = np.random.default_rng(0)
    users = rng.normal(size=(20, 3))
    x, groups = np.repeat(users, 20, axis=0), np.repeat(np.arange(20), 20)
    logs = ma.LoggedData(x, rng.integers(0, 5, 400), rng.normal(size=400), np.full(400, 0.2), 5, groups=groups)
    posterior = ma.fit(logs, ma.priors.independent(5, dim=3))
    found = ma.DM(posterior).estimate(ma.Greedy(posterior), logs)
    once = posterior.value(ma.Greedy(posterior), users)
    assert_allclose(found.context_std, once.context_std)


def test_the_error_of_groups_is_that_of_their_means_with_one_degree_of_freedom_less():
    """Five groups, so that n and n - 1 differ by a fifth; groups of unequal size by the residuals of a ratio."""
    rng = np.random.default_rng(0)

    def estimate(sizes):
        groups, rewards = np.repeat(np.arange(len(sizes)), sizes), rng.normal(size=sum(sizes))
        logs = ma.LoggedData(np.ones((len(groups), 1)), groups * 0, rewards, np.ones(len(groups)), groups=groups)
        return ma.IPS().estimate(ma.Uniform(1), logs), [rewards[groups == g] for g in range(len(sizes))]

    found, rewards = estimate([4] * 5)
    assert_allclose(found.std, stats.sem([r.mean() for r in rewards]))
    found, rewards = estimate([1, 7, 3, 2, 5])
    residuals = [(r - found.value).sum() for r in rewards]
    assert_allclose(found.std, np.sqrt(5 / 4 * np.sum(np.square(residuals))) / 18)


def test_a_stratum_without_variance_does_not_hide_the_scale_of_the_others():
    rng = np.random.default_rng(0)
    strata = np.repeat([0, 1, 2], 20)
    rewards = rng.normal(size=60) * np.where(strata == 0, 1.0, 2.0)
    rewards[strata == 2] = 0.0

    def value(scale):
        logs = ma.LoggedData(np.ones((60, 1)), np.zeros(60, dtype=int), scale * rewards, np.ones(60))
        return ma.WeightedIPS(strata).rounds(ma.Uniform(1), logs, None).numerator.mean()

    assert_allclose(value(2.0**520) / 2.0**520, value(1.0), rtol=1e-12)
