"""Reading columns of CSV and Parquet files. Errors name the file and the first bad line."""

from __future__ import annotations

import contextlib
import csv as plain_csv
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np
from jaxtyping import Int

from manyarms._base.checks import Array
from manyarms.datasets.data_files import Archive
from manyarms.errors import DataFileError, DataTypeError, InputError, NonFiniteError, ShapeError, without_full_stop

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["integer", "number", "text", "time"]

BLOCK = 1 << 24
"""Bytes of a CSV file that are parsed at a time."""

READS: dict[Kind, Callable[[str], Any]] = {
    "integer": int,
    "number": float,
    "text": str,
    "time": datetime.fromisoformat,
}


@dataclass(frozen=True)
class Columns:
    """Columns of a file, of the kinds asked for and without gaps: numbers are finite, equal texts are stored once.

    `name` is the file with its folder, and `where` the advice for an error: how to get a good file.
    """

    name: str
    table: pa.Table
    where: str

    def array(self, column: str) -> Array:
        """A column of numbers or times."""
        return self.table[column].to_numpy()

    def levels(self, column: str) -> tuple[tuple[str, ...], Int[Array, " n"]]:
        """The distinct texts of a column in ascending order, and the number of the text in each row."""
        encoded = self.table[column].combine_chunks()
        texts = np.array(encoded.dictionary.to_pylist(), dtype=object)
        order = np.argsort(texts)
        rank = np.empty(len(order), dtype=np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        return tuple(texts[order]), rank[encoded.indices.to_numpy(zero_copy_only=False)]

    def texts(self, column: str) -> list[str]:
        """A column of text."""
        return self.table[column].to_pylist()

    def check(self, column: str, good: Array, error: type[InputError], must: str, remedy: str = "") -> None:
        """Raise `error` naming the first row that is not good."""
        if not good.all():
            row = int(good.argmin())
            value = "no value" if self.table[column][row].as_py() is None else self.table[column][row].as_py()
            # In a text file a row is a line; line 1 has the names.
            place = f"line {row + 2}" if self.name.endswith(".csv") else f"row {row}"
            raise error(f"{column} of {self.name} {must}; {place} has {value}.", remedy or self.where)


def read_columns(archive: Archive, name: str, kinds: Mapping[str, Kind]) -> Columns:
    """Read some columns of a CSV file with a line of names, or of a Parquet file.

    The file may have more columns. A CSV file is read in pieces, out of the zip when it is in one.
    """
    full, where = archive.full_name(name), archive.source.where
    if name.endswith(".parquet"):
        return read_parquet(io.BytesIO(archive.read(name)), full, kinds, where)
    return _without_gaps(Columns(full, _read_csv(archive, name, kinds), where), kinds)


def read_parquet(file: Any, full: str, kinds: Mapping[str, Kind], where: str) -> Columns:
    """Read columns as `read_columns` does, but from one Parquet file, open or given by its path.

    `full` is its name in messages, `where` the remedy.
    """
    import pyarrow as pa  # noqa: PLC0415  slow to import, and only readers need it
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        _check_names(full, pq.read_schema(file).names, kinds, where)
        table = pq.read_table(file, columns=list(kinds))
    except (OSError, pa.ArrowException) as damage:
        raise DataFileError(f"{full} cannot be read as Parquet: {without_full_stop(damage)}.", where) from damage
    for place, (column, wanted) in enumerate(_arrow_types(kinds).items()):
        stored = table.schema.field(column).type
        whole, real = pa.types.is_integer(stored), pa.types.is_floating(stored)
        text = pa.types.is_string(stored) or pa.types.is_large_string(stored)
        fits = {"integer": whole, "number": whole or real, "text": text, "time": text or pa.types.is_timestamp(stored)}
        problem = f"column {column} of {full} must be {kinds[column]}"
        if not fits[kinds[column]]:
            raise DataTypeError(f"{problem}; it is {stored}.", where)
        try:
            table = table.set_column(place, column, table[column].cast(wanted))
        except pa.ArrowInvalid as cause:
            raise DataTypeError(f"{problem}: {without_full_stop(cause)}.", where) from cause
    return _without_gaps(Columns(full, table, where), kinds)


def _without_gaps(columns: Columns, kinds: Mapping[str, Kind]) -> Columns:
    """The columns, refused when they are empty or lack a value."""
    if columns.table.num_rows == 0:
        raise ShapeError(f"{columns.name} has no rows.", columns.where)
    for column, kind in kinds.items():
        if columns.table[column].null_count:
            gaps = columns.table[column].is_null().to_numpy()
            columns.check(column, ~gaps, NonFiniteError if kind == "number" else InputError, "must not be empty or NaN")
        if kind == "number":
            columns.check(column, np.isfinite(columns.array(column)), NonFiniteError, "must be finite")
    return columns


def _read_csv(archive: Archive, name: str, kinds: Mapping[str, Kind]) -> pa.Table:
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import csv  # noqa: PLC0415

    with archive.open(name) as file:
        header = file.readline().decode("utf-8-sig", errors="replace")
    _check_names(archive.full_name(name), next(_readable(plain_csv.reader([header])), []), kinds, archive.source.where)
    convert = csv.ConvertOptions(include_columns=list(kinds), column_types=_arrow_types(kinds))
    # An empty line is refused rather than skipped, so that row i is line i + 2.
    parse = csv.ParseOptions(ignore_empty_lines=False)
    try:
        with archive.open(name) as file:
            reader = csv.open_csv(file, csv.ReadOptions(block_size=BLOCK), parse, convert)
            return pa.Table.from_batches(reader, reader.schema)
    except pa.ArrowInvalid as problem:
        _refuse_line(archive, name, kinds, problem)


def _arrow_types(kinds: Mapping[str, Kind]) -> dict[str, pa.DataType]:
    import pyarrow as pa  # noqa: PLC0415

    types: dict[Kind, pa.DataType] = {
        "integer": pa.int64(),
        "number": pa.float64(),
        "text": pa.dictionary(pa.int32(), pa.string()),
        "time": pa.timestamp("us", tz="UTC"),
    }
    return {column: types[kind] for column, kind in kinds.items()}


def _check_names(name: str, names: list[str], kinds: Mapping[str, Kind], where: str) -> None:
    missing = [column for column in kinds if column not in names]
    if missing:
        raise ShapeError(f"{name} must have columns {', '.join(missing)} too; it has {', '.join(names)}.", where)


def _refuse_line(archive: Archive, name: str, kinds: Mapping[str, Kind], cause: Exception) -> NoReturn:
    """Raise the error of the first bad line. The fast reader does not name it, so it is searched for."""
    where, full = archive.source.where, archive.full_name(name)
    with archive.open(name) as file, io.TextIOWrapper(file, "utf-8-sig", errors="replace", newline="") as text:
        lines = _readable(plain_csv.reader(text))
        header = next(lines, [])
        for line, fields in enumerate(lines, start=2):
            if len(fields) != len(header):
                raise ShapeError(
                    f"{full} must have {len(header)} columns; line {line} has {len(fields)}: {fields[:8]}.", where
                )
            for column, kind in kinds.items():
                value = fields[header.index(column)]
                try:
                    READS[kind](value)
                except ValueError:
                    problem = f"column {column} of {full} must be {kind}; line {line} has {value[:60]!r}."
                    raise DataTypeError(problem, where) from None
    raise DataFileError(f"{full} cannot be read: {without_full_stop(cause)}.", where) from cause


def _readable(lines: Iterator[list[str]]) -> Iterator[list[str]]:
    """Lines up to the first that cannot be parsed: a quote that is never closed, line ends of an old Macintosh."""
    with contextlib.suppress(plain_csv.Error):
        yield from lines
