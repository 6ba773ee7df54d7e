"""Methods by name, those of the library and those of the user."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from manyarms.errors import InputError, without_full_stop
from manyarms.experiments.methods import METHODS, Method

FORM = "Name it as file.py:Class or module:Class, Class being a subclass of manyarms.experiments.Method."


@dataclass(frozen=True)
class OwnFile:
    """The file that a method of one's own comes from; files that it imports are not looked at.

    Attributes:
        name: Without its folder.
        digest: Of what is in it.
    """

    name: str
    digest: str


def as_places(extra: Sequence[Any]) -> tuple[str, ...]:
    """Texts that say where classes are: worker processes import them from there, and cannot be handed objects."""
    if isinstance(extra, str):
        raise InputError(f"extra_methods must be a list of texts; got {extra!r}. Pass [{extra!r}].")
    for place in extra:
        if not isinstance(place, str):
            kind = place.__name__ if isinstance(place, type) else type(place).__name__
            raise InputError(f"extra_methods must be texts, since worker processes import them; got {kind}. {FORM}")
    return tuple(extra)


def own_files(places: tuple[str, ...]) -> dict[str, OwnFile]:
    """Where methods of one's own come from, by their names; a module without a file of its own is left out."""
    found: dict[str, OwnFile] = {}
    for place, name in zip(places, list(methods_by_name(places))[len(METHODS) :], strict=True):
        where = place.rpartition(":")[0]
        path = where if where.endswith(".py") else getattr(sys.modules[where], "__file__", None)
        if path is not None:
            found[name] = OwnFile(Path(path).name, sha256(Path(path).read_bytes()).hexdigest()[:32])
    return found


@lru_cache(maxsize=8)
def methods_by_name(extra: tuple[str, ...] = ()) -> dict[str, Method]:
    """The library's methods and those that the user names; a name can be taken once only."""
    found = dict(METHODS)
    for place in extra:
        method = load_method(place)
        if method.name in found:
            raise InputError(f"{place} is called {method.name!r}, which is taken. Give it another name.")
        found[method.name] = method
    return found


def load_method(place: str) -> Method:
    """An instance of the class at file.py:Class or module:Class: the user's own code, run since they asked for it."""
    where, colon, name = place.rpartition(":")
    if not colon or not where or not name:
        raise InputError(f"{place!r} does not say which class is meant. {FORM}")
    module = _load_file(Path(where)) if where.endswith(".py") else _load_module(where)
    found = getattr(module, name, None)
    if not isinstance(found, type) or not issubclass(found, Method):
        raise InputError(f"{where} has no class {name} that is a Method. {FORM}")
    try:
        method = found()
    except (Exception, SystemExit) as error:
        raise InputError(
            f"{name}() failed: {type(error).__name__}: {without_full_stop(error)}. It must need no arguments."
        ) from error
    if not isinstance(getattr(method, "name", None), str) or not method.name:
        raise InputError(f'{name} has no name: write `name = "..."` in the class.')
    if not method.offers("ope") and not method.offers("opl"):
        raise InputError(f"{name} has neither `estimate` nor `learn`, so there is nothing to run.")
    return method


def check_names(names: Iterable[str], known: Iterable[str], what: str) -> None:
    """Refuse names that do not exist, and say which do."""
    options = sorted(known, key=str.casefold)
    unknown = [name for name in names if name not in options]
    if unknown:
        raise InputError(f"there is no {what} {'; '.join(unknown)}. There are: {'; '.join(options)}.")


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise InputError(f"{path} is not a file. {FORM}")
    # A name of its own: the file may be called as a module is that something else imports.
    name = f"manyarms_method_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is no Python file. {FORM}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # As for a script: what lies beside the file can be imported from it.
    sys.path.append(str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise InputError(f"{path} cannot be imported: {type(error).__name__}: {without_full_stop(error)}.") from error
    return module


def _load_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise InputError(
            f"{name} cannot be imported: {type(error).__name__}: {without_full_stop(error)}. {FORM}"
        ) from error
