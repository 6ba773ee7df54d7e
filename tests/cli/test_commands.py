"""fit, evaluate, learn, score and update: what the library says; errors in one line, and nothing half-written."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from typer.testing import CliRunner

import manyarms as ma
from manyarms._base.files import draft_of
from manyarms._base.options import TABLES, options_of
from manyarms.cli import app
from manyarms.cli.spec import read_spec
from manyarms.errors import InputError
from manyarms.jobs import StackedMap, estimator_named, policy_named, sample_rounds
from manyarms.jobs.fit_files import rewards_are_binary
from manyarms.logs.file_source import FileSource
from manyarms.logs.sources import ProgressSource

ITEMS = [f"i{k:02d}" for k in range(20)]
KINDS = ["tea", "mug", "pot"]
ROLES = ["--action", "item", "--reward", "spend", "--propensity", "p"]
CONTEXT = ["--context", "age,city"]
CATALOG = ["--id", "sku", "--category", "kind"]


def log_table(n, seed, items=ITEMS[:15]):
    rng = np.random.default_rng(seed)
    item = rng.integers(len(items), size=n)
    age = rng.normal(40, 12, n)
    return pa.table(
        {
            "user": [f"u{seed}-{i}" for i in range(n)],
            "age": age,
            "city": rng.choice(["Oslo", "Riga", "Turin"], n),
            "item": [items[i] for i in item],
            "spend": (item % 3) * (age - 40) / 12 + rng.normal(size=n),
            "click": (rng.random(n) < 0.3).astype(np.int64),
            "p": np.full(n, 1 / len(items)),
            "at": [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=int(h)) for h in rng.integers(0, 240, n)],
        }
    )


def catalog_table(n=20):
    return pa.table({"sku": ITEMS[:n], "kind": [KINDS[k % 3] for k in range(n)], "size": np.arange(float(n))})


def run(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments], env={"COLUMNS": "100"})


def done(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result


def figures(*arguments):
    return json.loads(done(*arguments, "--json").stdout)


def refused(*arguments, words=(), code=2):
    result = run(*arguments)
    assert result.exit_code == code, (result.output, result.exception)
    assert result.stdout == "" and result.stderr.startswith("manyarms: error: ") and result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr, result.stderr
    return result.stderr


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Ten days of logs in two folders, a catalog, a fitted model and a policy."""
    folder = tmp_path_factory.mktemp("shop")
    for day in range(4):
        place = folder / ("new" if day == 3 else "old") / f"day={day}"
        place.mkdir(parents=True)
        pq.write_table(log_table(200, day), place / "part.parquet", row_group_size=60)
    pq.write_table(catalog_table(), folder / "items.parquet")
    pa.csv.write_csv(catalog_table(), folder / "items.csv")
    done(*fit_command(folder), "--out", folder / "model.arrow")
    done("learn", "--model", folder / "model.arrow", "--policy", "softmax:0.3", "--out", folder / "policy.arrow")
    return folder


def fit_command(folder):
    return ["fit", "--logs", folder / "old", *CONTEXT, *ROLES, "--catalog", folder / "items.parquet", *CATALOG]


def in_python(folder, learn=True):
    catalog = ma.read_catalog(folder / "items.parquet", "sku", category="kind")
    stream = ma.read_logs(folder / "old", ["age", "city"], "item", "spend", "p", catalog)
    prior = ma.priors.from_categories(catalog, dim=stream.dim, shared_std=1.0)
    return ma.learn_prior(stream, prior).posterior if learn else ma.fit(stream, prior)


# ---------------------------------------------------------------- they say what the library says


def test_fit_writes_the_model_that_the_library_fits(shop):
    found, expected = ma.load(shop / "model.arrow"), in_python(shop)
    assert_allclose(found.weights.action_mean(), expected.weights.action_mean(), rtol=1e-9, atol=1e-12)
    assert found.catalog.ids.tolist() == ITEMS and found.features.columns == ("age", "city")
    assert found.statistics.n_rounds == 600
    out = shop / "fixed.arrow"
    shown = figures(*fit_command(shop), "--no-learn-prior", "--out", out)
    assert_allclose(ma.load(out).weights.action_mean(), in_python(shop, False).weights.action_mean(), rtol=1e-9)
    assert (shown["rounds"], shown["actions"], shown["actions_seen"]) == (600, 20, 15)
    assert shown["learned"] is None and shown["log_evidence"] == ma.load(out).log_evidence


def test_a_spec_file_says_the_same_as_flags_and_flags_win(shop, tmp_path):
    text = f"""
        [logs]
        path = "{shop / "old"}"
        context = ["age", "city"]
        action = "item"
        reward = "click"
        [catalog]
        path = "{shop / "items.csv"}"
        id = "sku"
        category = "kind"
        [prior]
        learn = false
        action_std = 0.5
    """
    (tmp_path / "fit.toml").write_text(text)
    out = tmp_path / "model.arrow"
    done("fit", "--spec", tmp_path / "fit.toml", "--reward", "spend", "--action-std", 1, "--out", out)
    assert_allclose(ma.load(out).weights.action_mean(), in_python(shop, False).weights.action_mean(), rtol=1e-9)


def test_a_spec_is_typed_and_says_what_it_knows(tmp_path):
    def spec(text, **flags):
        (tmp_path / "s.toml").write_text(text)
        known = options_of(*(kind for kinds in TABLES.values() for kind in kinds))
        return read_spec(tmp_path / "s.toml", {"logs": "d", "action": "a", "reward": "r", **flags}, known)

    text = '[logs]\npath = "d"\nhalf_life = "14d"\nnow = 2024-05-01T00:00:00Z\n'
    assert spec(text, logs=None, prior_std=2, context=["a,b", "c"]) == {
        "logs": str(tmp_path / "d"),
        "context": ("a", "b", "c"),
        "action": "a",
        "reward": "r",
        "half_life": timedelta(days=14),
        "now": datetime(2024, 5, 1, tzinfo=UTC),
        "prior_std": 2.0,
    }
    for words, text, flags in (
        ("[logs] has no key 'rewards'; known are path, context", '[logs]\nrewards = "x"', {}),
        ("known are [logs], [catalog]", "[log]\n", {}),
        ("logs must be a table", "logs = 3", {}),
        ("logs.context must be a list of names", "[logs]\ncontext = 3", {}),
        ("prior.learn must be true or false", '[prior]\nlearn = "yes"', {}),
        ("logs.max_levels must be a whole number", "[logs]\nmax_levels = 2.5", {}),
        ("likelihood.kind must be one of gaussian, bernoulli", '[likelihood]\nkind = "clicks"', {}),
        ("is not TOML", "[logs", {}),
        ("--half-life must be a number and one of s, m, h, d, w", "", {"half_life": "two weeks"}),
        ("--now must be a time", "", {"now": "today"}),
        ("--missing must be one of refuse, drop", "", {"missing": "ignore"}),
    ):
        with pytest.raises(InputError) as caught:
            spec(text, **flags)
        assert words in str(caught.value)


@pytest.mark.parametrize("kind", ["bernoulli", "poisson", "student-t", "log-normal"])
def test_other_likelihoods_and_ages_reach_the_fit(kind, shop, tmp_path):
    reward = "p" if kind == "log-normal" else "click"
    where = ["--reward", reward, "--likelihood", kind, "--no-learn-prior", "--out", tmp_path / "m.arrow"]
    times = ["--time", "at", "--half-life", "2d", "--maturity", "36h", "--now", "2024-01-11T00:00:00+00:00"]
    shown = figures(*fit_command(shop), *where, *times)
    ages = [
        (datetime(2024, 1, 11, tzinfo=UTC) - at).total_seconds() / 3600
        for day in range(3)
        for at in log_table(200, day)["at"].to_pylist()
    ]
    young = sum(age < 36 for age in ages)
    assert shown["dropped"]["immature"] == young > 0 and shown["rounds"] == 600 - young
    names = {"bernoulli": ma.Bernoulli, "poisson": ma.Poisson, "student-t": ma.StudentT, "log-normal": ma.LogNormal}
    found = ma.load(tmp_path / "m.arrow")
    assert type(found.likelihood) is names[kind]
    if kind == "log-normal":
        weights = 0.5 ** (np.array([age for age in ages if age >= 36]) / 48)
        assert_allclose(found.statistics.total_weight, weights.sum())


@pytest.mark.parametrize("reward", ["spend", "click"])
def test_updates_night_by_night_age_what_the_model_holds_and_add_what_has_ripened(reward, shop, tmp_path):
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


def test_a_file_that_ripens_may_be_written_anew_and_a_cut_off_that_moves_back_takes_nothing_out(shop, tmp_path):
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


def test_copies_among_the_logs_and_a_context_that_is_not_used_are_warned_about(shop, tmp_path):
    for name in ("one", "two"):
        (tmp_path / f"{name}.parquet").write_bytes((shop / "new" / "day=3" / "part.parquet").read_bytes())
    known = ["--catalog", shop / "items.csv", *CATALOG, "--no-learn-prior", "--out", tmp_path / "m.arrow"]
    twice = done("fit", *CONTEXT, *ROLES, "--logs", tmp_path, *known)
    assert "1 file is a copy of others among the logs" in twice.stderr
    other = done("evaluate", "--model", shop / "model.arrow", "--logs", shop / "new", *ROLES, "--context", "age")
    assert "--context age is not used" in other.stderr


def test_a_model_without_a_catalog_is_not_judged_through_one(tmp_path):
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
        refused(command, *told, *where, words=["without a catalog", "leave --catalog out"])


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


def test_a_half_life_does_not_change_how_far_actions_are_found_to_differ(tmp_path):
    """Spreads are learned from rounds at full weight: weights of a third had halved the spread of actions and more."""
    rng = np.random.default_rng(3)
    n, items = 6000, [f"i{k}" for k in range(60)]
    shift, item = rng.normal(size=60), rng.integers(60, size=n)
    start = datetime(2024, 1, 1)
    table = {
        "x": rng.normal(size=n), "item": [items[i] for i in item], "r": shift[item] + 2 * rng.normal(size=n),
        "at": [start + timedelta(hours=float(h)) for h in rng.uniform(0, 720, n)],
    }  # fmt: skip
    pq.write_table(pa.table(table), tmp_path / "logs.parquet")
    fit = ["fit", "--logs", tmp_path / "logs.parquet", "--context", "x", "--action", "item", "--reward", "r", "--out"]
    plain = figures(*fit, tmp_path / "plain.arrow")["learned"]
    # Times have no zone, and neither has --now; left out, it would be what the clock shows here.
    aged = figures(*fit, tmp_path / "aged.arrow", "--time", "at", "--half-life", "8d", "--now", "2024-01-31T00:00:00")
    assert aged["learned"]["actions std"] == pytest.approx(plain["actions std"], rel=1e-6)
    assert ma.load(tmp_path / "aged.arrow").statistics.total_weight < 0.45 * n
    by_clock = figures(*fit, tmp_path / "now.arrow", "--time", "at", "--half-life", "5000d")
    assert by_clock["rounds"] == n
    logs = ma.read_logs(pa.table({**table, "w": np.full(n, 0.3)}), ["x"], "item", "r", weight="w")
    weighed = ma.learn_prior(logs, ma.priors.from_catalog(logs.catalog, dim=2))
    assert any("weights are not counts" in one for one in weighed.posterior.warnings)


def test_clicks_taken_as_gaussian_are_warned_about_and_amounts_are_not(shop, tmp_path):
    clicks = run(*fit_command(shop), "--reward", "click", "--out", tmp_path / "m.arrow")
    assert clicks.exit_code == 0 and "--likelihood bernoulli" in clicks.stderr
    assert rewards_are_binary(ma.load(tmp_path / "m.arrow"))
    assert not rewards_are_binary(ma.load(shop / "model.arrow"))


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
        value, gain = posterior.value(policy, logs.contexts), posterior.difference(policy, now, logs.contexts)
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
        "P(beats" in shown.stdout and "greedy" in shown.stdout and "snips" in shown.stdout and "…" not in shown.stdout
    )
    # One file of those it was fitted on, copied: still the same rows.
    (tmp_path / "copy.parquet").write_bytes((shop / "old" / "day=1" / "part.parquet").read_bytes())
    seen = done("evaluate", "--model", shop / "model.arrow", "--logs", tmp_path, *ROLES)
    assert "the model was fitted on these logs" in seen.stderr


def test_evaluate_without_a_model_lets_estimators_speak(shop):
    shown = figures(
        "evaluate", "--logs", shop / "new", *ROLES, "--policies", shop / "policy.arrow", "--estimators", "snips,replay"
    )
    row = shown["policies"][1]
    assert (
        row["model"] is None and "snips" in row["estimators"] and "replay needs a policy" in row["left_out"]["replay"]
    )
    catalog = ["--catalog", shop / "items.csv", "--id", "sku"]
    alone = ["evaluate", "--logs", shop / "new", *CONTEXT, *ROLES, *catalog, "--policies", "uniform"]
    # The logs never show five of twenty items: three quarters of the mean reward.
    (_, uniform) = figures(*alone, "--estimators", "ips")["policies"]
    rewards = log_table(200, 3)["spend"].to_numpy()
    assert uniform["estimators"]["ips"]["value"] == pytest.approx(0.75 * rewards.mean())


def test_a_policy_from_another_model_is_judged_through_its_own_features(shop, tmp_path):
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


def test_logs_larger_than_the_sample_are_judged_on_some_of_them(shop):
    new = ["evaluate", "--model", shop / "model.arrow", "--logs", shop / "new", *ROLES, "--sample", 50]
    shown = figures(*new)
    assert (shown["rounds"], shown["rounds_in_logs"], shown["sampled"]) == (50, 200, True)
    assert "50 rounds drawn from 200" in done(*new).stdout
    assert shown == figures(*new) != figures(*new, "--seed", 1)


def test_every_round_is_as_likely_to_be_drawn(shop):
    stream = ma.read_logs(shop / "old", ["age"], "item", "spend")
    ages, counts = stream.collect().contexts[:, 1], np.zeros(600)
    place = {age: i for i, age in enumerate(ages)}
    for seed in range(200):
        drawn = sample_rounds(stream, 30, rng=np.random.default_rng(seed))
        rows = [place[age] for age in drawn.logs.contexts[:, 1]]
        assert rows == sorted(set(rows)) and len(rows) == 30 and drawn.total == 600
        counts[rows] += 1
    # Binomial(200, 1/20) in every file.
    assert_allclose(counts.reshape(3, 200).mean(axis=1), 10, atol=5 * np.sqrt(200 * 0.05 / 200))
    assert counts.max() < 30


def test_maps_side_by_side_are_each_map(shop):
    tables = [pq.read_table(shop / one) for one in ("old", "new")]
    maps = [ma.read_logs(one, ["age", "city"], "item", "spend").features for one in tables]
    stacked = StackedMap([*maps, maps[0]])
    assert len(stacked.maps) == 2
    for one in maps:
        assert_array_equal(stacked.part(stacked(tables[1]), one), one(tables[1]))


def test_score_writes_the_best_actions_of_every_row(shop, tmp_path):
    out = tmp_path / "scores.parquet"
    shown = figures(
        "score", "--model", shop / "model.arrow", "--contexts", shop / "new", "--keep", "user,city", "--top-k", 3,
        "--out", out,
    )  # fmt: skip
    assert shown["contexts"] == 200 and shown["rows"] == 600
    found, rows, posterior = pq.read_table(out), pq.read_table(shop / "new"), ma.load(shop / "model.arrow")
    best = ma.Greedy(posterior).top_k(rows, 3)
    assert found.column_names == ["user", "city", "row", "rank", "action", "expected_reward", "reward_std"]
    assert found["action"].to_pylist() == [ITEMS[a] for a in best.reshape(-1)]
    assert found["user"].to_pylist() == np.repeat(rows["user"].to_pylist(), 3).tolist()
    assert found["rank"].to_pylist() == [1, 2, 3] * 200
    repeated = rows.take(np.repeat(np.arange(200), 3))
    assert_allclose(found["expected_reward"], posterior.expected_reward(repeated, best.reshape(-1)), rtol=1e-12)
    assert_allclose(found["reward_std"], posterior.reward_std(repeated, best.reshape(-1)), rtol=1e-9)


def test_score_follows_a_policy_and_what_is_eligible(shop, tmp_path):
    rows = pq.read_table(shop / "new").append_column("may", pa.array([[ITEMS[i % 20], ITEMS[3]] for i in range(200)]))
    pq.write_table(rows, tmp_path / "rows.parquet", row_group_size=37)
    done(
        "score", "--policy", shop / "policy.arrow", "--contexts", tmp_path / "rows.parquet", "--eligible", "may",
        "--top-k", 2, "--out", tmp_path / "scores.parquet",
    )  # fmt: skip
    found = pq.read_table(tmp_path / "scores.parquet").to_pylist()
    assert len(found) == 2 * 200 - 10  # every twentieth row may choose item 3 alone
    assert all(row["action"] in (ITEMS[row["row"] % 20], ITEMS[3]) for row in found)


def test_score_drops_rows_that_lack_a_value_when_told(shop, tmp_path):
    ages = log_table(10, 3)["age"].to_pylist()
    ages[4] = None
    pq.write_table(log_table(10, 3).set_column(1, "age", pa.array(ages)), tmp_path / "rows.parquet")
    command = [
        "score",
        "--model",
        shop / "model.arrow",
        "--contexts",
        tmp_path / "rows.parquet",
        "--out",
        tmp_path / "s.parquet",
    ]
    refused(*command, words=["column age is missing in row 4"])
    shown = figures(*command, "--missing", "drop", "--keep", "user")
    assert shown["dropped"]["missing"] == 1
    found = pq.read_table(tmp_path / "s.parquet")
    assert found["row"].to_pylist() == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert found["user"].to_pylist() == [f"u3-{i}" for i in (0, 1, 2, 3, 5, 6, 7, 8, 9)]


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


def test_unknown_items_count_as_other(shop, tmp_path):
    pq.write_table(log_table(100, 9, ITEMS), tmp_path / "late.parquet")
    pq.write_table(catalog_table(15), tmp_path / "few.parquet")
    base = [
        "fit",
        *CONTEXT,
        *ROLES,
        *CATALOG,
        "--logs",
        tmp_path / "late.parquet",
        "--catalog",
        tmp_path / "few.parquet",
    ]
    unknown = sum(item in ITEMS[15:] for item in log_table(100, 9, ITEMS)["item"].to_pylist())
    kept = figures(*base, "--unknown", "other", "--out", tmp_path / "m.arrow")
    assert (kept["rounds"], kept["counted_as_other"], kept["actions"]) == (100, unknown, 16)
    assert ma.load(tmp_path / "m.arrow").catalog.ids.tolist()[-1] == "(other)"
    dropped = figures(*base, "--unknown", "drop", "--out", tmp_path / "m.arrow")
    assert (dropped["rounds"], dropped["dropped"]["unknown"]) == (100 - unknown, unknown)
    numbered = log_table(100, 9, ITEMS).set_column(3, "item", pa.array(np.arange(100) % 20))
    pq.write_table(numbered, tmp_path / "late.parquet")
    pq.write_table(
        pa.table({"sku": np.arange(15), "kind": [KINDS[k % 3] for k in range(15)]}), tmp_path / "few.parquet"
    )
    assert figures(*base, "--unknown", "other", "--out", tmp_path / "m.arrow")["counted_as_other"] == 25
    done(
        "score",
        "--model",
        tmp_path / "m.arrow",
        "--contexts",
        tmp_path / "late.parquet",
        "--out",
        tmp_path / "s.parquet",
    )
    assert set(pq.read_table(tmp_path / "s.parquet")["action"].to_pylist()) <= {*map(str, range(15)), "(other)"}


def test_an_update_that_knows_few_of_the_actions_doubts_the_catalog(shop, tmp_path):
    pq.write_table(catalog_table(15), tmp_path / "few.parquet")
    model = tmp_path / "model.arrow"
    done(*fit_command(shop), "--catalog", tmp_path / "few.parquet", "--unknown", "other", "--out", model)
    for share, expected in ((2, []), (10, ["10% of the rounds"])):
        items = [*["i19"] * share, *["i03"] * (100 - share)]
        pq.write_table(log_table(100, 9).set_column(3, "item", pa.array(items)), tmp_path / "late.parquet")
        late = ["update", "--model", model, "--logs", tmp_path / "late.parquet", *ROLES, "--out", tmp_path / "m.arrow"]
        for choice in ("drop", "other"):
            told = figures(*late, "--unknown", choice)["warnings"]
            assert [one[: len("10% of the rounds")] for one in told if "out of date" in one] == expected


def test_the_file_of_a_catalog_cannot_be_forgotten_in_a_fit(shop, tmp_path):
    spec = tmp_path / "spec.toml"
    spec.write_text('[catalog]\nid = "sku"\ncategory = "kind"\n')
    fit = ["fit", "--spec", spec, "--logs", shop / "old", *CONTEXT, *ROLES, "--out", tmp_path / "m.arrow"]
    refused(*fit, words=["not its file", "pass --catalog, or path under [catalog]"])
    done(*fit, "--catalog", shop / "items.parquet", "--no-learn-prior")
    # These have it from the model.
    done("evaluate", "--spec", spec, "--model", tmp_path / "m.arrow", "--logs", shop / "new", *ROLES)
    update = ["update", "--spec", spec, "--model", tmp_path / "m.arrow", "--logs", shop / "new", *ROLES]
    assert "200 new rounds, 0 new actions; now 800 rounds" in done(*update, "--out", tmp_path / "m.arrow").stdout


def test_rounds_later_than_now_are_counted_in_full_and_told(shop, tmp_path):
    at = np.array([moment.timestamp() for moment in pq.read_table(shop / "old")["at"].to_pylist()])
    now = datetime(2024, 1, 8, tzinfo=UTC)
    later = int((at > now.timestamp()).sum())
    assert later > 0
    aged = [*fit_command(shop), "--no-learn-prior", "--time", "at", "--half-life", "2d", "--out", tmp_path / "m.arrow"]
    told = figures(*aged, "--now", now.isoformat())["warnings"]
    assert any(one.startswith(f"{later:,} rounds are later than --now") for one in told)
    assert not any("later" in one for one in figures(*aged, "--now", "2024-02-01T00:00:00+00:00")["warnings"])
    assert not any("later" in one for one in figures(*aged, "--maturity", "1d", "--now", now.isoformat())["warnings"])
    refused(*aged, "--now", "2024-02-01", words=["--now must have a time zone", "as in 2024-02-01T00:00:00+00:00"])


def test_what_is_true_of_several_policies_or_judges_is_said_once(shop):
    judge = ["evaluate", "--model", shop / "model.arrow", "--logs", shop / "new", *ROLES, "--estimators", "ips,snips"]
    # The same policy twice, so that all is true of both.
    told = figures(*judge, "--policies", "softmax:0.01,softmax:0.010,uniform")
    by_policy = {row["policy"]: row["warnings"] for row in told["policies"]}
    weak = [one for one in by_policy["softmax:0.01"] if one.startswith("ips, snips: the effective sample size is only")]
    assert len(weak) == 1 and weak[0] in by_policy["softmax:0.010"] and weak[0] not in by_policy["uniform"]
    assert [one for one in told["warnings"] if weak[0] in one] == [f"softmax:0.01, softmax:0.010: {weak[0]}"]
    assert weak[0] in figures(*judge, "--policies", "softmax:0.01,softmax:0.010")["warnings"]


def test_policies_and_estimators_by_name(shop):
    posterior = ma.load(shop / "model.arrow")
    assert policy_named("pessimistic:0.2", posterior).delta == 0.2
    assert policy_named("thompson:7", posterior, n_draws=5).n_draws == 7
    assert policy_named("thompson", posterior, n_draws=5).n_draws == 5
    assert policy_named("uniform", n_actions=3).n_actions == 3
    assert estimator_named("ips:0.1").clip == 0.1 and estimator_named("switch-dr:5", posterior).parameter == 5.0
    for words, call in (
        ("no policy 'gredy'; there are greedy, pessimistic", lambda: policy_named("gredy", posterior)),
        ("needs a number, its temperature", lambda: policy_named("softmax", posterior)),
        ("takes no number", lambda: policy_named("greedy:1", posterior)),
        ("a number behind its colon", lambda: policy_named("softmax:warm", posterior)),
        ("a whole number", lambda: policy_named("thompson:1.5", posterior)),
        ("is made of a model", lambda: policy_named("greedy")),
        ("how many actions", lambda: policy_named("uniform")),
        ("no estimator 'dm'", lambda: estimator_named("dm", posterior)),
        ("uses a reward model", lambda: estimator_named("dr")),
        ("a floor on the propensity.*weights of at most 10 write ips:0.1", lambda: estimator_named("ips:10")),
        ("a floor on the propensity, from 0 to 1", lambda: estimator_named("dr:-1", posterior)),
        ("weights of at most 10 pass cap=10", lambda: ma.SNIPS(10.0)),
    ):
        with pytest.raises(InputError, match=words):
            call()


# ---------------------------------------------------------------- bad input: one line, exit code 2, nothing left behind


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["--context", "age,height"], ["no column 'height'", "there are user, age, city"]),
        (["--action", "sku"], ["no column 'sku'"]),
        (["--id", "nr"], ["no column 'nr'", "there are sku, kind, size"]),
        (["--category", "brand"], ["no column 'brand'"]),
        (["--catalog", "nowhere.parquet"], ["there is no file or folder nowhere.parquet"]),
        (["--logs", "empty"], ["holds no file"]),
        (["--logs", "logs/*.parquet"], ["nothing matches"]),
        (["--logs", "truncated"], ["part.parquet cannot be read"]),
        (["--logs", "mixed"], ["b.parquet cannot be read", "same types"]),
        (["--logs", "strangers.parquet"], ["row 3 has 'i99'", "--unknown drop or --unknown other"]),
        (["--logs", "holes.parquet"], ["column age is missing in row 2", "pass --missing drop"]),
        (["--catalog", "twice.parquet"], ["ids must be unique"]),
        (["--prior", "tags"], ["the catalog has no tags"]),
        (["--prior", "clusters"], ["--prior must be one of categories"]),
        (["--likelihood", "bernoulli"], ["rewards must be 0 or 1", "row 0 (row 0 of ", "day=0/part.parquet) has"]),
        (["--half-life", "2d"], ["--half-life and --maturity need", "pass --time"]),
        (["--maturity", "0d"], ["--maturity must be above zero"]),
        (["--reward", "same"], ["all rewards are equal|no column"]),
        (["--spec", "nowhere.toml"], ["cannot use nowhere.toml: No such file"]),
        (["--spec", "wrong.toml"], ["has no key 'colour'"]),
        (["--out", "file/model.arrow"], ["there is none at file"]),
        (["--out", "empty"], ["empty is a folder"]),
        (["--engine", "sparc", "--logs", "nowhere"], ["--engine must be local, dask or spark; got 'sparc'"]),
    ],
    ids=lambda value: value[0].strip("-") + "-" + str(value[1]) if isinstance(value, list) and len(value) == 2 else "",
)
def test_bad_input_to_fit_is_one_line(change, words, shop, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _spoil(tmp_path)
    before = sorted(os.listdir(tmp_path))
    command = [*fit_command(shop), "--out", "model.arrow"]
    said = refused(*command, *change, words=[] if "|" in words[0] else words)
    assert "|" not in words[0] or any(one in said for one in words[0].split("|"))
    assert sorted(os.listdir(tmp_path)) == before


def _spoil(folder):
    """Files as they should not be."""
    for name in ("empty", "truncated", "mixed"):
        (folder / name).mkdir()
    rows = log_table(50, 0)
    pq.write_table(rows, folder / "truncated" / "part.parquet")
    whole = (folder / "truncated" / "part.parquet").read_bytes()
    (folder / "truncated" / "part.parquet").write_bytes(whole[: len(whole) // 2])
    pq.write_table(rows, folder / "mixed" / "a.parquet")
    texts = pa.array([f"{age:.1f} years" for age in rows["age"].to_pylist()])
    pq.write_table(rows.set_column(1, "age", texts), folder / "mixed" / "b.parquet")
    items = rows["item"].to_pylist()
    items[3] = "i99"
    pq.write_table(rows.set_column(3, "item", pa.array(items)), folder / "strangers.parquet")
    ages = rows["age"].to_pylist()
    ages[2] = None
    pq.write_table(rows.set_column(1, "age", pa.array(ages)), folder / "holes.parquet")
    pq.write_table(pa.concat_tables([catalog_table(), catalog_table(2)]), folder / "twice.parquet")
    (folder / "wrong.toml").write_text('[prior]\ncolour = "blue"\n')
    (folder / "file").write_text("not a folder")


def test_bad_input_to_the_others_is_one_line(shop, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _spoil(tmp_path)
    before = sorted(os.listdir(tmp_path))
    model, policy, new = shop / "model.arrow", shop / "policy.arrow", shop / "new"
    judge = ["evaluate", "--model", model, "--logs", new, *ROLES]
    refused("evaluate", "--model", "nowhere.arrow", "--logs", new, *ROLES, words=["nowhere.arrow"])
    refused("evaluate", "--model", new / "day=3" / "part.parquet", "--logs", new, *ROLES, words=["part.parquet"])
    refused("evaluate", "--model", policy, "--logs", new, *ROLES, words=["holds a policy", "manyarms fit"])
    refused(*judge, "--policies", model, words=["holds a model", "manyarms learn"])
    refused(*judge, "--policies", "best", words=["no policy 'best'", "greedy"])
    refused(*judge, "--policies", "lost.arrow", words=["lost.arrow"])
    refused("evaluate", "--model", model, *ROLES, words=["--logs is needed", "path under [logs]"])
    refused("evaluate", "--model", model, "--logs", new, "--reward", "spend", words=["--action is needed"])
    unlogged = ["--action", "item", "--reward", "spend", "--estimators", "ips"]
    refused("evaluate", "--model", model, "--logs", new, *unlogged, words=["--propensity"])
    refused(
        "evaluate", "--logs", new, *CONTEXT, *ROLES, "--policies", "uniform", words=["pass --model, or --estimators"]
    )
    refused("evaluate", "--logs", new, *CONTEXT, *ROLES, "--policies", "greedy", words=["made of a model"])
    refused("learn", "--model", model, "--policy", "softmax", "--out", "p.arrow", words=["needs a number"])
    refused("learn", "--model", model, "--policy", "softmax:-1", "--out", "p.arrow", words=["temperature"])
    score = ["score", "--model", model, "--out", "s.parquet", "--contexts"]
    pq.write_table(log_table(5, 0).drop_columns(["city"]), tmp_path / "other.parquet")
    before = sorted(os.listdir(tmp_path))
    refused(*score, "other.parquet", words=["no column 'city'", "there are user, age"])
    refused(*score, new, "--keep", "email", words=["no column 'email'"])
    refused(*score, new, "--eligible", "age", words=["column age must hold lists"])
    refused(*score, new, "--top-k", 21, words=["--top-k must be at most the 20 actions"])
    refused(*score, "truncated", words=["part.parquet cannot be read"])
    refused(*score, "holes.parquet", words=["column age is missing in row 2"])
    update = ["update", "--model", model, "--out", "m.arrow", *ROLES, "--logs"]
    refused(*update, "other.parquet", words=["no column 'city'"])
    refused(*update, "strangers.parquet", words=["row 3 has 'i99'"])
    refused(*update, new, "--catalog", shop / "items.csv", "--id", "sku", words=["the new catalog has no categories"])
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("out", ["x" * 250, "/proc/out"])
def test_a_place_that_cannot_be_written_is_refused_before_any_work(out, shop, tmp_path, monkeypatch):
    if not os.path.isdir(os.path.dirname(out) or "."):
        pytest.skip("NOT RUN: there is no /proc, a folder that nobody can write to")
    monkeypatch.chdir(tmp_path)
    words = ["--out cannot be written", "Name another place"]
    refused("fit", "--logs", "nowhere", *CONTEXT, *ROLES, "--out", out, words=words)
    refused("update", "--model", "nowhere", "--logs", "nowhere", *ROLES, "--out", out, words=words)
    refused("learn", "--model", "nowhere", "--out", out, words=words)
    refused("score", "--model", "nowhere", "--contexts", "nowhere", "--out", out, words=words)
    spread = ["score", "--engine", "dask", "--model", "nowhere", "--contexts", "nowhere", "--out"]
    refused(*spread, "/proc/scores/today", words=[*words, "/proc"])
    assert os.listdir(tmp_path) == []


def test_a_file_where_a_folder_is_to_be_and_the_other_way_round_say_what_to_do(shop, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    command = ["score", "--model", shop / "model.arrow", "--contexts", shop / "new", "--out"]
    refused(*command, tmp_path / "folder", words=["folder is a folder", "Name another place, or remove it"])
    refused(*command, tmp_path / "file", "--engine", "dask", words=["file is a file", "leave --engine out"])
    refused(*command, tmp_path / "file" / "scores", "--engine", "dask", words=["must lie in a folder"])
    with pytest.raises(InputError, match="is a folder, such as other engines write"):
        ma.score(ma.load(shop / "model.arrow"), shop / "new", tmp_path / "folder")


def test_drafts_of_processes_that_are_gone_are_removed_and_no_others(shop, tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    draft = draft_of(tmp_path / "policy.arrow").name
    mine = f"-{os.getpid()}-"
    assert mine in draft
    machine = draft.split(".")[-2].split("-")[0]
    dead = draft.replace(mine, f"-{gone.pid}-")
    others = [
        draft.replace(mine, f"-{os.getppid()}-"),
        dead.replace(machine, "0" * len(machine)),
        dead.replace("policy", "other-policy"),
        "policy.arrow.tmp",
    ]
    for name in (dead, *others):
        (tmp_path / name).touch()
    done("learn", "--model", shop / "model.arrow", "--out", tmp_path / "policy.arrow")
    assert sorted(os.listdir(tmp_path)) == sorted([*others, "policy.arrow"])


def test_bad_rows_deep_in_a_file_leave_the_old_scores_as_they_were(shop, tmp_path):
    rows = log_table(40_000, 0)
    ages = rows["age"].to_pylist()
    ages[39_999] = None
    pq.write_table(rows.set_column(1, "age", pa.array(ages)), tmp_path / "rows.parquet")
    (tmp_path / "scores.parquet").write_bytes(b"old")
    command = ["score", "--model", shop / "model.arrow", "--contexts", tmp_path / "rows.parquet"]
    refused(*command, "--out", tmp_path / "scores.parquet", words=["column age is missing in row 39999"])
    refused(*command, "--out", tmp_path / "rows.parquet", words=["one of the files to be read"])
    assert sorted(os.listdir(tmp_path)) == ["rows.parquet", "scores.parquet"]
    assert (tmp_path / "scores.parquet").read_bytes() == b"old"


@pytest.mark.parametrize("command", ["fit", "learn", "score", "update"])
def test_a_full_disk_is_one_line_and_leaves_nothing(command, shop, tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    new = ["--logs", shop / "new", *ROLES]
    arguments = {
        "fit": fit_command(shop),
        "learn": ["learn", "--model", shop / "model.arrow"],
        "score": ["score", "--model", shop / "model.arrow", "--contexts", shop / "new"],
        "update": ["update", "--model", shop / "model.arrow", *new],
    }[command]
    monkeypatch.setattr(os, "fsync", full)
    refused(*arguments, "--out", tmp_path / "out", words=["out could not be written: No space left on device"])
    assert os.listdir(tmp_path) == []


def in_process(*arguments, before="", **options):
    code = f"{before}\nfrom manyarms.cli import app\napp()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def test_a_disk_that_fills_up_while_scores_are_written(shop, tmp_path):
    pq.write_table(log_table(30_000, 0), tmp_path / "rows.parquet")
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({1 << 16}, {resource.RLIM_INFINITY}))"
    out = ["--contexts", tmp_path / "rows.parquet", "--keep", "user", "--out", tmp_path / "scores.parquet"]
    process = in_process("score", "--model", shop / "model.arrow", *out, before=limit)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 2, stderr
    assert stdout == "" and stderr.startswith(f"manyarms: error: {tmp_path / 'scores.parquet'} could not be written")
    assert stderr.count("\n") == 1 and os.listdir(tmp_path) == ["rows.parquet"]


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_command_that_is_stopped_leaves_nothing(sent, code, shop, tmp_path):
    """In the middle of its writing."""
    slow = (
        "import sys, time, pyarrow.parquet as pq\n"
        "def wait(*a, **k): print('ready', file=sys.stderr, flush=True); time.sleep(60)\n"
        "pq.ParquetWriter.write_table = wait"
    )
    out = ["--contexts", shop / "new", "--out", tmp_path / "scores.parquet"]
    process = in_process("score", "--model", shop / "model.arrow", *out, before=slow)
    assert process.stderr.readline() == "ready\n"
    assert len(os.listdir(tmp_path)) == 1
    time.sleep(0.2)
    process.send_signal(sent)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == code and stderr == "manyarms: error: stopped.\n"
    assert os.listdir(tmp_path) == []


def test_arithmetic_that_fails_is_exit_code_1(shop, tmp_path):
    rows = log_table(50, 0)
    pq.write_table(rows.set_column(4, "spend", pa.array(np.full(50, 1e200))), tmp_path / "huge.parquet")
    command = [
        *fit_command(shop),
        "--logs",
        tmp_path / "huge.parquet",
        "--no-learn-prior",
        "--out",
        tmp_path / "m.arrow",
    ]
    refused(*command, words=["overflow"], code=1)


# ---------------------------------------------------------------- signs of life


def test_progress_counts_the_rows_of_every_pass(shop):
    seen = []
    source = ProgressSource(FileSource(shop / "old"), lambda done, total: seen.append((done, total)))
    stream = ma.read_logs(source, ["age"], "item", "spend")
    stream.collect()
    assert source.n_rows == 600 and {total for _, total in seen} == {600}
    assert [done for done, _ in seen].count(0) == 3 == [done for done, _ in seen].count(600)
    assert stream.fingerprint == ma.read_logs(shop / "old", ["age"], "item", "spend").fingerprint


def test_a_bar_appears_on_a_terminal_after_a_while_and_is_gone_at_the_end(monkeypatch):
    from manyarms.cli import terminal

    class Terminal:
        def __init__(self):
            self.text = ""

        def isatty(self):
            return True

        def write(self, text):
            self.text += text

        def flush(self):
            pass

    for patience, shows in ((0.0, True), (60.0, False)):
        screen = Terminal()
        monkeypatch.setattr(sys, "stderr", screen)
        monkeypatch.setattr(terminal, "PATIENCE", patience)
        monkeypatch.setenv("TERM", "xterm")
        with terminal.row_bar("Reading") as report:
            for done in range(0, 5000, 500):
                report(done, 5000)
                time.sleep(0.02)
        assert ("Reading" in screen.text and "rows/s" in screen.text) == shows
    with terminal.row_bar("Reading") as report:
        report(1, None)


@pytest.mark.parametrize("command", ["fit", "evaluate", "learn", "score", "update"])
def test_help_shows_an_example_that_parses(command):
    shown = done(command, "--help").stdout
    assert f"Example: manyarms {command} --" in shown.replace("\n", " ")
