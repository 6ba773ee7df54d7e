"""Flags of the commands, made from the options that are defined in `_base.options`, and what a shell completes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from manyarms._base.options import ESTIMATORS, NEEDED, POLICIES, TABLES, Names, Option, options_of, value_type
from manyarms.cli.spec import read_spec
from manyarms.cli.terminal import one_line_errors

Completer = Callable[[str], list[tuple[str, str]]]
"""From an incomplete word to the words that it may become, each with a note."""

PANELS = {"logs": "Logs", "catalog": "Catalog", "prior": "Model", "likelihood": "Model"}
"""The heading in `--help` under which the options of a table of a spec file are listed."""


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


def figure_names(incomplete: str) -> list[tuple[str, str]]:
    """Shell completion, like that of flags, of the figures of `manyarms reproduce`, with their titles."""
    from manyarms.experiments.reproduction import figures  # noqa: PLC0415  slow to import

    return [(name, figure.title) for name, figure in figures().items() if name.startswith(incomplete)]


policy_names = _some_of(POLICIES)
COMPLETERS = {"policies": policy_names, "estimators": _some_of(ESTIMATORS)}

SpecFile = Annotated[
    Path | None,
    typer.Option("--spec", help="TOML file with the tables logs, catalog, prior and likelihood. Flags override it."),
]
Engine = Annotated[
    str,
    typer.Option(
        "--engine",
        help="Where to run: local, dask or spark (the last two are extras). For a running cluster, pass "
        "dask:tcp://HOST:8786 or spark:MASTER.",
        autocompletion=_one_of(("local", "dask", "spark")),
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON instead of text.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed for all random numbers.")]
Model = Annotated[Path, typer.Option("--model", help="Model file that `manyarms fit` wrote.")]
EvaluatedModel = Annotated[
    Path | None, typer.Option("--model", help="Model file. Without one, only the --estimators are computed.")
]
NewModel = Annotated[Path, typer.Option("--out", help="Model file to write; an existing file is replaced.")]


def with_options(*kinds: type, without: Sequence[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the flags of some classes of options; it receives those that were given, as `**options`.

    The value of an option comes from its flag or else from the file that `--spec` names. Errors that a user can mend
    end in one line. `without` names options of these classes that the command does not have.
    """
    known = {name: part for name, part in options_of(*kinds).items() if name not in without}
    panels = {name: PANELS[table] for table, parts in TABLES.items() for name in options_of(*parts)}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [part for part in inspect.signature(command, eval_str=True).parameters.values() if part.name != "options"]
        spec = inspect.Parameter("spec", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=SpecFile)
        flags = [_flag(name, *known[name], panels.get(name)) for name in known]
        # Required ones first, as in any signature.
        shown = sorted([*own, *flags, spec], key=lambda part: part.default is not inspect.Parameter.empty)

        @functools.wraps(command)
        def run(**values: Any) -> None:
            with one_line_errors():
                options = read_spec(values["spec"], values, known)
                command(**{part.name: values[part.name] for part in own}, **options)

        parts = [part.replace(kind=inspect.Parameter.KEYWORD_ONLY) for part in shown]
        run.__signature__ = inspect.Signature(parts)  # pyright: ignore[reportAttributeAccessIssue]
        run.__annotations__ = {part.name: part.annotation for part in parts}
        return run

    return decorate


def _flag(name: str, hint: Any, option: Option, panel: str | None) -> inspect.Parameter:
    """The flag of an option; its default is None, which says that it was not given."""
    word = name.replace("_", "-")
    kind = value_type(hint)
    names = [f"--{word}/--no-{word}"] if kind is bool else [f"--{word}", *([option.alias] if option.alias else [])]
    words = get_args(kind) if get_origin(kind) is Literal else ()
    info = typer.Option(
        *names,
        help=_help(option),
        metavar=option.metavar or "|".join(words) or ("NAME,..." if kind == Names else None),
        min=option.minimum,
        autocompletion=COMPLETERS.get(name) or (_one_of(words) if words else None),
        rich_help_panel=panel,
    )
    # Texts are read as TOML has them, by `spec`.
    types: dict[Any, Any] = {int: int, float: float, bool: bool, Names: list[str]}
    annotation = Annotated[types.get(kind, str) | None, info]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _help(option: Option) -> str:
    """The help of an option, with its default where that says something."""
    if option.default in (None, (), NEEDED) or isinstance(option.default, bool):
        return option.help
    default = ",".join(option.default) if isinstance(option.default, tuple) else str(option.default).removesuffix(".0")
    return f"{option.help.removesuffix('.')} (default {default})."
