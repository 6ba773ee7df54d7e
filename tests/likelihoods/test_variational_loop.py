"""The variational loop against integrals, modes and dense Gaussians."""

import numpy as np
import pytest
from fast_first import fast_first
from likelihood_cases import CASES, EVERY_FIT, Case, dense_objective, dense_weights, make_problem, summary
from numpy.testing import assert_allclose
from scipy import optimize, stats
from scipy.special import expit

import manyarms as ma
from manyarms.likelihoods import Bernoulli, Gaussian, LogNormal, Poisson, StudentT


@pytest.mark.parametrize("treatment", ["variational", "laplace"])
def test_with_gaussian_rewards_the_loop_stops_after_one_step_at_the_exact_answer(treatment):
    for seed in range(5):
        problem = make_problem(seed, Gaussian(0.5))
        exact, got = problem.fit(Gaussian(0.5)), problem.fit(Gaussian(0.5).treated(treatment))
        assert len(got.trace) == 2
        assert got.converged
        assert_allclose(summary(got), summary(exact), rtol=1e-10, atol=1e-10)


def test_log_normal_is_gaussian_on_a_logarithmic_scale():
    problem = make_problem(0, Gaussian(0.5))
    amounts = problem.with_rewards(np.exp(problem.logs.rewards))
    got, expected = amounts.fit(LogNormal(0.5)), problem.fit(Gaussian(0.5))
    assert_allclose(summary(got)[:-1], summary(expected)[:-1], rtol=1e-10, atol=1e-12)
    # Densities of amounts, not of their logarithms.
    assert_allclose(got.log_evidence, expected.log_evidence - problem.logs.rewards.sum(), rtol=1e-10)
    x, actions = problem.logs.contexts, problem.logs.actions
    draws = got.weights.sample(np.random.default_rng(0), 40_000)
    drawn = np.exp(np.einsum("nd,snd->sn", x, draws[:, actions]) + 0.125)
    z = (got.expected_reward(x, actions) - drawn.mean(axis=0)) / (drawn.std(axis=0) / 200)
    assert np.abs(z).max() < 4.5


@EVERY_FIT
@pytest.mark.parametrize("spread", fast_first([3.0, 0.3]))
def test_the_objective_is_that_of_dense_gaussians_and_never_falls(likelihood, spread):
    """The library's trace is a running maximum; here every step is computed anew."""
    case = next((c for c in CASES.values() if type(c.likelihood) is type(likelihood)), None)
    for seed in range(2):
        problem = make_problem(seed, likelihood, spread=spread)
        whole = problem.fit(likelihood)
        steps = [problem.fit(likelihood, max_iterations=k) for k in range(1, min(len(whole.trace), 8))]
        objectives = [dense_objective(problem, step, likelihood.expected_log_density) for step in steps]
        assert_allclose(objectives, whole.trace[1 : len(steps) + 1], rtol=1e-8, atol=1e-7)
        assert np.all(np.diff(objectives) > -1e-8)
        assert np.all(np.diff(whole.trace) >= 0)
        assert whole.converged
        if likelihood.treatment == "variational" and isinstance(likelihood, Bernoulli | Poisson):
            exact = np.vectorize(case.expected_log_density)
            assert_allclose(whole.log_evidence, dense_objective(problem, whole, exact), rtol=1e-4)


@pytest.mark.slow
@EVERY_FIT
@pytest.mark.parametrize(
    "changes",
    [
        {"spread": 1e4},
        {"spread": 1e-8},
        {"n_actions": 1},
        {"n_rounds": 1},
        {"n_actions": 1, "n_rounds": 1, "dim": 1},
        {"dim": 6, "n_rounds": 8, "spread": 9.0},
        {"separable": True},
        {"separable": True, "spread": 1e4},
    ],
    ids=str,
)
def test_odd_problems_end_in_finite_numbers_and_an_objective_that_rises(likelihood, changes):
    problem = make_problem(1, likelihood, **changes)
    posterior = problem.fit(likelihood)
    assert np.isfinite(summary(posterior)).all()
    assert np.all(np.diff(posterior.trace) >= 0)
    prior_cov = problem.prior.action_cov(np.arange(problem.prior.n_actions))
    cov = posterior.weights.action_cov(np.arange(problem.prior.n_actions))
    trace, prior_trace = (np.einsum("kdd->k", part) for part in (cov, prior_cov))
    assert (trace <= prior_trace * (1 + 1e-9)).all()
    assert posterior.converged or posterior.warnings


@pytest.mark.slow
@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_rewards_of_one_kind_are_believed_as_far_as_the_prior_allows(reward):
    found = []
    for spread in (0.1, 1.0, 10.0, 1e4):
        prior = ma.priors.independent(2, mean=np.zeros(1), cov=spread)
        logs = ma.LoggedData(np.ones((20, 1)), np.zeros(20, dtype=int), np.full(20, reward), n_actions=2)
        for treatment in ("laplace", "variational"):
            posterior = ma.fit(logs, prior, Bernoulli(treatment))
            assert posterior.converged or (spread > 10 and posterior.warnings)
            towards = abs(posterior.expected_reward(np.ones((1, 1)), [0])[0] - (1 - reward))
            # The mode of a flat likelihood says little: "laplace" may fall back to one half there, never beyond.
            assert towards > 0.5
            assert posterior.expected_reward(np.ones((1, 1)), [1])[0] == pytest.approx(0.5)
        found.append(towards)
    assert np.all(np.diff(found) > 0)
    assert found[-1] > 0.95


@pytest.mark.parametrize("likelihood", [Bernoulli(), Poisson()], ids=["bernoulli", "poisson"])
def test_small_problems_are_close_to_the_exact_posterior(likelihood):
    """One action in two dimensions and ten rounds: posterior and evidence by brute force on a grid."""
    case = CASES["bernoulli" if isinstance(likelihood, Bernoulli) else "poisson"]
    for seed in range(5):
        problem = make_problem(seed, likelihood, n_actions=1, n_rounds=10, latent_dim=1, spread=0.7)
        mean, cov, log_evidence = by_grid(problem, case)
        posterior = problem.fit(likelihood)
        got_mean, got_cov = dense_weights(posterior)
        std = np.sqrt(np.diag(cov))
        assert np.abs((got_mean - mean) / std).max() < 0.05
        assert_allclose(np.sqrt(np.diag(got_cov)), std, rtol=0.08)
        assert log_evidence - 0.06 < posterior.log_evidence <= log_evidence
        laplace = problem.fit(likelihood.treated("laplace"))
        assert_allclose(laplace.log_evidence, log_evidence, atol=0.2)


def test_students_t_is_close_to_the_exact_posterior_and_below_its_evidence():
    case = Case(StudentT(0.5, 3.0), (), lambda r, eta: stats.t.logpdf(r, 3.0, eta, 0.5), None)
    for seed in range(5):
        problem = make_problem(seed, case.likelihood, n_actions=1, n_rounds=10, latent_dim=1)
        mean, cov, log_evidence = by_grid(problem, case)
        posterior = problem.fit(case.likelihood)
        got_mean, got_cov = dense_weights(posterior)
        assert np.abs((got_mean - mean) / np.sqrt(np.diag(cov))).max() < 0.35
        assert_allclose(np.sqrt(np.diag(got_cov) / np.diag(cov)), 1.0, atol=0.35)
        assert log_evidence - 2.0 < posterior.log_evidence <= log_evidence


def by_grid(problem, case, size=301):
    """Mean and covariance of θ in R², and log p(rewards), by the sum over a grid."""
    half = 7 * np.sqrt(np.diag(problem.cov))
    axes = [np.linspace(c - h, c + h, size) for c, h in zip(problem.mean, half, strict=True)]
    theta = np.stack([grid.ravel() for grid in np.meshgrid(*axes, indexing="ij")], axis=1)
    log_joint = stats.multivariate_normal(problem.mean, problem.cov).logpdf(theta)
    for x, r in zip(problem.logs.contexts, problem.logs.rewards, strict=True):
        log_joint += case.log_density(r, np.minimum(theta @ x, 500.0))
    top, cell = log_joint.max(), np.prod([axis[1] - axis[0] for axis in axes])
    with np.errstate(under="ignore"):
        share = np.exp(log_joint - top)
        mean = share @ theta / share.sum()
        cov = (theta - mean).T @ ((theta - mean) * share[:, None]) / share.sum()
    return mean, cov, top + np.log(share.sum() * cell)


@pytest.mark.parametrize(
    "likelihood",
    [Bernoulli("laplace"), Poisson("laplace"), StudentT(0.5, 3.0, "laplace")],
    ids=lambda x: type(x).__name__,
)
def test_laplace_sits_at_the_joint_mode_of_latent_and_weights(likelihood):
    log_density = {
        Bernoulli: CASES["bernoulli"].log_density,
        Poisson: CASES["poisson"].log_density,
        StudentT: lambda r, eta: stats.t.logpdf(r, 3.0, eta, 0.5),
    }[type(likelihood)]
    problem = make_problem(2, likelihood, n_actions=3)
    prior, logs = problem.prior, problem.logs
    mixing = prior.mixing.apply(np.eye(2), np.arange(3)).transpose(1, 2, 0)

    def minus_log_joint(parameters):
        psi, theta = parameters[:2], parameters[2:].reshape(3, 2)
        miss = theta - mixing @ psi
        eta = np.einsum("nd,nd->n", logs.contexts, theta[logs.actions])
        latent = np.sum((psi - prior.latent_mean) ** 2) / 0.5
        return 0.5 * (latent + np.sum(miss**2)) - np.sum(log_density(logs.rewards, eta))

    # From the fit, since Student's t may have several modes; the gradient there has to vanish all the same.
    posterior = problem.fit(likelihood, tolerance=1e-12)
    got = np.concatenate([posterior.weights.latent_mean, posterior.weights.action_mean().ravel()])
    start = got + 0.05 * np.random.default_rng(0).normal(size=got.shape)
    mode = optimize.minimize(minus_log_joint, start, method="BFGS", options={"gtol": 1e-7, "maxiter": 1000}).x
    assert_allclose(got, mode, atol=1e-5)


@pytest.mark.parametrize("likelihood", [Bernoulli("laplace"), Poisson("laplace")], ids=lambda x: type(x).__name__)
def test_laplace_evidence_and_covariance_are_those_of_the_curvature_at_the_mode(likelihood):
    bernoulli = isinstance(likelihood, Bernoulli)
    case = CASES["bernoulli" if bernoulli else "poisson"]
    problem = make_problem(3, likelihood)
    posterior = problem.fit(likelihood, tolerance=1e-12)
    mean, cov = dense_weights(posterior)
    eta = problem.design @ mean
    curvature = expit(eta) * expit(-eta) if bernoulli else np.exp(eta)
    precision = np.linalg.inv(problem.cov) + problem.design.T @ (curvature[:, None] * problem.design)
    assert_allclose(cov, np.linalg.inv(precision), rtol=1e-5, atol=1e-8)
    log_joint = np.sum(case.log_density(problem.logs.rewards, eta))
    log_joint += stats.multivariate_normal(problem.mean, problem.cov).logpdf(mean)
    log_evidence = log_joint + 0.5 * len(mean) * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(precision)[1]
    assert_allclose(posterior.log_evidence, log_evidence, atol=1e-6)


@pytest.mark.parametrize("spread", [0.5, 2.0])
def test_poisson_ends_where_expected_slopes_and_weights_balance_the_prior(spread):
    """The conditions of the best Gaussian: Σ₀⁻¹ (θ̂ - μ₀) = Σ x (r - λ) and S⁻¹ = Σ₀⁻¹ + Σ λ x xᵀ, λ = e^(m + v/2)."""
    problem = make_problem(4, Poisson(), spread=spread)
    mean, cov = dense_weights(problem.fit(Poisson(), tolerance=1e-13, max_iterations=500))
    X = problem.design
    rate = np.exp(X @ mean + 0.5 * np.einsum("ni,ij,nj->n", X, cov, X))
    pull = X.T @ (problem.logs.rewards - rate)
    assert_allclose(np.linalg.solve(problem.cov, mean - problem.mean), pull, atol=1e-4)
    assert_allclose(np.linalg.inv(np.linalg.inv(problem.cov) + X.T @ (rate[:, None] * X)), cov, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("treatment", ["variational", "laplace"])
def test_large_counts_under_a_wide_prior_are_no_trouble_to_begin_with(treatment):
    """The prior expects e^45; a step from there, or from zero to counts in the thousands, would be astronomical."""
    rng = np.random.default_rng(0)
    x, actions = rng.normal(size=(400, 10)) / np.sqrt(10), np.arange(400) % 4
    theta = rng.normal(size=(4, 10))
    rewards = rng.poisson(np.exp(6.0 + 2 * np.einsum("nd,nd->n", x, theta[actions]))).astype(float)
    wide = np.column_stack([3 * x, np.ones(400)])
    prior = ma.priors.independent(4, mean=np.zeros(11), cov=np.r_[np.full(10, 9.0), 100.0])
    posterior = ma.fit(ma.LoggedData(wide, actions, rewards), prior, Poisson(treatment))
    assert posterior.converged
    assert len(posterior.trace) < 20
    got = posterior.weights.action_mean()
    assert_allclose(got[:, :10], 2 * theta / 3, atol=0.05)
    assert_allclose(got[:, 10], 6.0, atol=0.05)


@pytest.mark.parametrize("treatment", ["variational", "laplace"])
def test_outliers_do_not_move_students_t(treatment):
    rng = np.random.default_rng(0)
    likelihood = StudentT(0.5, 4.0, treatment)
    problem = make_problem(5, Gaussian(0.5), n_rounds=200)
    wild = problem.logs.rewards.copy()
    odd = rng.choice(200, 10, replace=False)
    wild[odd] = rng.choice([-1e6, 1e6], 10)
    rest = problem.logs.take(np.setdiff1d(np.arange(200), odd))
    got = problem.with_rewards(wild).fit(likelihood)
    expected = ma.fit(rest, problem.prior, likelihood)
    assert got.converged
    std = np.sqrt(np.diag(dense_weights(expected)[1])).reshape(got.weights.action_mean().shape)
    assert np.abs((got.weights.action_mean() - expected.weights.action_mean()) / std).max() < 0.01
    assert np.abs(problem.with_rewards(wild).fit(Gaussian(0.5)).weights.action_mean()).max() > 1e3


@pytest.mark.parametrize("unit", [1e-3, 1e6])
def test_units_of_rewards_do_not_matter_to_students_t(unit):
    problem = make_problem(6, StudentT())
    one = problem.fit(StudentT(0.5, 4.0))
    scaled = ma.HierarchicalGaussian(
        unit * problem.prior.latent_mean, 0.5 * unit**2, problem.prior.mixing, unit**2
    )  # fmt: skip
    logs = problem.with_rewards(unit * problem.logs.rewards).logs
    other = ma.fit(logs, scaled, StudentT(0.5 * unit, 4.0))
    assert_allclose(other.weights.action_mean() / unit, one.weights.action_mean(), rtol=1e-4, atol=1e-6)


def test_one_click_under_a_wide_prior_takes_few_steps():
    """A full step overshoots, and halved steps come to no end."""
    prior = ma.priors.independent(1, mean=np.zeros(1), cov=1e4)
    posterior = ma.fit(ma.LoggedData([[1.0]], [0], [1.0]), prior, Bernoulli())
    assert posterior.converged and len(posterior.trace) < 30
