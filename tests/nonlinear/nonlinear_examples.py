"""Problems with hierarchies that are not linear, small enough for grids and dense densities."""

import numpy as np
from problems import make_problem
from scipy.special import expit, log_expit
from scipy.stats import multivariate_normal, norm

import manyarms as ma
from manyarms.nonlinear import NonlinearHierarchy, fit_nonlinear

SHAPES = {
    "tanh": (np.tanh, lambda psi: 1 - np.tanh(psi) ** 2),
    "exp": (np.exp, np.exp),
    "wave": (lambda psi: psi + 0.3 * np.sin(2 * psi), lambda psi: 1 + 0.6 * np.cos(2 * psi)),
}


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


def squared(psi, actions):
    return np.full((len(actions), 1), psi[0] ** 2)
