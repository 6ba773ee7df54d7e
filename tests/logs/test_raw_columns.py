"""Where logs came with a feature map, everything takes the raw columns, and gives what their features give."""

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import manyarms as ma
from manyarms.errors import InputError, NonFiniteError

ROLES = {"context": ["age", "city"], "action": "item", "reward": "spend"}
ITEMS = [f"i{k:02d}" for k in range(12)]


def table(n=300, seed=0, shift=0.0):
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "age": rng.normal(40 + shift, 12, n),
            "city": rng.choice(["Oslo", "Riga", "Turin"], n),
            "item": rng.choice(ITEMS[:9], n),
            "spend": rng.normal(size=n),
            "p": np.full(n, 1 / 9),
        }
    )


def catalog():
    return ma.Catalog(ITEMS, categories=[k % 3 for k in range(12)])


def read(rows, **options):
    return ma.read_logs(rows, **ROLES, **{"catalog": catalog(), "propensity": "p", **options})


@pytest.fixture(scope="module")
def logs():
    return read(table())


@pytest.fixture(scope="module")
def posterior(logs):
    return ma.fit(logs, ma.priors.from_categories(logs.catalog, dim=logs.dim))


def policies_of(posterior):
    return {
        "greedy": ma.Greedy(posterior),
        "pessimistic": ma.Pessimistic(posterior),
        "softmax": ma.Softmax(posterior, 0.3),
        "thompson": ma.Thompson(posterior, 50, rng=np.random.default_rng(1)),
        "epsilon": ma.EpsilonGreedy(ma.Greedy(posterior), 0.2),
    }


KINDS = {
    "arrow": lambda rows: rows,
    "batch": lambda rows: rows.combine_chunks().to_batches()[0],
    "pandas": lambda rows: rows.to_pandas(),
    "polars": pl.from_arrow,
    "lazy": lambda rows: pl.from_arrow(rows).lazy(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_posterior_of_a_table_is_that_of_its_features(kind, posterior, logs):
    rows = KINDS[kind](table())
    greedy, now = ma.Greedy(posterior), ma.Logged(logs)
    for found, expected in (
        (posterior.value(greedy, rows), posterior.value(greedy, logs.contexts)),
        (posterior.difference(greedy, now, rows), posterior.difference(greedy, now, logs.contexts)),
    ):
        assert (found.value, found.std) == (expected.value, expected.std)
    assert_array_equal(posterior.expected_reward(rows), posterior.expected_reward(logs.contexts))
    chosen = greedy.actions(rows)
    assert_array_equal(posterior.reward_std(rows, chosen), posterior.reward_std(logs.contexts, chosen))
    draws = [
        posterior.value_draws(greedy, contexts, baseline=now, n_draws=20, rng=np.random.default_rng(0))
        for contexts in (rows, logs.contexts)
    ]
    assert draws[0].value == draws[1].value


@pytest.mark.parametrize("name", ["greedy", "pessimistic", "softmax", "thompson", "epsilon"])
def test_policies_of_a_table_are_those_of_its_features(name, posterior, logs):
    policy, rows = policies_of(posterior)[name], table()
    assert (policy.features, policy.catalog) == (logs.features, logs.catalog)
    assert_array_equal(policy.probabilities(rows), policy.probabilities(logs.contexts))
    assert_array_equal(policy.actions(rows), policy.actions(logs.contexts))
    assert_array_equal(policy.top_k(rows, 3), policy.top_k(logs.contexts, 3))
    assert_array_equal(policy.probability_of(rows, logs.actions), policy.probability_of(logs.contexts, logs.actions))
    one, other = (policy.sample(contexts, np.random.default_rng(2)) for contexts in (rows, logs.contexts))
    assert_array_equal(one, other)


def test_a_learned_policy_and_a_hurdle_take_tables_too(logs):
    policy = ma.IPSLearner().learn(logs)
    assert_array_equal(policy.actions(table()), policy.actions(logs.contexts))
    spent = logs.with_rewards(np.maximum(logs.rewards, 0.0))
    hurdle = ma.fit(spent, ma.priors.from_categories(logs.catalog, dim=logs.dim), ma.Hurdle())
    value = hurdle.value(ma.Softmax(hurdle, 1.0), table())
    assert value.value == hurdle.value(ma.Softmax(hurdle, 1.0), logs.contexts).value


def test_columns_may_stand_in_any_order_beside_others(posterior, logs):
    rows = table().select(["spend", "city", "age", "item"])
    assert_array_equal(ma.Greedy(posterior).actions(rows), ma.Greedy(posterior).actions(logs.contexts))


def test_a_table_without_a_map_is_refused_and_says_so():
    rng = np.random.default_rng(0)
    logs = ma.LoggedData(rng.normal(size=(20, 2)), rng.integers(3, size=20), rng.normal(size=20))
    posterior = ma.fit(logs, ma.priors.independent(3, dim=2))
    for call in (
        lambda: posterior.value(ma.Greedy(posterior), table()),
        lambda: ma.Greedy(posterior).actions(table().to_pandas()),
    ):
        with pytest.raises(InputError, match="no feature map"):
            call()


def test_a_table_that_lacks_a_column_or_a_value_is_refused_by_name(posterior):
    with pytest.raises(InputError, match="no column 'city'; the columns are age, item"):
        posterior.value(ma.Greedy(posterior), table().select(["age", "item"]))
    ages = table()["age"].to_pylist()
    ages[7] = None
    with pytest.raises(NonFiniteError, match="column age is missing in row 7"):
        ma.Greedy(posterior).actions(table().set_column(0, "age", pa.array(ages)))


def test_a_policy_with_another_map_reads_the_table_through_its_own(posterior, logs):
    other = read(table(seed=5, shift=30.0))
    assert other.features != logs.features
    policy = ma.Softmax(ma.fit(other, ma.priors.from_categories(other.catalog, dim=other.dim)), 0.2)
    written = ma.TablePolicy(policy.probabilities(table()))
    expected = posterior.difference(written, ma.Logged(logs), logs.contexts)
    found = posterior.difference(policy, ma.Logged(logs), table())
    assert_allclose([found.value, found.std], [expected.value, expected.std], rtol=1e-12)
    # The logs have kept the table, so an estimator reads it too. An array means something else to the policy.
    assert_allclose(ma.DM(posterior).estimate(policy, logs).value, posterior.value(written, logs.contexts).value)
    with pytest.raises(InputError, match="another feature map"):
        posterior.value(policy, logs.contexts)


def test_an_update_with_another_map_or_catalog_is_refused(posterior, logs):
    with pytest.raises(InputError, match="another feature map"):
        posterior.update(read(table(seed=5)))
    with pytest.raises(InputError, match="another catalog"):
        posterior.update(read(table(seed=5), features=logs.features, catalog=ma.Catalog(ITEMS[::-1])))
    same = read(table(seed=5), features=logs.features, catalog=catalog())
    assert posterior.update(same).statistics.n_rounds == 600


def test_new_actions_come_with_their_catalog(posterior):
    grown = ma.Catalog([*ITEMS, "new"], categories=[k % 3 for k in range(13)])
    mixing = ma.MixedEffects(np.eye(3)[[0]], dim=posterior.dim)
    assert posterior.with_actions(mixing, catalog=grown).catalog is grown
    assert posterior.with_actions(mixing).catalog is None
    with pytest.raises(InputError, match="existing ones first"):
        posterior.with_actions(mixing, catalog=ma.Catalog(["new", *ITEMS]))
