"""The best of many actions that were never logged is drawn at once, with the distribution of all their draws."""

import numpy as np
import pytest
from device_cases import stand_in
from numpy.testing import assert_allclose

import manyarms as ma
from manyarms._base.rng import hashed_uniforms
from manyarms.errors import InputError
from manyarms.policies import thompson

N_ACTIONS, N_DRAWS = 90, 20_000


def fitted():
    """Two categories of 40 and 44 actions that were never logged, and six that were."""
    rng = np.random.default_rng(0)
    category = np.repeat([0, 1, 0, 1], [3, 3, 40, 44])
    cov = np.array([[0.5, 0.2], [0.2, 0.3]])
    prior = ma.HierarchicalGaussian(rng.normal(size=4), 0.3, ma.MixedEffects(np.eye(2)[category], 2), cov, [0.2, -0.1])
    x, actions = rng.normal(size=(60, 2)), rng.integers(0, 6, size=60)
    return ma.fit(ma.LoggedData(x, actions, 1.5 + rng.normal(size=60), n_actions=N_ACTIONS), prior), x[:3]


def shares(posterior, x, seed):
    return ma.Thompson(posterior, N_DRAWS, rng=np.random.default_rng(seed)).probabilities(x)


def test_shares_are_those_of_draws_of_every_action(monkeypatch):
    posterior, x = fitted()
    every = shares(posterior, x, 1)
    monkeypatch.setattr(thompson, "MANY_UNSEEN", 10)
    at_once = shares(posterior, x, 2)
    # Logged actions one by one, and those of each category together: within five standard errors of a difference.
    parts = np.repeat(np.arange(8), [1, 1, 1, 1, 1, 1, 40, 44])
    pooled = [np.array([row[parts == part].sum() for row in table for part in range(8)]) for table in (every, at_once)]
    error = np.sqrt(2 * pooled[0] * (1 - pooled[0]) / N_DRAWS)
    assert (np.abs(pooled[0] - pooled[1]) < 5 * error + 1e-3).all()
    assert (pooled[0] > 0.004).sum() > 8
    # Within a category, all are alike.
    for members in (slice(6, 46), slice(46, 90)):
        mean = at_once[:, members].mean(axis=1, keepdims=True)
        assert (np.abs(at_once[:, members] - mean) < 5 * np.sqrt(mean / N_DRAWS)).all()
    assert_allclose(at_once.sum(axis=1), 1.0)


def test_draws_at_once_belong_to_the_context_whatever_its_neighbours(monkeypatch):
    monkeypatch.setattr(thompson, "MANY_UNSEEN", 10)
    posterior, x = fitted()
    policy = ma.Thompson(posterior, 50, rng=np.random.default_rng(3))
    together = policy.probabilities(np.vstack([x, x[::-1]]))
    assert np.array_equal(together[:3], together[:2:-1])
    assert np.array_equal(together[:1], policy.probabilities(x[:1]))
    drawn = policy.sample(np.repeat(x, 2000, axis=0), np.random.default_rng(4))
    share = np.array([np.isin(drawn[row * 2000 : row * 2000 + 2000], np.arange(6)).mean() for row in range(3)])
    exact = shares(posterior, x, 5)[:, :6].sum(axis=1)
    # 2,000 rows share 50 draws.
    assert np.abs(share - exact).max() < 5 * 0.5 / np.sqrt(50)


def test_draws_at_once_are_the_same_for_few_pairs_at_a_time(monkeypatch):
    monkeypatch.setattr(thompson, "MANY_UNSEEN", 10)
    posterior, x = fitted()
    x = np.vstack([x, x + 1.0])

    def drawn():
        policy = ma.Thompson(posterior, 30, rng=np.random.default_rng(3))
        return policy.probabilities(x), policy.sample(x, np.random.default_rng(4))

    shares_at_once, sample_at_once = drawn()
    winners = ma.Thompson._winners
    monkeypatch.setattr(ma.Thompson, "_winners", lambda self, x, draws, f, _, e: winners(self, x, draws, f, 4, e))
    assert np.array_equal(drawn()[0], shares_at_once)
    assert np.array_equal(drawn()[1], sample_at_once)


def test_chunks_without_an_eligible_action_change_no_draw(monkeypatch):
    monkeypatch.setattr(thompson, "ACTIONS_PER_CHUNK", 8)
    posterior, x = fitted()
    # The eligible actions are in the first and the last of a dozen chunks of eight.
    few = np.array([2, 5, 88])
    policy = ma.Thompson(posterior, 400, rng=np.random.default_rng(3))
    assert_allclose(policy.probabilities(x, eligible=[few] * 3)[:, few].sum(axis=1), 1.0)
    scores = np.concatenate(
        [np.einsum("nd,skd->snk", x, theta) for _, (theta,), _ in policy._draws(None, None)], axis=2
    )[:, :, few]
    shares = np.stack([np.bincount(winners, minlength=3) for winners in scores.argmax(axis=2).T]) / 400
    assert_allclose(policy.probabilities(x, eligible=[few] * 3)[:, few], shares, atol=1e-12)


def test_no_rows_get_no_samples():
    posterior, x = fitted()
    policy = ma.Thompson(posterior, 5, rng=np.random.default_rng(0))
    assert policy.sample(x[:0], np.random.default_rng(0)).tolist() == []


def test_a_gpu_is_refused_for_a_posterior_of_two_parts(monkeypatch):
    for policy in ("thompson", "pessimistic"):
        stand_in(monkeypatch, f"manyarms.policies.{policy}")
    rng = np.random.default_rng(0)
    spend = np.where(rng.random(60) < 0.5, 0.0, 1.0 + rng.random(60))
    logs = ma.LoggedData(rng.normal(size=(60, 2)), rng.integers(3, size=60), spend, n_actions=3)
    posterior = ma.fit(logs, ma.priors.independent(3, dim=2), ma.Hurdle())
    words = 'single set of Gaussian weights. Use device="cpu" for this posterior'
    with pytest.raises(InputError, match=words):
        ma.Thompson(posterior, 5, rng=rng, device="cuda").probabilities(logs.contexts)
    with pytest.raises(InputError, match=words):
        ma.Pessimistic(posterior, device="cuda").actions(logs.contexts)


@pytest.mark.parametrize("purpose", [0, 1])
def test_hashed_numbers_are_uniform_and_differ_by_every_counter(purpose):
    a, b = np.arange(200)[:, None], np.arange(300)[None]
    u = hashed_uniforms(9, np.array([purpose]), a, b)
    assert u.shape == (200, 300) and 0 < u.min() < u.max() < 1 and len(np.unique(u)) == u.size
    counts = np.histogram(u, bins=50, range=(0, 1))[0]
    assert ((counts - 1200) ** 2 / 1200).sum() < 100
    assert abs(np.corrcoef(u.reshape(-1)[1:], u.reshape(-1)[:-1])[0, 1]) < 0.02
    assert not np.array_equal(u, hashed_uniforms(8, np.array([purpose]), a, b))
