"""Files that are never half-written, and never written over someone's work."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from manyarms.errors import ManyarmsError

if TYPE_CHECKING:
    import pyarrow as pa

LEDGER = ".manyarms-demo"
"""In the folder: a checksum a line of every file there that is ours. A file with another one is someone's work."""


class OccupiedError(ManyarmsError):
    """A file stands where one is to be written, and it is not ours to replace."""


def parquet_bytes(table: pa.Table) -> bytes:
    """A table as the content of a Parquet file."""
    import pyarrow as pa  # noqa: PLC0415  slow to import: `manyarms --help` must not wait for it
    import pyarrow.parquet as pq  # noqa: PLC0415

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def refuse_foreign(folder: Path, names: list[str]) -> None:
    """Raise unless each of these files is absent, or just as `write_ours` left it."""
    ours = _ledger(folder)
    for path in (folder / name for name in names):
        if path.exists() and _checksum_of(path) not in ours:
            raise OccupiedError(
                f"{path} is not as an earlier demo left it, so it stays. Choose another --output, or pass --force."
            )


def write_ours(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write these files into the folder, and remember that they are ours.

    The ledger goes first and keeps the files that are about to be replaced: wherever this stops, what lies in the
    folder is known.
    """
    folder.mkdir(parents=True, exist_ok=True)
    replaced = {_checksum_of(folder / name) for name in contents if (folder / name).is_file()} & _ledger(folder)
    known = sorted(replaced | {_checksum(content) for content in contents.values()})
    replace_files({folder / LEDGER: "".join(f"{line}\n" for line in known).encode()})
    replace_files({folder / name: content for name, content in contents.items()})


def replace_files(contents: Mapping[Path, bytes]) -> None:
    """Every file is the old one or the new one, whole: all are written and synced beside their place, then renamed."""
    # A leading dot and the process id: hidden from globs, and never a file of another run.
    staged = {path: path.with_name(f".{path.name}.{os.getpid()}.tmp") for path in contents}
    try:
        for path, content in contents.items():
            with open(staged[path], "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        for path, draft in staged.items():
            os.replace(draft, path)
    finally:
        for draft in staged.values():
            draft.unlink(missing_ok=True)
    for folder in {path.parent for path in contents}:
        _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    """Make renames last through a power cut, where the system can sync a folder; Windows cannot open one."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _ledger(folder: Path) -> set[str]:
    path = folder / LEDGER
    return set(path.read_text(encoding="ascii", errors="replace").split()) if path.is_file() else set()


def _checksum_of(path: Path) -> str:
    return _checksum(path.read_bytes())


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
