"""The action with the highest lower bound on its reward."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array
from manyarms.core import HierarchicalGaussian
from manyarms.errors import InputError
from manyarms.gpu.device import CPU, as_device
from manyarms.linalg.quadratic_forms import Forms
from manyarms.linalg.top_k import best_lower_bounds
from manyarms.policies.device_scores import ROWS_ON_DEVICE, bounds_on_device
from manyarms.policies.scored_policy import ScoredPolicy, follow
from manyarms.posterior.action_scores import ActionWeights, Scores, actions_to_score
from manyarms.posterior.posterior import Posterior
from manyarms.posterior.reward_width import confidence_radius


class Pessimistic(ScoredPolicy):
    """π(x) = argmax_a φ(x)ᵀ E θ_a - u(x, a), with u(x, a) = α(d, δ) ‖φ(x)‖ in Cov θ_a (paper, Bayesian bound).

    Where rewards are an increasing function of φ(x)ᵀ θ_a, the bound on the reward is that function of this one. A
    posterior without a single set of Gaussian weights (hurdle, averaged, sampled) is bounded through its rewards:
    E r(x, a) - α std r(x, a), with `reward_std` and with as many dimensions in α as an action has weights.

    Args:
        posterior: Any posterior, such as `fit` returns.
        delta: δ; smaller is more cautious.
        device: "cuda" ranks the actions on a GPU, with the same result (docs/gpu.md).
    """

    saved_as = "pessimistic"
    saved_fields = ("posterior", "delta")

    def __init__(self, posterior: Posterior, delta: float = 0.05, *, device: str = CPU):
        self.posterior = follow(self, posterior)
        self.radius = confidence_radius(posterior.dim * posterior.n_factors, delta)
        self.delta = delta
        self.device = as_device(device)
        self.rows_per_block = ROWS_ON_DEVICE if self.device != CPU else self.rows_per_block

    @property
    def scores(self) -> Scores:
        """Lower bounds."""
        if self.device != CPU:
            return self._on_device
        weights = self.posterior.predictor_weights
        return _RewardBounds(self.posterior, self.radius) if weights is None else _PredictorBounds(weights, self.radius)

    @cached_property
    def _on_device(self) -> Scores:
        weights = self.posterior.predictor_weights
        if weights is None:
            raise InputError(
                "a GPU ranks posteriors with a single set of Gaussian weights.",
                'Use device="cpu" for this posterior.',
                argument="device",
            )
        return bounds_on_device(_PredictorBounds(weights, self.radius), weights, self.radius, self.device)


class _PredictorBounds(Scores):
    """φ(x)ᵀ E θ_a - radius ‖φ(x)‖ in Cov θ_a."""

    many_actions = 256

    def __init__(self, weights: ActionWeights, radius: float):
        self._weights, self._radius, self.n_actions = weights, radius, weights.n_actions
        self._widths = weights.widths if isinstance(weights, HierarchicalGaussian) else Forms(weights.action_cov)

    def score_pairs(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        mean = np.einsum("nd,nd->n", contexts, self._weights.action_mean()[actions])
        return mean - self._radius * self._widths.norms(contexts, actions)

    def best(self, contexts: Float[Array, "n d"], k: int, among: Int[Array, " m"] | None) -> Int[Array, "n k"]:
        names = actions_to_score(self._weights, k, among)
        return best_lower_bounds(contexts, self._weights.action_mean(), self._widths, self._radius, k, names)


class _RewardBounds(Scores):
    """E r(x, a) - radius std r(x, a)."""

    many_actions = 64

    def __init__(self, posterior: Posterior, radius: float):
        self._posterior, self._radius, self.n_actions = posterior, radius, posterior.n_actions

    def score_pairs(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        expected = self._posterior.expected_rewards.score_pairs(contexts, actions)
        return expected - self._radius * self._posterior.reward_std(contexts, actions)
