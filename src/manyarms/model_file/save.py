"""What a model file holds: objects made of numbers, names, arrays and other such objects, each of a kind with a name.

An object says what it is made of (`saved`) and is made of it again (`from_saved`). What two objects share is written
once, and shared again when it is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar

import numpy as np

from manyarms._base.checks import Array
from manyarms.errors import DataTypeError
from manyarms.model_file import arrow_file


class Saved:
    """A kind of object that model files hold.

    Attributes:
        saved_as: The name of the kind; a subclass needs one of its own, for a file must not make less of it.
        saved_fields: The names of its parts, when it is no dataclass: attributes, which its constructor takes by name,
            unless `saved` and `from_saved` say otherwise.
        not_saved: What to do instead, for a kind that has no name.
    """

    saved_as: ClassVar[str]
    saved_fields: ClassVar[tuple[str, ...]] = ()
    not_saved: ClassVar[str] = "Model files hold manyarms' own kinds and no code."

    def saved(self) -> dict[str, Any]:
        """What it is made of: plain values, bytes, arrays, other kinds, tuples of all these."""
        return {name: getattr(self, name) for name in self.part_names()}

    @classmethod
    def part_names(cls) -> tuple[str, ...]:
        """What its parts are called; a part that came later has a default, so that older files open."""
        return tuple(field.name for field in fields(cls)) if is_dataclass(cls) else cls.saved_fields

    @classmethod
    def from_saved(cls, parts: dict[str, Any]) -> Saved:
        """What `saved` gave, as one again; trusted, and checked no further."""
        return cls(**parts)


class SavedModel(Saved):
    """A kind of object that is a model file of its own."""

    def save(self, path: Any) -> None:
        """Write it to a file that `ma.load` opens, in milliseconds and with the same results to the last bit.

        One Arrow file without any code in it, its arrays under checksums. A file that is there already is replaced as
        a whole: whatever happens meanwhile, `path` is the old file or the new one.

        Args:
            path: Where to.

        Raises:
            DataTypeError: When it holds what no model file can hold, as a likelihood of your own.
            ModelFileError: When the file cannot be written.
        """
        where = arrow_file.as_path(path)
        arrow_file.write(where, *describe(self))


def describe(model: Saved) -> tuple[dict[str, Any], list[Array]]:
    """A model as a description in plain values, and the arrays that it refers to."""
    out = _Description()
    out.add(model)
    return {"objects": out.objects}, out.arrays


def check_names(parts: Mapping[str, Any], known: Iterable[str], what: str) -> None:
    """Refuse parts that nobody here would read: without them it would be another model."""
    unknown = parts.keys() - set(known)
    if unknown:
        raise arrow_file.UnknownPart(f"{what} with {min(unknown)!r:.80}")


class _Description:
    """Objects in an order in which each comes after those it is made of."""

    def __init__(self) -> None:
        self.objects = list[dict[str, Any]]()
        self.arrays = list[Array]()
        self._object_numbers = dict[int, int]()
        self._array_numbers = dict[Any, int]()
        # An address means one object only as long as the object lives.
        self._alive = list[Any]()

    def add(self, item: Saved) -> int:
        """Its number, itself and its parts described unless they are already."""
        if id(item) in self._object_numbers:
            return self._object_numbers[id(item)]
        kind = type(item).__dict__.get("saved_as")
        if kind is None:
            raise DataTypeError(f"{type(item).__name__} cannot be saved. {type(item).not_saved}")
        parts = {name: self._plain(name, value) for name, value in item.saved().items()}
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

    def _plain(self, name: str, value: Any) -> Any:
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            return {"array": self._array(value)}
        if isinstance(value, Saved):
            return {"object": self.add(value)}
        if isinstance(value, tuple):
            return [self._plain(name, one) for one in value]
        if isinstance(value, bytes):
            return {"bytes": self._array(np.frombuffer(value, np.uint8))}
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, float) and not math.isfinite(value):
            return {"number": str(value)}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise DataTypeError(f"{name} cannot be saved: it is a {type(value).__name__}. {Saved.not_saved}")
