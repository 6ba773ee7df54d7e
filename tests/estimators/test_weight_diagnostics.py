"""Diagnostics of weights, and the warnings they lead to."""

import mpmath
import numpy as np
import pytest
from numpy.testing import assert_allclose

import manyarms as ma
from manyarms.errors import RangeError


def test_diagnostics_are_what_their_names_say(problem):
    logs, policy, _ = problem
    w = policy.probability_of(logs.contexts, logs.actions) / logs.propensities
    found = ma.IPS().estimate(policy, logs).diagnostics
    assert_allclose(found["effective_sample_size"], w.sum() ** 2 / (w**2).sum())
    assert_allclose(found["max_weight_share"], w.max() / w.sum())
    assert_allclose(found["mean_weight"], w.mean())
    assert found["unsupported_mass"] == 0


def test_mass_on_actions_never_logged_is_counted_and_warned_about():
    logs = ma.LoggedData(np.ones((30, 1)), np.zeros(30, dtype=int), np.ones(30), np.ones(30), 4)
    policy = ma.TablePolicy([0.25, 0.25, 0.5, 0.0])
    found = ma.IPS().estimate(policy, logs)
    assert_allclose(found.diagnostics["unsupported_mass"], 0.75)
    assert any("75 %" in text for text in found.warnings)
    assert not any(
        "75%" in t for t in ma.IPS(thresholds=ma.Thresholds(max_unsupported_mass=0.8)).estimate(policy, logs).warnings
    )
    assert [row["category"] for row in ma.support_by_category(policy, logs, [7, 7, 3, 3])] == [3, 7]
    table = ma.support_by_category(policy, logs, ["a", "a", "b", "b"])
    assert [row["category"] for row in table] == ["a", "b"]
    assert_allclose([row["unsupported"] for row in table], [0.25, 0.5])
    assert_allclose([row["logged"] for row in table], [1.0, 0.0])


def test_share_of_the_prior_is_one_without_data_and_falls_with_it(problem):
    logs, policy, _ = problem
    prior = ma.priors.independent(5, dim=3)
    shares = []
    for n in (0, 20, 300):
        posterior = ma.fit(logs.take(slice(0, n)), prior)
        found = ma.DM(posterior).estimate(policy, logs)
        shares.append(found.diagnostics["prior_share"])
    assert shares[0] == pytest.approx(1.0)
    assert shares[0] > shares[1] > shares[2]
    assert any("prior" in text for text in ma.DM(ma.fit(logs.take(slice(0, 0)), prior)).estimate(policy, logs).warnings)


def test_rounded_propensities_are_noticed():
    propensities = np.round(np.random.default_rng(0).uniform(0.001, 0.4, 50), 3)
    logs = ma.LoggedData(np.ones((50, 1)), np.zeros(50, dtype=int), np.ones(50), np.maximum(propensities, 0.001), 2)
    assert any("rounded" in text for text in ma.IPS().estimate(ma.Uniform(2), logs).warnings)


def test_evaluation_on_training_rounds_is_noticed(problem):
    logs, _, _ = problem
    prior = ma.priors.independent(5, dim=3)
    train, test = logs.split(0.5, rng=np.random.default_rng(0))
    posterior = ma.fit(train, prior)
    greedy = ma.Greedy(posterior)

    def noticed(estimator, on, policy=greedy):
        return bool(estimator.estimate(policy, on).diagnostics["evaluated_on_training_rounds"])

    assert noticed(ma.IPS(), train)
    assert noticed(ma.IPS(), logs)
    assert noticed(ma.IPS(), train.take(slice(0, 5)))
    assert not noticed(ma.IPS(), test)
    assert noticed(ma.IPS(), train, ma.EpsilonGreedy(greedy, 0.1))
    assert noticed(ma.DR(posterior), train, ma.Uniform(5))
    assert not noticed(ma.DR(posterior), test, ma.Uniform(5))
    assert noticed(ma.IPS(), test, ma.Greedy(posterior.update(test)))
    # The same rows read once more are the same rows.
    again = ma.LoggedData(logs.contexts.copy(), logs.actions, logs.rewards, logs.propensities, 5)
    assert noticed(ma.IPS(), again)


def test_right_propensities_are_not_accused():
    rng = np.random.default_rng(0)
    n, k = 5000, 1000
    logs = ma.LoggedData(rng.normal(size=(n, 2)), rng.integers(0, k, n), rng.normal(size=n), np.full(n, 1 / k), k)
    policy = ma.TablePolicy(rng.dirichlet(np.full(k, 5.0)))
    for estimator in (ma.IPS(), ma.IPS(cap=0.5), ma.ExponentialSmoothing(0.5), ma.SubGaussianIPS(0.5)):
        text = " ".join(estimator.estimate(policy, logs).warnings)
        assert "rounded" not in text
        assert "mean weight" not in text


def every_weighted_estimator(posterior, n):
    sets, strata = np.arange(5) % 2, np.arange(n) % 2
    return {
        "IPS": ma.IPS(),
        "snIPS": ma.SNIPS(),
        "DR": ma.DR(posterior),
        "snDR": ma.SNDR(posterior),
        "Switch-DR": ma.SwitchDR(posterior, 10.0),
        "DRos": ma.DRos(posterior, 10.0),
        "weighted IPS": ma.WeightedIPS(strata),
        "exponential": ma.ExponentialSmoothing(0.7),
        "logarithmic": ma.LogarithmicSmoothing(0.1),
        "sub-Gaussian": ma.SubGaussianIPS(0.1),
        "sub-Gaussian DR": ma.SubGaussianDR(posterior, 0.1),
        "MIPS": ma.MIPS(sets),
        "convolution": ma.PolicyConvolution(np.eye(5), 2),
        "Bernstein": ma.IPS(interval=ma.EmpiricalBernstein()),
        "bootstrap": ma.IPS(interval=ma.Bootstrap(50, rng=np.random.default_rng(0))),
    }


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("smallest", [1e-160, 1e-290])
@pytest.mark.parametrize("grouped", [False, True])
def test_a_tiny_propensity_overflows_nowhere(smallest, grouped):
    rng, n = np.random.default_rng(3), 60
    propensities = np.where(np.arange(n) == 7, smallest, 0.2)
    rewards = rng.uniform(0.5, 1.5, n)
    groups = np.arange(n) // 2 if grouped else None
    columns = np.column_stack([np.ones(n), rng.normal(size=n)])
    actions = np.arange(n) % 5
    logs = ma.LoggedData(columns, actions, rewards, propensities=propensities, n_actions=5, groups=groups)
    posterior = ma.fit(logs, ma.priors.independent(5, dim=2))
    for name, estimator in every_weighted_estimator(posterior, n).items():
        found = estimator.estimate(ma.Uniform(5), logs)
        low, high = found.interval(0.9)
        assert low <= found.value <= high, name
        assert all(np.isfinite(list(found.diagnostics.values()))), name
    found = ma.IPS().estimate(ma.Uniform(5), logs)
    weights = [mpmath.mpf(0.2) / mpmath.mpf(p) for p in propensities.tolist()]
    terms = [w * mpmath.mpf(r) for w, r in zip(weights, rewards.tolist(), strict=True)]
    if grouped:
        terms = [(a + b) / 2 for a, b in zip(terms[::2], terms[1::2], strict=True)]
    mean = sum(terms) / len(terms)
    std = mpmath.sqrt(sum((t - mean) ** 2 for t in terms) / (len(terms) - 1) / len(terms))
    assert_allclose([found.value, found.std], [float(mean), float(std)], rtol=1e-12)
    size = sum(weights) ** 2 / sum(w**2 for w in weights)
    assert_allclose(found.diagnostics["effective_sample_size"], float(size), rtol=1e-12)
    assert_allclose(found.diagnostics["mean_weight"], float(sum(weights) / n), rtol=1e-12)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_row_weights_that_would_overflow_are_refused():
    columns = dict(contexts=np.ones((4, 1)), actions=[0, 1, 0, 1], rewards=np.arange(4.0), n_actions=2)
    with pytest.raises(RangeError, match=r"weights must be below 1e100; row 2 has 1e\+308"):
        ma.LoggedData(**columns, weights=[1.0, 1.0, 1e308, 1e308], propensities=np.full(4, 0.5))
    logs = ma.LoggedData(**columns, weights=np.full(4, 9e99), propensities=np.full(4, 0.5))
    assert_allclose(ma.IPS().estimate(ma.Uniform(2), logs).value, 1.5)
    assert_allclose(ma.fit(logs, ma.priors.independent(2, dim=1)).value(ma.Uniform(2), logs.contexts).value, 1.5)
