"""Logs from tables and files: roles, features, ids, missing values, time, errors with global row numbers."""

import gzip
from datetime import UTC, datetime, timedelta, timezone

import jaxtyping
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import manyarms as ma
from manyarms.core.feature_map import Categorical, Embedding, FeatureMap, Numeric
from manyarms.errors import ActionError, DataFileError, DataTypeError, InputError, NonFiniteError
from manyarms.logs.age_rule import seconds_between
from manyarms.logs.learn_features import learn_features
from manyarms.logs.row_reader import DroppedRows
from manyarms.logs.sources import as_source

N = 300
ROLES = {"context": ["age", "city"], "action": "item", "reward": "click"}


def table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "age": rng.normal(40, 12, n),
            "city": rng.choice(["Oslo", "Riga", "Turin"], n, p=[0.2, 0.5, 0.3]),
            "item": rng.choice([f"i{k:02d}" for k in range(12)], n),
            "click": rng.integers(0, 2, n),
            "p": rng.uniform(0.1, 1, n),
            "user": rng.integers(0, 40, n),
            "at": [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=int(h)) for h in rng.integers(0, 240, n)],
        }
    )


def columns_of(logs):
    return [logs.contexts, logs.actions, logs.rewards, logs.propensities, logs.weights, logs.groups]


def assert_same(first, second):
    for one, other in zip(columns_of(first), columns_of(second), strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def written(kind, folder):
    whole = table().drop_columns(["at"])
    parts = [whole.slice(i * 100, 100) for i in range(3)]
    if kind == "parquet":
        for i, part in enumerate(parts):
            pq.write_table(part, folder / f"part-{i}.parquet", row_group_size=30)
    elif kind == "csv":
        for i, part in enumerate(parts):
            pa.csv.write_csv(part, folder / f"part-{i}.csv")
    elif kind == "csv.gz":
        pa.csv.write_csv(whole, folder / "all.csv")
        (folder / "all.csv.gz").write_bytes(gzip.compress((folder / "all.csv").read_bytes()))
        (folder / "all.csv").unlink()
    else:
        with pa.OSFile(str(folder / "all.arrow"), "wb") as sink, pa.ipc.new_file(sink, whole.schema) as writer:
            writer.write_table(whole)
    (folder / "_SUCCESS").touch()
    return folder


# ---------------------------------------------------------------- sources


@pytest.fixture
def own_errors():
    """Our own checks speak, rather than those of the types."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize("kind", ["pandas", "polars", "lazy", "batches", "function", "reader", "list of files"])
def test_tables_and_batches_of_every_kind_give_the_same_rounds(kind, tmp_path):
    whole = table()
    pq.write_table(whole, tmp_path / "one.parquet")
    given = {
        "pandas": whole.to_pandas,
        "polars": lambda: pl.from_arrow(whole),
        "lazy": lambda: pl.from_arrow(whole).lazy(),
        "batches": lambda: whole.to_batches(max_chunksize=70),
        "function": lambda: lambda: iter(whole.to_batches(max_chunksize=70)),
        "reader": lambda: whole.to_reader(max_chunksize=70),
        "list of files": lambda: [tmp_path / "one.parquet"],
    }[kind]()
    expected = ma.read_logs(whole, **ROLES, propensity="p", group="user")
    features, catalog = _known(whole)
    found = ma.read_logs(given, **ROLES, propensity="p", group="user", features=features, catalog=catalog)
    assert_same(found if isinstance(found, ma.LoggedData) else found.collect(), expected)
    assert isinstance(found, ma.LoggedData) == (kind in ("pandas", "polars", "lazy"))


def _known(whole):
    return learn_features([whole], ROLES["context"], max_levels=100), ma.Catalog(sorted(set(whole["item"].to_pylist())))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquet", "csv", "csv.gz", "arrow"])
@pytest.mark.parametrize("how", ["folder", "glob"])
def test_files_of_every_kind_give_the_rounds_of_the_table(kind, how, tmp_path):
    folder = written(kind, tmp_path)
    stream = ma.read_logs(folder if how == "folder" else str(folder / "*.*[a-z]"), **ROLES)
    assert_same(stream.collect(), ma.read_logs(table(), **ROLES))
    for size in (1, 37, 1000):
        batches = list(stream.batches(size))
        assert max(len(batch) for batch in batches) <= size
        assert_array_equal(np.concatenate([batch.rewards for batch in batches]), stream.collect().rewards)


def test_columns_in_the_names_of_folders_are_columns(tmp_path):
    whole = table().drop_columns(["at"])
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(whole.slice(100 * day, 100), tmp_path / f"day={day}" / "x.parquet")
    logs = ma.read_logs(tmp_path, context=["age", "day"], action="item", reward="click").collect()
    assert_array_equal(np.sign(logs.contexts[:, 2]), np.repeat([-1.0, 1.0], 100))


def test_logs_of_a_file_have_the_columns_and_methods_of_a_frame(tmp_path):
    rows = table().set_column(0, "age", pa.array([None, *table()["age"].to_pylist()[1:]]))
    pq.write_table(rows, tmp_path / "log.parquet")
    read = {**ROLES, "propensity": "p", "group": "user", "time": "at", "missing": "drop"}
    here, there = ma.read_logs(rows, **read), ma.read_logs(tmp_path / "log.parquet", keep="user", **read)
    public = [name for name in dir(here) if not name.startswith("_") and name not in ("checked", "counted", "keeping")]
    assert set(public) <= set(dir(there))
    for name in public:
        assert type(getattr(there, name)) is type(getattr(here, name)), name
    assert_same(here, there)
    assert len(here) == len(there) == N - 1 and here.dropped == there.dropped == DroppedRows(missing=1)
    for by in ("row", "group", "time"):
        halves = [logs.split(0.5, by=by, rng=np.random.default_rng(1)) for logs in (here, there)]
        for one, other in zip(*halves, strict=True):
            assert_same(one, other)
    with pytest.raises(AttributeError, match="'LogStream' object has no attribute 'rewardz'"):
        _ = there.rewardz


def test_an_iterator_is_read_once_and_then_refused(tmp_path):
    whole = table()
    features, catalog = _known(whole)
    stream = ma.read_logs(iter(whole.to_batches(max_chunksize=50)), **ROLES, features=features, catalog=catalog)
    assert len(stream.collect()) == N
    with pytest.raises(InputError, match="read only once"):
        stream.collect()


# ---------------------------------------------------------------- features


def test_features_are_standardised_one_hot_and_embedded_as_pandas_would():
    whole = table().append_column("emb", pa.array([[float(i), 1.0] for i in range(N)]))
    phi = learn_features(whole.to_batches(max_chunksize=33), ["age", "city", "emb"], max_levels=100)
    frame = whole.to_pandas()
    age = (frame["age"] - frame["age"].mean()) / frame["age"].std(ddof=0)
    one_hot = pd.get_dummies(frame["city"]).astype(float)
    expected = np.column_stack([np.ones(N), age, one_hot, np.zeros(N), np.stack(frame["emb"])])
    assert_allclose(phi(whole), expected, rtol=1e-12, atol=1e-12)
    assert phi.names == (
        "(intercept)", "age", "city=Oslo", "city=Riga", "city=Turin", "city=(other)", "emb[0]", "emb[1]",
    )  # fmt: skip


def test_what_is_learned_does_not_depend_on_batches_or_their_order():
    whole = table()
    first = learn_features([whole], ["age", "city"], max_levels=100)
    second = learn_features(list(reversed(whole.to_batches(max_chunksize=7))), ["age", "city"], max_levels=100)
    assert_allclose(first(whole), second(whole), rtol=1e-12, atol=1e-12)


def test_numbers_far_from_zero_keep_their_digits():
    far = pa.table({"x": 1e9 + np.arange(1000.0)})
    (x,) = learn_features(far.to_batches(max_chunksize=9), ["x"], max_levels=100, intercept=False)(far).T
    assert_allclose(x, (np.arange(1000) - 499.5) / np.arange(1000).std(), rtol=1e-9)


def test_rare_levels_share_one_feature_and_new_ones_join_them():
    cities = pa.table({"city": ["a"] * 5 + ["b"] * 4 + ["c", "d"]})
    phi = learn_features([cities], ["city"], max_levels=2, intercept=False)
    assert phi.names == ("city=a", "city=b", "city=(other)")
    assert_array_equal(phi(pa.table({"city": ["d", "b", "never seen"]})), [[0, 0, 1], [0, 1, 0], [0, 0, 1]])


def test_whole_numbers_are_categories_when_they_are_named():
    years = pa.table({"year": [1999, 2001, 1999]})
    assert isinstance(learn_features([years], ["year"], max_levels=100).features[0], Numeric)
    assert learn_features([years], ["year"], max_levels=100, categorical=["year"]).features[0] == Categorical(
        "year", (1999, 2001)
    )


def test_a_map_comes_back_from_json():
    phi = FeatureMap([Numeric("a", 1.5, 2.5), Categorical("b", ("x", "y")), Embedding("c", 3)], intercept=False)
    assert FeatureMap.from_json(phi.as_json()) == phi
    for damage in ({}, {"features": [{"kind": "code", "column": "a"}], "intercept": True}, {"features": 3}):
        with pytest.raises(InputError, match="not a feature map"):
            FeatureMap.from_json(damage)


# ---------------------------------------------------------------- missing values, ids, time


def test_rows_that_lack_a_value_are_refused_by_their_number_in_the_whole_or_dropped_and_counted(tmp_path):
    whole = table().drop_columns(["at"])
    age, city = whole["age"].to_pylist(), whole["city"].to_pylist()
    age[150], age[20], city[222] = float("nan"), None, None
    whole = whole.set_column(0, "age", pa.array(age)).set_column(1, "city", pa.array(city))
    for i in range(3):
        pq.write_table(whole.slice(100 * i, 100), tmp_path / f"{i}.parquet", row_group_size=10)
    with pytest.raises(NonFiniteError, match="column age is missing in row 20"):
        ma.read_logs(tmp_path, **ROLES)
    stream = ma.read_logs(tmp_path, **ROLES, missing="drop")
    assert len(stream.collect()) == N - 3 and stream.dropped == DroppedRows(missing=3)
    keep = np.setdiff1d(np.arange(N), [20, 150, 222])
    assert_same(stream.collect(), ma.read_logs(whole.take(keep), **ROLES))


def test_an_unknown_action_is_refused_by_its_number_in_the_whole_or_dropped_and_counted(tmp_path):
    folder, items = written("parquet", tmp_path), table()["item"].to_pylist()
    catalog = ma.Catalog([item for item in sorted(set(items)) if item != "i07"] + ["never logged"])
    stream = ma.read_logs(folder, **ROLES, catalog=catalog)
    with pytest.raises(ActionError, match=rf"row {items.index('i07')} \(row \d+ of .*\) has 'i07'"):
        stream.collect()
    stream = ma.read_logs(folder, **ROLES, catalog=catalog, unknown="drop")
    logs = stream.collect()
    assert logs.n_actions == 12 and stream.dropped == DroppedRows(unknown=items.count("i07"))
    assert [catalog.ids[a] for a in logs.actions] == [item for item in items if item != "i07"]


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_bad_value_deep_in_a_folder_is_named_by_its_number_in_the_whole_and_in_its_file(kind, tmp_path):
    whole = table().drop_columns(["at"])
    p = whole["p"].to_pylist()
    p[273] = 1.5
    whole = whole.set_column(4, "p", pa.array(p))
    for i in range(3):
        part = whole.slice(100 * i, 100)
        if kind == "csv":
            pa.csv.write_csv(part, tmp_path / f"{i}.csv")
        else:
            pq.write_table(part, tmp_path / f"{i}.parquet", row_group_size=10)
    words = r"propensities must lie in \(0, 1\]; row 273"
    stream = ma.read_logs(tmp_path, **ROLES, propensity="p")
    with pytest.raises(InputError, match=words + rf" \(row 73 of .*2\.{kind}\) has 1\.5"):
        stream.collect()
    alone = ma.read_logs(whole, **ROLES)  # one table: its number says it all
    with pytest.raises(InputError, match=words + " has 1.5"):
        ma.read_logs(whole, **ROLES, propensity="p", features=alone.features)


def test_rows_keep_their_numbers_when_others_are_dropped_before_them(tmp_path):
    whole = table().drop_columns(["at"])
    age, item, p = (whole[name].to_pylist() for name in ("age", "item", "p"))
    age[210], age[220], item[230], p[273] = None, float("nan"), "stranger", -1.5
    for name, values in {"age": age, "item": item, "p": p}.items():
        whole = whole.set_column(whole.column_names.index(name), name, pa.array(values))
    for i in range(3):
        pq.write_table(whole.slice(100 * i, 100), tmp_path / f"{i}.parquet")
    catalog = ma.Catalog(sorted(set(item) - {"stranger"}))
    stream = ma.read_logs(tmp_path, **ROLES, propensity="p", catalog=catalog, missing="drop", unknown="drop")
    with pytest.raises(InputError, match=r"row 273 \(row 73 of .*2\.parquet\) has -1\.5"):
        stream.collect()
    stream = ma.read_logs(tmp_path, **{**ROLES, "reward": "p"}, catalog=catalog, missing="drop", unknown="drop")
    with pytest.raises(InputError, match=r"row 273 \(row 73 of .*2\.parquet\) has -1\.5"):
        ma.fit(stream, ma.priors.independent(len(catalog), dim=stream.dim), ma.LogNormal())


def test_old_rounds_count_less_and_young_ones_not_yet():
    whole, now = table(), datetime(2024, 1, 11, tzinfo=UTC)
    logs = ma.read_logs(whole, **ROLES, time="at", half_life=timedelta(days=2), maturity=timedelta(days=1), now=now)
    age = np.array([(now - at).total_seconds() / 86400 for at in whole["at"].to_pylist()])
    assert len(logs) == (age >= 1).sum() < N
    assert_allclose(logs.weights, 0.5 ** (age[age >= 1] / 2))


# ---------------------------------------------------------------- refused


def test_what_cannot_be_read_is_refused_with_a_way_out(tmp_path, own_errors):
    def refused(words, *arguments, error=InputError, **options):
        with pytest.raises(error, match=words):
            ma.read_logs(*arguments, **{**ROLES, **options})

    refused("no column 'height'; the columns are age, city", table(), context=["age", "height"])
    refused("comes twice", table(), context=["age", "age"])
    refused("needs|need the time of each round", table(), half_life=timedelta(days=1))
    aged = {"time": "at", "half_life": timedelta(days=1)}
    refused(r"now must have a time zone.*in 2024-01-01T00:00:00\+00:00", table(), **aged, now=datetime(2024, 1, 1))
    naive = table().set_column(table().column_names.index("at"), "at", table()["at"].cast(pa.timestamp("us")))
    refused("now must have no time zone, as column at has none", naive, **aged, now=datetime(2024, 1, 1, tzinfo=UTC))
    # Read from the clock, now is local time where times have no zone.
    assert len(ma.read_logs(naive, **{**ROLES, **aged})) == table().num_rows
    refused('missing must be "refuse" or "drop"', table(), missing="ignore")
    refused("type timestamp.*hour of a time", table(), context=["at"], error=DataTypeError)
    refused("there is no file or folder", tmp_path / "nowhere.parquet", error=DataFileError)
    refused("nothing matches", str(tmp_path / "*.parquet"), error=DataFileError)
    refused("holds no file that ends in", tmp_path, error=DataFileError)
    refused("no rows|no batches", [], error=InputError)
    refused("must be a path, a table", 3, error=DataTypeError)
    (tmp_path / "x.xlsx").touch()
    refused("must end in one of", tmp_path / "x.xlsx", error=DataFileError)


def test_a_file_at_fault_is_named(tmp_path):
    folder = written("parquet", tmp_path)
    whole = (folder / "part-1.parquet").read_bytes()
    (folder / "part-1.parquet").write_bytes(whole[:-100])
    with pytest.raises(DataFileError, match=r"part-1\.parquet cannot be read"):
        ma.read_logs(folder, **ROLES)
    mixed = table().drop_columns(["at"]).slice(0, 5)
    pq.write_table(mixed.set_column(0, "age", pa.array(["old"] * 5)), folder / "part-1.parquet")
    with pytest.raises(DataFileError, match=r"part-1\.parquet cannot be read.*same types"):
        ma.read_logs(folder, **ROLES)


def test_sources_say_what_columns_they_have(tmp_path):
    assert as_source(written("csv", tmp_path)).columns == ["age", "city", "item", "click", "p", "user"]


# ---------------------------------------------------------------- fitting what does not fit into memory


@pytest.mark.parametrize("likelihood", [ma.Gaussian(0.5), ma.LogNormal(0.5)])
def test_a_stream_is_fitted_and_updated_to_what_the_rows_in_memory_give(likelihood, tmp_path):
    folder = written("parquet", tmp_path)
    whole = table().drop_columns(["at"])
    roles = {**ROLES, "reward": "p"}
    logs = ma.read_logs(whole, **roles)
    prior = ma.priors.independent(12, dim=logs.dim)
    expected = ma.fit(logs, prior, likelihood)
    features, catalog = (
        learn_features([whole], ROLES["context"], max_levels=100),
        ma.Catalog(sorted(set(whole["item"].to_pylist()))),
    )
    days = [ma.read_logs(folder / f"part-{i}.parquet", **roles, features=features, catalog=catalog) for i in range(3)]
    streamed = ma.fit(ma.read_logs(folder, **roles), prior, likelihood)
    daily = ma.fit(days[0], prior, likelihood).update(days[1]).update(days[2])
    for found in (streamed, daily):
        assert_allclose(found.weights.action_mean(), expected.weights.action_mean(), rtol=1e-10, atol=1e-10)
        assert_allclose(found.weights.action_cov([0, 5]), expected.weights.action_cov([0, 5]), rtol=1e-10, atol=1e-10)
        assert_allclose(found.log_evidence, expected.log_evidence, rtol=1e-10)


def test_a_reward_that_cannot_be_is_named_by_its_number_in_the_whole(tmp_path):
    whole = table().drop_columns(["at"])
    p = whole["p"].to_pylist()
    p[241] = -1.0
    for i in range(3):
        part = whole.set_column(4, "p", pa.array(p)).slice(100 * i, 100)
        pq.write_table(part, tmp_path / f"{i}.parquet", row_group_size=10)
    stream = ma.read_logs(tmp_path, **{**ROLES, "reward": "p"})
    with pytest.raises(InputError, match=r"row 241 \(row 41 of .*2\.parquet\) has -1\.0"):
        ma.fit(stream, ma.priors.independent(12, dim=stream.dim), ma.LogNormal(0.5))


LIKELIHOODS = [ma.Bernoulli(), ma.Bernoulli(treatment="laplace"), ma.Poisson(), ma.StudentT(0.5)]


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=str)
def test_passes_over_a_stream_take_the_steps_that_rounds_in_memory_take(likelihood, tmp_path, nothing_held):
    folder = written("parquet", tmp_path)
    stream = ma.read_logs(folder, **ROLES)
    prior = ma.priors.from_categories([i % 3 for i in range(12)], dim=stream.dim)
    expected, found = ma.fit(stream.collect(), prior, likelihood), ma.fit(stream, prior, likelihood)
    assert len(found.trace) == len(expected.trace) > 3
    assert_allclose(found.trace, expected.trace, rtol=1e-10)
    for one, other in (
        (found, expected),
        (found.update(stream, allow_repeats=True), expected.update(stream.collect())),
    ):
        assert_allclose(one.weights.action_mean(), other.weights.action_mean(), rtol=1e-8, atol=1e-8)
        assert_allclose(one.weights.action_cov([0, 5]), other.weights.action_cov([0, 5]), rtol=1e-8, atol=1e-8)
        assert_allclose(one.log_evidence, other.log_evidence, rtol=1e-8)


def test_a_stream_whose_full_steps_overshoot_comes_to_rest_where_rounds_in_memory_do(tmp_path, nothing_held):
    # A round or two for each action and a prior far too wide: Newton's step for all at once goes too far.
    rng = np.random.default_rng(3)
    whole = pa.table({"item": np.arange(60) % 40, "n": rng.poisson(20.0, 60).astype(float), "x": np.ones(60)})
    pq.write_table(whole, tmp_path / "counts.parquet", row_group_size=7)
    stream = ma.read_logs(
        tmp_path / "counts.parquet", ["x"], "item", "n", features=FeatureMap([Numeric("x")], intercept=False)
    )
    prior = ma.priors.independent(40, dim=1, mean=np.zeros(1), cov=100.0)
    expected = ma.fit(stream.collect(), prior, ma.Poisson(), tolerance=1e-10)
    found = ma.fit(stream, prior, ma.Poisson(), tolerance=1e-10)
    assert found.converged
    assert_allclose(found.log_evidence, expected.log_evidence, rtol=1e-9)
    assert_allclose(found.weights.action_mean(), expected.weights.action_mean(), atol=1e-4)


def test_an_unknown_action_counts_as_other_where_the_catalog_lists_it(tmp_path):
    folder, items = written("parquet", tmp_path), table()["item"].to_pylist()
    ids = [item for item in sorted(set(items)) if item != "i07"]
    stream = ma.read_logs(folder, **ROLES, catalog=ma.Catalog([*ids, "(other)"]), unknown="other")
    logs = stream.collect()
    assert [([*ids, "(other)"])[a] for a in logs.actions] == [i if i != "i07" else "(other)" for i in items]
    assert stream.dropped == DroppedRows(mapped=items.count("i07")) and stream.dropped.total == 0
    with pytest.raises(InputError, match=r"needs an action '\(other\)'"):
        ma.read_logs(folder, **ROLES, catalog=ma.Catalog(ids), unknown="other")


@pytest.mark.parametrize("offset", ["+02:00", ""])
def test_times_may_be_texts(offset):
    whole = table()
    zone = timezone(timedelta(hours=2)) if offset else UTC
    texts = [at.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S") + offset for at in whole["at"].to_pylist()]
    now = datetime(2024, 1, 11, tzinfo=UTC if offset else None)
    options = {"time": "at", "half_life": timedelta(days=2), "maturity": timedelta(days=1)}
    found = ma.read_logs(whole.set_column(6, "at", pa.array(texts)), **ROLES, **options, now=now)
    assert_same(found, ma.read_logs(whole, **ROLES, **options, now=now.replace(tzinfo=UTC)))
    with pytest.raises(DataTypeError, match="column at must hold times"):
        ma.read_logs(whole.set_column(6, "at", pa.array(["soon"] * N)), **ROLES, **options, now=now)


def test_an_empty_cell_of_a_csv_is_missing_as_it_is_in_a_table(tmp_path):
    rows = pa.table({"c": ["a", None, "b", "a"], "x": [1.0, 2.0, None, 4.0], "item": [0, 1, 0, 1], "r": [1.0] * 4})
    pq.write_table(rows, tmp_path / "rows.parquet")
    pyarrow.csv.write_csv(rows, tmp_path / "rows.csv")
    found = [
        ma.read_logs(tmp_path / f"rows.{end}", ["c", "x"], "item", "r", missing="drop") for end in ("parquet", "csv")
    ]
    assert found[0].features == found[1].features
    assert_same(found[1].collect(), found[0].collect())
    assert [one.dropped.missing for one in found] == [2, 2]


@pytest.mark.parametrize(("separator", "decimal"), [(";", "."), (";", ","), ("\t", "."), ("\t", ",")])
def test_a_csv_of_semicolons_or_tabs_is_one_of_commas(tmp_path, separator, decimal):
    rows = [("age", '"name, first"', "item", "r"), ("31.5", '"Li, Wei"', "0", "1"), ("7.25", "Ada", "1", "0.5")]
    paths = tmp_path / "commas.csv", tmp_path / "others.csv.gz"
    paths[0].write_text("".join(",".join(row) + "\n" for row in rows))
    other = [[cell.replace(".", decimal) for cell in row] for row in rows]
    with gzip.open(paths[1], "wt") as out:
        out.writelines(separator.join(row) + "\n" for row in other)
    plain, found = (ma.read_logs(path, ["age", "name, first"], "item", "r") for path in paths)
    assert found.features == plain.features
    assert_same(found.collect(), plain.collect())


ROWS = "age,city,item,reward\n" + "31,Oslo,1,0\n58,Köln,0,1\n" * 3
BAD_CSV = {
    "another encoding": (ROWS.encode("cp1252"), r"line 3 of .*log\.csv is not in UTF-8: it has 'K.ln'. .*WINDOWS-1252"),
    "another encoding, late": (
        b"age,city,item,reward\n" + b"31,Oslo,1,0\n" * 120_000 + "58,Köln,0,1\n".encode("cp1252"),
        r"line 120002 of .*log\.csv is not in UTF-8: it has 'K.ln'"),
    "UTF-16": (ROWS.encode("utf-16"), r"log\.csv is in UTF-16, and UTF-8 is needed.*iconv -f UTF-16"),
    "nothing": (b"\n", r"log\.csv is empty. Write a line with the names"),
    "a cell too many": (ROWS.replace("1,0\n58", "1,0,9\n58").encode(), r"Row #2: Expected 4 columns, got 5.*quotation"),
    "a word among numbers": (
        ROWS.replace("58,Köln,0,1", "58,Köln,0,yes").encode(),
        r"column reward must hold numbers; row 1 \(line 3 of .*log\.csv\) has 'yes'. Write plain numbers"),
    "a word among numbers, late": (
        b"age,city,item,reward\n" + b"31,Oslo,1,0\n" * 120_000 + b"58,Oslo,0,yes\n",
        r"line 120002 has 'yes' in column reward, whose first values are int64. Write a value of that type"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_CSV)
def test_a_csv_that_cannot_be_read_says_in_which_line_and_what_to_do(tmp_path, case):
    content, text = BAD_CSV[case]
    (tmp_path / "log.csv").write_bytes(content)
    with pytest.raises(InputError, match=text):
        ma.read_logs(tmp_path / "log.csv", ["age", "city"], "item", "reward").collect()


def test_a_column_in_another_encoding_that_is_not_read_does_no_harm(tmp_path):
    (tmp_path / "log.csv").write_bytes(ROWS.encode("cp1252"))
    assert ma.read_logs(tmp_path / "log.csv", ["age"], "item", "reward").collect().rewards.tolist() == [0, 1] * 3


def test_one_context_column_needs_no_list():
    rows = pa.table({"age": [1.0, 2.0, 4.0], "city": [1, 2, 1], "item": [0, 1, 0], "r": [1.0] * 3})
    assert_same(ma.read_logs(rows, "age", "item", "r"), ma.read_logs(rows, ["age"], "item", "r"))
    assert ma.read_logs(rows, "city", "item", "r", categorical="city").features.names == (
        ma.read_logs(rows, ["city"], "item", "r", categorical=["city"]).features.names
    )


def test_numbers_far_beyond_the_rows_are_no_action_numbers():
    def read(largest):
        items = np.zeros(100_001, dtype=np.int64)
        items[7] = largest
        return ma.read_logs(pa.table({"x": items % 2, "item": items, "r": items % 3}), ["x"], "item", "r")

    assert read(10_000_099).n_actions == 10_000_100  # 100 times the rows
    with pytest.raises(ActionError, match="holds the id 10000100, and without a catalog"):
        read(10_000_100)


def test_a_dictionary_tells_of_no_level_and_no_action_that_no_row_has():
    def read(kind):
        c = pa.array(["a", "b", "a", "zz"]).cast(kind)
        item = pa.array(["i1", "i2", "i1", "i9"]).cast(kind)
        rows = pa.table({"c": c, "item": item, "r": [1.0, 2.0, 3.0, float("nan")]})
        return ma.read_logs(rows, ["c"], "item", "r", missing="drop")

    plain, coded = read(pa.string()), read(pa.dictionary(pa.int32(), pa.string()))
    assert coded.n_actions == plain.n_actions == 2
    assert coded.features == plain.features and len(coded) == len(plain) == 3
    hidden = pa.DictionaryArray.from_arrays([0, 1, 2, 0], ["a", None, "b"])
    with pytest.raises(NonFiniteError, match="column c is missing in row 1"):
        ma.read_logs(pa.table({"c": hidden, "item": [0, 1, 0, 1], "r": [1.0] * 4}), ["c"], "item", "r")


def test_what_cannot_be_read_is_refused_in_words(tmp_path):
    rows = {"x": [1.0, 2.0], "item": [0, 1], "r": [1.0, 2.0]}
    with pytest.raises(NonFiniteError, match=r"has inf in row 1\. Infinity is not a missing value"):
        ma.read_logs(pa.table({**rows, "r": [1.0, float("inf")]}), ["x"], "item", "r", missing="drop")
    with pytest.raises(NonFiniteError, match="not finite in row 0"):
        ma.read_logs(pa.table({**rows, "x": [[1.0, float("nan")], [2.0, 3.0]]}), ["x"], "item", "r")
    with pytest.raises(DataTypeError, match="cannot hold ids"):
        ma.read_logs(pa.table({**rows, "item": [[0], [1]]}), ["x"], "item", "r")
    with pytest.raises(InputError, match="several columns 'x'"):
        twice = pa.table(
            [pa.array([1.0]), pa.array([2.0]), pa.array([0]), pa.array([1.0])], names=["x", "x", "item", "r"]
        )
        ma.read_logs(twice, ["x"], "item", "r")
    with pytest.raises(ActionError, match=f"the id {2**62}, and without a catalog .* Pass a catalog"):
        ma.read_logs(pa.table({**rows, "item": [0, 2**62]}), ["x"], "item", "r")
    with pytest.raises(DataTypeError, match=r"got dict\. Make a table of it"):
        ma.read_logs(rows, ["x"], "item", "r")
    with pytest.raises(DataTypeError, match="contexts must be an array of numbers; got a dict"):
        ma.LoggedData({"x": [1.0, 2.0]}, [0, 1], [1.0, 2.0])
    (tmp_path / "header.csv").write_text("x,item,r\n")
    with pytest.raises(InputError, match="column x has no values: there are no rows"):
        ma.read_logs(tmp_path / "header.csv", ["x"], "item", "r")
    with pytest.raises(DataFileError, match="path of the logs is empty"):
        ma.read_logs("", ["x"], "item", "r")


def test_times_may_be_in_nanoseconds():
    at = pa.array([1_700_000_000_000_000_001, 1_700_000_000_000_000_002], pa.timestamp("ns"))
    rows = pa.table({"x": [1.0, 2.0], "item": [0, 1], "r": [1.0, 2.0], "at": at})
    now = datetime(2023, 11, 15, 22, 13, 20)
    logs = ma.read_logs(rows, ["x"], "item", "r", time="at", half_life=timedelta(days=1), now=now)
    assert_allclose(logs.weights, 0.5, rtol=1e-9)


def stream_of(rows, folder, name):
    """The rows as three files, which are read as a stream."""
    (folder / name).mkdir()
    for i in range(3):
        part = rows.slice(i * 100, 100)
        if name == "parquet":
            pq.write_table(part, folder / name / f"part-{i}.parquet", row_group_size=30)
        else:
            pyarrow.csv.write_csv(part, folder / name / f"part-{i}.csv")
    return ma.read_logs(folder / name, **ROLES, propensity="p", group="user", time="at")


@pytest.mark.parametrize("name", ["parquet", "csv"])
def test_a_stream_and_a_frame_have_the_same_times_and_the_same_split(name, tmp_path):
    whole = table()
    framed = ma.read_logs(whole.to_pandas(), **ROLES, propensity="p", group="user", time="at")
    collected = stream_of(whole, tmp_path, name).collect()
    assert_array_equal(framed.times, whole["at"].cast(pa.timestamp("us")).to_numpy())
    assert_array_equal(collected.times, framed.times)
    for one, other in zip(framed.split(0.5, "time"), collected.split(0.5, "time"), strict=True):
        assert_array_equal(one.rows, other.rows)
    batches = list(stream_of(whole, tmp_path, "parquet" if name == "csv" else "csv").batches(50))
    assert_array_equal(np.concatenate([batch.times for batch in batches]), framed.times)


def test_times_stay_with_their_rounds_when_rows_are_dropped():
    whole, now = table(), datetime(2024, 1, 11, tzinfo=UTC)
    at = whole["at"].to_pylist()
    at[5] = None
    holes = whole.set_column(whole.column_names.index("at"), "at", pa.array(at, pa.timestamp("us", tz="UTC")))
    kept = [moment for moment in at if moment is not None and now - moment >= timedelta(days=1)]
    logs = ma.read_logs(holes, **ROLES, time="at", missing="drop", maturity=timedelta(days=1), now=now)
    assert logs.times.tolist() == [moment.replace(tzinfo=None) for moment in kept]
    with pytest.raises(NonFiniteError, match="column at is missing in row 5"):
        ma.read_logs(holes, **ROLES, time="at")


@pytest.mark.parametrize(
    "values",
    [
        np.arange(N) * 10**15 + 1,
        np.linspace(0.0, 1.0, N),
        [f"2024-01-01 00:{i // 60:02d}:{i % 60:02d}" for i in range(N)],
        pa.array(np.arange(N), pa.int32()).cast(pa.date32()),
        pa.array(np.arange(N), pa.timestamp("ns")),
    ],
    ids=["integers", "floats", "texts", "dates", "nanoseconds"],
)
def test_times_of_every_kind_keep_their_order(values):
    order = np.random.default_rng(0).permutation(N)
    rows = table().drop_columns(["at"]).append_column("at", pa.array(values)).take(order)
    logs = ma.read_logs(rows, **ROLES, time="at")
    assert_array_equal(np.argsort(logs.times), np.argsort(order))


def test_a_column_that_cannot_be_times_is_refused_with_a_way_out():
    def refused(message, values, **options):
        rows = table().drop_columns(["at"]).append_column("at", pa.array(values))
        with pytest.raises(DataTypeError, match=message) as caught:
            ma.read_logs(rows, **ROLES, time="at", **options)
        assert caught.value.argument == "column at" and caught.value.remedy

    refused("column at must hold times; its type is bool", [True] * N)
    refused("column at must hold times: ", ["Monday"] * N)
    refused("column at must hold times to count ages; its type is int64", range(N), half_life=timedelta(days=1))


def test_columns_may_be_named_by_those_of_a_frame():
    frame = pd.DataFrame({"age": [1.0, 2.0], "visits": [3.0, 4.0], "item": ["a", "b"], "click": [0.0, 1.0]})
    by_index = ma.read_logs(frame, frame.columns[:2], "item", "click")
    by_list = ma.read_logs(frame, ["age", "visits"], "item", "click")
    np.testing.assert_array_equal(by_index.contexts, by_list.contexts)


def test_numbers_that_a_file_spells_as_texts_are_warned_about(tmp_path):
    rows = table().append_column("price", pa.array([f"1,{k % 50 + 100}.00" for k in range(N)]))
    pyarrow.csv.write_csv(rows, tmp_path / "logs.csv")
    with pytest.warns(UserWarning, match=r"column 'price' looks like numbers .* such as '1,100.00'"):
        ma.read_logs(tmp_path / "logs.csv", ["age", "price"], "item", "click")


def test_features_are_learned_from_rows_and_of_columns_that_are_there(own_errors):
    whole = table()
    with pytest.raises(InputError, match="categorical names 'town', which is not among the columns"):
        ma.read_logs(whole, **ROLES, categorical=["town"])
    with pytest.raises(InputError, match="there are no rows to learn features from"):
        learn_features([], ["age"], max_levels=100)
    with pytest.raises(InputError, match=r"column city has more than 2 distinct values: an id is not a feature"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("manyarms.logs.learn_features.MAX_DISTINCT", 2)
            ma.read_logs(whole, **ROLES)
    phi = learn_features([whole.slice(0, 10)], ["age"], max_levels=100)
    with pytest.raises(InputError, match=r"features reads the columns \('age',\); context names \('age', 'city'\)"):
        ma.read_logs(whole, **ROLES, features=phi)


def test_a_column_without_rows_is_left_as_it_is():
    none = table().slice(0, 0)
    phi = learn_features([none], ["age"], max_levels=100)
    assert phi(table().slice(0, 3))[:, 1].tolist() == table()["age"].to_pylist()[:3]
    with pytest.raises(InputError, match=r"there are no rows.*number of actions is not known\. Pass a catalog"):
        ma.read_logs(none.set_column(2, "item", pa.array([], pa.int64())), "age", "item", "click", features=phi)


def test_lists_without_numbers_are_no_embedding_and_empty_batches_say_nothing_of_their_size():
    lists = pa.table({"e": pa.array([[1.0, 2.0], [3.0, 4.0]])})
    phi = learn_features([lists.slice(0, 0), lists], ["e"], max_levels=100, intercept=False)
    assert phi(lists).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    for rows in (pa.array([[], []], pa.list_(pa.float64())), pa.array([], pa.list_(pa.float64()))):
        with pytest.raises(InputError, match="column e has empty lists; an embedding needs numbers"):
            learn_features([pa.table({"e": rows})], ["e"], max_levels=100)


def test_spans_of_time_are_positive_and_ages_go_by_the_local_clock_where_one_time_has_no_zone():
    with pytest.raises(InputError, match=r"half_life must be a positive timedelta; got datetime.timedelta.0."):
        ma.read_logs(table(), **ROLES, time="at", half_life=timedelta(0))
    noon = datetime(2024, 5, 1, 12)
    for zone in (UTC, timezone(timedelta(hours=5))):
        assert seconds_between(noon, (noon + timedelta(hours=1)).astimezone(zone)) == 3600
        assert seconds_between(noon.astimezone(zone), noon + timedelta(hours=1)) == 3600
