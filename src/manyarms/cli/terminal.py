"""What every command does on a terminal: signs of life, and errors in one line."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import NoReturn

import typer

from manyarms.errors import ManyarmsError


@contextmanager
def one_line_errors() -> Generator[None]:
    """What a user can cause ends in one line on stderr and exit code 1; all else is a bug and keeps its traceback."""
    try:
        yield
    except ManyarmsError as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot use {error.filename}: {error.strerror}." if error.filename else str(error.strerror or error))


def fail(message: str) -> NoReturn:
    """One line, exit code 1."""
    typer.echo(f"manyarms: error: {message}", err=True)
    raise typer.Exit(1) from None


@contextmanager
def spinner(doing: str) -> Generator[None]:
    """A sign of life on a terminal; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console  # noqa: PLC0415

    with Console(stderr=True).status(f"{doing} ..."):
        yield
