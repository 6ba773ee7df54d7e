"""Files that are the old one or the new one, whole."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
from collections.abc import Generator, Mapping
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def draft_of(path: Path) -> Path:
    """Where to write what is to become `path`: beside it, so that a rename suffices."""
    # A leading dot, the machine, the process and the thread: hidden from globs, and never a file of another writer.
    return path.with_name(f".{path.name}.{_machine()}-{os.getpid()}-{threading.get_native_id()}.tmp")


def remove_dead_drafts(path: Path) -> None:
    """Remove drafts of `path` whose writer was killed without a chance to do it.

    Only those of processes of this machine, and of this container, that are known to be gone: what others write to a
    shared folder is left alone.
    """
    if os.name != "posix":
        # Elsewhere a process cannot be asked whether it lives without harm.
        return
    ours = re.compile(rf"\.{re.escape(path.name)}\.{_machine()}-(\d+)-\d+\.tmp")
    with contextlib.suppress(OSError):
        for name in os.listdir(path.parent):
            found = ours.fullmatch(name)
            if found and not _lives(int(found[1])):
                path.with_name(name).unlink(missing_ok=True)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        # It is somebody else's, or cannot be told: then it stays.
        return True
    return True


@cache
def _machine() -> str:
    """What tells the process numbers of this machine, or container, from those of others, in a few letters."""
    known = [socket.gethostname()]
    with contextlib.suppress(OSError):
        known.append(Path("/etc/machine-id").read_text(encoding="ascii"))
    with contextlib.suppress(OSError):
        known.append(os.readlink("/proc/self/ns/pid"))
    return blake2b(repr(known).encode(), digest_size=4).hexdigest()


def check_writable(path: Path) -> None:
    """Raise the OSError that writing `path` would raise, as far as an empty draft shows it."""
    draft = draft_of(path)
    try:
        draft.touch()
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def not_written(path: Path, problem: OSError) -> str:
    """What to tell a user about a file that could not be written by way of a draft."""
    return f"{path} could not be written: {problem.strerror or problem}. What was there before is as it was."


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
    remove_dead_drafts(path)
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
    for path in contents:
        remove_dead_drafts(path)
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
