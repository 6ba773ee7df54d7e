"""Save a model: objects are made of numbers, names, arrays and other such objects, and each kind has a name.

An object lists its parts (`saved`) and is made from them again (`from_saved`). A part that two objects share is written
once, and they share it again after loading. Parts from a file are checked first (`check_saved`): a file from a stranger
may hold anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any, ClassVar, TypeAlias

import numpy as np

from manyarms._base.checks import Array, all_finite
from manyarms.errors import DataTypeError
from manyarms.model_file.arrow_file import LONGEST, UnknownPart, WrongPart, as_path, write

PartCheck: TypeAlias = Callable[[Any], bool]
"""True if a part of an object in a file is one that `save` could have written."""


class Saved:
    """Base class of the objects that can be saved in a model file.

    Attributes:
        saved_as: The name of the kind. A subclass needs a name of its own, or it would be loaded as its parent.
        saved_fields: The names of its parts, where it is not a dataclass. They are attributes, and its constructor
            takes them by name, unless `saved` and `from_saved` do otherwise.
        saved_as_attributes: True if its parts are set as attributes instead, because its constructor computes them.
        saved_checks: What each of its parts must be when it comes from a file; `consistent` checks them together.
        not_saved: The remedy in the error, for a kind without a name.
    """

    saved_as: ClassVar[str]
    saved_fields: ClassVar[tuple[str, ...]] = ()
    saved_as_attributes: ClassVar[bool] = False
    saved_checks: ClassVar[Mapping[str, PartCheck]] = {}
    not_saved: ClassVar[str] = "Model files hold manyarms' own kinds and no code."

    def saved(self) -> dict[str, Any]:
        """Its parts by name: plain values, bytes, arrays, objects of other kinds, and tuples of these."""
        return {name: getattr(self, name) for name in self.part_names()}

    @classmethod
    def part_names(cls) -> tuple[str, ...]:
        """The names of its parts. A part added later has a default, so that older files still load."""
        return tuple(field.name for field in fields(cls)) if is_dataclass(cls) else cls.saved_fields

    @classmethod
    def check_saved(cls, parts: Mapping[str, Any]) -> None:
        """Refuse parts from a file that `saved` cannot have given. A part that is absent has its default."""
        for name, check in cls.saved_checks.items():
            if name in parts and not check(parts[name]):
                raise WrongPart(f"{name!r} of a {cls.saved_as!r} is not what it should be")

    def consistent(self) -> bool:
        """True if the parts fit together, once each of them passed `check_saved`: their sizes agree."""
        return True

    @classmethod
    def from_saved(cls, parts: dict[str, Any]) -> Saved:
        """Make an object from the parts that `saved` gave. Those of a file have passed `check_saved`."""
        if not cls.saved_as_attributes:
            return cls(**parts)
        out = object.__new__(cls)
        for name in cls.part_names():
            setattr(out, name, parts[name])
        return out


class SavedModel(Saved):
    """Base class of the models that can be saved by themselves: posteriors and policies."""

    def save(self, path: Any) -> None:
        """Write it to a file that `ma.load` opens in milliseconds and with the same results to the last bit.

        The file is one Arrow file without any code in it, and its arrays are under checksums. An existing file is
        replaced as a whole: whatever happens meanwhile, `path` is the old file or the new one.

        Args:
            path: The file to write.

        Raises:
            DataTypeError: If a part cannot be saved, such as a likelihood of your own.
            ModelFileError: If the file cannot be written.
        """
        write(as_path(path), *describe(self))


def describe(model: Saved) -> tuple[dict[str, Any], list[Array]]:
    """Describe a model to be saved: plain values, and the arrays that they refer to."""
    description = _Description()
    description.add(model)
    return {"objects": description.objects}, description.arrays


# Checks of parts that come from a file.


def is_flag(part: Any) -> bool:
    """Check a saved part that must be true or false."""
    return isinstance(part, bool)


def is_text(part: Any) -> bool:
    """Check a saved part that must be text."""
    return isinstance(part, str)


def is_time(part: Any) -> bool:
    """Check that a part to be saved is a time in ISO 8601."""
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
    """The stored values of an array of a model file, each of those that repeat only once."""
    return array[tuple(slice(0, 1) if step == 0 else slice(None) for step in array.strides)]


def _is_array(part: Any, dtypes: tuple[str, ...], ndim: int, repeated: bool = False) -> bool:
    if not isinstance(part, np.ndarray) or part.dtype.str not in dtypes or part.ndim != ndim:
        return False
    return repeated or once(part).size == part.size


def check_saved_names(parts: Mapping[str, Any], known: Iterable[str], owner: str) -> None:
    """Refuse names of parts that `save` does not write: if one were ignored, the model would be a different one."""
    unknown = parts.keys() - set(known)
    if unknown:
        raise UnknownPart(f"{owner} with {min(unknown)!r:.80}")


class _Description:
    """Objects in an order in which each comes after its parts."""

    def __init__(self) -> None:
        self.objects = list[dict[str, Any]]()
        self.arrays = list[Array]()
        self._object_numbers = dict[int, int]()
        self._array_numbers = dict[Any, int]()
        # An id is unique only as long as its object lives.
        self._alive = list[Any]()

    def add(self, item: Saved) -> int:
        """The number of an object; it and its parts are described unless they already are."""
        if id(item) in self._object_numbers:
            return self._object_numbers[id(item)]
        kind = type(item).__dict__.get("saved_as")
        if kind is None:
            raise DataTypeError(f"{type(item).__name__} cannot be saved.", type(item).not_saved)
        parts = {name: self._described(name, value) for name, value in item.saved().items()}
        self.objects.append({"kind": kind, "parts": parts})
        self._alive.append(item)
        self._object_numbers[id(item)] = number = len(self.objects) - 1
        return number

    def _array(self, array: Array) -> int:
        memory = array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str
        if memory not in self._array_numbers:
            self._array_numbers[memory] = len(self.arrays)
            self.arrays.append(array)
        return self._array_numbers[memory]

    def _described(self, name: str, value: Any) -> Any:
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            return {"array": self._array(value)}
        if isinstance(value, Saved):
            return {"object": self.add(value)}
        if isinstance(value, tuple):
            return [self._described(name, item) for item in value]
        if isinstance(value, bytes):
            return {"bytes": self._array(np.frombuffer(value, np.uint8))}
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, float) and not math.isfinite(value):
            return {"number": str(value)}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise DataTypeError(f"cannot be saved: it is a {type(value).__name__}.", Saved.not_saved, argument=name)
