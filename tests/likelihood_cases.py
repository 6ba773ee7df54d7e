"""Likelihoods written with scipy, and small problems as one dense Gaussian over all weights."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, gammaln, log_expit

import manyarms as ma
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
