"""A policy's feature mass m_a = mean_i π(a | x_i) φ(x_i): all that its value needs to know of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array
from manyarms.core.choices import Choices
from manyarms.linalg.groups import sum_by
from manyarms.model_file.saved import Saved


@dataclass(frozen=True, eq=False)
class FeatureMass(Saved):
    """m_a of the actions with any mass, ascending by action.

    Attributes:
        actions: Those that are chosen at all.
        vectors: m_a of each.
        probability: How often each is chosen: mean_i π(a | x_i).
    """

    saved_as = "feature mass"
    actions: Int[Array, " m"]
    vectors: Float[Array, "m d"]
    probability: Float[Array, " m"]

    @classmethod
    def total(cls, masses: Sequence[FeatureMass], factors: Sequence[float]) -> FeatureMass:
        """The sum of several masses, each times a factor."""
        vectors = [factor * mass.vectors for mass, factor in zip(masses, factors, strict=True)]
        shares = [factor * mass.probability for mass, factor in zip(masses, factors, strict=True)]
        first = masses[0].actions
        if all(np.array_equal(first, mass.actions) for mass in masses[1:]):
            return cls(first, sum(vectors[1:], vectors[0]), sum(shares[1:], shares[0]))
        actions = np.concatenate([mass.actions for mass in masses])
        keys, summed = sum_by(actions, np.concatenate(vectors))
        return cls(keys, summed, sum_by(actions, np.concatenate(shares))[1])

    def plus(self, other: FeatureMass, factor: float) -> FeatureMass:
        """This mass plus `factor` times another."""
        return FeatureMass.total([self, other], [1.0, factor])


class MassSum:
    """Σ_i π(a | x_i) φ(x_i), added up block by block; nothing of size K unless the policy spreads over all actions."""

    def __init__(self):
        self._total = 0.0
        self._named: list[tuple[Array, Array]] = []
        self._shared: tuple[Float[Array, " K"], Float[Array, " d"]] | None = None
        self._dense: Float[Array, "K d"] | None = None

    def add(self, choices: Choices, features: Float[Array, "n d"], weights: Float[Array, " n"]) -> None:
        """Take in the choices of a block of rows, each row counting as often as its weight says."""
        self._total += float(weights.sum())
        # A column of ones collects the probabilities along with the features.
        features = np.column_stack([features, np.ones(len(features))]) * weights[:, None]
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
        """The sum divided by that of the weights."""
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
            # Named with probability zero, or in rows of weight zero only.
            actions, mass = actions[chosen], mass[chosen]
        return FeatureMass(actions, mass[:, :-1], mass[:, -1])

    def _add_shared(self, probabilities: Float[Array, " K"], features: Float[Array, " d"]) -> None:
        # A policy shares one distribution over all its rows, so this stays a product until the end.
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
