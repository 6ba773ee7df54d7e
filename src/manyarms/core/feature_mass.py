"""The feature mass of a policy, m_a = mean_i π(a | x_i) φ(x_i): all that its value depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array, check_overflow
from manyarms.core.choices import Choices
from manyarms.linalg.indexing import sum_by
from manyarms.model_file.save import Saved


@dataclass(frozen=True, eq=False)
class FeatureMass(Saved):
    """The feature mass of a policy: m_a = mean_i π(a | x_i) φ(x_i) of actions with any mass, ascending by action.

    Attributes:
        actions: The actions that are chosen at all.
        vectors: m_a of each.
        probability: mean_i π(a | x_i) of each.
    """

    saved_as = "feature mass"
    actions: Int[Array, " m"]
    vectors: Float[Array, "m d"]
    probability: Float[Array, " m"]

    @classmethod
    def total(cls, masses: Sequence[FeatureMass], factors: Sequence[float]) -> FeatureMass:
        """The weighted sum of several masses."""
        vectors = [factor * mass.vectors for mass, factor in zip(masses, factors, strict=True)]
        shares = [factor * mass.probability for mass, factor in zip(masses, factors, strict=True)]
        first = masses[0].actions
        if all(np.array_equal(first, mass.actions) for mass in masses[1:]):
            return cls(first, sum(vectors[1:], vectors[0]), sum(shares[1:], shares[0]))
        actions = np.concatenate([mass.actions for mass in masses])
        keys, summed = sum_by(actions, np.concatenate(vectors))
        return cls(keys, summed, sum_by(actions, np.concatenate(shares))[1])


class FeatureMassSum:
    """The feature mass of a policy, added up block by block; of size K only if the policy spreads over all actions."""

    def __init__(self):
        self._total = 0.0
        self._named: list[tuple[Array, Array]] = []
        self._shared: tuple[Float[Array, " K"], Float[Array, " d"]] | None = None
        self._dense: Float[Array, "K d"] | None = None

    def add(self, choices: Choices, features: Float[Array, "n d"], weights: Float[Array, " n"]) -> None:
        """Add the choices of a block of rows, each row counted by its weight."""
        self._total += float(weights.sum())
        # A column of ones collects the probabilities along with the features.
        with np.errstate(over="ignore"):
            features = np.column_stack([features, np.ones(len(features))]) * weights[:, None]
        check_overflow("contexts times weights", features)
        if choices.named is not None and choices.named.nnz:
            distinct, column = np.unique(choices.named.indices, return_inverse=True)
            shape = (choices.n_rows, len(distinct))
            compact = sparse.csr_array((choices.named.data, column, choices.named.indptr), shape=shape)
            self._named.append((distinct.astype(np.int64), np.asarray(compact.T @ features)))
        if choices.everywhere is not None:
            self._add_shared(choices.everywhere, features.sum(axis=0))
        if choices.dense is not None:
            self._add_dense(choices.dense.T @ features)

    def mean(self) -> FeatureMass:
        """The sum divided by the total weight."""
        if self._shared is not None:
            self._add_dense(np.outer(*self._shared))
            self._shared = None
        if self._dense is None:
            actions = np.concatenate([a for a, _ in self._named])
            actions, mass = sum_by(actions, np.concatenate([v for _, v in self._named]))
        else:
            actions, mass = np.arange(len(self._dense)), self._dense
            for some, vectors in self._named:
                mass[some] += vectors
        mass /= self._total
        chosen = mass[:, -1] != 0
        if not chosen.all():
            # Actions named with probability zero, or only in rows of weight zero.
            actions, mass = actions[chosen], mass[chosen]
        return FeatureMass(actions, mass[:, :-1], mass[:, -1])

    def _add_shared(self, probabilities: Float[Array, " K"], features: Float[Array, " d"]) -> None:
        # A policy usually shares one distribution over all rows, so this stays a product until the end.
        if self._shared is not None and np.array_equal(self._shared[0], probabilities):
            features = features + self._shared[1]
        elif self._shared is not None:
            self._add_dense(np.outer(*self._shared))
        self._shared = (probabilities, features)

    def _add_dense(self, mass: Float[Array, "K d"]) -> None:
        if self._dense is None:
            self._dense = mass
        else:
            self._dense += mass
