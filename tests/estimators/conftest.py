"""A log with five actions, shared by the tests of estimators."""

import numpy as np
import pytest

import manyarms as ma


@pytest.fixture(scope="module")
def problem():
    """A log with five actions, its policies and a fitted model."""
    rng = np.random.default_rng(0)
    n, k, d = 300, 5, 3
    x = rng.normal(size=(n, d))
    logging = rng.dirichlet(np.ones(k), n)
    actions = np.array([rng.choice(k, p=p) for p in logging])
    rewards = rng.uniform(0, 2, n)
    logs = ma.LoggedData(x, actions, rewards, logging[np.arange(n), actions], k, logging_policy=ma.TablePolicy(logging))
    posterior = ma.fit(ma.LoggedData(x, actions, rewards, n_actions=k), ma.priors.independent(k, dim=d))
    return logs, ma.TablePolicy(rng.dirichlet(np.ones(k), n)), posterior
