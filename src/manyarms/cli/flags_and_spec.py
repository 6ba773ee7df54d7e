"""The options of a command, from its flags and from its spec, a TOML file with the tables logs, catalog, prior, ...

Flags are made from the options that are defined in `_base.job_options`, with what a shell completes, and win over
the spec. A path in the spec is taken from the folder that the file lies in.
"""

from __future__ import annotations

import functools
import inspect
import tomllib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from manyarms._base.files import check_output, check_output_folder, refuse_inputs
from manyarms._base.job_options import (
    CHOOSING,
    ESTIMATORS,
    NEEDED,
    POLICIES,
    REPORT_FORMATS,
    START,
    TABLES,
    Names,
    Option,
    options_of,
    value_type,
)
from manyarms.cli.terminal import note, one_line_errors
from manyarms.errors import InputError

Completer = Callable[[str], list[tuple[str, str]]]
"""From an incomplete word to the words that it may become, each with a note."""

OUTPUTS = ("out", "policy", "chart")
"""Flags that name a file to write, where a command has them."""

PANELS = {"logs": "Logs", "catalog": "Catalog", "prior": "Model", "likelihood": "Model"}
"""The heading in `--help` under which the options of a table of a spec file are listed."""

LEARNED = "Only a starting value: it is learned from the logs."
"""What a command that always learns the prior says of a parameter of it."""


def _one_of(names: Iterable[str]) -> Completer:
    """Complete one name."""

    def complete(incomplete: str) -> list[tuple[str, str]]:
        return [(name, "") for name in names if name.startswith(incomplete)]

    return complete


def _some_of(names: Mapping[str, str]) -> Completer:
    """Complete names separated by commas, each with the meaning of its number: those that are there are kept."""

    def complete(incomplete: str) -> list[tuple[str, str]]:
        before, comma, last = incomplete.rpartition(",")
        taken = {name.partition(":")[0] for name in before.split(",")}
        return [
            (f"{before}{comma}{name}", f":{number}" if number else "")
            for name, number in names.items()
            if name.startswith(last) and name not in taken
        ]

    return complete


policy_names = _some_of(POLICIES)
COMPLETERS = {"policies": policy_names, "candidate": _one_of(POLICIES), "estimators": _some_of(ESTIMATORS)}

SpecFile = Annotated[
    Path | None,
    typer.Option(
        "--spec",
        help="TOML file with options under [logs], [catalog], [prior] and [likelihood]. Options that this command does "
        "not use are ignored. Options on the command line override the file.",
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        "--engine",
        help="Where to run: local (this process), dask or spark. For the last two, install manyarms\\[dask] or "
        "manyarms\\[spark]. For a running cluster, pass dask:tcp://HOST:8786 or spark:MASTER.",
        autocompletion=_one_of(("local", "dask", "spark")),
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON instead of text.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed for all random numbers.")]
Model = Annotated[Path, typer.Option("--model", help="Model file written by `manyarms fit`.")]
EvaluatedModel = Annotated[
    Path | None, typer.Option("--model", help="Model file. Without one, only the --estimators are run.")
]
NewModel = Annotated[Path, typer.Option("--out", help="Model file to write; an existing file is replaced.")]


def with_options(
    *kinds: type, without: Sequence[str] = (), defaults: Mapping[str, str] = MappingProxyType({})
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the flags of some classes of options; it receives those that were given, as `**options`.

    The value of an option comes from its flag or else from the file that `--spec` names. Errors that a user can fix
    end in one line. `without` names options of these classes that the command does not have. `defaults` says in words
    what the command does where some of its options are not given.
    """
    named = {name: part for name, part in options_of(*kinds).items() if name not in without}
    # Required ones first, also within a panel of `--help`.
    known = dict(sorted(named.items(), key=lambda entry: entry[1][1].default is not NEEDED))
    panels = {name: PANELS[table] for table, parts in TABLES.items() for name in options_of(*parts)}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [part for part in inspect.signature(command, eval_str=True).parameters.values() if part.name != "options"]
        spec = inspect.Parameter("spec", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=SpecFile)
        flags = [
            _flag(name, hint, option, panels.get(name), _help(name, option, known, defaults))
            for name, (hint, option) in known.items()
        ]
        # Required ones first, as in any signature.
        shown = sorted([*own, *flags, spec], key=lambda part: part.default is not inspect.Parameter.empty)

        @functools.wraps(command)
        def run(**values: Any) -> None:
            with one_line_errors():
                spec_file = values["spec"]
                given = read_spec(spec_file, values, known)
                for part in own:
                    if spec_file is not None and part.name in OUTPUTS and values[part.name] is not None:
                        refuse_inputs(values[part.name], [spec_file], part.name)
                options = {name: value for name, value in given.items() if name in known}
                # What a model was fitted with is settled, so there is nothing to say about it.
                unused = [] if "model" in values else [name for name in given if name not in known]
                with _naming(unused, spec_file):
                    command(**{part.name: values[part.name] for part in own}, **options)

        parts = [part.replace(kind=inspect.Parameter.KEYWORD_ONLY) for part in shown]
        run.__signature__ = inspect.Signature(parts)  # pyright: ignore[reportAttributeAccessIssue]
        run.__annotations__ = {part.name: part.annotation for part in parts}
        return run

    return decorate


@contextmanager
def _naming(unused: Sequence[str], spec: Path | None) -> Generator[None]:
    """A note, at the end of a command, on the options of a spec that it did not use; an error stays alone."""

    def name_them() -> None:
        if unused:
            note(f"this command does not use {', '.join('.'.join(PLACES[name]) for name in unused)} from {spec}.")

    try:
        yield
    except typer.Exit:  # a verdict as the exit code
        name_them()
        raise
    name_them()


def _flag(name: str, hint: Any, option: Option, panel: str | None, text: str) -> inspect.Parameter:
    """The flag of an option, with the text for `--help`; its default is None, which says that it was not given."""
    word = name.replace("_", "-")
    kind = value_type(hint)
    names = [f"--{word}/--no-{word}"] if kind is bool else [f"--{word}", *([option.alias] if option.alias else [])]
    words = get_args(kind) if get_origin(kind) is Literal else ()
    info = typer.Option(
        *names,
        help=text,
        metavar=option.metavar or "|".join(words) or ("NAME,..." if kind == Names else None),
        min=option.minimum,
        autocompletion=COMPLETERS.get(name) or (_one_of(words) if words else None),
        rich_help_panel=panel,
    )
    # Texts are read as TOML has them, by `read_spec`.
    types: dict[Any, Any] = {int: int, float: float, bool: bool, Names: list[str]}
    annotation = Annotated[types.get(kind, str) | None, info]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _help(name: str, option: Option, known: Mapping[str, Any], defaults: Mapping[str, str]) -> str:
    """The help of an option in a command that has the `known` ones, with its default where that says something."""
    text = option.help
    if "learn_prior" not in known:
        text = text.replace(START, LEARNED)
    if not {"policies", "candidate"} & known.keys():
        text = text.replace(CHOOSING, "")
    if option.default is NEEDED:
        return f"{text} Required, here or in the --spec file."
    default = defaults.get(name, "")
    if not default and (option.default in (None, ()) or isinstance(option.default, bool)):
        return text
    if not default:
        both = isinstance(option.default, tuple)
        default = ",".join(option.default) if both else str(option.default).removesuffix(".0")
    text = text.removesuffix(".")
    return f"{text}. Default: {default}." if ". " in text else f"{text} (default {default})."


UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


KINDS: dict[type, str] = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


PLACES = {
    name: (table, option.key or name)
    for table, kinds in TABLES.items()
    for name, (_, option) in options_of(*kinds).items()
}
"""The table and the key of each option in a spec file, by its name."""


def read_spec(path: Path | None, flags: Mapping[str, Any], known: Mapping[str, tuple[Any, Option]]) -> dict[str, Any]:
    """Values of options given by flags or in the spec, by name; None and empty lists are flags that were not given.

    One file serves several commands: options in it that this one does not have are checked, and are among the values.
    """
    given = {} if path is None else _read_file(path)
    for name, (hint, _) in known.items():
        value = flags.get(name)
        if value is not None and value != []:
            given[name] = _as_value(f"--{name.replace('_', '-')}", value, hint)
    for name, (_, option) in known.items():
        if option.default is NEEDED and name not in given:
            table, key = PLACES[name]
            raise InputError(f"--{name} is needed, as a flag or as {key} under [{table}] in the --spec file.")
    return given


def _read_file(path: Path) -> dict[str, Any]:
    """The options in a TOML file, by name."""
    try:
        with open(path, "rb") as file:
            tables = tomllib.load(file)
    except tomllib.TOMLDecodeError as damage:
        raise InputError(f"{path} is not TOML: {damage}.") from damage
    except RecursionError:
        raise InputError(f"{path} has arrays or tables that are nested too deeply.", "No option needs that.") from None
    except UnicodeDecodeError as damage:
        raise InputError(f"{path} is not text in UTF-8.") from damage
    given = dict[str, Any]()
    for table, keys in tables.items():
        if table not in TABLES:
            known = ", ".join(f"[{name}]" for name in TABLES)
            raise InputError(f"{path} has a table or key {table!r}; known are {known}.")
        if not isinstance(keys, dict):
            raise InputError(f"{path}: {table} must be a table, [{table}].")
        listed = options_of(*TABLES[table])
        options = {option.key or name: (name, hint) for name, (hint, option) in listed.items()}
        for key, value in keys.items():
            # The name of the flag, and of the argument in Python, is a key as well.
            if key not in options and key not in listed:
                near = get_close_matches(key, [*options, *listed], 1)
                problem = f"{path}: [{table}] has no key {key!r}; known are {', '.join(options)}."
                raise InputError(problem, f"Did you mean {near[0]}?" if near else "")
            name, hint = options[key] if key in options else (key, listed[key][0])
            given[name] = _as_value(f"{path}: {table}.{key}", value, hint)
            if listed[name][1].key == "path":
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
    """The names in a flag or in a key of the spec, a list of texts or one text separated by commas."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise InputError(f"{name} must be a list of names; got {value!r}.")
    return tuple(word for text in texts for word in (part.strip() for part in str(text).split(",")) if word)


def report_format(out: Path, format: str | None, inputs: Sequence[Any]) -> str:
    """The format of a report by the flags --format and --out; --out must not name an input."""
    from manyarms.logs.sources import files_behind, refuse_overwriting  # noqa: PLC0415

    kind = format or out.suffix.removeprefix(".").lower() or "html"
    if kind not in REPORT_FORMATS:
        problem = f"must be one of {', '.join(REPORT_FORMATS)}; got {kind!r}."
        raise InputError(problem, "Pass one of these, or end --out in it.", argument="format")
    if kind not in ("svg", "png"):
        check_output(out)
        refuse_overwriting(out, *inputs)
        return kind
    check_output_folder(out, "each chart is a file", "pass --format html for one page")
    # Each chart is a file of its own in the folder.
    for file in (file for given in inputs for file in files_behind(given) if file.suffix.lower() == f".{kind}"):
        refuse_overwriting(out / file.name, file)
    return kind


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
