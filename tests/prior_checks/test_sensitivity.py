"""Sensitivity of a value to the prior: that of refits with scaled prior and noise."""

import numpy as np
import pytest
from prior_check_problems import (
    BY_CATEGORY,
    CATEGORIES,
    RECIPE,
    draw_events,
)
from problems import make_problem
from scipy import integrate, stats

import manyarms as ma
from manyarms import priors
from manyarms.prior_checks.sensitivity import THRESHOLD, prior_sensitivity


def scaled_problem(problem, prior_power, likelihood_power):
    """The same problem with Σ, Σ_a and σ written out anew."""
    dense = problem.dense
    prior = ma.HierarchicalGaussian(
        dense.latent_mean,
        dense.latent_cov / prior_power,
        dense.mixing,
        dense.action_cov / prior_power,
        dense.offset,
    )
    return ma.fit(problem.logs, prior, ma.Gaussian(problem.noise_std / np.sqrt(likelihood_power)))


def distance(first, second, reach=3.6):
    """Cumulative Jensen-Shannon distance of two normals, by adaptive quadrature of its definition."""
    low, high = first.value - reach * first.posterior_std, first.value + reach * first.posterior_std

    def one(flip):
        p = stats.norm(flip * first.value, first.posterior_std).cdf
        q = stats.norm(flip * second.value, second.posterior_std).cdf
        ends = sorted((flip * low, flip * high))

        def divergence(x, f, g):
            half = 1 / (2 * np.log(2))
            return f(x) * (np.log2(f(x)) - np.log2((f(x) + g(x)) / 2)) + half * (g(x) - f(x))

        def area(f):
            return integrate.quad(f, *ends, epsabs=1e-14, epsrel=1e-12, limit=200)[0]

        return np.sqrt(
            (area(lambda x: divergence(x, p, q)) + area(lambda x: divergence(x, q, p))) / (area(p) + area(q))
        )

    return max(one(1.0), one(-1.0))


@pytest.mark.parametrize("with_baseline", [False, True])
def test_sensitivity_is_that_of_refits_with_scaled_prior_and_noise(with_baseline):
    problem = make_problem(**RECIPE)
    rng = np.random.default_rng(1)
    contexts, policy = rng.normal(size=(7, 3)), ma.TablePolicy(rng.dirichlet(np.ones(5)))
    baseline = ma.Uniform(5) if with_baseline else None

    def value(prior_power=1.0, likelihood_power=1.0):
        posterior = scaled_problem(problem, prior_power, likelihood_power)
        if baseline is None:
            return posterior.value(policy, contexts)
        return posterior.difference(policy, baseline, contexts)

    found, plain = prior_sensitivity(problem.fit(), policy, contexts, baseline=baseline), value()
    assert (found.value, found.std) == (pytest.approx(plain.value), pytest.approx(plain.posterior_std))
    for component, name in ((found.prior, "prior_power"), (found.likelihood, "likelihood_power")):
        near = sum(distance(plain, value(**{name: alpha})) for alpha in (1.01, 1 / 1.01))
        assert component.sensitivity == pytest.approx(near / (2 * np.log2(1.01)), rel=1e-4)
        double = value(**{name: 2.0})
        assert component.move == pytest.approx((double.value - plain.value) / plain.posterior_std, rel=1e-8)
        assert component.std_ratio == pytest.approx(double.posterior_std / plain.posterior_std, rel=1e-8)


def test_sensitivity_is_what_weighted_draws_say():
    """As the paper computes it: 4,000 draws of the value, reweighted, and their weighted distribution functions."""
    problem = make_problem(**RECIPE)
    policy, contexts = ma.Uniform(5), np.random.default_rng(2).normal(size=(6, 3))
    found, plain = prior_sensitivity(problem.fit(), policy, contexts), problem.fit().value(policy, contexts)
    draws = stats.norm.ppf((np.arange(4000) + 0.5) / 4000, plain.value, plain.posterior_std)

    def cjs(x, weights):
        order = np.argsort(x)
        width, p = np.diff(x[order]), (np.arange(len(x)) + 1.0)[:-1] / len(x)
        q = (np.cumsum(weights[order]) / weights.sum())[:-1]
        parts = p * np.log2(2 * p / (p + q)) + q * np.log2(2 * q / (p + q))
        return np.sqrt(width @ parts / (width @ (p + q)))

    for component, name in ((found.prior, "prior_power"), (found.likelihood, "likelihood_power")):
        total = 0.0
        for alpha in (1.01, 1 / 1.01):
            powers = {"prior_power": 1.0, "likelihood_power": 1.0, name: alpha}
            moved = scaled_problem(problem, **powers).value(policy, contexts)
            log_ratio = stats.norm.logpdf(draws, moved.value, moved.posterior_std)
            weights = np.exp(log_ratio - stats.norm.logpdf(draws, plain.value, plain.posterior_std))
            total += max(cjs(draws, weights), cjs(-draws, weights))
        assert component.sensitivity == pytest.approx(total / (2 * np.log2(1.01)), rel=0.03)


def test_diagnosis_tells_conflict_domination_and_neither():
    def of(prior_std, mean, n_rounds):
        prior = priors.independent(2, mean=mean, cov=prior_std**2, dim=1)
        rewards = np.resize([-1.0, 1.0], n_rounds)
        logs = ma.LoggedData(np.ones((n_rounds, 1)), np.resize([0, 0, 1, 1], n_rounds), rewards, n_actions=2)
        return prior_sensitivity(ma.fit(logs, prior), ma.Uniform(2), np.ones((1, 1)))

    assert of(10.0, 0.0, 100).diagnosis == "-"
    assert of(1.0, 0.0, 0).diagnosis == "the prior decides (weak likelihood)"
    assert of(0.1, 0.0, 4).diagnosis == "the prior decides (weak likelihood)"
    assert of(0.5, 5.0, 8).diagnosis == "prior-data conflict"
    assert of(1.0, 1.5, 4).diagnosis == "the scale of the prior matters"
    for found in (of(0.5, 5.0, 8), of(1.0, 1.5, 4)):
        assert min(found.prior.sensitivity, found.likelihood.sensitivity) > THRESHOLD


def test_a_value_without_doubt_does_not_move():
    logs = ma.LoggedData(np.ones((4, 1)), [0, 0, 1, 1], [1.0, 0.0, 2.0, 1.0])
    sure = prior_sensitivity(ma.fit(logs, priors.independent(2, mean=1.0, cov=0.0, dim=1)), ma.Uniform(2), [[2.0]])
    assert (sure.value, sure.std, sure.prior.sensitivity) == (2.0, 0.0, 0.0)
    assert sure.diagnosis == "the prior decides (weak likelihood)"
    plain = ma.fit(logs, priors.independent(2, dim=1))
    same = prior_sensitivity(plain, ma.Uniform(2), [[2.0]], baseline=ma.Uniform(2))
    assert (same.value, same.std, same.diagnosis) == (0.0, 0.0, "-")


def test_a_fit_in_steps_is_as_sensitive_as_one_of_all_rounds():
    problem = make_problem(**RECIPE)
    first, second = problem.logs.take(slice(0, 10)), problem.logs.take(slice(10, 25))
    steps = ma.fit(second, ma.fit(first, problem.prior).weights)
    policy, contexts = ma.Uniform(5), problem.logs.contexts
    one, other = (prior_sensitivity(p, policy, contexts) for p in (problem.fit(), steps))
    assert one.prior.sensitivity == pytest.approx(other.prior.sensitivity, rel=1e-8)
    assert one.misfit.value == pytest.approx(other.misfit.value)


@pytest.mark.slow
@pytest.mark.parametrize("with_baseline", [False, True])
@pytest.mark.parametrize("likelihood", [ma.Bernoulli(), ma.Poisson(), ma.StudentT(), ma.LogNormal()])
def test_sensitivity_of_other_rewards_is_that_of_refits(likelihood, with_baseline):
    """Power of the prior: covariances divided; of the likelihood: weights times it. Values as `value` has them."""
    rng = np.random.default_rng(3)
    logs = draw_events(rng, BY_CATEGORY, likelihood, 300)
    posterior = ma.fit(logs, BY_CATEGORY, likelihood)
    policy, baseline = ma.Greedy(posterior), ma.Uniform(40) if with_baseline else None
    x = logs.contexts[:50]

    def value(prior_power=1.0, likelihood_power=1.0):
        prior = priors.from_categories(
            CATEGORIES, dim=2, effect_std=prior_power**-0.5, action_std=0.5 * prior_power**-0.5
        )
        weighted = ma.LoggedData(
            logs.contexts, logs.actions, logs.rewards, n_actions=40, weights=np.full(300, likelihood_power)
        )
        found = ma.fit(weighted, prior, likelihood, tolerance=1e-10, max_iterations=1000)
        return found.value(policy, x) if baseline is None else found.difference(policy, baseline, x)

    found, plain = prior_sensitivity(posterior, policy, x, baseline=baseline, logs=logs), value()
    assert (found.value, found.std) == (pytest.approx(plain.value), pytest.approx(plain.posterior_std))
    for component, name in ((found.prior, "prior_power"), (found.likelihood, "likelihood_power")):
        near = sum(distance(plain, value(**{name: alpha})) for alpha in (1.01, 1 / 1.01))
        assert component.sensitivity == pytest.approx(near / (2 * np.log2(1.01)), rel=0.01)
        double = value(**{name: 2.0})
        assert component.move == pytest.approx((double.value - plain.value) / plain.posterior_std, rel=1e-3, abs=1e-4)
        assert component.std_ratio == pytest.approx(double.posterior_std / plain.posterior_std, rel=1e-4)


def test_the_sensitivity_of_amounts_needs_no_rounds():
    """Under LogNormal fits are exact, though rewards are not linear: refits from the posterior alone."""
    rounds = draw_events(np.random.default_rng(2), BY_CATEGORY, ma.LogNormal(1.0), 300)
    posterior = ma.fit(rounds, BY_CATEGORY, ma.LogNormal(0.4))
    x, policy = rounds.contexts[:9], ma.Uniform(40)

    def value(prior_power=1.0, likelihood_power=1.0):
        prior = priors.from_categories(
            CATEGORIES, dim=2, effect_std=prior_power**-0.5, action_std=0.5 * prior_power**-0.5
        )
        weighted = ma.LoggedData(
            rounds.contexts, rounds.actions, rounds.rewards, n_actions=40, weights=np.full(300, likelihood_power)
        )
        return ma.fit(weighted, prior, ma.LogNormal(0.4)).value(policy, x)

    found, plain = prior_sensitivity(posterior, policy, x), value()
    assert (found.value, found.std) == (pytest.approx(plain.value), pytest.approx(plain.posterior_std))
    for component, name in ((found.prior, "prior_power"), (found.likelihood, "likelihood_power")):
        double = value(**{name: 2.0})
        assert component.move == pytest.approx((double.value - plain.value) / plain.posterior_std, rel=1e-3, abs=1e-4)


def test_a_gain_that_cannot_vary_is_not_sensitive_and_posteriors_of_posteriors_are_refused():
    clicks = draw_events(np.random.default_rng(2), BY_CATEGORY, ma.Bernoulli(), 300)
    posterior = ma.fit(clicks, BY_CATEGORY, ma.Bernoulli(), tolerance=1e-10, max_iterations=500)
    same = prior_sensitivity(posterior, ma.Uniform(40), clicks.contexts[:9], baseline=ma.Uniform(40), logs=clicks)
    assert (same.value, same.std, same.prior.sensitivity, same.likelihood.sensitivity) == (0.0, 0.0, 0.0, 0.0)
    later = ma.fit(clicks, posterior.weights, ma.Bernoulli())
    with pytest.raises(ma.errors.InputError, match="Fit all rounds on the first prior"):
        prior_sensitivity(later, ma.Uniform(40), clicks.contexts[:9], logs=clicks)
