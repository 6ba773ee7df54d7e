"""Policies whose probabilities grow exponentially with a score."""

from __future__ import annotations

from typing import Any, ClassVar

from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array, as_floats, as_instance, as_scalar
from manyarms.core import Catalog, Choices, FeatureMap, Fingerprint
from manyarms.errors import ShapeError
from manyarms.model_file.part_checks import floats, instance_of, maybe, tuple_of
from manyarms.policies.scored_policy import ScoredPolicy, follow
from manyarms.posterior.action_scores import LinearScores, Scores
from manyarms.posterior.posterior import Posterior


class Softmax(ScoredPolicy):
    """π(a | x) ∝ exp(E r(x, a) / temperature), over the eligible actions.

    Args:
        posterior: Any posterior, such as `fit` returns.
        temperature: Above zero, in the units of the reward; towards 0 the choice becomes greedy.
    """

    saved_as = "softmax"
    saved_fields = ("posterior", "temperature")

    def __init__(self, posterior: Posterior, temperature: float):
        self.posterior = follow(self, posterior)
        self.temperature = as_scalar("temperature", temperature, above=0.0)
        self.rows_per_block = max(1, _WRITTEN_OUT // self.n_actions)

    @property
    def scores(self) -> Scores:
        """Expected rewards."""
        return self.posterior.expected_rewards

    def choices(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None) -> Choices:
        return self._softmax_choices(contexts, eligible, self.temperature)


class LinearSoftmax(ScoredPolicy):
    """π(a | x) ∝ exp(xᵀ β_a), over the eligible actions: the family of policies that learners search.

    A score is not a reward here: only differences of scores count. `actions` and `top_k` rank scores and write out no
    probabilities.

    Args:
        weights: (K, d): β, one row per action.
        learned_from: The fingerprints of the rounds that the weights were learned from; see `core.fingerprint`.
        features: The map from context columns to φ(x), if there is one: then contexts may be tables.
        catalog: The ids of the actions, if they have any.
    """

    saved_as = "linear softmax"
    saved_fields = ("weights", "learned_from", "features", "catalog")
    saved_checks: ClassVar = {
        "weights": floats(2),
        "learned_from": tuple_of(instance_of(Fingerprint)),
        "features": maybe(instance_of(FeatureMap)),
        "catalog": maybe(instance_of(Catalog)),
    }

    def __init__(
        self,
        weights: Any,
        *,
        learned_from: tuple[Fingerprint, ...] = (),
        features: FeatureMap | None = None,
        catalog: Catalog | None = None,
    ):
        self.weights: Float[Array, "K d"] = as_floats("weights", weights, ndim=2)
        if self.weights.size == 0:
            raise ShapeError(
                f"must have one row per action and one column per feature; got {self.weights.shape}.",
                argument="weights",
            )
        self.n_actions, self.dim = self.weights.shape
        self.learned_from = learned_from
        self.features = None if features is None else as_instance("features", features, FeatureMap, "a FeatureMap")
        self.catalog = None if catalog is None else as_instance("catalog", catalog, Catalog, "a Catalog")
        self.rows_per_block = max(1, _WRITTEN_OUT // self.n_actions)

    def consistent(self) -> bool:
        """True if features and catalog are those of the weights."""
        features_fit = self.features is None or self.features.dim == self.dim
        return features_fit and (self.catalog is None or len(self.catalog) == self.n_actions)

    @property
    def scores(self) -> LinearScores:
        """xᵀ β_a."""
        return LinearScores(self.weights)

    def choices(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None) -> Choices:
        return self._softmax_choices(contexts, eligible, 1.0)

    def actions(self, contexts: Any, *, eligible: Any = None) -> Int[Array, " n"]:
        """The likeliest action in each context: the best-scored one, found without its probability."""
        return self.top_k(contexts, 1, eligible=eligible)[:, 0]


_WRITTEN_OUT = 1 << 21
"""How many probabilities a block may have where those of all actions are written out (16 MB)."""
