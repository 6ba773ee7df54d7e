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
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from manyarms import errors
from manyarms._base.checks import as_count
from manyarms.core.logged_data import Logs
from manyarms.engines.base import LOCAL, Engine, Finding, Found, OnFound, PieceWork, Result, Spread, Task, Work
from manyarms.errors import EngineError, ManyarmsError, without_full_stop
from manyarms.logs.log_stream import LogStream
from manyarms.logs.row_reader import DroppedRows
from manyarms.logs.sources import Source
from manyarms.model_file.arrow_file import from_bytes, to_bytes
from manyarms.model_file.load import rebuild
from manyarms.model_file.save import describe

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import Broadcast
    from pyspark.sql import DataFrame, SparkSession

PIECES = 4
"""Pieces for every core of the cluster."""
SCHEMA = "shard int, payload binary"
REFUSED = -1
"""In the place of a shard: the payload says what is wrong with the rounds."""


class Spark(Engine):
    """The executors of a Spark cluster, each reading its pieces of the files: all must see them under the same paths.

    What each piece has found is cut by action into shards, shuffled, merged shard by shard on the cluster, and only
    then brought here. A piece or a shard whose executor dies is done again; what a dead one has found is thrown away,
    so no round is counted twice. Executors need manyarms, PyArrow and pandas.

    Args:
        session: A `SparkSession`, or a master such as "spark://10.0.0.1:7077" or "yarn" to start one on; by default the
            active one, or else one on this machine. One that you have made runs the Python that its settings name,
            "spark.pyspark.python", or PYSPARK_PYTHON when it began.
        pieces: Into how many pieces the logs are cut; by default four for every core of the cluster.
        shards: Into how many shards findings are cut; by default one for every core.
    """

    def __init__(
        self, session: SparkSession | str | None = None, *, pieces: int | None = None, shards: int | None = None
    ):
        _import()
        self._session, self._master = (None, session) if isinstance(session, str) else (session, None)
        self._pieces = None if pieces is None else as_count("pieces", pieces)
        self._shards = None if shards is None else as_count("shards", shards)

    def total(self, logs: Logs, task: Task[Found]) -> Found:
        if not isinstance(logs, LogStream):
            return LOCAL.total(logs, task)
        work = PieceWork(task, logs.reader)
        with self._merged(logs, work) as table, _told_of_python():
            rows = table.collect()
        _raise_refusal(row.payload for row in rows if row.shard == REFUSED)
        finding = work.merged(_received(row.payload, task) for row in rows)
        logs.note_dropped(finding.dropped)
        return finding.found

    @contextmanager
    def spread(self, logs: Logs, task: Task[Found]) -> Generator[Spread[Found]]:
        if not isinstance(logs, LogStream):
            with LOCAL.spread(logs, task) as held:
                yield held
            return
        with self._merged(logs, PieceWork(task, logs.reader)) as table:
            kept = table.persist()
            try:
                with _told_of_python():
                    refused = kept.where(f"shard = {REFUSED}").collect()
                _raise_refusal(row.payload for row in refused)
                shards = _OnExecutors(kept, task)
                logs.note_dropped(sum(shards.of_findings(attrgetter("dropped")), DroppedRows()))
                yield shards
            finally:
                kept.unpersist()

    @contextmanager
    def _merged(self, logs: LogStream, work: PieceWork[Any]) -> Generator[DataFrame]:
        """The shards of what was found, merged, as a table on the cluster; its rows are made when it is asked."""
        count = self._count_shards(logs)

        pieces = self._cut(logs.source)
        with _broadcast(self.session, (work, pieces)) as sent:
            numbers = self.session.range(0, len(pieces), 1, max(1, len(pieces)))
            shards = numbers.mapInArrow(_Look(sent, count), SCHEMA).repartition(count, "shard")
            yield shards.mapInArrow(_Merge(sent), SCHEMA)

    def each(self, source: Source, work: Work[Result]) -> list[Result]:
        pieces = self._cut(source)
        with _broadcast(self.session, (work, pieces)) as sent, _told_of_python():
            numbers = self.session.sparkContext.parallelize(range(len(pieces)), max(1, len(pieces)))
            found = numbers.map(_Do(sent)).collect()
        _raise_refusal(one.payload for one in found if isinstance(one, _Refused))
        return found

    @property
    def session(self) -> SparkSession:
        """The session in use, or one made for this machine."""
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
                    f"Spark could not be started; it needs Java 17: {without_full_stop(failed)}."
                ) from failed
        return self._session

    @property
    def _cores(self) -> int:
        return max(1, self.session.sparkContext.defaultParallelism)

    def _cut(self, source: Source) -> list[Source]:
        return source.pieces(self._pieces or PIECES * self._cores)

    def _count_shards(self, logs: LogStream) -> int:
        # Sums of all actions at most, and a quarter of a gigabyte a shard: a cell of a table holds two.
        most = logs.n_actions * (logs.dim + 1) ** 2 * 8
        return self._shards or max(self._cores, -(-most >> 28))


# What runs on executors: classes of this module and not functions inside others, so that only their names travel.


@dataclass(frozen=True)
class _Look:
    """From the numbers of pieces to the shards of what is found in them."""

    sent: Broadcast[Any]
    count: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        work, pieces = self.sent.value
        for number in _numbers(batches):
            try:
                found = work(pieces[number])
            except ManyarmsError as wrong:
                # Bad rows stay bad: Spark must not try again, and the user wants the sentence alone.
                yield _row(REFUSED, _refusal(number, wrong))
                continue
            yield from (_row(i, _sent(part)) for i, part in enumerate(work.shards(found, self.count)))


@dataclass(frozen=True)
class _Merge:
    """From all parts of some shards to one for each."""

    sent: Broadcast[Any]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        work, _ = self.sent.value
        parts = defaultdict[int, list[Any]](list)
        for shard, payload in _pairs(batches):
            parts[shard].append(payload)
        yield from (_row(REFUSED, text) for text in parts.pop(REFUSED, []))
        for shard in sorted(parts):
            together = work.merged(_received(payload, work.task) for payload in parts.pop(shard))
            yield _row(shard, _sent(together))


@dataclass(frozen=True)
class _Do:
    """Some work on the piece of a number."""

    sent: Broadcast[Any]

    def __call__(self, number: int) -> Any:
        work, pieces = self.sent.value
        try:
            return work(pieces[number])
        except ManyarmsError as wrong:
            return _Refused(_refusal(number, wrong))


@dataclass(frozen=True)
class _Refused:
    """In the place of a result: what is wrong with the rows of a piece."""

    payload: bytes


@dataclass(frozen=True)
class _OnFinding:
    """Some work on the finding in a row."""

    work: Callable[[Finding[Any]], Any]
    task: Task[Any]

    def __call__(self, row: Any) -> Any:
        return self.work(_received(row.payload, self.task))


class _OnExecutors(Spread[Found]):
    def __init__(self, table: DataFrame, task: Task[Found]):
        self._table, self._task = table, task

    def map(self, work: Callable[[Found], Result]) -> list[Result]:
        return self.of_findings(OnFound(work))

    def of_findings(self, work: Callable[[Finding[Found]], Result]) -> list[Result]:
        with _told_of_python():
            return self._table.rdd.map(_OnFinding(work, self._task)).collect()


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
            f'engine="spark" needs {missing.name}: pip install "manyarms[spark]", and Java 17.'
        ) from missing


@contextmanager
def _told_of_python() -> Generator[None]:
    """Executors whose Python lacks a library say so at the end of a page of Java: here in a sentence."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        yield
    except (PySparkException, Py4JJavaError) as failed:
        lacking = re.search(r"ModuleNotFoundError: No module named '([\w.]+)'", str(failed))
        if lacking is None:
            raise
        raise EngineError(
            f"the executors of this Spark session run a Python without {lacking[1]}. Before the session is made, set "
            'os.environ["PYSPARK_PYTHON"] = sys.executable on one machine, or "spark.pyspark.python" to a Python of '
            'every executor that has "manyarms[spark]".'
        ) from failed


@contextmanager
def _broadcast(session: SparkSession, value: Any) -> Generator[Any]:
    """A value that is sent to every executor once, and forgotten at the end."""
    sent = session.sparkContext.broadcast(value)
    try:
        yield sent
    finally:
        sent.destroy()


def _numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _pairs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Any]]:
    for batch in batches:
        yield from zip(batch.column(0).to_pylist(), batch.column(1), strict=True)


def _row(shard: int, payload: Any) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415

    columns = [pa.array([shard], pa.int32()), pa.array([payload], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["shard", "payload"])


def _sent(finding: Finding[Any]) -> bytes:
    return to_bytes(*describe(finding))


def _received(payload: Any, task: Task[Found]) -> Finding[Found]:
    data = payload.as_buffer() if hasattr(payload, "as_buffer") else payload
    kinds = {kind.saved_as: kind for kind in (Finding, DroppedRows, *task.kinds)}
    found = rebuild(*from_bytes(data), kinds)
    assert isinstance(found, Finding)
    return found


def _refusal(number: int, wrong: ManyarmsError) -> bytes:
    return json.dumps([number, type(wrong).__name__, str(wrong)]).encode()


def _raise_refusal(payloads: Iterable[Any]) -> None:
    """The error of the first piece that was refused, as if it had been raised here."""
    refusals = sorted(json.loads(bytes(payload)) for payload in payloads)
    if refusals:
        _, kind, text = refusals[0]
        raise getattr(errors, kind, errors.InputError)(text)
