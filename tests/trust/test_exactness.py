import numpy as np
import pytest

import manyarms as ma
from trust import exactness


def few_rows(check, n_cases):
    return [check.measure(case) for case in range(n_cases)]


@pytest.mark.parametrize("check", exactness.CHECKS, ids=lambda check: check.name)
def test_a_few_cases_hold(check):
    assert check.summarise(few_rows(check, 8)).holds


def test_a_small_error_in_the_mean_is_noticed(monkeypatch):
    exact = ma.HierarchicalGaussian.action_mean
    monkeypatch.setattr(ma.HierarchicalGaussian, "action_mean", lambda *args: exact(*args) * (1 + 1e-9))
    for check in exactness.CHECKS[:2]:
        assert not check.summarise(few_rows(check, 5)).holds


def test_a_covariance_that_is_not_one_is_noticed(monkeypatch):
    exact = ma.HierarchicalGaussian.action_cov
    check = exactness.CHECKS[2]
    for change in (lambda cov: -cov, lambda cov: cov + 1e-9 * np.triu(np.abs(cov).max() * np.ones(cov.shape[1:]), 1)):
        monkeypatch.setattr(ma.HierarchicalGaussian, "action_cov", lambda *args, f=change: f(exact(*args)))
        assert not check.summarise(few_rows(check, 20)).holds


def test_the_log_evidence_may_lose_digits_only_with_collinear_features():
    row = {"family": "uneven action covariance", "condition": 1e12, "weight": 10.0, "errors": {"log evidence": 1e-6}}
    assert exactness.share_of_allowed(row) > 1
    assert exactness.share_of_allowed(row | {"family": "collinear features"}) < 1
    mean = {"family": "collinear features", "errors": {"action means": 1e-6}}
    assert exactness.share_of_allowed(row | mean) > 1
