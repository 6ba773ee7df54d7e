"""`manyarms decide`: from logs and a catalog to a verdict, which is also the exit code."""

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from small_shop import CATALOG, CONTEXT, ROLES, catalog_table, log_table, refused, run

import manyarms as ma
from manyarms.decision.decide_files import decide_from_logs


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("decide")
    pq.write_table(log_table(1600, 0), folder / "logs.parquet")
    pq.write_table(catalog_table(), folder / "items.parquet")
    return folder


def arguments(folder, *more):
    files = ["--logs", folder / "logs.parquet", "--catalog", folder / "items.parquet"]
    return ["decide", *files, *ROLES, *CONTEXT, *CATALOG, *more]


def test_a_better_policy_is_shipped_saved_and_reported_and_python_says_the_same(folder):
    page, policy = folder / "page.html", folder / "policy.arrow"
    result = run(*arguments(folder, "--out", page, "--policy", policy, "--json"))
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    options = {"catalog": folder / "items.parquet", "id": "sku", "category": "kind"}
    decision = decide_from_logs(folder / "logs.parquet", ["age", "city"], "item", "spend", "p", **options)
    assert (shown["verdict"], shown["policy"], shown["sentence"]) == ("ship", decision.policy, decision.sentence)
    assert f"Ship {decision.policy}" in page.read_text(encoding="utf-8")
    contexts = pq.read_table(folder / "logs.parquet").slice(0, 50)
    chosen = decision.candidates[decision.policy].actions(contexts)
    np.testing.assert_array_equal(ma.load(policy).actions(contexts), chosen)


def test_with_times_the_command_and_python_evaluate_on_the_later_half(folder):
    result = run(*arguments(folder, "--time", "at", "--json"))
    shown = json.loads(result.stdout)
    catalog = ma.read_catalog(folder / "items.parquet", "sku", category="kind")
    frame = pq.read_table(folder / "logs.parquet").to_pandas()
    logs = ma.read_logs(frame, ["age", "city"], "item", "spend", "p", catalog, time="at")
    decision = ma.decide(None, logs)
    assert (shown["verdict"], shown["sentence"]) == (decision.verdict, decision.sentence)
    split = decision.made_with["split"]
    assert shown["made_with"]["split"] == split
    later = logs.split(0.5, by="time")[1]
    assert split.startswith("by time: learned from the earlier half, evaluated on the later half")
    assert f"and {len(later):,} rounds; the later half starts at {later.times.min().astype('datetime64[s]')}" in split
    assert decision.evaluation.n_rounds == len(later)


@pytest.mark.slow
def test_without_the_swap_the_command_and_python_say_the_same(folder):
    shown = json.loads(run(*arguments(folder, "--no-swap", "--json")).stdout)
    options = {"catalog": folder / "items.parquet", "id": "sku", "category": "kind", "swap": False}
    decision = decide_from_logs(folder / "logs.parquet", ["age", "city"], "item", "spend", "p", **options)
    assert shown["sentence"] == decision.sentence
    assert shown["evaluation"]["pooled_rounds"] is None


def test_times_that_cannot_be_read_are_named(folder):
    refused(*arguments(folder, "--time", "city"), words=["column city must hold times"])


def test_the_exit_code_is_the_verdict(folder):
    clicks = ["--reward", "click"]  # a coin that no item changes
    result = run(*arguments(folder, *clicks))
    assert result.exit_code == 3 and "Undecided" in result.stdout


def test_no_policy_is_written_that_should_not_ship(folder, tmp_path):
    result = run(*arguments(folder, "--reward", "click", "--policy", tmp_path / "policy.arrow"))
    assert result.exit_code == 3 and not (tmp_path / "policy.arrow").exists()


def test_a_column_that_is_not_there_is_named(folder):
    refused(*arguments(folder, "--reward", "revenue"), words=["revenue"])
    refused(*arguments(folder, "--action", "itm"), words=["the log has no column 'itm'"])
    refused("decide", "--logs", folder / "logs.parquet", "--catalog", folder / "items.parquet", *ROLES, *CONTEXT,
            words=["the catalog has no column 'item', the action column of the logs"])  # fmt: skip


@pytest.mark.parametrize("flag", ["--policy", "--out"])
@pytest.mark.parametrize("name", ["logs.parquet", "items.parquet"])
def test_no_input_is_overwritten(folder, flag, name):
    before = (folder / name).read_bytes()
    refused(*arguments(folder, flag, folder / name), words=["one of the files to be read"])
    assert (folder / name).read_bytes() == before


def test_a_column_a_table_and_shares_are_evaluated_on_all_rounds_with_and_without_a_model(folder, tmp_path):
    logs = pq.read_table(folder / "logs.parquet")
    best = catalog_table().column("sku").to_pylist()[:4]
    picks = [best[k % 4] for k in range(len(logs))]
    users = [f"u{k % 9}" for k in range(len(logs))]
    with_picks = logs.append_column("picks", pa.array(picks)).append_column("person", pa.array(users))
    pq.write_table(with_picks, tmp_path / "logs.parquet")
    csv.write_csv(
        pa.table({"person": sorted(set(users)), "item": [best[k % 4] for k in range(9)]}), tmp_path / "picks.csv"
    )
    csv.write_csv(pa.table({"item": best, "share": [0.25] * 4}), tmp_path / "shares.csv")
    policies = f"new=column:picks,by=table:{tmp_path}/picks.csv,few=shares:{tmp_path}/shares.csv"
    files = ["--logs", tmp_path / "logs.parquet", "--catalog", folder / "items.parquet"]
    saved = tmp_path / "policy.arrow"
    result = run("decide", *files, *ROLES, *CONTEXT, *CATALOG, "--policies", policies, "--policy", saved, "--json")
    assert result.exit_code in (0, 3, 4), result.output
    shown = json.loads(result.stdout)
    assert list(shown["gains"]) == ["new", "by", "few"]
    assert shown["evaluation"]["pooled_rounds"] == len(logs)
    # In memory, by the same function.
    catalog = ma.read_catalog(folder / "items.parquet", "sku", category="kind")
    rounds = ma.read_logs(with_picks, ["age", "city"], "item", "spend", "p", catalog)
    shares = np.zeros(catalog.n_actions)
    shares[:4] = 0.25
    mine = {
        "new": lambda frame: frame["picks"],
        "by": ma.LookupPolicy(tmp_path / "picks.csv", "person", rounds, action="item"),
    }
    decision = ma.decide({**mine, "few": ma.TablePolicy(shares)}, rounds)
    for name, gain in decision.gains.items():
        np.testing.assert_allclose(gain.value, shown["gains"][name]["value"], rtol=1e-9)
        np.testing.assert_allclose(gain.interval(), shown["gains"][name]["interval_95"], rtol=1e-6)
    if shown["verdict"] == "ship":
        assert ma.load(saved).actions(with_picks.slice(0, 4)).tolist() == [0, 1, 2, 3]
    # A sample of a stream keeps the picks of its rows.
    options = {"catalog": folder / "items.parquet", "id": "sku", "context": ["age", "city"], "sample": 300}
    result = ma.jobs.evaluate_files(
        tmp_path / "logs.parquet", "item", "spend", "p", policies=["new=column:picks"], estimators=["replay"], **options
    )
    row = result.evaluation.policies[0]
    assert row.name == "new" and row.choices.actions.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(row.choices.shares.sum(), 1.0)


def test_rows_that_are_left_out_and_checks_that_fail_are_named(folder, tmp_path):
    logs = pq.read_table(folder / "logs.parquet")
    ages = logs.column("age").to_pylist()
    gaps = logs.set_column(logs.column_names.index("age"), "age", pa.array([None, None, None, *ages[3:]]))
    pq.write_table(gaps, tmp_path / "logs.parquet")
    page = tmp_path / "page.html"
    result = run(*arguments(folder, "--logs", tmp_path / "logs.parquet", "--missing", "drop", "--out", page))
    assert (
        "1,597 rounds. Gains use all of them; values use the" in result.stdout
        and "Left out: 3 rows (missing value)." in result.stdout
    )
    assert "3 rows (missing value)" in page.read_text(encoding="utf-8")
    assert "see .warnings" not in result.stdout
    failed = [line for line in result.stdout.splitlines() if line.startswith("Failed: ")]
    counted = re.search(r"checks passed, (\d) failed", result.stdout)
    assert len(failed) == (int(counted[1]) if counted else 0)


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        ("new=column:pick", "there is no column 'pick'"),
        ("new=table:nowhere.csv:user", "no file or folder nowhere.csv"),
        ("gredy", "Did you mean greedy?"),
        ("a=greedy,a=uniform", "two policies are called 'a'"),
        ("new=column:age", "row 0 has"),
        ("new=city", "'city' is not a policy, but a column of the logs. Write new=column:city."),
    ],
)
def test_policies_that_cannot_be_opened_are_refused(folder, policies, message):
    assert message in refused(*arguments(folder, "--policies", policies))
