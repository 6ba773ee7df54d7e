"""One round under each likelihood: densities, expectations and slopes against scipy and dense grids."""

import numpy as np
from likelihood_cases import CASES, EVERY, MOMENTS, expectation, make_problem, rows, summary
from numpy.testing import assert_allclose
from scipy import stats

from manyarms.likelihoods import Gaussian, LogNormal, Poisson, StudentT


@EVERY
def test_scipy_agrees_on_the_density(case):
    for r in case.rewards:
        got = case.likelihood.expected_log_density(*rows(r, 0.3, 0.0))[0]
        assert_allclose(got, case.log_density(r, 0.3), rtol=1e-12)


def test_scipy_agrees_on_the_density_of_counts():
    r, eta = np.array([0.0, 3.0, 50.0]), np.array([-1.0, 2.0, 3.5])
    got = Poisson().expected_log_density(r, eta, np.zeros(3))
    assert_allclose(got, stats.poisson.logpmf(r, np.exp(eta)), rtol=1e-12)


@EVERY
def test_expected_log_density_is_the_integral(case):
    for r in case.rewards:
        for m, v in MOMENTS:
            got = case.likelihood.expected_log_density(*rows(r, m, v))[0]
            assert_allclose(got, case.expected_log_density(r, m, v), rtol=1e-5, atol=1e-5)


def test_students_bound_lies_below_the_integral_and_touches_it_without_variance():
    case = CASES["student"]
    for r in case.rewards:
        for m, v in MOMENTS:
            got = case.likelihood.expected_log_density(*rows(r, m, v))[0]
            exact = expectation(lambda eta, r=r: case.log_density(r, eta), m, v)
            assert got <= exact + 1e-9
            if v < 1e-6:
                assert_allclose(got, exact, atol=1e-6)


@EVERY
def test_slopes_are_the_derivatives_of_the_expected_log_density(case):
    for r in case.rewards:
        for m, v in MOMENTS:
            slope, weight = (part[0] for part in case.likelihood.slopes(*rows(r, m, v)))

            def at(m, v, r=r):
                return case.likelihood.expected_log_density(*rows(r, m, v))[0]

            h = 1e-5
            scale = 1.0 + abs(at(m, v))
            assert_allclose(slope, (at(m + h, v) - at(m - h, v)) / (2 * h), rtol=1e-5, atol=1e-8 * scale)
            if v > 1e-6:
                k = 1e-4 * v
                falls = -2 * (at(m, v + k) - at(m, v - k)) / (2 * k)
                assert_allclose(weight, falls, rtol=2e-4, atol=1e-8 * scale / v)
            assert weight > 0


@EVERY
def test_mean_reward_and_its_slope_are_the_integrals(case):
    probit = case is CASES["bernoulli"]
    for m, v in MOMENTS:
        mean, slope = case.likelihood.mean_reward(*rows(m, v))[0], case.likelihood.mean_slope(*rows(m, v))[0]
        h = 1e-4

        def derivative(eta, h=h):
            return (case.reward(eta + h) - case.reward(eta - h)) / (2 * h)

        # The probit approximation is known to be off by up to 0.02; twenty nodes resolve a logistic curve up to v = 4.
        allowed = 0.02 if probit else 1e-8 if v < 1 else 3e-5
        assert_allclose(mean, expectation(case.reward, m, v), rtol=1e-6, atol=allowed)
        assert_allclose(slope, expectation(derivative, m, v), rtol=1e-6, atol=allowed)
        assert_allclose(case.likelihood.reward_given(*rows(m))[0], case.reward(m), rtol=1e-12)


@EVERY
def test_score_ranks_as_the_mean_reward_does(case):
    rng = np.random.default_rng(0)
    m, v = rng.normal(size=(2, 50))
    v = v**2
    score, mean = case.likelihood.score(m, v), case.likelihood.mean_reward(m, v)
    assert list(np.argsort(score)) == list(np.argsort(mean))


@EVERY
def test_log_predictive_is_the_integral_of_the_density(case):
    for r in case.rewards:
        for m, v in [*MOMENTS, (0.0, 10.0)]:
            got = case.likelihood.log_predictive(*rows(r, m, v))[0]
            eta = np.unique(
                np.concatenate([m + np.sqrt(v) * np.linspace(-13, 13, 40_001), np.linspace(-60, 60, 40_001)])
            )
            with np.errstate(under="ignore"):
                terms = case.log_density(r, eta) + stats.norm.logpdf(eta, m, np.sqrt(v))
                exact = terms.max() + np.log(np.trapezoid(np.exp(terms - terms.max()), eta))
            assert_allclose(got, exact, rtol=1e-3, atol=1e-3, err_msg=f"r={r} m={m} v={v}")


def test_log_predictive_of_students_t_holds_for_narrow_noise_and_far_rewards():
    for r, v, scale in [(0.0, 100.0, 0.01), (8.0, 1.0, 0.01), (1e6, 1.0, 0.1), (1e6, 100.0, 30.0), (30.0, 4.0, 1.0)]:
        got = StudentT(scale, 4.0).log_predictive(*rows(r, 0.0, v))[0]
        near, wide = r + scale * np.linspace(-3e3, 3e3, 400_001), np.sqrt(v) * np.linspace(-13, 13, 400_001)
        eta = np.unique(np.concatenate([near, wide]))
        with np.errstate(under="ignore"):
            density = np.exp(stats.t.logpdf(r, 4.0, eta, scale) + stats.norm.logpdf(eta, 0.0, np.sqrt(v)))
        assert_allclose(got, np.log(np.trapezoid(density, eta)), rtol=1e-5)


@EVERY
def test_extreme_predictors_give_finite_numbers(case):
    m, v = (grid.ravel() for grid in np.meshgrid([-1e6, -800.0, 0.0, 800.0, 1e6], [0.0, 1e-300, 1.0, 1e3, 1e6]))
    for reward in case.rewards:
        r, one = np.full_like(m, reward), case.likelihood
        found = [
            one.expected_log_density(r, m, v),
            *one.slopes(r, m, v),
            *one.site(r, m, v),
            one.log_predictive(r, m, v),
        ]
        found += [one.mean_reward(m, v), one.mean_slope(m, v), one.score(m, v)]
        assert all(np.isfinite(part).all() for part in found)


def test_student_with_many_degrees_is_gaussian():
    student, gaussian = StudentT(0.7, 1e8), Gaussian(0.7)
    r, m, v = np.array([-3.0, 0.0, 2.0]), np.array([0.0, 0.5, 1.0]), np.array([0.0, 0.5, 2.0])
    for name in ("expected_log_density", "slopes", "log_predictive"):
        got, expected = getattr(student, name)(r, m, v), getattr(gaussian, name)(r, m, v)
        assert_allclose(got, expected, rtol=1e-6, atol=1e-6)
    problem = make_problem(0, student)
    got, expected = problem.fit(student), problem.fit(gaussian)
    assert_allclose(summary(got), summary(expected), rtol=1e-6, atol=1e-6)


def test_the_normaliser_of_students_t_has_no_seam():
    """Stirling's series takes over from the logarithms of Gamma functions at 2000 degrees."""
    for degrees in (1.01, 4.0, 1999.0, 2001.0, 1e5):
        got = StudentT(1.0, degrees).expected_log_density(*rows(0.4, 0.0, 0.0))[0]
        assert_allclose(got, stats.t.logpdf(0.4, degrees), rtol=1e-9)


def test_noise_is_named_where_it_can_be_learned():
    assert Poisson().dispersion is None
    assert StudentT(0.3).with_dispersion(0.6) == StudentT(0.6)
    assert LogNormal(0.3).with_dispersion(0.6) == LogNormal(0.6)
    for likelihood, r in ((StudentT(0.3), -1.0), (LogNormal(0.3), 2.0)):
        up, down = (likelihood.with_dispersion(0.3 * np.exp(h)) for h in (1e-4, -1e-4))
        rise = up.expected_log_density(*rows(r, 0.2, 0.1)) - down.expected_log_density(*rows(r, 0.2, 0.1))
        assert_allclose(likelihood.dispersion_slope(*rows(r, 0.2, 0.1)), rise / 2e-4, rtol=1e-5)
