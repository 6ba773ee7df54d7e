"""The made-up shop is what its docstring says, and a posterior with its prior is honest about it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import manyarms as ma
from manyarms.datasets import Shop
from manyarms.datasets.shop import CATEGORY_NAMES, CUSTOMER_COLUMNS, draw_customers, read_tables
from manyarms.errors import ActionError, InputError, NonFiniteError


@pytest.fixture(scope="module")
def log():
    return Shop().draw(np.random.default_rng(0))


def counts(log):
    return np.bincount(log.logs.actions, minlength=log.logs.n_actions)


def noise(log):
    return log.logs.rewards - (log.logs.contexts * log.environment.weights[log.logs.actions]).sum(axis=1)


def test_most_items_are_never_shown_but_all_are_in_the_catalog(log):
    assert len(set(log.items)) == 5000
    assert len(set(log.categories)) == 40
    assert (counts(log) == 0).mean() > 0.5
    # Popularity is skewed: a tenth of the items gets most of the views.
    assert np.sort(counts(log))[-500:].sum() > 0.8 * 20_000


def test_every_category_has_an_item_and_names_stay_distinct_beyond_the_list():
    tiny = Shop(n_items=3 * len(CATEGORY_NAMES), n_categories=2 * len(CATEGORY_NAMES) + 1, n_rounds=1)
    categories = tiny.draw(np.random.default_rng(1)).categories
    assert len(set(categories)) == 2 * len(CATEGORY_NAMES) + 1
    assert "yoga 2" in categories
    few = Shop(n_items=2 * len(CATEGORY_NAMES), n_categories=len(CATEGORY_NAMES), n_rounds=1).draw(
        np.random.default_rng(1)
    )
    assert set(few.categories) == set(CATEGORY_NAMES)


def test_the_item_shown_is_independent_of_the_noise_in_its_margin(log):
    e, n = noise(log) / 0.8, 20_000
    assert abs(e.mean()) < 4 / np.sqrt(n)
    assert abs(e.std() - 1) < 4 / np.sqrt(2 * n)
    for shown in np.argsort(counts(log))[-20:]:
        rows = log.logs.actions == shown
        assert abs(e[rows].mean()) < 4 / np.sqrt(rows.sum())
    for column in (*log.logs.contexts[:, 1:].T, np.log(log.logs.propensities), log.logs.actions):
        assert abs(np.corrcoef(column, e)[0, 1]) < 4 / np.sqrt(n)


def test_truth_varies_between_and_within_categories_by_the_stated_scales():
    shop = Shop(n_items=8000, n_categories=400, n_rounds=1)
    log = shop.draw(np.random.default_rng(2))
    theta = log.environment.weights
    code = np.unique(log.categories, return_inverse=True)[1]
    size = np.bincount(code)
    means = np.stack([np.bincount(code, weights=column) / size for column in theta.T], axis=1)
    within = ((theta - means[code]) ** 2).sum() / (6 * (8000 - 400))
    assert abs(within / shop.item_std**2 - 1) < 4 * np.sqrt(2 / (6 * 7600))
    centred = means - np.array([shop.mean_margin, 0, 0, 0, 0, 0])
    spread = np.sqrt(shop.category_std**2 + shop.item_std**2 / size)
    z = centred / spread[:, None]
    assert (np.abs(z.mean(axis=0)) < 4 / np.sqrt(400)).all()
    assert abs((z**2).mean() - 1) < 4 * np.sqrt(2 / z.size)


def test_propensities_are_the_probabilities_of_what_was_shown():
    # With 1 / (K p) as weights the log is one of the uniform policy: the weights have mean 1, for every item and day.
    log = Shop(n_items=8, n_categories=4, n_rounds=40_000, n_days=4, popularity_exponent=0.5).draw(
        np.random.default_rng(3)
    )
    weight = 1 / (8 * log.logs.propensities)
    for day in range(1, 5):
        rows = log.days == day
        assert rows.sum() == 10_000
        for item in range(8):
            term = weight[rows] * (log.logs.actions[rows] == item)
            assert abs(term.mean() - 1 / 8) < 4 * term.std() / 100


def test_what_runs_now_learns_a_little_and_leaves_much():
    gaps = []
    for seed in range(5):
        log = Shop(n_items=500, n_categories=20, n_rounds=8000).draw(np.random.default_rng(seed))
        x, truth = log.logs.contexts, log.environment
        now, uniform = truth.value(ma.Logged(log.logs), x), truth.value(ma.Uniform(500), x)
        gaps.append(((now - uniform), (truth.optimal_value(x) - uniform)))
    learned, possible = np.mean(gaps, axis=0)
    assert 0.02 * possible < learned < 0.5 * possible


@pytest.mark.slow
def test_posterior_with_the_shops_prior_covers_the_truth():
    # The shop adapts to its own log. If that biased the posterior, or choosing greedily did, z would not be N(0, 1).
    n_shops, shop, z = 60, Shop(n_items=80, n_categories=8, n_rounds=600), list[float]()
    for seed in range(n_shops):
        log = shop.draw(np.random.default_rng([7, seed]))
        x = log.logs.contexts
        posterior = ma.fit(log.logs, shop.prior(log.categories), ma.Gaussian(shop.noise_std))
        for policy in (ma.Logged(log.logs), ma.Greedy(posterior), ma.Pessimistic(posterior), ma.Uniform(80)):
            value = posterior.value(policy, x)
            z.append((log.environment.value(policy, x) - value.value) / value.posterior_std)
    z = np.array(z).reshape(n_shops, 4)
    assert (np.abs(z.mean(axis=0)) < 4 / np.sqrt(n_shops)).all()
    assert (np.abs((z**2).mean(axis=0) - 1) < 4 * np.sqrt(2 / n_shops)).all()


def test_tables_hold_the_log_and_give_it_back(log):
    logs, catalog = log.logs_table, log.catalog_table
    assert logs.column_names == ["day", *CUSTOMER_COLUMNS, "item", "margin", "propensity"]
    assert catalog.column_names == ["item", "category"]
    assert catalog["item"][42].as_py() == "item-00042"
    assert logs["item"][7].as_py() == log.items[log.logs.actions[7]]
    back = read_tables(logs, catalog)
    for name in ("contexts", "actions", "rewards", "propensities"):
        assert_array_equal(getattr(back, name), getattr(log.logs, name))
    assert back.n_actions == 5000


def test_numbers_follow_the_order_of_the_catalog_and_unknown_items_are_named(log):
    logs, catalog = log.logs_table.slice(0, 100), log.catalog_table
    turned = read_tables(logs, catalog.take(np.arange(5000)[::-1].copy()))
    assert_array_equal(turned.actions, 4999 - log.logs.actions[:100])
    gone = log.items[log.logs.actions[3]]
    first = int(np.flatnonzero(log.items[log.logs.actions] == gone)[0])
    kept = catalog.filter([item != gone for item in catalog["item"].to_pylist()])
    with pytest.raises(ActionError, match=f"row {first} has '{gone}'"):
        read_tables(logs, kept)


def test_customers_are_of_about_unit_scale():
    x = draw_customers(np.random.default_rng(4), 20_000)
    assert_array_equal(x[:, 0], 1.0)
    assert ((np.sqrt((x**2).mean(axis=0)) > 0.5) & (np.sqrt((x**2).mean(axis=0)) < 2)).all()
    returning, past_spend = x[:, 4] == 1, x[:, 5]
    assert (past_spend[~returning] == 0).all()
    assert (past_spend[returning] > 0).all()


def test_one_generator_one_shop():
    small = Shop(n_items=50, n_categories=5, n_rounds=100)
    first, again, other = (small.draw(np.random.default_rng(seed)) for seed in (5, 5, 6))
    assert first.logs_table.equals(again.logs_table)
    assert_allclose(first.environment.weights, again.environment.weights, rtol=0)
    assert not first.logs_table.equals(other.logs_table)


def test_fewer_rounds_than_days_are_allowed():
    log = Shop(n_items=5, n_categories=2, n_rounds=3, n_days=20).draw(np.random.default_rng(8))
    assert len(log.logs) == 3
    assert_array_equal(log.days, [1, 2, 3])


def test_impossible_shops_are_refused():
    with pytest.raises(InputError, match=r"n_categories must be at most the number of items.*got 4 for 3 items"):
        Shop(n_items=3, n_categories=4)
    with pytest.raises(InputError, match="noise_std must be at least 0"):
        Shop(noise_std=-1.0)
    with pytest.raises(NonFiniteError, match="item_std must be finite"):
        Shop(item_std=float("nan"))
