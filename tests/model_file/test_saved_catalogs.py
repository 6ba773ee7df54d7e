"""A catalog comes back from a model file with its ids and metadata in the same form."""

import datetime
import tracemalloc

import numpy as np
import pytest
from saved_models import (
    CATEGORIES,
    PATHS,
    D,
    K,
    again,
    bits,
    categories,
    full_catalog,
    rounds,
    with_features,
)
from scipy import sparse

import manyarms as ma
from manyarms import errors
from manyarms.model_file.save import describe

IDS = {
    "words": [f"é{k}" for k in range(K)],
    "integers": [7 * k - 30 for k in range(K)],
    "typed integers": np.arange(K, dtype=np.int32)[::-1],
    "typed words": np.array([f"w{k}" for k in range(K)]),
    "days": np.arange(K).astype("datetime64[D]"),
    "large integers": [2**70 + k for k in range(K)],
    "mixed": ["a", 1, 2.5, b"a\xff", ("a", 1, ("b",)), np.datetime64("2020-01-01"), "\ud800", "", True and "x"]
    + [datetime.date(2020, 1, 2), datetime.datetime(2020, 1, 2, 3), -0.5, 2**70]
    + [np.str_(f"n{k}") for k in range(K - 13)],
}


@pytest.mark.parametrize("kind", IDS)
def test_ids_of_any_plain_type_are_numbered_as_before(kind, tmp_path):
    catalog = ma.Catalog(IDS[kind], categories=CATEGORIES)
    logs = rounds(np.random.default_rng(0), catalog=catalog)
    got = again(ma.fit(logs, categories(None)), tmp_path).catalog
    assert repr(got) == repr(catalog)
    assert len(got) == len(catalog)
    assert got.numbers(IDS[kind]).tolist() == list(range(K))
    assert got.find(["nobody", list(IDS[kind])[3]]).tolist()[0] == -1
    assert got.ids.dtype == catalog.ids.dtype
    assert got.ids.tolist() == catalog.ids.tolist()
    assert [type(one) for one in got.ids.tolist()] == [
        str if isinstance(one, np.str_) else type(one) for one in catalog.ids.tolist()
    ]
    assert got.categories.tolist() == CATEGORIES.tolist()


def test_all_metadata_of_actions_come_back(tmp_path):
    posterior, _ = with_features(np.random.default_rng(0))
    got, catalog = again(posterior, tmp_path).catalog, full_catalog()
    assert (got.tags, got.paths) == (catalog.tags, catalog.paths)
    assert bits(got.embeddings) == bits(catalog.embeddings)
    assert repr(ma.priors.from_taxonomy(got, dim=2)) == repr(ma.priors.from_taxonomy(catalog, dim=2))
    for array in (got.ids, got.categories, got.embeddings):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]


@pytest.mark.parametrize(
    "known",
    [
        dict(tags=sparse.csr_array(np.eye(K)[:, :5])),
        dict(tags=sparse.csr_array((np.ones(K), np.arange(K)[::-1], [0, *[K] * K]), shape=(K, K))),
        dict(paths=np.array(PATHS)),
        dict(paths=np.array([(*path[:2], None) for path in PATHS], dtype=object)),
        dict(categories=np.where(np.arange(K) % 2, np.nan, 1.0)),
    ],
    ids=["sparse tags", "unsorted tags", "typed paths", "paths with missing ends", "numbers"],
)
def test_metadata_keeps_its_form(known, tmp_path):
    catalog = ma.Catalog(range(K), **known)
    got = again(ma.fit(rounds(np.random.default_rng(0), catalog=catalog), categories(None)), tmp_path).catalog
    for name in known:
        assert bits(getattr(got, name)) == bits(getattr(catalog, name))


def test_labels_that_no_file_holds_are_named():
    catalog = ma.Catalog([*range(K - 1), frozenset("ab")])
    posterior = ma.fit(rounds(np.random.default_rng(0), catalog=catalog), categories(None))
    with pytest.raises(errors.DataTypeError, match=r"ids cannot be saved: row 23 has a frozenset\..*str\(\)"):
        describe(posterior)


def test_a_large_catalog_is_opened_without_looking_at_it(tmp_path):
    """Neither words nor their numbering are made, and arrays stay where they are: in the file."""
    n_actions = 100_000
    catalog = ma.Catalog([f"item {k}" for k in range(n_actions)])
    prior = ma.priors.from_categories(np.arange(n_actions) % 50, dim=D)
    rng = np.random.default_rng(0)
    actions = rng.integers(0, n_actions, 20_000)
    logs = ma.LoggedData(rng.normal(size=(20_000, D)), actions, np.ones(20_000), n_actions=n_actions, catalog=catalog)
    ma.fit(logs, prior).save(tmp_path / "model")
    ma.load(tmp_path / "model")
    tracemalloc.start()
    got = ma.load(tmp_path / "model")
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / "model").stat().st_size > 5_000_000
    assert held < 200_000
    assert peak < 1_000_000
    assert "ids" not in vars(got.catalog)
    assert got.catalog.numbers(["item 99999"]).tolist() == [n_actions - 1]
