"""Further rows on a large posterior: the answer of all rows at once, at the cost of the actions they are of."""

import importlib

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.testing import assert_allclose
from oracles import DenseJoint
from problems import make_problem, recipes

import manyarms as ma
from manyarms.core.observed_rows import observe
from manyarms.core.statistics import Statistics
from manyarms.inference import latent_posterior as latent

K, D = 60, 3
conditioning = importlib.import_module("manyarms.inference.condition")


@pytest.fixture
def sums_only(monkeypatch):
    """Let small problems take the way of large ones."""
    monkeypatch.setattr(latent, "QR_BUDGET", 0)
    monkeypatch.setattr(latent, "SMALL_LATENT", 0)


def priors():
    """Effects that stay independent, effects that are eliminated along a tree, effects of all, dense ones."""
    rng = np.random.default_rng(0)
    leaf = rng.integers(0, 12, K)
    tree = np.hstack([np.eye(12)[leaf], np.eye(4)[leaf % 4]])
    each = rng.normal(size=(K, D, D))
    return {
        "categories": ma.HierarchicalGaussian(
            rng.normal(size=12 * D), 0.7, ma.MixedEffects(np.eye(12)[leaf], D), each @ each.swapaxes(1, 2), np.ones(D)
        ),
        "a tree": ma.HierarchicalGaussian(rng.normal(size=16 * D), 1.0, ma.MixedEffects(tree, D), 0.3),
        "dense": ma.HierarchicalGaussian(rng.normal(size=5), 1.0, rng.normal(size=(K, D, 5)), [0.3, 0.0, 2.0]),
        "no effects": ma.priors.independent(K, mean=0.4, dim=D),
    }


def rounds(n, among, seed):
    rng = np.random.default_rng(seed)
    return ma.LoggedData(rng.normal(size=(n, D)), rng.choice(among, n), rng.normal(size=n), n_actions=K)


def rows(logs):
    return observe(Statistics.of_rounds(logs.contexts, logs.actions, logs.rewards, K), 0.8)


def assert_same(got, want, actions):
    for name in ("log_evidence", "misfit", "log_det"):
        assert getattr(got, name) == pytest.approx(getattr(want, name), rel=1e-11), name
    assert_allclose(got.latent_mean, want.latent_mean, rtol=1e-10, atol=1e-12)
    assert_allclose(got.latent_cov, want.latent_cov, rtol=1e-10, atol=1e-12)
    assert_allclose(got.action_mean(actions), want.action_mean(actions), rtol=1e-10, atol=1e-12)
    assert_allclose(got.action_cov(actions), want.action_cov(actions), rtol=1e-10, atol=1e-12)


@settings(max_examples=60)
@given(recipe=recipes(action_scales=(0.01, 1.0), noise_stds=(1.0,)))
def test_two_portions_of_rows_give_the_dense_joint(recipe):
    problem = make_problem(**(recipe | {"n_rounds": recipe["n_rounds"] + 2}))
    before, conditioning._FEW, latent.QR_BUDGET = (conditioning._FEW, latent.QR_BUDGET), 0, 0
    try:
        half = len(problem.logs) // 2
        first, second = problem.logs.take(slice(0, half)), problem.logs.take(slice(half, None))
        likelihood = ma.Gaussian(problem.noise_std)
        got = ma.fit(second, ma.fit(first, problem.prior, likelihood).weights, likelihood).weights
    finally:
        conditioning._FEW, latent.QR_BUDGET = before
    joint, everyone = DenseJoint(problem.dense), problem.everyone
    for ours, exact in (
        (got.latent_mean, joint.latent_mean),
        (got.latent_cov, joint.latent_cov),
        (got.action_mean(), joint.action_mean),
        (got.action_cov(everyone), joint.blocks[everyone, everyone]),
        (got.log_evidence, joint.log_evidence),
    ):
        assert_allclose(ours, exact, rtol=0, atol=1e-10 * np.abs(np.asarray(exact)).max(initial=1e-300))


@pytest.mark.parametrize("kind", priors())
def test_only_actions_with_further_rows_are_solved_for(kind, sums_only, monkeypatch):
    prior, logs, further = priors()[kind], rounds(600, np.arange(K - 8), 1), rounds(30, [0, 3, 5, 5, 9, K - 3], 2)
    posterior = conditioning.solve(prior, rows(logs))[0]
    want = conditioning.solve(prior, rows(logs).joined(rows(further)))[0]
    solved, absorb = [], conditioning.absorb_groups

    def counted(prior, observed, evidence):
        solved.append(len(observed.actions))
        return absorb(prior, observed, evidence)

    monkeypatch.setattr(conditioning, "absorb_groups", counted)
    everyone, some = np.arange(K), np.unique(further.actions)
    for _ in range(2):
        assert_same(conditioning.solve_further(posterior, rows(further))[0], want, everyone)
    assert_same(conditioning.solve_further(posterior, rows(further), others=False)[0], want, some)
    # All of them once, then what the few said before and what they say now.
    seen = K - 8
    assert solved == [seen, *[len(some) - 1, len(some)] * 3]


def test_a_tree_whose_effects_meet_anew_is_solved_for_from_the_start(sums_only):
    tree = np.zeros((K, 4))
    tree[np.arange(K), np.arange(K) % 2] = 1.0
    # Only the last action has two effects that are otherwise apart.
    tree[-1] = [1.0, 0.0, 1.0, 0.0]
    tree[0, 3] = 1.0
    prior = ma.HierarchicalGaussian(np.zeros(4 * D), 1.0, ma.MixedEffects(tree, D), 0.3)
    logs, further = rounds(300, np.arange(K - 1), 3), rounds(4, [K - 1], 4)
    posterior = conditioning.solve(prior, rows(logs))[0]
    want = conditioning.solve(prior, rows(logs).joined(rows(further)))[0]
    assert_same(conditioning.solve_further(posterior, rows(further))[0], want, np.arange(K))


def test_where_sums_are_too_large_to_be_kept_all_rows_are_solved_for(sums_only, monkeypatch):
    prior, logs, further = priors()["dense"], rounds(300, np.arange(K), 9), rounds(5, [2, 3], 10)
    posterior = conditioning.solve(prior, rows(logs))[0]
    want = conditioning.solve_further(posterior, rows(further))[0]
    monkeypatch.setattr(conditioning, "_MOST_KEPT", 24)
    again = conditioning.solve(prior, rows(logs))[0]
    assert_same(conditioning.solve_further(again, rows(further))[0], want, np.arange(K))
    assert posterior in conditioning._evidence and again not in conditioning._evidence


def test_a_hundred_small_updates_carry_no_rounding_errors_along(sums_only):
    prior, logs = priors()["categories"], rounds(500, np.arange(K), 5)
    posterior = conditioning.solve(prior, rows(logs))[0]
    together = [logs]
    for day in range(100):
        together.append(rounds(3, np.arange(K), 100 + day))
        posterior = conditioning.solve_further(posterior, rows(together[-1]))[0]
    x, actions, rewards = (
        np.concatenate([getattr(part, name) for part in together]) for name in ("contexts", "actions", "rewards")
    )
    want = conditioning.solve(prior, rows(ma.LoggedData(x, actions, rewards, n_actions=K)))[0]
    assert_same(posterior, want, np.arange(K))


@pytest.mark.parametrize("kind", ["categories", "a tree", "dense"])
def test_clicks_update_a_large_posterior_as_a_small_one(kind, sums_only, monkeypatch):
    rng, prior = np.random.default_rng(6), priors()[kind]
    many, few = (
        ma.LoggedData(part.contexts, part.actions, (rng.random(len(part)) < 0.3).astype(float), n_actions=K)
        for part in (rounds(800, np.arange(K - 5), 7), rounds(40, [1, 4, K - 1], 8))
    )
    posterior = ma.fit(many, prior, ma.Bernoulli())
    got = posterior.update(few)
    monkeypatch.setattr(conditioning, "_FEW", K)
    want = posterior.update(few)
    assert_same(got.weights, want.weights, np.arange(K))
    assert_allclose(got.trace, want.trace, rtol=1e-12)
    assert got.statistics.n_rounds == 840
