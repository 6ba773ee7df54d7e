"""What every command does on a terminal: signs of life, warnings, and errors in one line."""

from __future__ import annotations

import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import typer

from manyarms.cli.error_words import in_flags
from manyarms.errors import InputError, ManyarmsError, NumericalError

UNEXPECTED, BAD_INPUT, INTERRUPTED, TERMINATED = 1, 2, 130, 143
"""Exit codes: something that should not happen, what a user can mend, what a shell reports of Ctrl-C and of kill."""

PATIENCE = 1.0
"""Seconds that a user waits before a bar appears."""


@contextmanager
def one_line_errors() -> Generator[None]:
    """What a user can mend ends in one line on stderr and exit code 2; all else is a bug and keeps its traceback."""
    try:
        with _terminable(), warnings.catch_warnings():
            # Said at every start, and of parts of Spark that are not used here.
            warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
            yield
    except NumericalError as error:
        fail(error_line(error), UNEXPECTED)
    except ManyarmsError as error:
        fail(error_line(error))
    except OSError as error:
        fail(f"cannot use {error.filename}: {error.strerror}." if error.filename else str(error.strerror or error))
    except KeyboardInterrupt:
        fail("stopped.", INTERRUPTED)
    except _TerminatedError:
        fail("stopped.", TERMINATED)


def error_line(error: ManyarmsError) -> str:
    """An error in the words of the command line: the flag of its argument, the problem, and the remedy by flags.

    An argument that no flag of the running command sets keeps its name: "rewards must be 0 or 1".
    """
    argument = re.sub(r"\w+", lambda name: _flag_of(name[0]), error.argument)
    parts = (argument, error.problem, error.flag_remedy or error.remedy)
    return in_flags(" ".join(part for part in parts if part))


FLAGS_OF_ARGUMENTS = {"effect_std": "prior_std", "n_components": "components"}
"""Arguments in Python whose flag has another name."""

running_flags = ContextVar[Mapping[str, str]]("running_flags", default=MappingProxyType({}))
"""The flags of the running command, by the names of its parameters."""


def _flag_of(argument: str) -> str:
    return running_flags.get().get(FLAGS_OF_ARGUMENTS.get(argument, argument), argument)


class _TerminatedError(BaseException):
    """Someone, such as a scheduler whose patience ended, asked the process to stop."""


@contextmanager
def _terminable() -> Generator[None]:
    """Let a kill unwind as Ctrl-C does, so that drafts of files are removed on the way."""

    def stop(number: int, frame: object) -> None:
        raise _TerminatedError

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def fail(message: str, code: int = BAD_INPUT) -> NoReturn:
    """One line, and an exit code."""
    typer.echo(f"manyarms: error: {_one_line(message)}", err=True)
    raise typer.Exit(code) from None


def check_output(path: Path) -> None:
    """Refuse a place where no file can be written, before hours of work go into it."""
    if path.is_dir():
        raise InputError(f"--out must name a file; {path} is a folder. Name another place, or remove it.")
    if not path.parent.is_dir():
        raise InputError(f"--out must lie in a folder that is there; there is none at {path.parent}.")
    _check_writable(path)


def check_output_folder(path: Path, why: str, instead: str) -> None:
    """The same of a folder of files, which is made if it is not there.

    Args:
        path: The folder.
        why: Why it must be one.
        instead: How to get a single file.
    """
    if path.is_file():
        raise InputError(
            f"--out must name a folder, since {why}; {path} is a file. Name another place, remove it, or {instead}."
        )
    above = next(one for one in (path, *path.absolute().parents) if one.exists())
    if not above.is_dir():
        raise InputError(f"--out must lie in a folder; {above} is a file.")
    _check_writable(above / "part")


def _check_writable(path: Path) -> None:
    from manyarms._base.files import check_writable  # noqa: PLC0415

    try:
        check_writable(path)
    except OSError as problem:
        raise InputError(
            f"--out cannot be written into {path.parent}: {problem.strerror}. Name another place."
        ) from None


def warn(message: str) -> None:
    """One line on stderr; the command goes on."""
    typer.echo(f"manyarms: warning: {_one_line(message)}", err=True)


def _one_line(message: str) -> str:
    return " ".join(message.split())


@contextmanager
def spinner(doing: str) -> Generator[None]:
    """A sign of life on a terminal; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console  # noqa: PLC0415

    with Console(stderr=True).status(f"{doing} ..."):
        yield


@contextmanager
def row_bar(doing: str) -> Generator[RowBar]:
    """Rows done, rows a second and the time left, on a terminal and once it takes a second; elsewhere nothing.

    Args:
        doing: What is done with the rows.
    """
    bar = RowBar(doing, shown=sys.stderr.isatty())
    try:
        yield bar
    finally:
        bar.stop()


class RowBar:
    """A bar that appears when it is worth it, and begins anew with every pass.

    Args:
        doing: What is done with the rows.
        shown: Whether there is anyone to see it.
    """

    def __init__(self, doing: str, shown: bool):
        self._doing, self._shown, self._begun = doing, shown, time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, done: int, total: int | None) -> None:
        """So many rows are done, of so many (None or 0: it is not known)."""
        if not self._ready():
            return
        if done == 0:
            self._bar.reset(self._task, total=total or None, description=self._doing)
        self._bar.update(self._task, completed=done, total=total or None)

    def step(self, done: int, total: int) -> None:
        """All rows are read, and a search with no known end has come so far."""
        if self._ready():
            self._bar.update(self._task, description=f"Learning, step {done}", total=None)

    def stop(self) -> None:
        """Leave the terminal as it was."""
        if self._bar is not None:
            self._bar.stop()

    def _ready(self) -> bool:
        if not self._shown or time.monotonic() - self._begun < PATIENCE:
            return False
        if self._bar is None:
            self._bar = _bar()
            self._bar.start()
            self._task = self._bar.add_task(self._doing, total=None)
        return True


def _bar() -> Any:
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn  # noqa: PLC0415
    from rich.table import Column  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    class Rows(ProgressColumn):
        """Rows done and rows a second."""

        def render(self, task: Task) -> Text:
            speed = "" if task.speed is None else f"  {task.speed:,.0f} rows/s"
            return Text(f"{int(task.completed):,} rows{speed}" if task.completed else "")

    columns = (TextColumn("{task.description}"), BarColumn(), Rows(Column(no_wrap=True)), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


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
