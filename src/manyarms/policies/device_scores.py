"""Scores whose best actions are found on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array
from manyarms.errors import InputError
from manyarms.gpu.device_top_k import DeviceBounds, DeviceMeans, DeviceRanking
from manyarms.posterior.action_scores import ActionWeights, LinearScores, Scores

ROWS_ON_DEVICE = 1 << 17
"""Contexts that a policy sends to a GPU at a time."""


class DeviceScores(Scores):
    """Scores that are ranked on a GPU; those of single pairs are computed on the processor.

    Args:
        scores: The scores.
        ranking: Puts some actions on the GPU, ready to be ranked.
    """

    def __init__(self, scores: Scores, ranking: Callable[[Array], DeviceRanking]):
        self._scores, self._ranking, self.n_actions = scores, ranking, scores.n_actions

    def score_pairs(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        return self._scores.score_pairs(contexts, actions)

    def score_all(self, contexts: Float[Array, "n d"]) -> Float[Array, "n K"]:
        return self._scores.score_all(contexts)

    def best(self, contexts: Float[Array, "n d"], k: int, among: Int[Array, " m"] | None) -> Int[Array, "n k"]:
        if among is None:
            return self._everyone.best(contexts, k)
        return among[self._ranking(among).best(contexts, k)]

    @cached_property
    def _everyone(self) -> DeviceRanking:
        return self._ranking(np.arange(self.n_actions))


def means_on_device(scores: Scores, device: str) -> DeviceScores:
    """Expected rewards that are linear in the features, ranked on a GPU."""
    if not isinstance(scores, LinearScores):
        raise InputError(
            "a GPU ranks expected rewards that are linear in the features.",
            'Use device="cpu" for this likelihood, or Pessimistic, which ranks its predictors.',
            argument="device",
        )
    return DeviceScores(scores, lambda actions: DeviceMeans(scores.means[actions], device))


def bounds_on_device(scores: Scores, weights: ActionWeights, radius: float, device: str) -> DeviceScores:
    """Lower bounds on φ(x)ᵀ θ_a, ranked on a GPU."""

    def ranking(actions: Array) -> DeviceRanking:
        means = weights.action_mean()[actions]
        return DeviceBounds(means, lambda part: weights.action_cov(actions[part]), radius, device)

    return DeviceScores(scores, ranking)
