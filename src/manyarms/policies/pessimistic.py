"""The action with the highest lower bound on its reward."""

from __future__ import annotations

from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array
from manyarms.linalg.indexing import pair_rows
from manyarms.linalg.top_k import best_lower_bounds, row_norms
from manyarms.policies.scored_policy import ScoredPolicy, pair_means
from manyarms.posterior.posterior import Posterior
from manyarms.posterior.reward_width import confidence_radius


class Pessimistic(ScoredPolicy):
    """π(x) = argmax_a φ(x)ᵀ E θ_a - u(x, a), with u(x, a) = α(d, δ) ‖φ(x)‖ in Cov θ_a (paper, Bayesian bound).

    Where rewards are an increasing function of φ(x)ᵀ θ_a, the bound on the reward is that function of this one.

    Args:
        posterior: What `fit` returned.
        delta: δ; smaller is more cautious.
    """

    saved_as = "pessimistic"
    saved_fields = ("posterior", "delta")

    def __init__(self, posterior: Posterior, delta: float = 0.05):
        super().__init__(posterior)
        self.radius = confidence_radius(self.single_weights.dim, delta)
        self.delta = delta

    def best(self, contexts: Float[Array, "n d"], k: int, among: Int[Array, " m"] | None) -> Int[Array, "n k"]:
        covariances = self.single_weights.action_cov
        if among is None:
            return best_lower_bounds(contexts, self.means, covariances, self.radius, k)
        found = best_lower_bounds(contexts, self.means[among], lambda m: covariances(among[m]), self.radius, k)
        return among[found]

    def pair_scores(self, contexts: Float[Array, "n d"], pairs: sparse.csr_array) -> Float[Array, " p"]:
        norms = row_norms(contexts[pair_rows(pairs)], pairs.indices, self.single_weights.action_cov)
        return pair_means(contexts, pairs, self.means) - self.radius * norms
