"""Greedy policies: the action with the highest expected reward, always or with a share of uniform exploration."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array, as_instance, as_scalar
from manyarms.core import Choices, Policy
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
    """With probability ε a uniform choice among the eligible actions, else the choice of another policy.

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
