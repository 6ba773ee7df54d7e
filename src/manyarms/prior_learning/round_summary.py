"""A summary of all rounds in one pass: the sums that learning a prior needs before it begins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array
from manyarms.core import LoggedData
from manyarms.engines import Tally, Task
from manyarms.likelihoods import Likelihood
from manyarms.likelihoods.collect_statistics import CollectedStatistics, CollectStatistics
from manyarms.model_file.save import Saved


@dataclass(frozen=True, eq=False)
class RoundSummary(Saved):
    """Sums over the rounds whose weight w is not zero, which learning needs before it begins.

    Attributes:
        actions: The logged actions, ascending.
        often: In how many rounds each of these was logged.
        feature_sums: Σ w φ, column by column.
        feature_squares: Σ w φ², column by column; likewise `reward_squares` is Σ w r².
        smallest: The smallest reward; infinite when there are no rounds, and `largest` minus infinity.
        counted: Sufficient statistics, for a likelihood that has them.
    """

    saved_as = "surveyed"
    total_weight: float
    actions: Int[Array, " m"]
    often: Int[Array, " m"]
    feature_sums: Float[Array, " d"]
    feature_squares: Float[Array, " d"]
    reward_squares: float
    smallest: float
    largest: float
    counted: CollectedStatistics | None = None

    @property
    def n_rounds(self) -> int:
        """The number of rounds."""
        return int(self.often.sum())


@dataclass(frozen=True)
class SummariseRounds(Task[RoundSummary]):
    """Summarise all rounds in one pass, which also checks their rewards."""

    kinds = (RoundSummary, *CollectStatistics.kinds)
    likelihood: Likelihood
    n_actions: int
    dim: int

    def begin(self) -> _SummaryTally:
        return _SummaryTally(self)


class _SummaryTally(Tally[RoundSummary]):
    def __init__(self, task: SummariseRounds):
        self._check = task.likelihood.check
        exact = task.likelihood.treatment == "exact"
        self._count = CollectStatistics(task.likelihood, task.n_actions, task.dim).begin() if exact else None
        self._often = np.zeros(task.n_actions, dtype=np.int64)
        self._sums, self._squares = np.zeros((2, task.dim))
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
            self._sums += counts @ rounds.contexts
            self._squares += counts @ rounds.contexts**2
            self._rewards += float(counts @ rounds.rewards**2)
        self._weight += float(counts.sum())
        self._between(float(rounds.rewards.min()), float(rounds.rewards.max()))

    def merge(self, answer: RoundSummary) -> None:
        if self._count is not None and answer.counted is not None:
            self._count.merge(answer.counted)
        self._often[answer.actions] += answer.often
        self._sums += answer.feature_sums
        self._squares += answer.feature_squares
        self._rewards += answer.reward_squares
        self._weight += answer.total_weight
        self._between(answer.smallest, answer.largest)

    def answer(self) -> RoundSummary:
        seen = np.flatnonzero(self._often)
        return RoundSummary(
            self._weight, seen, self._often[seen], self._sums, self._squares, self._rewards,
            self._smallest, self._largest,
            None if self._count is None else self._count.answer(),
        )  # fmt: skip

    def _between(self, smallest: float, largest: float) -> None:
        self._smallest, self._largest = min(self._smallest, smallest), max(self._largest, largest)
