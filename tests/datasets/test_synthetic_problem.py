"""Synthetic problems: actions and noise are independent, values are known, weights follow their prior."""

import numpy as np
from numpy.testing import assert_allclose

import manyarms as ma
from manyarms.datasets import LinearEnvironment, SyntheticProblem


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
