"""update: a fit on everything, files counted once, new actions, rounds that age and mature."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose
from small_shop import (
    CATALOG,
    CONTEXT,
    ITEMS,
    KINDS,
    ROLES,
    catalog_table,
    done,
    figures,
    fit_command,
    log_table,
    refused,
)

import manyarms as ma


def test_update_equals_a_fit_on_everything_and_refuses_a_file_twice(shop, tmp_path):
    model = tmp_path / "model.arrow"
    done(*fit_command(shop), "--no-learn-prior", "--out", model)
    shown = figures("update", "--model", model, "--logs", shop / "new", *ROLES, "--out", model)
    assert (shown["new_rounds"], shown["rounds"], shown["new_actions"]) == (200, 800, 0)
    found = ma.load(model)
    whole = pa.concat_tables([pq.read_table(shop / one) for one in ("old", "new")])
    logs = ma.read_logs(whole, ["age", "city"], "item", "spend", catalog=found.catalog, features=found.features)
    expected = ma.fit(logs, ma.priors.from_categories(found.catalog, dim=logs.dim, shared_std=1.0))
    assert_allclose(found.weights.action_mean(), expected.weights.action_mean(), rtol=1e-8, atol=1e-10)
    before = model.read_bytes()
    again = ["update", "--model", model, "--logs", shop, *ROLES, "--out", model]
    refused("update", "--model", model, "--logs", shop / "new", *ROLES, "--out", model, words=["part.parquet already"])
    refused(*again[:3], "--logs", shop / "old" / "day=2", *ROLES, "--out", model, words=["twice", "--allow-repeats"])
    assert model.read_bytes() == before
    twice = figures("update", "--model", model, "--logs", shop / "new", *ROLES, "--out", model, "--allow-repeats")
    assert twice["rounds"] == 1000 and any("twice" in one for one in twice["warnings"])


@pytest.mark.slow
@pytest.mark.parametrize("reward", ["spend", "click"])
def test_nightly_updates_age_what_the_model_holds_and_add_rounds_that_have_matured(reward, shop, tmp_path):
    """Each night all files so far are named, their young rounds left out: in the end, one fit on the last night."""
    table = log_table(900, 5)
    hours = np.array([(at - datetime(2024, 1, 1, tzinfo=UTC)).total_seconds() / 3600 for at in table["at"].to_pylist()])
    logs, model = tmp_path / "logs", tmp_path / "nightly.arrow"
    logs.mkdir()
    times = ["--time", "at", "--half-life", "4d", "--maturity", "30h", "--now"]
    likelihood = "gaussian" if reward == "spend" else "bernoulli"
    fit = [
        "fit", *CONTEXT, *ROLES, "--reward", reward, "--catalog", shop / "items.csv", *CATALOG, "--no-learn-prior",
        "--likelihood", likelihood,
    ]  # fmt: skip
    dropped = []
    for night in range(1, 6):
        part = table.filter((hours >= 48 * (night - 1)) & (hours < 48 * night))
        pq.write_table(part, logs / f"{night}.parquet")
        now = [*times, f"2024-01-{1 + 2 * night:02d}T00:00:00+00:00"]
        if night == 1:
            shown = figures(*fit, "--logs", logs, *now, "--out", model)
        else:
            old = [logs / f"{night}.parquet", logs / f"{night - 1}.parquet"]
            two = tmp_path / f"two-{night}"
            two.mkdir()
            for file in old:
                (two / file.name).write_bytes(file.read_bytes())
            update = ["update", "--model", model, "--out", model, "--logs", two, "--reward", reward, "--action", "item"]
            shown = figures(*update, *now)
        dropped.append(shown["dropped"])
    assert all(one["immature"] > 0 for one in dropped) and all(one["counted"] > 0 for one in dropped[1:])
    nightly = ma.load(model)
    assert not any("twice" in one for one in nightly.warnings)
    everything = ma.read_logs(
        logs, ["age", "city"], "item", reward, catalog=nightly.catalog, features=nightly.features, time="at",
        half_life=timedelta(days=4), maturity=timedelta(hours=30), now=datetime(2024, 1, 11, tzinfo=UTC),
    )  # fmt: skip
    once = ma.fit(everything, nightly.prior, nightly.likelihood)
    assert nightly.statistics.n_rounds == once.statistics.n_rounds < 900
    means = nightly.weights.action_mean(), once.weights.action_mean()
    if reward == "click":
        # Factors found night by night stand in for the clicks.
        assert_allclose(*means, atol=0.1)
        return
    assert_allclose(nightly.statistics.total_weight, once.statistics.total_weight, rtol=1e-12)
    assert_allclose(*means, rtol=1e-9, atol=1e-10)
    assert_allclose(nightly.weights.latent_cov, once.weights.latent_cov, rtol=1e-9, atol=1e-12)
    # All files are as old as they get: nothing is left, or the clock runs backwards.
    update = ["update", "--model", model, "--out", model, "--logs", logs / "1.parquet", *ROLES]
    refused(*update, words=["has seen", "1.parquet"])
    early = [*times, "2024-01-03T00:00:00+00:00"]
    refused(*update[:6], logs / "5.parquet", *ROLES, *early, words=["counted from 2024-01-11"])
    refused(*update[:6], logs / "5.parquet", *ROLES, words=["up to 2024-01-09", "--time"])


def test_a_file_may_be_rewritten_until_it_is_mature_and_an_earlier_cut_off_removes_nothing(shop, tmp_path):
    table, late = log_table(400, 8), "2024-01-30T00:00:00+00:00"
    logs, model = tmp_path / "logs.parquet", tmp_path / "model.arrow"
    pq.write_table(table, logs)
    known = ["--catalog", shop / "items.csv", *CATALOG, "--no-learn-prior", "--out", model]
    told = [*ROLES, "--logs", logs, "--time", "at"]
    first = figures("fit", *CONTEXT, *told, *known, "--maturity", "2d", "--now", "2024-01-06T00:00:00+00:00")
    assert 0 < first["rounds"] < 400
    update = ["update", "--model", model, "--out", model, *told, "--maturity"]
    back = figures(*update, "3d", "--now", "2024-01-06T00:00:00+00:00")
    assert back["new_rounds"] == 0
    # The rewards of young rounds have come in, and are written into the file.
    spend = table["spend"].to_numpy().copy()
    young = np.array([at > datetime(2024, 1, 4, tzinfo=UTC) for at in table["at"].to_pylist()])
    spend[young] += 1.0
    place = table.column_names.index("spend")
    pq.write_table(table.set_column(place, "spend", pa.array(spend)), logs)
    rest = figures(*update, "2d", "--now", late)
    assert rest["new_rounds"] == 400 - first["rounds"] and rest["dropped"]["counted"] == first["rounds"]
    refused(*update, "2d", "--now", late, words=["has seen", "logs.parquet"])
    nightly, logs_now = ma.load(model), tmp_path / "logs.parquet"
    once = ma.fit(
        ma.read_logs(logs_now, ["age", "city"], "item", "spend", catalog=nightly.catalog, features=nightly.features),
        nightly.prior, nightly.likelihood,
    )  # fmt: skip
    assert_allclose(nightly.weights.action_mean(), once.weights.action_mean(), rtol=1e-8, atol=1e-10)


def test_update_adds_items_whose_category_is_known(shop, tmp_path):
    few, all_items = tmp_path / "few.parquet", tmp_path / "all.parquet"
    pq.write_table(catalog_table(15), few)
    # In another order, as tomorrow's export may be.
    pq.write_table(catalog_table().take(np.arange(20)[::-1]), all_items)
    model = tmp_path / "model.arrow"
    done(*fit_command(shop), "--catalog", few, "--no-learn-prior", "--out", model)
    pq.write_table(log_table(100, 9, ITEMS), tmp_path / "late.parquet")
    late = ["update", "--model", model, "--logs", tmp_path / "late.parquet", *ROLES, "--out", tmp_path / "grown.arrow"]
    refused(*late, words=["is not in the catalog of 15 actions"])
    shown = figures(*late, "--catalog", all_items, *CATALOG)
    assert (shown["new_actions"], shown["actions"]) == (5, 20)
    found = ma.load(tmp_path / "grown.arrow")
    assert found.catalog.ids.tolist() == ITEMS[:15] + ITEMS[:14:-1]
    whole = pa.concat_tables(
        [pq.read_table(shop / "old"), log_table(100, 9, ITEMS).cast(pq.read_schema(tmp_path / "late.parquet"))],
        promote_options="default",
    )
    logs = ma.read_logs(whole, ["age", "city"], "item", "spend", catalog=found.catalog, features=found.features)
    expected = ma.fit(logs, ma.priors.from_categories(found.catalog, dim=logs.dim, shared_std=1.0))
    assert_allclose(found.weights.action_mean(), expected.weights.action_mean(), rtol=1e-8, atol=1e-10)
    strange = catalog_table().set_column(1, "kind", pa.array([*[KINDS[k % 3] for k in range(19)], "lamp"]))
    pq.write_table(strange, all_items)
    refused(*late, "--catalog", all_items, *CATALOG, words=["action 'i19' has the category 'lamp'", "Fit again"])


def test_an_update_that_knows_few_of_the_actions_doubts_the_catalog(shop, tmp_path):
    pq.write_table(catalog_table(15), tmp_path / "few.parquet")
    model = tmp_path / "model.arrow"
    done(*fit_command(shop), "--catalog", tmp_path / "few.parquet", "--unknown", "other", "--out", model)
    for share, expected in ((2, []), (10, ["10 % of the rounds"])):
        items = [*["i19"] * share, *["i03"] * (100 - share)]
        pq.write_table(log_table(100, 9).set_column(3, "item", pa.array(items)), tmp_path / "late.parquet")
        late = ["update", "--model", model, "--logs", tmp_path / "late.parquet", *ROLES, "--out", tmp_path / "m.arrow"]
        for choice in ("drop", "other"):
            told = figures(*late, "--unknown", choice)["warnings"]
            assert [one[: len("10 % of the rounds")] for one in told if "out of date" in one] == expected
