"""Worlds with known weights, which can be logged from and know the value of every policy.

The last one is the paper's synthetic problem (Section 6).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit

from manyarms._base.checks import (
    Array,
    as_actions,
    as_count,
    as_flag,
    as_floats,
    as_instance,
    as_matrix,
    as_scalar,
    check_callable,
)
from manyarms._base.rng import as_generator, split
from manyarms.core import Choices, DenseMixing, HierarchicalGaussian, LoggedData, Policy
from manyarms.errors import ShapeError
from manyarms.linalg.sparse_matrices import pair_rows
from manyarms.linalg.top_k import best_columns, best_of_pairs

FLOOR = 1e-3
"""The smallest eigenvalue of a covariance with noise on it."""

DrawContexts = Callable[[np.random.Generator, int], Float[Array, "n d"]]


class ScoredEnvironment(ABC):
    """Contexts x ~ ν; the reward of action a in context x has a mean that rises with xᵀ θ_a."""

    def __init__(self, weights: Any, draw_contexts: DrawContexts):
        self.weights: Float[Array, "K d"] = as_floats("weights", weights, ndim=2)
        self.n_actions, self.dim = self.weights.shape
        check_callable("draw_contexts", draw_contexts)
        self._draw_contexts = draw_contexts

    @abstractmethod
    def expected_reward(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        """The mean reward of one action per row."""

    @abstractmethod
    def values(self, policy: Policy, contexts: Any, *, eligible: Any = None) -> Float[Array, " n"]:
        """The true value of a policy in each of these contexts."""

    def value(self, policy: Policy, contexts: Any, *, eligible: Any = None) -> float:
        """The true value of a policy on these contexts."""
        return float(self.values(policy, contexts, eligible=eligible).mean())

    @abstractmethod
    def _draw_rewards(self, expected: Float[Array, " n"], rng: np.random.Generator) -> Float[Array, " n"]:
        """Random rewards with these means."""

    def contexts(self, n: int, rng: np.random.Generator) -> Float[Array, "n d"]:
        """n contexts drawn at random."""
        n = as_count("n", n, minimum=0)
        return as_matrix("contexts", self._draw_contexts(as_generator(rng), n), columns=self.dim, rows=n)

    def log(self, policy: Policy, n: int, rng: np.random.Generator) -> LoggedData:
        """n rounds logged by `policy`, with its propensities. Contexts, actions and noise have separate streams."""
        check_n_actions(policy, self.n_actions)
        contexts_rng, actions_rng, noise_rng = split(rng, "contexts", "actions", "noise")
        x = self.contexts(as_count("n", n, minimum=0), contexts_rng)
        actions = policy.sample(x, actions_rng)
        rewards = self._draw_rewards(self.expected_reward(x, actions), noise_rng)
        # Thompson samples afresh, so its frozen probabilities are not those of its samples.
        propensities = policy.probability_of(x, actions) if policy.samples_have_probabilities else None
        # A policy tied to rows says nothing about other contexts.
        logging = policy if policy.n_rows is None else None
        return LoggedData(x, actions, rewards, propensities, self.n_actions, logging_policy=logging)

    def optimal_policy(self) -> Policy:
        """The policy that always chooses the truly best action."""
        return _OptimalPolicy(self.weights)

    def optimal_value(self, contexts: Any) -> float:
        """The true value of the optimal policy."""
        return self.value(self.optimal_policy(), contexts)

    def _scores(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        contexts = as_matrix("contexts", contexts, columns=self.dim)
        actions = as_actions("actions", actions, n_actions=self.n_actions, length=len(contexts))
        return np.einsum("nd,nd->n", contexts, self.weights[actions])


class LinearEnvironment(ScoredEnvironment):
    """Contexts x ~ ν; reward of action a in context x ~ N(xᵀ θ_a, σ²).

    Args:
        weights: (K, d) The true θ.
        noise_std: σ.
        draw_contexts: Function called as draw_contexts(rng, n), which returns (n, d) contexts.
    """

    def __init__(self, weights: Any, noise_std: float, draw_contexts: DrawContexts):
        super().__init__(weights, draw_contexts)
        self.noise_std = as_scalar("noise_std", noise_std, at_least=0.0)

    def expected_reward(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        return self._scores(contexts, actions)

    def values(self, policy: Policy, contexts: Any, *, eligible: Any = None) -> Float[Array, " n"]:
        check_n_actions(policy, self.n_actions)
        contexts = as_matrix("contexts", contexts, columns=self.dim)
        return policy.profile(contexts, self.weights, eligible=eligible)[1]

    def _draw_rewards(self, expected: Float[Array, " n"], rng: np.random.Generator) -> Float[Array, " n"]:
        return expected + self.noise_std * rng.standard_normal(len(expected))


class LogisticEnvironment(ScoredEnvironment):
    """Contexts x ~ ν; reward of action a in context x is 1 with probability 1 / (1 + exp(-xᵀ θ_a)), and else 0."""

    def expected_reward(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        return expit(self._scores(contexts, actions))

    def value(self, policy: Policy, contexts: Any, *, eligible: Any = None) -> float:
        check_n_actions(policy, self.n_actions)
        contexts = as_matrix("contexts", contexts, columns=self.dim)
        total = 0.0
        for rows, probabilities in policy.probability_chunks(contexts, eligible=eligible):
            total += float((probabilities * expit(contexts[rows] @ self.weights.T)).sum())
        return total / len(contexts)

    def values(self, policy: Policy, contexts: Any, *, eligible: Any = None) -> Float[Array, " n"]:
        check_n_actions(policy, self.n_actions)
        contexts, values = as_matrix("contexts", contexts, columns=self.dim), np.empty(len(contexts))
        for rows, probabilities in policy.probability_chunks(contexts, eligible=eligible):
            values[rows] = (probabilities * expit(contexts[rows] @ self.weights.T)).sum(axis=1)
        return values

    def _draw_rewards(self, expected: Float[Array, " n"], rng: np.random.Generator) -> Float[Array, " n"]:
        return (rng.random(len(expected)) < expected).astype(np.float64)


class _OptimalPolicy(Policy):
    def __init__(self, weights: Float[Array, "K d"]):
        self._weights = weights
        self.n_actions, self.dim = weights.shape

    def choices(self, contexts: Float[Array, "n d"], eligible: Any) -> Choices:
        if eligible is None:
            return Choices.of_actions(best_columns(contexts, self._weights)[:, 0], self.n_actions)
        scores = np.einsum("pd,pd->p", contexts[pair_rows(eligible)], self._weights[eligible.indices])
        return Choices.of_actions(best_of_pairs(scores, eligible.indptr, eligible.indices, 1)[:, 0], self.n_actions)


@dataclass(frozen=True)
class SyntheticProblem:
    """Random environments to draw, with contexts, W_a and μ uniform on [-1, 1], Σ and Σ_a multiples of the identity.

    The defaults are the paper's setting.

    Args:
        n_actions: K.
        dim: d.
        latent_dim: d'.
        latent_var: Σ = latent_var I.
        action_var: Σ_a = action_var I.
        noise_std: σ; not used when rewards are binary.
        binary: True for rewards that are 1 with probability 1 / (1 + exp(-xᵀ θ_a)) and else 0, instead of
            N(xᵀ θ_a, σ²).
    """

    n_actions: int = 1000
    dim: int = 10
    latent_dim: int = 10
    latent_var: float = 3.0
    action_var: float = 1.0
    noise_std: float = 1.0
    binary: bool = False

    def __post_init__(self) -> None:
        for name in ("n_actions", "dim", "latent_dim"):
            as_count(name, getattr(self, name), minimum=0 if name == "latent_dim" else 1)
        for name in ("latent_var", "action_var", "noise_std"):
            as_scalar(name, getattr(self, name), at_least=0.0)
        as_flag("binary", self.binary)

    def draw_prior(self, rng: np.random.Generator) -> HierarchicalGaussian:
        """A prior with random mixing matrices and latent mean."""
        mixing_rng, mean_rng = split(rng, "mixing", "mean")
        mixing = mixing_rng.uniform(-1, 1, (self.n_actions, self.dim, self.latent_dim))
        mean = mean_rng.uniform(-1, 1, self.latent_dim)
        return HierarchicalGaussian(mean, self.latent_var, mixing, self.action_var)

    def draw_environment(self, prior: HierarchicalGaussian, rng: np.random.Generator) -> ScoredEnvironment:
        """A world whose weights are drawn from the prior."""
        weights = as_instance("prior", prior, HierarchicalGaussian, "a prior").sample(rng)[0]
        if self.binary:
            return LogisticEnvironment(weights, self.draw_contexts)
        return LinearEnvironment(weights, self.noise_std, self.draw_contexts)

    def draw_contexts(self, rng: np.random.Generator, n: int) -> Float[Array, "n d"]:
        """n contexts, uniform on [-1, 1]^d."""
        return as_generator(rng).uniform(-1, 1, (as_count("n", n, minimum=0), self.dim))

    def misspecified(
        self,
        prior: HierarchicalGaussian,
        level: float,
        *,
        means: bool = True,
        covs: bool = True,
        rng: np.random.Generator,
    ) -> HierarchicalGaussian:
        """A wrong prior: uniform noise from [v, v + 1/2] on μ and every W_a, and on Σ and every Σ_a (paper, App. F).

        A covariance gets a symmetric matrix of such noise. Where that leaves it an eigenvalue below `FLOOR`, the
        eigenvalue is raised to it: the paper does not say how its covariances stayed positive definite.

        Args:
            prior: The right prior, from `draw_prior`.
            level: v, the size of the noise.
            means: True to add noise to μ and W_a, which together give the mean of θ_a.
            covs: True to add noise to Σ and Σ_a.
            rng: A NumPy generator. Noise on the means is the same with and without `covs`, and vice versa.
        """
        # Variances are products of three such numbers.
        v = as_scalar("level", level, at_least=0.0, at_most=1e100)
        mean_rng, mixing_rng, latent_rng, action_rng = split(rng, "mean", "mixing", "latent", "actions")
        mean = as_instance("prior", prior, HierarchicalGaussian, "a prior").latent_mean
        mixing = as_instance("mixing", prior.mixing, DenseMixing, "a (K, d, d') array").matrices
        if as_flag("means", means):
            mean = mean + mean_rng.uniform(v, v + 0.5, mean.shape)
            mixing = mixing + mixing_rng.uniform(v, v + 0.5, mixing.shape)
        if not as_flag("covs", covs):
            return HierarchicalGaussian(mean, self.latent_var, mixing, self.action_var)
        latent_cov = _noisy(self.latent_var, v, 1, self.latent_dim, latent_rng)[0]
        action_cov = _noisy(self.action_var, v, self.n_actions, self.dim, action_rng)
        return HierarchicalGaussian(mean, latent_cov, mixing, action_cov)


def check_n_actions(policy: Policy, n_actions: int) -> None:
    """Refuse a policy on other actions than those of the environment."""
    if as_instance("policy", policy, Policy, "a policy").n_actions != n_actions:
        raise ShapeError(f"has {policy.n_actions} actions; the environment has {n_actions}.", argument="policy")


def _noisy(variance: float, v: float, count: int, size: int, rng: np.random.Generator) -> Float[Array, "k s s"]:
    """Covariances: variance I plus symmetric noise, made positive definite."""
    noise = np.triu(rng.uniform(v, v + 0.5, (count, size, size)))
    symmetric = noise + np.triu(noise, 1).swapaxes(1, 2) + variance * np.eye(size)
    values, vectors = np.linalg.eigh(symmetric)
    raised = (vectors * np.maximum(values, FLOOR)[:, None, :]) @ vectors.swapaxes(1, 2)
    return (raised + raised.swapaxes(1, 2)) / 2
