"""Passes over the logs on a Spark cluster; the extra `manyarms[spark]`."""

from __future__ import annotations

import json
import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

from manyarms import errors
from manyarms._base.arrow import pa
from manyarms._base.checks import as_count
from manyarms.core.logged_data import Logs
from manyarms.engines.engine import LOCAL, Answer, AnswerWork, Engine, Finding, PieceWork, Result, Shards, Task, Work
from manyarms.errors import EngineError, ManyarmsError, without_full_stop
from manyarms.logs.log_stream import LogStream
from manyarms.logs.row_reader import DroppedRows
from manyarms.logs.sources import Source
from manyarms.model_file.arrow_file import from_bytes, to_bytes
from manyarms.model_file.load import rebuild
from manyarms.model_file.save import describe

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import DataFrame, SparkSession

PIECES = 4
"""Pieces per core of the cluster."""
SCHEMA = "shard int, payload binary"
REFUSED = -1
"""The shard number of a piece whose rounds are wrong; the payload is the error."""


class Spark(Engine):
    """The executors of a Spark cluster. Each reads its pieces of the files, so all must see them under the same paths.

    The answer of each piece is cut by action into shards. These are shuffled, merged shard by shard on the cluster, and
    only then brought to this process. When an executor dies, its pieces and shards are computed again and its answers
    are thrown away, so no round is counted twice. Executors need manyarms, PyArrow and pandas.

    Args:
        session: A `SparkSession`, or a master such as "spark://10.0.0.1:7077" or "yarn" to start a session on. By
            default the active session, or else a new one on this machine. A session that you made runs the Python that
            its setting "spark.pyspark.python" names, or PYSPARK_PYTHON when it began.
        pieces: The number of pieces that the logs are cut into; by default four per core of the cluster.
        shards: The number of shards that an answer is cut into; by default one per core.
    """

    def __init__(
        self, session: SparkSession | str | None = None, *, pieces: int | None = None, shards: int | None = None
    ):
        _import()
        self._session, self._master = (None, session) if isinstance(session, str) else (session, None)
        self._pieces = None if pieces is None else as_count("pieces", pieces)
        self._shards = None if shards is None else as_count("shards", shards)

    def total(self, logs: Logs, task: Task[Answer]) -> Answer:
        if not isinstance(logs, LogStream):
            return LOCAL.total(logs, task)
        work = PieceWork(task, logs.reader)
        with self._merged(logs, work) as table, _explained_failures():
            rows = table.collect()
        _raise_refusal(row.payload for row in rows if row.shard == REFUSED)
        finding = work.merged(_from_payload(row.payload, task) for row in rows)
        logs.note_dropped(finding.dropped)
        return finding.found

    @contextmanager
    def sharded(self, logs: Logs, task: Task[Answer]) -> Generator[Shards[Answer]]:
        if not isinstance(logs, LogStream):
            with LOCAL.sharded(logs, task) as shards:
                yield shards
            return
        with self._merged(logs, PieceWork(task, logs.reader)) as table:
            kept = table.persist()
            try:
                with _explained_failures():
                    refused = kept.where(f"shard = {REFUSED}").collect()
                _raise_refusal(row.payload for row in refused)
                shards = _ExecutorShards(kept, task)
                logs.note_dropped(sum(shards.map_findings(attrgetter("dropped")), DroppedRows()))
                yield shards
            finally:
                kept.unpersist()

    @contextmanager
    def _merged(self, logs: LogStream, work: PieceWork[Any]) -> Generator[DataFrame]:
        """The merged shards as a table on the cluster; its rows are computed when they are read."""
        count = self._count_shards(logs)
        pieces = self._cut(logs.source)
        with _broadcast(self.session, (work, pieces)) as sent:
            numbers = self.session.range(0, len(pieces), 1, max(1, len(pieces)))
            shards = numbers.mapInArrow(_ShardPieces(sent, count), SCHEMA).repartition(count, "shard")
            yield shards.mapInArrow(_MergeShards(sent), SCHEMA)

    def each(self, source: Source, work: Work[Result]) -> list[Result]:
        pieces = self._cut(source)
        with _broadcast(self.session, (work, pieces)) as sent, _explained_failures():
            numbers = self.session.sparkContext.parallelize(range(len(pieces)), max(1, len(pieces)))
            results = numbers.map(_WorkOnPiece(sent)).collect()
        _raise_refusal(result.payload for result in results if isinstance(result, _Refusal))
        return results

    @property
    def session(self) -> SparkSession:
        """The session in use, or one started now."""
        from pyspark.errors import PySparkException  # noqa: PLC0415
        from pyspark.sql import SparkSession  # noqa: PLC0415

        if self._session is None:
            builder: Any = SparkSession.builder
            settings = LOCAL_SETTINGS if self._master is None else {"spark.master": self._master}
            # Else Spark would start whatever "python3" is first on the path, and listen to the network.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            if self._master is None:
                os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            try:
                active = None if self._master is not None else SparkSession.getActiveSession()
                self._session = active or builder.config(map=settings).getOrCreate()
            except PySparkException as failed:
                raise EngineError(
                    f"Spark could not be started: {without_full_stop(failed)}.", "It needs Java 17 on this machine."
                ) from failed
        return self._session

    @property
    def _cores(self) -> int:
        return max(1, self.session.sparkContext.defaultParallelism)

    def _cut(self, source: Source) -> list[Source]:
        return source.pieces(self._pieces or PIECES * self._cores)

    def _count_shards(self, logs: LogStream) -> int:
        # At most the sums of all actions, at a quarter of a gigabyte per shard: a cell of a table holds two.
        most = logs.n_actions * (logs.dim + 1) ** 2 * 8
        return self._shards or max(self._cores, -(-most >> 28))


# The classes below run on executors. They are not nested functions, so that only their names travel.


@dataclass(frozen=True)
class _ShardPieces:
    """From the numbers of pieces to the shards of their answers."""

    sent: Broadcast[Any]
    count: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        work, pieces = self.sent.value
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            try:
                finding = work(pieces[number])
            except ManyarmsError as error:
                # Bad rows stay bad: Spark must not try again, and the user wants the sentence alone.
                yield _row(REFUSED, _refusal(number, error))
                continue
            yield from (_row(i, _to_payload(part)) for i, part in enumerate(work.shards(finding, self.count)))


@dataclass(frozen=True)
class _MergeShards:
    """From all parts of some shards to one part per shard."""

    sent: Broadcast[Any]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        work, _ = self.sent.value
        parts = defaultdict[int, list[Any]](list)
        for batch in batches:
            for shard, payload in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
                parts[shard].append(payload)
        yield from (_row(REFUSED, payload) for payload in parts.pop(REFUSED, []))
        for shard in sorted(parts):
            merged = work.merged(_from_payload(payload, work.task) for payload in parts.pop(shard))
            yield _row(shard, _to_payload(merged))


@dataclass(frozen=True)
class _WorkOnPiece:
    """Some work on the piece with a given number."""

    sent: Broadcast[Any]

    def __call__(self, number: int) -> Any:
        work, pieces = self.sent.value
        try:
            return work(pieces[number])
        except ManyarmsError as error:
            return _Refusal(_refusal(number, error))


@dataclass(frozen=True)
class _Refusal:
    """The error of a piece, in the place of its result."""

    payload: bytes


@dataclass(frozen=True)
class _WorkOnRow:
    """Some work on the finding in a row of a table."""

    work: Callable[[Finding[Any]], Any]
    task: Task[Any]

    def __call__(self, row: Any) -> Any:
        return self.work(_from_payload(row.payload, self.task))


class _ExecutorShards(Shards[Answer]):
    """Shards in a table on the cluster."""

    def __init__(self, table: DataFrame, task: Task[Answer]):
        self._table, self._task = table, task

    def map(self, work: Callable[[Answer], Result]) -> list[Result]:
        return self.map_findings(AnswerWork(work))

    def map_findings(self, work: Callable[[Finding[Answer]], Result]) -> list[Result]:
        """The results of some work on every shard together with its dropped rows."""
        with _explained_failures():
            return self._table.rdd.map(_WorkOnRow(work, self._task)).collect()


LOCAL_SETTINGS = {
    "spark.master": "local[*]",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def _import() -> None:
    try:
        import pandas  # noqa: F401, PLC0415  # pyright: ignore[reportUnusedImport]
        import pyspark  # noqa: F401, PLC0415  # pyright: ignore[reportUnusedImport]
    except ModuleNotFoundError as missing:
        raise EngineError(
            f"spark needs the library {missing.name}.",
            'Install it: pip install "manyarms[spark]". Spark also needs Java 17.',
            argument="engine",
        ) from missing


@contextmanager
def _explained_failures() -> Generator[None]:
    """Say in a sentence that executors lack a library, which Spark says at the end of a page of Java."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        yield
    except (PySparkException, Py4JJavaError) as failed:
        missing = re.search(r"ModuleNotFoundError: No module named '([\w.]+)'", str(failed))
        if missing is None:
            raise
        everywhere = '"spark.pyspark.python" to a Python that has "manyarms[spark]" on every executor.'
        raise EngineError(
            f"the executors of this Spark session run a Python without {missing[1]}.",
            f'Before you make the session, set os.environ["PYSPARK_PYTHON"] = sys.executable on one machine, or '
            f"{everywhere}",
            flag_remedy=f"Set PYSPARK_PYTHON in the environment on one machine, or the Spark setting {everywhere}",
        ) from failed


@contextmanager
def _broadcast(session: SparkSession, value: Any) -> Generator[Any]:
    """A value that is sent to every executor once, and removed there at the end of the block."""
    sent = session.sparkContext.broadcast(value)
    try:
        yield sent
    finally:
        sent.destroy()


def _row(shard: int, payload: Any) -> pa.RecordBatch:
    columns = [pa.array([shard], pa.int32()), pa.array([payload], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["shard", "payload"])


def _to_payload(finding: Finding[Any]) -> bytes:
    return to_bytes(*describe(finding))


def _from_payload(payload: Any, task: Task[Answer]) -> Finding[Answer]:
    data = payload.as_buffer() if hasattr(payload, "as_buffer") else payload
    kinds = {kind.saved_as: kind for kind in (Finding, DroppedRows, *task.kinds)}
    finding = rebuild(*from_bytes(data), kinds)
    assert isinstance(finding, Finding)
    return finding


def _refusal(number: int, error: ManyarmsError) -> bytes:
    fields = {"argument": error.argument, "flag_remedy": error.flag_remedy}
    return json.dumps([number, type(error).__name__, [error.problem, error.remedy], fields]).encode()


def _raise_refusal(payloads: Iterable[Any]) -> None:
    """Raise the error of the first refused piece, as if it had been raised here."""
    refusals = [json.loads(bytes(payload)) for payload in payloads]
    if refusals:
        _, kind, sentences, fields = min(refusals, key=itemgetter(0))
        raise getattr(errors, kind, errors.InputError)(*sentences, **fields)
