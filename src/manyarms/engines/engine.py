"""A pass over the logs: a task that pieces of the logs do separately, and an engine that merges their answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from jaxtyping import Float

from manyarms._base.checks import Array
from manyarms.core.logged_data import LoggedData, Logs
from manyarms.core.statistics import Statistics
from manyarms.errors import InputError
from manyarms.linalg.threads import on_one_core
from manyarms.logs.log_stream import LogStream
from manyarms.logs.row_reader import DroppedRows, RowReader
from manyarms.logs.sources import Source
from manyarms.logs.warehouse_table import WarehouseTable
from manyarms.model_file.save import Saved

Answer = TypeVar("Answer")
Result = TypeVar("Result")


class Tally(ABC, Generic[Answer]):
    """A running sum over the rounds that an engine has passed so far."""

    @abstractmethod
    def take(self, rounds: LoggedData) -> None:
        """Add a batch of rounds."""

    def memory(self, n_rounds: int) -> Float[Array, "n d"] | None:
        """Memory for the contexts of the batch that is read next; None where any will do."""
        return None

    @abstractmethod
    def merge(self, answer: Answer, /) -> None:
        """Add the answer of another tally, which saw other rounds."""

    @abstractmethod
    def answer(self) -> Answer:
        """The answer for all rounds seen. The tally ends here."""


class Task(ABC, Generic[Answer]):
    """A question that an engine asks all rounds; the answer is a sum. Plain data: it travels to other processes.

    Attributes:
        kinds: The saved classes that its answers are made of, for answers that travel.
    """

    kinds: ClassVar[tuple[type[Saved], ...]]

    @abstractmethod
    def begin(self) -> Tally[Answer]:
        """A tally that has seen no rounds."""

    @property
    def takes_statistics(self) -> bool:
        """True if statistics of the rewards as they are say all that the task asks for; see `of_statistics`."""
        return False

    def of_statistics(self, statistics: Statistics) -> Answer:
        """The answer for rounds of which only the statistics are known."""
        raise InputError("this pass needs the rounds themselves.")

    def shards(self, answer: Answer, /, count: int) -> list[Answer]:
        """An answer in at most `count` parts that are merged separately; by default one part."""
        return [answer]


Work = Callable[[Source], Result]
"""Work on a piece of a source. It travels to other processes, and is done again where one of them dies."""


class Shards(ABC, Generic[Answer]):
    """The answer of an engine in shards that stay where they were merged because together they are too large."""

    @abstractmethod
    def map(self, work: Callable[[Answer], Result]) -> list[Result]:
        """The results of some work on every shard, brought to this process."""


class Engine(ABC):
    """An engine: the place where a pass over the logs runs."""

    @abstractmethod
    def sharded(self, logs: Logs, task: Task[Answer]) -> AbstractContextManager[Shards[Answer]]:
        """The answer to a task over all rounds, left in shards until the end of the block."""

    @abstractmethod
    def total(self, logs: Logs, task: Task[Answer]) -> Answer:
        """The answer to a task over all rounds. Logs in memory stay in this process."""

    @abstractmethod
    def each(self, source: Source, work: Work[Result]) -> list[Result]:
        """The results of some work on every piece of a source, in order, brought to this process."""


def pass_over(logs: Logs, task: Task[Answer]) -> Answer:
    """The answer to a task over all rounds, batch by batch in this process."""
    tally = task.begin()
    for batch in logs.batches(memory=tally.memory) if isinstance(logs, LogStream) else logs.batches():
        tally.take(batch)
    return tally.answer()


class Local(Engine):
    """The engine in this process, batch by batch: memory is bounded by a batch and the answer, whatever the rounds."""

    def total(self, logs: Logs, task: Task[Answer]) -> Answer:
        if isinstance(logs, LogStream) and isinstance(logs.source, WarehouseTable):
            from manyarms.engines.ibis import Ibis  # noqa: PLC0415  an extra

            return Ibis().total(logs, task)
        return pass_over(logs, task)

    def each(self, source: Source, work: Work[Result]) -> list[Result]:
        return [work(source)]

    @contextmanager
    def sharded(self, logs: Logs, task: Task[Answer]) -> Generator[Shards[Answer]]:
        yield OneShard(self.total(logs, task))


class OneShard(Shards[Answer]):
    """The whole answer as one shard, in this process."""

    def __init__(self, answer: Answer):
        self._answer = answer

    def map(self, work: Callable[[Answer], Result]) -> list[Result]:
        return [work(self._answer)]


LOCAL = Local()


@dataclass(frozen=True)
class Finding(Saved, Generic[Answer]):
    """The answer that an engine gets from a piece, and how many of its rows were left out."""

    saved_as = "finding"
    found: Answer
    dropped: DroppedRows


@dataclass(frozen=True)
class AnswerWork:
    """The work of an engine on the answer of one shard; the rows that the shard dropped do not matter."""

    work: Callable[[Any], Any]

    def __call__(self, finding: Finding[Any]) -> Any:
        return self.work(finding.found)


@dataclass(frozen=True)
class PieceWork(Generic[Answer]):
    """An engine's task on the rounds of a piece.

    Attributes:
        task: The task.
        reader: The way rows become rounds.
    """

    task: Task[Answer]
    reader: RowReader

    def __call__(self, piece: Source) -> Finding[Answer]:
        stream = LogStream(piece, self.reader)
        with on_one_core():
            answer = LOCAL.total(stream, self.task)
        return Finding(answer, stream.dropped)

    def shards(self, finding: Finding[Answer], count: int) -> list[Finding[Answer]]:
        """A finding in parts that are merged separately; the first carries the count of dropped rows."""
        parts = self.task.shards(finding.found, count)
        return [Finding(part, finding.dropped if i == 0 else DroppedRows()) for i, part in enumerate(parts)]

    def merged(self, parts: Iterable[Finding[Answer]]) -> Finding[Answer]:
        """Several findings merged into one."""
        tally, dropped = self.task.begin(), DroppedRows()
        with on_one_core():
            for part in parts:
                tally.merge(part.found)
                dropped += part.dropped
            return Finding(tally.answer(), dropped)


def as_engine(engine: Any) -> Engine:
    """Check the argument `engine` of a user: None for this process, a name, or an engine with options of its own.

    A name may go on with the address of a cluster, as in "dask:tcp://10.0.0.1:8786" and "spark:yarn".
    """
    if isinstance(engine, Engine):
        return engine
    if engine is None or engine == "local":
        return LOCAL
    name, _, cluster = engine.partition(":") if isinstance(engine, str) else ("", "", "")
    if name == "dask":
        from manyarms.engines.dask import Dask  # noqa: PLC0415  an extra

        return Dask(cluster or None)
    if name == "spark":
        from manyarms.engines.spark import Spark  # noqa: PLC0415  an extra

        return Spark(cluster or None)
    if engine == "ibis":
        from manyarms.engines.ibis import Ibis  # noqa: PLC0415  an extra

        return Ibis()
    raise InputError(
        f"must be local, dask, spark or ibis; got {engine!r}.",
        "Dask(...) and Spark(...) from manyarms.engines are accepted too.",
        argument="engine",
        flag_remedy="Add the address of a cluster after a colon, as in dask:tcp://10.0.0.1:8786.",
    )
