"""Fingerprints of rounds, which reveal that a policy is evaluated on the rounds it was learned from."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Int

from manyarms._base.checks import Array
from manyarms.model_file.part_checks import instance_of, is_count, is_text, is_time, maybe
from manyarms.model_file.save import Saved


@dataclass(frozen=True)
class Fingerprint(Saved):
    """The identity of some rows of a log.

    Attributes:
        origin: A digest of the whole log that the rows were taken from.
        n_rows: Number of rows in that log.
        rows: A bit per row of the log, eight to a byte; None for all rows.
        until: The time, in ISO 8601, after which rows were left out for later; None if none were.
        path: The path of a file from which rows were left out: it may be rewritten until they are counted.
    """

    saved_as = "fingerprint"
    saved_checks: ClassVar = {
        "origin": is_text,
        "n_rows": is_count,
        "rows": maybe(instance_of(bytes)),
        "until": maybe(is_time),
        "path": maybe(is_text),
    }
    origin: str
    n_rows: int
    rows: bytes | None = None
    until: str | None = None
    path: str | None = None

    def consistent(self) -> bool:
        """True if there is a bit for every row."""
        return self.rows is None or len(self.rows) == -(-self.n_rows // 8)

    @classmethod
    def of_rows(cls, origin: str, n_rows: int, rows: Int[Array, " m"] | None) -> Fingerprint:
        """The fingerprint of some rows of a log, given by number."""
        if rows is None:
            return cls(origin, n_rows)
        present = np.zeros(n_rows, dtype=bool)
        present[rows] = True
        return cls(origin, n_rows, np.packbits(present).tobytes())

    def shares_rows(self, other: Fingerprint) -> bool:
        """True if some row is in both."""
        if self.origin != other.origin:
            return False
        if self.rows is None or other.rows is None:
            smaller = other.rows if self.rows is None else self.rows
            return self.n_rows > 0 and (smaller is None or any(smaller))
        first, second = (np.frombuffer(part, dtype=np.uint8) for part in (self.rows, other.rows))
        return bool((first & second).any())


def digest(*columns: Array) -> str:
    """The digest in a fingerprint: of the shapes of columns, and up to a few thousand rows spread evenly over them."""
    summary = hashlib.blake2b(digest_size=16)
    for column in columns:
        step = max(1, len(column) // 4096)
        summary.update(repr((column.shape, step)).encode())
        summary.update(np.ascontiguousarray(column[::step]).tobytes())
    return summary.hexdigest()


def any_shared(first: tuple[Fingerprint, ...], second: tuple[Fingerprint, ...]) -> bool:
    """True if the fingerprints of two collections of rounds share a row."""
    return any(a.shares_rows(b) for a in first for b in second)
