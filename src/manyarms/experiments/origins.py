"""What a problem is made of beside random numbers: a digest of its data tells rows of two data sets apart."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import numpy as np


@dataclass(frozen=True)
class Origin:
    """The data behind a problem.

    Attributes:
        digest: The same for the same data, wherever it lies; see `digest_of`.
        caveat: What it lacks of what its owners published, in words; empty when nothing.
    """

    digest: str
    caveat: str = ""


def digest_of(*parts: object) -> str:
    """A short text that is the same for the same arrays, texts and numbers, and for no others."""
    digest = sha256()
    for part in parts:
        if isinstance(part, np.ndarray) and part.dtype.kind in "biuf":
            digest.update(f"{part.dtype.str} {part.shape}".encode())
            digest.update(np.ascontiguousarray(part).tobytes())
        else:
            digest.update(repr(part.tolist() if isinstance(part, np.ndarray) else part).encode())
        digest.update(b"\x1f")
    return digest.hexdigest()[:32]


def shortfall(**counts: tuple[int, int]) -> str:
    """What is not as published, from counts that were found and those there should be; empty when all agree."""
    wrong = [f"{found:,} {name} instead of {whole:,}" for name, (found, whole) in counts.items() if found != whole]
    return f"not the full data: {', '.join(wrong)}" if wrong else ""
