"""Passes over the logs on a Dask cluster; the extra `manyarms[dask]`."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from multiprocessing import current_process
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, filterwarnings

from manyarms._base.checks import as_count
from manyarms.core.logged_data import Logs
from manyarms.engines.engine import LOCAL, Answer, AnswerWork, Engine, Finding, PieceWork, Result, Shards, Task, Work
from manyarms.errors import EngineError, without_full_stop
from manyarms.linalg.indexing import chunks
from manyarms.linalg.threads import n_cores
from manyarms.logs.log_stream import LogStream
from manyarms.logs.row_reader import DroppedRows
from manyarms.logs.sources import Source

if TYPE_CHECKING:
    from distributed import Client, Future

FAN_IN = 4
"""Findings merged at a time: a tree, so that no worker holds them all."""
PIECES = 4
"""Pieces per thread of the cluster: few enough to merge, many enough that a lost one is soon done again."""
ATTEMPTS = 3
TIMEOUT = 20
"""Seconds that a scheduler has to answer."""
UNGUARDED = (
    "Every Dask process starts by running the script again. Put what the script does under "
    'if __name__ == "__main__":. Or pass the client of a running cluster, as in engine=Dask(client).'
)


class Dask(Engine):
    """The workers of a Dask cluster. Each reads its pieces of the files, so all must see them under the same paths.

    When a worker dies, another one repeats its piece or its merge. The answer of a dead worker counts only if it had
    arrived, so no round is counted twice.

    Args:
        client: A `distributed.Client`, or the address of a scheduler such as "tcp://10.0.0.1:8786". By default the
            client in use, or else one process per core of this machine, which end with this engine. A script that
            starts those needs `if __name__ == "__main__":`.
        pieces: The number of pieces that the logs are cut into; by default four per thread of the cluster.
    """

    def __init__(self, client: Client | str | None = None, *, pieces: int | None = None):
        _import()
        self._client, self._address = (None, client) if isinstance(client, str) else (client, None)
        self._pieces = None if pieces is None else as_count("pieces", pieces)

    def total(self, logs: Logs, task: Task[Answer]) -> Answer:
        if not isinstance(logs, LogStream):
            return LOCAL.total(logs, task)
        work = PieceWork(task, logs.reader)

        def run(client: Client) -> Finding[Answer]:
            sent = _send(client, work)
            parts = self.on_pieces(client, logs.source, sent)
            if not parts:
                return work.merged([])
            while len(parts) > 1:
                groups = [parts[some] for some in chunks(len(parts), FAN_IN)]
                parts = [client.submit(_merge, sent, group, pure=False) for group in groups]
            return parts[0].result()

        finding = self.repeat(run)
        logs.note_dropped(finding.dropped)
        return finding.found

    def each(self, source: Source, work: Work[Result]) -> list[Result]:
        def run(client: Client) -> list[Result]:
            return [part.result() for part in self.on_pieces(client, source, _send(client, work))]

        return self.repeat(run)

    @contextmanager
    def sharded(self, logs: Logs, task: Task[Answer]) -> Generator[Shards[Answer]]:
        if not isinstance(logs, LogStream):
            with LOCAL.sharded(logs, task) as shards:
                yield shards
            return
        shards = _WorkerShards(self, logs.source, PieceWork(task, logs.reader))
        logs.note_dropped(sum(shards.map_findings(attrgetter("dropped")), DroppedRows()))
        yield shards

    def repeat(self, run: Callable[[Client], Result]) -> Result:
        """Run something again when all workers that had the work died: nothing of a failed attempt was counted."""
        from distributed import KilledWorker  # noqa: PLC0415
        from distributed.client import FutureCancelledError  # noqa: PLC0415

        client = self._connected()
        for attempt in range(ATTEMPTS):
            try:
                return run(client)
            except (CancelledError, FutureCancelledError) as lost:
                if attempt == ATTEMPTS - 1:
                    raise EngineError(f"the Dask cluster lost its workers {ATTEMPTS} times: {lost}.") from lost
            except KilledWorker as killed:
                raise EngineError(
                    f"Dask gave up on a piece because workers kept dying on it, perhaps for lack of memory: {killed}.",
                    "Cut the logs into more pieces, as in engine=Dask(client, pieces=1000), or give workers more "
                    "memory.",
                    flag_remedy="Give the workers more memory.",
                ) from killed
        raise AssertionError("not reached")

    def _connected(self) -> Client:
        from distributed import Client, get_client  # noqa: PLC0415

        if self._client is None and self._address is not None:
            try:
                self._client = Client(self._address, timeout=TIMEOUT)
            except (OSError, ValueError) as failed:
                raise EngineError(
                    f"no Dask scheduler answers at {self._address}: {without_full_stop(failed)}."
                ) from failed
            weakref.finalize(self, self._client.close)
        if self._client is None:
            try:
                self._client = get_client()
            except ValueError:
                self._client, cluster = _start_cluster()
                weakref.finalize(self, _close, self._client, cluster)
        return self._client

    def on_pieces(self, client: Client, source: Source, work: Any) -> list[Future]:
        """Work, sent to the workers before, on every piece of a source."""
        threads: Any = client.nthreads()
        pieces = source.pieces(self._pieces or PIECES * max(1, sum(threads.values())))
        return client.map(_do, pieces, work=work, pure=False)


class _WorkerShards(Shards[Answer]):
    """Shards that workers hold; those of a dead worker are computed again."""

    def __init__(self, engine: Dask, source: Source, work: PieceWork[Answer]):
        self._engine, self._source, self._work = engine, source, work
        self._shards: list[Future] = []
        self._sent: Any = None
        self._count: int | None = None

    def map(self, work: Callable[[Answer], Result]) -> list[Result]:
        return self.map_findings(AnswerWork(work))

    def map_findings(self, work: Callable[[Finding[Answer]], Result]) -> list[Result]:
        """The results of some work on every shard together with its dropped rows."""

        def run(client: Client) -> list[Result]:
            shards = self._shards or self._compute(client)
            # Until this attempt succeeds, nobody knows whether they are still there.
            self._shards = []
            parts: list[Future] = client.map(_do, shards, work=_send(client, work), pure=False)
            results = [part.result() for part in parts]
            self._shards = shards
            return results

        return self._engine.repeat(run)

    def _compute(self, client: Client) -> list[Future]:
        # Kept as long as the shards: without the work, the shards of a dead worker could not be computed again.
        sent = self._sent = _send(client, self._work)
        parts = self._engine.on_pieces(client, self._source, sent)
        # The same number of shards however many workers are left by then: files are named after shards.
        threads: Any = client.nthreads()
        count = self._count = self._count or max(1, len(threads))
        cuts = ([client.submit(_shard, sent, part, i, count, pure=False) for part in parts] for i in range(count))
        return [client.submit(_merge, sent, cut, pure=False) for cut in cuts]


def _import() -> None:
    try:
        import distributed  # noqa: F401, PLC0415  # pyright: ignore[reportUnusedImport]
    except ModuleNotFoundError as missing:
        raise EngineError(
            "dask needs the library distributed.", 'Install it: pip install "manyarms[dask]".', argument="engine"
        ) from missing


def _start_cluster() -> tuple[Client, Any]:
    """A client, and its cluster of one process per core of this machine."""
    from distributed import Client, LocalCluster  # noqa: PLC0415

    if getattr(current_process(), "_inheriting", False):
        # This is a worker that starts by running the script again; without a guard that never ends.
        raise EngineError("a Dask process cannot start a Dask cluster of its own.", UNGUARDED) from None
    try:
        # Port 0 is any free one; the address keeps the dashboard on this machine too.
        cluster = LocalCluster(
            n_workers=n_cores(), threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        )
    except RuntimeError as failed:
        raise EngineError(
            f"Dask could not start processes on this machine: {without_full_stop(failed)}.", UNGUARDED
        ) from failed
    return Client(cluster), cluster


def _send(client: Client, work: Any) -> Any:
    """Work as a task of its own, which the scheduler keeps: if the worker that holds it dies, another one gets it.

    `client.scatter` would leave the work with the workers only, and can wait forever for one that dies meanwhile.
    """
    with catch_warnings():
        # Work may be large, since it holds the posterior; it goes through the scheduler once.
        filterwarnings("ignore", message="(?s).*Sending large graph")
        return client.submit(_hold, work, pure=False)


def _hold(work: Any) -> Any:
    return work


def _do(piece: Any, work: Any) -> Any:
    return work(piece)


def _merge(work: Any, parts: list[Any]) -> Any:
    return work.merged(parts)


def _shard(work: PieceWork[Any], finding: Finding[Any], number: int, count: int) -> Finding[Any]:
    parts = work.shards(finding, count)
    return parts[number] if number < len(parts) else work.merged([])


def _close(client: Client, cluster: Any) -> None:
    client.close()
    cluster.close()
