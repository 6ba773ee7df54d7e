"""What a command is told: flags, and a TOML file with the same under [logs], [catalog], [prior] and [likelihood].

Flags win over the file. A path in the file is taken from the folder that the file lies in.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from manyarms._base.option_values import Missing, PriorKind, Unknown
from manyarms.errors import InputError

Texts = tuple[str, ...]
LikelihoodKind = Literal["gaussian", "bernoulli", "poisson", "student-t", "log-normal"]


FLAGS = {
    ("logs", "path"): "logs",
    ("catalog", "path"): "catalog",
    ("prior", "kind"): "prior",
    ("prior", "learn"): "learn_prior",
    ("prior", "effect_std"): "prior_std",
    ("likelihood", "kind"): "likelihood",
}
"""What a key is called as a flag, where that differs."""


@dataclass(frozen=True)
class LogsSpec:
    """Where logs are and which column is what; see `read_logs`."""

    path: str | None = None
    context: Texts = ()
    action: str | None = None
    reward: str | None = None
    propensity: str | None = None
    weight: str | None = None
    group: str | None = None
    time: str | None = None
    categorical: Texts = ()
    max_levels: int = 100
    missing: Missing = "refuse"
    unknown: Unknown = "refuse"
    half_life: timedelta | None = None
    maturity: timedelta | None = None
    now: datetime | None = None


@dataclass(frozen=True)
class CatalogSpec:
    """Where the catalog is and which column is what; see `read_catalog`."""

    path: str | None = None
    id: str | None = None
    category: str | None = None
    tags: str | None = None
    taxonomy: Texts = ()
    embedding: Texts = ()
    separator: str = "|"


@dataclass(frozen=True)
class PriorSpec:
    """What actions share and by how much they differ; see `priors.from_catalog`."""

    kind: PriorKind | None = None
    learn: bool = True
    effect_std: float = 1.0
    action_std: float = 1.0
    shared_std: float = 1.0
    components: int | None = None


@dataclass(frozen=True)
class LikelihoodSpec:
    """How rewards arise."""

    kind: LikelihoodKind = "gaussian"
    noise_std: float = 1.0


@dataclass(frozen=True)
class Spec:
    """All of it.

    Attributes:
        logs: Where rows come from and what they mean.
        catalog: All actions.
        prior: What they share.
        likelihood: How rewards arise.
    """

    logs: LogsSpec = LogsSpec()
    catalog: CatalogSpec = CatalogSpec()
    prior: PriorSpec = PriorSpec()
    likelihood: LikelihoodSpec = LikelihoodSpec()


def read_spec(path: Path | None, flags: Mapping[str, Any]) -> Spec:
    """What a file says, and what flags say instead; None and empty lists are flags that were not given.

    Args:
        path: The TOML file, or None.
        flags: By the names of the parameters of a command; those that no table knows are left alone.

    Raises:
        InputError: Naming the key that is not known, or whose value is not of its kind.
    """
    tables = {} if path is None else _tables(path)
    parts = dict[str, Any]()
    for name, kind in get_type_hints(Spec).items():
        table = tables.get(name, {})
        parts[name] = _with_flags(_from_table(kind, name, table, path), name, flags)
    return Spec(**parts)


def needed(value: str | None, flag: str, key: str) -> str:
    """A value that must be given, or an error that says how."""
    if value is None:
        raise InputError(f"{flag} is needed, as a flag or as {key} in the --spec file.")
    return value


Table = TypeVar("Table")


def _tables(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            found = tomllib.load(file)
    except tomllib.TOMLDecodeError as damage:
        raise InputError(f"{path} is not TOML: {damage}.") from damage
    except UnicodeDecodeError as damage:
        raise InputError(f"{path} is not text in UTF-8.") from damage
    known = [one.name for one in fields(Spec)]
    for name, value in found.items():
        if name not in known:
            raise InputError(f"{path} has a table or key {name!r}; known are {', '.join(f'[{one}]' for one in known)}.")
        if not isinstance(value, dict):
            raise InputError(f"{path}: {name} must be a table, [{name}].")
    return found


def _from_table(kind: type[Table], name: str, table: Mapping[str, Any], path: Path | None) -> Table:
    hints = get_type_hints(kind)
    unknown = [key for key in table if key not in hints]
    if unknown:
        raise InputError(f"{path}: [{name}] has no key {unknown[0]!r}; known are {', '.join(hints)}.")
    found = {key: _value(f"{path}: {name}.{key}", value, hints[key]) for key, value in table.items()}
    if path is not None and "path" in found:
        found["path"] = str(path.parent / found["path"])
    return kind(**found)


def _with_flags(part: Any, name: str, flags: Mapping[str, Any]) -> Any:
    given = dict[str, Any]()
    for key, hint in get_type_hints(type(part)).items():
        flag = FLAGS.get((name, key), key)
        value = flags.get(flag)
        if value is not None and value != []:
            given[key] = _value(f"--{flag.replace('_', '-')}", value, hint)
    return replace(part, **given)


def _value(name: str, value: Any, hint: Any) -> Any:
    """A value of the kind that a field needs, from TOML or from a flag."""
    if hint == Texts:
        return names(name, value)
    kind = hint
    if get_origin(hint) is not Literal and get_args(hint):
        kind = next(one for one in get_args(hint) if one is not type(None))
    if kind is timedelta:
        return _span(name, value)
    if kind is datetime:
        return _moment(name, value)
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise InputError(f"{name} must be one of {', '.join(get_args(kind))}; got {value!r}.")
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise InputError(f"{name} must be {_KINDS[kind]}; got {value!r}.")
    return value


def names(name: str, value: Any) -> Texts:
    """Names: a list of them, or one text with commas."""
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(one, str) for one in parts):
        raise InputError(f"{name} must be a list of names; got {value!r}.")
    return tuple(text for one in parts for text in (piece.strip() for piece in str(one).split(",")) if text)


def _span(name: str, value: Any) -> timedelta:
    units = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
    text = str(value).strip()
    try:
        span = timedelta(**{units[text[-1:]]: float(text[:-1])})
    except (KeyError, ValueError, OverflowError):
        raise InputError(f"{name} must be a number and one of s, m, h, d, w, as in 14d; got {value!r}.") from None
    if span <= timedelta(0):
        raise InputError(f"{name} must be above zero, as in 14d; got {value!r}.")
    return span


def _moment(name: str, value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    try:
        return datetime.fromisoformat(str(value))
    except ValueError:
        raise InputError(f"{name} must be a time such as 2024-05-01T03:00:00+00:00; got {value!r}.") from None


_KINDS: dict[type, str] = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
