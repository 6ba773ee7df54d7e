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

from manyarms.errors import InputError

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


def check_output(path: Path) -> None:
    """Raise an error if an output file cannot be written, before hours of work on it."""
    if path.is_dir():
        raise InputError(f"must name a file; {path} is a folder.", "Name another file, or remove it.", argument="out")
    if not path.parent.is_dir():
        raise InputError(f"must lie in an existing folder; {path.parent} does not exist.", argument="out")
    _check_writable(path)


def check_output_folder(path: Path, why: str, instead: str) -> None:
    """Raise an error if files cannot be written into an output folder.

    A folder that does not exist yet is created later.

    Args:
        path: The folder.
        why: The reason why it must be a folder.
        instead: The way to get a single file.
    """
    if path.is_file():
        remedy = f"Name another folder, remove the file, or {instead}."
        raise InputError(f"must name a folder, since {why}; {path} is a file.", remedy, argument="out")
    above = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not above.is_dir():
        raise InputError(f"must lie in a folder; {above} is a file.", argument="out")
    _check_writable(above / "part")


def _check_writable(path: Path) -> None:
    """Write an empty draft of `path` and remove it, or say why that fails."""
    draft = draft_of(path)
    try:
        draft.touch()
    except OSError as problem:
        raise InputError(
            f"cannot be written into {path.parent}: {problem.strerror}.", "Name another place.", argument="out"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()
