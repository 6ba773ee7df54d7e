"""The family of policies that learners search: softmax of scores linear in the context."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float, Int

from manyarms._base.checks import Array, as_floats
from manyarms.core.catalog import Catalog
from manyarms.core.feature_map import FeatureMap
from manyarms.core.fingerprint import Fingerprint
from manyarms.errors import ShapeError
from manyarms.policies import Softmax


class LinearSoftmax(Softmax):
    """π(a | x) ∝ exp(xᵀ β_a), over the eligible actions.

    The same rule as `Softmax` at temperature 1, with weights of its own where that one has posterior means: a score is
    no reward here, only its differences count. `actions` and `top_k` rank scores and write out no probabilities.

    Args:
        weights: (K, d): β, a row an action.
        learned_from: Which rounds the weights were learned from; see `core.fingerprint`.
        features: From context columns to φ(x), if there is a map: then contexts may be tables.
        catalog: What actions are called, if they have ids.
    """

    saved_as = "linear softmax"
    saved_fields = ("weights", "learned_from", "features", "catalog")

    def __init__(
        self,
        weights: Any,
        *,
        learned_from: tuple[Fingerprint, ...] = (),
        features: FeatureMap | None = None,
        catalog: Catalog | None = None,
    ):
        # There is no posterior behind this one, so what the base class reads from it is set here.
        self.weights: Float[Array, "K d"] = as_floats("weights", weights, ndim=2)
        self.n_actions, self.dim = self.weights.shape
        if self.weights.size == 0:
            raise ShapeError(f"weights must have a row an action and a column a feature; got {self.weights.shape}.")
        self.learned_from, self.features, self.catalog = learned_from, features, catalog
        self.temperature = 1.0
        self.rows_per_block = max(1, (1 << 21) // self.n_actions)

    @property
    def is_linear(self) -> bool:
        """Scores are xᵀ β_a."""
        return True

    @property
    def means(self) -> Float[Array, "K d"]:
        """β: what scores are made of."""
        return self.weights

    def actions(self, contexts: Any, *, eligible: Any = None) -> Int[Array, " n"]:
        """The likeliest action in each context: the best-scored one, found without its probability."""
        return self.top_k(contexts, 1, eligible=eligible)[:, 0]
