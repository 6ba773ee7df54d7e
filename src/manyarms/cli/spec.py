"""The options of a command, from its flags and from a TOML file with the tables logs, catalog, prior and likelihood.

Flags win over the file. A path in the file is taken from the folder that the file lies in.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from manyarms._base.options import NEEDED, TABLES, Names, Option, options_of, value_type
from manyarms.errors import InputError

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
KINDS: dict[type, str] = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def read_spec(path: Path | None, flags: Mapping[str, Any], known: Mapping[str, tuple[Any, Option]]) -> dict[str, Any]:
    """The values of options that were given, by name; None and empty lists are flags that were not given.

    Options in the file that the command does not have are checked, and left out.
    """
    given = {} if path is None else _read_file(path)
    for name, (hint, _) in known.items():
        value = flags.get(name)
        if value is not None and value != []:
            given[name] = _as_value(f"--{name.replace('_', '-')}", value, hint)
    for name, (_, option) in known.items():
        if option.default is NEEDED and name not in given:
            table = next(table for table, kinds in TABLES.items() if name in options_of(*kinds))
            place = f"{option.key or name} under [{table}]"
            raise InputError(f"--{name} is needed, as a flag or as {place} in the --spec file.")
    return {name: value for name, value in given.items() if name in known}


def _read_file(path: Path) -> dict[str, Any]:
    """The options in a TOML file, by name."""
    try:
        with open(path, "rb") as file:
            tables = tomllib.load(file)
    except tomllib.TOMLDecodeError as damage:
        raise InputError(f"{path} is not TOML: {damage}.") from damage
    except UnicodeDecodeError as damage:
        raise InputError(f"{path} is not text in UTF-8.") from damage
    given = dict[str, Any]()
    for table, keys in tables.items():
        if table not in TABLES:
            known = ", ".join(f"[{name}]" for name in TABLES)
            raise InputError(f"{path} has a table or key {table!r}; known are {known}.")
        if not isinstance(keys, dict):
            raise InputError(f"{path}: {table} must be a table, [{table}].")
        options = {option.key or name: (name, hint) for name, (hint, option) in options_of(*TABLES[table]).items()}
        for key, value in keys.items():
            if key not in options:
                raise InputError(f"{path}: [{table}] has no key {key!r}; known are {', '.join(options)}.")
            name, hint = options[key]
            given[name] = _as_value(f"{path}: {table}.{key}", value, hint)
            if key == "path":
                given[name] = str(path.parent / given[name])
    return given


def _as_value(name: str, value: Any, hint: Any) -> Any:
    """A value of the type that an option has, from TOML or from a flag."""
    kind = value_type(hint)
    if kind == Names:
        return split_names(name, value)
    if kind is timedelta:
        return _as_span(name, value)
    if kind is datetime:
        return _as_time(name, value)
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise InputError(f"{name} must be one of {', '.join(get_args(kind))}; got {value!r}.")
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise InputError(f"{name} must be {KINDS[kind]}; got {value!r}.")
    return value


def split_names(name: str, value: Any) -> tuple[str, ...]:
    """Names as a key of the spec holds them, or a flag: a list of texts, or one text separated by commas."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise InputError(f"{name} must be a list of names; got {value!r}.")
    return tuple(word for text in texts for word in (part.strip() for part in str(text).split(",")) if word)


def _as_span(name: str, value: Any) -> timedelta:
    text = str(value).strip()
    try:
        span = timedelta(**{UNITS[text[-1:]]: float(text[:-1])})
    except (KeyError, ValueError, OverflowError):
        raise InputError(f"{name} must be a number and one of s, m, h, d, w, as in 14d; got {value!r}.") from None
    if span <= timedelta(0):
        raise InputError(f"{name} must be above zero, as in 14d; got {value!r}.")
    return span


def _as_time(name: str, value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    try:
        return datetime.fromisoformat(str(value))
    except ValueError:
        raise InputError(f"{name} must be a time such as 2024-05-01T03:00:00+00:00; got {value!r}.") from None
