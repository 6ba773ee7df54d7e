"""A pass over the logs: a task that parts of them can do apart, and an engine that puts what they found together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from manyarms.core.logged_data import LoggedData, Logs
from manyarms.linalg.threads import on_one_core
from manyarms.logs.log_stream import LogStream
from manyarms.logs.row_reader import DroppedRows, RowReader
from manyarms.logs.sources import Source
from manyarms.model_file.save import Saved

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
    """A question to all rounds whose answer is a sum over them. Plain data: it travels to other processes.

    Attributes:
        kinds: What its findings are made of, for those that travel.
    """

    kinds: ClassVar[tuple[type[Saved], ...]]

    @abstractmethod
    def begin(self) -> Tally[Found]:
        """A tally that has seen no round."""

    def shards(self, found: Found, count: int) -> list[Found]:
        """A finding in at most `count` parts that are merged apart from one another; by default it is one."""
        return [found]


Work = Callable[[Source], Result]
"""What is done with a piece of a source. It travels to other processes, and is done twice where one of them dies."""


class Spread(ABC, Generic[Found]):
    """What a task has found, in shards that stay where they were merged: too much of it to bring it here."""

    @abstractmethod
    def map(self, work: Callable[[Found], Result]) -> list[Result]:
        """The results of some work on every shard; they come here."""


class Engine(ABC):
    """Where the rounds of a log are gone through."""

    @abstractmethod
    def spread(self, logs: Logs, task: Task[Found]) -> AbstractContextManager[Spread[Found]]:
        """What a task finds in all rounds, left where it is until the end of the block."""

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

    @contextmanager
    def spread(self, logs: Logs, task: Task[Found]) -> Generator[Spread[Found]]:
        yield Held(self.total(logs, task))


class Held(Spread[Found]):
    """One shard, in this process."""

    def __init__(self, found: Found):
        self._found = found

    def map(self, work: Callable[[Found], Result]) -> list[Result]:
        return [work(self._found)]


LOCAL = Local()


@dataclass(frozen=True)
class Finding(Saved, Generic[Found]):
    """What was found in a piece, and how many of its rows were left out."""

    saved_as = "finding"
    found: Found
    dropped: DroppedRows


@dataclass(frozen=True)
class OnFound:
    """Some work on what was found, whatever was dropped."""

    work: Callable[[Any], Any]

    def __call__(self, finding: Finding[Any]) -> Any:
        return self.work(finding.found)


@dataclass(frozen=True)
class PieceWork(Generic[Found]):
    """A task on the rounds of a piece.

    Attributes:
        task: What to find.
        reader: How rows become rounds.
    """

    task: Task[Found]
    reader: RowReader

    def __call__(self, piece: Source) -> Finding[Found]:
        stream = LogStream(piece, self.reader)
        with on_one_core():
            found = LOCAL.total(stream, self.task)
        return Finding(found, stream.dropped)

    def shards(self, finding: Finding[Found], count: int) -> list[Finding[Found]]:
        """A finding in parts that are merged apart; the first tells of dropped rows."""
        parts = self.task.shards(finding.found, count)
        return [Finding(part, finding.dropped if i == 0 else DroppedRows()) for i, part in enumerate(parts)]

    def merged(self, parts: Iterable[Finding[Found]]) -> Finding[Found]:
        """Several of them as one."""
        tally, dropped = self.task.begin(), DroppedRows()
        with on_one_core():
            for part in parts:
                tally.merge(part.found)
                dropped += part.dropped
            return Finding(tally.found(), dropped)
