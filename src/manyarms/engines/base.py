"""A pass over the logs: a task that parts of them can do apart, and an engine that puts what they found together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from manyarms.core.data import LoggedData, Logs
from manyarms.logs.sources import Source

Found = TypeVar("Found")
Result = TypeVar("Result")


class Tally(ABC, Generic[Found]):
    """What is found out of rounds while they go by."""

    @abstractmethod
    def take(self, rounds: LoggedData) -> None:
        """Look at a batch."""

    @abstractmethod
    def merge(self, found: Found) -> None:
        """Add what another tally has found in other rounds."""

    @abstractmethod
    def found(self) -> Found:
        """All of it; the end of this tally."""


class Task(ABC, Generic[Found]):
    """A question to all rounds whose answer is a sum over them. Plain data: it travels to other processes."""

    @abstractmethod
    def begin(self) -> Tally[Found]:
        """A tally that has seen no round."""


Work = Callable[[Source], Result]
"""What is done with a piece of a source. It travels to other processes, and is done twice where one of them dies."""


class Engine(ABC):
    """Where the rounds of a log are gone through."""

    @abstractmethod
    def total(self, logs: Logs, task: Task[Found]) -> Found:
        """What a task finds in all rounds. Logs in memory stay where they are."""

    @abstractmethod
    def each(self, source: Source, work: Work[Result]) -> list[Result]:
        """The results of some work on every piece of a source, in their order; they come back here."""


class Local(Engine):
    """This process, batch by batch: memory is bounded by a batch and what is found, whatever the number of rounds."""

    def total(self, logs: Logs, task: Task[Found]) -> Found:
        tally = task.begin()
        for batch in logs.batches():
            tally.take(batch)
        return tally.found()

    def each(self, source: Source, work: Work[Result]) -> list[Result]:
        return [work(source)]


LOCAL = Local()


def merged(task: Task[Found], parts: Iterable[Found]) -> Found:
    """What several tallies have found together."""
    tally = task.begin()
    for part in parts:
        tally.merge(part)
    return tally.found()
