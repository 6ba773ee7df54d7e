import pytest

import manyarms as ma
from trust import outside_software

CHECKS = {check.name: check for check in outside_software.CHECKS}


def few_rows(name, n_cases):
    return [CHECKS[name].measure(case) for case in range(n_cases)]


@pytest.mark.parametrize(
    ("name", "n_cases"),
    [
        ("sklearn-gaussian-process", 10),
        ("sklearn-ridge", 3),
        ("statsmodels-mixed-model", 1),
        pytest.param("polya-gamma-clicks", 3, marks=pytest.mark.slow),
        ("obp-constants", 22),
    ],
)
def test_a_few_cases_hold(name, n_cases):
    outcome = CHECKS[name].summarise(few_rows(name, n_cases))
    assert outcome.holds, outcome


def test_a_small_error_in_the_mean_is_noticed(monkeypatch):
    exact = ma.HierarchicalGaussian.action_mean
    monkeypatch.setattr(ma.HierarchicalGaussian, "action_mean", lambda *args: exact(*args) * (1 + 1e-7))
    for name in ("sklearn-ridge", "statsmodels-mixed-model"):
        assert not CHECKS[name].summarise(few_rows(name, 1)).holds


def test_another_noise_than_the_gaussian_process_has_is_noticed(monkeypatch):
    fit = ma.fit
    monkeypatch.setattr(ma, "fit", lambda logs, prior, likelihood: fit(logs, prior, ma.Gaussian(1.001)))
    assert not CHECKS["sklearn-gaussian-process"].summarise(few_rows("sklearn-gaussian-process", 3)).holds


def test_other_clicks_than_those_of_the_sampler_are_noticed():
    right = {"rate": 0.05, "r_hat": 1.01, "uniform": [0.05, 0.97]}
    check = CHECKS["polya-gamma-clicks"]
    assert check.summarise([right]).holds
    for wrong in ({"uniform": [0.4, 1.0]}, {"uniform": [0.0, 0.8]}, {"r_hat": 1.5}):
        assert not check.summarise([right | wrong]).holds


def test_another_value_than_that_of_obp_is_noticed():
    row = {"estimator": "IPS", "value": 0.0, "rounds": 1e-8}
    assert not CHECKS["obp-constants"].summarise([row]).holds
