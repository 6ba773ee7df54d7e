"""Newton's search finds the maximum that a general optimiser finds, within bounds, with few evaluations."""

import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

import manyarms as ma
from manyarms.errors import NumericalError
from manyarms.prior_learning.evidence import ApproximateEvidence, ExactEvidence
from manyarms.prior_learning.newton_search import NewtonResult, newton_search

WIDE = np.full(3, -20.0), np.full(3, 20.0)


def climb(objective, start, box=WIDE):
    calls = []

    def counted(eta):
        calls.append(eta)
        return objective(eta)

    values = []
    result = newton_search(counted, np.asarray(start, float), box, np.full(len(start), 2.0), 1e-9, 100, values.append)
    assert np.all(np.diff(values) >= 0)
    return result, len(calls)


def skewed(eta):
    """log p of three scales in sums of exponentials: steep on one side, flat on the other."""
    a = np.array([[1.0, 0.3, 0.0], [0.2, 1.0, 0.4], [0.0, 0.1, 1.0]]) @ eta
    value = float(np.sum(40 * a - 7 * np.exp(1.5 * a)))
    slope = np.array([[1.0, 0.2, 0.0], [0.3, 1.0, 0.1], [0.0, 0.4, 1.0]]) @ (40 - 10.5 * np.exp(1.5 * a))
    return value, slope


def test_the_maximum_is_that_of_nelder_mead_with_few_evaluations():
    options = {"xatol": 1e-10, "fatol": 1e-13, "maxiter": 10_000, "maxfev": 10_000}
    other = minimize(lambda eta: -skewed(eta)[0], np.zeros(3), method="Nelder-Mead", options=options)
    result, calls = climb(skewed, [-4.0, 3.0, 1.0])
    assert result.finished and calls < 30
    assert_allclose(result.eta, other.x, atol=1e-6)
    assert_allclose(result.value, -other.fun, rtol=1e-12)


def test_a_maximum_at_a_bound_is_reached_and_errors_send_the_search_back():
    box = np.array([-5.0, -0.5, -5.0]), np.array([5.0, 0.1, 5.0])

    def walled(eta):
        if eta[0] > 2.5:
            raise NumericalError("too far.", "Stay.")
        return skewed(eta)

    result, _ = climb(walled, [-1.0, 0.0, 0.0], box)
    bounds = list(zip(*box, strict=True))
    best = minimize(lambda eta: -skewed(eta)[0], np.zeros(3), bounds=bounds, method="L-BFGS-B", options={"ftol": 1e-15})
    assert result.finished
    assert_allclose(result.value, -best.fun, rtol=1e-9)


def test_a_search_that_finds_nothing_higher_stops_unfinished_where_it_is():
    """The slope promises a rise that no step along it gives."""

    def misled(eta):
        return -float(eta @ eta), np.ones(3) - 2 * eta

    result, calls = climb(misled, [0.0, 0.0, 0.0])
    assert not result.finished and result.iterations == 0 and calls < 30
    assert_allclose(result.eta, 0.0)


def test_a_search_ends_after_its_iterations_and_says_that_it_is_not_finished():
    result = newton_search(skewed, np.array([-4.0, 3.0, 1.0]), WIDE, np.full(3, 2.0), 1e-9, 2, lambda value: None)
    assert not result.finished and result.iterations == 2
    assert result.value == skewed(result.eta)[0]


def test_a_start_in_a_corner_that_the_slope_pushes_into_is_the_maximum():
    box = np.full(3, -5.0), np.array([-4.0, -3.0, -4.5])
    assert (skewed(box[1])[1] > 0).all()
    result, _ = climb(skewed, box[1], box)
    assert result.finished and result.iterations == 0
    assert_allclose(result.eta, box[1])


def test_errors_beside_the_start_and_along_a_step_send_the_search_back():
    """The arithmetic fails beside the start, where the curvature is asked for, and at the first two long steps."""
    start, beside, far = np.array([-4.0, 3.0, 1.0]), [], []

    def walled(eta):
        gap = np.abs(eta - start)
        if gap[1] and not beside:
            beside.append(eta)
            raise NumericalError("too near.", "Stay.")
        if gap.max() > 0.1 and len(far) < 2:
            far.append(gap.max())
            raise NumericalError("too far.", "Stay.")
        return skewed(eta)

    other = minimize(lambda eta: -skewed(eta)[0], np.zeros(3), method="Nelder-Mead", options={"maxiter": 5000})
    result, _ = climb(walled, start)
    # Each time, a quarter as far.
    assert beside and far[1] == far[0] / 4
    assert result.finished
    assert_allclose(result.value, -other.fun, rtol=1e-6)


def test_where_newtons_search_fails_l_bfgs_goes_on_from_there(monkeypatch):
    logs, prior = few_categories()
    expected = ma.learn_prior(logs, prior)
    places = []

    def stopped(objective, eta, *rest):
        places.append(eta)
        return NewtonResult(eta, objective(eta)[0], np.eye(len(eta)), 0, False)

    monkeypatch.setattr(sys.modules["manyarms.prior_learning.learn_prior"], "newton_search", stopped)
    learned = ma.learn_prior(logs, prior)
    assert places and learned.converged
    assert_allclose(learned.eta, expected.eta, atol=1e-5)


def test_l_bfgs_steps_back_from_where_the_arithmetic_fails(monkeypatch):
    logs, prior = few_categories()
    expected = ma.learn_prior(logs, prior)
    module, at, failures = sys.modules["manyarms.prior_learning.learn_prior"], ExactEvidence.at, []

    def walled(self, hyper, eta, **options):
        # The first two long steps go too far.
        if len(failures) < 2 and np.abs(eta - hyper.start()).max() > 0.5:
            failures.append(eta)
            raise NumericalError("too far.", "Stay.")
        return at(self, hyper, eta, **options)

    monkeypatch.setattr(module, "FEW", 0)
    monkeypatch.setattr(ExactEvidence, "at", walled)
    assert_allclose(ma.learn_prior(logs, prior).eta, expected.eta, atol=1e-4)
    assert len(failures) == 2


def test_a_search_that_cannot_even_start_says_so(monkeypatch):
    """Its start used to come back as if it had converged there."""
    logs, prior = few_categories()

    def failing(self, hyper, eta, **options):
        raise NumericalError("too far.", "Rescale the features.")

    monkeypatch.setattr(sys.modules["manyarms.prior_learning.learn_prior"], "FEW", 0)
    monkeypatch.setattr(ExactEvidence, "at", failing)
    with pytest.raises(NumericalError, match="Rescale the features"):
        ma.learn_prior(logs, prior)


def few_categories():
    """Rounds of sixty actions in five categories, and a prior to learn from them."""
    rng = np.random.default_rng(0)
    category, x, actions = rng.integers(5, size=60), rng.normal(size=(400, 2)), rng.integers(60, size=400)
    weights = rng.normal(size=(5, 2))[category] + 0.4 * rng.normal(size=(60, 2))
    rewards = np.einsum("nd,nd->n", x, weights[actions]) + rng.normal(size=400)
    return ma.LoggedData(x, actions, rewards, n_actions=60), ma.priors.from_categories(category, dim=2)


def test_a_learned_prior_is_the_one_that_l_bfgs_finds(monkeypatch):
    rng = np.random.default_rng(0)
    category, x, actions = rng.integers(5, size=60), rng.normal(size=(900, 3)), rng.integers(60, size=900)
    weights = rng.normal(size=(5, 3))[category] + 0.4 * rng.normal(size=(60, 3))
    logs = ma.LoggedData(x, actions, np.einsum("nd,nd->n", x, weights[actions]) + rng.normal(size=900), n_actions=60)
    prior = ma.priors.from_categories(category, dim=3)
    newton = ma.learn_prior(logs, prior)
    monkeypatch.setattr(sys.modules["manyarms.prior_learning.learn_prior"], "FEW", 0)
    general = ma.learn_prior(logs, prior)
    assert_allclose(newton.eta, general.eta, atol=1e-5)
    assert_allclose(newton.posterior.log_evidence, general.posterior.log_evidence, rtol=1e-8)


def test_clicks_learn_the_prior_that_they_learn_without_a_nearer_start(monkeypatch):
    rng = np.random.default_rng(1)
    category, actions = rng.integers(4, size=30), rng.integers(30, size=1200)
    x = np.column_stack([np.ones(1200), rng.normal(size=1200)])
    weights = rng.normal(size=(4, 2))[category] + 0.5 * rng.normal(size=(30, 2)) - [1.0, 0.0]
    clicks = (rng.random(1200) < 1 / (1 + np.exp(-np.einsum("nd,nd->n", x, weights[actions])))).astype(float)
    logs, prior = ma.LoggedData(x, actions, clicks, n_actions=30), ma.priors.from_categories(category, dim=2)
    near = ma.learn_prior(logs, prior, ma.Bernoulli())
    monkeypatch.setattr(sys.modules["manyarms.prior_learning.evidence"], "FEW", 0)
    far = ma.learn_prior(logs, prior, ma.Bernoulli())
    assert len(near.trace) < len(far.trace)
    assert_allclose(near.eta, far.eta, atol=2e-3)
    assert_allclose(near.trace[-1], far.trace[-1], atol=3e-5)
    assert_allclose(near.posterior.log_evidence, ma.fit(logs, near.prior, ma.Bernoulli()).log_evidence, rtol=1e-8)


def test_clicks_are_learned_where_sites_in_turn_fail(monkeypatch):
    rng = np.random.default_rng(1)
    category, actions = rng.integers(3, size=12), rng.integers(12, size=300)
    x = np.column_stack([np.ones(300), rng.normal(size=300)])
    logs = ma.LoggedData(x, actions, (rng.random(300) < 0.2 + 0.2 * category[actions]).astype(float), n_actions=12)
    prior = ma.priors.from_categories(category, dim=2)
    expected = ma.learn_prior(logs, prior, ma.Bernoulli())

    def failing(*args):
        raise NumericalError("too far.", "Stay.")

    monkeypatch.setattr(ApproximateEvidence, "_best_for_sites", failing)
    learned = ma.learn_prior(logs, prior, ma.Bernoulli())
    assert_allclose(learned.trace[-1], expected.trace[-1], atol=3e-5)
