"""One random generator, split by role, so that no two draws share their random numbers."""

from __future__ import annotations

from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

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


def hashed_uniforms(key: int, *counters: NDArray[np.integer]) -> NDArray[np.float64]:
    """Random numbers above 0 and below 1 that depend on a key and on 64-bit counters alone, by broadcasting.

    Counters are mixed in one after the other by the finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
    """
    state = np.full(1, key, dtype=np.uint64)
    for counter in counters:
        state = _mixed(state + _mixed(counter.astype(np.uint64) + _GOLDEN) + _GOLDEN)
    return ((state >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def _mixed(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
    return state ^ (state >> np.uint64(31))


_GOLDEN = np.array([0x9E3779B97F4A7C15], dtype=np.uint64)
"""2⁶⁴ over the golden ratio; an array, since sums of arrays wrap around."""
