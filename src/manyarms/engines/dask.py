"""Passes over the logs on a Dask cluster; the extra `manyarms[dask]`."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from multiprocessing import current_process
from typing import TYPE_CHECKING, Any, TypeVar

from manyarms._base.checks import as_count
from manyarms.core.logged_data import Logs
from manyarms.engines.base import LOCAL, Engine, Finding, Found, OnFound, PieceWork, Result, Spread, Task, Work
from manyarms.errors import EngineError, without_full_stop
from manyarms.linalg.indexing import chunks
from manyarms.linalg.threads import n_cores
from manyarms.logs.log_stream import LogStream
from manyarms.logs.row_reader import DroppedRows
from manyarms.logs.sources import Source

if TYPE_CHECKING:
    from distributed import Client, Future

Answer = TypeVar("Answer")

FAN_IN = 4
"""How many findings are merged at a time: a tree, so that no worker holds them all."""
PIECES = 4
"""Pieces for every thread of the cluster: few enough to merge, many enough that one lost is soon done again."""
ATTEMPTS = 3
TIMEOUT = 20
"""Seconds that a scheduler has to answer."""
PAUSE = 0.2
"""Seconds before a question is sent again, in which the scheduler finds out who has died."""
SENDING = 60
"""Seconds that sending a question may take."""
UNSENT = (OSError, KeyError, ValueError, AssertionError)
"""What the scheduler raises when a worker dies while it is sent something: lost connections, slips over who is left."""
UNGUARDED = (
    "Processes of Dask begin by running the script again: what it does must stand under "
    'if __name__ == "__main__":. Or pass the client of a cluster that is there, as in engine=Dask(client).'
)


class Dask(Engine):
    """The workers of a Dask cluster, each reading its pieces of the files: all must see them under the same paths.

    A piece, or a merge, whose worker dies is done again by another one; what a dead worker has found counts only if it
    has come through, so no round is counted twice.

    Args:
        client: A `distributed.Client`, or the address of a scheduler such as "tcp://10.0.0.1:8786"; by default the
            client in use, or else a process for every core of this machine, which end with this engine. A script that
            wants those needs `if __name__ == "__main__":`.
        pieces: Into how many pieces the logs are cut; by default four for every thread of the cluster.
    """

    def __init__(self, client: Client | str | None = None, *, pieces: int | None = None):
        _import()
        self._client, self._address = (None, client) if isinstance(client, str) else (client, None)
        self._pieces = None if pieces is None else as_count("pieces", pieces)

    def total(self, logs: Logs, task: Task[Found]) -> Found:
        if not isinstance(logs, LogStream):
            return LOCAL.total(logs, task)
        work = PieceWork(task, logs.reader)

        def answer(client: Client) -> Finding[Found]:
            sent = _everywhere(client, work)
            parts: list[Future] = client.map(_do, self.cut(client, logs.source), work=sent, pure=False)
            if not parts:
                return work.merged([])
            while len(parts) > 1:
                groups = [parts[some] for some in chunks(len(parts), FAN_IN)]
                parts = [client.submit(_merge, sent, group, pure=False) for group in groups]
            return parts[0].result()

        finding = self.ask(answer)
        logs.note_dropped(finding.dropped)
        return finding.found

    def each(self, source: Source, work: Work[Result]) -> list[Result]:
        def answer(client: Client) -> list[Result]:
            sent = _everywhere(client, work)
            parts: list[Future] = client.map(_do, self.cut(client, source), work=sent, pure=False)
            return [part.result() for part in parts]

        return self.ask(answer)

    @contextmanager
    def spread(self, logs: Logs, task: Task[Found]) -> Generator[Spread[Found]]:
        if not isinstance(logs, LogStream):
            with LOCAL.spread(logs, task) as held:
                yield held
            return
        shards = _OnWorkers(self, logs.source, PieceWork(task, logs.reader))
        logs.note_dropped(sum(shards.of_findings(_dropped), DroppedRows()))
        yield shards

    def ask(self, answer: Callable[[Client], Answer]) -> Answer:
        """Ask again when all workers that knew the question have died: nothing of a failed attempt was counted."""
        from distributed import KilledWorker  # noqa: PLC0415
        from distributed.client import FutureCancelledError  # noqa: PLC0415

        client = self._connected()
        for attempt in range(ATTEMPTS):
            try:
                return answer(client)
            except (CancelledError, FutureCancelledError) as lost:
                if attempt == ATTEMPTS - 1:
                    raise EngineError(f"the Dask cluster lost its workers {ATTEMPTS} times: {lost}.") from lost
            except KilledWorker as killed:
                raise EngineError(
                    f"Dask gave a piece up, since workers kept dying on it, perhaps for want of memory: {killed}. Cut "
                    "the logs into more pieces, as in engine=Dask(client, pieces=1000), or give workers more memory."
                ) from killed
        raise AssertionError("not reached")

    def _connected(self) -> Client:
        from distributed import Client, LocalCluster, get_client  # noqa: PLC0415

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
                if getattr(current_process(), "_inheriting", False):
                    # This is a worker that begins by running the script again; without a guard that never ends.
                    raise EngineError(UNGUARDED) from None
                try:
                    # Port 0 is any that is free; the address keeps the dashboard on this machine too.
                    cluster = LocalCluster(
                        n_workers=n_cores(), threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
                    )
                except RuntimeError as failed:
                    raise EngineError(
                        f"Dask could not start processes on this machine: {without_full_stop(failed)}. {UNGUARDED}"
                    ) from failed
                self._client = Client(cluster)
                weakref.finalize(self, _close, self._client, cluster)
        return self._client

    def cut(self, client: Client, source: Source) -> list[Source]:
        """The pieces of a source that workers are given one by one."""
        return source.pieces(self._pieces or PIECES * max(1, sum(_threads(client).values())))


class _OnWorkers(Spread[Found]):
    """Shards that workers hold; those that died with one are found again."""

    def __init__(self, engine: Dask, source: Source, work: PieceWork[Found]):
        self._engine, self._source, self._work = engine, source, work
        self._shards: list[Future] = []
        self._question: Future | None = None
        self._count: int | None = None

    def map(self, work: Callable[[Found], Result]) -> list[Result]:
        return self.of_findings(OnFound(work))

    def of_findings(self, work: Callable[[Finding[Found]], Result]) -> list[Result]:
        """The results of some work on every shard, with what was dropped from it."""

        def answer(client: Client) -> list[Result]:
            shards = self._shards or self._find(client)
            # Until this attempt has come through, nobody knows that they are still there.
            self._shards = []
            parts: list[Future] = client.map(_do, shards, work=_everywhere(client, work), pure=False)
            results = [part.result() for part in parts]
            self._shards = shards
            return results

        return self._engine.ask(answer)

    def _find(self, client: Client) -> list[Future]:
        # Kept as long as the shards: without the question those of a dead worker could not be made again.
        sent = self._question = _everywhere(client, self._work)
        parts: list[Future] = client.map(_do, self._engine.cut(client, self._source), work=sent, pure=False)
        # The same shards however many workers are left by then: their files are named after them.
        count = self._count = self._count or max(1, len(_threads(client)))
        cuts = ([client.submit(_shard, sent, part, i, count, pure=False) for part in parts] for i in range(count))
        return [client.submit(_merge, sent, mine, pure=False) for mine in cuts]


def _import() -> None:
    try:
        import distributed  # noqa: F401, PLC0415  # pyright: ignore[reportUnusedImport]
    except ModuleNotFoundError as missing:
        raise EngineError('engine="dask" needs Dask: pip install "manyarms[dask]".') from missing


def _everywhere(client: Client, work: Any) -> Any:
    """The question on every worker, so that none has to fetch it and one that dies does not take it along.

    A worker that dies meanwhile makes all of it fail, or wait for an answer that never comes: it is sent again to those
    that are left.
    """

    async def scatter() -> Any:
        return await client.scatter(work, broadcast=True, hash=False, asynchronous=True)

    for attempt in range(ATTEMPTS):
        try:
            return client.sync(scatter, callback_timeout=SENDING)
        except UNSENT as lost:
            if attempt == ATTEMPTS - 1:
                raise EngineError(
                    f"the Dask cluster lost workers {ATTEMPTS} times while they were sent the work: "
                    f"{without_full_stop(lost)}.",
                    "See whether workers and scheduler run, and why workers die; want of memory is the usual reason.",
                ) from lost
            time.sleep(PAUSE)
    raise AssertionError("not reached")


def _threads(client: Client) -> dict[str, int]:
    """How many threads every worker has."""
    found: Any = client.nthreads()
    return found


def _do(one: Any, work: Any) -> Any:
    return work(one)


def _merge(work: Any, parts: list[Any]) -> Any:
    return work.merged(parts)


def _shard(work: PieceWork[Any], finding: Finding[Any], number: int, count: int) -> Finding[Any]:
    parts = work.shards(finding, count)
    return parts[number] if number < len(parts) else work.merged([])


def _dropped(finding: Finding[Any]) -> DroppedRows:
    return finding.dropped


def _close(client: Client, cluster: Any) -> None:
    client.close()
    cluster.close()
