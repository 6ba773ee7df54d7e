"""Top-10 items from an index over item vectors: is it exact, and what does an approximate index lose?

K items in 50 categories, d = 16, three rounds per item, 1,000 contexts. The reference is `Greedy(posterior).top_k`,
which is exact in double precision. Prints, for each index, the share of contexts with the same ten items, the share
of the ten best that it finds (recall), the expected reward of its ten in per cent of that of the best ten, and the
microseconds per query on one thread. Needs faiss-cpu and hnswlib.

    python studies/item_index.py [--items K]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import faiss
import hnswlib
import numpy as np

import manyarms as ma


def make_posterior(k: int, d: int, rng: np.random.Generator) -> ma.RewardPosterior:
    """Fit a shop whose items all have rounds, so that no two have the same vector."""
    category = rng.integers(0, 50, k)
    weights = rng.normal(size=(50, d))[category] + 0.5 * rng.normal(size=(k, d))
    contexts, actions = draw_contexts(3 * k, d, rng), np.tile(np.arange(k), 3)
    rewards = np.einsum("nd,nd->n", contexts, weights[actions]) + rng.normal(size=3 * k)
    return ma.fit(ma.LoggedData(contexts, actions, rewards), ma.priors.from_categories(category, dim=d))


def draw_contexts(n: int, d: int, rng: np.random.Generator) -> Any:
    """Draw contexts with an intercept."""
    contexts = rng.normal(size=(n, d))
    contexts[:, 0] = 1.0
    return contexts


def run(k: int, seed: int = 0) -> dict[str, tuple[float, float, float, float]]:
    """Same ten, recall, share of the reward, and microseconds per query, by index."""
    rng = np.random.default_rng(seed)
    posterior = make_posterior(k, 16, rng)
    contexts, items = draw_contexts(1000, 16, rng), posterior.item_vectors()
    queries, best = items.queries(contexts), ma.Greedy(posterior).top_k(contexts, 10)
    means = posterior.weights.action_mean()

    def rewards(chosen: Any) -> Any:
        return np.einsum("nd,nkd->nk", contexts, means[chosen]).sum(axis=1)

    def measure(search: Callable[[Any], Any]) -> tuple[float, float, float, float]:
        start = time.process_time()
        chosen = np.asarray(search(queries)).astype(np.int64)
        spent = time.process_time() - start
        hits = [len(set(mine) & set(ours)) for mine, ours in zip(chosen.tolist(), best.tolist(), strict=True)]
        share = rewards(chosen).sum() / rewards(best).sum()
        return float((chosen == best).all(axis=1).mean()), float(np.mean(hits)) / 10, share, spent / len(queries) * 1e6

    results = {"FAISS IndexFlatIP": measure(lambda q: flat_index(items).search(q, 10)[1])}
    cells = faiss_cells(items)
    for probes in (4, 16):
        cells.nprobe = probes
        results[f"FAISS IndexIVFFlat, {probes} of {cells.nlist} cells"] = measure(lambda q: cells.search(q, 10)[1])
    graph, other = faiss_graph(items), hnswlib_graph(items)
    for effort in (64, 256, 1024):
        graph.hnsw.efSearch = effort
        results[f"FAISS IndexHNSWFlat, efSearch {effort}"] = measure(lambda q: graph.search(q, 10)[1])
        other.set_ef(effort)
        results[f"hnswlib, ef {effort}"] = measure(lambda q: other.knn_query(q, 10, num_threads=1)[0])
    return results


def flat_index(items: ma.ItemVectors) -> Any:
    """The exact index of FAISS."""
    index = faiss.IndexFlatIP(items.vectors.shape[1])
    index.add(items.vectors)
    return index


def faiss_cells(items: ma.ItemVectors) -> Any:
    """The index of FAISS that searches a few cells only."""
    dim, cells = items.vectors.shape[1], 128
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(dim), dim, cells, faiss.METRIC_INNER_PRODUCT)
    index.train(items.vectors)
    index.add(items.vectors)
    return index


def faiss_graph(items: ma.ItemVectors) -> Any:
    """The graph of FAISS for inner products."""
    index = faiss.IndexHNSWFlat(items.vectors.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = 200
    index.add(items.vectors)
    return index


def hnswlib_graph(items: ma.ItemVectors) -> Any:
    """The graph of hnswlib for inner products."""
    index = hnswlib.Index(space="ip", dim=items.vectors.shape[1])
    index.init_index(len(items), M=32, ef_construction=200, random_seed=1)
    index.add_items(items.vectors, num_threads=1)
    return index


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=20_000)
    k = parser.parse_args().items
    faiss.omp_set_num_threads(1)
    print(f"{k:,} items, d = 16, 1,000 contexts, ten items each")
    print("| index | same ten | recall | expected reward | µs per query |\n|---|---|---|---|---|")
    for name, (same, recall, share, spent) in run(k).items():
        print(f"| {name} | {same:.1%} | {recall:.1%} | {share:.2%} | {spent:.0f} |")


if __name__ == "__main__":
    main()
