"""The sampler: against grids, moments of linear problems, and exact draws that a move must leave exact."""

import numpy as np
import pytest
from fast_first import fast_first
from nonlinear_examples import FORMS, SHAPES, Example, Tiny, clicking, gaussian, linear_problem
from numpy.testing import assert_allclose
from scipy.special import expit
from scipy.stats import chi2, kstest, multivariate_t, poisson
from scipy.stats import t as student

import manyarms as ma
from manyarms.errors import TooLargeError
from manyarms.likelihoods import Bernoulli, Poisson, StudentT
from manyarms.nonlinear import NonlinearHierarchy, fit_nonlinear, sample_posterior
from manyarms.nonlinear import posterior_sampler as kernels
from manyarms.nonlinear.nonlinear_hierarchy import as_hierarchy
from manyarms.nonlinear.posterior_draws import _convergence_warnings, effective_draws, r_hat
from manyarms.nonlinear.seen_actions import SeenActions


def assert_drawn_from(draws, chains, grid, density):
    """Mean, deviation and distribution function of draws are those of a density, within four standard errors."""
    weight = density / density.sum()
    mean = weight @ grid
    std = np.sqrt(weight @ (grid - mean) ** 2)
    worth = float(effective_draws(draws.reshape(*chains, 1))[0])
    assert worth > 300
    assert abs(draws.mean() - mean) < 4 * std / np.sqrt(worth)
    # Squares have an effective size of their own, and a variance from the fourth moment.
    squares = (draws - mean) ** 2
    worth_squares = float(effective_draws(squares.reshape(*chains, 1))[0])
    error = np.sqrt(weight @ ((grid - mean) ** 2 - std**2) ** 2 / worth_squares)
    assert abs(squares.mean() - std**2) < 4 * error
    below = np.cumsum(weight) - weight / 2
    for level in (0.05, 0.25, 0.5, 0.75, 0.95):
        indicator = (draws <= np.interp(level, below, grid)).astype(float)
        worth_level = float(effective_draws(indicator.reshape(*chains, 1))[0])
        assert abs(indicator.mean() - level) < 4 * np.sqrt(level * (1 - level) / worth_level)


@pytest.mark.parametrize("shape", SHAPES)
def test_on_an_ellipse_of_the_fit_the_level_is_the_density_over_a_t_density(shape, monkeypatch):
    example, rng = Example(shape), np.random.default_rng(0)
    # So that the mean of the linearised model and the point of linearisation are the same.
    monkeypatch.setattr(kernels, "TOLERANCE", 1e-18)
    kernel = kernels.kernel_for(SeenActions(example.hierarchy, example.logs()), ma.Gaussian(example.noise_std))
    root = np.linalg.cholesky(example.cov)
    mode = example.mean + root @ kernel.start(rng, from_prior=False).white
    # The precision of ψ in the linearised model, action by action.
    precision = np.linalg.inv(example.cov)
    for a in np.unique(example.actions):
        x = example.x[example.actions == a]
        row = x @ example.jacobian(mode, np.array([a]))[0]
        cov = example.noise_std**2 * np.eye(len(x)) + example.action_cov * x @ x.T
        precision = precision + row.T @ np.linalg.solve(cov, row)
    white = rng.normal(size=3)
    point = kernels.ChainPoint(white, kernel.seen.centre(white))
    ellipse, level = kernel.fitted_ellipse(point, lambda centres: 0.0, rng)
    found = []
    for angle in np.linspace(0, 2 * np.pi, 7):
        cos, sin = np.cos(angle), np.sin(angle)
        at = ellipse.middle + cos * ellipse.away + sin * ellipse.across
        psi = example.mean + root @ at
        tails = multivariate_t.logpdf(psi, mode, np.linalg.inv(precision), kernels.DEGREES)
        found.append(level(cos, sin, kernel.seen.centre(at)) + example.negative_log_joint(psi) + tails)
    assert_allclose(found, found[0], atol=1e-5)


@pytest.mark.parametrize("move", ["_around_fit", pytest.param("_around_prior", marks=pytest.mark.slow)])
def test_a_move_leaves_exact_draws_exact(move, unchecked):
    problem, rng = linear_problem(FORMS[0], n_rounds=20), np.random.default_rng(0)
    kernel = kernels.kernel_for(SeenActions(as_hierarchy(problem.prior), problem.logs), ma.Gaussian(problem.noise_std))
    exact = problem.fit().weights
    rest = {"_around_fit": lambda centres: 0.0, "_around_prior": kernel._fit}[move]
    far = []
    for psi in exact.draw_latent(rng, 2500):
        white = kernel.seen.white(psi)
        point = kernels.ChainPoint(white, kernel.seen.centre(white))
        for _ in range(3):
            point = getattr(kernel, move)(point, rest, rng)
        away = kernel.seen.latent(point.white) - exact.latent_mean
        far.append(away @ np.linalg.solve(exact.latent_cov, away))
    assert kstest(far, chi2(df=problem.prior.latent_dim).cdf).pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS[:4], ids=lambda form: f"{form['mixing_form']}-{form['cov_form']}")
def test_draws_of_a_linear_gaussian_problem_have_its_moments(form, unchecked):
    problem = linear_problem(form, n_rounds=20)
    exact = problem.fit()
    likelihood = ma.Gaussian(problem.noise_std)
    draws = sample_posterior(problem.logs, problem.prior, likelihood, 1200, rng=np.random.default_rng(1), warmup=50)
    assert not draws.warnings
    everyone = np.arange(problem.prior.n_actions)
    theta = draws.action_weights(everyone)
    for got, mean, cov in (
        (draws.latent, exact.weights.latent_mean, exact.weights.latent_cov),
        *((theta[:, a], exact.weights.action_mean()[a], exact.weights.action_cov(everyone)[a]) for a in everyone),
    ):
        variance = np.diag(cov)
        worth = effective_draws(got.reshape(*draws.chains.shape[:2], -1))
        assert np.all(np.abs(got.mean(axis=0) - mean) <= 4 * np.sqrt(variance / worth) + 1e-9)
        spread = np.sqrt((np.outer(variance, variance) + cov**2) / worth.min())
        assert np.all(np.abs(np.cov(got.T).reshape(cov.shape) - cov) <= 5 * spread + 1e-9)
    policy, x = ma.Greedy(exact), problem.logs.contexts
    got, expected = draws.value(policy, x), exact.value(policy, x)
    assert abs(got.value - expected.value) < 4 * got.diagnostics["monte_carlo_std"]
    assert_allclose(got.posterior_std, expected.posterior_std, rtol=0.1)
    assert_allclose(got.interval(), expected.interval(), atol=0.3 * expected.std)


@pytest.mark.parametrize("shape", fast_first([lambda eta: 0.5 * eta**2, np.tanh, lambda eta: np.exp(0.7 * eta)]))
def test_draws_of_a_non_linear_problem_match_a_grid(shape, unchecked):
    tiny = Tiny(shape, rounds=4, seed=1)
    rewards = tiny.eta + 0.5 * tiny.rng.normal(size=len(tiny.eta))
    draws = sample_posterior(tiny.logs(rewards), tiny.hierarchy, ma.Gaussian(0.5), 1500, rng=np.random.default_rng(2))
    log_p, theta = tiny.integrate(rewards, gaussian)
    chains = draws.chains.shape[:2]
    assert_drawn_from(draws.latent[:, 0], chains, tiny.psi, np.exp(log_p - log_p.max()))
    for a in range(3):
        assert_drawn_from(draws.action_weights([a])[:, 0, 0], chains, tiny.theta, theta[a])


def counting(rewards, eta):
    return poisson.logpmf(rewards, np.exp(eta))


def heavy_tailed(rewards, eta):
    return student.logpdf(rewards - eta, 3.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("likelihood", "log_density", "shape"),
    [
        (Bernoulli(), clicking, np.tanh),
        (Bernoulli("laplace"), clicking, np.positive),
        (Poisson(), counting, np.tanh),
        (StudentT(1.0, 3.0), heavy_tailed, np.tanh),
    ],
    ids=["clicks", "clicks, linear", "counts", "heavy tails"],
)
def test_draws_given_other_rewards_match_a_grid(likelihood, log_density, shape, unchecked):
    tiny = Tiny(shape, rounds=6, seed=4)
    rewards = (tiny.rng.random(len(tiny.eta)) < expit(tiny.eta)).astype(float)
    rewards[tiny.actions == 1] = 0.0  # an action without a click: far from normal
    draws = sample_posterior(tiny.logs(rewards), tiny.hierarchy, likelihood, 1200, rng=np.random.default_rng(3))
    log_p, theta = tiny.integrate(rewards, log_density)
    chains = draws.chains.shape[:2]
    assert_drawn_from(draws.latent[:, 0], chains, tiny.psi, np.exp(log_p - log_p.max()))
    for a in range(3):
        assert_drawn_from(draws.action_weights([a])[:, 0, 0], chains, tiny.theta, theta[a])
    contexts = np.array([[1.0], [-0.5]])
    got = draws.value(ma.TablePolicy([0.2, 0.3, 0.5]), contexts)
    mass = theta / theta.sum(axis=1, keepdims=True)
    by_context = [mass @ likelihood.reward_given(x * tiny.theta) for x in contexts[:, 0]]
    assert abs(got.value - [0.2, 0.3, 0.5] @ np.mean(by_context, axis=0)) < 4 * got.diagnostics["monte_carlo_std"]


@pytest.mark.slow
def test_draws_where_actions_have_covariances_of_their_own_and_many_rounds(unchecked):
    # Against the Gaussian fit of a variational treatment that is nearly exact: many clicks on few actions.
    problem = linear_problem(FORMS[1], n_actions=3, n_rounds=600, latent_dim=2, action_scale=0.3)
    rng = np.random.default_rng(0)
    eta = np.einsum("nd,nd->n", problem.logs.contexts, problem.prior.sample(rng)[0][problem.logs.actions])
    clicks = (rng.random(len(eta)) < expit(eta)).astype(float)
    logs = ma.LoggedData(problem.logs.contexts, problem.logs.actions, clicks, n_actions=3)
    fitted = ma.fit(logs, problem.prior, ma.Bernoulli())
    draws = sample_posterior(logs, problem.prior, ma.Bernoulli(), 600, rng=rng, warmup=100)
    assert not draws.warnings
    theta, std = draws.action_weights([0, 1, 2]), np.sqrt(np.einsum("kdd->kd", fitted.weights.action_cov([0, 1, 2])))
    assert np.all(np.abs(theta.mean(axis=0) - fitted.weights.action_mean()) < 0.3 * std)
    assert_allclose(theta.std(axis=0), std, rtol=0.25)


def brute_force_values(draws, policy, contexts, reward):
    theta = draws.action_weights(np.arange(policy.n_actions))
    return np.einsum(
        "na,sna->s", policy.probabilities(contexts), reward(np.einsum("nd,sad->sna", contexts, theta))
    ) / len(contexts)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", [ma.Gaussian(0.5), ma.Bernoulli()], ids=str)
def test_values_are_those_of_the_drawn_weights(likelihood):
    example = Example("tanh")
    rewards = example.rewards if likelihood.is_linear else example.clicks
    draws = sample_posterior(
        example.logs(rewards), example.hierarchy, likelihood, 30, rng=np.random.default_rng(0), warmup=5, n_chains=2
    )
    fitted = fit_nonlinear(example.logs(rewards), example.hierarchy, likelihood)
    table = np.random.default_rng(1).dirichlet(np.ones(example.n_actions), len(example.x))
    policies = (
        ma.Greedy(fitted),
        ma.Uniform(example.n_actions),
        ma.TablePolicy(table),
        ma.EpsilonGreedy(ma.Greedy(fitted), 0.3),
    )
    reward = (lambda eta: eta) if likelihood.is_linear else expit
    for policy in policies:
        expected = brute_force_values(draws, policy, example.x, reward)
        assert_allclose(draws.drawn_values(policy, example.x), expected, rtol=1e-10)
    counts = np.arange(len(example.x)) % 3.0
    rows = np.repeat(np.arange(len(counts)), counts.astype(int))
    assert_allclose(
        draws.drawn_values(policies[0], example.x, weights=counts),
        draws.drawn_values(policies[0], example.x[rows]),
        rtol=1e-10,
    )
    gain = draws.difference(policies[0], policies[1], example.x)
    paired = draws.drawn_values(policies[0], example.x) - draws.drawn_values(policies[1], example.x)
    assert_allclose([gain.value, gain.posterior_std], [paired.mean(), paired.std()], rtol=1e-10)
    assert_allclose(gain.interval(of="contexts"), np.quantile(paired, [0.025, 0.975]))
    assert gain.method == "draws"
    assert any("worth only" in text for text in gain.warnings)


@pytest.mark.slow
def test_an_action_has_the_same_weights_whoever_asks_and_a_seed_gives_the_same_draws():
    example = Example("tanh", n_actions=600, n_rounds=40)
    for rewards, likelihood in ((example.rewards, ma.Gaussian(0.5)), (example.clicks, ma.Bernoulli())):
        first, second = (
            sample_posterior(
                example.logs(rewards), example.hierarchy, likelihood, 18, rng=np.random.default_rng(7), warmup=1
            )
            for _ in range(2)
        )
        assert_allclose(first.latent, second.latent, rtol=0)
        everyone = first.action_weights(np.arange(600))
        some = np.array([599, 3, 3, 256, int(example.actions[0])])
        assert_allclose(second.action_weights(some), everyone[:, some], rtol=0)


def test_chains_in_modes_that_do_not_mix_are_reported(unchecked):
    logs = ma.LoggedData(np.ones((400, 2)), np.zeros(400, dtype=int), np.full(400, 20.0), n_actions=2)

    def products(psi, actions):
        return np.full((len(actions), 2), psi[0] * psi[1] * psi[2] * psi[3])

    hierarchy = NonlinearHierarchy(np.full(4, 0.1), 1.0, products, 1e-4, n_actions=2, dim=2)
    draws = sample_posterior(logs, hierarchy, ma.Gaussian(0.3), 80, rng=np.random.default_rng(0), warmup=20)
    assert draws.r_hat.max() > 1.05
    assert any("chains disagree about the latent" in text for text in draws.warnings)


def test_diagnostics_of_autoregressions_are_the_known_ones():
    rng = np.random.default_rng(0)
    rho, n = np.array([0.0, 0.5, 0.9]), 20_000
    chains = np.zeros((4, n, 3))
    noise = rng.normal(size=chains.shape) * np.sqrt(1 - rho**2)
    for t in range(1, n):
        chains[:, t] = rho * chains[:, t - 1] + noise[:, t]
    assert_allclose(effective_draws(chains), 4 * n * (1 - rho) / (1 + rho), rtol=0.15)
    assert np.all(np.abs(r_hat(chains) - 1) < 0.01)
    apart = chains + np.arange(4)[:, None, None]
    assert np.all(r_hat(apart) > 1.3)
    assert np.all(effective_draws(apart) < 20)
    still = np.full((2, 10, 1), 0.1)
    assert r_hat(still)[0] == 1.0


def test_a_hundred_effective_draws_are_enough_and_fewer_are_not():
    # Chains that never move count every draw.
    assert _convergence_warnings("the value", np.zeros((2, 50, 1))) == ()
    (warning,) = _convergence_warnings("the value", np.zeros((2, 48, 1)))
    assert "worth only 96" in warning


def test_chains_too_short_to_be_compared_are_worth_an_unknown_number_of_draws():
    short = np.random.default_rng(0).normal(size=(2, 3, 4))
    assert np.isnan(r_hat(short)).all() and np.isnan(effective_draws(short)).all() and r_hat(short).shape == (4,)
    assert len(_convergence_warnings("the latent", short)) == 2
    assert _convergence_warnings("the latent", np.zeros((2, 50, 0))) == ()


def test_a_slice_that_shrinks_to_nothing_stays_where_it_is():
    tried = []

    def nowhere(angle):
        tried.append(angle)
        return -np.inf, "elsewhere"

    current = (1.5, "here")
    assert kernels._slice_one(nowhere, current, np.random.default_rng(0)) is current
    # The interval closes around the current point, which is at zero.
    assert abs(tried[-1]) < 1e-3 < abs(tried[0])


def test_draws_say_what_they_are_worth_and_refuse_to_be_too_many(monkeypatch, unchecked):
    example = Example("tanh", n_rounds=30)
    draws = sample_posterior(
        example.logs(), example.hierarchy, ma.Gaussian(0.5), 16, rng=np.random.default_rng(0), warmup=3, n_chains=2
    )
    worth = float(draws.effective_draws.min())
    assert repr(draws) == f"PosteriorDraws(2 chains of 8, latent_dim=3, worth {worth:.4g} draws)"
    values = draws.drawn_values(ma.Uniform(12), example.x)
    by_hand = np.einsum("nd,sad->sna", example.x, draws.action_weights(np.arange(12))).mean(axis=(1, 2))
    assert_allclose(values, by_hand, rtol=1e-10)
    monkeypatch.setattr("manyarms.nonlinear.posterior_draws.MAX_KEPT", 16 * 3 * 2)
    assert draws.action_weights([0, 1, 2]).shape == (16, 3, 2)
    with pytest.raises(TooLargeError, match=r"16 draws of 4 actions are more than 96 numbers\. Ask for fewer actions"):
        draws.action_weights([0, 1, 2, 3])
    monkeypatch.setattr(kernels, "MAX_KEPT", 100)
    with pytest.raises(TooLargeError, match=r"draws of the weights of .* seen actions.*with a larger thin="):
        sample_posterior(
            example.logs(example.clicks), example.hierarchy, Bernoulli(), 16, rng=np.random.default_rng(0), n_chains=2
        )
