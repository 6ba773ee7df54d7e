"""`ma.arviz`: the draws are those of the posterior, jointly, and everything has its name."""

import sys

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm

import manyarms as ma
from manyarms.errors import MissingLibraryError, ShapeError, TooLargeError

IDS = ["tea", "mug", "pot", "jar"]


@pytest.fixture(scope="module")
def fitted():
    """Four items in two categories, the last never shown; 60 rounds with an intercept and one number."""
    rng = np.random.default_rng(5)
    table = pa.table(
        {"age": rng.normal(size=60), "item": np.array(IDS)[rng.integers(3, size=60)], "r": rng.normal(size=60)}
    )
    logs = ma.read_logs(table, ["age"], "item", "r", catalog=ma.Catalog(IDS, categories=["x", "x", "y", "y"]))
    return logs, ma.fit(logs, ma.priors.from_categories(logs.catalog, dim=2), ma.Gaussian(0.7))


def draws(tree, group, variable):
    return tree[group][variable].to_numpy()[0]


def test_draws_have_the_moments_of_prior_and_posterior(fitted):
    _, posterior = fitted
    n = 20_000
    tree = ma.arviz.inference_data(posterior, n_draws=n, rng=np.random.default_rng(0))
    everyone = np.arange(4)
    for group, weights in (("posterior", posterior.weights), ("prior", posterior.prior)):
        theta, latent = draws(tree, group, "weights"), draws(tree, group, "latent")
        cov = weights.action_cov(everyone)
        std = np.sqrt(np.einsum("mdd->md", cov))
        assert np.all(np.abs(theta.mean(axis=0) - weights.action_mean()) < 5 * std / np.sqrt(n))
        assert np.all(np.abs(latent.mean(axis=0) - weights.latent_mean) < 5 / np.sqrt(n))
        # Jointly: two actions of one category, and an action with the effect of its own.
        across = (
            np.einsum("si,sj->ij", theta[:, 0] - theta[:, 0].mean(axis=0), theta[:, 1] - theta[:, 1].mean(axis=0)) / n
        )
        assert_allclose(across, weights.cross_cov([0], [1])[0], atol=5 * std.max() ** 2 / np.sqrt(n))
        own = np.cov(theta[:, 3, 0], latent[:, 2])[0, 1]
        assert_allclose(own, weights.latent_cov[2, 2], rtol=0.1)


def test_everything_goes_by_its_name(fitted):
    logs, posterior = fitted
    tree = ma.arviz.inference_data(posterior, n_draws=7, rng=np.random.default_rng(0), actions=[3, 0], logs=logs)
    weights = tree["posterior"]["weights"]
    assert weights.dims == ("chain", "draw", "action", "feature")
    assert weights.coords["action"].to_numpy().tolist() == ["jar", "tea"]
    assert weights.sel(action="tea", feature="age").shape == (1, 7)
    names = ["category=x[(intercept)]", "category=x[age]", "category=y[(intercept)]", "category=y[age]"]
    assert tree["prior"]["latent"].coords["effect"].to_numpy().tolist() == names
    assert tree["constant_data"]["logged_action"].to_numpy().tolist() == [IDS[a] for a in logs.actions]
    assert_allclose(tree["observed_data"]["reward"], logs.rewards)
    assert tree.attrs["inference_library"] == "manyarms"
    assert tree.attrs["likelihood"] == "Gaussian(noise_std=0.7)"


def test_log_likelihood_is_that_of_every_reward_under_every_draw(fitted):
    logs, posterior = fitted
    tree = ma.arviz.inference_data(posterior, n_draws=9, rng=np.random.default_rng(2), logs=logs)
    theta = draws(tree, "posterior", "weights")
    expected = [
        [
            norm.logpdf(r, x @ theta[s, a], 0.7)
            for x, a, r in zip(logs.contexts, logs.actions, logs.rewards, strict=True)
        ]
        for s in range(9)
    ]
    assert_allclose(draws(tree, "log_likelihood", "reward"), expected, rtol=1e-10)


def test_actions_that_share_nothing_have_no_latent_draws():
    logs = ma.LoggedData(np.ones((3, 1)), [0, 1, 0], [1.0, 2.0, 3.0])
    tree = ma.arviz.inference_data(
        ma.fit(logs, ma.priors.independent(2, dim=1)), n_draws=2, rng=np.random.default_rng(0)
    )
    assert list(tree["posterior"].data_vars) == ["weights"]
    assert tree["posterior"]["weights"].coords["action"].to_numpy().tolist() == [0, 1]


def test_what_cannot_be_drawn_is_refused_in_one_line(fitted, monkeypatch):
    _, posterior = fitted
    with pytest.raises(TooLargeError, match=r"draws for 4 actions would take 800,000,000 numbers. Name fewer actions="):
        ma.arviz.inference_data(posterior, n_draws=100_000_000, rng=np.random.default_rng(0))
    with pytest.raises(ShapeError, match=r"actions must name at least one action. Leave it out for all of them\."):
        ma.arviz.inference_data(posterior, rng=np.random.default_rng(0), actions=[])
    monkeypatch.setitem(sys.modules, "arviz_base", None)
    with pytest.raises(
        MissingLibraryError, match=r'ma.arviz needs arviz_base\. Install it: pip install "manyarms\[arviz\]"'
    ):
        ma.arviz.inference_data(posterior, rng=np.random.default_rng(0))
