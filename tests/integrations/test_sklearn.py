"""`ma.sklearn`: what scikit-learn demands of an estimator, and that it is the same model as everywhere else."""

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import DotProduct, WhiteKernel
from sklearn.linear_model import BayesianRidge
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import manyarms as ma
from manyarms.errors import ActionError, InputError, ShapeError
from manyarms.integrations.sklearn import SDMRegressor


@parametrize_with_checks([SDMRegressor()])
def test_scikit_learn_accepts_it_as_an_estimator(estimator, check):
    check(estimator)


@pytest.fixture
def rounds():
    """60 items in 6 categories, 1,500 rounds, d = 3; the last ten items were never shown."""
    rng = np.random.default_rng(3)
    category = rng.integers(6, size=60)
    theta = rng.normal(size=(6, 4))[category] + 0.2 * rng.normal(size=(60, 4))
    X, action = rng.normal(size=(1500, 3)), rng.integers(50, size=1500)
    mean = 5.0 + theta[action, 0] + np.einsum("nd,nd->n", X, theta[action, 1:])
    return X, mean + 0.5 * rng.normal(size=1500), action, category


def test_one_action_with_a_prior_is_a_gaussian_process_with_a_linear_kernel(rounds):
    X, y = rounds[0][:40], rounds[1][:40]
    model = SDMRegressor(ma.priors.independent(1, cov=1.0, dim=4), likelihood=ma.Gaussian(0.5)).fit(X, y)
    kernel = DotProduct(sigma_0=1.0) + WhiteKernel(noise_level=0.25)
    process = GaussianProcessRegressor(kernel, optimizer=None).fit(X, y)
    for mine, theirs in zip(
        model.predict(X[5:], return_std=True), process.predict(X[5:], return_std=True), strict=True
    ):
        assert_allclose(mine, theirs, rtol=1e-6)


def test_one_action_without_a_prior_is_bayesian_ridge_regression():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 8))
    y = X @ rng.normal(size=8) + 0.7 * rng.normal(size=300)
    flat = dict.fromkeys(("alpha_1", "alpha_2", "lambda_1", "lambda_2"), 0.0)
    theirs = BayesianRidge(fit_intercept=False, tol=1e-10, max_iter=2000, **flat).fit(X, y)
    mine = SDMRegressor(fit_intercept=False).fit(X, y)
    # Ours keeps spreads off zero by a weak prior, which counts here as about one number of 300.
    assert_allclose(mine.posterior_.likelihood.noise_std, theirs.alpha_**-0.5, rtol=3e-3)
    for ours, others in zip(mine.predict(X, return_std=True), theirs.predict(X, return_std=True), strict=True):
        assert_allclose(ours, others, rtol=3e-3, atol=3e-3)


def test_without_an_intercept_a_weight_that_no_round_tells_of_is_expected_to_be_zero():
    X = np.c_[np.zeros(40), np.linspace(1.0, 2.0, 40)]
    y = 5.0 * X[:, 1] + np.tile([-0.1, 0.1], 20)
    assert_allclose(SDMRegressor(fit_intercept=False).fit(X, y).predict([[1.0, 0.0]]), 0.0, atol=1e-9)


def test_categories_tell_of_actions_never_seen(rounds):
    X, y, action, category = rounds
    shared, alone = SDMRegressor(categories=category), SDMRegressor(n_actions=60)
    new = np.arange(50, 60)
    contexts, weights = np.eye(4)[np.arange(10) % 4][:, 1:], {c: [] for c in category}
    for a in range(50):
        weights[category[a]].append(
            np.linalg.lstsq(np.c_[np.ones(sum(action == a)), X[action == a]], y[action == a])[0]
        )
    expected = [np.r_[1.0, x] @ np.mean(weights[category[a]], axis=0) for a, x in zip(new, contexts, strict=True)]
    errors = [np.abs(model.fit(X, y, action).predict(contexts, new) - expected).max() for model in (shared, alone)]
    assert errors[0] < 0.3 < errors[1]


def test_a_catalog_lets_actions_be_named_by_their_ids(rounds):
    X, y, action, category = rounds
    ids = np.array([f"item-{k}" for k in range(60)])
    named = SDMRegressor(categories=ma.Catalog(ids, categories=category)).fit(X, y, ids[action])
    numbered = SDMRegressor(categories=category).fit(X, y, action)
    assert_allclose(named.predict(X, ids[action]), numbered.predict(X, action), rtol=1e-12)
    assert named.posterior_.catalog is not None


def test_actions_are_routed_through_pipelines_and_folds(rounds):
    X, y, action, category = rounds
    with sklearn.config_context(enable_metadata_routing=True):
        model = SDMRegressor(categories=category).set_fit_request(action=True).set_score_request(action=True)
        scores = cross_val_score(make_pipeline(StandardScaler(), model), X, y, params={"action": action}, cv=3)
    assert scores.min() > 0.9


def test_clicks_are_predicted_as_probabilities(rounds):
    X, y, action, category = rounds
    clicks = (y > y.mean()).astype(float)
    prior = ma.priors.from_categories(category, dim=4)
    model = SDMRegressor(prior, likelihood=ma.Bernoulli()).fit(X, clicks, action)
    chance = model.predict(X, action)
    assert 0 < chance.min() < chance.max() < 1
    assert chance[clicks == 1].mean() > 0.75
    assert chance[clicks == 0].mean() < 0.25


@pytest.mark.parametrize("likelihood", [ma.Bernoulli(), ma.StudentT()])
def test_a_noise_that_is_not_gaussian_has_no_standard_deviation(likelihood):
    model = SDMRegressor(ma.priors.independent(1, dim=2), likelihood=likelihood).fit(np.eye(3, 1), [1.0, 0.0, 0.0])
    with pytest.raises(InputError, match=f"return_std needs Gaussian rewards; these are {type(likelihood).__name__}"):
        model.predict(np.eye(3, 1), return_std=True)


@pytest.mark.parametrize(
    ("parameters", "action", "error", "message"),
    [
        ({"n_actions": 60}, None, InputError, "there are 60 actions. Pass action=, one for each row."),
        ({"n_actions": 3, "categories": [0, 1]}, None, ShapeError, "categories 2, n_actions 3. Make all of one"),
        ({"n_actions": 3}, [0, 1, 3, 0], ActionError, "action must be below n_actions=3; row 2 has 3"),
        ({}, [0, 1], ShapeError, "action must have 4 rows; got 2"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(parameters, action, error, message):
    with pytest.raises(error, match=message):
        SDMRegressor(**parameters).fit(np.eye(4), np.arange(4.0), action)
