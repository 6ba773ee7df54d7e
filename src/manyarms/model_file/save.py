"""Save a model: objects are made of numbers, names, arrays and other such objects, and each kind has a name.

An object lists its parts (`saved`) and is made from them again (`from_saved`). A part that two objects share is written
once, and they share it again after loading. Parts from a file are checked first (`check_saved`): a file from a stranger
may hold anything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar

import numpy as np

from manyarms._base.checks import Array
from manyarms.errors import DataTypeError
from manyarms.model_file.arrow_file import WrongPart, as_model_path, write
from manyarms.model_file.part_checks import PartCheck


class Saved:
    """Base class of the objects that `save` can write as parts of a model file.

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
        write(as_model_path(path), *describe(self))


def describe(model: Saved) -> tuple[dict[str, Any], list[Array]]:
    """Describe a model to be saved: plain values, and the arrays that they refer to."""
    description = _Description()
    description.add(model)
    return {"objects": description.objects}, description.arrays


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
