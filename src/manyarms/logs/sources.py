"""Wherever logs lie, they come as Arrow batches: files and folders, tables in memory, iterables of batches."""

from __future__ import annotations

import glob
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from manyarms.errors import DataFileError, DataTypeError, InputError, said

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds

FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".arrow": "ipc", ".feather": "ipc"}
"""By the ends of names; a folder holds files of one kind."""


class Source(ABC):
    """Rows that can be read again and again, in the same order."""

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
        """A text that tells these rows from others."""

    def need(self, columns: Iterable[str]) -> None:
        """Refuse when a column is missing, and say which there are."""
        missing = [name for name in columns if name not in self.columns]
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
        batches: A list of Arrow batches or tables, a function that gives an iterator of them, or an iterator; the last
            can be read once only.
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
                "these batches can be read once only, and they have to be read again. Pass a list of them, or a "
                "function that gives a new iterator."
            )
        # The first one was taken to see the columns; an iterator goes on behind it, anything else begins anew.
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


class FileSource(Source):
    """Files of one kind, in the order of their names.

    Args:
        path: A file, a folder (searched through, with columns from names such as day=3), a glob, or a list of files.
    """

    def __init__(self, path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]):
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.dataset as ds  # noqa: PLC0415

        self.files, base = _files(path)
        kind = _format(self.files)
        try:
            partitioning = ds.partitioning(flavor="hive") if base else None
            self._dataset = ds.dataset(
                [str(file) for file in self.files], format=kind, partitioning=partitioning, partition_base_dir=base
            )
        except (OSError, pa.ArrowException) as damage:
            raise DataFileError(f"{_culprit(self.files, kind)} cannot be read as {kind}: {said(damage)}.") from damage

    @property
    def columns(self) -> list[str]:
        return self._dataset.schema.names

    @property
    def identity(self) -> str:
        stats = ((file, file.stat()) for file in self.files)
        return repr([(str(file.resolve()), stat.st_size, stat.st_mtime_ns) for file, stat in stats])

    def batches(self, columns: Sequence[str], size: int) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # noqa: PLC0415

        names = list(dict.fromkeys(columns))
        for fragment in self._fragments():
            try:
                scanner = fragment.scanner(schema=self._dataset.schema, columns=names, batch_size=size)
                yield from scanner.to_batches()
            except (OSError, pa.ArrowException) as damage:
                # File by file, so that the one at fault can be named.
                raise DataFileError(
                    f"{fragment.path} cannot be read: {said(damage)}. All files must have the same columns of the same "
                    "types."
                ) from damage

    def _fragments(self) -> list[ds.Fragment]:
        found = {fragment.path: fragment for fragment in self._dataset.get_fragments()}
        return [found[str(file)] for file in self.files]


def as_source(value: Any) -> Source:  # noqa: PLR0911  one line for each kind of thing that holds rows
    """Anything that holds rows: a path, a table of pandas, Polars or Arrow, or batches."""
    import pyarrow as pa  # noqa: PLC0415

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
    table = _framed(value)
    if table is not None:
        return TableSource(table)
    if isinstance(value, Iterable):
        return BatchSource(value)
    raise DataTypeError(
        f"logs must be a path, a table of pandas, Polars or Arrow, or Arrow batches; got {type(value).__name__}."
    )


def _framed(value: Any) -> pa.Table | None:
    """A data frame of any library as an Arrow table; None when it is no frame."""
    import narwhals as nw  # noqa: PLC0415

    try:
        frame = nw.from_native(value)
    except TypeError:
        return None
    frame = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
    return frame.to_arrow()


def _is_path(value: Any) -> bool:
    if isinstance(value, str | os.PathLike):
        return True
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(one, str | os.PathLike) for one in value)


def _files(path: Any) -> tuple[list[Path], str | None]:
    """The files in order, and the folder that names such as day=3 are read from."""
    if isinstance(path, list | tuple):
        files = [Path(one) for one in path]
        missing = [file for file in files if not file.is_file()]
        if missing:
            raise DataFileError(f"{missing[0]} is not a file.")
        return files, None
    text = os.fspath(path)
    where = Path(text)
    if where.is_file():
        return [where], None
    if where.is_dir():
        files = sorted(file for file in where.rglob("*") if file.is_file() and not _hidden(file.relative_to(where)))
        files = [file for file in files if _ending(file) in FORMATS]
        if not files:
            raise DataFileError(f"{where} holds no file that ends in {', '.join(FORMATS)}.")
        return files, str(where)
    files = sorted(Path(found) for found in glob.glob(text, recursive=True) if Path(found).is_file())
    if not files:
        what = "nothing matches" if glob.has_magic(text) else "there is no file or folder"
        raise DataFileError(f"{what} {text}.")
    return files, None


def _hidden(path: Path) -> bool:
    """Drafts and markers, such as _SUCCESS: other engines skip them too."""
    return any(part.startswith((".", "_")) for part in path.parts)


def _ending(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def _format(files: list[Path]) -> str:
    kinds = {FORMATS.get(_ending(file)): file for file in files}
    if None in kinds:
        raise DataFileError(f"{kinds[None]} must end in one of {', '.join(FORMATS)}.")
    if len(kinds) > 1:
        raise DataFileError(f"files must be of one kind; there are {' and '.join(str(f) for f in kinds.values())}.")
    return str(next(iter(kinds)))


def _culprit(files: list[Path], kind: str) -> Path:
    """The first file that cannot be opened by itself."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.dataset as ds  # noqa: PLC0415

    for file in files:
        try:
            ds.dataset(str(file), format=kind)
        except (OSError, pa.ArrowException):
            return file
    return files[0]
