"""Every result that is a table converts to Arrow, pandas and Polars."""

import math

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose

import manyarms as ma
from manyarms.core.result_tables import Tabular, number, signed_number


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """One of every kind, from one little shop."""
    rng = np.random.default_rng(1)
    ids, category = np.array(list("abcdef")), [0, 0, "other", "other", 2.5, 2.5]
    table = pa.table(
        {"age": rng.normal(size=120), "item": ids[rng.integers(5, size=120)], "click": rng.normal(size=120)}
    )
    table = table.append_column("p", pa.array(np.full(120, 0.2)))
    catalog = ma.Catalog(ids, categories=category)
    logs = ma.read_logs(table, ["age"], "item", "click", "p", catalog)
    learned = ma.learn_prior(logs, ma.priors.from_categories(catalog, dim=2))
    posterior, uniform = learned.posterior, ma.Uniform(6)
    policies = {"greedy": ma.Greedy(posterior), "uniform": uniform}
    return {
        "estimate": posterior.value(uniform, table),
        "comparison": ma.compare(policies, logs, [ma.IPS(), ma.DM(posterior)], allow_training_rounds=True),
        "evaluation": ma.evaluate(policies, logs, posterior, estimators=[ma.IPS(), ma.SNIPS()]),
        "learned prior": learned,
        "priors": ma.compare_priors(logs, [learned.prior, learned.prior.marginal()], rng=rng),
        "categories": ma.check_categories(posterior, logs, category),
        "sensitivity": ma.prior_sensitivity(posterior, uniform, table),
        "support": ma.support_by_category(uniform, logs, [0, 0, 1, 1, 2, 2]),
        "actions": posterior.summary(),
        "scores": ma.score(posterior, table, tmp_path_factory.mktemp("scores") / "best.parquet", top_k=2),
        "posterior": posterior,
    }


KINDS = [
    "estimate", "comparison", "evaluation", "learned prior", "priors",
    "categories", "sensitivity", "support", "actions", "scores",
]  # fmt: skip


def same(one, other):
    return one == other or (
        isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_table_leaves_with_its_rows_and_columns(results, kind):
    result = results[kind]
    records = result.records()
    names = list(dict.fromkeys(name for record in records for name in record))
    assert records
    arrow, polars, pandas = result.to_arrow().to_pylist(), result.to_polars().to_dicts(), result.to_pandas()
    assert list(pandas.columns) == names
    assert len(pandas) == len(arrow) == len(polars) == len(records)
    for row, record in enumerate(records):
        for name in names:
            value = record.get(name)
            wanted = str(value) if name == "category" and kind == "categories" else value
            assert same(arrow[row][name], wanted), name
            assert same(polars[row][name], wanted), name
            cell = pandas[name][row]
            assert same(cell, wanted) or (wanted is None and (cell is None or math.isnan(cell))), name


def test_no_kind_of_table_is_left_out_above(results):
    for name in ma.__all__:
        getattr(ma, name)  # loads its module
    known = {kind for kind in Tabular.__subclasses__() if kind.__module__.startswith("manyarms.")}
    known = {kind for kind in known if not kind.__module__.startswith("manyarms.bench.")}  # tests/bench has these
    # These have tests of their records of their own.
    elsewhere = {ma.Plan, ma.Segments, ma.Backtest, ma.TradeOff, ma.CheckUp, ma.WeightCheck}
    elsewhere |= {ma.HiddenCause, ma.PropensitySensitivity}
    assert {type(results[kind]) for kind in KINDS} | elsewhere >= known


def test_an_interval_has_the_level_asked_for(results):
    for kind in ("estimate", "comparison", "evaluation"):
        narrow, wide = (results[kind].to_polars(level=level) for level in (0.5, 0.95))
        assert (narrow["low"] > wide["low"]).all()
        assert (narrow["high"] < wide["high"]).all()
        assert narrow["value"].equals(wide["value"])


def test_an_evaluation_has_the_gain_of_every_candidate_and_no_other(results):
    table = results["evaluation"].to_pandas()
    assert list(table["estimator"]) == ["posterior", *(["posterior", "IPS", "snIPS"] * 2)]
    gain = table[table["difference"].notna()]
    assert list(gain["policy"]) == ["greedy", "uniform"]
    evaluation = results["evaluation"]
    assert_allclose(gain["difference"], [row.checked.value for row in evaluation.policies], rtol=1e-12)
    bare = [row.difference.value for row in evaluation.policies]
    assert_allclose(gain["value"] - table["value"][0], bare, rtol=1e-9)


def test_a_summary_has_the_marginals_of_every_action_by_its_id(results):
    posterior = results["posterior"]
    table = results["actions"].to_pandas()
    assert list(table["action"]) == [one for one in "abcdef" for _ in range(2)]
    assert list(table["feature"][:2]) == ["(intercept)", "age"]
    assert list(table["seen"]) == [True] * 10 + [False] * 2
    covs = posterior.weights.action_cov(np.arange(6))
    assert_allclose(table["std"], np.sqrt([covs[a, j, j] for a in range(6) for j in range(2)]), rtol=1e-12)
    some = posterior.summary([4, 1]).to_polars()
    assert some["action"].to_list() == ["e", "e", "b", "b"]
    assert_allclose(some["mean"], posterior.weights.action_mean([4, 1]).reshape(-1))


def test_numbers_keep_three_digits_also_where_they_end_in_zeros():
    shown = [number(value) for value in (0.46, 2.0, 100.0, 0.0, 1234.5, -0.0012)]
    assert shown == ["0.460", "2.00", "100", "0", "1,234", "-0.00120"]
    assert [signed_number(value) for value in (0.16, -3.0, 0.0)] == ["+0.160", "-3.00", "+0"]
