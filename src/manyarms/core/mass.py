"""A policy's feature mass m_a = mean_i π(a | x_i) φ(x_i): all that its value needs to know of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._arrays import Array
from manyarms.core.choices import Choices
from manyarms.linalg.groups import sum_by


class FeatureMass(NamedTuple):
    """m_a of the actions with any mass, ascending by action."""

    actions: Int[Array, " m"]
    vectors: Float[Array, "m d"]
    probability: Float[Array, " m"]
    """How often each action is chosen: mean_i π(a | x_i)."""

    def plus(self, other: FeatureMass, factor: float) -> FeatureMass:
        """This mass plus `factor` times another."""
        share = np.concatenate([self.probability, factor * other.probability])
        if np.array_equal(self.actions, other.actions):
            total = share.reshape(2, -1).sum(axis=0)
            return FeatureMass(self.actions, self.vectors + factor * other.vectors, total)
        actions = np.concatenate([self.actions, other.actions])
        keys, vectors = sum_by(actions, np.concatenate([self.vectors, factor * other.vectors]))
        return FeatureMass(keys, vectors, sum_by(actions, share)[1])

    def scaled(self, factor: float) -> FeatureMass:
        """Every entry times a number."""
        return FeatureMass(self.actions, factor * self.vectors, factor * self.probability)


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
