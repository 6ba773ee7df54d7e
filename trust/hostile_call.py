"""A valid call of a public entry point, from which hostile calls are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from trust.hostile_world import HostileWorld

Arguments = dict[str, Any]


@dataclass(frozen=True)
class HostileCall:
    """An entry point and its valid arguments.

    Args:
        name: The public name, with its module or class.
        function: What is called, given the world.
        arguments: The valid arguments, given the world.
        kinds: The kind of an argument where its value does not show it.
    """

    name: str
    function: Callable[[HostileWorld], Callable[..., Any]]
    arguments: Callable[[HostileWorld], Arguments]
    kinds: Mapping[str, str] = field(default_factory=dict[str, str])

    def kind_of(self, argument: str, value: Any) -> str:
        """The kind of an argument, which decides how it is corrupted."""
        return self.kinds.get(argument) or _KINDS_BY_NAME.get(argument) or _kind_of_value(value)


_KINDS_BY_NAME = {
    "eligible": "eligible",
    "rows": "rows",
    "groups": "groups",
    "times": "groups",
    "segments": "labels",
    "name": "name",
    "title": "name",
}
_KINDS_BY_TYPE: tuple[tuple[Any, str], ...] = (
    (bool, "flag"),
    (int, "count"),
    (float, "number"),
    (str, "choice"),
    (Path, "path"),
    (np.random.Generator, "rng"),
    ((list, tuple, dict), "collection"),
    ((FunctionType, MethodType, np.ufunc, type), "function"),
)


def _kind_of_value(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return "actions" if value.dtype.kind == "i" else "numbers"
    if isinstance(value, list) and value and isinstance(value[0], str):  # pyright: ignore[reportUnknownArgumentType]
        return "labels"
    return next((kind for type_, kind in _KINDS_BY_TYPE if isinstance(value, type_)), "object")


def make_call(name: str, function: Any, arguments: Callable[[HostileWorld], Arguments], **kinds: str) -> HostileCall:
    """The valid call of a function or a class."""
    return HostileCall(name, lambda world: function, arguments, kinds)


def make_method(
    name: str, owner: Callable[[HostileWorld], Any], arguments: Callable[[HostileWorld], Arguments], **kinds: str
) -> HostileCall:
    """The valid call of a method, whose object comes from the world."""
    method = name.rsplit(".", 1)[1]
    return HostileCall(name, lambda world: getattr(owner(world), method), arguments, kinds)
