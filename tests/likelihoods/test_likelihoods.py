"""Likelihoods against scipy and dense grids; the loop around the solve against integrals, modes and dense Gaussians."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import optimize, stats
from scipy.special import expit, gammaln, log_expit

import manyarms as ma
from manyarms.errors import InputError, RangeError
from manyarms.likelihoods import Bernoulli, Gaussian, LogNormal, Poisson, StudentT


@dataclass(frozen=True)
class Case:
    """A likelihood, and the same written with scipy: log p(r | η) and g(η)."""

    likelihood: object
    rewards: tuple
    log_density: Callable
    reward: Callable

    def expected_log_density(self, r, m, v):
        """E log p(r | η), or for Student's t the bound: its density at the root mean square residual."""
        if isinstance(self.likelihood, StudentT):
            return float(self.log_density(r, r - np.sqrt((r - m) ** 2 + v)))
        return expectation(lambda eta: self.log_density(r, eta), m, v)


CASES = {
    "gaussian": Case(Gaussian(0.7), (-1.3, 0.0, 2.2), lambda r, eta: stats.norm.logpdf(r, eta, 0.7), lambda eta: eta),
    "bernoulli": Case(Bernoulli(expected="probit"), (0.0, 1.0), lambda r, eta: log_expit((2 * r - 1) * eta), expit),
    "bernoulli by quadrature": Case(
        Bernoulli(expected="quadrature"), (0.0, 1.0), lambda r, eta: log_expit((2 * r - 1) * eta), expit
    ),
    # scipy's own logpmf overflows in the far ends of the grid.
    "poisson": Case(
        Poisson(), (0.0, 1.0, 7.0, 300.0), lambda r, eta: r * eta - np.exp(eta) - gammaln(r + 1), np.exp
    ),
    "student": Case(
        StudentT(0.7, 3.5), (-1.3, 0.0, 40.0), lambda r, eta: stats.t.logpdf(r, 3.5, eta, 0.7), lambda eta: eta
    ),
    "log-normal": Case(
        LogNormal(0.7), (0.01, 1.0, 9.0), lambda r, eta: stats.lognorm.logpdf(r, 0.7, scale=np.exp(eta)),
        lambda eta: np.exp(eta + 0.245),
    ),
}  # fmt: skip
EVERY = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
FITTED = {
    "bernoulli": Bernoulli(),
    "bernoulli laplace": Bernoulli("laplace"),
    "poisson": Poisson(),
    "poisson laplace": Poisson("laplace"),
    "student": StudentT(0.5, 3.0),
    "student laplace": StudentT(0.5, 3.0, "laplace"),
    "gaussian": Gaussian(0.5).treated("variational"),
    "gaussian laplace": Gaussian(0.5).treated("laplace"),
}
EVERY_FIT = pytest.mark.parametrize("likelihood", FITTED.values(), ids=FITTED)
MOMENTS = [(m, v) for m in (-2.0, 0.0, 1.5) for v in (1e-8, 0.04, 0.6, 4.0)]


def expectation(f, m, v):
    """E f(η) for η ~ N(m, v), on a dense grid."""
    eta = m + np.sqrt(v) * np.linspace(-13.0, 13.0, 40_001)
    return float(np.trapezoid(f(eta) * stats.norm.pdf(eta, m, np.sqrt(v)), eta))


def rows(*values):
    """Each number as an array with one row."""
    return tuple(np.array([float(value)]) for value in values)


# One round: what a likelihood says of its predictor.


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


# Bad input.


@pytest.mark.parametrize(
    ("likelihood", "rewards", "message"),
    [
        (Bernoulli(), [0, 1, 0.5], r"0 or 1.*row 2 has 0\.5"),
        (Poisson(), [0, 3, -1, -2], r"row 2 has -1\.0.*LogNormal"),
        (Poisson(), [0, 1.5], r"row 1 has 1\.5"),
        (Poisson(), [1e300], r"row 0 has 1e\+300"),
        (Poisson("laplace"), [2, 0.1], r"row 1 has 0\.1"),
        (LogNormal(), [1.0, 0.0], r"above zero.*row 1 has 0\.0.*Hurdle"),
        (LogNormal(), [-2.0], r"row 0 has -2\.0"),
    ],
)
def test_rewards_outside_the_support_are_refused_by_row(likelihood, rewards, message):
    logs = ma.LoggedData(np.ones((len(rewards), 1)), np.zeros(len(rewards), dtype=int), rewards)
    with pytest.raises(RangeError, match=message):
        ma.fit(logs, ma.priors.independent(1, mean=np.zeros(1), cov=1.0), likelihood)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Poisson("exact"), InputError),
        (lambda: Poisson("paper"), InputError),
        (lambda: StudentT(treatment="exact"), InputError),
        (lambda: StudentT(scale=0.0), RangeError),
        (lambda: StudentT(degrees=1.0), RangeError),
        (lambda: StudentT(scale=np.inf), InputError),
        (lambda: LogNormal(0.0), RangeError),
        (lambda: LogNormal(np.nan), InputError),
    ],
)
def test_arguments_are_checked(make, error):
    with pytest.raises(error):
        make()


# Fits.


@dataclass(frozen=True)
class Problem:
    """ψ, three actions around it, and rounds; and the same as one dense Gaussian over all θ."""

    prior: ma.HierarchicalGaussian
    logs: ma.LoggedData
    mean: np.ndarray
    cov: np.ndarray

    def fit(self, likelihood, **options):
        return ma.fit(self.logs, self.prior, likelihood, **options)

    @property
    def design(self):
        """X with η = X θ, all θ in one vector."""
        n, (K, d) = len(self.logs), (self.prior.n_actions, self.prior.dim)
        out = np.zeros((n, K, d))
        out[np.arange(n), self.logs.actions] = self.logs.contexts
        return out.reshape(n, K * d)

    def with_rewards(self, rewards):
        logs = ma.LoggedData(self.logs.contexts, self.logs.actions, rewards, n_actions=self.prior.n_actions)
        return Problem(self.prior, logs, self.mean, self.cov)


def make_problem(seed, likelihood, *, n_actions=4, dim=2, n_rounds=40, spread=1.0, latent_dim=2, separable=False):
    """Rewards drawn from the likelihood at weights of size one, whatever the spread of the prior."""
    rng = np.random.default_rng(seed)
    K, d, p = n_actions, dim, latent_dim
    mixing, mu = rng.normal(size=(K, d, p)), 0.3 * rng.normal(size=p)
    prior = ma.HierarchicalGaussian(mu, 0.5 * spread, mixing, spread)
    stacked = mixing.reshape(K * d, p)
    cov = 0.5 * spread * stacked @ stacked.T + spread * np.eye(K * d)
    x, actions = rng.normal(size=(n_rounds, d)), rng.integers(0, K, n_rounds)
    theta = 0.7 * rng.normal(size=(K, d))
    eta = np.einsum("nd,nd->n", x, theta[actions])
    if isinstance(likelihood, Bernoulli):
        rewards = (eta > 0 if separable else rng.random(n_rounds) < expit(eta)).astype(float)
    elif isinstance(likelihood, Poisson):
        rewards = rng.poisson(np.exp(eta)).astype(float)
    else:
        rewards = eta + 0.5 * rng.standard_t(3.0, n_rounds)
    return Problem(prior, ma.LoggedData(x, actions, rewards, n_actions=K), stacked @ mu, cov)


def summary(posterior):
    """All of a posterior in one vector."""
    w = posterior.weights
    parts = [
        w.latent_mean,
        w.latent_cov,
        w.action_mean(),
        w.action_cov(np.arange(w.n_actions)),
        [posterior.log_evidence],
    ]
    return np.concatenate([np.ravel(part) for part in parts])


def dense_weights(posterior):
    """Mean and covariance of all θ."""
    w = posterior.weights
    K, d = w.n_actions, w.dim
    left, right = (grid.ravel() for grid in np.meshgrid(np.arange(K), np.arange(K), indexing="ij"))
    cov = w.cross_cov(left, right).reshape(K, K, d, d).transpose(0, 2, 1, 3).reshape(K * d, K * d)
    return w.action_mean().ravel(), cov


def dense_objective(problem, posterior, expected_log_density):
    """Σ E log p - KL by the textbook formula; without variances, log p(rewards, θ) but for a constant."""
    mean, cov = dense_weights(posterior)
    root, prior_root = np.linalg.cholesky(cov), np.linalg.cholesky(problem.cov)
    miss = np.linalg.solve(prior_root, mean - problem.mean)
    m, v = problem.design @ mean, np.einsum("ni,ij,nj->n", problem.design, cov, problem.design)
    if posterior.likelihood.treatment == "laplace":
        return np.sum(expected_log_density(problem.logs.rewards, m, np.zeros_like(v))) - 0.5 * miss @ miss
    scaled = np.linalg.solve(prior_root, root)
    log_dets = np.sum(np.log(np.diag(prior_root))) - np.sum(np.log(np.diag(root)))
    kl = 0.5 * (np.sum(scaled**2) + miss @ miss - len(mean)) + log_dets
    return np.sum(expected_log_density(problem.logs.rewards, m, v)) - kl


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
@pytest.mark.parametrize("spread", [0.3, 3.0])
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


def test_noise_is_named_where_it_can_be_learned():
    assert Poisson().dispersion is None
    assert StudentT(0.3).with_dispersion(0.6) == StudentT(0.6)
    assert LogNormal(0.3).with_dispersion(0.6) == LogNormal(0.6)
    for likelihood, r in ((StudentT(0.3), -1.0), (LogNormal(0.3), 2.0)):
        up, down = (likelihood.with_dispersion(0.3 * np.exp(h)) for h in (1e-4, -1e-4))
        rise = up.expected_log_density(*rows(r, 0.2, 0.1)) - down.expected_log_density(*rows(r, 0.2, 0.1))
        assert_allclose(likelihood.dispersion_slope(*rows(r, 0.2, 0.1)), rise / 2e-4, rtol=1e-5)
