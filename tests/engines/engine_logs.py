"""Logs of clicks for the tests of engines, and what they have in common."""

import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose

import manyarms as ma

K, D, N = 60, 3, 6000
COLUMNS = [f"x{i}" for i in range(D)]

ON_CLUSTERS = [pytest.mark.xdist_group("engines"), pytest.mark.filterwarnings("ignore:PySpark does not yet")]
"""Marks of a file whose tests share clusters: one process runs them all, so that every cluster is started once."""


def write_clicks(folder, n=N, seed=0):
    """Clicks in three files of small row groups; of some actions hardly any."""
    rng = np.random.default_rng(seed)
    x, actions = rng.normal(size=(n, D)), np.minimum(rng.geometric(0.12, n) - 1, K - 3)
    clicks = (rng.random(n) < 1 / (1 + np.exp(1 - x[:, 0] - 0.02 * actions))).astype(float)
    table = pa.table({**{f"x{i}": x[:, i] for i in range(D)}, "item": actions, "click": clicks})
    folder.mkdir(exist_ok=True)
    for i in range(3):
        part = table.slice(i * n // 3, n // 3)
        pq.write_table(part, folder / f"part-{i}.parquet", row_group_size=n // 30)
    return folder


def read(folder):
    return ma.read_logs(folder, COLUMNS, "item", "click", n_actions=K)


def need_java():
    """Skip without Java, unless an environment variable says that nothing may be left out."""
    if shutil.which("java") is None:
        if os.environ.get("MANYARMS_ALL_TESTS"):
            pytest.fail("there is no Java, and MANYARMS_ALL_TESTS is set")
        pytest.skip("NOT RUN: Spark needs Java 17, and there is none")


def assert_same_posterior(posterior, expected, tolerance):
    everyone = np.arange(K)
    assert_allclose(posterior.weights.action_mean(), expected.weights.action_mean(), rtol=tolerance, atol=tolerance)
    covariances = (either.weights.action_cov(everyone) for either in (posterior, expected))
    assert_allclose(*covariances, rtol=tolerance, atol=tolerance)
    assert_allclose(posterior.weights.latent_cov, expected.weights.latent_cov, rtol=tolerance, atol=tolerance)
    assert_allclose(posterior.log_evidence, expected.log_evidence, rtol=tolerance)
    assert posterior.statistics.n_rounds == expected.statistics.n_rounds
