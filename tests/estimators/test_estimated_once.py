"""Missing propensities are estimated once per log, however many policies and estimators use them."""

import numpy as np
from numpy.testing import assert_array_equal

import manyarms as ma
from manyarms.estimators import logging_policy


def test_all_estimates_on_a_log_share_its_estimated_propensities(monkeypatch):
    rng = np.random.default_rng(0)
    logs = ma.LoggedData(rng.normal(size=(200, 2)), rng.integers(4, size=200), rng.normal(size=200))
    made = []

    class Counted(logging_policy.EstimatedLogging):
        def __init__(self, *arguments):
            made.append(arguments)
            super().__init__(*arguments)

    monkeypatch.setattr(logging_policy, "EstimatedLogging", Counted)
    policies = [ma.TablePolicy(rng.dirichlet(np.ones(4))) for _ in range(3)]
    values = [[estimator.estimate(policy, logs).value for policy in policies] for estimator in (ma.IPS(), ma.SNIPS())]
    assert len(made) == 1
    # Another log of the same rounds has its own, with the same answer.
    again = ma.LoggedData(logs.contexts, logs.actions, logs.rewards)
    assert_array_equal([ma.IPS().estimate(policy, again).value for policy in policies], values[0])
    assert len(made) == 2


def test_rounds_of_tables_and_files_are_collected_alike():
    logs = ma.LoggedData(np.ones((3, 1)), [0, 1, 0], [1.0, 2.0, 3.0])
    assert logs.collect() is logs
