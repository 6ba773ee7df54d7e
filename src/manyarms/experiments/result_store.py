"""Results on disk: a Parquet file of rows, and journals of the cells finished since it was written.

A cell is in a journal, synced, the moment it is finished; `compact` moves all journals into the Parquet files, each the
old one or the new one and never half of one. Wherever a run is killed, no finished cell is lost and none is computed
twice. Rows are sorted by their key, so the same cells give the same bytes in whatever order they were finished; what
differs from run to run, time and memory, has a file of its own.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from manyarms._base.files import parquet_bytes, replace_files
from manyarms.errors import DataFileError, InputError, ManyarmsError, without_full_stop
from manyarms.experiments.cell import RECIPE, Cell, Outcome, score

if TYPE_CHECKING:
    import pyarrow as pa

ROWS, COSTS = "rows.parquet", "costs.parquet"
KEY = ("problem", "kind", "method", "n", "instance")
MEASURED = ("seconds", "peak_bytes")
"""What a run measures of itself, and no two runs alike."""

FOUND = ("value", "truth", "low", "high", "n_actions", "dim", "truth_error")
RECIPE_KEY = "manyarms.recipe"

Results = dict[Cell, Outcome]


class BusyError(ManyarmsError):
    """Another run is writing to the same folder."""


class Journal:
    """Cells as they are finished, a line each, by one process.

    Args:
        folder: Where results are; the journal gets a name of its own there.
    """

    def __init__(self, folder: Path):
        self._file = os.open(
            folder / f"journal-{os.getpid()}-{uuid4().hex[:8]}.jsonl", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644
        )

    def add(self, cell: Cell, outcome: Outcome) -> None:
        """On disk when this returns. A line torn by a crash is known by its checksum."""
        text = json.dumps({"recipe": RECIPE} | asdict(cell) | asdict(outcome)).encode()
        # It begins with a new line, so that one torn by a full disk does not spoil the next.
        line = b"\n%08x %s\n" % (zlib.crc32(text), text)
        while line:
            line = line[os.write(self._file, line) :]
        os.fsync(self._file)

    def close(self) -> None:
        """No more lines."""
        os.close(self._file)


class Store:
    """The results in one folder.

    Args:
        folder: Made if it is not there.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder} is a file, not a folder.")
        folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def lock(self) -> Generator[None]:
        """Alone here while it lasts; the lock goes with the process, however that ends."""
        try:
            import fcntl  # noqa: PLC0415
        except ImportError:  # Windows: two runs at once in one folder are not noticed there.
            yield
            return
        with open(self.folder / ".lock", "wb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as taken:
                raise BusyError(
                    f"another run is writing to {self.folder}. Wait for it, or use another folder."
                ) from taken
            yield

    def read(self) -> Results:
        """All finished cells, of the Parquet files and of the journals."""
        found = self._read_tables()
        for path in self._journals():
            found.update(_read_journal(path))
        return found

    def compact(self, drop: Iterable[str] = ()) -> Results:
        """Everything in the Parquet files, journals gone.

        Args:
            drop: Methods and problems whose cells are forgotten, by name and label.
        """
        journals, dropped = self._journals(), set(drop)
        found = self.read()
        if journals:
            self.write(found)
        for path in journals:
            path.unlink()
        # Only when no journal is left: a crash in between would bring back what was forgotten.
        kept = {cell: outcome for cell, outcome in found.items() if dropped.isdisjoint((cell.method, cell.problem))}
        if len(kept) < len(found):
            self.write(kept)
        return kept

    def keep(self, cells: Iterable[Cell]) -> Results:
        """Forget all cells but these."""
        found, wanted = self.compact(), set(cells)
        kept = {cell: outcome for cell, outcome in found.items() if cell in wanted}
        if len(kept) < len(found):
            self.write(kept)
        return kept

    def write(self, results: Mapping[Cell, Outcome]) -> None:
        """Replace both files."""
        table = _table(results).replace_schema_metadata({RECIPE_KEY: str(RECIPE)})
        costs = table.select([*KEY, *MEASURED])
        contents = {ROWS: table.drop_columns(list(MEASURED)), COSTS: costs}
        replace_files({self.folder / name: parquet_bytes(part) for name, part in contents.items()})

    def _journals(self) -> list[Path]:
        return sorted(self.folder.glob("journal-*.jsonl"))

    def _read_tables(self) -> Results:
        if not (self.folder / ROWS).exists():
            return {}
        rows = self._read_table(ROWS, (*KEY, *FOUND))
        costs = {}
        if (self.folder / COSTS).exists():
            costs = {_cell(row): row for row in self._read_table(COSTS, (*KEY, *MEASURED))}
        nothing = {"seconds": float("nan"), "peak_bytes": None}
        return {cell: _outcome(row | costs.get(cell, nothing)) for row in rows for cell in [_cell(row)]}

    def _read_table(self, name: str, columns: tuple[str, ...]) -> list[dict[str, Any]]:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415

        path = self.folder / name
        way_out = "Move it away to begin anew, or restore it; what journals lie beside it is kept."
        try:
            table = pq.read_table(path)
        except (OSError, pa.ArrowException) as damage:
            raise DataFileError(f"{path} cannot be read as Parquet: {without_full_stop(damage)}. {way_out}") from damage
        recipe = (table.schema.metadata or {}).get(RECIPE_KEY.encode())
        if recipe != str(RECIPE).encode():
            raise DataFileError(f"{path} is of another version: its rows mean something else. {way_out}")
        missing = [column for column in columns if column not in table.column_names]
        if missing:
            raise DataFileError(f"{path} has no column {', '.join(missing)}: not a file of results. {way_out}")
        return table.select(columns).to_pylist()


def _read_journal(path: Path) -> Results:
    """Whole lines; the cell of a torn one is computed again."""
    found: Results = {}
    for line in path.read_bytes().split(b"\n"):
        checksum, _, text = line.partition(b" ")
        if checksum == b"%08x" % zlib.crc32(text) and text:
            row = json.loads(text)
            if row.get("recipe") != RECIPE:
                raise DataFileError(f"{path} is of another version: its rows mean something else. Move it away.")
            found[_cell(row)] = _outcome(row)
    return found


def _table(results: Mapping[Cell, Outcome]) -> pa.Table:
    import pyarrow as pa  # noqa: PLC0415

    kinds = {
        "problem": pa.string(), "kind": pa.string(), "method": pa.string(), "n": pa.int32(), "instance": pa.int32(),
        "n_actions": pa.int32(), "dim": pa.int32(), "score": pa.float64(),
        "value": pa.float64(), "truth": pa.float64(), "low": pa.float64(), "high": pa.float64(),
        "truth_error": pa.float64(),
        "seconds": pa.float64(), "peak_bytes": pa.int64(),
    }  # fmt: skip
    rows = [
        asdict(cell) | asdict(results[cell]) | {"score": score(cell.kind, results[cell])} for cell in sorted(results)
    ]
    return pa.Table.from_pylist(rows, schema=pa.schema(list(kinds.items())))


def _cell(row: Mapping[str, Any]) -> Cell:
    return Cell(*(row[name] for name in KEY))


def _outcome(row: Mapping[str, Any]) -> Outcome:
    return Outcome(*(row[name] for name in Outcome.__dataclass_fields__))
