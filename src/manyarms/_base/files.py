"""Write files safely: whatever goes wrong, a file is the old one or the new one as a whole."""

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
from typing import IO

PathLike = str | os.PathLike[str]


def draft_of(path: Path) -> Path:
    """The path of a draft of `path`, in the same folder, so that a rename is enough to make it the file."""
    # The leading dot hides it from globs; machine, process and thread keep it apart from other writers' drafts.
    return path.with_name(f".{path.name}.{_machine()}-{os.getpid()}-{threading.get_native_id()}.tmp")


def _remove_dead_drafts(path: Path) -> None:
    """Remove drafts of `path` that a killed writer left behind.

    Only drafts of this machine and container are removed, and only if their process is known to be gone: drafts that
    others write to a shared folder are left alone.
    """
    if os.name != "posix":
        # On other systems, os.kill(pid, 0) would end the process instead of testing for it.
        return
    draft = re.compile(rf"\.{re.escape(path.name)}\.{_machine()}-(\d+)-\d+\.tmp")
    with contextlib.suppress(OSError):
        for name in os.listdir(path.parent):
            match = draft.fullmatch(name)
            if match and not _is_alive(int(match[1])):
                path.with_name(name).unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass  # it belongs to another user, or its state is unknown: keep the draft
    return True


@cache
def _machine() -> str:
    """A short name for this machine or container, so that process numbers are compared only within it."""
    identity = [socket.gethostname()]
    with contextlib.suppress(OSError):
        identity.append(Path("/etc/machine-id").read_text(encoding="ascii"))
    with contextlib.suppress(OSError):
        identity.append(os.readlink("/proc/self/ns/pid"))
    return blake2b(repr(identity).encode(), digest_size=4).hexdigest()


def check_writable(path: Path) -> None:
    """Raise the OSError that writing `path` would raise, as far as writing an empty draft can show it."""
    draft = draft_of(path)
    try:
        draft.touch()
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def write_failure(path: Path, error: OSError) -> tuple[str, str]:
    """Problem and remedy of a file that could not be written by way of a draft."""
    problem = f"{path} could not be written: {error.strerror or error}."
    return problem, "An earlier file there is unchanged."


def _sync(file: IO[bytes]) -> None:
    """Flush a draft to the disk before a rename makes it the file."""
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Make renames survive a power cut, where the system can sync a folder; Windows cannot open one."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def replacing(path: Path) -> Generator[IO[bytes]]:
    """Open a file that becomes `path` when the block ends; if the block fails, `path` is unchanged."""
    _remove_dead_drafts(path)
    draft = draft_of(path)
    try:
        with open(draft, "wb") as file:
            yield file
            _sync(file)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    _sync_folder(path.parent)


def replace_files(contents: Mapping[Path, bytes]) -> None:
    """Write several files: all are written and synced as drafts first, and then renamed."""
    with contextlib.ExitStack() as drafts:
        # The last draft is renamed first.
        for path, content in reversed(list(contents.items())):
            file = drafts.enter_context(replacing(path))
            file.write(content)
            _sync(file)
