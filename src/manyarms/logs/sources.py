"""Wherever logs lie, they come as Arrow batches: files and folders, tables in memory, iterables of batches."""

from __future__ import annotations

import glob
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from hashlib import blake2b
from itertools import accumulate, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from manyarms.core.arrow_columns import table_of
from manyarms.core.fingerprint import Fingerprint
from manyarms.errors import DataFileError, DataTypeError, InputError, without_full_stop

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds

FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".arrow": "ipc", ".feather": "ipc"}
"""By the ends of names; a folder holds files of one kind."""

READ_AHEAD = {"batch_readahead": 1, "fragment_readahead": 1}
"""Decoding goes on while a batch is worked on; more batches in advance take memory and save no time."""


class Source(ABC):
    """Rows that can be read again and again, in the same order.

    Attributes:
        first_row: The number of its first row, when it is a piece of something longer.
    """

    first_row: int = 0

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

    @property
    def n_rows(self) -> int | None:
        """How many rows there are, where that is known without reading them."""
        return None

    @property
    def fingerprints(self) -> tuple[Fingerprint, ...]:
        """Of each part of it that might come again elsewhere, as a file does in a folder that has grown."""
        return (Fingerprint(blake2b(self.identity.encode(), digest_size=16).hexdigest(), 1),)

    def place_of(self, row: int) -> str:
        """Where a row of the whole lies, as in "row 3 of b.parquet"; nothing where there are no files to tell apart."""
        return ""

    def pieces(self, count: int) -> list[Source]:
        """The same rows in order, as at most about `count` sources that travel to other processes."""
        raise InputError(
            "these rows are in this process alone, and cannot be spread over others. Write them to Parquet files and "
            'pass their folder, or leave engine="local".'
        )

    def need(self, columns: Iterable[str]) -> None:
        """Refuse when a column is missing, and say which there are."""
        names = list(columns)
        twice = [name for name in names if self.columns.count(name) > 1]
        if twice:
            raise InputError(f"there are several columns {twice[0]!r}. Rename or drop all but one.")
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
            # Whole paths: workers elsewhere do not stand in this folder.
            self._dataset = ds.dataset(
                [str(file.absolute()) for file in self.files],
                format=_reader(kind, self.files),
                partitioning=ds.partitioning(flavor="hive") if base else None,
                partition_base_dir=str(Path(base).absolute()) if base else None,
            )
        except (OSError, pa.ArrowException) as damage:
            raise DataFileError(
                f"{_culprit(self.files, kind)} cannot be read as {kind}: {without_full_stop(damage)}."
            ) from damage

    @property
    def columns(self) -> list[str]:
        return self._dataset.schema.names

    @property
    def identity(self) -> str:
        stats = ((file, file.stat()) for file in self.files)
        return repr([(str(file.resolve()), stat.st_size, stat.st_mtime_ns) for file, stat in stats])

    def only(self, files: Sequence[Path]) -> FileSource:
        """Some of the files, with the same columns."""
        part = copy(self)
        part.files = [file for file in self.files if file in set(files)]
        return part

    def batches(self, columns: Sequence[str], size: int) -> Iterator[pa.RecordBatch]:
        return _read(self._fragments(), self._dataset.schema, columns, size)

    def pieces(self, count: int) -> list[Source]:
        """Row groups of Parquet files, files of other kinds: next to one another while there are more than `count`."""
        parts = cast(list[Any], self._fragments())
        if _format(self.files) == "parquet":
            parts = [part for fragment in parts for part in fragment.split_by_row_group()]
            # A row group by itself still counts the rows of its whole file.
            sizes = [sum(group.num_rows for group in part.row_groups) for part in parts]
        else:
            sizes = [part.count_rows() for part in parts]
        ends = list(accumulate(sizes))
        if not ends:
            return []
        # The piece of a part is where its middle lies.
        places = [int(count * (end - size / 2) / max(ends[-1], 1)) for end, size in zip(ends, sizes, strict=True)]
        # Of every file, where it begins.
        begins = {part.path: end - size for part, end, size in reversed(list(zip(parts, ends, sizes, strict=True)))}
        names = {str(file.absolute()): str(file) for file in self.files}
        found = list[Source]()
        for _, numbers in groupby(range(len(parts)), key=places.__getitem__):
            mine = list(numbers)
            first = ends[mine[0]] - sizes[mine[0]]
            files = {begins[parts[i].path]: names[parts[i].path] for i in mine} if len(self.files) > 1 else {}
            found.append(FilePiece([parts[i] for i in mine], self._dataset.schema, first, self.identity, files))
        return found

    def place_of(self, row: int) -> str:
        import pyarrow as pa  # noqa: PLC0415

        if len(self.files) == 1:
            return ""
        begins, first = dict[int, str](), 0
        # Counted when it is asked for, up to the file at hand: Parquet files say it, others are read once more.
        with suppress(OSError, pa.ArrowException):
            for file, fragment in zip(self.files, self._fragments(), strict=True):
                if first > row:
                    break
                begins[first] = str(file)
                first += fragment.count_rows()
        return _place(row, begins)

    @property
    def n_rows(self) -> int | None:
        # Other formats would have to be read for it.
        if _format(self.files) != "parquet":
            return None
        return sum(cast(Any, fragment).count_rows() for fragment in self._fragments())

    @property
    def fingerprints(self) -> tuple[Fingerprint, ...]:
        """Of each file, by its size and what it begins and ends with: a copy elsewhere is the same file."""
        return tuple(Fingerprint(_content_digest(file), 1, path=str(file.resolve())) for file in self.files)

    def _fragments(self) -> list[ds.Fragment]:
        found = {fragment.path: fragment for fragment in self._dataset.get_fragments()}
        return [found[str(file.absolute())] for file in self.files]


class FilePiece(Source):
    """Some row groups, or files, of a source of files.

    Args:
        fragments: What to read, in order.
        schema: Of all files.
        first_row: The number of the first row among all.
        identity: Of the whole.
        files: By the number of their first row among all, for messages; none where there is one file only.
    """

    def __init__(
        self, fragments: list[ds.Fragment], schema: pa.Schema, first_row: int, identity: str, files: dict[int, str]
    ):
        self._fragments, self._schema, self.first_row, self._identity = fragments, schema, first_row, identity
        self._files = files

    @property
    def columns(self) -> list[str]:
        return self._schema.names

    @property
    def identity(self) -> str:
        return f"{self._identity} from row {self.first_row}"

    def place_of(self, row: int) -> str:
        return _place(row, self._files)

    def batches(self, columns: Sequence[str], size: int) -> Iterator[pa.RecordBatch]:
        return _read(self._fragments, self._schema, columns, size)


def _place(row: int, files: dict[int, str]) -> str:
    """A row by its file, from files by the number of their first row."""
    begun = [first for first in files if first <= row]
    return f"row {row - max(begun)} of {files[max(begun)]}" if begun else ""


def _read(
    fragments: Sequence[ds.Fragment], schema: pa.Schema, columns: Sequence[str], size: int
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa  # noqa: PLC0415

    names = list(dict.fromkeys(columns))
    for fragment in fragments:
        try:
            yield from fragment.scanner(schema=schema, columns=names, batch_size=size, **READ_AHEAD).to_batches()
        except (OSError, pa.ArrowException) as damage:
            # File by file, so that the one at fault can be named.
            raise DataFileError(
                f"{fragment.path} cannot be read: {without_full_stop(damage)}.",
                "All files must have the same columns of the same types.",
            ) from damage


def give_back_memory() -> None:
    """Arrow keeps what it has freed for the next batch; after the last one others need it more."""
    import pyarrow as pa  # noqa: PLC0415

    pa.default_memory_pool().release_unused()


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
    table = table_of(value)
    if table is not None:
        return TableSource(table)
    if isinstance(value, Iterable) and not isinstance(value, Mapping):
        return BatchSource(value)
    way_out = " Make a table of it: pyarrow.table(columns)." if isinstance(value, Mapping) else ""
    raise DataTypeError(
        f"logs must be a path, a table of pandas, Polars or Arrow, or Arrow batches; got {type(value).__name__}."
        f"{way_out}"
    )


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
    if not text:
        raise DataFileError("the path of the logs is empty. Name a file, a folder or a glob.")
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


def _reader(kind: str, files: list[Path]) -> Any:
    import pyarrow.dataset as ds  # noqa: PLC0415

    if kind == "csv":
        from pyarrow import csv  # noqa: PLC0415

        separator, decimal = _punctuation(files[0]) if files else (",", ".")
        # An empty cell is a missing value, as it is in a table.
        return ds.CsvFileFormat(
            parse_options=csv.ParseOptions(delimiter=separator),
            convert_options=csv.ConvertOptions(strings_can_be_null=True, decimal_point=decimal),
        )
    if kind != "parquet":
        return kind
    # Arrow would fetch all of a file in advance, as suits a store far away; then memory grows with the files.
    options = ds.ParquetFragmentScanOptions(pre_buffer=False, use_buffered_stream=True)
    return ds.ParquetFileFormat(default_fragment_scan_options=options)


def _punctuation(file: Path) -> tuple[str, str]:
    """What separates the cells of a CSV file, by its header, and the point of its decimals."""
    import pyarrow as pa  # noqa: PLC0415

    with pa.input_stream(str(file)) as content:
        header, *rows = content.read(_LOOK).decode(errors="replace").splitlines() or [""]
    bare = re.sub('"[^"]*"', "", header)
    separator = next((one for one in ",;\t" if one in bare), ",")
    cells = (cell.strip(' "') for row in rows[:-1] or rows for cell in row.split(separator))
    # Where commas are free, spreadsheets of much of the world write decimals with them.
    return separator, "," if separator != "," and any(map(_DECIMAL_COMMA.fullmatch, cells)) else "."


def _content_digest(file: Path) -> str:
    with open(file, "rb") as content:
        size = content.seek(0, os.SEEK_END)
        content.seek(0)
        found = blake2b(str(size).encode() + content.read(_LOOK), digest_size=16)
        content.seek(max(0, size - _LOOK))
        found.update(content.read())
    return found.hexdigest()


_LOOK = 1 << 16
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
"""How many bytes at either end tell files apart; that of Parquet ends with counts and extremes of every column."""


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
