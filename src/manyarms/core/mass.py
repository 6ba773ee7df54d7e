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

    def plus(self, other: FeatureMass, factor: float) -> FeatureMass:
        """This mass plus `factor` times another."""
        if np.array_equal(self.actions, other.actions):
            return FeatureMass(self.actions, self.vectors + factor * other.vectors)
        actions = np.concatenate([self.actions, other.actions])
        return FeatureMass(*sum_by(actions, np.concatenate([self.vectors, factor * other.vectors])))


class MassSum:
    """Σ_i π(a | x_i) φ(x_i), added up block by block; nothing of size K unless the policy spreads over all actions."""

    def __init__(self, n_actions: int):
        self._everyone = np.arange(n_actions)
        self._n_rows = 0
        self._named: list[tuple[Array, Array]] = []
        self._shared: tuple[Float[Array, " K"], Float[Array, " d"]] | None = None
        self._dense: Float[Array, "K d"] | None = None

    def add(self, choices: Choices, features: Float[Array, "n d"]) -> None:
        """Take in the choices of a block of rows."""
        self._n_rows += choices.n_rows
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
        """The sum divided by the number of rows."""
        if self._shared is not None:
            self._add_dense(np.outer(*self._shared))
            self._shared = None
        if self._dense is None:
            actions = np.concatenate([a for a, _ in self._named])
            found = FeatureMass(*sum_by(actions, np.concatenate([v for _, v in self._named])))
        else:
            for actions, vectors in self._named:
                self._dense[actions] += vectors
            found = FeatureMass(self._everyone, self._dense)
        np.divide(found.vectors, self._n_rows, out=found.vectors)
        return found

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
