"""The fit at the mode: against the linear path, SciPy's optimiser on dense densities, and integrals."""

import numpy as np
import pytest
from fast_first import fast_first
from nonlinear_examples import FORMS, SHAPES, Example, Tiny, assert_same, clicking, linear_problem, squared
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from scipy.stats import multivariate_normal, norm

import manyarms as ma
from manyarms.errors import NonFiniteError
from manyarms.nonlinear import NonlinearHierarchy, fit_nonlinear, sample_posterior
from manyarms.nonlinear.nonlinear_hierarchy import as_hierarchy


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form['mixing_form']}-{form['cov_form']}")
def test_linear_functions_give_the_linear_posterior_in_one_step(form):
    problem = linear_problem(form)
    got = fit_nonlinear(problem.logs, as_hierarchy(problem.prior), ma.Gaussian(problem.noise_std))
    assert_same(got, problem.fit())
    assert len(got.trace) <= 2
    assert got.converged
    assert not got.fit_warnings


def test_linear_functions_give_the_linear_posterior_with_differences_for_a_jacobian():
    problem = linear_problem(FORMS[0])
    prior = problem.prior
    linear = as_hierarchy(prior)
    without = NonlinearHierarchy(
        prior.latent_mean, prior.latent_cov, linear.function, prior.action_covariance, prior.n_actions, prior.dim
    )
    assert_same(fit_nonlinear(problem.logs, without, ma.Gaussian(problem.noise_std)), problem.fit(), 1e-9)


@pytest.mark.parametrize("treatment", ["laplace", "variational", "paper"])
def test_linear_functions_give_the_linear_posterior_of_clicks(treatment):
    problem = linear_problem(FORMS[0], n_rounds=60)
    clicks = (problem.logs.rewards > 0.5).astype(float)
    logs = ma.LoggedData(problem.logs.contexts, problem.logs.actions, clicks, n_actions=problem.prior.n_actions)
    likelihood = ma.Bernoulli(treatment)
    got = fit_nonlinear(logs, as_hierarchy(problem.prior), likelihood, tolerance=1e-13)
    assert_same(got, ma.fit(logs, problem.prior, likelihood, tolerance=1e-13), 1e-6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_mode_is_that_of_the_dense_joint_density(shape, seed):
    example = Example(shape, seed)
    posterior = example.fit(tolerance=1e-15, max_iterations=500)
    best = minimize(example.negative_log_joint, example.mean, jac="3-point", options={"gtol": 1e-8})
    assert_allclose(posterior.latent_mode, best.x, atol=1e-6)
    assert_allclose(posterior.weights.latent_mean, best.x, atol=1e-6)
    assert posterior.converged
    # But for the normaliser of the prior the objective is that density.
    constant = multivariate_normal.logpdf(example.mean, example.mean, example.cov)
    assert_allclose(posterior.trace[-1] + constant, -example.negative_log_joint(best.x), atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("likelihood", [ma.Gaussian(0.5), ma.Bernoulli("laplace"), ma.Bernoulli()], ids=str)
def test_the_objective_never_falls(shape, likelihood):
    for seed in range(2):
        example = Example(shape, seed)
        rewards = example.rewards if isinstance(likelihood, ma.Gaussian) else example.clicks
        start = example.mean + 2 * np.random.default_rng(seed).normal(size=3)
        posterior = fit_nonlinear(example.logs(rewards), example.hierarchy, likelihood, start=start)
        assert len(posterior.trace) > 2
        assert np.diff(posterior.trace).min() >= 0.0
        assert posterior.converged


def test_laplace_ends_at_the_joint_mode_of_latent_and_weights():
    example = Example("tanh", seed=2, n_actions=6, n_rounds=50)
    posterior = fit_nonlinear(example.logs(example.clicks), example.hierarchy, ma.Bernoulli("laplace"), tolerance=1e-14)
    p, (K, d, _) = 3, example.W.shape
    precision, sign = np.linalg.inv(example.cov), 2 * example.clicks - 1

    def negative_log_joint(flat):
        psi, theta = flat[:p], flat[p:].reshape(K, d)
        away, off = psi - example.mean, theta - example.W @ np.tanh(psi)
        eta = np.einsum("nd,nd->n", example.x, theta[example.actions])
        value = 0.5 * away @ precision @ away + 0.5 * np.sum(off**2) / example.action_cov - log_expit(sign * eta).sum()
        slope = off / example.action_cov
        by_psi = precision @ away - np.einsum("kd,kdp,p->p", slope, example.W, 1 - np.tanh(psi) ** 2)
        np.add.at(slope, example.actions, (expit(eta) - example.clicks)[:, None] * example.x)
        return value, np.concatenate([by_psi, slope.reshape(-1)])

    best = minimize(negative_log_joint, np.zeros(p + K * d), jac=True, options={"gtol": 1e-10, "maxiter": 5000})
    assert_allclose(posterior.latent_mode, best.x[:p], atol=1e-6)
    assert_allclose(posterior.weights.action_mean(), best.x[p:].reshape(K, d), atol=1e-6)
    assert_allclose(posterior.trace[-1], -best.fun, atol=1e-8)


@pytest.mark.parametrize("shape", fast_first(SHAPES))
def test_laplace_evidence_is_near_the_integral(shape):
    example = Example(shape, n_actions=40, latent_dim=1, n_rounds=200)
    posterior = example.fit()
    mode, std = posterior.latent_mode[0], np.sqrt(posterior.weights.latent_cov[0, 0])
    grid = np.linspace(mode - 8 * std, mode + 8 * std, 161)
    log_joint = -np.array([example.negative_log_joint(np.array([psi])) for psi in grid])
    exact = np.log(np.trapezoid(np.exp(log_joint - log_joint.max()), grid)) + log_joint.max()
    assert_allclose(posterior.log_evidence, exact, atol=0.1)


def test_the_variational_objective_is_a_lower_bound_and_its_mode_near_the_exact_one():
    tiny = Tiny(np.tanh, rounds=15)
    clicks = (tiny.rng.random(len(tiny.eta)) < expit(tiny.eta)).astype(float)
    posterior = fit_nonlinear(tiny.logs(clicks), tiny.hierarchy, ma.Bernoulli())
    exact, _ = tiny.integrate(clicks, clicking)
    normaliser = norm.logpdf(0.0)
    bound, best = posterior.trace[-1] + normaliser, np.interp(posterior.latent_mode[0], tiny.psi, exact)
    assert best - 0.05 < bound < best
    assert abs(posterior.latent_mode[0] - tiny.psi[np.argmax(exact)]) < 0.05


def test_a_posterior_makes_policies_and_values():
    example = Example("tanh")
    posterior = example.fit()
    greedy = ma.Greedy(posterior)
    estimate = posterior.difference(greedy, ma.Uniform(example.n_actions), example.x)
    assert estimate.method == "delta"
    assert estimate.value > 0
    assert repr(posterior).startswith("NonlinearPosterior(12 actions")
    more = posterior.update(example.logs())
    assert more.statistics.n_rounds == 2 * len(example.x)
    assert_allclose(more.latent_mode, posterior.latent_mode)


def test_a_weight_of_two_is_the_round_twice_and_of_zero_no_round():
    example = Example("tanh")
    counts = np.random.default_rng(0).integers(0, 3, len(example.x)).astype(float)
    rows = np.repeat(np.arange(len(counts)), counts.astype(int))
    for rewards, likelihood in ((example.rewards, ma.Gaussian(0.5)), (example.clicks, ma.Bernoulli())):
        weighted = fit_nonlinear(example.logs(rewards, weights=counts), example.hierarchy, likelihood, tolerance=1e-12)
        repeated = fit_nonlinear(example.logs(rewards).take(rows), example.hierarchy, likelihood, tolerance=1e-12)
        assert_same(weighted, repeated, 1e-6)


def test_an_earlier_posterior_is_a_good_start():
    example = Example("exp")
    posterior = example.fit()
    again = example.fit(start=posterior)
    assert len(again.trace) == 1
    assert_allclose(again.latent_mode, posterior.latent_mode)


def test_no_rounds_leave_the_prior(unchecked):
    example = Example("tanh")
    none = ma.LoggedData(np.zeros((0, 2)), [], [], n_actions=example.n_actions)
    for likelihood in (ma.Gaussian(), ma.Bernoulli()):
        posterior = fit_nonlinear(none, example.hierarchy, likelihood, start=example.mean + 1)
        assert_allclose(posterior.latent_mode, example.mean, atol=1e-12)
        assert_allclose(posterior.log_evidence, 0.0, atol=1e-12)
        draws = sample_posterior(none, example.hierarchy, likelihood, 800, rng=np.random.default_rng(0), warmup=5)
        error = np.sqrt(np.diag(example.cov) / draws.effective_draws)
        assert np.all(np.abs(draws.latent.mean(axis=0) - example.mean) < 4 * error)


def test_several_starts_keep_the_best_mode_and_tell_of_others():
    logs = ma.LoggedData(np.ones((30, 1)), np.zeros(30, dtype=int), np.full(30, 4.0), n_actions=2)
    hierarchy = NonlinearHierarchy([0.5], 2.0, squared, 0.01, n_actions=2, dim=1)
    low = fit_nonlinear(logs, hierarchy, start=[-1.0])
    both = fit_nonlinear(logs, hierarchy, start=[[-1.0], [1.0]])
    assert low.latent_mode[0] < 0 < both.latent_mode[0]
    assert both.trace[-1] == both.mode_objectives[0] > both.mode_objectives[1] == low.trace[-1]
    assert "1 of 2 starts ended at other modes" in both.warnings[0]
    assert not low.fit_warnings


def test_a_climb_that_stops_early_says_so():
    example = Example("exp")
    posterior = example.fit(max_iterations=1)
    assert not posterior.converged
    assert "not converged after 1 steps" in posterior.warnings[0]
    assert posterior.warnings[0] in posterior.value(ma.Uniform(example.n_actions), example.x).warnings


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_climb_that_rounding_ends_is_not_called_stuck_however_far_rewards_are_from_the_prior(seed):
    example = Example("tanh", seed, n_rounds=12)
    logs = ma.LoggedData(example.x, np.arange(12), 10.0 * np.cos(np.arange(12)), n_actions=12)
    posterior = fit_nonlinear(logs, example.hierarchy, ma.Gaussian(0.1), tolerance=1e-300)
    assert not any("no step" in text for text in posterior.warnings)


def test_a_wrong_jacobian_is_suspected():
    example = Example("tanh")
    wrong = example.build(lambda psi, actions: -example.jacobian(psi, actions))
    posterior = fit_nonlinear(example.logs(), wrong, ma.Gaussian(0.5))
    assert not posterior.converged
    assert "jacobian" in posterior.warnings[0]
    assert len(posterior.trace) == 1


def test_a_step_into_overflow_is_shortened():
    logs = ma.LoggedData(np.ones((5, 1)), np.zeros(5, dtype=int), np.full(5, 3.0), n_actions=1)
    hierarchy = NonlinearHierarchy([-9.0], 100.0, lambda psi, a: np.exp([[psi[0]]] * len(a)), 0.01, n_actions=1, dim=1)
    posterior = fit_nonlinear(logs, hierarchy, ma.Gaussian(0.1))
    assert posterior.converged
    assert_allclose(posterior.latent_mode, np.log(3.0), atol=0.05)


def test_a_function_that_is_finite_nowhere_beside_the_start_is_named():
    logs = ma.LoggedData(np.ones((5, 1)), np.zeros(5, dtype=int), np.full(5, 3.0), n_actions=1)
    hierarchy = NonlinearHierarchy(
        [0.0], 1.0, lambda psi, a: np.full((len(a), 1), 0.0 if psi[0] == 0.0 else np.inf), 0.01, n_actions=1, dim=1,
        jacobian=lambda psi, a: np.ones((len(a), 1, 1)),
    )  # fmt: skip
    with pytest.raises(NonFiniteError, match="must return finite numbers; action 0 has inf at latent"):
        fit_nonlinear(logs, hierarchy, ma.Gaussian(0.1))
