"""Public data sets as files: where they are published, where they lie on disk, and their download."""

from __future__ import annotations

import contextlib
import hashlib
import lzma
import os
import socket
import sys
import time
import zipfile
import zlib
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from manyarms._base.checks import as_path
from manyarms._base.files import replacing
from manyarms._base.progress import Progress
from manyarms.errors import DataFileError, InputError, without_full_stop

TIMEOUT_S = 30.0
"""Seconds of silence after which a download is given up."""

PIECE = 1 << 20

STALE_S = 3600.0
"""Seconds after which an unfinished download counts as left behind by a run that was killed."""

DAMAGE = (OSError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error, lzma.LZMAError)
"""Exceptions that reading raises when a file is damaged, encrypted or out of reach."""


@dataclass(frozen=True)
class DataSource:
    """A data set as its owners publish it: one zip at one address.

    Attributes:
        name: The owners' name of the data set.
        archive: The file name of the zip.
        url: The owners' address of the zip.
        checksum: Checksum of the zip, as "md5:..." or "sha256:...".
        size_mb: Size of the zip in megabytes.
        where: A sentence that says how to get it by hand.
        licence: The owners' terms of use.
        folders: Folders inside the zip, and below the folder it was unpacked into, that may hold the files.
    """

    name: str
    archive: str
    url: str
    checksum: str
    size_mb: int
    where: str
    licence: str
    folders: tuple[str, ...] = ()

    @property
    def remedy(self) -> str:
        """The advice for an error when its files are missing or damaged."""
        return (
            f"{self.where} Pass the zip or its folder as path; or leave path out and pass download=True: {self.cost}."
        )

    @property
    def cost(self) -> str:
        """The size, address and terms of a download."""
        return f"{self.size_mb} MB from {self.url} ({self.licence})"


MOVIELENS_1M = DataSource(
    name="MovieLens 1M",
    archive="ml-1m.zip",
    url="https://files.grouplens.org/datasets/movielens/ml-1m.zip",
    checksum="md5:c4d9eecfca2ab87c1945afe126590906",
    size_mb=6,
    where='Get "MovieLens 1M" (ml-1m.zip) from GroupLens, who offer it under Datasets.',
    licence="for research, not to be passed on",
    folders=("ml-1m",),
)

KUAIREC = DataSource(
    name="KuaiRec",
    archive="KuaiRec.zip",
    url="https://zenodo.org/records/18164998/files/KuaiRec.zip",
    checksum="md5:261550d472c48eff4990fb13c0e5bcf7",
    size_mb=432,
    where='Get "KuaiRec" (KuaiRec.zip) from Zenodo, record 18164998.',
    licence="CC BY-SA 4.0",
    folders=("KuaiRec 2.0/data", "KuaiRec/data", "data"),
)

OPEN_BANDIT = DataSource(
    name="Open Bandit Dataset",
    archive="open_bandit_dataset.zip",
    url="https://research.zozo.com/data_release/open_bandit_dataset.zip",
    checksum="sha256:e8ec18196582a5937381a1776382ca940689b90a18d2dcd1fb635be6df614d78",
    size_mb=413,
    where='Get the "Open Bandit Dataset" (open_bandit_dataset.zip) from ZOZO Research.',
    licence="CC BY 4.0",
    folders=("open_bandit_dataset", "obd"),
)


def cache_folder() -> Path:
    """The folder of downloaded data: $MANYARMS_CACHE, or manyarms/ in the user's cache folder. It may not exist yet."""
    chosen = os.environ.get("MANYARMS_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "manyarms"


@dataclass(frozen=True)
class Archive:
    """The files of a data set on disk: unpacked in a folder, or in the zip.

    `path` is the zip; or a folder that holds the zip, or the files, directly or in one of `source.folders`.
    """

    source: DataSource
    path: Path

    def has(self, name: str) -> bool:
        """True when a file is there. `name` may begin with folders, as in "random/all/all.csv"."""
        with self._guarded(name):
            return self._unpacked(name) is not None or self._packed(name) is not None

    def read(self, name: str) -> bytes:
        """The content of a file."""
        with self.open(name) as file:
            return file.read()

    @contextlib.contextmanager
    def open(self, name: str) -> Generator[IO[bytes]]:
        """A file to read in pieces, as some are larger than memory. A zip is not unpacked onto the disk."""
        with self._guarded(name):
            unpacked = self._unpacked(name)
            if unpacked is not None:
                with open(unpacked, "rb") as file:
                    yield file
                return
            member = self._packed(name)
            if member is None:
                if self._zip.is_file():
                    problem = f"{self._zip} does not hold {name}."
                elif self.path.exists():
                    places = ", ".join(f"{folder}/" for folder in self.source.folders)
                    problem = (
                        f"{name} is not in {self.path}; it was expected there, in {places} or in {self._zip.name}."
                    )
                else:
                    problem = f"{self.path} does not exist; {name} was expected there."
                raise DataFileError(problem, self.source.remedy)
            with zipfile.ZipFile(self._zip) as packed, packed.open(member) as file:
                yield file

    @property
    def _zip(self) -> Path:
        return self.path if self.path.is_file() else self.path / self.source.archive

    def _unpacked(self, name: str) -> Path | None:
        options = [self.path / name, *(self.path / folder / name for folder in self.source.folders)]
        return next((option for option in options if option.is_file()), None)

    def _packed(self, name: str) -> str | None:
        """The member of the zip in any of its folders; the one nearest to the top when there are several."""
        if not self._zip.is_file():
            return None
        with zipfile.ZipFile(self._zip) as packed:
            matches = [member for member in packed.namelist() if f"/{member}".endswith(f"/{name}")]
        return min(matches, key=lambda member: (member.count("/"), member), default=None)

    @contextlib.contextmanager
    def _guarded(self, name: str) -> Generator[None]:
        try:
            yield
        except DAMAGE as damage:
            raise DataFileError(
                f"{name} cannot be read from {self._place(name)}: {without_full_stop(damage)}.",
                f"Delete the file there and get it again. {self.source.remedy}",
            ) from damage

    def full_name(self, name: str) -> str:
        """The name of a file in messages, with the folder or zip that it is in."""
        place = self._place(name)
        return str(place) if place.name == Path(name).name else str(place / name)

    def _place(self, name: str) -> Path:
        """The file or zip that an error is about. Looking for it may fail for the same reason as reading it."""
        with contextlib.suppress(OSError):
            return self._unpacked(name) or self._zip
        return self.path


def locate(source: DataSource, path: str | os.PathLike[str] | None, needs: str, *, fetch: bool) -> Archive:
    """The files of a data set at `path`, or in the cache folder, downloaded if `fetch` and `needs` is not there."""
    if path is not None:
        if fetch:
            raise InputError(
                "download=True downloads into the cache folder, not into path.",
                "Leave path out, or set MANYARMS_CACHE to it.",
            )
        return Archive(source, as_path("path", path))
    archive = Archive(source, cache_folder())
    if fetch and not archive.has(needs):
        download(source)
    return archive


def download(source: DataSource, folder: str | os.PathLike[str] | None = None, *, progress: Progress = True) -> Path:
    """Download the zip of a data set from its owners, unless it is there already with the owners' checksum.

    The file appears under its name only when it is complete and its checksum is right. It then replaces a file of that
    name with another checksum.

    Args:
        source: `MOVIELENS_1M`, `KUAIREC` or `OPEN_BANDIT`.
        folder: Folder for the zip; the cache folder by default.
        progress: True draws a bar in a terminal. A function is called as progress(bytes_done, bytes_total).

    Returns:
        The path of the zip.

    Raises:
        DataFileError: When it fails. The message has the reason, the address, and where to put a file fetched by other
            means.
    """
    target = (cache_folder() if folder is None else Path(folder)) / source.archive
    try:
        if target.is_file() and _checksum_of(target, source) == source.checksum:
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        _drop_stale_drafts(target)
        with replacing(target) as file:
            checksum = _fetch(source, target, file, progress)
            if checksum != source.checksum:
                raise DataFileError(
                    f"the file from {source.url} is not {source.name} as published: its checksum is {checksum}, not "
                    f"{source.checksum}. It was removed.",
                    f"Try again; or put a file that you trust at {target}.",
                )
    except OSError as problem:
        raise DataFileError(
            f"{target} cannot be written: {without_full_stop(problem)}.",
            "Make room, or choose another folder by MANYARMS_CACHE.",
        ) from problem
    return target


def _fetch(source: DataSource, target: Path, file: IO[bytes], progress: Progress) -> str:
    """Write the download to the file, and return its checksum."""
    digest, done = _digest(source), 0
    with _reporter(progress, source) as report, contextlib.closing(_pieces(source, target)) as pieces:
        for piece, total in pieces:
            file.write(piece)
            digest.update(piece)
            done += len(piece)
            report(done, total)
    return f"{digest.name}:{digest.hexdigest()}"


def _pieces(source: DataSource, target: Path) -> Generator[tuple[bytes, int]]:
    """The download in pieces, each with the size of the whole; zero when the server does not say."""
    import http.client  # noqa: PLC0415  these take long to import, and few runs download
    import urllib.request  # noqa: PLC0415

    request = urllib.request.Request(source.url, headers={"User-Agent": "manyarms"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            size = response.headers.get("Content-Length", "")
            total, done = int(size) if size.isdigit() else 0, 0
            while piece := response.read(PIECE):
                done += len(piece)
                yield piece, total
        if done < total:
            raise ConnectionError(f"the transfer ended after {done:,} of {total:,} bytes")
    except (OSError, http.client.HTTPException) as problem:
        raise DataFileError(
            f"{source.name} was not fetched from {source.url}: {_reason(problem)}.",
            f"Try again later; or get {source.archive} by other means and put it at {target}.",
        ) from problem


def _reason(problem: Exception) -> str:
    """The cause of a failed download, in plain words."""
    import urllib.error  # noqa: PLC0415

    if isinstance(problem, urllib.error.HTTPError):
        problem.close()
        return f"the server answered {problem.code} {problem.reason}"
    cause = getattr(problem, "reason", problem)
    if isinstance(cause, socket.gaierror):
        return f"the address was not found, as when there is no network ({cause})"
    if isinstance(cause, TimeoutError):
        return f"the server sent nothing for {TIMEOUT_S:.0f} seconds"
    return str(cause) or type(cause).__name__


@contextlib.contextmanager
def _reporter(progress: Progress, source: DataSource) -> Generator[Callable[[int, int], None]]:
    """The function to call after each piece. It shows bytes and speed, on stderr, unlike `_base.progress.reporter`."""
    if callable(progress):
        yield progress
    elif not progress or sys.stderr is None or not sys.stderr.isatty():
        yield lambda done, total: None
    else:
        from rich import progress as rich  # noqa: PLC0415
        from rich.console import Console  # noqa: PLC0415

        columns = ("{task.description}", rich.BarColumn(), rich.DownloadColumn(), rich.TransferSpeedColumn())
        with rich.Progress(*columns, rich.TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(source.archive, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total or None)


def _drop_stale_drafts(target: Path) -> None:
    """Delete unfinished downloads of runs that were killed."""
    for draft in target.parent.glob(f".{target.name}.*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - draft.stat().st_mtime > STALE_S:
                draft.unlink()


def _checksum_of(path: Path, source: DataSource) -> str:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, lambda: _digest(source))
    return f"{digest.name}:{digest.hexdigest()}"


def _digest(source: DataSource) -> Any:
    # Against accidents, not attackers: owners publish MD5, which some systems refuse for anything else.
    return hashlib.new(source.checksum.partition(":")[0], usedforsecurity=False)
