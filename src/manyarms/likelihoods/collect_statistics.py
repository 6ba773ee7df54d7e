"""Tasks that collect sufficient statistics in one pass over the rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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

    def shards(self, answer: CollectedStatistics, count: int) -> list[CollectedStatistics]:
        parts = answer.statistics.shards(count)
        numbers = [answer.numbers, *[np.zeros_like(answer.numbers)] * (count - 1)]
        return [CollectedStatistics(part, own) for part, own in zip(parts, numbers, strict=True)]


class StatisticsTally(Tally[CollectedStatistics]):
    """Running sums of statistics and numbers; a subclass says what a batch adds.

    Args:
        n_actions: K.
        dim: d.
        size: q, how many numbers.
    """

    def __init__(self, n_actions: int, dim: int, size: int):
        self.statistics = StatisticsSum(n_actions, dim)
        self.numbers: Float[Array, " q"] = np.zeros(size)

    def merge(self, answer: CollectedStatistics) -> None:
        self.statistics.add(answer.statistics)
        self.numbers += answer.numbers

    def answer(self) -> CollectedStatistics:
        return CollectedStatistics(self.statistics.total(), self.numbers)


@dataclass(frozen=True)
class CollectStatistics(StatisticsTask):
    """Collect the sufficient statistics under an exact likelihood; the one number is the log Jacobian.

    Attributes:
        likelihood: One whose treatment is "exact".
        n_actions: K.
        dim: d.
    """

    likelihood: Likelihood
    n_actions: int
    dim: int

    def begin(self) -> _CollectTally:
        return _CollectTally(self)


class _CollectTally(StatisticsTally):
    def __init__(self, task: CollectStatistics):
        super().__init__(task.n_actions, task.dim, 1)
        self._likelihood = task.likelihood

    def take(self, rounds: LoggedData) -> None:
        likelihood = self._likelihood
        likelihood.check(rounds.rewards, rounds.weights)
        counted = rounds.counted()
        response = likelihood.response(counted.rewards)
        self.statistics.add_rounds(counted.contexts, counted.actions, response, counted.weights)
        self.numbers += likelihood.log_jacobian(counted.rewards, counted.weights)
