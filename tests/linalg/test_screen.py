"""Screens: low-precision bounds never change the answer, whatever the scale, the ties and the tiles."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import manyarms as ma
from manyarms.linalg import single_screen, threads, top_k
from manyarms.linalg.quadratic_forms import Forms, RankRows, RankTile, reach_by_form


@pytest.fixture(params=[(256, 1024), (7, 16)])
def tiles(request, monkeypatch):
    """Tiles as they are, and small ones that take the tighter bound at once."""
    monkeypatch.setattr(top_k, "ROWS", request.param[0])
    monkeypatch.setattr(top_k, "COLUMNS", request.param[1])
    if request.param[0] == 7:
        monkeypatch.setattr(top_k, "FEW_PRODUCTS", 3)
        monkeypatch.setattr(top_k, "FEW_FORMS", 3)
        monkeypatch.setattr(single_screen, "_LONGEST", 3)


@pytest.fixture(params=[1, 2])
def n_threads(request, monkeypatch):
    monkeypatch.setattr(threads, "n_cores", lambda: request.param)


def by_exact_sums(x, means, k):
    """The best columns by sums in extended precision, one row at a time; the lowest column wins ties."""
    scores = np.array([[np.sum(row.astype(np.longdouble) * m) for m in means] for row in x])
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("case", ["plain", "near ties", "nearer ties", "wide range", "tiny"])
def test_single_precision_screens_give_the_winners_of_extended_precision(case, k, tiles, n_threads):
    rng = np.random.default_rng(0)
    x, means = rng.normal(size=(30, 5)), rng.normal(size=(300, 5))
    if case.endswith("ties"):
        # Differences at the resolution of single precision, and far below it.
        means = rng.normal(size=5) + (1e-7 if case == "near ties" else 1e-11) * means
    if case == "wide range":
        x, means = x * 10.0 ** rng.integers(-90, 90, (30, 1)), means * 10.0 ** rng.integers(-40, 20, (300, 1))
    if case == "tiny":
        x, means = x * 1e-150, means * 1e-140
    assert_array_equal(top_k.best_columns(x, means, k), by_exact_sums(x, means, k))


def fitted(rounds_per_action, action_std, seed=0, likelihood=None):
    """400 actions in 6 categories, two thirds of them logged."""
    rng, n_actions, d = np.random.default_rng(seed), 400, 5
    category = rng.integers(6, size=n_actions)
    n = int(rounds_per_action * 266)
    x, actions = rng.normal(size=(n, d)), rng.integers(266, size=n)
    effects = rng.normal(size=(6, d))
    rewards = np.einsum("nd,nd->n", x, effects[category[actions]]) + rng.normal(size=n)
    prior = ma.priors.from_categories(category, dim=d, action_std=action_std)
    return ma.fit(ma.LoggedData(x, actions, rewards, n_actions=n_actions), prior, likelihood or ma.Gaussian(1.0))


@pytest.mark.parametrize("k", [1, 6])
@pytest.mark.parametrize(("rounds_per_action", "action_std"), [(1, 1.0), (3, 0.3), (40, 1.0), (2, 0.0)])
def test_pessimistic_choices_are_those_of_all_lower_bounds_written_out(
    rounds_per_action, action_std, k, tiles, n_threads
):
    posterior = fitted(rounds_per_action, action_std)
    weights, policy = posterior.weights, ma.Pessimistic(posterior)
    contexts = np.random.default_rng(1).normal(size=(40, 5))
    # Twins are equal to the last bit only if their rows are added up alike: round, so that the lowest wins.
    covs = weights.action_cov(np.arange(400))
    bounds = contexts @ weights.action_mean().T
    bounds -= policy.radius * np.sqrt(np.einsum("nd,kde,ne->nk", contexts, covs, contexts))
    expected = np.argsort(-np.round(bounds, 10), axis=1, kind="stable")
    assert_array_equal(policy.top_k(contexts, k), expected[:, :k])
    among = np.arange(3, 400, 2)
    limited = among[np.argsort(-np.round(bounds[:, among], 10), axis=1, kind="stable")]
    assert_array_equal(policy.top_k(contexts, k, eligible=np.isin(np.arange(400), among)), limited[:, :k])
    chosen = np.argsort(-np.round(contexts @ weights.action_mean().T, 10), axis=1, kind="stable")
    assert_array_equal(ma.Greedy(posterior).top_k(contexts, k), chosen[:, :k])


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12, 1e30])
def test_pessimistic_choices_do_not_depend_on_the_units_of_contexts_and_rewards(scale, tiles):
    rng, n_actions, d = np.random.default_rng(7), 300, 4
    x, actions = rng.normal(size=(500, d)), rng.integers(200, size=500)
    rewards = np.einsum("nd,nd->n", x, rng.normal(size=(n_actions, d))[actions]) + rng.normal(size=500)
    contexts = rng.normal(size=(30, d)) * scale ** rng.uniform(-1, 1, (30, 1))

    def pessimistic(unit):
        stds = dict(effect_std=unit, action_std=unit)
        prior = ma.priors.from_categories(np.arange(n_actions) % 5, dim=d, **stds)
        return ma.Pessimistic(
            ma.fit(ma.LoggedData(x, actions, unit * rewards, n_actions=n_actions), prior, ma.Gaussian(unit))
        )

    policy, unit = pessimistic(scale), pessimistic(1.0)
    covs, means = unit.posterior.weights.action_cov(np.arange(n_actions)), unit.posterior.weights.action_mean()
    unscaled = contexts / np.linalg.norm(contexts, axis=1, keepdims=True)
    bounds = unscaled @ means.T - unit.radius * np.sqrt(np.einsum("nd,kde,ne->nk", unscaled, covs, unscaled))
    expected = np.argsort(-np.round(bounds, 10), axis=1, kind="stable")[:, :3]
    assert_array_equal(policy.top_k(contexts, 3), expected)


def test_no_bound_drops_a_pair_that_reaches_the_floor():
    posterior = fitted(3, 0.7)
    weights, radius, names = posterior.weights, 2.5, np.arange(400)
    x, covs = np.random.default_rng(2).normal(size=(25, 5)), weights.action_cov(names)
    scores = x @ weights.action_mean().T - radius * np.sqrt(np.einsum("nd,kde,ne->nk", x, covs, x))
    least = np.sqrt(np.linalg.eigvalsh(covs)[:, 0])
    assert (weights.widths.least(names) <= least).all()
    assert weights.widths.least(names).min() > 0.2 * least.min()
    bound = weights.widths.rank_bound(names)
    for quantile in (0.5, 0.9, 0.999):
        floor = np.quantile(scores, quantile, axis=1, method="nearest")
        reached = scores >= floor[:, None]
        for kept in (
            RankRows(x, bound.base, radius).reach(np.arange(25), RankTile(weights.action_mean(), bound), floor),
            reach_by_form(x, weights.action_mean(), covs, radius, floor),
        ):
            assert kept[reached].all()
            assert kept.mean() < reached.mean() + 0.1


def test_variances_of_pairs_are_those_of_the_covariances():
    weights = fitted(3, 0.7).weights
    rng = np.random.default_rng(3)
    v, actions = rng.normal(size=(500, 5)), rng.integers(400, size=500)
    expected = np.einsum("nd,nde,ne->n", v, weights.action_cov(actions), v)
    assert_allclose(weights.variances_of(v, actions), expected, rtol=1e-10)
    assert_allclose(weights.widths.norms(v, actions), np.sqrt(expected), rtol=1e-10)


@pytest.mark.parametrize("kind", ["categories", "tags", "dense", "own offsets"])
def test_twins_are_unseen_actions_with_one_distribution(kind):
    rng, n_actions, d = np.random.default_rng(4), 60, 2
    weights = rng.integers(0, 2, (n_actions, 3)).astype(float)
    if kind == "categories":
        prior = ma.priors.from_categories(rng.integers(4, size=n_actions), dim=d)
    elif kind == "dense":
        matrices = np.einsum("aj,de->adje", weights, np.eye(d)).reshape(n_actions, d, 6)
        prior = ma.HierarchicalGaussian(np.zeros(6), 1.0, matrices, 0.5)
    else:
        offset = np.arange(n_actions)[:, None] * np.ones(d) if kind == "own offsets" else None
        prior = ma.HierarchicalGaussian(np.zeros(6), 1.0, ma.MixedEffects(weights, d), 0.5, offset)
    logs = ma.LoggedData(rng.normal(size=(30, d)), rng.integers(20, size=30), rng.normal(size=30), n_actions=n_actions)
    posterior = ma.fit(logs, prior).weights
    means, covs = posterior.action_mean(), posterior.action_cov(np.arange(n_actions))
    rows = np.round(np.column_stack([means, covs.reshape(n_actions, -1)]), 9)
    lowest = [int(np.flatnonzero((rows == row).all(axis=1))[0]) for row in rows]
    assert_array_equal(posterior.twins, lowest)


def test_a_posterior_without_structure_is_screened_by_its_means_alone():
    posterior = fitted(3, 0.7)
    weights = posterior.weights
    x = np.random.default_rng(5).normal(size=(20, 5))
    plain = top_k.best_lower_bounds(x, weights.action_mean(), Forms(weights.action_cov), 2.0, 3)
    assert_array_equal(top_k.best_lower_bounds(x, weights.action_mean(), weights.widths, 2.0, 3), plain)
