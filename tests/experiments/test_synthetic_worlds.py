"""Synthetic worlds: their logs, their truth by enumeration, and their misspecified priors."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from small_experiments import SMALL

from manyarms.datasets import SyntheticProblem
from manyarms.experiments.cell import draw_world


def test_the_log_is_that_of_the_world_and_the_truth_that_of_enumeration():
    world = draw_world(SMALL, 3)
    probabilities = world.target.probabilities(world.contexts)
    expected = world.contexts @ world.environment.weights.T
    assert_allclose(world.target_value, (probabilities * expected).sum(axis=1).mean())
    assert_allclose(world.best_value, expected.max(axis=1).mean())
    logs = world.log(4000, np.random.default_rng(0))
    noise = logs.rewards - np.einsum("nd,nd->n", logs.contexts, world.environment.weights[logs.actions])
    assert abs(noise.mean()) < 4 / np.sqrt(4000) and abs(noise.std() - 1) < 0.05
    assert np.all(logs.propensities == 1 / 20)


def test_the_epsilon_greedy_log_picks_the_best_action_half_the_time():
    world = draw_world(replace(SMALL, logging="epsilon-greedy"), 0)
    logs = world.log(4000, np.random.default_rng(1))
    best = (logs.contexts @ world.environment.weights.T).argmax(axis=1)
    share = 0.5 + 0.5 / 20
    assert abs((logs.actions == best).mean() - share) < 4 * np.sqrt(share * (1 - share) / 4000)
    assert_allclose(logs.propensities[logs.actions == best], share)


def test_binary_worlds_have_clicks_and_their_truth_is_that_of_enumeration():
    world = draw_world(replace(SMALL, binary=True), 0)
    chance = 1 / (1 + np.exp(-(world.contexts @ world.environment.weights.T)))
    assert_allclose(world.best_value, chance.max(axis=1).mean())
    assert_allclose(world.target_value, 0.5 * chance.max(axis=1).mean() + 0.5 * chance.mean())
    logs = world.log(3000, np.random.default_rng(0))
    assert set(np.unique(logs.rewards)) == {0.0, 1.0}
    expected = world.environment.expected_reward(logs.contexts, logs.actions)
    assert abs((logs.rewards - expected).mean()) < 4 * 0.5 / np.sqrt(3000)


def test_the_error_of_the_truth_is_that_of_its_contexts():
    for binary in (False, True):
        world = draw_world(replace(SMALL, binary=binary), 0)
        expected = world.contexts @ world.environment.weights.T
        expected = 1 / (1 + np.exp(-expected)) if binary else expected
        by_context = (world.target.probabilities(world.contexts) * expected).sum(axis=1)
        assert_allclose(world.target_error, by_context.std(ddof=1) / np.sqrt(len(by_context)))


@pytest.mark.parametrize("level", [0.0, 0.5, 1.5])
def test_misspecified_priors_are_off_by_uniform_noise_and_stay_definite(level):
    recipe = SyntheticProblem(n_actions=50, dim=10, latent_dim=8)
    prior = recipe.draw_prior(np.random.default_rng(0))
    wrong = recipe.misspecified(prior, level, rng=np.random.default_rng(1))
    for right, off in ((prior.latent_mean, wrong.latent_mean), (prior.mixing.matrices, wrong.mixing.matrices)):
        assert level <= (off - right).min() and (off - right).max() <= level + 0.5
    latent = wrong.latent_cov
    noise = latent - 3.0 * np.eye(8)
    assert_allclose(latent, latent.T)
    assert level - 1e-9 <= noise.min() and noise.max() <= level + 0.5 + 1e-9
    spread = wrong.action_cov(np.arange(50)) - np.einsum(
        "kdp,pq,keq->kde", wrong.mixing.matrices, latent, wrong.mixing.matrices
    )
    assert np.linalg.eigvalsh(spread).min() > 0.9e-3


def test_means_and_covariances_can_be_wrong_apart_with_the_same_noise():
    recipe = SyntheticProblem(n_actions=10, dim=3, latent_dim=2)
    prior = recipe.draw_prior(np.random.default_rng(0))
    both, means, covs = (
        recipe.misspecified(prior, 1.0, means=m, covs=c, rng=np.random.default_rng(1))
        for m, c in ((True, True), (True, False), (False, True))
    )
    assert np.array_equal(means.latent_mean, both.latent_mean) and np.array_equal(covs.latent_mean, prior.latent_mean)
    assert_allclose(covs.latent_cov, both.latent_cov)
    assert_allclose(means.latent_cov, prior.latent_cov)


def test_a_world_has_a_misspecified_prior_for_every_part_and_level():
    others = draw_world(SMALL, 0).known.other_priors
    assert set(others) == {
        f"{part} off by {level}" for part in ("prior", "means", "covariances") for level in ("0.5", "1", "1.5")
    }
    right = draw_world(SMALL, 0).known.prior
    for level in ("0.5", "1", "1.5"):
        both, means, covs = (others[f"{part} off by {level}"] for part in ("prior", "means", "covariances"))
        assert np.array_equal(means.latent_mean, both.latent_mean)
        assert np.array_equal(covs.latent_mean, right.latent_mean)
        assert_allclose(covs.latent_cov, both.latent_cov)
        assert_allclose(means.latent_cov, right.latent_cov)
        assert (both.latent_mean - right.latent_mean).min() >= float(level)
