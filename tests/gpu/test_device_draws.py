"""Draws of weights on a device have the posterior's distribution, and their winners are the best actions."""

import numpy as np
import pytest
from device_cases import HERE, stand_in, torch_or_skip
from numpy.testing import assert_allclose

import manyarms as ma
from manyarms.gpu.device_draws import philox, standard_normals
from manyarms.policies.device_scores import DeviceScoreDraws

N_ACTIONS, DIM, NOISE = 60, 3, 0.7


def problem(action_cov):
    """A fit in which a third of the actions were never logged; actions mix two effects with weights of their own."""
    rng = np.random.default_rng(0)
    mixing = ma.MixedEffects(rng.integers(0, 3, size=(N_ACTIONS, 4)) / 2.0, DIM)
    offset = rng.normal(size=(N_ACTIONS, DIM))
    prior = ma.HierarchicalGaussian(rng.normal(size=4 * DIM), 0.5, mixing, action_cov, offset)
    x, actions = rng.normal(size=(150, DIM)), rng.integers(0, 40, size=150)
    logs = ma.LoggedData(x, actions, rng.normal(size=150), n_actions=N_ACTIONS)
    return logs, prior, ma.fit(logs, prior, ma.Gaussian(NOISE))


def test_random_words_are_those_of_the_published_generator():
    torch = torch_or_skip()
    ones = torch.full((1,), 0, dtype=torch.int64)
    # The known answer of Philox 4x32-10 for a counter and a key of zeros (Random123).
    assert [int(word) for word in philox(ones, ones, 0, 0)] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    normal = standard_normals(20_000, 3, 5, "cpu").numpy()
    # Four standard errors.
    assert abs(normal.mean()) < 0.007 and abs(normal.var() - 1) < 0.01 and abs((normal**4).mean() - 3) < 0.07
    assert abs(np.corrcoef(normal.T) - np.eye(16)).max() < 0.04
    assert not np.array_equal(normal, standard_normals(20_000, 4, 5, "cpu").numpy())


@pytest.mark.parametrize("action_cov", [0.3, np.array([[1.0, 0.4, 0.0], [0.4, 0.5, -0.1], [0.0, -0.1, 0.2]])])
def test_draws_given_the_latent_have_the_dense_mean_and_covariance(action_cov):
    torch_or_skip()
    logs, prior, posterior = problem(action_cov)
    latent = np.random.default_rng(1).normal(size=(5, 4 * DIM))
    drawn = DeviceScoreDraws(posterior.weights, latent, 7, HERE)
    cov = np.diag(np.full(DIM, action_cov)) if np.isscalar(action_cov) else action_cov
    L = np.linalg.cholesky(cov)
    W = np.einsum("kj,de->kdje", prior.mixing.weights.toarray(), np.eye(DIM)).reshape(N_ACTIONS, DIM, -1)
    for draw in range(5):
        theta = drawn.draws.weights(draw).numpy() @ L.T
        noise = standard_normals(N_ACTIONS, draw, 7, "cpu").numpy()[:, :DIM]
        for place, action in enumerate(drawn._order):
            own = logs.actions == action
            X, r = logs.contexts[own] / NOISE, logs.rewards[own] / NOISE
            S = np.linalg.inv(np.linalg.inv(cov) + X.T @ X)
            mean = S @ (np.linalg.solve(cov, W[action] @ latent[draw] + prior.offset[action]) + X.T @ r)
            gap = theta[place] - mean
            # Whatever the root of S, its inverse turns the draw into a rotation of the noise.
            assert_allclose(gap @ np.linalg.solve(S, gap), noise[place] @ noise[place], rtol=1e-9)


def test_thompson_on_a_device_chooses_the_best_actions_of_its_draws(monkeypatch):
    torch_or_skip()
    stand_in(monkeypatch, "manyarms.policies.thompson")
    logs, _, posterior = problem(0.3)
    x = logs.contexts[:8]
    here = ma.Thompson(posterior, 600, rng=np.random.default_rng(2), device="cuda")
    drawn = here._on_device
    theta = np.stack([drawn.draws.weights(draw).numpy() for draw in range(600)]) * np.sqrt(0.3)
    winners = drawn._order[np.einsum("nd,skd->nsk", x, theta).argmax(axis=2)]
    shares = np.stack([np.bincount(row, minlength=N_ACTIONS) for row in winners]) / 600
    assert_allclose(here.probabilities(x), shares, atol=1e-12)
    other = ma.Thompson(posterior, 4000, rng=np.random.default_rng(3)).probabilities(x)
    assert np.abs(shares - other).max() < 5 * here.max_share_error
    # Rows with eligible actions of their own are chosen on the processor.
    assert set(here.actions(x, eligible=[[1, 2]] * 8)) <= {1, 2}


def test_what_a_device_cannot_draw_is_refused(monkeypatch):
    torch_or_skip()
    stand_in(monkeypatch, "manyarms.policies.thompson")
    rng = np.random.default_rng(0)
    wide = ma.LoggedData(rng.normal(size=(9, 17)), np.arange(9) % 3, rng.normal(size=9))
    each = ma.HierarchicalGaussian(np.zeros(1), 1.0, np.ones((3, 1, 1)), np.ones((3, 1, 1)))
    flat = ma.HierarchicalGaussian(np.zeros(1), 1.0, np.ones((3, 1, 1)), 0.0)
    one = ma.LoggedData(np.ones((9, 1)), np.arange(9) % 3, rng.normal(size=9))
    for logs, prior, problem_text in (
        (wide, ma.priors.independent(3, dim=17), "at most 16 features"),
        (one, each, "one action_cov in common"),
        (one, flat, "positive definite"),
    ):
        policy = ma.Thompson(ma.fit(logs, prior), 4, rng=rng, device="cuda")
        with pytest.raises(ma.errors.InputError, match=problem_text):
            policy.actions(logs.contexts)
