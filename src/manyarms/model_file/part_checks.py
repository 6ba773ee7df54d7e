"""Checks of the saved parts of objects that come from a model file: a file from a stranger may hold anything."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeAlias

import numpy as np

from manyarms._base.checks import Array, all_finite
from manyarms.model_file.arrow_file import LONGEST, UnknownPart

PartCheck: TypeAlias = Callable[[Any], bool]
"""True if a part of an object in a file is one that `save` could have written."""


def is_flag(part: Any) -> bool:
    """Check a saved part that must be true or false."""
    return isinstance(part, bool)


def is_text(part: Any) -> bool:
    """Check a saved part that must be text."""
    return isinstance(part, str)


def is_time(part: Any) -> bool:
    """Check a saved part that must be a time in ISO 8601."""
    try:
        return isinstance(part, str) and bool(datetime.fromisoformat(part))
    except ValueError:
        return False


def is_number(part: Any) -> bool:
    """Check a saved part that must be a number; it may be infinite or NaN."""
    return isinstance(part, int | float) and not isinstance(part, bool)


def is_finite(part: Any) -> bool:
    """Check a saved part that must be a finite number."""
    return is_number(part) and math.isfinite(part)


def is_size(part: Any) -> bool:
    """Check a saved part that counts actions, features or effects: from 1 to as long as an axis may be."""
    return is_count(part) and 1 <= part <= LONGEST


def is_count(part: Any) -> bool:
    """Check a saved part that counts anything, from 0."""
    return type(part) is int and 0 <= part < 1 << 60


def instance_of(*kinds: type) -> PartCheck:
    """A check that a saved part is an object of one of these kinds."""
    return lambda part: isinstance(part, kinds)


def maybe(check: PartCheck) -> PartCheck:
    """A check of a saved part that may also be None."""
    return lambda part: part is None or check(part)


def tuple_of(check: PartCheck) -> PartCheck:
    """A check of every item of a saved tuple."""
    return lambda part: isinstance(part, tuple) and all(map(check, part))


def floats(ndim: int, *, repeated: bool = False) -> PartCheck:
    """A check that a saved part is an array of finite floats; only where `repeated` may its values repeat unstored."""
    return lambda part: _is_array(part, ("<f8",), ndim, repeated) and all_finite(once(part))


def indices(*, at_least: int = 0) -> PartCheck:
    """A check that a saved part is a vector of integers that are at least so large, such as positions."""
    return lambda part: _is_array(part, ("<i8", "<i4"), 1) and bool(part.min(initial=at_least) >= at_least)


def bytes_array(part: Any) -> bool:
    """Check a saved part that must be a vector of bytes."""
    return _is_array(part, ("|u1",), 1)


def flags_array(part: Any) -> bool:
    """Check a saved part that must be a vector of booleans."""
    # Any byte is read as a boolean, and only 0 and 1 are one.
    return _is_array(part, ("|b1",), 1) and bool(part.view(np.uint8).max(initial=0) <= 1)


def once(array: Array) -> Array:
    """The stored values of a saved part that is an array, each of those that repeat only once."""
    return array[tuple(slice(0, 1) if step == 0 else slice(None) for step in array.strides)]


def _is_array(part: Any, dtypes: tuple[str, ...], ndim: int, repeated: bool = False) -> bool:
    if not isinstance(part, np.ndarray) or part.dtype.str not in dtypes or part.ndim != ndim:
        return False
    return repeated or once(part).size == part.size


def check_saved_names(parts: Mapping[str, Any], known: Iterable[str], owner: str) -> None:
    """Check the names of saved parts: if one that `save` does not write were ignored, the model would be another."""
    unknown = parts.keys() - set(known)
    if unknown:
        raise UnknownPart(f"{owner} with {min(unknown)!r:.80}")


def saved_csr(part: Any) -> bool:
    """Check a saved part that must be a sparse matrix of finite numbers; `csr_from_parts` looks at its positions."""
    checks = (floats(1), indices(), indices(), is_size, is_flag)
    return isinstance(part, tuple) and len(part) == len(checks) and all(f(x) for f, x in zip(checks, part, strict=True))
