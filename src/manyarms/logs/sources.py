"""Sources of rows: whatever holds them, they come as Arrow batches, in the same order every time."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, cast

from manyarms._base.arrow import pa, table_of
from manyarms._base.checks import as_path
from manyarms._base.files import PathLike, refuse_inputs
from manyarms.core import Fingerprint
from manyarms.errors import DataFileError, DataTypeError, InputError


class Source(ABC):
    """Rows that can be read again and again, in the same order.

    Attributes:
        columns: The names of its columns.
        first_row: The number of its first row, when it is a piece of something longer.
        files: The files that hold the rows, in order; none where the rows are in memory.
        library: The library that a table in memory came from, as in "pandas"; empty for others.
        written: The columns of labels that come as the texts that a CSV file has for them, integers too.
    """

    columns: list[str]
    first_row: int = 0
    files: Sequence[Path] = ()
    written: frozenset[str] = frozenset()
    library: str = ""

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
        """The rows in order, as about `count` sources that can be sent to other processes."""
        raise InputError(
            "these rows are in this process alone, and cannot be spread over others.",
            'Write them to Parquet files and pass their folder, or leave engine="local".',
            flag_remedy="Write them to Parquet files and pass their folder, or leave --engine out.",
        )

    def only(self, files: Sequence[Path]) -> Source:
        """Some of the files, with the same columns."""
        raise InputError("these rows do not come from files.", "Pass a file or a folder of logs.", argument="logs")

    def with_labels(self, labels: Iterable[str], texts: Iterable[str] = ()) -> Source:
        """Rows with labels such as ids as they are written; only CSV files leave open what they mean.

        In `labels`, and in those of `texts` that hold texts, NA and null are labels, and only an empty cell is missing.
        """
        return self

    def need(self, columns: Iterable[str], holder: str = "") -> None:
        """Refuse a source that lacks a column, and say which columns it has; `holder` is its name in the message."""
        names = list(columns)
        twice = [name for name in names if self.columns.count(name) > 1]
        if twice:
            raise InputError(f"there are several columns {twice[0]!r}.", "Rename or drop all but one.")
        missing = [name for name in names if name not in self.columns]
        if missing:
            near = get_close_matches(missing[0], self.columns, 1)
            lacks, its = (f"{holder} has", "its") if holder else ("there is", "the")
            problem = f"{lacks} no column {missing[0]!r}; {its} columns are {', '.join(self.columns)}."
            raise InputError(problem, f"Did you mean {near[0]}?" if near else "")


class TableSource(Source):
    """An Arrow table in memory."""

    def __init__(self, table: pa.Table, library: str = ""):
        self.table, self.columns, self.library = table, table.column_names, library

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
        self._make: Callable[[], Iterable[Any]] = batches if callable(batches) else lambda: batches
        tables = self._tables()
        first = next(tables, None)
        if first is None:
            raise InputError("there are no batches, so there are no rows.")
        self.columns = first.column_names
        # The first one was taken to see the columns; an iterator goes on after it, anything else starts again.
        self._once = chain([first], tables) if isinstance(batches, Iterator) else None
        self._is_read = False

    @property
    def identity(self) -> str:
        return f"batches {id(self)}"

    def batches(self, columns: Sequence[str], size: int) -> Iterator[pa.RecordBatch]:
        if self._once is not None and self._is_read:
            raise InputError(
                "these batches can be read only once, and they have to be read again.",
                "Pass a list of them, or a function that returns a new iterator.",
            )
        self._is_read = True
        names = list(dict.fromkeys(columns))
        for number, table in enumerate(self._once or self._tables()):
            missing = [name for name in names if name not in table.column_names]
            if missing:
                raise InputError(
                    f"batch {number} has no column {missing[0]!r}; it has {', '.join(table.column_names)}."
                )
            yield from table.select(names).to_batches(max_chunksize=size)

    def _tables(self) -> Iterator[pa.Table]:
        for number, batch in enumerate(self._make()):
            if not isinstance(batch, pa.Table | pa.RecordBatch):
                raise DataTypeError(f"batch {number} must be an Arrow batch or table; got {type(batch).__name__}.")
            yield batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])


def as_source(value: Any) -> Source:  # noqa: PLR0911  one line for each kind of thing that holds rows
    """Anything that holds rows: a path, a table of pandas, Polars, Arrow or a database, or batches."""
    # These derive from Source.
    from manyarms.logs.file_source import open_files  # noqa: PLC0415
    from manyarms.logs.warehouse_table import (  # noqa: PLC0415
        WarehouseTable,
        is_address,
        is_ibis_table,
        open_warehouse,
    )

    if isinstance(value, Source):
        return value
    if is_ibis_table(value):
        return WarehouseTable(value)
    if is_address(value):
        return open_warehouse(value)
    if isinstance(value, pa.Table):
        return TableSource(value)
    if isinstance(value, pa.RecordBatch):
        return TableSource(pa.Table.from_batches([value]))
    paths = value if isinstance(value, list | tuple) and value else [value]
    if all(isinstance(path, str | os.PathLike) for path in paths):
        return open_files(value)
    if isinstance(value, pa.RecordBatchReader):
        return BatchSource(iter(value))
    if callable(value) and not hasattr(value, "columns"):
        return BatchSource(cast(Callable[[], Iterable[Any]], value))
    table = table_of(value)
    if table is not None:
        return TableSource(table, type(value).__module__.partition(".")[0])
    if isinstance(value, Iterable) and not isinstance(value, Mapping):
        return BatchSource(value)
    raise DataTypeError(
        f"must be a path, a table of pandas, Polars or Arrow, or Arrow batches; got {type(value).__name__}.",
        "Make a table of it: pyarrow.table(columns)." if isinstance(value, Mapping) else "",
        argument="logs",
    )


def open_logs(logs: Any, report: Callable[[int, int | None], None] | None = None) -> Source:
    """Open the source of a job's logs: files, whose reading is reported, or a table of a database or its address."""
    from manyarms.logs.file_source import open_files  # noqa: PLC0415
    from manyarms.logs.warehouse_table import is_address, is_ibis_table  # noqa: PLC0415

    if is_ibis_table(logs) or is_address(logs):
        return as_source(logs)
    return open_files(logs, report)


def refuse_overwriting(out: PathLike | None, *inputs: Any, argument: str = "out") -> None:
    """Refuse to overwrite a source: an output that is, or holds, a file that an input of a job is read from.

    Args:
        out: The file or folder to be written; None for none.
        inputs: Whatever a job reads: sources, files, folders, globs, lists of files. Others are in memory.
        argument: The argument that names the output.
    """
    if out is not None:
        refuse_inputs(as_path(argument, out), (file for given in inputs for file in files_behind(given)), argument)


def files_behind(given: Any) -> list[Path]:
    """The files of the source that an input of a job is read from; none where it is in memory or does not exist."""
    from manyarms.logs.file_source import files_of  # noqa: PLC0415
    from manyarms.logs.warehouse_table import database_files, is_address  # noqa: PLC0415

    if isinstance(given, Source):
        return list(given.files)
    if is_address(given):
        return database_files(given)
    paths = given if isinstance(given, list | tuple) else [given]
    if not paths or not all(isinstance(path, str | os.PathLike) for path in paths):
        return []
    with suppress(DataFileError):
        # What does not exist is reported where it is read.
        return files_of(given)[0]
    return []
