"""Write files safely: whatever goes wrong, a file is the old one or the new one as a whole."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import socket
import stat
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import IO

from manyarms.errors import InputError, ModelFileError, OutputFileError

PathLike = str | os.PathLike[str]


def draft_of(path: Path) -> Path:
    """A path for a draft of `path`, in the same folder, so that a rename is enough to make it the file."""
    # The leading dot hides it from globs. Machine and process tell whose it is; nobody can guess the rest.
    return path.with_name(f".{path.name}.{_machine()}-{os.getpid()}-{secrets.token_hex(8)}.tmp")


def _new_draft(path: Path, mode: int) -> tuple[Path, int]:
    """A draft of `path` that did not exist, and its descriptor: a link that somebody planted is never followed."""
    draft = draft_of(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    return draft, os.open(draft, flags, mode)


IRREGULAR = "it exists and is not a regular file"
"""The reason why a device, a pipe or a socket is not replaced."""


def _target(path: Path) -> tuple[Path, os.stat_result | None]:
    """The file that a path stands for, behind any links, and its status; None where it does not exist yet."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return Path(os.path.realpath(path)), None
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EEXIST, IRREGULAR)
    return Path(os.path.realpath(path)), status


def _take_over(descriptor: int, status: os.stat_result) -> None:
    """Give a draft the owner and the mode of the file that it will replace, the owner where the system allows it."""
    if hasattr(os, "fchown"):
        with contextlib.suppress(OSError):
            os.fchown(descriptor, status.st_uid, status.st_gid)
    if hasattr(os, "fchmod"):
        os.fchmod(descriptor, status.st_mode & 0o777)


def _remove_dead_drafts(path: Path) -> None:
    """Remove drafts of `path` that a killed writer left behind.

    Only drafts of this machine and container are removed, and only if their process is known to be gone: drafts that
    others write to a shared folder are left alone.
    """
    if os.name != "posix":
        # On other systems, os.kill(pid, 0) would end the process instead of testing for it.
        return
    draft = re.compile(rf"\.{re.escape(path.name)}\.{_machine()}-(\d+)-[0-9a-f]+\.tmp")
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
    """Open a file that becomes `path` when the block ends; if the block fails, `path` is unchanged.

    A link stays, and the file behind it is replaced. A file that is replaced keeps its mode and, where the system
    allows it, its owner. Anything else than a regular file is refused.
    """
    target, status = _target(path)
    _remove_dead_drafts(target)
    draft, descriptor = _new_draft(target, 0o666 if status is None else 0o600)
    try:
        with open(descriptor, "wb") as file:
            if status is not None:
                _take_over(descriptor, status)
            yield file
            _sync(file)
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)
    _sync_folder(target.parent)


def replace_files(contents: Mapping[Path, bytes]) -> None:
    """Write several files: all are written and synced as drafts first, and then renamed.

    Raises:
        OutputFileError: Naming the file that could not be written.
    """
    with contextlib.ExitStack() as drafts:
        # The last draft is renamed first.
        for path, content in reversed(list(contents.items())):
            file = drafts.enter_context(_replacing_or_named(path))
            file.write(content)
            _sync(file)


@contextlib.contextmanager
def _replacing_or_named(path: Path) -> Generator[IO[bytes]]:
    """Replace a file as `replacing` does; an error names it."""
    try:
        with replacing(path) as file:
            yield file
    except OutputFileError:
        raise  # that of another file
    except OSError as problem:
        raise OutputFileError(*write_failure(path, problem)) from problem


def refuse_inputs(out: Path, inputs: Iterable[Path], argument: str = "out") -> None:
    """Refuse an output that is, or holds, one of the files that are read: it would replace its own input."""
    if not out.exists():
        return
    read = {place for file in inputs for place in (file, *file.resolve().parents)}
    if any(place.exists() and out.samefile(place) for place in read):
        problem = f"names {out}, which is, or holds, one of the files to be read."
        raise InputError(problem, "Write elsewhere.", argument=argument)


@contextlib.contextmanager
def updating(path: Path) -> Generator[Callable[[], None]]:
    """Keep other updates of a file out while it is read, changed and written again.

    Yields a function to call just before the file is written: it raises an error if the file is no longer the one that
    was read.

    Raises:
        ModelFileError: If another update of the file is running, or something else has replaced the file meanwhile.
    """
    try:
        file = open(path, "rb")
    except OSError:
        # Whoever reads the file says what is wrong with it.
        yield lambda: None
        return
    with file:
        # Open as long as the block lasts, so that no other file gets its number.
        _lock(file, path)
        before = _version(os.fstat(file.fileno()))

        def check() -> None:
            try:
                now = _version(path.stat())
            except OSError:
                now = None
            if now != before:
                raise ModelFileError(f"{path} was replaced while this update was running.", _UPDATE_AGAIN)

        check()
        yield check


_UPDATE_AGAIN = "Nothing was written. Run the update again; it adds its rounds to the model that is there then."


def _version(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _lock(file: IO[bytes], path: Path) -> None:
    """Lock a file until it is closed, where the system can, or say that another process has locked it."""
    try:
        import fcntl  # noqa: PLC0415
    except ImportError:  # Windows: an update at the same time is noticed when the file is written.
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        remedy = "Nothing was written. Run the update again when the other one is done."
        raise ModelFileError(f"another update of {path} is running.", remedy) from None
    except OSError:
        return  # some network disks have no locks: as on Windows


def check_output(path: Path, argument: str = "out") -> None:
    """Raise an error if an output file cannot be written, before hours of work on it."""
    if path.is_dir():
        problem = f"must name a file; {path} is a folder."
        raise InputError(problem, "Name another file, or remove it.", argument=argument)
    if not path.parent.is_dir():
        raise InputError(f"must lie in an existing folder; {path.parent} does not exist.", argument=argument)
    try:
        target, _ = _target(path)
    except OSError as problem:
        raise InputError(
            f"cannot be written to {path}: {problem.strerror}.", "Name another file.", argument=argument
        ) from None
    if not target.parent.is_dir():
        raise InputError(f"is a link into {target.parent}, which does not exist.", argument=argument)
    _check_writable(target, argument)


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


def _check_writable(path: Path, argument: str = "out") -> None:
    """Write an empty draft of `path` and remove it, or say why that fails."""
    try:
        draft, descriptor = _new_draft(path, 0o600)
    except OSError as problem:
        raise InputError(
            f"cannot be written into {path.parent}: {problem.strerror}.", "Name another place.", argument=argument
        ) from None
    os.close(descriptor)
    draft.unlink(missing_ok=True)
