"""Logged data, statistics and estimates on their own."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import manyarms as ma
from manyarms.datasets import LinearEnvironment, SyntheticProblem


def dense_sums(statistics):
    """Gram, moment and Σ r² of every action, whatever form the statistics keep them in."""
    k, d = statistics.n_actions, statistics.dim
    gram, moment, square = np.zeros((k, d, d)), np.zeros((k, d)), np.zeros(k)
    rows, sums = statistics.rows, statistics.sums
    for a, x, r in zip(rows.actions, rows.features, rows.rewards, strict=True):
        gram[a] += np.outer(x, x)
        moment[a] += r * x
        square[a] += r * r
    gram[sums.actions] += sums.gram
    moment[sums.actions] += sums.moment
    square[sums.actions] += sums.reward_sq
    return np.concatenate([gram.ravel(), moment.ravel(), square])


@pytest.mark.parametrize("n", [0, 1, 7, 200])
def test_statistics_are_sums_over_rounds_and_add_up(n):
    rng, k, d = np.random.default_rng(n), 9, 3
    x, a, r = rng.normal(size=(n, d)), rng.integers(0, k - 1, n), rng.normal(size=n)
    w = rng.uniform(0, 2, n) * (rng.random(n) < 0.9)
    whole = ma.Statistics.of_rounds(x, a, r, k, w)
    gram = np.stack([(x[a == i] * w[a == i, None]).T @ x[a == i] for i in range(k)])
    moment = np.stack([(w * r)[a == i] @ x[a == i] for i in range(k)])
    square = [(w * r * r)[a == i].sum() for i in range(k)]
    expected = np.concatenate([gram.ravel(), moment.ravel(), square])
    assert_allclose(dense_sums(whole), expected, atol=1e-10)
    assert_allclose(whole.total_weight, w.sum())
    cut = n // 3
    parts = [ma.Statistics.of_rounds(x[s], a[s], r[s], k, w[s]) for s in (slice(0, cut), slice(cut, n))]
    both = parts[0] + parts[1]
    assert_allclose(dense_sums(both), expected, atol=1e-10)
    # Merging leaves the same form as seeing all at once: rows below d rounds, sums from there on.
    assert_array_equal(np.sort(both.rows.actions), np.sort(whole.rows.actions))
    assert_array_equal(both.sums.actions, whole.sums.actions)
    counts = np.bincount(a[w > 0], minlength=k)
    assert_array_equal(np.unique(both.rows.actions), np.flatnonzero((counts > 0) & (counts < d)))
    assert_array_equal(both.sums.actions, np.flatnonzero(counts >= d))


def test_statistics_of_other_catalogs_do_not_add():
    with pytest.raises(ma.errors.ShapeError, match="3 actions"):
        _ = ma.Statistics.empty(3, 2) + ma.Statistics.empty(4, 2)


def test_batches_cover_the_log_in_order():
    rng = np.random.default_rng(0)
    logs = ma.LoggedData(
        rng.normal(size=(25, 2)), rng.integers(0, 4, 25), rng.normal(size=25), rng.uniform(0.1, 1, 25), 4,
        weights=np.ones(25), groups=np.arange(25) // 5, logging_policy=ma.Uniform(4),
    )  # fmt: skip
    parts = list(logs.batches(size=10))
    assert [len(part) for part in parts] == [10, 10, 5]
    for name in ("contexts", "actions", "rewards", "propensities", "weights", "groups"):
        assert_array_equal(np.concatenate([getattr(part, name) for part in parts]), getattr(logs, name))


def test_intervals_and_probabilities_are_those_of_a_normal():
    estimate = ma.Estimate(value=1.0, std=2.0, posterior_std=1.0, context_std=np.sqrt(3.0))
    assert_allclose(estimate.interval(0.9), stats.norm(1, 2).interval(0.9))
    assert_allclose(estimate.interval(0.9, of="contexts"), stats.norm(1, 1).interval(0.9))
    assert_allclose(estimate.probability_positive, stats.norm(1, 2).sf(0))
    certain = [ma.Estimate(value, 0.0).probability_positive for value in (-1.0, 0.0, 1.0)]
    assert certain == [0.0, 0.5, 1.0]
    assert str(estimate) == "1 [-2.92, 4.92]"


def test_both_errors_of_a_value_join_in_its_std():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 2))
    posterior = ma.fit(ma.LoggedData(x, rng.integers(0, 3, 50), rng.normal(size=50)), ma.priors.independent(3, dim=2))
    value = posterior.value(ma.Greedy(posterior), x)
    assert value.posterior_std > 0
    assert value.context_std > 0
    assert_allclose(value.std, np.hypot(value.posterior_std, value.context_std))


def test_logged_actions_are_independent_of_the_noise_in_rewards():
    """One seed for two draws ties them together: the classic mistake of simulators."""
    world = LinearEnvironment(np.ones((5, 1)), 1.0, lambda rng, n: np.ones((n, 1)))
    logs = world.log(ma.Uniform(5), 20_000, np.random.default_rng(0))
    means = [logs.rewards[logs.actions == a].mean() for a in range(5)]
    assert_allclose(means, 1.0, atol=4.5 / np.sqrt(4000))
    assert_allclose(logs.propensities, 0.2)
    assert abs(np.corrcoef(logs.actions, logs.rewards)[0, 1]) < 4.5 / np.sqrt(20_000)


def test_environment_knows_the_value_of_every_policy_and_the_best_one():
    problem = SyntheticProblem(n_actions=20, dim=3, latent_dim=2)
    rng = np.random.default_rng(1)
    world = problem.draw_environment(problem.draw_prior(rng), rng)
    x = world.contexts(100, rng)
    rewards = x @ world.weights.T
    assert_allclose(world.optimal_value(x), rewards.max(axis=1).mean())
    table = rng.dirichlet(np.ones(20), 100)
    assert_allclose(world.value(ma.TablePolicy(table), x), (table * rewards).sum(axis=1).mean())
    sets = [[1, 5], *([[3]] * 99)]
    expected = [rewards[0, [1, 5]].max(), *rewards[1:, 3]]
    assert_allclose(world.value(world.optimal_policy(), x, eligible=sets), np.mean(expected))


def test_synthetic_weights_have_the_moments_of_their_prior():
    problem = SyntheticProblem(n_actions=3, dim=2, latent_dim=4)
    prior = problem.draw_prior(np.random.default_rng(0))
    draws = np.stack([problem.draw_environment(prior, rng).weights for rng in np.random.default_rng(1).spawn(4000)])
    error = np.sqrt(np.einsum("kdd->kd", prior.action_cov(np.arange(3))) / 4000)
    assert (np.abs(draws.mean(axis=0) - prior.action_mean()) / error).max() < 4.5
