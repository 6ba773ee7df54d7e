"""All that the posterior needs of the logs, additive over rounds: the wire format between batches and machines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array
from manyarms.core.action_sums import RoundSum, Rows, Sums
from manyarms.errors import ShapeError
from manyarms.model_file.saved import Saved


@dataclass(frozen=True, eq=False)
class Statistics(Saved):
    """Sufficient statistics of logged rounds, for the seen actions only.

    An action keeps its rounds while it has fewer than d of them, which is smaller and more accurate, and sums after.
    Nothing is divided by the noise, so noise can be learned from statistics alone. `a + b` is the statistics of the
    rounds of both.

    Attributes:
        n_actions: K, seen or not.
        dim: d.
        n_rounds: How many rounds went in.
        total_weight: The sum of their weights.
        rows: Rounds of rarely seen actions.
        sums: Sums over the rounds of the others.
        counted: Whether all weights are whole numbers, so that they can be read as counts.
    """

    saved_as = "statistics"
    n_actions: int
    dim: int
    n_rounds: int
    total_weight: float
    rows: Rows
    sums: Sums
    counted: bool = True

    @classmethod
    def empty(cls, n_actions: int, dim: int) -> Statistics:
        """No rounds at all: what `+` leaves unchanged."""
        return StatisticsSum(n_actions, dim).total()

    @classmethod
    def of_rounds(
        cls,
        features: Float[Array, "n d"],
        actions: Int[Array, " n"],
        rewards: Float[Array, " n"],
        n_actions: int,
        weights: Float[Array, " n"] | None = None,
    ) -> Statistics:
        """Statistics of rounds that `LoggedData` has checked. Weight 2 is the round twice, weight 0 no round."""
        total = StatisticsSum(n_actions, features.shape[1])
        total.add_rounds(features, actions, rewards, weights)
        return total.total()

    def __repr__(self) -> str:
        seen = len(np.unique(self.rows.actions)) + len(self.sums.actions)
        return f"Statistics({self.n_rounds:,} rounds, {seen:,} of {self.n_actions:,} actions seen, d={self.dim})"

    def __radd__(self, other: int) -> Statistics:
        # sum() starts from 0.
        return self if other == 0 else NotImplemented

    def __add__(self, other: Statistics) -> Statistics:
        if not isinstance(other, Statistics):  # pyright: ignore[reportUnnecessaryIsInstance]
            return NotImplemented
        total = StatisticsSum(self.n_actions, self.dim)
        total.add(self)
        total.add(other)
        return total.total()

    def scaled(self, share: float) -> Statistics:
        """Every round with `share` times its weight."""
        rows = Rows(self.rows.actions, np.sqrt(share) * self.rows.rounds)
        sums = Sums(self.sums.actions, share * self.sums.squares)
        return Statistics(self.n_actions, self.dim, self.n_rounds, share * self.total_weight, rows, sums, False)

    def shards(self, count: int) -> list[Statistics]:
        """The same rounds by action number modulo `count`; their number and weight are told by the first."""
        out = list[Statistics]()
        for shard in range(count):
            mine, ours = self.rows.actions % count == shard, self.sums.actions % count == shard
            rows = Rows(self.rows.actions[mine], self.rows.rounds[mine])
            sums = Sums(self.sums.actions[ours], self.sums.squares[ours])
            n_rounds, weight = (self.n_rounds, self.total_weight) if shard == 0 else (0, 0.0)
            out.append(Statistics(self.n_actions, self.dim, n_rounds, weight, rows, sums, self.counted))
        return out

    def with_actions(self, n_actions: int) -> Statistics:
        """The same rounds in a catalog that has grown to `n_actions`."""
        return Statistics(n_actions, self.dim, self.n_rounds, self.total_weight, self.rows, self.sums, self.counted)


class StatisticsSum:
    """Statistics that grow batch by batch, in place.

    Args:
        n_actions: K.
        dim: d.
    """

    def __init__(self, n_actions: int, dim: int):
        self.n_actions, self.dim = n_actions, dim
        self._sum = RoundSum(n_actions, dim)
        self._n_rounds, self._total_weight, self._counted = 0, 0.0, True

    def add_rounds(
        self,
        features: Float[Array, "n d"],
        actions: Int[Array, " n"],
        rewards: Float[Array, " n"],
        weights: Float[Array, " n"] | None = None,
    ) -> None:
        """Take in rounds that `LoggedData` has checked."""
        self._n_rounds += len(actions)
        if weights is None:
            self._total_weight += len(actions)
            self._sum.add(actions, features, rewards)
            return
        self._counted &= bool(np.all(weights == np.round(weights)))
        self._total_weight += float(weights.sum())
        if not weights.all():
            kept = weights > 0
            features, actions, rewards, weights = features[kept], actions[kept], rewards[kept], weights[kept]
        root = np.sqrt(weights)
        self._sum.add(actions, features * root[:, None], rewards * root)

    def add(self, other: Statistics) -> None:
        """Take in the rounds of other statistics."""
        if (self.n_actions, self.dim) != (other.n_actions, other.dim):
            raise ShapeError(
                f"statistics of {self.n_actions} actions in {self.dim} dimensions cannot be added to "
                f"{other.n_actions} actions in {other.dim} dimensions."
            )
        self._n_rounds += other.n_rounds
        self._total_weight += other.total_weight
        self._counted &= other.counted
        self._sum.add_sums(other.sums)
        self._sum.add(other.rows.actions, other.rows.rounds)

    def total(self) -> Statistics:
        """All so far; ask once, at the end."""
        rows, sums = self._sum.total()
        return Statistics(self.n_actions, self.dim, self._n_rounds, self._total_weight, rows, sums, self._counted)
