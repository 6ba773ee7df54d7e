import numpy as np
import pytest

import manyarms as ma
from trust import calibration

CHECKS = {check.name: check for check in calibration.CHECKS}


@pytest.mark.parametrize("name", [name for name in CHECKS if name != "calibration-learned-prior"])
def test_a_few_simulations_hold(name):
    check = CHECKS[name]
    assert check.summarise([check.measure(case) for case in range(5)]).holds


@pytest.mark.slow
def test_a_few_simulations_with_a_learned_prior_hold():
    check = CHECKS["calibration-learned-prior"]
    assert check.summarise([check.measure(case) for case in range(check.shortest)]).holds


def test_posteriors_that_are_too_narrow_are_noticed(monkeypatch):
    fit = ma.fit
    monkeypatch.setattr(ma, "fit", lambda logs, prior, likelihood: fit(logs, prior, ma.Gaussian(0.3)))
    check = CHECKS["calibration-gaussian"]
    outcome = check.summarise([check.measure(case) for case in range(40)])
    assert not outcome.holds, outcome


def pits_of_narrow_intervals(width):
    """PIT values where standard deviations are `width` of what they should be."""
    z = np.random.default_rng(0).normal(size=1000) / width
    return [dict.fromkeys(("value", "difference"), float(calibration.ndtr(number))) for number in z]


def test_coverage_below_the_documented_one_is_noticed():
    for name in ("calibration-clicks", "calibration-counts", "calibration-student-t", "calibration-hurdle"):
        assert CHECKS[name].summarise(pits_of_narrow_intervals(1.0)).holds
        assert not CHECKS[name].summarise(pits_of_narrow_intervals(0.7)).holds


def test_the_probability_below_the_truth_is_that_of_the_intervals():
    estimate = ma.Estimate(1.0, 2.0, posterior_std=2.0)
    low, high = estimate.interval(0.8, of="contexts")
    assert calibration._pit_of(estimate, low) == pytest.approx(0.1)
    assert calibration._pit_of(estimate, high) == pytest.approx(0.9)
