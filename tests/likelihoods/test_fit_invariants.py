"""Fits under every likelihood: weights are counts, order does not matter, starts do not matter."""

import numpy as np
import pytest
from likelihood_cases import EVERY_FIT, FITTED, dense_weights, make_problem, summary
from numpy.testing import assert_allclose
from threadpoolctl import threadpool_limits

import manyarms as ma
from manyarms.likelihoods import LogNormal, Poisson

ALL_FITS = pytest.mark.parametrize("likelihood", [*FITTED.values(), LogNormal(0.5)], ids=[*FITTED, "log-normal"])


def problem_for(seed, likelihood, **changes):
    problem = make_problem(seed, likelihood, **changes)
    return problem.with_rewards(np.exp(problem.logs.rewards)) if isinstance(likelihood, LogNormal) else problem


@ALL_FITS
def test_weight_two_is_the_round_twice_and_weight_zero_none(likelihood):
    problem = problem_for(7, likelihood)
    logs, counts = problem.logs, np.random.default_rng(0).integers(0, 4, 40)
    weighted = ma.LoggedData(logs.contexts, logs.actions, logs.rewards, n_actions=4, weights=counts)
    repeated = logs.take(np.repeat(np.arange(40), counts))
    got, expected = (ma.fit(given, problem.prior, likelihood, tolerance=1e-12) for given in (weighted, repeated))
    assert_allclose(summary(got)[:-1], summary(expected)[:-1], atol=1e-5)
    assert_allclose(got.log_evidence, expected.log_evidence, rtol=1e-8)


@ALL_FITS
def test_without_rounds_the_prior_comes_back(likelihood):
    problem = problem_for(8, likelihood)
    posterior = ma.fit(problem.logs.take(slice(0, 0)), problem.prior, likelihood)
    assert posterior.log_evidence == 0.0
    assert_allclose(posterior.weights.action_mean(), problem.prior.action_mean())
    assert_allclose(dense_weights(posterior)[1], problem.cov)
    nothing = ma.LoggedData(
        problem.logs.contexts, problem.logs.actions, problem.logs.rewards, n_actions=4, weights=np.zeros(40)
    )
    assert_allclose(ma.fit(nothing, problem.prior, likelihood).weights.action_mean(), problem.prior.action_mean())


@EVERY_FIT
def test_a_warm_start_ends_at_the_same_place_sooner(likelihood):
    problem = make_problem(9, likelihood)
    cold = problem.fit(likelihood, tolerance=1e-10)
    warm = problem.fit(likelihood, start=cold, tolerance=1e-10)
    assert len(warm.trace) <= min(len(cold.trace), 3)
    assert_allclose(summary(warm), summary(cold), atol=1e-4)


@pytest.mark.parametrize("treatment", ["variational", "laplace"])
def test_a_warm_start_that_never_saw_an_action_does_no_harm(treatment):
    """Of the second action the earlier posterior says e^45, as the prior does."""
    rng = np.random.default_rng(0)
    x, actions = rng.normal(size=(60, 10)), np.arange(60) % 2
    logs = ma.LoggedData(x, actions, rng.poisson(np.exp(0.3 * x[:, 0])).astype(float))
    prior = ma.priors.independent(2, mean=np.zeros(10), cov=9.0)
    earlier = ma.fit(logs.take(np.flatnonzero(actions == 0)), prior, Poisson(treatment))
    cold, warm = (ma.fit(logs, prior, Poisson(treatment), start=start) for start in (None, earlier))
    assert cold.converged
    assert warm.converged
    assert_allclose(warm.log_evidence, cold.log_evidence, atol=1e-3)


@EVERY_FIT
def test_relabelling_rounds_changes_nothing(likelihood):
    problem = make_problem(10, likelihood)
    shuffled = problem.logs.take(np.random.default_rng(0).permutation(len(problem.logs)))
    assert_allclose(
        summary(ma.fit(shuffled, problem.prior, likelihood)), summary(problem.fit(likelihood)), rtol=1e-7, atol=1e-9
    )


def test_a_fit_of_many_rounds_does_not_depend_on_the_threads_of_the_linear_algebra():
    # Beyond 10,000 numbers, OpenBLAS adds up a product of two vectors on all cores, and rounds otherwise than on one.
    rng = np.random.default_rng(2)
    contexts, actions = rng.normal(size=(12_000, 1)), rng.integers(6_000, size=12_000)
    logs = ma.LoggedData(contexts, actions, rng.integers(2, size=12_000), n_actions=6_000)
    traces = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            traces.append(ma.fit(logs, ma.priors.independent(6_000, dim=1), ma.Bernoulli()).trace)
    assert traces[0] == traces[1]
