"""The penalty of a ridge: chosen as by scikit-learn's regressions on the same folds."""

import numpy as np
import pytest
from fast_first import fast_first
from numpy.testing import assert_allclose
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, PredefinedSplit

import manyarms as ma
from manyarms.errors import InputError, ShapeError
from manyarms.priors.ridge_prior import N_FOLDS, PENALTIES, ridge_penalty


def make_logs(rng, n=300, n_actions=12, dim=4, noise=1.0, **columns):
    contexts, actions = rng.normal(size=(n, dim)), rng.integers(n_actions, size=n)
    theta = rng.normal(size=(n_actions, dim))
    rewards = np.einsum("nd,nd->n", contexts, theta[actions]) + noise * rng.normal(size=n)
    return ma.LoggedData(contexts, actions, rewards, n_actions=n_actions, **columns)


def in_turn(logs):
    """Folds as documented: the rounds of an action in turn, starting at another fold for each seen action."""
    folds = np.empty(len(logs), dtype=int)
    for place, action in enumerate(np.unique(logs.actions)):
        rows = np.flatnonzero(logs.actions == action)
        folds[rows] = (np.arange(len(rows)) + place) % N_FOLDS
    return folds


def by_regressions(logs, folds, weights=None):
    """The held-out squared error of every candidate, one regression at a time."""
    weights = np.ones(len(logs)) if weights is None else weights
    scale = (weights[:, None] * logs.contexts**2).sum() / weights.sum() / logs.dim
    errors = []
    for penalty in scale * np.array(PENALTIES):
        error = 0.0
        for action in range(logs.n_actions):
            for fold in range(N_FOLDS):
                mine = logs.actions == action
                train, test = mine & (folds != fold), mine & (folds == fold)
                if not test.any():
                    continue
                predicted = np.zeros(test.sum())
                if train.any():
                    model = Ridge(alpha=penalty, fit_intercept=False)
                    model.fit(logs.contexts[train], logs.rewards[train], sample_weight=weights[train])
                    predicted = model.predict(logs.contexts[test])
                error += (weights[test] * (logs.rewards[test] - predicted) ** 2).sum()
        errors.append(error)
    return scale * PENALTIES[int(np.argmin(errors))]


@pytest.mark.parametrize("noise", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("seed", fast_first(range(2)))
def test_the_penalty_is_that_of_regressions_on_the_same_folds(noise, seed):
    logs = make_logs(np.random.default_rng(seed), n=150, n_actions=6, noise=noise)
    assert_allclose(ridge_penalty(logs), by_regressions(logs, in_turn(logs)), rtol=1e-12)


def test_of_one_action_it_is_that_of_a_grid_search():
    logs = make_logs(np.random.default_rng(3), n=40, n_actions=1, noise=4.0)
    scale = (logs.contexts**2).mean()
    # scikit-learn averages over folds, which are all of one size here.
    search = GridSearchCV(
        Ridge(fit_intercept=False),
        {"alpha": scale * np.array(PENALTIES)},
        cv=PredefinedSplit(np.arange(40) % N_FOLDS),
        scoring="neg_mean_squared_error",
    ).fit(logs.contexts, logs.rewards)
    assert_allclose(ridge_penalty(logs), search.best_params_["alpha"], rtol=1e-12)


def test_a_group_is_in_one_fold():
    rng = np.random.default_rng(4)
    groups = rng.integers(30, size=300)
    logs = make_logs(rng, groups=groups)
    folds = np.unique(groups, return_inverse=True)[1] % N_FOLDS
    assert_allclose(ridge_penalty(logs), by_regressions(logs, folds), rtol=1e-12)


def test_weights_count_as_repeats_and_zero_as_absent():
    rng = np.random.default_rng(5)
    weights = rng.integers(0, 3, size=200).astype(float)
    logs = make_logs(rng, n=200, weights=weights, groups=np.arange(200))
    kept = np.flatnonzero(weights)
    part = ma.LoggedData(logs.contexts[kept], logs.actions[kept], logs.rewards[kept], n_actions=12)
    assert_allclose(ridge_penalty(logs), by_regressions(part, np.arange(len(kept)) % N_FOLDS, weights[kept]))


def test_blocks_do_not_change_the_penalty(monkeypatch):
    logs = make_logs(np.random.default_rng(6), n=400, noise=3.0)
    whole = ridge_penalty(logs)
    monkeypatch.setattr("manyarms.priors.ridge_prior._BLOCK", 300)
    assert_allclose(ridge_penalty(logs), whole, rtol=1e-12)


def test_units_of_the_contexts_do_not_change_predictions():
    logs = make_logs(np.random.default_rng(7))
    scaled = ma.LoggedData(1000.0 * logs.contexts, logs.actions, logs.rewards, n_actions=12)
    assert_allclose(ridge_penalty(scaled), 1e6 * ridge_penalty(logs), rtol=1e-9)


def test_without_evidence_it_is_the_mean_square_of_a_feature():
    logs = ma.LoggedData(np.full((3, 2), 2.0), [0, 1, 2], [1.0, 2.0, 3.0], n_actions=5)
    assert ridge_penalty(logs) == 4.0
    empty = ma.LoggedData(np.empty((0, 2)), np.empty(0, dtype=int), np.empty(0), n_actions=5)
    assert ridge_penalty(empty) == 1.0


def test_a_chosen_penalty_does_not_fail_where_a_small_one_does():
    """As many rounds per action as features: without a penalty, the regression fits the noise."""
    rng = np.random.default_rng(8)
    theta, test = rng.normal(size=(200, 8)), rng.uniform(-1, 1, size=(500, 8))
    contexts, actions = rng.uniform(-1, 1, size=(1600, 8)), rng.integers(200, size=1600)
    rewards = np.einsum("nd,nd->n", contexts, theta[actions]) + rng.normal(size=1600)
    logs = ma.LoggedData(contexts, actions, rewards, n_actions=200)
    truth = test @ theta.T

    def reward(prior):
        chosen = ma.Greedy(ma.fit(logs, prior)).probabilities(test)
        return (chosen * truth).sum(axis=1).mean() / truth.max(axis=1).mean()

    tuned, small = ma.priors.ridge(200, 8, logs=logs), ma.priors.ridge(200, 8, penalty=1e-3)
    assert reward(tuned) > reward(small) + 0.2


def test_either_a_penalty_or_logs():
    logs = make_logs(np.random.default_rng(9))
    for arguments in ({}, {"penalty": 1.0, "logs": logs}):
        with pytest.raises(InputError, match="either penalty or logs"):
            ma.priors.ridge(12, 4, **arguments)
    with pytest.raises(ShapeError, match="12 actions in 4 dimensions"):
        ma.priors.ridge(13, 4, logs=logs)
