"""Hierarchies that are not linear: against the linear path, SciPy's optimiser on dense densities, and grids."""

import jaxtyping
import numpy as np
import pytest
from numpy.testing import assert_allclose
from oracles import DenseJoint, DenseProblem
from problems import make_problem
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from scipy.stats import chi2, kstest, multivariate_normal, multivariate_t, norm, poisson
from scipy.stats import t as student

import manyarms as ma
from manyarms.errors import DataTypeError, InputError, NonFiniteError, ShapeError
from manyarms.likelihoods import Bernoulli, Poisson, StudentT
from manyarms.nonlinear import Layer, NonlinearHierarchy, chain, fit_nonlinear, sample_posterior
from manyarms.nonlinear import sampler_kernels as kernels
from manyarms.nonlinear.convergence import effective_draws, r_hat
from manyarms.nonlinear.nonlinear_hierarchy import as_hierarchy
from manyarms.nonlinear.seen_actions import SeenActions

SHAPES = {
    "tanh": (np.tanh, lambda psi: 1 - np.tanh(psi) ** 2),
    "exp": (np.exp, np.exp),
    "wave": (lambda psi: psi + 0.3 * np.sin(2 * psi), lambda psi: 1 + 0.6 * np.cos(2 * psi)),
}


@pytest.fixture
def unchecked():
    """Shapes are checked in the shorter tests; here the checks would take twenty times as long as the draws."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


class Example:
    """θ_a | ψ ~ N(W_a s(ψ), Σ_a) for a function s of each coordinate, with rounds drawn from it."""

    def __init__(self, shape, seed=0, n_actions=12, dim=2, latent_dim=3, n_rounds=80, action_cov=0.2, noise_std=0.5):
        rng = np.random.default_rng(seed)
        self.shape, self.slope = SHAPES[shape]
        self.W = rng.normal(size=(n_actions, dim, latent_dim))
        root = rng.normal(size=(latent_dim, latent_dim))
        self.mean, self.cov = 0.3 * rng.normal(size=latent_dim), 0.3 * root @ root.T + 0.2 * np.eye(latent_dim)
        self.action_cov, self.noise_std = action_cov, noise_std
        self.hierarchy = self.build(self.jacobian)
        self.x = rng.normal(size=(n_rounds, dim))
        self.actions = rng.integers(0, n_actions - 3, n_rounds)
        self.eta = np.einsum("nd,nd->n", self.x, self.hierarchy.sample(rng)[0][self.actions])
        self.rewards = self.eta + noise_std * rng.normal(size=n_rounds)
        self.clicks = (rng.random(n_rounds) < expit(self.eta)).astype(float)
        self.n_actions = n_actions

    def build(self, jacobian):
        return NonlinearHierarchy(
            self.mean, self.cov, self.centres, self.action_cov, len(self.W), self.W.shape[1], jacobian
        )

    def centres(self, psi, actions):
        return self.W[actions] @ self.shape(psi)

    def jacobian(self, psi, actions):
        return self.W[actions] * self.slope(psi)

    def logs(self, rewards=None, **options):
        given = self.rewards if rewards is None else rewards
        return ma.LoggedData(self.x, self.actions, given, n_actions=self.n_actions, **options)

    def fit(self, **options):
        return fit_nonlinear(self.logs(), self.hierarchy, ma.Gaussian(self.noise_std), **options)

    def negative_log_joint(self, psi):
        """-log p(ψ, rewards), θ integrated out, action by action and with nothing of the library."""
        total = -multivariate_normal.logpdf(psi, self.mean, self.cov)
        for a in np.unique(self.actions):
            mine = self.actions == a
            x, d = self.x[mine], self.x.shape[1]
            cov = self.noise_std**2 * np.eye(len(x)) + x @ (self.action_cov * np.eye(d)) @ x.T
            total -= multivariate_normal.logpdf(self.rewards[mine], x @ self.W[a] @ self.shape(psi), cov)
        return total


def assert_same(got, expected, tolerance=1e-10):
    """Posterior mean, covariance and evidence agree."""
    everyone = np.arange(expected.weights.n_actions)
    for ours, theirs in (
        (got.weights.latent_mean, expected.weights.latent_mean),
        (got.weights.latent_cov, expected.weights.latent_cov),
        (got.weights.action_mean(), expected.weights.action_mean()),
        (got.weights.action_cov(everyone), expected.weights.action_cov(everyone)),
        (np.array(got.log_evidence), np.array(expected.log_evidence)),
    ):
        scale = np.abs(theirs).max(initial=1e-300)
        assert np.abs(ours - theirs).max(initial=0.0) <= tolerance * scale


# Linear functions.

FORMS = [
    dict(mixing_form="dense", cov_form="scalar", latent_form="full", offset_form="each"),
    dict(mixing_form="dense", cov_form="each", latent_form="diagonal", offset_form="none"),
    dict(mixing_form="one_hot", cov_form="shared", latent_form="blocks", offset_form="shared"),
    dict(mixing_form="sparse_effects", cov_form="singular", latent_form="scalar", offset_form="none"),
    dict(mixing_form="none", cov_form="diagonal", latent_form="full", offset_form="each"),
]


def linear_problem(form, seed=3, **other):
    options = dict(n_actions=6, dim=2, n_rounds=30, latent_dim=4, action_scale=1.0, noise_std=0.7)
    return make_problem(seed=seed, **(options | form | other))


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


def test_a_chain_of_linear_layers_is_the_collapsed_linear_hierarchy():
    rng = np.random.default_rng(5)
    sizes, K, d, n = (2, 4, 3), 5, 2, 25
    mu, root = rng.normal(size=2), rng.normal(size=(2, 2))
    covs = [root @ root.T, 0.5 * np.eye(4), np.diag([0.3, 0.0, 1.2])]
    G = [rng.normal(size=(sizes[i + 1], sizes[i])) for i in range(2)]
    shift = [rng.normal(size=size) for size in sizes[1:]]
    W, c = rng.normal(size=(K, d, 3)), rng.normal(size=(K, d))
    layers = [
        Layer(lambda psi: G[0] @ psi + shift[0], 0.5, 4, lambda psi: G[0]),
        Layer(lambda psi: G[1] @ psi + shift[1], [0.3, 0.0, 1.2], 3),
    ]
    hierarchy = chain(mu, covs[0], layers, lambda psi, a: W[a] @ psi + c[a], 0.4, K, d, lambda psi, a: W[a])
    x, actions, rewards = rng.normal(size=(n, d)), rng.integers(0, K - 1, n), rng.normal(size=n)
    posterior = fit_nonlinear(ma.LoggedData(x, actions, rewards, n_actions=K), hierarchy, ma.Gaussian(0.8))
    # ψ_3 alone: its mean and covariance pushed down layer by layer.
    mean, cov = mu, covs[0]
    for g, b, below in zip(G, shift, covs[1:], strict=True):
        mean, cov = g @ mean + b, g @ cov @ g.T + below
    dense = DenseProblem(mean, cov, W, np.broadcast_to(0.4 * np.eye(d), (K, d, d)), c, x, actions, rewards, 0.8)
    joint = DenseJoint(dense)
    everyone = np.arange(K)
    assert_allclose(posterior.weights.action_mean(), joint.action_mean, atol=1e-9)
    assert_allclose(posterior.weights.action_cov(everyone), joint.blocks[everyone, everyone], atol=1e-9)
    assert_allclose(posterior.log_evidence, joint.log_evidence, atol=1e-9)
    states = hierarchy.function.states(posterior.latent_mode)
    assert_allclose(states[-1], joint.latent_mean, atol=1e-9)
    assert [len(state) for state in states] == list(sizes)


# Non-linear functions.


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


class Tiny:
    """ψ and θ_a are numbers, so that everything can be integrated on grids: ψ ~ N(0.2, 1), θ_a ~ N(s(w_a ψ), 0.5)."""

    weights = np.array([1.0, -0.7, 1.6])
    psi = np.linspace(-6, 6.4, 1241)
    theta = np.linspace(-9, 9, 1801)

    def __init__(self, shape, rounds, seed=0):
        self.shape = shape
        rng = np.random.default_rng(seed)
        self.hierarchy = NonlinearHierarchy([0.2], 1.0, self.centres, 0.5, n_actions=3, dim=1)
        self.actions = np.repeat([0, 1], rounds)
        self.x = rng.uniform(0.5, 1.5, (len(self.actions), 1))
        theta = self.hierarchy.sample(rng)[0][self.actions, 0]
        self.eta = self.x[:, 0] * theta
        self.rng = rng

    def centres(self, psi, actions):
        return self.shape(self.weights[actions] * psi[0])[:, None]

    def logs(self, rewards):
        return ma.LoggedData(self.x, self.actions, rewards, n_actions=3)

    def integrate(self, rewards, log_density):
        """log p(ψ, rewards) on the grid, and p(θ_a | rewards) of all actions on theirs."""
        fits, step = [], self.theta[1] - self.theta[0]
        for a in range(3):
            mine = self.actions == a
            fits.append(log_density(rewards[mine][:, None], self.x[mine] * self.theta).sum(axis=0))
        centres = self.shape(self.weights[:, None] * self.psi)
        prior = norm.pdf(self.theta, centres[:, :, None], np.sqrt(0.5))
        joint = prior * np.exp(np.array(fits))[:, None, :]
        given = np.maximum(joint.sum(axis=2) * step, 1e-300)
        log_p = norm.logpdf(self.psi, 0.2, 1.0) + np.log(given).sum(axis=0)
        share = np.exp(log_p - log_p.max())
        share /= share.sum()
        return log_p, np.einsum("p,apt->at", share, joint / given[:, :, None])


def gaussian(rewards, eta):
    return norm.logpdf(rewards, eta, 0.5)


def clicking(rewards, eta):
    return log_expit(np.where(rewards > 0.5, eta, -eta))


@pytest.mark.parametrize("shape", SHAPES)
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


@pytest.mark.parametrize("shape", SHAPES)
def test_differences_agree_with_the_jacobian(shape):
    example = Example(shape)
    psi, everyone = example.hierarchy.draw_latent(np.random.default_rng(1), 1)[0], np.arange(example.n_actions)
    assert_allclose(example.build(None).jacobian(psi, everyone), example.jacobian(psi, everyone), atol=1e-8)
    with_it, without = example.fit(), fit_nonlinear(example.logs(), example.build(None), ma.Gaussian(0.5))
    assert_same(without, with_it, 1e-6)


def test_jacobians_of_a_chain_agree_with_differences_of_the_whole():
    rng = np.random.default_rng(0)
    A, B, W = rng.normal(size=(3, 2)), rng.normal(size=(4, 3)), rng.normal(size=(6, 2, 4))
    layers = [
        Layer(lambda psi: np.tanh(A @ psi), 0.2, 3, lambda psi: (1 - np.tanh(A @ psi) ** 2)[:, None] * A),
        Layer(lambda psi: B @ np.sin(psi), 0.1, 4),
    ]
    hierarchy = chain(np.zeros(2), 1.0, layers, lambda psi, a: W[a] @ np.exp(0.3 * psi), 0.1, 6, 2)
    whole = NonlinearHierarchy(np.zeros(9), 1.0, hierarchy.function, 0.1, 6, 2)
    psi, some = rng.normal(size=9), np.array([4, 0, 2])
    assert_allclose(hierarchy.jacobian(psi, some), whole.jacobian(psi, some), atol=1e-8)


def test_only_seen_actions_are_evaluated_while_climbing():
    example, asked = Example("tanh"), []

    def watched(psi, actions):
        asked.append(actions.copy())
        return example.centres(psi, actions)

    hierarchy = NonlinearHierarchy(example.mean, example.cov, watched, 0.2, example.n_actions, 2, example.jacobian)
    fit_nonlinear(example.logs(), hierarchy, ma.Gaussian(0.5))
    seen = np.unique(example.actions)
    assert all(np.array_equal(actions, seen) for actions in asked[:-1])
    assert len(asked[-1]) == example.n_actions


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


# Only a local mode.


def squared(psi, actions):
    return np.full((len(actions), 1), psi[0] ** 2)


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


# Bad input.


def test_bad_functions_are_named():
    example = Example("tanh")

    def too_wide(psi, actions):
        return np.zeros((len(actions), 3))

    def broken(psi, actions):
        out = np.zeros((len(actions), 2))
        out[actions == 5] = np.nan
        return out

    def transposed(psi, actions):
        return example.jacobian(psi, actions).swapaxes(1, 2)

    def words(psi, actions):
        return [["a", "b"]] * len(actions)

    for function, jacobian, error, message in (
        (too_wide, None, ShapeError, r"function 'too_wide' must return shape \(m, d\) = \(9, 2\).*got \(9, 3\)"),
        (broken, None, NonFiniteError, r"function 'broken' must return finite numbers; action 5 has nan"),
        (
            example.centres,
            transposed,
            ShapeError,
            r"jacobian 'transposed' .*= \(9, 2, 3\).*got \(9, 3, 2\)",
        ),
        (example.centres, lambda psi, a: np.full((len(a), 2, 3), np.inf), NonFiniteError, "jacobian '<lambda>'"),
        (words, None, DataTypeError, "function 'words' must return numbers"),
    ):
        hierarchy = NonlinearHierarchy(example.mean, example.cov, function, 0.2, example.n_actions, 2, jacobian)
        for call in (fit_nonlinear, lambda *a: sample_posterior(*a, n_draws=4, rng=np.random.default_rng(0))):
            with pytest.raises(error, match=message):
                call(example.logs(), hierarchy, ma.Gaussian(0.5))


def test_bad_arguments_are_refused(unchecked):
    example = Example("tanh")
    good = dict(latent_mean=np.zeros(3), latent_cov=1.0, function=example.centres, action_cov=0.1, n_actions=12, dim=2)
    for change, error in (
        (dict(function=3), DataTypeError),
        (dict(jacobian="no"), DataTypeError),
        (dict(latent_mean=[[0.0]]), ShapeError),
        (dict(latent_cov=np.eye(2)), ShapeError),
        (dict(action_cov=-1.0), InputError),
        (dict(n_actions=0), InputError),
    ):
        with pytest.raises(error):
            NonlinearHierarchy(**(good | change))
    with pytest.raises(ShapeError, match="start must be"):
        example.fit(start=np.zeros(2))
    with pytest.raises(ShapeError, match="context columns"):
        fit_nonlinear(ma.LoggedData(np.ones((1, 3)), [0], [0.0]), example.hierarchy)
    with pytest.raises(DataTypeError, match="NonlinearHierarchy"):
        fit_nonlinear(example.logs(), linear_problem(FORMS[0]).prior)
    with pytest.raises(InputError, match="0 or 1"):
        fit_nonlinear(example.logs(), example.hierarchy, ma.Bernoulli())
    with pytest.raises(ShapeError, match="layer 0's function '<lambda>'"):
        hierarchy = chain([0.0], 1.0, [Layer(lambda psi: psi, 1.0, 3)], example.centres, 0.1, 12, 2)
        fit_nonlinear(example.logs(), hierarchy)
    with pytest.raises(DataTypeError, match="Generator"):
        sample_posterior(example.logs(), example.hierarchy, rng=0)
    problem = linear_problem(FORMS[0])
    with pytest.raises(InputError, match="seen data already"):
        sample_posterior(problem.logs, problem.fit().weights, rng=np.random.default_rng(0))


# The sampler.


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


@pytest.mark.parametrize("move", ["_around_fit", "_around_prior"])
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


@pytest.mark.parametrize("shape", [np.tanh, lambda eta: np.exp(0.7 * eta), lambda eta: 0.5 * eta**2])
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
