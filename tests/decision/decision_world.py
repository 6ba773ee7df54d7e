"""Logs of items in six categories, and the names of the charts that a full report draws of them."""

import numpy as np

import manyarms as ma

EVIL = '</script><img src=x onerror="document.title=1">'
CHARTS = {
    "values", "gains", "segments", "probability_better", "agreement", "traffic_changes", "support", "shrinkage",
    "calibration",
}  # fmt: skip


def world(n=1500, K=60, evil=False, seed=0):
    """Clean rewards of items in six categories, the logs split in two."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(6, 3))[np.arange(K) % 6] + 0.2 * rng.normal(size=(K, 3))
    x = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    actions = rng.integers(K - 10, size=n)
    rewards = np.einsum("nd,nd->n", x, theta[actions]) + rng.normal(size=n)
    labels = [f"kind {k % 6}" for k in range(K)]
    ids = [f"item {k}" for k in range(K)]
    if evil:
        labels, ids = [EVIL + label for label in labels], [f"<b>{name}</b>\x07&{EVIL}" for name in ids]
    catalog = ma.Catalog(ids, categories=labels, names=[f"{EVIL if evil else ''}Tea {k}" for k in range(K)])
    segments = np.array(["north", "south", EVIL if evil else "west"])[(x[:, 1] > 0) * 1 + (x[:, 2] > 1)]
    logs = ma.LoggedData(x, actions, rewards, np.full(n, 1 / (K - 10)), K, segments=segments, catalog=catalog)
    return logs.take(np.arange(n // 2)), logs.take(np.arange(n // 2, n)), catalog
