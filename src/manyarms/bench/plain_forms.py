"""Plain forms of every stage, in NumPy and SciPy alone: a Python loop over actions, and the textbook batched form.

The model is that of `priors.from_categories`: ψ_j ~ N(0, e² I) for each category j, θ_a ~ N(ψ_j, s² I), and rewards
with noise σ. With G_a = Σ x xᵀ and B_a = Σ x r, Λ_a = G_a / σ² + I / s² is the precision of θ_a given ψ, and
P_j = I / e² + Σ_a (I / s² - Λ_a⁻¹ / s⁴) is that of ψ_j. Nothing here is called by the library; its answers are compared
with these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from manyarms._base.checks import Array

ActionMatrices = Float[Array, "K d d"]
ActionVectors = Float[Array, "K d"]


class PlainModel(NamedTuple):
    """The standard deviations of effects, of actions around them, and of rewards, and the category of each action."""

    category: Int[Array, " K"]
    effect_std: float
    action_std: float
    noise_std: float

    @property
    def n_categories(self) -> int:
        """J."""
        return int(self.category.max()) + 1


class PlainPosterior(NamedTuple):
    """The plain posterior of all actions: Λ_a⁻¹, P_j⁻¹, E ψ_j, the means and covariances of θ_a, and two logarithms.

    Attributes:
        inner: Λ_a⁻¹.
        effect_cov: P_j⁻¹.
        effect_mean: E ψ_j.
        mean: E θ_a.
        cov: Cov θ_a.
        log_det: log of |prior covariance| / |posterior covariance|.
        explained: B ᵀ E θ / σ²: what the fit takes off the squares of rewards.
    """

    inner: ActionMatrices
    effect_cov: ActionMatrices
    effect_mean: ActionVectors
    mean: ActionVectors
    cov: ActionMatrices
    log_det: float
    explained: float


def loop_statistics(
    contexts: Float[Array, "n d"], actions: Int[Array, " n"], rewards: Float[Array, " n"], n_actions: int
) -> tuple[ActionMatrices, ActionVectors]:
    """G_a and B_a, action by action."""
    d = contexts.shape[1]
    gram, moment = np.zeros((n_actions, d, d)), np.zeros((n_actions, d))
    order = np.argsort(actions, kind="stable")
    ends = np.searchsorted(actions[order], np.arange(n_actions + 1))
    for a in range(n_actions):
        x, r = contexts[order[ends[a] : ends[a + 1]]], rewards[order[ends[a] : ends[a + 1]]]
        gram[a], moment[a] = x.T @ x, x.T @ r
    return gram, moment


def batched_statistics(
    contexts: Float[Array, "n d"], actions: Int[Array, " n"], rewards: Float[Array, " n"], n_actions: int
) -> tuple[ActionMatrices, ActionVectors]:
    """G_a and B_a by sums over sorted outer products: the textbook form, with n d² numbers in memory."""
    d = contexts.shape[1]
    gram, moment = np.zeros((n_actions, d, d)), np.zeros((n_actions, d))
    order = np.argsort(actions, kind="stable")
    seen, starts = np.unique(actions[order], return_index=True)
    x = contexts[order]
    gram[seen] = np.add.reduceat(x[:, :, None] * x[:, None, :], starts)
    moment[seen] = np.add.reduceat(x * rewards[order][:, None], starts)
    return gram, moment


def loop_posterior(model: PlainModel, gram: ActionMatrices, moment: ActionVectors) -> PlainPosterior:
    """The posterior, action by action."""
    K, d = moment.shape
    s, e, noise = model.action_std, model.effect_std, model.noise_std**2
    inner, mean, cov = np.empty_like(gram), np.empty_like(moment), np.empty_like(gram)
    precision, linear = np.tile(np.eye(d) / e**2, (model.n_categories, 1, 1)), np.zeros((model.n_categories, d))
    log_det = 0.0
    for a in range(K):
        inner[a] = np.linalg.inv(gram[a] / noise + np.eye(d) / s**2)
        log_det -= np.linalg.slogdet(inner[a] / s**2)[1]
        precision[model.category[a]] += np.eye(d) / s**2 - inner[a] / s**4
        linear[model.category[a]] += inner[a] @ moment[a] / (noise * s**2)
    effect_cov = np.linalg.inv(precision)
    effect_mean = np.einsum("jde,je->jd", effect_cov, linear)
    log_det -= float(np.linalg.slogdet(effect_cov / e**2)[1].sum())
    for a in range(K):
        j = model.category[a]
        mean[a] = inner[a] @ (moment[a] / noise + effect_mean[j] / s**2)
        cov[a] = inner[a] + inner[a] @ effect_cov[j] @ inner[a] / s**4
    return PlainPosterior(inner, effect_cov, effect_mean, mean, cov, log_det, float(np.sum(moment * mean)) / noise)


def batched_posterior(model: PlainModel, gram: ActionMatrices, moment: ActionVectors) -> PlainPosterior:
    """The posterior of all actions at once, by batched inverses: the textbook form."""
    d = moment.shape[1]
    s, e, noise, category = model.action_std, model.effect_std, model.noise_std**2, model.category
    inner = np.linalg.inv(gram / noise + np.eye(d) / s**2)
    precision, linear = np.tile(np.eye(d) / e**2, (model.n_categories, 1, 1)), np.zeros((model.n_categories, d))
    np.add.at(precision, category, np.eye(d) / s**2 - inner / s**4)
    np.add.at(linear, category, np.einsum("kde,ke->kd", inner, moment) / (noise * s**2))
    effect_cov = np.linalg.inv(precision)
    effect_mean = np.einsum("jde,je->jd", effect_cov, linear)
    log_det = -float(np.linalg.slogdet(inner / s**2)[1].sum() + np.linalg.slogdet(effect_cov / e**2)[1].sum())
    mean = np.einsum("kde,ke->kd", inner, moment / noise + effect_mean[category] / s**2)
    cov = inner + inner @ effect_cov[category] @ inner / s**4
    return PlainPosterior(inner, effect_cov, effect_mean, mean, cov, log_det, float(np.sum(moment * mean)) / noise)


def loop_value(model: PlainModel, posterior: PlainPosterior, mass: ActionVectors) -> tuple[float, float]:
    """Mean and standard deviation of Σ_a w_aᵀ θ_a, action by action."""
    value, variance = 0.0, 0.0
    pulled = np.zeros_like(posterior.effect_mean)
    for a, w in enumerate(mass):
        value += float(w @ posterior.mean[a])
        towards = posterior.inner[a] @ w
        variance += float(w @ towards)
        pulled[model.category[a]] += towards / model.action_std**2
    for u, cov in zip(pulled, posterior.effect_cov, strict=True):
        variance += float(u @ cov @ u)
    return value, variance**0.5


def batched_value(model: PlainModel, posterior: PlainPosterior, mass: ActionVectors) -> tuple[float, float]:
    """Mean and standard deviation of Σ_a w_aᵀ θ_a for all actions at once."""
    towards = np.einsum("kde,ke->kd", posterior.inner, mass)
    pulled = np.zeros_like(posterior.effect_mean)
    np.add.at(pulled, model.category, towards / model.action_std**2)
    variance = np.sum(mass * towards) + np.einsum("jd,jde,je->", pulled, posterior.effect_cov, pulled)
    return float(np.sum(mass * posterior.mean)), float(variance) ** 0.5


def loop_mass(contexts: Float[Array, "n d"], actions: Int[Array, " n"], n_actions: int) -> ActionVectors:
    """w_a = (1/n) Σ x over the rounds of a, round by round."""
    mass = np.zeros((n_actions, contexts.shape[1]))
    for x, a in zip(contexts, actions, strict=True):
        mass[a] += x
    return mass / len(contexts)


def batched_mass(contexts: Float[Array, "n d"], actions: Int[Array, " n"], n_actions: int) -> ActionVectors:
    """w_a = (1/n) Σ x over the rounds of a."""
    mass = np.zeros((n_actions, contexts.shape[1]))
    np.add.at(mass, actions, contexts)
    return mass / len(contexts)


def loop_greedy(contexts: Float[Array, "m d"], mean: ActionVectors) -> Int[Array, " m"]:
    """The best action of each context, one context at a time."""
    return np.array([np.argmax(mean @ x) for x in contexts])


def batched_greedy(contexts: Float[Array, "m d"], mean: ActionVectors) -> Int[Array, " m"]:
    """The best action of each context, by one matrix of all scores."""
    return np.argmax(contexts @ mean.T, axis=1)


def loop_pessimistic(
    contexts: Float[Array, "m d"], mean: ActionVectors, cov: ActionMatrices, radius: float
) -> Int[Array, " m"]:
    """The action with the highest lower bound, one context at a time."""
    return np.array([np.argmax(mean @ x - radius * np.sqrt(np.einsum("kde,d,e->k", cov, x, x))) for x in contexts])


def batched_pessimistic(
    contexts: Float[Array, "m d"], mean: ActionVectors, cov: ActionMatrices, radius: float
) -> Int[Array, " m"]:
    """The action with the highest lower bound: squares as one product of packed matrices."""
    m, d = contexts.shape
    squares = (contexts[:, :, None] * contexts[:, None, :]).reshape(m, d * d) @ cov.reshape(-1, d * d).T
    return np.argmax(contexts @ mean.T - radius * np.sqrt(squares), axis=1)


def loop_thompson(
    model: PlainModel,
    posterior: PlainPosterior,
    contexts: Float[Array, "m d"],
    n_draws: int,
    rng: np.random.Generator,
) -> Int[Array, "s m"]:
    """The best action of each context under each draw, action by action."""
    effects = _effect_draws(posterior, n_draws, rng)
    scale = model.action_std**2
    best, chosen = np.full((n_draws, len(contexts)), -np.inf), np.zeros((n_draws, len(contexts)), dtype=np.int64)
    for a, inner in enumerate(posterior.inner):
        j = model.category[a]
        centre = posterior.mean[a] + (effects[:, j] - posterior.effect_mean[j]) @ inner / scale
        weights = centre + rng.normal(size=centre.shape) @ np.linalg.cholesky(inner).T
        score = weights @ contexts.T
        better = score > best
        best[better], chosen[better] = score[better], a
    return chosen


def batched_thompson(
    model: PlainModel,
    posterior: PlainPosterior,
    contexts: Float[Array, "m d"],
    n_draws: int,
    rng: np.random.Generator,
) -> Int[Array, "s m"]:
    """The best action of each context under each draw of all weights."""
    effects, scale, root = (
        _effect_draws(posterior, n_draws, rng),
        model.action_std**2,
        np.linalg.cholesky(posterior.inner),
    )
    chosen = np.empty((n_draws, len(contexts)), dtype=np.int64)
    for s in range(n_draws):
        moved = (effects[s] - posterior.effect_mean)[model.category] / scale
        weights = posterior.mean + np.einsum("kde,ke->kd", posterior.inner, moved)
        weights += np.einsum("kde,ke->kd", root, rng.normal(size=weights.shape))
        chosen[s] = np.argmax(contexts @ weights.T, axis=1)
    return chosen


def _effect_draws(posterior: PlainPosterior, n_draws: int, rng: np.random.Generator) -> Float[Array, "s J d"]:
    root = np.linalg.cholesky(posterior.effect_cov)
    return posterior.effect_mean + np.einsum(
        "jde,sje->sjd", root, rng.normal(size=(n_draws, *posterior.effect_mean.shape))
    )


Posterior = Callable[[PlainModel, ActionMatrices, ActionVectors], PlainPosterior]
"""`loop_posterior` or `batched_posterior`."""


def plain_log_evidence(
    model: PlainModel, gram: ActionMatrices, moment: ActionVectors, n: int, squares: float, solve: Posterior
) -> float:
    """log p(r) in plain form, from statistics: n rounds whose squared rewards add up to `squares`."""
    fitted = solve(model, gram, moment)
    noise = model.noise_std**2
    return -0.5 * (n * np.log(2 * np.pi * noise) + fitted.log_det + squares / noise - fitted.explained)


def search_prior(evidence: Callable[[PlainModel], float], model: PlainModel, *, noise: bool) -> float:
    """The highest log evidence over standard deviations: L-BFGS with derivatives by differences, as in a first script.

    Args:
        evidence: The log evidence of a model.
        model: The start.
        noise: True if the noise is searched for too.
    """

    def negative(logs: Float[Array, " q"]) -> float:
        stds = np.exp(logs)
        changed = model._replace(effect_std=stds[0], action_std=stds[1])
        return -evidence(changed._replace(noise_std=stds[2]) if noise else changed)

    start = np.log([model.effect_std, model.action_std, *([model.noise_std] if noise else [])])
    options = {"ftol": 1e-13, "gtol": 1e-5}
    return -float(minimize(negative, start, method="L-BFGS-B", options=options).fun)


_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
_SHARES = _NODE_WEIGHTS / _NODE_WEIGHTS.sum()


def click_evidence(
    model: PlainModel,
    contexts: Float[Array, "n d"],
    actions: Int[Array, " n"],
    clicks: Float[Array, " n"],
    statistics: Callable[..., tuple[ActionMatrices, ActionVectors]],
    solve: Posterior,
    tolerance: float = 1e-9,
) -> float:
    """The evidence lower bound of clicks at its maximum over Gaussians, by plain fixed-point steps of all sites.

    Every round has a Gaussian site exp(l η - w η² / 2). A step sets w and l from E g(η) and E g'(η), by quadrature, and
    solves again.
    """
    model = model._replace(noise_std=1.0)
    K, sign = len(model.category), np.where(clicks > 0.5, 1.0, -1.0)
    mean = np.zeros(len(contexts))
    variance = (model.effect_std**2 + model.action_std**2) * np.einsum("nd,nd->n", contexts, contexts)
    before = -np.inf
    for _ in range(200):
        spread = np.sqrt(variance)
        g = expit(mean[:, None] + spread[:, None] * _NODES)
        weight = (g * _NODES) @ _SHARES / spread
        linear = weight * mean + clicks - g @ _SHARES
        gram, moment = statistics(contexts * np.sqrt(weight)[:, None], actions, linear / np.sqrt(weight), K)
        fitted = solve(model, gram, moment)
        mean = np.einsum("nd,nd->n", contexts, fitted.mean[actions])
        variance = np.einsum("nd,nde,ne->n", contexts, fitted.cov[actions], contexts)
        fit = log_expit(sign[:, None] * (mean[:, None] + np.sqrt(variance)[:, None] * _NODES)) @ _SHARES
        distance = np.sum((linear - weight * mean) * mean) + fitted.log_det - np.sum(weight * variance)
        value = float(fit.sum() - 0.5 * distance)
        if abs(value - before) < tolerance:
            return value
        before = value
    return before


def loop_estimates(
    contexts: Float[Array, "n d"],
    actions: Int[Array, " n"],
    rewards: Float[Array, " n"],
    propensities: Float[Array, " n"],
    shares: Float[Array, " K"],
    mean: ActionVectors,
) -> list[float]:
    """IPS, SNIPS and DR of a policy with one distribution for all contexts, round by round."""
    ips = weights = dr = 0.0
    average = shares @ mean
    for x, a, r, p in zip(contexts, actions, rewards, propensities, strict=True):
        w = shares[a] / p
        ips, weights = ips + w * r, weights + w
        dr += x @ average + w * (r - x @ mean[a])
    return [ips / len(rewards), ips / weights, dr / len(rewards)]


def batched_estimates(
    contexts: Float[Array, "n d"],
    actions: Int[Array, " n"],
    rewards: Float[Array, " n"],
    propensities: Float[Array, " n"],
    shares: Float[Array, " K"],
    mean: ActionVectors,
) -> list[float]:
    """IPS, SNIPS and DR of a policy with one distribution for all contexts, from the n x K matrix of probabilities."""
    n, K = len(rewards), len(shares)
    table = np.broadcast_to(shares, (n, K)).copy()
    w = table[np.arange(n), actions] / propensities
    predicted = contexts @ mean.T
    dr = np.sum(table * predicted, axis=1) + w * (rewards - predicted[np.arange(n), actions])
    return [float(np.mean(w * rewards)), float(np.sum(w * rewards) / np.sum(w)), float(np.mean(dr))]
