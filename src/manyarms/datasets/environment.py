"""Worlds with known weights: they can be logged from, and they know the value of every policy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit

from manyarms._base.checks import Array, as_actions, as_count, as_floats, as_matrix, as_scalar
from manyarms._base.rng import split
from manyarms.core.choices import Choices
from manyarms.core.logged_data import LoggedData
from manyarms.core.policy import Policy
from manyarms.errors import ShapeError
from manyarms.linalg.indexing import pair_rows
from manyarms.linalg.top_k import best_columns, best_of_pairs

DrawContexts = Callable[[np.random.Generator, int], Float[Array, "n d"]]


class ScoredEnvironment(ABC):
    """Contexts x ~ ν; the reward of action a in context x has a mean that rises with xᵀ θ_a.

    Args:
        weights: (K, d) the true θ.
        draw_contexts: Called as draw_contexts(rng, n); returns (n, d) contexts.
    """

    def __init__(self, weights: Any, draw_contexts: DrawContexts):
        self.weights: Float[Array, "K d"] = as_floats("weights", weights, ndim=2)
        self._draw_contexts = draw_contexts

    @abstractmethod
    def expected_reward(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        """The mean reward, one action a row."""

    @abstractmethod
    def value(self, policy: Policy, contexts: Any, *, eligible: Any = None) -> float:
        """The true value of a policy on these contexts."""

    @abstractmethod
    def values(self, policy: Policy, contexts: Any) -> Float[Array, " n"]:
        """The true value of a policy in each of these contexts."""

    @abstractmethod
    def _draw_rewards(self, expected: Float[Array, " n"], rng: np.random.Generator) -> Float[Array, " n"]:
        """Rewards with these means."""

    @property
    def n_actions(self) -> int:
        """K."""
        return self.weights.shape[0]

    @property
    def dim(self) -> int:
        """d."""
        return self.weights.shape[1]

    def contexts(self, n: int, rng: np.random.Generator) -> Float[Array, "n d"]:
        """Fresh contexts."""
        return as_matrix("contexts", self._draw_contexts(rng, n), columns=self.dim, rows=n)

    def log(self, policy: Policy, n: int, rng: np.random.Generator) -> LoggedData:
        """n rounds logged by `policy`, with its propensities; contexts, actions and noise have streams of their own."""
        contexts_rng, actions_rng, noise_rng = split(rng, "contexts", "actions", "noise")
        x = self.contexts(as_count("n", n, minimum=0), contexts_rng)
        actions = policy.sample(x, actions_rng)
        rewards = self._draw_rewards(self.expected_reward(x, actions), noise_rng)
        # Thompson samples afresh, so its frozen probabilities are not those of its samples.
        propensities = policy.probability_of(x, actions) if policy.samples_have_probabilities else None
        return LoggedData(x, actions, rewards, propensities, self.n_actions, logging_policy=_free(policy))

    def optimal_policy(self) -> Policy:
        """Always the truly best action."""
        return _Best(self.weights)

    def optimal_value(self, contexts: Any) -> float:
        """The value of the best policy there is."""
        return self.value(self.optimal_policy(), contexts)

    def _scores(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        contexts = as_matrix("contexts", contexts, columns=self.dim)
        actions = as_actions("actions", actions, n_actions=self.n_actions, length=len(contexts))
        return np.einsum("nd,nd->n", contexts, self.weights[actions])

    def _check_policy(self, policy: Policy) -> None:
        if policy.n_actions != self.n_actions:
            raise ShapeError(f"policy has {policy.n_actions} actions; the environment has {self.n_actions}.")


class LinearEnvironment(ScoredEnvironment):
    """Contexts x ~ ν; reward of action a in context x ~ N(xᵀ θ_a, σ²).

    Args:
        weights: (K, d) the true θ.
        noise_std: σ.
        draw_contexts: Called as draw_contexts(rng, n); returns (n, d) contexts.
    """

    def __init__(self, weights: Any, noise_std: float, draw_contexts: DrawContexts):
        super().__init__(weights, draw_contexts)
        self.noise_std = as_scalar("noise_std", noise_std, at_least=0.0)

    def expected_reward(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        return self._scores(contexts, actions)

    def value(self, policy: Policy, contexts: Any, *, eligible: Any = None) -> float:
        self._check_policy(policy)
        return float(policy.profile(contexts, self.weights, eligible=eligible)[1].mean())

    def values(self, policy: Policy, contexts: Any) -> Float[Array, " n"]:
        self._check_policy(policy)
        return policy.profile(contexts, self.weights)[1]

    def _draw_rewards(self, expected: Float[Array, " n"], rng: np.random.Generator) -> Float[Array, " n"]:
        return expected + self.noise_std * rng.standard_normal(len(expected))


class LogisticEnvironment(ScoredEnvironment):
    """Contexts x ~ ν; reward of action a in context x is 1 with probability 1 / (1 + exp(-xᵀ θ_a)), and else 0.

    Args:
        weights: (K, d) the true θ.
        draw_contexts: Called as draw_contexts(rng, n); returns (n, d) contexts.
    """

    def expected_reward(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        return expit(self._scores(contexts, actions))

    def value(self, policy: Policy, contexts: Any, *, eligible: Any = None) -> float:
        self._check_policy(policy)
        contexts = as_matrix("contexts", contexts, columns=self.dim)
        total = 0.0
        for rows, probabilities in policy.probability_chunks(contexts, eligible=eligible):
            total += float((probabilities * expit(contexts[rows] @ self.weights.T)).sum())
        return total / len(contexts)

    def values(self, policy: Policy, contexts: Any) -> Float[Array, " n"]:
        self._check_policy(policy)
        contexts, found = as_matrix("contexts", contexts, columns=self.dim), np.empty(len(contexts))
        for rows, probabilities in policy.probability_chunks(contexts):
            found[rows] = (probabilities * expit(contexts[rows] @ self.weights.T)).sum(axis=1)
        return found

    def _draw_rewards(self, expected: Float[Array, " n"], rng: np.random.Generator) -> Float[Array, " n"]:
        return (rng.random(len(expected)) < expected).astype(np.float64)


class _Best(Policy):
    def __init__(self, weights: Float[Array, "K d"]):
        self._weights = weights
        self.n_actions, self.dim = weights.shape

    def choices(self, contexts: Float[Array, "n d"], eligible: Any) -> Choices:
        if eligible is None:
            return Choices.of_actions(best_columns(contexts, self._weights)[:, 0], self.n_actions)
        scores = np.einsum("pd,pd->p", contexts[pair_rows(eligible)], self._weights[eligible.indices])
        best = best_of_pairs(scores, eligible.indptr, eligible.indices, 1)
        return Choices.of_actions(best[:, 0], self.n_actions)


def _free(policy: Policy) -> Policy | None:
    """A policy that is tied to rows is not a rule for all contexts."""
    return policy if policy.n_rows is None else None
