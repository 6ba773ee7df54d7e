"""The tail, the largest, the clipped and the balanced weights of a policy on a log."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import genpareto

import manyarms as ma
from manyarms.errors import RangeError
from manyarms.estimators.pareto_tail import pareto_k

BY_ARVIZ = {(1000, 2.0, 0): 0.59842, (4000, 1.2, 1): 0.74556, (500, 5.0, 2): 0.22498, (20_000, 1.0, 3): 0.96197}
"""k of `psislw` in arviz-stats 0.8.0, for Pareto weights of some number, shape and seed."""


@pytest.mark.parametrize(("n", "shape", "seed"), BY_ARVIZ)
def test_k_is_that_of_arviz(n, shape, seed):
    weights = np.random.default_rng(seed).pareto(shape, size=n) + 1
    assert pareto_k(weights) == pytest.approx(BY_ARVIZ[n, shape, seed], abs=0.02)
    assert pareto_k(1e200 * weights) == pytest.approx(pareto_k(weights))


def test_k_is_near_maximum_likelihood_where_the_tail_is_long():
    weights = np.random.default_rng(5).pareto(1.5, size=100_000)
    largest = np.sort(weights)[-950:]
    shape, _, _ = genpareto.fit(largest[1:] - largest[0], floc=0.0)
    assert pareto_k(weights) == pytest.approx(shape, abs=0.03)


def test_weights_without_a_tail_have_no_k():
    assert pareto_k(np.ones(1000)) is None
    assert pareto_k(np.arange(10.0)) is None
    assert pareto_k(np.append(np.zeros(997), [1.0, 2.0, 3.0])) is None


LOGGING = np.array([0.3, 0.25, 0.2, 0.1, 0.1, 0.05])


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(0)
    logging, target = LOGGING, np.array([0.1, 0.2, 0.2, 0.2, 0.2, 0.1])
    actions = rng.choice(6, p=logging, size=5000)
    rewards = actions / 5 + rng.normal(size=5000)
    return ma.TablePolicy(target), np.ones((5000, 1)), actions, rewards, logging[actions]


def test_the_figures_are_those_of_the_weights(world):
    policy, contexts, actions, rewards, p = world
    weights = policy.probability_of(contexts, actions) / p
    check = ma.check_weights(policy, ma.LoggedData(contexts, actions, rewards, p, 6), clips=[0.0, 0.1], n_largest=3)
    assert check.effective_sample_size == pytest.approx(weights.sum() ** 2 / (weights**2).sum())
    assert check.mean_weight == pytest.approx(weights.mean())
    assert check.mean_weight_error == pytest.approx(weights.std(ddof=1) / np.sqrt(5000), rel=1e-3)
    assert [row["row"] for row in check.largest] == np.argsort(-weights, kind="stable")[:3].tolist()
    assert_allclose([row["share"] for row in check.largest], np.sort(weights)[::-1][:3] / weights.sum())
    clipped = weights * p / np.maximum(p, 0.1)
    values = [rewards @ w / w.sum() for w in (weights, clipped)]
    assert_allclose([row["value"] for row in check.clip_curve], values)
    assert check.clip_curve[1]["clipped"] == pytest.approx(np.mean(p < 0.1))
    for row in check.balance:
        assert abs(row["z"]) < 4
    assert sum(row["chosen"] for row in check.balance) == pytest.approx(1.0)
    assert check.warnings == ()


def test_the_chart_of_clips_draws_the_estimate_that_each_clip_gives(world):
    policy, contexts, actions, rewards, p = world
    weights = policy.probability_of(contexts, actions) / p
    check = ma.check_weights(policy, ma.LoggedData(contexts, actions, rewards, p, 6), clips=[0.0, 0.1, 0.25])
    rows = ma.plots.clip_curve(check).to_dict()["data"]["values"]
    assert [row["label"] for row in rows] == ["none", "0.1", "0.25"]
    for row in rows:
        clipped = weights * p / np.maximum(p, row["clip"])
        value = rewards @ clipped / clipped.sum()
        error = np.sqrt(np.sum((clipped * (rewards - value)) ** 2)) / clipped.sum()
        assert row["value"] == pytest.approx(value)
        assert [row["low"], row["high"]] == pytest.approx([value - 1.96 * error, value + 1.96 * error], rel=1e-3)
        assert f"clip {row['label']}: {value:.4g}" in ma.plots.clip_curve(check).to_dict()["description"]


def test_the_chart_of_balance_draws_chosen_and_weighted_shares_and_two_errors(world):
    policy, contexts, actions, rewards, p = world
    weights = policy.probability_of(contexts, actions) / p
    catalog = ma.Catalog(range(6), categories=["a", "a", "b", "b", "c", "c"])
    check = ma.check_weights(policy, ma.LoggedData(contexts, actions, rewards, p, catalog=catalog))
    chart = ma.plots.weight_balance(check)
    rows = {row["group"]: row for row in chart.to_dict()["data"]["values"]}
    for name, members, chosen in (("a", (0, 1), 0.3), ("b", (2, 3), 0.4), ("c", (4, 5), 0.3)):
        weighted = np.isin(actions, members) * weights
        assert rows[name]["chosen"] == pytest.approx(chosen)
        assert rows[name]["weighted"] == pytest.approx(weighted.mean())
        half = 2 * weighted.std() / np.sqrt(len(actions))
        assert_allclose([rows[name]["low"], rows[name]["high"]], weighted.mean() + half * np.array([-1, 1]), rtol=1e-3)
    assert "a chosen 30.0 %, weighted " in chart.to_dict()["description"].replace("\N{NO-BREAK SPACE}", " ")
    assert check.records() == list(check.balance) and check.records()[0]["group"] == "a"


def test_wrong_propensities_of_a_category_are_found(world):
    """Those of category b are half of the truth, so its weights are twice as large as they should be."""
    policy, contexts, actions, rewards, p = world
    labels = np.array(["a", "a", "a", "b", "b", "b"])
    halved = np.where(actions >= 3, p / 2, p)
    check = ma.check_weights(policy, ma.LoggedData(contexts, actions, rewards, halved, 6), categories=labels)
    rows = {row["group"]: row for row in check.balance}
    assert rows["b"]["weighted"] == pytest.approx(2 * rows["b"]["chosen"], rel=0.15)
    assert rows["b"]["z"] > 4 > abs(rows["a"]["z"])
    assert any("the weights of these groups do not add up: b; propensities are wrong" in t for t in check.warnings)
    assert any("the mean weight is" in text for text in check.warnings)


def test_groups_do_not_depend_on_what_was_logged(world):
    """Over 100 logs of right propensities, z-scores are standard normal."""
    policy, contexts = world[:2]
    scores = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        actions = rng.choice(6, p=LOGGING, size=500)
        logs = ma.LoggedData(contexts[:500], actions, np.zeros(500), LOGGING[actions], 6)
        scores += [row["z"] for row in ma.check_weights(policy, logs, clips=[0.0]).balance]
    assert np.mean(scores) == pytest.approx(0.0, abs=0.15)
    assert np.std(scores) == pytest.approx(1.0, abs=0.1)


def test_a_heavy_tail_is_warned_about_where_the_effective_sample_size_is_not():
    rng = np.random.default_rng(1)
    p = np.clip(1 / (rng.pareto(1.1, size=20_000) + 1), 1e-9, 1.0)
    logs = ma.LoggedData(np.ones((20_000, 1)), np.zeros(20_000, dtype=int), rng.random(20_000), p, 1)
    thresholds = ma.Thresholds(min_effective_sample_size=1.0)
    estimate = ma.SNIPS(thresholds=thresholds).estimate(ma.Uniform(1), logs)
    assert estimate.diagnostics["pareto_k"] > 0.7
    assert any("the tail of the weights is heavy (Pareto k = 0." in text for text in estimate.warnings)
    assert any("heavy" in text for text in ma.check_weights(ma.Uniform(1), logs, clips=[0.0]).warnings)


def test_a_clip_is_a_floor_on_the_propensity(world):
    policy, contexts, actions, rewards, p = world
    with pytest.raises(RangeError, match="clips must be from 0 to 1; row 1 has 20"):
        ma.check_weights(policy, ma.LoggedData(contexts, actions, rewards, p, 6), clips=[0.0, 20.0])


def test_the_shape_of_a_tail_has_no_gap_where_a_grid_point_is_zero():
    """Sixteen largest weights whose quartile is a third of the way: one of the θ on the grid is exactly zero."""
    tail = np.array([1.1, 1.2, 1.5, 2.0, *np.linspace(2.1, 4.0, 12)])
    weights = np.concatenate([np.ones(64), tail])
    beside = np.concatenate([np.ones(64), tail + np.where(tail == 2.0, 1e-7, 0.0)])
    assert_allclose(pareto_k(weights), pareto_k(beside), rtol=1e-6)
