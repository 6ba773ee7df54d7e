"""One random generator, split by role, so that no two draws share their random numbers."""

from __future__ import annotations

from hashlib import sha256

import numpy as np

from manyarms.errors import DataTypeError


def split(rng: np.random.Generator, *roles: str) -> tuple[np.random.Generator, ...]:
    """Independent generators, one per role. Only the number of roles matters; their names document the call.

    The caller's generator advances, so a second split gives other streams.
    """
    return tuple(as_generator(rng).spawn(len(roles)))


def as_generator(rng: np.random.Generator) -> np.random.Generator:
    """`rng` itself, or an error that says how to make one; a bare seed could be used twice without notice."""
    if not isinstance(rng, np.random.Generator):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DataTypeError(
            f"must be a numpy.random.Generator; got {type(rng).__name__}.",
            f"Pass np.random.default_rng({rng!r}).",
            argument="rng",
        )
    return rng


def generator(*parts: object) -> np.random.Generator:
    """A random generator that depends on these words and numbers alone."""
    digest = sha256("\x1f".join(map(str, parts)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "big"))
