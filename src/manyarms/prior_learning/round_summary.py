"""What learning a prior must know of the rounds before it begins: one look at each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array
from manyarms.core.logged_data import LoggedData
from manyarms.engines import Tally, Task
from manyarms.likelihoods import Likelihood
from manyarms.likelihoods.collect_statistics import Count, Counted
from manyarms.model_file.save import Saved


@dataclass(frozen=True, eq=False)
class Surveyed(Saved):
    """Of the rounds whose weight w is not zero.

    Attributes:
        total_weight: Σ w.
        actions: Those that were logged, ascending.
        often: In how many rounds each of them was.
        feature_squares: Σ w φ², column by column.
        reward_squares: Σ w r².
        smallest: Reward; infinite when there are no rounds.
        largest: The same.
        counted: Sufficient statistics, for a likelihood that has them.
    """

    saved_as = "surveyed"
    total_weight: float
    actions: Int[Array, " m"]
    often: Int[Array, " m"]
    feature_squares: Float[Array, " d"]
    reward_squares: float
    smallest: float
    largest: float
    counted: Counted | None = None

    @property
    def n_rounds(self) -> int:
        """How many."""
        return int(self.often.sum())


@dataclass(frozen=True)
class Survey(Task[Surveyed]):
    """One look at all rounds, whose rewards are checked on the way.

    Attributes:
        likelihood: Of the rewards.
        n_actions: K.
        dim: d.
    """

    kinds = (Surveyed, *Count.kinds)
    likelihood: Likelihood
    n_actions: int
    dim: int

    def begin(self) -> _Survey:
        return _Survey(self)


class _Survey(Tally[Surveyed]):
    def __init__(self, task: Survey):
        self._check = task.likelihood.check
        exact = task.likelihood.treatment == "exact"
        self._count = Count(task.likelihood, task.n_actions, task.dim).begin() if exact else None
        self._often = np.zeros(task.n_actions, dtype=np.int64)
        self._squares = np.zeros(task.dim)
        self._weight = self._rewards = 0.0
        self._smallest, self._largest = np.inf, -np.inf

    def take(self, rounds: LoggedData) -> None:
        if self._count is not None:
            self._count.take(rounds)
        else:
            self._check(rounds.rewards, rounds.weights)
        rounds = rounds.counted()
        if not len(rounds):
            return
        counts = np.ones(len(rounds)) if rounds.weights is None else rounds.weights
        self._often += np.bincount(rounds.actions, minlength=len(self._often))
        # An overflow is reported where the sums are used.
        with np.errstate(over="ignore"):
            self._squares += counts @ rounds.contexts**2
            self._rewards += float(counts @ rounds.rewards**2)
        self._weight += float(counts.sum())
        self._between(float(rounds.rewards.min()), float(rounds.rewards.max()))

    def merge(self, found: Surveyed) -> None:
        if self._count is not None and found.counted is not None:
            self._count.merge(found.counted)
        self._often[found.actions] += found.often
        self._squares += found.feature_squares
        self._rewards += found.reward_squares
        self._weight += found.total_weight
        self._between(found.smallest, found.largest)

    def found(self) -> Surveyed:
        seen = np.flatnonzero(self._often)
        return Surveyed(
            self._weight, seen, self._often[seen], self._squares, self._rewards, self._smallest, self._largest,
            None if self._count is None else self._count.found(),
        )  # fmt: skip

    def _between(self, smallest: float, largest: float) -> None:
        self._smallest, self._largest = min(self._smallest, smallest), max(self._largest, largest)
