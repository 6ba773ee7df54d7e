"""The action with the highest expected reward."""

from __future__ import annotations

from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array
from manyarms.linalg.top_k import best_columns
from manyarms.policies.scored_policy import ScoredPolicy


class Greedy(ScoredPolicy):
    """π(x) = argmax_a E r(x, a): no policy has a smaller Bayes suboptimality (paper, App. D).

    Args:
        posterior: What `fit` returned.
    """

    saved_as = "greedy"
    saved_fields = ("posterior",)

    def best(self, contexts: Float[Array, "n d"], k: int, among: Int[Array, " m"] | None) -> Int[Array, "n k"]:
        if not self.is_linear:
            return self.posterior.predictor.best(contexts, k, among)
        if among is None:
            return best_columns(contexts, self.means, k)
        return among[best_columns(contexts, self.means[among], k)]

    def pair_scores(self, contexts: Float[Array, "n d"], pairs: sparse.csr_array) -> Float[Array, " p"]:
        return self.pair_rewards(contexts, pairs)
