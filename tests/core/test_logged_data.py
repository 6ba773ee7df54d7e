"""Logged data are read in batches that cover the log in order."""

import numpy as np
from numpy.testing import assert_array_equal

import manyarms as ma


def test_batches_cover_the_log_in_order():
    rng = np.random.default_rng(0)
    logs = ma.LoggedData(
        rng.normal(size=(25, 2)), rng.integers(0, 4, 25), rng.normal(size=25), rng.uniform(0.1, 1, 25), 4,
        weights=np.ones(25), groups=np.arange(25) // 5, logging_policy=ma.Uniform(4),
    )  # fmt: skip
    parts = list(logs.batches(size=10))
    assert [len(part) for part in parts] == [10, 10, 5]
    for name in ("contexts", "actions", "rewards", "propensities", "weights", "groups"):
        assert_array_equal(np.concatenate([getattr(part, name) for part in parts]), getattr(logs, name))
