"""Files that are the old one or the new one, whole."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def draft_of(path: Path) -> Path:
    """Where to write what is to become `path`: beside it, so that a rename suffices."""
    # A leading dot, the process and the thread: hidden from globs, and never a file of another run or another writer.
    return path.with_name(f".{path.name}.{os.getpid()}-{threading.get_native_id()}.tmp")


def sync(file: IO[bytes]) -> None:
    """Bring what was written to the disk before a rename makes it the file."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make renames last through a power cut, where the system can sync a folder; Windows cannot open one."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def replacing(path: Path) -> Generator[IO[bytes]]:
    """A file to write to, that becomes `path` when the block ends; when it fails, `path` is as it was."""
    draft = draft_of(path)
    try:
        with open(draft, "wb") as file:
            yield file
            sync(file)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(path.parent)


def replace_files(contents: Mapping[Path, bytes]) -> None:
    """Every file is the old one or the new one, whole: all are written and synced beside their place, then renamed."""
    staged = {path: draft_of(path) for path in contents}
    try:
        for path, content in contents.items():
            with open(staged[path], "wb") as file:
                file.write(content)
                sync(file)
        for path, draft in staged.items():
            os.replace(draft, path)
    finally:
        for draft in staged.values():
            draft.unlink(missing_ok=True)
    for folder in {path.parent for path in contents}:
        sync_folder(folder)


def parquet_bytes(table: pa.Table) -> bytes:
    """A table as the content of a Parquet file."""
    import pyarrow as pa  # noqa: PLC0415  slow to import: `manyarms --help` must not wait for it
    import pyarrow.parquet as pq  # noqa: PLC0415

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()
