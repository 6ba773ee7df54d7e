"""Comparisons of estimators, SLOPE++, and the splits of a log they need."""

from contextlib import nullcontext

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

import manyarms as ma


@pytest.mark.parametrize("by", ["row", "group", "time"])
def test_splits_share_no_round_and_lose_none(by):
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 12, 100)
    logs = ma.LoggedData(rng.normal(size=(100, 2)), rng.integers(0, 3, 100), np.arange(100.0), groups=groups)
    first, second = logs.split(0.7, by=by, rng=rng)
    assert sorted([*first.rewards, *second.rewards]) == list(range(100))
    if by == "group":
        assert not set(first.groups) & set(second.groups)
    if by == "time":
        assert list(first.rewards) == list(range(70))
    if by == "row":
        assert len(first) == 70


def test_comparison_reports_all_pairs_and_leaves_out_training_rounds(problem):
    logs, _, _ = problem
    train, test = logs.split(0.5, rng=np.random.default_rng(0))
    posterior = ma.fit(train, ma.priors.independent(5, dim=3))
    policies = {"greedy": ma.Greedy(posterior), "uniform": ma.Uniform(5)}
    estimators = [ma.IPS(), ma.SNIPS(), ma.DR(posterior), ma.DM(posterior, name="DM (Bayes)")]
    seen = []
    table = ma.compare(policies, test, estimators, progress=lambda done, total: seen.append((done, total)))
    assert len(table) == 8
    assert seen[-1] == (8, 8)
    assert len(ma.compare(policies, test, estimators, progress=True)) == 8
    for row in table:
        estimator = next(e for e in estimators if e.name == row.estimator)
        assert row.estimate.value == estimator.estimate(policies[row.policy], test).value
    assert {record["estimator"] for record in table.records()} == {"IPS", "snIPS", "DR", "DM (Bayes)"}
    assert "greedy" in str(table)
    on_train = ma.compare(policies, train, estimators)
    assert {(p, e) for p, e, _ in on_train.left_out} == {
        ("greedy", "IPS"), ("greedy", "snIPS"), ("greedy", "DR"), ("uniform", "DR"),
    }  # fmt: skip
    assert len(ma.compare(policies, train, estimators, allow_training_rounds=True)) == 8


def test_a_comparison_is_silent_unless_a_bar_is_wished_for(problem, monkeypatch):
    bars = []

    def reporter(progress, total, label):
        bars.append(progress)
        return nullcontext(lambda done, total: None)

    monkeypatch.setattr("manyarms.estimators.compare.reporter", reporter)
    for options in ({}, {"progress": True}):
        ma.compare({"uniform": ma.Uniform(5)}, problem[0], [ma.IPS()], **options)
    assert bars == [False, True]


class Fixed(ma.Estimator):
    """An estimator that always finds the same value, with an interval of the given half width."""

    def __init__(self, name, value, half):
        self.name, self._found = name, ma.Estimate(value, half / stats.norm.ppf(0.975), kind="sampling")

    def estimate(self, policy, logs, *, eligible=None):
        return self._found


def slope_of(*candidates):
    logs = ma.LoggedData(np.ones((2, 1)), [0, 1], [0.0, 1.0])
    return ma.slope(candidates, ma.Uniform(2), logs).estimator.name


def test_slope_takes_the_narrowest_that_agrees_with_all_wider():
    wide, middle, biased = Fixed("wide", 0.0, 1.0), Fixed("middle", 1.0, 0.5), Fixed("biased", 3.0, 0.1)
    # |1 - 0| ≤ 0.5 + 1.449; |3 - 0| > 0.1 + 1.449
    assert slope_of(biased, wide, middle) == "middle"
    assert slope_of(biased) == "biased"


@pytest.mark.parametrize("half", [0.01, 0.2, 0.5, 0.9])
def test_slope_grants_the_wider_estimator_the_larger_share_of_the_gap(half):
    """The gap may be up to the narrow width plus √6 - 1 = 1.449 times the wide one, and not the other way round."""
    limit = half + 1.4494897427831781
    wide = Fixed("wide", 0.0, 1.0)
    for sign in (1, -1):
        assert slope_of(wide, Fixed("narrow", sign * (limit - 1e-6), half)) == "narrow"
        assert slope_of(wide, Fixed("narrow", sign * (limit + 1e-6), half)) == "wide"


def test_slope_caps_the_weights_of_a_log_with_hardly_any_support():
    rng = np.random.default_rng(0)
    n = 2000
    propensities = np.where(rng.random(n) < 0.02, 0.001, 0.5)
    logs = ma.LoggedData(np.ones((n, 1)), np.zeros(n, dtype=int), rng.uniform(size=n), propensities, 2)
    candidates = [ma.IPS(cap=cap) for cap in (5.0, 50.0, 500.0, 5000.0)]
    chosen = ma.slope(candidates, ma.Uniform(2), logs)
    assert chosen.estimate.std <= min(e.estimate(ma.Uniform(2), logs).std for e in candidates[2:])


def test_one_refusal_does_not_cost_the_others_their_answer(problem):
    logs, policy, _ = problem
    table = ma.compare([policy], logs, [ma.Replay(), ma.IPS(cap=3.0, name="IPS, cap 3"), ma.IPS()])
    assert [row.estimator for row in table] == ["IPS, cap 3", "IPS"]
    assert "deterministic" in table.left_out[0][2]


def test_what_is_tied_to_rows_follows_a_split(problem):
    logs, policy, _ = problem
    _, test = logs.split(0.5, rng=np.random.default_rng(0))
    assert_allclose(policy.take(test.rows).probabilities(test.contexts), policy.probabilities(logs.contexts)[test.rows])
