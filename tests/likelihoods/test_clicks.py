"""Binary rewards against an exact sampler, and the sampler against brute force; the long forms are studies."""

import itertools
from itertools import islice

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit, log_expit


def tiny_problem():
    """Two actions, two features, three latent numbers, offsets and full covariances, all different."""
    from polya_gamma import Model

    rng = np.random.default_rng(3)
    roots = rng.normal(size=(3, 3)), rng.normal(size=(2, 2, 2))
    latent_cov = roots[0] @ roots[0].T + 0.3 * np.eye(3)
    action_cov = 0.3 * roots[1] @ np.swapaxes(roots[1], 1, 2) + 0.2 * np.eye(2)
    model = Model(rng.normal(size=3), latent_cov, 0.7 * rng.normal(size=(2, 2, 3)), rng.normal(size=(2, 2)), action_cov)
    x, actions = rng.normal(size=(14, 2)), np.repeat([0, 1], [9, 5])
    return model, x, actions, (rng.random(14) < 0.4).astype(float)


def grid_posterior(model, x, actions, rewards, points=31):
    """Posterior mean and covariance of (θ_0, θ_1) by a grid over their four numbers, ψ integrated out by algebra."""
    W = model.mixing.reshape(4, -1)
    mean, cov = W @ model.latent_mean + model.offset.ravel(), W @ model.latent_cov @ W.T
    for a in range(2):
        cov[2 * a : 2 * a + 2, 2 * a : 2 * a + 2] += model.action_cov[a]
    axis = np.linspace(-5.0, 5.0, points)
    white = np.array(list(itertools.product(axis, repeat=4)))
    theta = mean + white @ np.linalg.cholesky(cov).T
    log_weight = -0.5 * np.sum(white**2, axis=1)
    for row, a, r in zip(x, actions, rewards, strict=True):
        log_weight += log_expit((2 * r - 1) * (theta[:, 2 * a : 2 * a + 2] @ row))
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    centre = weight @ theta
    return centre, (theta - centre).T @ (weight[:, None] * (theta - centre)), (mean, cov)


@pytest.mark.slow
def test_sampler_agrees_with_a_grid():
    """First and second moments of θ, and the mean of ψ, within five of the sampler's standard errors."""
    from polya_gamma import effective_size, r_hat, sweeps

    model, x, actions, rewards = tiny_problem()
    mean, cov, (prior_mean, prior_cov) = grid_posterior(model, x, actions, rewards)
    # E ψ | data = E E[ψ | θ] is linear in the posterior mean of θ.
    W = model.mixing.reshape(4, -1)
    latent_mean = model.latent_mean + model.latent_cov @ W.T @ np.linalg.solve(prior_cov, mean - prior_mean)
    chain = sweeps(model, x, actions, rewards, n_chains=8, rng=np.random.default_rng(0))
    draws = list(islice(chain, 200, 4200))
    theta = np.stack([draw.action_weights.reshape(8, 4) for draw in draws], axis=-1)
    latent = np.stack([draw.latent for draw in draws], axis=-1)

    def agrees(found, expected):
        assert r_hat(found) < 1.01
        error = found.std() / np.sqrt(effective_size(found))
        assert found.mean() == pytest.approx(expected, abs=5 * error)

    for i in range(4):
        agrees(theta[:, i], mean[i])
        for j in range(i, 4):
            agrees((theta[:, i] - mean[i]) * (theta[:, j] - mean[j]), cov[i, j])
    for i in range(3):
        agrees(latent[:, i], latent_mean[i])


def test_effective_size_of_an_autoregression_and_r_hat_of_chains_that_disagree():
    """x' = 0.8 x + noise: a draw in nine counts, (1 - 0.8) / (1 + 0.8)."""
    from polya_gamma import effective_size, r_hat

    rng = np.random.default_rng(1)
    noise = rng.normal(size=(4, 20_000))
    draws = np.empty_like(noise)
    draws[:, 0] = noise[:, 0] / 0.6
    for t in range(1, draws.shape[1]):
        draws[:, t] = 0.8 * draws[:, t - 1] + noise[:, t]
    assert effective_size(draws) == pytest.approx(draws.size / 9, rel=0.1)
    assert effective_size(noise) == pytest.approx(noise.size, rel=0.1)
    assert r_hat(draws) < 1.01
    assert r_hat(draws + 3.0 * np.arange(4)[:, None]) > 1.5


@pytest.mark.parametrize("rate", [pytest.param(rate, marks=pytest.mark.slow) for rate in (0.01, 0.2)] + [0.05])
def test_variational_is_near_the_exact_posterior_where_others_are_not(rate):
    """In units of the exact standard deviation; 0.15 is four standard errors of the sampler's mean or so."""
    from clicks import POLICIES, distances, run_problem

    results = [run_problem(np.random.default_rng(5), rate, n_sweeps=1200)]
    assert results[0].worst_r_hat < 1.05
    for policy in POLICIES:
        shift, ratio = distances(results, policy, "variational")
        assert abs(shift[0]) < 0.15, policy
        assert_allclose(ratio, 1.0, atol=0.15)
    assert distances(results, "uniform", "laplace")[0][0] > 0.3
    assert distances(results, "uniform", "paper")[0][0] > 1.5


def test_click_rates_are_as_asked_for():
    from clicks import draw_problem

    for rate in (0.01, 0.05, 0.2):
        problems = [draw_problem(rate, rng) for rng in np.random.default_rng(2).spawn(40)]
        rates = [expit(p.logs.contexts @ p.theta.T).mean() for p in problems]
        error = np.std(rates, ddof=1) / np.sqrt(len(rates))
        assert np.mean(rates) == pytest.approx(rate, abs=4 * error)


@pytest.mark.slow
def test_bernoulli_values_clicks_ten_times_better_than_a_linear_model_and_chooses_no_worse():
    from binary_setting_one import run, scores

    runs = run(100, (1000,), 4, seed=1)
    error, relative = scores(runs, 1000, "variational")
    linear_error, linear_relative = scores(runs, 1000, "linear")
    assert error.mean() < 0.1 * linear_error.mean()
    assert relative.mean() >= linear_relative.mean()
