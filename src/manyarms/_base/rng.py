"""One random generator, split by role, so that no two draws share their random numbers."""

from __future__ import annotations

import numpy as np

from manyarms.errors import DataTypeError


def split(rng: np.random.Generator, *roles: str) -> tuple[np.random.Generator, ...]:
    """Independent generators, one per role.

    Args:
        rng: The caller's generator; it advances, so a second split gives other streams.
        roles: The purpose of each generator. Only their number matters; the names document the call.
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
