"""Files that are never half-written, and never written over someone's work."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from manyarms._base.files import replace_files
from manyarms.errors import ManyarmsError

LEDGER = ".manyarms-demo"
"""In the folder: a checksum a line of every file there that is ours. A file with another one is someone's work."""


class OccupiedError(ManyarmsError):
    """A file stands where one is to be written, and it is not ours to replace."""


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

    The ledger goes first and keeps the files that were there: wherever this stops, what lies in the folder is known.
    """
    folder.mkdir(parents=True, exist_ok=True)
    present = {_checksum_of(file) for file in folder.iterdir() if file.is_file()} & _ledger(folder)
    known = sorted(present | {_checksum(content) for content in contents.values()})
    replace_files({folder / LEDGER: "".join(f"{line}\n" for line in known).encode()})
    replace_files({folder / name: content for name, content in contents.items()})


def _ledger(folder: Path) -> set[str]:
    path = folder / LEDGER
    return set(path.read_text(encoding="ascii", errors="replace").split()) if path.is_file() else set()


def _checksum_of(path: Path) -> str:
    return _checksum(path.read_bytes())


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
