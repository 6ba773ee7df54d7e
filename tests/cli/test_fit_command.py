"""fit: the model that the library fits, whatever the likelihood, the ages and the catalog."""

import inspect
import os
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
    in_python,
    log_table,
    refused,
    run,
    write_bad_files,
)

import manyarms as ma
from manyarms.cli import commands
from manyarms.jobs.fit_files import rewards_are_binary


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


@pytest.mark.slow
def test_fit_says_which_priors_it_compared(shop, tmp_path):
    out = tmp_path / "auto.arrow"
    shown = figures(*fit_command(shop), "--prior", "auto", "--out", out)
    names = [row["name"] for row in shown["prior_comparison"]]
    assert sorted(names) == ["categories", "independent"]
    again = run(*fit_command(shop), "--prior", "auto", "--out", out)
    assert "is the simplest prior within one standard error" in " ".join(again.stdout.split())


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


def test_copies_among_the_logs_and_an_unused_context_give_warnings(shop, tmp_path):
    for name in ("one", "two"):
        (tmp_path / f"{name}.parquet").write_bytes((shop / "new" / "day=3" / "part.parquet").read_bytes())
    known = ["--catalog", shop / "items.csv", *CATALOG, "--no-learn-prior", "--out", tmp_path / "m.arrow"]
    twice = done("fit", *CONTEXT, *ROLES, "--logs", tmp_path, *known)
    assert "1 file is a copy of others among the logs" in twice.stderr
    other = done("evaluate", "--model", shop / "model.arrow", "--logs", shop / "new", *ROLES, "--context", "age")
    assert "context age is not used" in other.stderr


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


def test_clicks_taken_as_gaussian_give_a_warning_and_amounts_do_not(shop, tmp_path):
    clicks = run(*fit_command(shop), "--reward", "click", "--out", tmp_path / "m.arrow")
    assert clicks.exit_code == 0 and "bernoulli likelihood" in clicks.stderr
    assert rewards_are_binary(ma.load(tmp_path / "m.arrow"))
    assert not rewards_are_binary(ma.load(shop / "model.arrow"))


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
    for unknown, shows in (("other", True), ("drop", False)):
        shown = done(*base, "--unknown", unknown, "--out", tmp_path / f"{unknown}.arrow").stdout
        assert ("Counted as (other): 25 rows (unknown action)." in shown) == ("Counted as" in shown) == shows
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


def test_the_file_of_a_catalog_cannot_be_forgotten_in_a_fit(shop, tmp_path):
    spec = tmp_path / "spec.toml"
    spec.write_text('[catalog]\nid = "sku"\ncategory = "kind"\n')
    fit = ["fit", "--spec", spec, "--logs", shop / "old", *CONTEXT, *ROLES, "--out", tmp_path / "m.arrow"]
    refused(*fit, words=["not its file", "Pass --catalog, or path under [catalog]"])
    done(*fit, "--catalog", shop / "items.parquet", "--no-learn-prior")
    # These have it from the model.
    done("evaluate", "--spec", spec, "--model", tmp_path / "m.arrow", "--logs", shop / "new", *ROLES)
    update = ["update", "--spec", spec, "--model", tmp_path / "m.arrow", "--logs", shop / "new", *ROLES]
    assert "200 new rounds, 0 new actions; now 800 rounds" in done(*update, "--out", tmp_path / "m.arrow").stdout


def test_rounds_later_than_now_are_counted_in_full_with_a_warning(shop, tmp_path):
    at = np.array([moment.timestamp() for moment in pq.read_table(shop / "old")["at"].to_pylist()])
    now = datetime(2024, 1, 8, tzinfo=UTC)
    later = int((at > now.timestamp()).sum())
    assert later > 0
    aged = [*fit_command(shop), "--no-learn-prior", "--time", "at", "--half-life", "2d", "--out", tmp_path / "m.arrow"]
    told = figures(*aged, "--now", now.isoformat())["warnings"]
    assert any(one.startswith(f"{later:,} rounds are later than now") for one in told)
    assert not any("later" in one for one in figures(*aged, "--now", "2024-02-01T00:00:00+00:00")["warnings"])
    assert not any("later" in one for one in figures(*aged, "--maturity", "1d", "--now", now.isoformat())["warnings"])
    refused(*aged, "--now", "2024-02-01", words=["--now must have a time zone", "as in 2024-02-01T00:00:00+00:00"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["--context", "age,height"], ["no column 'height'", "the columns are user, age, city"]),
        (["--action", "sku"], ["no column 'sku'"]),
        (["--id", "nr"], ["no column 'nr'", "its columns are sku, kind, size"]),
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
        (["--prior", "clusters"], ["--prior must be one of auto, categories"]),
        (["--prior", "auto", "--no-learn-prior"], ["--prior is auto", "drop --no-learn-prior"]),
        (["--likelihood", "bernoulli"], ["rewards must be 0 or 1", "row 0 (row 0 of ", "day=0/part.parquet) has"]),
        (["--half-life", "2d"], ["--half-life and --maturity need", "--time"]),
        (["--maturity", "0d"], ["--maturity must be above zero"]),
        (["--reward", "same"], ["all rewards are equal|no column"]),
        (["--spec", "nowhere.toml"], ["cannot use nowhere.toml: No such file"]),
        (["--spec", "wrong.toml"], ["has no key 'colour'"]),
        (["--out", "file/model.arrow"], ["file does not exist"]),
        (["--out", "empty"], ["empty is a folder"]),
        (["--engine", "sparc", "--logs", "nowhere"], ["--engine must be local, dask, spark or ibis; got 'sparc'"]),
    ],
    ids=lambda value: value[0].strip("-") + "-" + str(value[1]) if isinstance(value, list) and len(value) == 2 else "",
)
def test_bad_input_to_fit_is_one_line(change, words, shop, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_bad_files(tmp_path)
    before = sorted(os.listdir(tmp_path))
    command = [*fit_command(shop), "--out", "model.arrow"]
    said = refused(*command, *change, words=[] if "|" in words[0] else words)
    assert "|" not in words[0] or any(one in said for one in words[0].split("|"))
    assert sorted(os.listdir(tmp_path)) == before


def test_rewards_that_overflow_are_bad_input(shop, tmp_path):
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
    refused(*command, words=["overflow"])


def test_every_command_with_a_seed_starts_from_zero():
    defaults = {
        name: inspect.signature(command).parameters["seed"].default
        for name, command in vars(commands).items()
        if name.endswith("_command") and "seed" in inspect.signature(command).parameters
    }
    assert "fit_command" in defaults
    assert set(defaults.values()) == {0}
