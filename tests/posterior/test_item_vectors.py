"""`posterior.item_vectors()`: an index over them returns the items that `Greedy` chooses."""

import importlib
import json
import os

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import manyarms as ma
from manyarms.errors import InputError, ManyarmsError, NumericalError, OutputFileError

K, D = 400, 5


def library_or_skip(name):
    """An index library. Without it the test is skipped, unless MANYARMS_ALL_TESTS is set."""
    try:
        return importlib.import_module(name)
    except ImportError:
        if os.environ.get("MANYARMS_ALL_TESTS"):
            pytest.fail(f"{name} is not installed, and MANYARMS_ALL_TESTS is set")
        pytest.skip(f"{name} is not installed")


def draw_shop(seed, n_seen=K, likelihood=None):
    """A posterior on tables with a catalog of text ids; the first `n_seen` items were shown."""
    rng = np.random.default_rng(seed)
    category = rng.integers(0, 8, K)
    catalog = ma.Catalog([f"item-{a}" for a in range(K)], categories=category)
    actions = rng.integers(0, n_seen, 4000)
    actions[:n_seen] = np.arange(n_seen)
    table = context_table(4000, rng)
    eta = rng.normal(size=K)[actions] + 0.1 * table["age"].to_numpy() * rng.normal(size=8)[category[actions]]
    reward = eta + rng.normal(size=4000) if likelihood is None else rng.random(4000) < 1 / (1 + np.exp(-eta))
    rows = table.append_column("item", pa.array([f"item-{a}" for a in actions])).append_column(
        "reward", pa.array(reward.astype(float))
    )
    logs = ma.read_logs(rows, ["age", "city"], "item", "reward", catalog=catalog)
    return ma.fit(logs, ma.priors.from_catalog(catalog, dim=logs.dim), likelihood)


def context_table(n, rng):
    return pa.table({"age": rng.normal(40, 10, n), "city": rng.choice(["Oslo", "Riga", "Turin"], n)})


def exact_order(posterior, contexts, k=10):
    """The k best items by sorting all expected rewards."""
    return np.argsort(-posterior.expected_reward(contexts), axis=1, kind="stable")[:, :k]


def test_faiss_returns_the_ten_items_that_greedy_chooses(seed=0):
    faiss = library_or_skip("faiss")
    posterior, contexts = draw_shop(seed), context_table(200, np.random.default_rng(1))
    items = posterior.item_vectors()
    index = faiss.IndexFlatIP(items.vectors.shape[1])
    index.add(items.vectors)
    scores, rows = index.search(items.queries(contexts), 10)
    ours = ma.Greedy(posterior).top_k(contexts, 10)
    assert_array_equal(rows, ours)
    assert_array_equal(rows, exact_order(posterior, contexts))
    rewards = posterior.expected_reward(contexts)
    assert_allclose(scores, np.take_along_axis(rewards, rows, axis=1), rtol=1e-4, atol=1e-4)
    assert items.exact and items.ids[rows[0, 0]] == f"item-{rows[0, 0]}"


def test_items_that_nothing_tells_apart_have_one_vector_and_any_of_them_is_as_good():
    faiss = library_or_skip("faiss")
    posterior, contexts = draw_shop(2, n_seen=150), context_table(100, np.random.default_rng(3))
    items = posterior.item_vectors()
    assert len(np.unique(items.vectors, axis=0)) <= 150 + 8
    index = faiss.IndexFlatIP(items.vectors.shape[1])
    index.add(items.vectors)
    rows, rewards = index.search(items.queries(contexts), 10)[1], posterior.expected_reward(contexts)
    ours = ma.Greedy(posterior).top_k(contexts, 10)
    got, best = (np.take_along_axis(rewards, order, axis=1) for order in (rows, ours))
    assert_allclose(np.sort(got), np.sort(best), rtol=1e-5)


def test_hnswlib_reads_the_file_and_finds_most_of_the_best_items(tmp_path):
    hnswlib = library_or_skip("hnswlib")
    posterior, contexts = draw_shop(4), context_table(200, np.random.default_rng(5))
    items = posterior.item_vectors()
    items.write(tmp_path / "index")
    vectors = np.load(tmp_path / "index" / "vectors.npy", mmap_mode="r", allow_pickle=False)
    index = hnswlib.Index(space="ip", dim=vectors.shape[1])
    index.init_index(len(vectors), M=32, ef_construction=200, random_seed=1)
    index.add_items(vectors, num_threads=1)
    index.set_ef(200)
    rows = index.knn_query(items.queries(contexts), 10)[0]
    best = exact_order(posterior, contexts)
    hits = [len(set(got) & set(ours)) for got, ours in zip(rows.tolist(), best.tolist(), strict=True)]
    assert np.mean(hits) / 10 > 0.9


def test_the_written_files_are_the_vectors_and_the_ids(tmp_path):
    posterior = draw_shop(6)
    items = posterior.item_vectors()
    items.write(tmp_path / "a" / "index")
    items.write(str(tmp_path / "a" / "index"))  # replaces them
    vectors = np.load(tmp_path / "a" / "index" / "vectors.npy", allow_pickle=False)
    assert vectors.dtype == np.float32 and vectors.flags.c_contiguous
    assert_array_equal(vectors, posterior.weights.action_mean().astype(np.float32))
    ids = json.loads((tmp_path / "a" / "index" / "ids.json").read_text())
    assert ids == [f"item-{a}" for a in range(K)]
    assert sorted(path.name for path in (tmp_path / "a" / "index").iterdir()) == ["ids.json", "vectors.npy"]


def test_without_a_catalog_ids_are_numbers_and_queries_are_the_contexts(tmp_path):
    rng = np.random.default_rng(7)
    x, actions = rng.normal(size=(50, 2)), rng.integers(0, 3, 50)
    items = ma.fit(ma.LoggedData(x, actions, x[:, 0]), ma.priors.independent(3, dim=2)).item_vectors()
    assert_array_equal(items.queries(x), x.astype(np.float32))
    items.write(tmp_path)
    assert json.loads((tmp_path / "ids.json").read_text()) == [0, 1, 2]
    assert repr(items) == "ItemVectors(3 items, d=2, exact order)" and len(items) == 3


def test_clicks_are_ranked_exactly_among_the_candidates_of_an_index():
    posterior, contexts = draw_shop(8, 150, ma.Bernoulli()), context_table(60, np.random.default_rng(9))
    items = posterior.item_vectors()
    assert not items.exact and repr(items).endswith("approximate order)")
    by_index = np.argsort(-(items.queries(contexts) @ items.vectors.T), axis=1, kind="stable")
    best = exact_order(posterior, contexts)
    assert (by_index[:, :10] != best).any()
    ranked = ma.Greedy(posterior).top_k(contexts, 10, eligible=by_index[:, :200].tolist())
    rewards = posterior.expected_reward(contexts)
    got, ideal = (np.take_along_axis(rewards, order, axis=1) for order in (ranked, best))
    assert_allclose(got, ideal, rtol=1e-9)


def test_what_has_no_vectors_is_refused():
    x, rewards = np.ones((4, 1)), [0.0, 2.0, 3.0, 0.0]
    hurdle = ma.fit(ma.LoggedData(x, [0, 1, 0, 1], rewards), ma.priors.independent(2, dim=1), ma.Hurdle())
    with pytest.raises(InputError, match=r"no inner product ranks the items of a HurdlePosterior.*Greedy"):
        hurdle.item_vectors()
    huge = ma.fit(ma.LoggedData(1e-40 * x, [0, 1, 0, 1], rewards), ma.priors.independent(2, dim=1, cov=1e100))
    with pytest.raises(NumericalError, match="item vectors overflow in row 0"):
        huge.item_vectors()


def test_what_cannot_be_written_is_refused_and_leaves_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("mine")
    items = draw_shop(10).item_vectors()
    with pytest.raises(ManyarmsError, match="must name a folder"):
        items.write(tmp_path / "file")
    odd = ma.ItemVectors(np.array([("a", 1), ("b", 2)], dtype="O,O").astype(object), items.vectors[:2], None, True)
    with pytest.raises(InputError, match=r"the catalog has the id \('a', 1\). Use texts"):
        odd.write(tmp_path / "index")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]

    def full(self, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(tmp_path), "mkdir", full)
    with pytest.raises(OutputFileError, match="index could not be written: No space left"):
        items.write(tmp_path / "index")
