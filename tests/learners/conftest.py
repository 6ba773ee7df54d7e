"""Logs and eligible actions, shared by the tests of learners."""

import numpy as np
import pytest
from small_learners import K, make_logs


@pytest.fixture(scope="module")
def logs():
    return make_logs()


@pytest.fixture(scope="module")
def eligible(logs):
    """Two to six actions per round, the logged one among them."""
    rng = np.random.default_rng(1)
    return [
        np.union1d(rng.choice(K, rng.integers(1, 6), replace=False), [a, (a + 1) % K]).tolist() for a in logs.actions
    ]
