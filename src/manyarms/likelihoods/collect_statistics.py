"""Tasks that collect sufficient statistics in one pass over the rounds."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array
from manyarms.core import ActionRows, ActionSums, LoggedData, Statistics, StatisticsSum
from manyarms.engines import Tally, Task
from manyarms.model_file.save import Saved

if TYPE_CHECKING:
    from manyarms.likelihoods.likelihood import Likelihood


@dataclass(frozen=True)
class CollectedStatistics(Saved):
    """The result of one pass.

    Attributes:
        statistics: Sums over rewards, or over the pseudo-rewards that stand in for them.
        numbers: (q,) further sums over rounds, defined by the task.
    """

    saved_as = "counted"
    statistics: Statistics
    numbers: Float[Array, " q"]


class StatisticsTask(Task[CollectedStatistics]):
    """A task that collects statistics, which are merged action by action."""

    kinds = (CollectedStatistics, Statistics, ActionRows, ActionSums)
    keeps_contexts: ClassVar[bool] = False
    """True if it adds contexts as they are, so that they can be read into the memory of the sum."""
    likelihood: Likelihood

    @abstractmethod
    def add(self, rounds: LoggedData, total: StatisticsSum) -> float | Float[Array, " q"]:
        """Add rounds, none of weight zero, to a total, and return what they add to the numbers."""

    def shards(self, answer: CollectedStatistics, count: int) -> list[CollectedStatistics]:
        parts = answer.statistics.shards(count)
        numbers = [answer.numbers, *[np.zeros_like(answer.numbers)] * (count - 1)]
        return [CollectedStatistics(part, own) for part, own in zip(parts, numbers, strict=True)]


class StatisticsTally(Tally[CollectedStatistics]):
    """Running sums of statistics and of q numbers."""

    def __init__(self, task: StatisticsTask, n_actions: int, dim: int, q: int):
        self._task, self._statistics = task, StatisticsSum(n_actions, dim)
        self._numbers: Float[Array, " q"] = np.zeros(q)

    def memory(self, n_rounds: int) -> Float[Array, "n d"] | None:
        return self._statistics.room(n_rounds) if self._task.keeps_contexts else None

    def take(self, rounds: LoggedData) -> None:
        self._task.likelihood.check(rounds.rewards, rounds.weights)
        self._numbers += self._task.add(rounds.counted(), self._statistics)

    def merge(self, answer: CollectedStatistics) -> None:
        self._statistics.add(answer.statistics)
        self._numbers += answer.numbers

    def answer(self) -> CollectedStatistics:
        return CollectedStatistics(self._statistics.total(), self._numbers)


@dataclass(frozen=True)
class CollectStatistics(StatisticsTask):
    """Collect the sufficient statistics under an exact likelihood; the one number is the log Jacobian."""

    keeps_contexts = True
    likelihood: Likelihood
    n_actions: int
    dim: int

    def begin(self) -> StatisticsTally:
        return StatisticsTally(self, self.n_actions, self.dim, 1)

    @property
    def takes_statistics(self) -> bool:
        return self.likelihood.is_linear

    def of_statistics(self, statistics: Statistics) -> CollectedStatistics:
        return CollectedStatistics(statistics, np.zeros(1))

    def add(self, rounds: LoggedData, total: StatisticsSum) -> float:
        total.add_rounds(rounds.contexts, rounds.actions, self.likelihood.response(rounds.rewards), rounds.weights)
        return self.likelihood.log_jacobian(rounds.rewards, rounds.weights)
