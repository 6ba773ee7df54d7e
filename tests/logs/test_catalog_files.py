"""Catalogs from tables and files, the priors that suit them, and what these say of actions added later."""

import jaxtyping
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import manyarms as ma
from manyarms.errors import InputError

K = 14


def table(n=K):
    return pa.table(
        {
            "sku": [f"s{k:02d}" for k in range(n)],
            "kind": [["tea", "mug", None][k % 3] for k in range(n)],
            "tags": ["a|b", "b", None, "a | c "] * (n // 4) + ["a"] * (n % 4),
            "top": [["food", "home"][k // 3 % 2] for k in range(n)],
            "sub": [["x", "y"][k % 2] if k % 4 else None for k in range(n)],
            "e0": [float(k % 4) if k != 3 else None for k in range(n)],
            "e1": [1.0 / (1 + k) if k != 3 else None for k in range(n)],
        }
    )


COLUMNS = {"category": "kind", "tags": "tags", "taxonomy": ["top", "sub"], "embedding": ["e0", "e1"]}


@pytest.mark.parametrize("kind", ["arrow", "polars", "pandas", "parquet", "csv"])
def test_a_catalog_is_the_same_from_every_kind_of_table_and_file(kind, tmp_path):
    rows = table()
    pq.write_table(rows, tmp_path / "items.parquet")
    pa.csv.write_csv(rows, tmp_path / "items.csv")
    given = {
        "arrow": rows, "polars": pl.from_arrow(rows), "pandas": rows.to_pandas(),
        "parquet": tmp_path / "items.parquet", "csv": tmp_path / "items.csv",
    }[kind]  # fmt: skip
    catalog = ma.read_catalog(given, "sku", **COLUMNS)
    assert catalog.ids.tolist() == rows["sku"].to_pylist()
    assert [c or None for c in catalog.categories.tolist()] == rows["kind"].to_pylist()
    assert catalog.tags[:4] == (("a", "b"), ("b",), (), ("a", "c"))
    assert [tuple(one or None for one in path) for path in catalog.paths] == list(
        zip(rows["top"].to_pylist(), rows["sub"].to_pylist(), strict=True)
    )
    assert np.isnan(catalog.embeddings[3]).all() and catalog.embeddings[5].tolist() == [1.0, 1 / 6]


def test_lists_are_taken_as_they_are_and_other_is_an_action_of_which_nothing_is_known():
    rows = pa.table({"id": [7, 9], "t": [["a"], ["a", "b"]], "p": [["x", "y"], ["x"]], "e": [[0.5, 1.0], None]})
    catalog = ma.read_catalog(rows, "id", tags="t", taxonomy="p", embedding="e", other=True)
    assert catalog.ids.tolist() == [7, 9, "(other)"]
    assert catalog.tags == (("a",), ("a", "b"), ()) and catalog.paths == (("x", "y"), ("x",), ())
    assert_array_equal(catalog.embeddings, [[0.5, 1.0], [np.nan] * 2, [np.nan] * 2])


def test_a_bad_catalog_is_refused_by_column_and_row():
    for words, arguments, options in (
        ("no column 'id'; its columns are sku", (table(), "id"), {}),
        ("'s00' is in row 0 and in row 14", (pa.concat_tables([table(), table().slice(0, 1)]), "sku"), {}),
        ("columns kind must hold numbers", (table(), "sku"), {"embedding": "kind"}),
        ("column e0 must hold lists or texts", (table(), "sku"), {"tags": "e0"}),
        ("ids must have at least 1 row", (table().slice(0, 0), "sku"), {}),
    ):
        with pytest.raises(InputError, match=words):
            ma.read_catalog(*arguments, **options)


@pytest.fixture
def own_errors():
    """Our own checks speak, rather than those of the types."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def test_the_prior_is_chosen_by_name_or_by_what_the_catalog_knows(own_errors):
    def names(columns, kind=None):
        prior = ma.priors.from_catalog(ma.read_catalog(table(), "sku", **columns), kind, dim=2, effect_std=0.5)
        return [group.name for group in prior.effects]

    assert names(COLUMNS) == names(COLUMNS, "combined") == ["category", "level 1", "level 2", "tag", "embedding"]
    assert names({"taxonomy": ["top", "sub"], "tags": "tags"}) == ["level 1", "level 2", "tag"]
    assert names({"tags": "tags", "embedding": ["e0", "e1"]}) == ["tag", "embedding"]
    assert names({"category": "kind"}) == ["category"]
    assert names({"embedding": ["e0", "e1"]}) == ["component"]
    assert names({}) == []
    assert names(COLUMNS, "linear-embeddings") == ["embedding"]
    assert names(COLUMNS, "independent") == []
    with pytest.raises(InputError, match="kind must be one of 'categories'"):
        names({}, "clusters")
    with pytest.raises(InputError, match="the catalog has no tags"):
        names({}, "tags")


@pytest.mark.parametrize("shared", [None, 0.8])
@pytest.mark.parametrize("kind", ["categories", "taxonomy", "tags", "linear-embeddings", "independent"])
def test_new_actions_get_what_a_prior_built_on_the_grown_catalog_gives_them(kind, shared):
    rng = np.random.default_rng(0)
    old, grown = (ma.read_catalog(table().slice(0, n), "sku", **COLUMNS) for n in (12, K))
    logs = ma.LoggedData(rng.normal(size=(80, 2)), rng.integers(10, size=80), rng.normal(size=80), n_actions=12)
    prior = ma.priors.from_catalog(old, kind, dim=2, effect_std=0.7, shared_std=shared)
    posterior = ma.fit(logs, prior).with_actions(ma.priors.new_actions(prior, grown), catalog=grown)
    # Embeddings are scaled, and centred, by the actions there are: those of the fit say how.
    if kind == "linear-embeddings":
        centre = np.nanmean(old.embeddings, axis=0) if shared else 0.0
        size = np.nanmean(np.sum((old.embeddings - centre) ** 2, axis=1))
        assert_posterior_of_embeddings(posterior, logs, (grown.embeddings - centre) / np.sqrt(size), shared)
        return
    anew = ma.priors.from_catalog(grown, kind, dim=2, effect_std=0.7, shared_std=shared)
    expected = ma.fit(ma.LoggedData(logs.contexts, logs.actions, logs.rewards, n_actions=K), anew)
    rows = np.arange(K)
    assert_allclose(posterior.weights.action_mean(rows), expected.weights.action_mean(rows), rtol=1e-9, atol=1e-12)
    assert_allclose(posterior.weights.action_cov(rows), expected.weights.action_cov(rows), rtol=1e-9, atol=1e-12)


def assert_posterior_of_embeddings(posterior, logs, points, shared):
    """The same from all covariances of θ written out."""
    missing = np.isnan(points[:, 0])
    points = np.where(missing[:, None], 0.0, points)
    alike = 0.7**2 * (points @ points.T + np.outer(missing, missing)) + (shared or 0.0) ** 2
    dense = ma.priors.from_joint(np.zeros((K, 2)), np.kron(alike + np.eye(K), np.eye(2)), K)
    expected = ma.fit(ma.LoggedData(logs.contexts, logs.actions, logs.rewards, n_actions=K), dense)
    rows = np.arange(K)
    assert_allclose(posterior.weights.action_mean(rows), expected.weights.action_mean(rows), rtol=1e-7, atol=1e-9)


def test_new_actions_that_the_prior_cannot_place_are_refused_by_name():
    old = ma.Catalog(["a", "b"], categories=["x", "y"], paths=[["p"], ["q"]], embeddings=[[1.0, 0.0], [0.0, 1.0]])
    grown = ma.Catalog(
        ["a", "b", "c"], categories=["x", "y", "z"], paths=[["p"], ["q"], ["p", "deep"]], embeddings=np.eye(3)[:, :2]
    )
    moved = ma.Catalog(["a", "b", "c"], categories=["y", "y", "y"])
    for words, kind, catalog in (
        ("action 'c' has the category 'z'.*Fit again", "categories", grown),
        ("new actions have a level 2", "taxonomy", grown),
        ("effects of the group 'component'", "embeddings", grown),
        ("earlier actions have other category effects", "categories", moved),
        ("has 2 actions; the prior has 2", "categories", old),
    ):
        with pytest.raises(InputError, match=words):
            ma.priors.new_actions(ma.priors.from_catalog(old, kind, dim=1), catalog)


def test_a_prior_learned_from_a_stream_is_that_of_its_rounds(tmp_path):
    rng = np.random.default_rng(0)
    rows = pa.table({"x": rng.normal(size=400), "sku": rng.choice(table()["sku"].to_pylist(), 400)})
    rows = rows.append_column("r", pa.array(rng.normal(size=400)))
    pq.write_table(rows, tmp_path / "logs.parquet", row_group_size=70)
    catalog = ma.read_catalog(table(), "sku", **COLUMNS)
    stream = ma.read_logs(tmp_path / "logs.parquet", ["x"], "sku", "r", catalog=catalog)
    prior = ma.priors.from_catalog(catalog, dim=2)
    found, expected = ma.learn_prior(stream, prior), ma.learn_prior(stream.collect(), prior)
    assert_allclose(found.eta, expected.eta, rtol=1e-8)
    assert found.posterior.features == stream.features and found.posterior.catalog is catalog
    origins = [one.origin for one in found.posterior.learned_from]
    assert origins == [stream.fingerprint.origin, *(one.origin for one in stream.source.fingerprints)]


def test_a_level_that_no_row_has_keeps_a_mean_of_the_size_of_the_others():
    rng = np.random.default_rng(1)
    skus = table()["sku"].to_pylist()
    rows = pa.table(
        {
            "city": rng.choice(["Oslo", "Riga", "Turin"], 2000),
            "shop": rng.choice(["a", "b", "c"], 2000),
            "sku": rng.choice(skus, 2000),
            "r": rng.normal(size=2000),
        }
    )
    logs = ma.read_logs(rows, ["city", "shop"], "sku", "r", catalog=ma.read_catalog(table(), "sku", **COLUMNS))
    # Sums of squares of zeros are zeros; those of their triangular factors are rounding.
    learned = ma.learn_prior(logs, ma.priors.from_catalog(logs.catalog, dim=logs.dim))
    assert logs.features.names[4] == "city=(other)" and not logs.contexts[:, 4].any()
    assert max(abs(one.value) for one in learned.parameters) < 10
    assert not any("times as large" in note for note in learned.notes)
