"""evaluate and report: the figures of the library, by model, policy file and estimator."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose
from small_shop import (
    CONTEXT,
    ROLES,
    done,
    figures,
    fit_command,
    log_table,
    refused,
)

import manyarms as ma


def test_evaluate_gives_the_figures_of_the_library(shop):
    new = ["--model", shop / "model.arrow", "--logs", shop / "new", *ROLES]
    named = f"greedy,uniform,softmax:0.3,epsilon-greedy:0.1,{shop / 'policy.arrow'}"
    shown = figures("evaluate", *new, "--policies", named, "--estimators", "snips,dr,ips:0.1")
    posterior = ma.load(shop / "model.arrow")
    logs = ma.read_logs(
        shop / "new", ["age", "city"], "item", "spend", "p", posterior.catalog, features=posterior.features
    ).collect()
    now, greedy = ma.Logged(logs), ma.Greedy(posterior)
    rows = {row["policy"]: row for row in shown["policies"]}
    assert list(rows) == [
        "logged",
        "greedy",
        "uniform",
        "softmax:0.3",
        "epsilon-greedy:0.1",
        str(shop / "policy.arrow"),
    ]
    for name, policy in {
        "greedy": greedy,
        "uniform": ma.Uniform(20),
        "softmax:0.3": ma.Softmax(posterior, 0.3),
    }.items():
        value, gain = posterior.value(policy, logs.contexts), ma.Checked(posterior).difference(policy, now, logs)
        assert_allclose(rows[name]["model"]["value"], value.value, rtol=1e-9)
        assert_allclose(rows[name]["model"]["interval_95"], value.interval(), rtol=1e-9)
        assert_allclose(rows[name]["difference"]["value"], gain.value, rtol=1e-9)
        assert_allclose(rows[name]["probability_beats_logged"], gain.probability_positive, rtol=1e-9)
        for label, judge in {"snips": ma.SNIPS(), "dr": ma.DR(posterior), "ips:0.1": ma.IPS(0.1)}.items():
            assert_allclose(rows[name]["estimators"][label]["value"], judge.estimate(policy, logs).value, rtol=1e-9)
    assert rows[str(shop / "policy.arrow")]["model"] == rows["softmax:0.3"]["model"]
    assert shown["mean_reward"] == pytest.approx(logs.rewards.mean()) and not shown["sampled"]
    assert not any("fitted on these logs" in one for one in shown["warnings"])


def test_evaluate_shows_a_table_and_warns_of_rows_that_the_model_has_seen(shop, tmp_path):
    shown = done("evaluate", "--model", shop / "model.arrow", "--logs", shop / "new", *ROLES, "--estimators", "snips")
    assert (
        "P(beats" in shown.stdout and "greedy" in shown.stdout and "snIPS" in shown.stdout and "…" not in shown.stdout
    )
    # One file of those it was fitted on, copied: still the same rows.
    (tmp_path / "copy.parquet").write_bytes((shop / "old" / "day=1" / "part.parquet").read_bytes())
    seen = done("evaluate", "--model", shop / "model.arrow", "--logs", tmp_path, *ROLES)
    assert "The model was fitted on these logs" in seen.stderr


def test_evaluate_without_a_model_uses_estimators_alone(shop):
    shown = figures(
        "evaluate", "--logs", shop / "new", *ROLES, "--policies", shop / "policy.arrow", "--estimators", "snips,replay"
    )
    row = shown["policies"][1]
    assert (
        row["model"] is None
        and "snips" in row["estimators"]
        and "replay needs a deterministic policy" in row["left_out"]["replay"]
    )
    catalog = ["--catalog", shop / "items.csv", "--id", "sku"]
    alone = ["evaluate", "--logs", shop / "new", *CONTEXT, *ROLES, *catalog, "--policies", "uniform"]
    # The logs never show five of twenty items: three quarters of the mean reward.
    (_, uniform) = figures(*alone, "--estimators", "ips")["policies"]
    rewards = log_table(200, 3)["spend"].to_numpy()
    assert uniform["estimators"]["ips"]["value"] == pytest.approx(0.75 * rewards.mean())


def test_a_policy_from_another_model_is_evaluated_through_its_own_features(shop, tmp_path):
    done(*fit_command(shop), "--logs", shop / "new", "--out", tmp_path / "judge.arrow")
    judge, policy = ma.load(tmp_path / "judge.arrow"), ma.load(shop / "policy.arrow")
    assert judge.features != policy.features
    rows = figures(
        "evaluate",
        "--model",
        tmp_path / "judge.arrow",
        "--logs",
        shop / "old",
        *ROLES,
        "--policies",
        shop / "policy.arrow",
    )
    table = pq.read_table(shop / "old")
    expected = judge.value(policy, table)
    assert_allclose(rows["policies"][1]["model"]["value"], expected.value, rtol=1e-9)


def test_logs_larger_than_the_sample_are_evaluated_on_some_of_their_rounds(shop):
    new = ["evaluate", "--model", shop / "model.arrow", "--logs", shop / "new", *ROLES, "--sample", 50]
    shown = figures(*new)
    assert (shown["rounds"], shown["rounds_in_logs"], shown["sampled"]) == (50, 200, True)
    assert "50 rounds drawn from 200" in done(*new).stdout
    assert shown == figures(*new) != figures(*new, "--seed", 1)


def test_a_model_without_a_catalog_is_not_evaluated_through_one(tmp_path):
    """The numbers of its actions are the ids themselves; a file lists them in another order."""
    rng = np.random.default_rng(0)
    item = rng.integers(10, size=500)
    logs = pa.table({"x": rng.normal(size=500), "item": item, "r": item + rng.normal(size=500)})
    pq.write_table(logs, tmp_path / "logs.parquet")
    pq.write_table(pa.table({"item": np.arange(10)[::-1], "kind": ["a", "b"] * 5}), tmp_path / "items.parquet")
    roles = ["--logs", tmp_path / "logs.parquet", "--action", "item", "--reward", "r"]
    done("fit", *roles, "--context", "x", "--out", tmp_path / "model.arrow")
    told = [*roles, "--model", tmp_path / "model.arrow", "--catalog", tmp_path / "items.parquet", "--id", "item"]
    for command in ("evaluate", "report"):
        where = [] if command == "evaluate" else ["--out", tmp_path / "report.html"]
        refused(command, *told, *where, words=["without a catalog", "Leave --catalog out"])


def test_categories_of_a_report_go_by_id(tmp_path):
    rng = np.random.default_rng(0)
    ids = [f"i{k}" for k in range(10)]
    item = rng.integers(10, size=500)
    logs = pa.table({"x": rng.normal(size=500), "item": [ids[i] for i in item], "r": item + rng.normal(size=500)})
    pq.write_table(logs, tmp_path / "logs.parquet")
    kinds = ["low"] * 5 + ["high"] * 5
    pq.write_table(pa.table({"item": ids[::-1], "kind": kinds[::-1]}), tmp_path / "items.parquet")
    roles = ["--logs", tmp_path / "logs.parquet", "--action", "item", "--reward", "r"]
    done("fit", *roles, "--context", "x", "--out", tmp_path / "model.arrow")
    told = ["--catalog", tmp_path / "items.parquet", "--id", "item", "--category", "kind"]
    done("report", *roles, "--model", tmp_path / "model.arrow", *told, "--out", tmp_path / "report.json")
    found = json.loads((tmp_path / "report.json").read_text())["traffic_changes"]["rows"]
    assert {row["action"]: row["category"] for row in found}["i9"] == "high"
    assert all(row["category"] == kinds[int(row["action"][1:])] for row in found)


def test_a_warning_about_several_policies_or_estimators_is_given_once(shop):
    judge = ["evaluate", "--model", shop / "model.arrow", "--logs", shop / "new", *ROLES, "--estimators", "ips,snips"]
    # The same policy twice, so that all is true of both.
    told = figures(*judge, "--policies", "softmax:0.01,softmax:0.010,uniform")
    by_policy = {row["policy"]: row["warnings"] for row in told["policies"]}
    weak = [one for one in by_policy["softmax:0.01"] if one.startswith("IPS, snIPS: the effective sample size is only")]
    assert len(weak) == 1 and weak[0] in by_policy["softmax:0.010"] and weak[0] not in by_policy["uniform"]
    merged = weak[0].replace("IPS, snIPS: ", "softmax:0.01, softmax:0.010 (IPS, snIPS): ")
    assert [one for one in told["warnings"] if "the effective sample size" in one] == [merged]
    assert weak[0] in figures(*judge, "--policies", "softmax:0.01,softmax:0.010")["warnings"]


def test_a_policy_is_made_with_its_facts_as_json(shop, tmp_path):
    out = tmp_path / "policy.arrow"
    shown = figures("learn", "--model", shop / "model.arrow", "--policy", "softmax:0.3", "--out", out)
    assert shown == {"policy": "softmax:0.3", "actions": 20, "model": str(shop / "model.arrow"), "out": str(out)}
    assert ma.load(out).temperature == 0.3
