"""Oracles and logs for the checks of a prior: everything as one Gaussian over all rewards and all weights."""

import numpy as np
from scipy.special import expit

import manyarms as ma
from manyarms import priors


def rows_of(contexts, actions, n_actions):
    """The matrix that takes all θ, one under the other, to the expected rewards."""
    n, d = contexts.shape
    out = np.zeros((n, n_actions, d))
    out[np.arange(n), actions] = contexts
    return out.reshape(n, n_actions * d)


def prior_of(dense):
    """Mean and covariance of all θ."""
    stacked = dense.mixing.reshape(dense.n_actions * dense.dim, dense.latent_dim)
    cov = stacked @ dense.latent_cov @ stacked.T
    for a in range(dense.n_actions):
        block = slice(a * dense.dim, (a + 1) * dense.dim)
        cov[block, block] += dense.action_cov[a]
    return stacked @ dense.latent_mean + dense.offset.reshape(-1), cov


def given_rewards(mean, cov, rows, rewards, noise_std):
    """Mean and covariance of all θ given rewards."""
    gain = np.linalg.solve(rows @ cov @ rows.T + noise_std**2 * np.eye(len(rows)), rows @ cov).T
    return mean + gain @ (rewards - rows @ mean), cov - gain @ rows @ cov


def two_level(categories, dim, effect_std, action_std):
    """Mean and covariance of all θ under `from_categories`, written out."""
    same = np.equal.outer(categories, categories)
    across = effect_std**2 * same + action_std**2 * np.eye(len(categories))
    return np.zeros(len(categories) * dim), np.kron(across, np.eye(dim))


def draw_logs(rng, prior, noise_std, n_rounds, **options):
    """Rounds from the prior itself."""
    theta = prior.sample(rng)[0]
    contexts = rng.normal(size=(n_rounds, prior.dim))
    actions = rng.integers(prior.n_actions, size=n_rounds)
    rewards = np.einsum("nd,nd->n", contexts, theta[actions]) + noise_std * rng.normal(size=n_rounds)
    return ma.LoggedData(contexts, actions, rewards, n_actions=prior.n_actions, **options)


def draw_events(rng, prior, likelihood, n_rounds, shift=0.0):
    """Clicks, counts, amounts or heavy tails from the prior itself, but for a shift of all predictors."""
    theta = prior.sample(rng)[0]
    contexts = np.column_stack([np.ones(n_rounds), rng.normal(size=(n_rounds, prior.dim - 1))])
    actions = rng.integers(prior.n_actions, size=n_rounds)
    eta = np.einsum("nd,nd->n", contexts, theta[actions]) + shift
    draw = {
        "Bernoulli": lambda: (rng.random(n_rounds) < expit(eta)).astype(float),
        "Poisson": lambda: rng.poisson(np.exp(eta)).astype(float),
        "LogNormal": lambda: np.exp(eta + rng.normal(size=n_rounds)),
        "StudentT": lambda: eta + rng.standard_t(4.0, size=n_rounds),
    }
    return ma.LoggedData(contexts, actions, draw[type(likelihood).__name__](), n_actions=prior.n_actions)


CATEGORIES = np.arange(40) % 5
BY_CATEGORY = priors.from_categories(CATEGORIES, dim=2, effect_std=1.0, action_std=0.5)
RECIPE = dict(
    seed=11, n_actions=5, dim=3, n_rounds=25, mixing_form="dense", cov_form="each", latent_form="full",
    offset_form="each", latent_dim=2, action_scale=1.0, noise_std=1.0,
)  # fmt: skip
