"""A source that tells how far it has been read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from manyarms.core.fingerprint import Fingerprint
from manyarms.logs.sources import Source

if TYPE_CHECKING:
    import pyarrow as pa


class ProgressSource(Source):
    """The rows of another source; after each batch of a pass `report(rows so far, rows in all)` is called.

    Args:
        source: Where rows come from.
        report: Called with 0 rows at the start of every pass; the second number is None when it is not known.
    """

    def __init__(self, source: Source, report: Callable[[int, int | None], None]):
        self.source, self._report = source, report
        self._n_rows = source.n_rows

    @property
    def columns(self) -> list[str]:
        return self.source.columns

    @property
    def identity(self) -> str:
        return self.source.identity

    @property
    def n_rows(self) -> int | None:
        return self._n_rows

    @property
    def fingerprints(self) -> tuple[Fingerprint, ...]:
        return self.source.fingerprints

    def batches(self, columns: Sequence[str], size: int) -> Iterator[pa.RecordBatch]:
        done = 0
        self._report(done, self._n_rows)
        for batch in self.source.batches(columns, size):
            yield batch
            done += batch.num_rows
            self._report(done, self._n_rows)

    def place_of(self, row: int) -> str:
        return self.source.place_of(row)

    def pieces(self, count: int) -> list[Source]:
        # Other processes do not report here.
        return self.source.pieces(count)
