"""Methods that a user brings: subclasses of `Method`, imported from file.py:Class or module:Class."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from manyarms.errors import InputError, without_full_stop
from manyarms.experiments.methods import METHODS, Method

FORM = "Name it as file.py:Class or module:Class, where Class is a subclass of manyarms.experiments.Method."


def check_method_paths(specs: Sequence[Any]) -> tuple[str, ...]:
    """Require methods by import path, such as "module:Class", since worker processes import them."""
    if isinstance(specs, str):
        raise InputError(f"must be a list of texts; got {specs!r}.", f"Pass [{specs!r}].", argument="extra_methods")
    for spec in specs:
        if not isinstance(spec, str):
            kind = spec.__name__ if isinstance(spec, type) else type(spec).__name__
            problem = f"must be texts, since worker processes import them; got {kind}."
            raise InputError(problem, FORM, argument="extra_methods")
    return tuple(specs)


def method_files(specs: tuple[str, ...]) -> dict[str, Path]:
    """The files of user methods, by the names of the methods; a module without a file of its own is left out."""
    files: dict[str, Path] = {}
    for spec, name in zip(specs, list(with_user_methods(specs))[len(METHODS) :], strict=True):
        source = spec.rpartition(":")[0]
        path = source if source.endswith(".py") else getattr(sys.modules[source], "__file__", None)
        if path is not None:
            files[name] = Path(path)
    return files


@lru_cache(maxsize=8)
def with_user_methods(specs: tuple[str, ...] = ()) -> dict[str, Method]:
    """The user's methods beside those of the library, by name; each name can be taken only once."""
    methods = dict(METHODS)
    for spec in specs:
        method = load_method(spec)
        if method.name in methods:
            raise InputError(f"{spec} is called {method.name!r}, which is taken.", "Give it another name.")
        methods[method.name] = method
    return methods


def load_method(spec: str) -> Method:
    """An instance of the class at file.py:Class or module:Class. This runs the user's own code, as they asked."""
    source, _, name = spec.rpartition(":")
    if not source or not name:
        raise InputError(f"{spec!r} does not say which class is meant.", FORM)
    in_file = source.endswith(".py")
    if in_file and not Path(source).is_file():
        raise InputError(f"{source} is not a file.", FORM)
    try:
        module = _load_file(Path(source)) if in_file else importlib.import_module(source)
    except (Exception, SystemExit) as error:
        problem = f"{source} cannot be imported: {type(error).__name__}: {without_full_stop(error)}."
        raise InputError(problem, "" if in_file else FORM) from error
    method_class = getattr(module, name, None)
    if not isinstance(method_class, type) or not issubclass(method_class, Method):
        raise InputError(f"{source} has no class {name} that is a Method.", FORM)
    try:
        method = method_class()
    except (Exception, SystemExit) as error:
        problem = f"{name}() failed: {type(error).__name__}: {without_full_stop(error)}."
        raise InputError(problem, "It must need no arguments.") from error
    if not isinstance(getattr(method, "name", None), str) or not method.name:
        raise InputError(f"{name} has no name.", 'Write `name = "..."` in the class.')
    if not method.offers("ope") and not method.offers("opl"):
        raise InputError(f"{name} has neither `estimate` nor `learn`: there is nothing to run.", "Write one of them.")
    return method


def _load_file(path: Path) -> ModuleType:
    # A module name of its own: the file may have the name of a module that something else imports.
    name = f"manyarms_method_{path.stem}"
    spec: Any = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # As for a script, files beside it can be imported.
    sys.path.append(str(path.parent.resolve()))
    spec.loader.exec_module(module)
    return module
