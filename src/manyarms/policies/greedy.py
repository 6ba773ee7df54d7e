"""Greedy policies: the action with the highest expected reward, for one goal or several, or with exploration."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array, as_instance, as_scalar, as_vector
from manyarms.core import Choices, Policy, any_shared
from manyarms.errors import InputError, ShapeError
from manyarms.gpu.device import CPU, as_device
from manyarms.policies.device_scores import ROWS_ON_DEVICE, means_on_device
from manyarms.policies.scored_policy import ScoredPolicy, follow
from manyarms.posterior.action_scores import Scores
from manyarms.posterior.posterior import Posterior


class Greedy(ScoredPolicy):
    """π(x) = argmax_a E r(x, a): no policy has a smaller Bayes suboptimality (paper, App. D).

    Args:
        posterior: Any posterior, such as `fit` returns.
        device: "cuda" ranks the actions on a GPU, with the same result (docs/gpu.md).
    """

    saved_as = "greedy"
    saved_fields = ("posterior",)

    def __init__(self, posterior: Posterior, *, device: str = CPU):
        self.posterior = follow(self, posterior)
        self.device = as_device(device)
        self.rows_per_block = ROWS_ON_DEVICE if self.device != CPU else self.rows_per_block

    @property
    def scores(self) -> Scores:
        """Expected rewards."""
        return self.posterior.expected_rewards if self.device == CPU else self._on_device

    @cached_property
    def _on_device(self) -> Scores:
        return means_on_device(self.posterior.expected_rewards, self.device)


class EpsilonGreedy(Policy):
    """ε-greedy: with probability ε a uniform choice among the eligible actions, else the choice of another policy.

    Args:
        policy: The policy to follow otherwise; it need not be greedy.
        epsilon: ε in [0, 1].
    """

    saved_as = "epsilon-greedy"
    saved_fields = ("policy", "epsilon")

    def __init__(self, policy: Policy, epsilon: float):
        self.policy = as_instance("policy", policy, Policy, "a policy")
        self.epsilon = as_scalar("epsilon", epsilon, at_least=0.0, at_most=1.0)
        self.n_actions, self.n_rows, self.dim = policy.n_actions, policy.n_rows, policy.dim
        self.rows_per_block, self.learned_from = policy.rows_per_block, policy.learned_from
        self.features, self.catalog, self.tied_to = policy.features, policy.catalog, policy.tied_to

    def consistent(self) -> bool:
        """True if the policies that follow one another are few: each calls the next."""
        depth, policy = 0, self.policy
        while isinstance(policy, EpsilonGreedy) and depth <= _DEEPEST:
            depth, policy = depth + 1, policy.policy
        return depth <= _DEEPEST

    def take(self, rows: slice | Int[Array, " m"]) -> EpsilonGreedy:
        return EpsilonGreedy(self.policy.take(rows), self.epsilon)

    def on(self, rounds: Any) -> EpsilonGreedy:
        return EpsilonGreedy(self.policy.on(rounds), self.epsilon)

    def choices(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None) -> Choices:
        uniform = np.full(self.n_actions, 1.0 / self.n_actions)
        explored = Choices.of_shared(uniform, len(contexts), eligible)
        return self.policy.choices(contexts, eligible).mixed(self.epsilon, explored)

    def top_k(self, contexts: Any, k: int, *, eligible: Any = None) -> Int[Array, "n k"]:
        """The k best actions of the policy that it follows: exploration has no order."""
        return self.policy.top_k(contexts, k, eligible=eligible)


_DEEPEST = 64


class BlendedGreedy(ScoredPolicy):
    """π(x) = argmax_a Σ_j w_j E r_j(x, a): greedy for a weighted sum of goals.

    Args:
        posteriors: A posterior for each goal, on the same actions and features.
        weights: The weight of each goal; negative where low rewards are good, as for returns.
    """

    saved_as = "blended greedy"
    saved_fields = ("posteriors", "weights")

    def __init__(self, posteriors: Sequence[Posterior], weights: Any):
        self.posteriors = tuple(as_instance("posteriors", posteriors, Sequence, "a list of posteriors"))
        if not self.posteriors:
            raise InputError("must have at least one posterior.", argument="posteriors")
        first = follow(self, self.posteriors[0])
        for other in self.posteriors[1:]:
            as_instance("posteriors", other, Posterior, "what ma.fit returned")
            if (other.n_actions, other.dim) != (first.n_actions, first.dim):
                problem = f"must have the same actions and features; got {other.n_actions} and {other.dim}, and "
                raise ShapeError(f"{problem}{first.n_actions} and {first.dim}.", argument="posteriors")
            if other.features != first.features:
                raise InputError("must have the same feature map.", argument="posteriors")
            if not any_shared(self.learned_from, other.learned_from):
                self.learned_from = (*self.learned_from, *other.learned_from)
        self.weights: Float[Array, " g"] = as_vector("weights", weights, length=len(self.posteriors))

    @property
    def scores(self) -> Scores:
        """The weighted sum of expected rewards."""
        return _BlendedScores([posterior.expected_rewards for posterior in self.posteriors], self.weights)


class _BlendedScores(Scores):
    """Scores Σ_j w_j s_j(x, a) of several goals."""

    all_at_once = True

    def __init__(self, parts: Sequence[Scores], weights: Float[Array, " g"]):
        self._parts, self._weights, self.n_actions = parts, weights, parts[0].n_actions

    def score_pairs(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        scores = [part.score_pairs(contexts, actions) for part in self._parts]
        return np.tensordot(self._weights, np.array(scores), axes=1)

    def score_all(self, contexts: Float[Array, "n d"]) -> Float[Array, "n K"]:
        out = np.zeros((len(contexts), self.n_actions))
        for part, weight in zip(self._parts, self._weights, strict=True):
            out += weight * part.score_all(contexts)
        return out
