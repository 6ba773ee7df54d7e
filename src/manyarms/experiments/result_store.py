"""Results on disk: a Parquet file of rows, journals of recently finished cells, and a record of what made the rows.

A cell is in a journal, synced, the moment it is finished. `compact` moves all journals into the Parquet files, each the
old one or the new one and never half of one. Wherever a run is killed, no finished cell is lost and none is computed
twice. Rows are sorted by their key, so the same cells give the same bytes in whatever order they were finished. Time
and memory differ from run to run and have a file of their own. Numbers are rounded as they are read or written, see
`stored`, so that a verdict does not depend on whether its rows come from a journal or from the file.

The record, `made-of.json`, holds a digest of the data behind each problem and of the file of each user method, and the
revision of each method of the library that was changed. It is written before the first of their rows is computed. Rows
of other data, or of a method that has changed since, are refused: once mixed with new rows they could not be told
apart.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import Any
from uuid import uuid4

import numpy as np

from manyarms._base.arrow import pa, parquet_bytes, parquet_table
from manyarms._base.checks import as_path
from manyarms._base.files import replace_files
from manyarms.errors import (
    BusyError,
    DataFileError,
    InputError,
    OutputFileError,
    ResultFileError,
    StaleRowsError,
    without_full_stop,
)
from manyarms.experiments.cell import RECIPE, Cell, Outcome, Results, draw_world
from manyarms.experiments.problem import Origin, Problem

ROWS, COSTS, MADE_OF = "rows.parquet", "costs.parquet", "made-of.json"
KEY = tuple(Cell.__dataclass_fields__)
MEASURED = ("seconds", "peak_bytes")
"""Columns that differ from run to run."""

COMPUTED = tuple(name for name in Outcome.__dataclass_fields__ if name not in MEASURED)
RECIPE_KEY = "manyarms.recipe"

VALUE_BITS, ENDS_BITS, COST_BITS = 24, 16, 8
"""Significant bits of values, of the ends of intervals, and of CPU times."""

TRUTH_TOLERANCE = 1e-6
"""Relative distance within which two truths belong to the same data: machines differ by far less, data by more."""


class Journal:
    """Finished cells, one per line, written by one process, under a name of its own in the folder of results."""

    def __init__(self, folder: Path):
        path = folder / f"journal-{os.getpid()}-{uuid4().hex[:8]}.jsonl"
        self._file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)

    def add(self, cell: Cell, outcome: Outcome) -> None:
        """Write a cell; it is on disk when this returns. A line torn by a crash is known by its checksum."""
        text = json.dumps({"recipe": RECIPE} | asdict(cell) | asdict(outcome)).encode()
        # It begins with a new line, so that a line torn by a full disk does not spoil the next.
        line = b"\n%08x %s\n" % (zlib.crc32(text), text)
        while line:
            line = line[os.write(self._file, line) :]
        os.fsync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class Store:
    """The results in one folder, which is made if it does not exist."""

    def __init__(self, folder: Path):
        self.folder = folder = as_path("folder", folder)
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder} is a file, not a folder.", "Name a folder.")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise OutputFileError(f"{folder} cannot be made: {problem.strerror}.", "Name another folder.") from problem

    @contextmanager
    def lock(self) -> Generator[None]:
        """Keep other runs out of the folder; the lock goes with the process, however that ends."""
        try:
            import fcntl  # noqa: PLC0415
        except ImportError:  # Windows: two runs at once in one folder are not noticed there.
            yield
            return
        # A link or a pipe under this name is somebody else's: it is neither followed nor waited for.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        with open(os.open(self.folder / ".lock", flags, 0o644), "wb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as taken:
                problem = f"another run is writing to {self.folder}."
                raise BusyError(problem, "Wait for it, or use another folder.") from taken
            yield

    def read(self) -> Results:
        """All finished cells, from the Parquet files and the journals."""
        rows = {_cell(row): row for row in self._read_table(ROWS, (*KEY, *COMPUTED))}
        costs = {_cell(row): row for row in (self._read_table(COSTS, (*KEY, *MEASURED)) if rows else ())}
        nothing = {"seconds": float("nan"), "peak_bytes": None}
        results = {cell: stored(_outcome(row | costs.get(cell, nothing))) for cell, row in rows.items()}
        for path in self._journals():
            results.update(_read_journal(path))
        return results

    def compact(self, drop: Iterable[str] = ()) -> Results:
        """Move everything into the Parquet files, delete the journals, and `drop` the cells of methods and problems."""
        journals, dropped, results = self._journals(), set(drop), self.read()
        if journals:
            self.write(results)
        for path in journals:
            path.unlink()
        # Only when no journal is left: a crash in between would bring back the deleted cells.
        return self._write_kept(results, lambda cell: dropped.isdisjoint((cell.method, cell.problem)))

    def keep(self, cells: Iterable[Cell]) -> Results:
        """Delete all cells but these."""
        return self._write_kept(self.compact(), set(cells).__contains__)

    def write(self, results: Mapping[Cell, Outcome]) -> None:
        """Replace both Parquet files."""
        table = pa.Table.from_pylist(
            [asdict(cell) | asdict(stored(outcome)) for cell, outcome in sorted(results.items())],
            schema=pa.schema(list(_column_types().items()), {RECIPE_KEY: str(RECIPE)}),
        )
        contents = {ROWS: table.drop_columns(list(MEASURED)), COSTS: table.select([*KEY, *MEASURED])}
        replace_files({self.folder / name: _packed(part) for name, part in contents.items()})

    def _write_kept(self, results: Results, wanted: Callable[[Cell], bool]) -> Results:
        kept = {cell: outcome for cell, outcome in results.items() if wanted(cell)}
        if len(kept) < len(results):
            self.write(kept)
        return kept

    def _journals(self) -> list[Path]:
        return sorted(self.folder.glob("journal-*.jsonl"))

    def _read_table(self, name: str, columns: tuple[str, ...]) -> list[dict[str, Any]]:
        """The rows of a Parquet file; none when it does not exist."""
        path = self.folder / name
        if not path.exists():
            return []
        remedy = "Move it away to start again, or restore it. Journals beside it are kept."
        try:
            # Without checksums, a flipped bit in a number would be read as another number.
            table = parquet_table(path, page_checksum_verification=True)
            names = table.column_names
        except (OSError, pa.ArrowException, UnicodeDecodeError) as damage:
            raise ResultFileError(f"{path} cannot be read as Parquet: {without_full_stop(damage)}.", remedy) from damage
        recipe = (table.schema.metadata or {}).get(RECIPE_KEY.encode())
        if recipe != str(RECIPE).encode():
            raise ResultFileError(f"{path} is of another version: its rows mean something else.", remedy)
        missing = [column for column in columns if column not in names]
        if missing:
            raise ResultFileError(f"{path} has no column {', '.join(missing)}: it is not a file of results.", remedy)
        return table.select(columns).to_pylist()


def _read_journal(path: Path) -> Results:
    """The whole lines of a journal; the cell of a torn line is computed again."""
    results: Results = {}
    for line in path.read_bytes().split(b"\n"):
        checksum, _, text = line.partition(b" ")
        if checksum == b"%08x" % zlib.crc32(text) and text:
            row = json.loads(text)
            if row.get("recipe") != RECIPE:
                raise ResultFileError(f"{path} is of another version: its rows mean something else.", "Move it away.")
            results[_cell(row)] = stored(_outcome(row))
    return results


def stored(outcome: Outcome) -> Outcome:
    """A result as files keep it: the value to 24 significant bits, the ends of its interval and the time to fewer.

    A squared error then differs by about 1e-7 of the squared value, far less than its standard error over instances.
    """
    low, high = (None if end is None else _rounded(end, ENDS_BITS) for end in (outcome.low, outcome.high))
    return replace(
        outcome,
        value=_rounded(outcome.value, VALUE_BITS),
        low=low,
        high=high,
        truth_error=_rounded(outcome.truth_error, VALUE_BITS),
        seconds=_rounded(outcome.seconds, COST_BITS),
    )


def _rounded(value: float, bits: int) -> float:
    mantissa, exponent = math.frexp(value)
    return math.ldexp(round(mantissa * 2**bits) / 2**bits, exponent) if math.isfinite(value) else value


def _column_types() -> dict[str, Any]:
    name, count, number = pa.dictionary(pa.int16(), pa.string()), pa.int32(), pa.float64()
    return {
        "problem": name, "kind": name, "method": name, "n": count, "instance": count, "n_actions": count, "dim": count,
        "value": number, "truth": number, "low": number, "high": number, "truth_error": number,
        "seconds": number, "peak_bytes": pa.int64(),
    }  # fmt: skip


def _packed(table: Any) -> bytes:
    """A table of results as a small Parquet file: the leading bytes of all numbers lie next to each other."""
    split_columns = [name for name in ("value", "low", "high") if name in table.column_names]
    return parquet_bytes(
        table,
        compression="zstd",
        compression_level=15,
        use_dictionary=[name for name in table.column_names if name not in split_columns],
        column_encoding=dict.fromkeys(split_columns, "BYTE_STREAM_SPLIT"),
    )


def _cell(row: Mapping[str, Any]) -> Cell:
    return Cell(*(row[name] for name in KEY))


def _outcome(row: Mapping[str, Any]) -> Outcome:
    return Outcome(*(row[name] for name in Outcome.__dataclass_fields__))


@dataclass(frozen=True)
class Provenance:
    """The record, stored with the results, of what made them.

    Attributes:
        problems: The origin of each problem with data.
        methods: A digest of the file of each user method.
        revisions: The revision of each method of the library that made rows, if not the first.
    """

    problems: Mapping[str, Origin] = field(default_factory=dict[str, Origin])
    methods: Mapping[str, str] = field(default_factory=dict[str, str])
    revisions: Mapping[str, int] = field(default_factory=dict[str, int])

    @classmethod
    def read(cls, folder: Path) -> Provenance:
        """The provenance of the rows in a folder; empty when there is no record."""
        path = folder / MADE_OF
        if not path.exists():
            return cls()
        try:
            record = json.loads(path.read_bytes())
            problems = {label: Origin(**origin) for label, origin in record["problems"].items()}
            digests = {str(name): str(digest) for name, digest in record["methods"].items()}
            revisions = {str(name): int(number) for name, number in record.get("revisions", {}).items()}
            return cls(problems, digests, revisions)
        except (ValueError, KeyError, TypeError, AttributeError) as damage:
            remedy = "Delete it: the rows beside it are then compared with the data once more."
            raise ResultFileError(f"{path} is damaged.", remedy) from damage

    def write(self, folder: Path) -> None:
        """Replace the record in a folder."""
        problems = {label: asdict(origin) for label, origin in sorted(self.problems.items())}
        methods, revisions = dict(sorted(self.methods.items())), dict(sorted(self.revisions.items()))
        text = json.dumps({"problems": problems, "methods": methods, "revisions": revisions}, indent=2)
        replace_files({folder / MADE_OF: f"{text}\n".encode()})

    def only(self, cells: Iterable[Cell]) -> Provenance:
        """The provenance of these cells alone."""
        kept = {name for cell in cells for name in (cell.problem, cell.method)}
        return Provenance(
            {label: origin for label, origin in self.problems.items() if label in kept},
            {name: digest for name, digest in self.methods.items() if name in kept},
            {name: number for name, number in self.revisions.items() if name in kept},
        )


def check_provenance(
    folder: Path,
    problems: Mapping[str, Problem],
    files: Mapping[str, Path],
    done: Results,
    todo: Iterable[str],
    revisions: Mapping[str, int],
) -> None:
    """Refuse results made from other data or code than those at hand, and record what new rows will be made from.

    `files` are those of user methods; what they import is not looked at. `todo` has the labels of problems with rows
    still missing: only these need their data. `revisions` has the revision of each of the library's methods to be run.
    """
    record, missing = Provenance.read(folder), set(todo)
    first_cells = {cell.problem: cell for cell in sorted(done, reverse=True)}
    origins = dict(record.problems)
    for label, problem in problems.items():
        try:
            origin = problem.origin()
        except DataFileError:
            if label in missing:
                raise
            continue
        if origin is not None:
            if label in first_cells:
                _check_origin(folder, problem, origin, record.problems.get(label), first_cells[label], done)
            origins[label] = origin
    with_rows = {cell.method for cell in done}
    digests = {name: sha256(file.read_bytes()).hexdigest()[:32] for name, file in files.items()}
    for name, file in files.items():
        if name in with_rows and record.methods.get(name) != digests[name]:
            problem = f"{file.name} has changed since its rows were made."
            raise StaleRowsError(problem, _drop(name), flag_remedy=f"Pass --redo {quote(name)}.")
    for name, number in revisions.items():
        if name in with_rows and record.revisions.get(name, 1) != number:
            problem = f"{folder} holds rows of {name} by another version of this method."
            raise StaleRowsError(problem, _drop(name), flag_remedy=f"Pass --redo {quote(name)}.")
    changed = {name: number for name, number in revisions.items() if number > 1}
    renewed = replace(
        record,
        problems=origins,
        methods={**record.methods, **digests},
        revisions={**record.revisions, **changed},
    )
    if renewed != record:
        renewed.write(folder)


def _check_origin(
    folder: Path, problem: Problem, origin: Origin, known: Origin | None, cell: Cell, done: Results
) -> None:
    if known is not None:
        stale, detail = known.digest != origin.digest, "."
    else:
        # Rows without a record count as rows of the data at hand, if the truth of one of them agrees.
        world = draw_world(problem, cell.instance)
        there, here = done[cell].truth, world.target_value if cell.kind == "ope" else world.best_value
        stale = not np.isclose(there, here, rtol=TRUTH_TOLERANCE, atol=0.0, equal_nan=True)
        detail = f": the truth of instance {cell.instance} is {there:g} there and {here:g} here."
    if stale:
        redo = f"Name another folder with --out, or pass --redo {quote(problem.label)} to compute these rows again."
        message = f"{folder} holds rows of {problem.label!r} that were made from other data than that at hand{detail}"
        raise StaleRowsError(message, _drop(problem.label), flag_remedy=redo)


def _drop(name: str) -> str:
    return f"Use another folder, or delete these rows first: store.compact(drop=[{name!r}])."
