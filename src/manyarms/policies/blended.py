"""A greedy policy for several goals: the action with the highest weighted sum of expected rewards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, as_instance, as_vector
from manyarms.core import any_shared
from manyarms.errors import InputError, ShapeError
from manyarms.policies.scored_policy import ScoredPolicy, follow
from manyarms.posterior.action_scores import Scores
from manyarms.posterior.posterior import Posterior


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
        return BlendedScores([posterior.expected_rewards for posterior in self.posteriors], self.weights)


class BlendedScores(Scores):
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
