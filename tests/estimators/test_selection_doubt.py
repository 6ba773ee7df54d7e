"""The doubt about a model whose own rounds chose the policy: zero where a right prior explains all, large where not."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import linalg

import manyarms as ma
from manyarms.estimators.selection_doubt import SelectionDoubt

K, N = 40, 1000


def noisy_log(theta, seed, n=N):
    """Rounds of equally likely actions whose mean rewards differ, with much noise."""
    rng = np.random.default_rng(seed)
    actions = rng.integers(len(theta), size=n)
    rewards = theta[actions] + rng.normal(size=n)
    shares = np.full(n, 1.0 / len(theta))
    return ma.LoggedData(np.ones((n, 1)), actions, rewards, n_actions=len(theta), propensities=shares)


@pytest.mark.parametrize("has_baseline", [False, True])
def test_the_doubt_is_that_of_two_dense_regressions(has_baseline):
    """An oracle without the library: normal equations over all actions at once, for either set of rounds."""
    rng, n_actions, dim, std = np.random.default_rng(0), 3, 2, 0.1
    cov = np.array([[2.0, 0.3], [0.3, 1.0]])
    contexts, actions = rng.normal(size=(60, dim)), rng.integers(n_actions, size=60)
    # Rewards that no linear model explains, so that the two models differ.
    rewards = 3.0 * np.sin(3.0 * contexts[:, 0]) * (actions + 1) + contexts[:, 1] ** 2
    logs = ma.LoggedData(contexts, actions, rewards, n_actions=n_actions, propensities=np.full(60, 1 / 3))
    train, test = logs.take(np.arange(40)), logs.take(np.arange(40, 60))
    shares, others = (rng.dirichlet(np.ones(n_actions), size=20) for _ in range(2))

    design = np.zeros((60, n_actions, dim))
    design[np.arange(60), actions] = contexts
    gap = shares - others if has_baseline else shares
    direction = np.einsum("na,nd->ad", gap, test.contexts).ravel() / 20

    def dense(rows):
        x = design[rows].reshape(len(rows), -1)
        precision = linalg.inv(np.kron(np.eye(n_actions), cov)) + x.T @ x / std**2
        mean = linalg.solve(precision, x.T @ rewards[rows] / std**2)
        return direction @ mean, direction @ linalg.solve(precision, direction)

    (first, first_variance), (second, second_variance) = dense(np.arange(40)), dense(np.arange(60))
    expected = 3.0 * np.sqrt((first - second) ** 2 - (first_variance - second_variance))
    prior, noise = ma.priors.independent(n_actions, dim=dim, cov=cov), ma.Gaussian(std)
    before = ma.fit(train, prior, noise)
    doubt = SelectionDoubt(before, before.update(test))
    baseline = ma.TablePolicy(others) if has_baseline else None
    assert expected > 0.01
    # What the model takes back, it may still have too much of; what it adds, too little.
    sides = (expected, 0.0) if first > second else (0.0, expected)
    assert_allclose(doubt.stds(ma.TablePolicy(shares), baseline, test), sides, rtol=1e-9)


def answers(effect_std, prior_std, seed):
    """A model, its greedy policy, and the rounds that check it."""
    theta = effect_std * np.random.default_rng((seed, 0)).normal(size=K)
    train, test = noisy_log(theta, (seed, 1)), noisy_log(theta, (seed, 2))
    posterior = ma.fit(train, ma.priors.independent(K, dim=1, cov=prior_std**2), ma.Gaussian(1.0))
    return posterior, ma.Greedy(posterior), test


def rated(seed):
    """Ratings of users who differ in generosity, which a model knows, and in how much of the scale they use."""
    rng, n, n_actions, n_users = np.random.default_rng(seed), 4000, 50, 4000
    generosity, tastes, use = rng.normal(size=n_users), rng.normal(size=(n_users, 5)), rng.normal(size=(n_users, 1))
    deviations = tastes @ rng.normal(size=(5, n_actions)) + 2.5 * rng.normal(size=(n_users, n_actions))
    ratings = 1.0 + 2.5 * generosity[:, None] + rng.normal(size=n_actions) + np.exp(0.5 * use) * deviations
    ratings = np.clip(ratings, -10.0, 10.0)
    contexts = np.column_stack([np.ones(n_users), generosity, tastes])
    users, actions = rng.integers(n_users, size=2 * n), rng.integers(n_actions, size=2 * n)
    logs = ma.LoggedData(
        contexts[users], actions, ratings[users, actions], n_actions=n_actions,
        propensities=np.full(2 * n, 1.0 / n_actions),
    )  # fmt: skip
    train, test = logs.take(np.arange(n)), logs.take(np.arange(n, 2 * n))
    prior = ma.priors.independent(n_actions, dim=contexts.shape[1])
    posterior = ma.learn_prior(train, prior, ma.Gaussian(float(train.rewards.std()))).posterior
    policy = ma.Greedy(posterior)
    truth = ratings[np.arange(n_users), policy.actions(contexts)].mean() - ratings.mean()
    return truth, posterior, policy, test


def test_a_model_that_is_right_on_average_is_doubted_where_it_overrates_its_own_choice(monkeypatch):
    """Without the doubt the interval ends higher below, and about as high above."""
    truth, posterior, policy, test = rated(0)
    doubted = ma.Checked(posterior).difference(policy, ma.Logged(test), test).interval()
    monkeypatch.setattr(SelectionDoubt, "stds", lambda *_: (0.0, 0.0))
    trusted = ma.Checked(posterior).difference(policy, ma.Logged(test), test).interval()
    assert doubted[0] < truth < doubted[1]
    assert doubted[0] < trusted[0] - 0.25 * (trusted[1] - trusted[0])
    assert abs(doubted[1] - trusted[1]) < 0.1 * (trusted[1] - trusted[0])


def test_a_right_prior_leaves_little_doubt():
    """A normal step exceeds its standard deviation in a third of all cases, also for the policy that noise chose."""
    doubts = []
    for seed in range(20):
        posterior, policy, test = answers(effect_std=0.5, prior_std=0.5, seed=seed)
        doubts.append(max(SelectionDoubt(posterior, posterior.update(test)).stds(policy, ma.Logged(test), test)))
    assert 1 <= np.count_nonzero(doubts) <= 12
