"""Rows in Parquet, CSV or Arrow files: a file, a folder, a glob or a list of files."""

from __future__ import annotations

import csv as csv_module
import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from hashlib import blake2b
from io import BufferedReader, TextIOWrapper
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, cast

from manyarms._base.arrow import compute, csv, ds, pa
from manyarms._base.checks import as_path
from manyarms.core.fingerprint import Fingerprint
from manyarms.core.labels import INTEGER
from manyarms.errors import DataFileError, without_full_stop
from manyarms.logs.sources import Source

FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".dsjson": "dsjson",
}
"""Formats by the ending of a file's name; a folder holds files of one format."""

READ_AHEAD = {"batch_readahead": 1, "fragment_readahead": 1}
"""Decoding goes on while a batch is worked on; more batches in advance take memory and save no time."""

LOOK = 1 << 16
"""Bytes at either end that tell a file from others; a Parquet file ends with counts and extremes of its columns."""

NO_VALUE = [
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "N/A", "NA", "NULL",
    "NaN", "n/a", "nan", "null",
]  # fmt: skip
"""Cells of a CSV file that stand for a missing number or time; in columns of labels only the empty one does."""

MOST_LINES = 1_000_000
"""Lines of a CSV file that are counted to say where a bad row is: about a second."""

DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")


class FileSource(Source):
    """Files of one format, in the order of their names.

    Args:
        path: A file, a folder (searched through, with columns from names such as day=3), a glob, or a list of files.
        report: Called as report(rows so far, rows in all) at the start of every pass and after each batch; the second
            number is None when it is not known.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        report: Callable[[int, int | None], None] | None = None,
    ):
        self.files, base = files_of(path)
        self._format = _format(self.files)
        try:
            # Whole paths: workers elsewhere are in another folder.
            dataset = ds.dataset(
                [str(file.absolute()) for file in self.files],
                format=_reader(self._format, self.files),
                partitioning=ds.partitioning(flavor="hive") if base else None,
                partition_base_dir=str(base.absolute()) if base else None,
            )
        except (OSError, pa.ArrowException) as damage:
            culprit = _culprit(self.files, self._format)
            raise _unreadable(f"{culprit} cannot be read as {self._format}", damage) from damage
        fragments = {fragment.path: fragment for fragment in dataset.get_fragments()}
        self._fragments = [fragments[str(file.absolute())] for file in self.files]
        self.columns, self._schema = dataset.schema.names, dataset.schema
        self._report = report
        # Columns of texts where NA is a label.
        self._labels = frozenset[str]()
        # Files by the number of their first row among all, where that is known.
        self._begins: dict[int, str] | None = None

    @property
    def identity(self) -> str:
        stats = ((file, file.stat()) for file in self.files)
        whole = repr([(str(file.resolve()), stat.st_size, stat.st_mtime_ns) for file, stat in stats])
        return f"{whole} from row {self.first_row}" if self.first_row else whole

    def only(self, files: Sequence[Path]) -> FileSource:
        part, fragments = copy(self), dict(zip(self.files, self._fragments, strict=True))
        part.files = [file for file in self.files if file in set(files)]
        part._fragments = [fragments[file] for file in part.files]
        return part

    def with_labels(self, labels: Iterable[str], texts: Iterable[str] = ()) -> FileSource:
        if self._format != "csv":
            return self
        out, inside, labels = copy(self), self._fragments[0].physical_schema, set(labels)
        known = {name: inside.field(name).type for name in (*labels, *texts) if name in inside.names}
        # A column in another encoding than UTF-8 stays bytes.
        out.written = frozenset(name for name in labels if name in known and not pa.types.is_binary(known[name]))
        out._labels = out.written | {name for name, kind in known.items() if pa.types.is_string(kind)}
        fields = [field.with_type(pa.string()) if field.name in out.written else field for field in self._schema]
        out._schema = pa.schema(fields, self._schema.metadata)
        return out

    def batches(self, columns: Sequence[str], size: int) -> Iterator[pa.RecordBatch]:
        names = list(dict.fromkeys(columns))
        if self._report is None:
            yield from self._scanned(names, size)
            return
        done, n_rows = 0, self.n_rows
        self._report(done, n_rows)
        for batch in self._scanned(names, size):
            yield batch
            done += batch.num_rows
            self._report(done, n_rows)

    def _scanned(self, names: list[str], size: int) -> Iterator[pa.RecordBatch]:
        for fragment in self._fragments:
            try:
                scanner = fragment.scanner(schema=self._schema, columns=names, batch_size=size, **READ_AHEAD)
                for batch in scanner.to_batches():
                    if self._format == "csv" and any(pa.types.is_binary(field.type) for field in batch.schema):
                        raise _not_utf8(fragment.path)
                    yield self._with_gaps(batch) if self._format == "csv" else batch
            except (OSError, pa.ArrowException) as damage:
                # File by file, so that the one at fault can be named.
                if "invalid UTF8" in str(damage):
                    raise _not_utf8(fragment.path) from damage
                same = "All files must have the same columns of the same types."
                raise _unreadable(f"{fragment.path} cannot be read", damage, self.columns, same) from damage

    def _with_gaps(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of a CSV file with its missing texts: empty cells, and where texts are no labels NA and the like."""
        call = cast(Any, compute)
        for place, (field, column) in enumerate(zip(batch.schema, batch.columns, strict=True)):
            if not pa.types.is_string(field.type):
                continue
            gaps = pa.array([""] if field.name in self._labels else NO_VALUE)
            # Not `if_else`: up to pyarrow 21 it garbles the texts of a batch that is part of a larger one.
            made = call.replace_with_mask(column, call.is_in(column, value_set=gaps), pa.scalar(None, pa.string()))
            if field.name in self.written:
                # Blanks around a number do not make another number.
                bare = call.utf8_trim_whitespace(made)
                is_number = call.fill_null(call.match_substring_regex(bare, f"^({INTEGER})$"), False)
                made = call.replace_with_mask(made, is_number, bare.filter(is_number))
            batch = batch.set_column(place, field, made)
        return batch

    def pieces(self, count: int) -> list[Source]:
        """Row groups of Parquet files, whole files of other formats; neighbours together where there are many."""
        parts = cast(list[Any], self._fragments)
        if self._format == "parquet":
            parts = [part for fragment in parts for part in fragment.split_by_row_group()]
            # A row group by itself still counts the rows of its whole file.
            sizes = [sum(group.num_rows for group in part.row_groups) for part in parts]
        else:
            sizes = [part.count_rows() for part in parts]
        ends = list(accumulate(sizes))
        if not ends:
            return []
        # A part belongs to the piece in which its middle lies.
        places = [int(count * (end - size / 2) / max(ends[-1], 1)) for end, size in zip(ends, sizes, strict=True)]
        # The first row of every file.
        begins = {part.path: end - size for part, end, size in reversed(list(zip(parts, ends, sizes, strict=True)))}
        files = {str(file.absolute()): file for file in self.files}
        pieces = list[Source]()
        for _, numbers in groupby(range(len(parts)), key=places.__getitem__):
            mine = list(numbers)
            piece = copy(self)
            piece._fragments = [parts[i] for i in mine]
            piece.first_row = ends[mine[0]] - sizes[mine[0]]
            piece.files = [files[path] for path in dict.fromkeys(parts[i].path for i in mine)]
            # The name of the file helps where there are others.
            named = piece.files if len(self.files) > 1 else ()
            piece._begins = {begins[str(file.absolute())]: str(file) for file in named}
            # Other processes do not report here.
            piece._report = None
            pieces.append(piece)
        return pieces

    def place_of(self, row: int) -> str:
        begins, first = self._begins, 0
        if begins is None and len(self.files) == 1:
            return _line(self.files[0], row) if self._format == "csv" else ""
        if begins is None:
            begins = dict[int, str]()
            # Counted when it is asked for, up to the file at hand: Parquet files say it, others are read once more.
            with suppress(OSError, pa.ArrowException):
                for file, fragment in zip(self.files, self._fragments, strict=True):
                    if first > row:
                        break
                    begins[first] = str(file)
                    first += fragment.count_rows()
        earlier = [first for first in begins if first <= row]
        return f"row {row - max(earlier)} of {begins[max(earlier)]}" if earlier else ""

    @property
    def n_rows(self) -> int | None:
        # Other formats would have to be read for it.
        if self._format != "parquet":
            return None
        return sum(cast(Any, fragment).count_rows() for fragment in self._fragments)

    @property
    def fingerprints(self) -> tuple[Fingerprint, ...]:
        """One fingerprint for each file, by its size and by its first and last bytes: a copy is the same file."""
        return tuple(Fingerprint(content_digest(file), 1, path=str(file.resolve())) for file in self.files)


def open_files(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    report: Callable[[int, int | None], None] | None = None,
) -> Source:
    """A file source of what `FileSource` accepts as a path; decisions in dsjson become rows."""
    files, _ = files_of(path)
    if files and _format(files) == "dsjson":
        from manyarms.logs.dsjson_source import DsjsonSource  # noqa: PLC0415  it uses this module

        return DsjsonSource(files, report)
    return FileSource(path, report)


def files_of(path: Any) -> tuple[list[Path], Path | None]:
    """The files that the path of a `FileSource` names, in order, and the folder that names such as day=3 come from."""
    if isinstance(path, list | tuple):
        files = [as_path("a path of the logs", file) for file in path]
        missing = [file for file in files if not file.is_file()]
        if missing:
            raise DataFileError(f"{missing[0]} is not a file.")
        return files, None
    if isinstance(path, str) and not path:
        raise DataFileError("the path of the logs is empty.", "Name a file, a folder or a glob.")
    place = as_path("the path of the logs", path)
    text = str(place)
    if place.is_file():
        return [place], None
    if place.is_dir():
        try:
            files = sorted(file for file in place.rglob("*") if _ending(file) in FORMATS and file.is_file())
        except OSError as problem:
            raise DataFileError(f"{place} cannot be searched: {problem.strerror}.") from problem
        # Other engines, too, skip drafts and markers such as _SUCCESS.
        files = [file for file in files if not re.search(r"(^|/)[._]", file.relative_to(place).as_posix())]
        if not files:
            raise DataFileError(f"{place} holds no file that ends in {', '.join(FORMATS)}.")
        return files, place
    files = sorted(Path(match) for match in glob.glob(text, recursive=True) if Path(match).is_file())
    if not files:
        problem = "nothing matches" if glob.has_magic(text) else "there is no file or folder"
        raise DataFileError(f"{problem} {text}.")
    return files, None


def _ending(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def _format(files: Sequence[Path]) -> str:
    formats = {FORMATS.get(_ending(file)): file for file in files}
    if None in formats:
        raise DataFileError(f"{formats[None]} must end in one of {', '.join(FORMATS)}.")
    if len(formats) > 1:
        raise DataFileError(f"files must be of one format; there are {' and '.join(map(str, formats.values()))}.")
    return str(next(iter(formats)))


def _reader(kind: str, files: Sequence[Path]) -> Any:
    if kind == "csv":
        separator, decimal = _punctuation(files[0]) if files else (",", ".")
        # Which texts are missing depends on the column, and is settled batch by batch.
        return ds.CsvFileFormat(
            parse_options=csv.ParseOptions(delimiter=separator),
            convert_options=csv.ConvertOptions(null_values=NO_VALUE, strings_can_be_null=False, decimal_point=decimal),
        )
    if kind != "parquet":
        return kind
    # Arrow would fetch all of a file in advance, as suits a store far away; then memory grows with the files.
    options = ds.ParquetFragmentScanOptions(pre_buffer=False, use_buffered_stream=True)
    return ds.ParquetFileFormat(default_fragment_scan_options=options)


def _punctuation(file: Path) -> tuple[str, str]:
    """The separator of the cells of a CSV file, by its header, and the decimal point of its numbers."""
    with pa.input_stream(str(file)) as content:
        begin = content.read(LOOK)
    if not begin.strip():
        raise DataFileError(f"{file} is empty.", "Write a line with the names of the columns, and the rows after it.")
    if begin[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataFileError(f"{file} is in UTF-16, and UTF-8 is needed.", _in_utf8("UTF-16", file))
    header, *rows = begin.decode(errors="replace").splitlines() or [""]
    bare = re.sub('"[^"]*"', "", header)
    separator = next((mark for mark in ",;\t" if mark in bare), ",")
    cells = (cell.strip(' "') for row in rows[:-1] or rows for cell in row.split(separator))
    # Where commas are free, spreadsheets of much of the world write decimals with them.
    return separator, "," if separator != "," and any(map(DECIMAL_COMMA.fullmatch, cells)) else "."


def _line(file: Path, row: int) -> str:
    """The line of a CSV file at which a row begins, as editors count them; empty where that takes long to find."""
    if row > MOST_LINES:
        return ""
    with suppress(OSError, csv_module.Error), pa.input_stream(str(file)) as content:
        lines = csv_module.reader(TextIOWrapper(cast(Any, content), errors="replace"), delimiter=_punctuation(file)[0])
        begin, left = 1, row + 1
        for cells in lines:
            # Arrow, too, skips empty lines.
            if cells and left == 0:
                return f"line {begin} of {file}"
            begin, left = lines.line_num + 1, left - bool(cells)
    return ""


def _not_utf8(file: str) -> DataFileError:
    """The error about a CSV file with texts in another encoding, which names the first line that has one."""
    problem = f"{file} is not in UTF-8."
    with suppress(OSError, StopIteration), pa.input_stream(file) as content:
        lines = (line.decode(errors="replace") for line in BufferedReader(cast(Any, content)))
        number, line = next((number, line) for number, line in enumerate(lines, start=1) if "\ufffd" in line)
        word = re.sub(r".*?(\w*\ufffd\w*).*", r"\1", line, flags=re.DOTALL)
        problem = f"line {number} of {file} is not in UTF-8: it has {word!r}."
    return DataFileError(problem, _in_utf8("WINDOWS-1252", file))


def _in_utf8(encoding: str, file: str | Path) -> str:
    return f"Save it as CSV in UTF-8, or convert it: iconv -f {encoding} -t UTF-8 {file} > utf8.csv."


def _unreadable(problem: str, damage: Exception, names: Sequence[str] = (), remedy: str = "") -> DataFileError:
    """The error about a file that Arrow cannot read, without the names of Arrow's own layers."""
    reason = without_full_stop(damage).rpartition("Invalid: ")[2]
    place = re.match(r"In CSV column #(\d+): Row #(\d+): CSV conversion error to (\w+): invalid value (.*)", reason)
    if place and int(place[1]) < len(names):
        reason = f"line {place[2]} has {place[4]} in column {names[int(place[1])]}, whose first values are {place[3]}"
        remedy = "Write a value of that type there, or leave the cell empty."
    elif re.search(r"Expected \d+ columns", reason):
        remedy = (
            "Every row needs as many cells as the header; put quotation marks around texts that hold the separator."
        )
    return DataFileError(f"{problem}: {reason}.", remedy)


def content_digest(file: Path) -> str:
    """The digest by which a file source knows a file again: of its size and of its first and last bytes."""
    with open(file, "rb") as content:
        size = content.seek(0, os.SEEK_END)
        content.seek(0)
        digest = blake2b(str(size).encode() + content.read(LOOK), digest_size=16)
        content.seek(max(0, size - LOOK))
        digest.update(content.read())
    return digest.hexdigest()


def _culprit(files: Sequence[Path], kind: str) -> Path:
    """The first file that cannot be opened by itself."""
    for file in files:
        try:
            ds.dataset(str(file.absolute()), format=kind)
        except (OSError, pa.ArrowException):
            return file
    return files[0]
