"""The policy that chooses the action with the highest expected reward."""

from __future__ import annotations

from manyarms.policies.scored_policy import ScoredPolicy, follow
from manyarms.posterior.action_scores import Scores
from manyarms.posterior.posterior import Posterior


class Greedy(ScoredPolicy):
    """π(x) = argmax_a E r(x, a): no policy has a smaller Bayes suboptimality (paper, App. D).

    Args:
        posterior: Any posterior, such as `fit` returns.
    """

    saved_as = "greedy"
    saved_fields = ("posterior",)

    def __init__(self, posterior: Posterior):
        self.posterior = follow(self, posterior)

    @property
    def scores(self) -> Scores:
        """Expected rewards."""
        return self.posterior.expected_rewards
