"""One generator, split by role, so that no two draws ever share their random numbers."""

from __future__ import annotations

import numpy as np

from manyarms.errors import DataTypeError


def split(rng: np.random.Generator, *roles: str) -> tuple[np.random.Generator, ...]:
    """Independent generators, one for each role named.

    Args:
        rng: The caller's generator; it advances, so a second split gives other streams.
        roles: What each child is for. The names document the call; their number is what counts.
    """
    return tuple(as_generator(rng).spawn(len(roles)))


def as_generator(rng: np.random.Generator) -> np.random.Generator:
    """`rng` itself, or an error that says how to make one: a bare seed would be used twice without anyone noticing."""
    if not isinstance(rng, np.random.Generator):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DataTypeError(
            f"rng must be a numpy.random.Generator; got {type(rng).__name__}. Pass np.random.default_rng({rng!r})."
        )
    return rng
