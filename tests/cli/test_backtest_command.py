"""`manyarms backtest`, and guardrails on the command line, on a small shop with times."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_shop import CATALOG, CONTEXT, ROLES, catalog_table, figures, log_table, refused, run

import manyarms as ma
from manyarms.jobs import backtest_files


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("timed-shop")
    table = log_table(500, 1)
    returned = (np.arange(500) % 7 == 0).astype(float)
    table = table.append_column("returned", pa.array(returned)).append_column("ranker", pa.array(["a", "b"] * 250))
    pq.write_table(table, folder / "logs.parquet")
    pq.write_table(catalog_table(), folder / "items.parquet")
    return folder


def flags(shop):
    return ["--logs", shop / "logs.parquet", *CONTEXT, *ROLES, "--catalog", shop / "items.parquet", *CATALOG]


def test_the_command_gives_the_figures_of_the_function(shop, tmp_path):
    given = ["backtest", *flags(shop), "--time", "at", "--logged-by", "ranker", "--period", "2d"]
    record = figures(*given, "--out", tmp_path / "page.html")
    from datetime import timedelta

    result = backtest_files(
        shop / "logs.parquet", ["age", "city"], "item", "spend", "p", catalog=shop / "items.parquet", id="sku",
        category="kind", time="at", logged_by="ranker", period=timedelta(days=2),
    )  # fmt: skip
    assert record["forecasts"] == json.loads(json.dumps(result.records()))
    assert {row["series"] for row in record["forecasts"]} == {"all", "category", "logged by"}
    assert record["written"] == [str(tmp_path / "page.html")]
    page = (tmp_path / "page.html").read_text()
    assert "Forecasts and what happened" in page and "Logged by" in page
    assert "<title>Backtest</title>" in page
    days = result.series()
    assert f"{sum(row.is_inside for row in days)} of {len(days)} observed means lie inside their intervals" in page
    assert "of the forecasts for all rounds held; 95 % is expected." in page
    shown = run(*given)
    assert shown.exit_code == (3 if result.alarms else 0) and "95 % interval" in shown.stdout


def test_bad_flags_end_in_one_line(shop):
    assert "--time" in refused("backtest", *flags(shop))
    answer = refused("backtest", *flags(shop), "--time", "at", "--period", "400d")
    assert "so there is nothing to forecast" in answer and "--period" in answer
    assert "no column 'who'" in refused("backtest", *flags(shop), "--time", "at", "--logged-by", "who")


def test_guardrails_are_columns_with_limits(shop):
    result = run("decide", *flags(shop), "--guardrail", "returned<=500%, spend>=-10", "--json")
    goals = json.loads(result.stdout)["guardrails"]
    assert {row["name"] for row in goals} == {"returned", "spend"} and all(row["holds"] for row in goals)
    assert goals[0]["limit"] == pytest.approx(5 * goals[0]["current"]) and goals[-1]["limit"] == 10.0
    assert "as in 'returns<=1%'" in refused("decide", *flags(shop), "--guardrail", "returned")
    assert "Write 'returned<=1%'" in refused("decide", *flags(shop), "--guardrail", "returned<=-1%")
    assert "no column 'calls'" in refused("decide", *flags(shop), "--guardrail", "calls<=1%")


def test_a_report_has_guardrails_of_its_sample(shop, tmp_path):
    logs = ma.read_logs(pq.read_table(shop / "logs.parquet"), ["age", "city"], "item", "spend", "p",
                        catalog=ma.Catalog(catalog_table().column("sku").to_pylist()))  # fmt: skip
    ma.fit(logs.take(np.arange(50)), ma.priors.independent(20, dim=logs.dim)).save(tmp_path / "model.arrow")
    out = tmp_path / "report.json"
    run(
        "report", "--model", tmp_path / "model.arrow", "--logs", shop / "logs.parquet", *ROLES, "--policies", "uniform",
        "--sample", "300", "--guardrail", "returned<=300%", "--out", out,
    )  # fmt: skip
    (goal,) = json.loads(out.read_text())["guardrails"]
    assert 0.08 < goal["current"] < 0.22 and goal["policy"] == "uniform"
