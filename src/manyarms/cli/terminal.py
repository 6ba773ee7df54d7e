"""What every command does on a terminal: signs of life, and errors in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
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


STOPPING = "stopping ... (what is under way is finished first; Ctrl-C again ends it at once)"


@dataclass(frozen=True)
class Signs:
    """What a long run is to call.

    Attributes:
        progress: With the number of cells done and of all.
        on_interrupt: On Ctrl-C.
    """

    progress: Callable[[int, int], None]
    on_interrupt: Callable[[], None]


@contextmanager
def signs_of_life(what: str) -> Generator[Signs]:
    """On a terminal a bar, with the cells done and the time left; elsewhere a line that says how many there are."""
    if not sys.stderr.isatty():
        yield Signs(lambda done, total: _announce(what, done, total), lambda: typer.echo(STOPPING, err=True))
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield Signs(
            lambda done, total: bar.update(task, completed=done, total=total),
            lambda: bar.console.print(STOPPING, highlight=False),
        )


def _announce(what: str, done: int, total: int) -> None:
    if done == 0:
        typer.echo(f"{what}: {f'{total:,} cells to do' if total else 'nothing to do'}", err=True)
