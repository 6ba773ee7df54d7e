"""Passes over the logs on a Dask cluster; the extra `manyarms[dask]`."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from multiprocessing import current_process
from typing import TYPE_CHECKING, Any, TypeVar

from manyarms._arrays import as_count
from manyarms.core.data import Logs
from manyarms.engines.base import LOCAL, Engine, Finding, Found, PieceWork, Result, Spread, Task, Work
from manyarms.errors import EngineError, said
from manyarms.linalg.groups import chunks
from manyarms.linalg.threads import n_cores
from manyarms.logs.rounds import Dropped
from manyarms.logs.sources import Source
from manyarms.logs.stream import LogStream

if TYPE_CHECKING:
    from distributed import Client, Future

Answer = TypeVar("Answer")

FAN_IN = 4
"""How many findings are merged at a time: a tree, so that no worker holds them all."""
PIECES = 4
"""Pieces for every thread of the cluster: few enough to merge, many enough that one lost is soon done again."""
ATTEMPTS = 3
UNGUARDED = (
    "Processes of Dask begin by running the script again: what it does must stand under "
    'if __name__ == "__main__":. Or pass the client of a cluster that is there, as in engine=Dask(client).'
)


class Dask(Engine):
    """The workers of a Dask cluster, each reading its pieces of the files: all must see them under the same paths.

    A piece, or a merge, whose worker dies is done again by another one; what a dead worker has found counts only if it
    has come through, so no round is counted twice.

    Args:
        client: A `distributed.Client`; by default the one in use, or else a process for every core of this machine,
            which end with this engine. A script that wants those needs `if __name__ == "__main__":`.
        pieces: Into how many pieces the logs are cut; by default four for every thread of the cluster.
    """

    def __init__(self, client: Client | None = None, *, pieces: int | None = None):
        _import()
        self._client, self._pieces = client, None if pieces is None else as_count("pieces", pieces)

    def total(self, logs: Logs, task: Task[Found]) -> Found:
        if not isinstance(logs, LogStream):
            return LOCAL.total(logs, task)
        work = PieceWork(task, logs.reading)

        def answer(client: Client) -> Finding[Found]:
            sent = _everywhere(client, work)
            parts: list[Future] = client.map(_do, self._cut(client, logs.source), work=sent, pure=False)
            if not parts:
                return work.merged([])
            while len(parts) > 1:
                groups = [parts[some] for some in chunks(len(parts), FAN_IN)]
                parts = [client.submit(_merge, sent, group, pure=False) for group in groups]
            return parts[0].result()

        finding = self._ask(answer)
        logs.note_dropped(finding.dropped)
        return finding.found

    def each(self, source: Source, work: Work[Result]) -> list[Result]:
        def answer(client: Client) -> list[Result]:
            sent = _everywhere(client, work)
            parts: list[Future] = client.map(_do, self._cut(client, source), work=sent, pure=False)
            return [part.result() for part in parts]

        return self._ask(answer)

    @contextmanager
    def spread(self, logs: Logs, task: Task[Found]) -> Generator[Spread[Found]]:
        if not isinstance(logs, LogStream):
            with LOCAL.spread(logs, task) as held:
                yield held
            return
        client, work = self._connected(), PieceWork(task, logs.reading)
        sent = _everywhere(client, work)
        parts: list[Future] = client.map(_do, self._cut(client, logs.source), work=sent, pure=False)
        count = max(1, len(_threads(client)))
        shards = [
            client.submit(_merge, sent, [client.submit(_shard, sent, part, i, count, pure=False) for part in parts])
            for i in range(count)
        ]
        dropped = sum((client.submit(_dropped, shard, pure=False).result() for shard in shards), Dropped())
        logs.note_dropped(dropped)
        yield _OnWorkers(client, shards)

    def _ask(self, answer: Callable[[Client], Answer]) -> Answer:
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
                        f"Dask could not start processes on this machine: {said(failed)}. {UNGUARDED}"
                    ) from failed
                self._client = Client(cluster)
                weakref.finalize(self, _close, self._client, cluster)
        return self._client

    def _cut(self, client: Client, source: Source) -> list[Source]:
        return source.pieces(self._pieces or PIECES * max(1, sum(_threads(client).values())))


class _OnWorkers(Spread[Found]):
    def __init__(self, client: Client, shards: list[Future]):
        self._client, self._shards = client, shards

    def map(self, work: Callable[[Found], Result]) -> list[Result]:
        sent = _everywhere(self._client, work)
        return [part.result() for part in self._client.map(_on_found, self._shards, work=sent, pure=False)]


def _import() -> None:
    try:
        import distributed  # noqa: F401, PLC0415  # pyright: ignore[reportUnusedImport]
    except ModuleNotFoundError as missing:
        raise EngineError('engine="dask" needs Dask: pip install "manyarms[dask]".') from missing


def _everywhere(client: Client, work: Any) -> Any:
    """The question on every worker, so that none has to fetch it and one that dies does not take it along."""
    return client.scatter(work, broadcast=True, hash=False)


def _threads(client: Client) -> dict[str, int]:
    """How many threads every worker has."""
    found: Any = client.nthreads()
    return found


def _do(piece: Source, work: Any) -> Any:
    return work(piece)


def _merge(work: Any, parts: list[Any]) -> Any:
    return work.merged(parts)


def _shard(work: PieceWork[Any], finding: Finding[Any], number: int, count: int) -> Finding[Any]:
    parts = work.shards(finding, count)
    return parts[number] if number < len(parts) else work.merged([])


def _dropped(finding: Finding[Any]) -> Dropped:
    return finding.dropped


def _on_found(finding: Finding[Any], work: Callable[[Any], Result]) -> Result:
    return work(finding.found)


def _close(client: Client, cluster: Any) -> None:
    client.close()
    cluster.close()
