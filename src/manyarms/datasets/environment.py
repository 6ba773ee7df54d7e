"""A world with known weights: it can be logged from, and it knows the value of every policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from manyarms._arrays import Array, as_actions, as_count, as_floats, as_matrix, as_scalar
from manyarms._random import split
from manyarms.core.choices import Choices
from manyarms.core.data import LoggedData
from manyarms.core.policy import Policy
from manyarms.errors import ShapeError
from manyarms.linalg.best import best_columns, best_of_pairs
from manyarms.linalg.pairs import pair_rows

DrawContexts = Callable[[np.random.Generator, int], Float[Array, "n d"]]


class LinearEnvironment:
    """Contexts x ~ ν; reward of action a in context x ~ N(xᵀ θ_a, σ²).

    Args:
        weights: (K, d) the true θ.
        noise_std: σ.
        draw_contexts: Called as draw_contexts(rng, n); returns (n, d) contexts.
    """

    def __init__(self, weights: Any, noise_std: float, draw_contexts: DrawContexts):
        self.weights: Float[Array, "K d"] = as_floats("weights", weights, ndim=2)
        self.noise_std = as_scalar("noise_std", noise_std, at_least=0.0)
        self._draw_contexts = draw_contexts

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
        rewards = self.expected_reward(x, actions) + self.noise_std * noise_rng.standard_normal(n)
        # Thompson samples afresh, so its frozen probabilities are not those of its samples.
        propensities = policy.probability_of(x, actions) if policy.samples_have_probabilities else None
        return LoggedData(x, actions, rewards, propensities, self.n_actions, logging_policy=_free(policy))

    def expected_reward(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        """xᵀ θ_a, one action a row."""
        contexts = as_matrix("contexts", contexts, columns=self.dim)
        actions = as_actions("actions", actions, n_actions=self.n_actions, length=len(contexts))
        return np.einsum("nd,nd->n", contexts, self.weights[actions])

    def value(self, policy: Policy, contexts: Any, *, eligible: Any = None) -> float:
        """The true value of a policy on these contexts."""
        if policy.n_actions != self.n_actions:
            raise ShapeError(f"policy has {policy.n_actions} actions; the environment has {self.n_actions}.")
        return float(policy.profile(contexts, self.weights, eligible=eligible)[1].mean())

    def optimal_policy(self) -> Policy:
        """Always the truly best action."""
        return _Best(self.weights)

    def optimal_value(self, contexts: Any) -> float:
        """The value of the best policy there is."""
        return self.value(self.optimal_policy(), contexts)


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
