"""Models fitted and updated from files: what the files cannot give is refused or warned about."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_shop import catalog_table, log_table

import manyarms as ma
from manyarms.errors import InputError
from manyarms.jobs import backtest_files, evaluate_files, fit_files, update_files
from manyarms.jobs.fit_files import rewards_are_binary

NOW = datetime(2024, 2, 1, tzinfo=UTC)


@pytest.fixture
def files(tmp_path):
    """Two logs of days before February."""
    for name, seed in (("first", 1), ("second", 2)):
        pq.write_table(log_table(60, seed), tmp_path / f"{name}.parquet")
    return tmp_path


def fitted(files, **options):
    options = {"learn_prior": False, "noise_std": 1.0} | options
    return fit_files(files / "first.parquet", ["age"], "item", "spend", "p", **options)


def test_a_fit_on_no_rounds_is_the_prior_and_says_so(files):
    result = fitted(files, time="at", maturity=timedelta(days=100), now=NOW)
    assert result.posterior.statistics.n_rounds == 0 and result.dropped.immature == 60
    assert any("no rounds are left, so the model is its prior: check what maturity" in text for text in result.warnings)
    assert not any("no rounds are left" in text for text in fitted(files).warnings)


def test_rounds_of_an_earlier_or_later_half_life_are_warned_about(files):
    def warnings(first, second):
        model = fitted(files, **first).posterior
        return update_files(model, files / "second.parquet", "item", "spend", "p", **second).warnings

    aged = {"time": "at", "half_life": timedelta(days=5), "now": NOW}
    assert any("fitted without a half-life, so the ages of its rounds are not known" in w for w in warnings({}, aged))
    assert any("weighted by their age on 2024-02-01" in text for text in warnings(aged, {}))
    for both in ({}, aged):
        assert not any("half-life" in text for text in warnings(both, both))


def test_models_that_cannot_be_updated_from_files_are_refused(files, own_errors):
    log, columns = files / "second.parquet", ("item", "spend", "p")
    hurdle = ma.fit(
        ma.read_logs(log_table(60, 1), "age", "item", "click"), ma.priors.independent(15, dim=2), ma.Hurdle()
    )
    with pytest.raises(InputError, match=r"the model is a hurdle of two models.*Read the logs into memory and call"):
        update_files(hurdle, log, *columns)
    plain = replace(fitted(files).posterior, features=None)
    with pytest.raises(InputError, match=r"the model has no feature map.*Fit it to logs that read_logs read"):
        update_files(plain, log, *columns)
    with pytest.raises(InputError, match="has no feature map, so columns cannot be read"):
        backtest_files(log, (), *columns, model=plain, time="at")
    with pytest.raises(InputError, match=r"neither the model nor a policy has a feature map.*Read the logs into mem"):
        evaluate_files(log, *columns, policies=["greedy"], model=plain)


def test_new_actions_need_a_model_with_a_catalog(files):
    numbers = pa.table({"x": [1.0, 2.0, 3.0], "a": [0, 1, 2], "r": [0.5, 1.0, 2.0]})
    pq.write_table(numbers, files / "numbers.parquet")
    model = fit_files(files / "numbers.parquet", "x", "a", "r", learn_prior=False).posterior
    pq.write_table(numbers.slice(0, 2), files / "more.parquet")
    with pytest.raises(InputError, match=r"numbers actions without a catalog, so none can be added by id. Fit with a"):
        update_files(model, files / "more.parquet", "a", "r", catalog=catalog_table(), id="sku")
    assert update_files(model, files / "more.parquet", "a", "r").new_rounds == 2


def test_rewards_are_binary_only_where_their_sums_can_tell(files):
    clicks = fitted(files).posterior
    assert not rewards_are_binary(clicks)
    binary = fit_files(files / "first.parquet", ["age"], "item", "click", learn_prior=False, noise_std=1.0)
    assert rewards_are_binary(binary.posterior)
    assert any("use the bernoulli likelihood" in text for text in binary.warnings)
    assert not rewards_are_binary(replace(binary.posterior, features=None))


def test_a_backtest_of_files_reads_them_as_its_model_does(files):
    model = fitted(files).posterior
    result = backtest_files(files / "second.parquet", (), "item", "spend", "p", model=model, time="at")
    rounds = ma.read_logs(
        files / "second.parquet", "age", "item", "spend", "p", model.catalog, features=model.features, time="at"
    ).collect()
    expected = ma.backtest(rounds, model)
    assert [row.forecast for row in result.series()] == [row.forecast for row in expected.series()]
