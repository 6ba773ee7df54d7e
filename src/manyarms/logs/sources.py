"""Sources of rows: whatever holds them, they come as Arrow batches, in the same order every time."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from manyarms.core import Fingerprint, table_of
from manyarms.errors import DataTypeError, InputError

if TYPE_CHECKING:
    import pyarrow as pa


class Source(ABC):
    """Rows that can be read again and again, in the same order.

    Attributes:
        first_row: The number of its first row, when it is a piece of something longer.
        files: The files that hold the rows, in order; none where the rows are in memory.
    """

    first_row: int = 0
    files: Sequence[Path] = ()

    @property
    @abstractmethod
    def columns(self) -> list[str]:
        """The names of its columns."""

    @abstractmethod
    def batches(self, columns: Sequence[str], size: int) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows in order, at most `size` rows at a time."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """A text that distinguishes these rows from others."""

    @property
    def n_rows(self) -> int | None:
        """The number of rows, where it is known without reading them."""
        return None

    @property
    def fingerprints(self) -> tuple[Fingerprint, ...]:
        """A fingerprint of each part that may come again elsewhere, as a file does in a folder that has grown."""
        return (Fingerprint(blake2b(self.identity.encode(), digest_size=16).hexdigest(), 1),)

    def place_of(self, row: int) -> str:
        """The place of a row, as in "row 3 of b.parquet"; empty where there are no files to tell apart."""
        return ""

    def pieces(self, count: int) -> list[Source]:
        """The same rows in order, as about `count` sources that can be sent to other processes."""
        raise InputError(
            "these rows are in this process alone, and cannot be spread over others.",
            'Write them to Parquet files and pass their folder, or leave engine="local".',
            flag_remedy="Write them to Parquet files and pass their folder, or leave --engine out.",
        )

    def only(self, files: Sequence[Path]) -> Source:
        """Some of the files, with the same columns."""
        raise NotImplementedError

    def need(self, columns: Iterable[str]) -> None:
        """Refuse a source that lacks a column, and say which columns it has."""
        names = list(columns)
        twice = [name for name in names if self.columns.count(name) > 1]
        if twice:
            raise InputError(f"there are several columns {twice[0]!r}.", "Rename or drop all but one.")
        missing = [name for name in names if name not in self.columns]
        if missing:
            raise InputError(f"there is no column {missing[0]!r}; there are {', '.join(self.columns)}.")


class TableSource(Source):
    """A table in memory.

    Args:
        table: An Arrow table.
    """

    def __init__(self, table: pa.Table):
        self.table = table

    @property
    def columns(self) -> list[str]:
        return self.table.column_names

    @property
    def identity(self) -> str:
        return f"table {id(self.table)}"

    def batches(self, columns: Sequence[str], size: int) -> Iterator[pa.RecordBatch]:
        yield from self.table.select(list(dict.fromkeys(columns))).to_batches(max_chunksize=size)


class BatchSource(Source):
    """Batches that something else makes.

    Args:
        batches: A list of Arrow batches or tables, a function that returns an iterator of them, or an iterator, which
            can be read only once.
    """

    def __init__(self, batches: Iterable[Any] | Callable[[], Iterable[Any]]):
        self._once = isinstance(batches, Iterator)
        self._make: Callable[[], Iterable[Any]] = batches if callable(batches) else lambda: batches
        self._held: list[pa.Table] = []
        self._rest = self._tables()
        first = next(self._rest, None)
        if first is None:
            raise InputError("there are no batches, so there are no rows.")
        self._held, self._columns = [first], first.column_names

    @property
    def columns(self) -> list[str]:
        return self._columns

    @property
    def identity(self) -> str:
        return f"batches {id(self)}"

    def batches(self, columns: Sequence[str], size: int) -> Iterator[pa.RecordBatch]:
        if self._once and not self._held:
            raise InputError(
                "these batches can be read only once, and they have to be read again.",
                "Pass a list of them, or a function that returns a new iterator.",
            )
        # The first one was taken to see the columns; an iterator goes on after it, anything else starts again.
        held, self._held = self._held, [] if self._once else self._held
        tables = (table for part in (held, self._rest) for table in part) if self._once else self._tables()
        names = list(dict.fromkeys(columns))
        for number, table in enumerate(tables):
            missing = [name for name in names if name not in table.column_names]
            if missing:
                raise InputError(
                    f"batch {number} has no column {missing[0]!r}; it has {', '.join(table.column_names)}."
                )
            yield from table.select(names).to_batches(max_chunksize=size)

    def _tables(self) -> Iterator[pa.Table]:
        import pyarrow as pa  # noqa: PLC0415

        for number, batch in enumerate(self._make()):
            if isinstance(batch, pa.Table):
                yield batch
            elif isinstance(batch, pa.RecordBatch):
                yield pa.Table.from_batches([batch])
            else:
                raise DataTypeError(f"batch {number} must be an Arrow batch or table; got {type(batch).__name__}.")


class ProgressSource(Source):
    """The rows of another source; after each batch of a pass `report(rows so far, rows in all)` is called.

    Args:
        source: Where rows come from.
        report: Called with 0 rows at the start of every pass; the second number is None when it is not known.
    """

    def __init__(self, source: Source, report: Callable[[int, int | None], None]):
        self.source, self._report = source, report
        self.files, self._n_rows = source.files, source.n_rows

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

    def only(self, files: Sequence[Path]) -> Source:
        return ProgressSource(self.source.only(files), self._report)

    def place_of(self, row: int) -> str:
        return self.source.place_of(row)

    def pieces(self, count: int) -> list[Source]:
        # Other processes do not report here.
        return self.source.pieces(count)


def as_source(value: Any) -> Source:  # noqa: PLR0911  one line for each kind of thing that holds rows
    """Anything that holds rows: a path, a table of pandas, Polars or Arrow, or batches."""
    import pyarrow as pa  # noqa: PLC0415

    from manyarms.logs.file_source import FileSource  # noqa: PLC0415  it derives from Source

    if isinstance(value, Source):
        return value
    if isinstance(value, pa.Table):
        return TableSource(value)
    if isinstance(value, pa.RecordBatch):
        return TableSource(pa.Table.from_batches([value]))
    if _is_path(value):
        return FileSource(value)
    if isinstance(value, pa.RecordBatchReader):
        return BatchSource(iter(value))
    if callable(value) and not hasattr(value, "columns"):
        return BatchSource(cast(Callable[[], Iterable[Any]], value))
    table = table_of(value)
    if table is not None:
        return TableSource(table)
    if isinstance(value, Iterable) and not isinstance(value, Mapping):
        return BatchSource(value)
    raise DataTypeError(
        f"must be a path, a table of pandas, Polars or Arrow, or Arrow batches; got {type(value).__name__}.",
        "Make a table of it: pyarrow.table(columns)." if isinstance(value, Mapping) else "",
        argument="logs",
    )


def _is_path(value: Any) -> bool:
    if isinstance(value, str | os.PathLike):
        return True
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(p, str | os.PathLike) for p in value)


def give_back_memory() -> None:
    """Give back what Arrow keeps for the next batch: after the last one, others need it more."""
    import pyarrow as pa  # noqa: PLC0415

    pa.default_memory_pool().release_unused()
