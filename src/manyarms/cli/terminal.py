"""The terminal side of every command: progress bars, warnings, and errors in one line."""

from __future__ import annotations

import os
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
from types import MappingProxyType
from typing import Any, NoReturn

import typer

from manyarms.errors import ManyarmsError

UNEXPECTED, BAD_INPUT, INTERRUPTED, TERMINATED = 1, 2, 130, 143
"""Exit codes: a bug, an error that the user can fix, Ctrl-C, and kill; a shell reports the last two the same way."""

PATIENCE = 1.0
"""Seconds before a progress bar appears."""


@contextmanager
def one_line_errors() -> Generator[None]:
    """Errors on the terminal: one line and exit code 2 for those that the user can fix; a bug keeps its traceback."""
    try:
        with _terminable(), warnings.catch_warnings():
            # Spark prints this at every start, about parts of it that are not used here.
            warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
            warnings.filterwarnings("always", "the reward column", UserWarning)
            warnings.showwarning = _show_warning
            printed.set(set())
            yield
    except ManyarmsError as error:
        fail(error_line(error))
    except OSError as error:
        fail(f"cannot use {error.filename}: {error.strerror}." if error.filename else str(error.strerror or error))
    except MemoryError as error:
        fail(f"there is not enough memory: {error}.", UNEXPECTED)
    except KeyboardInterrupt:
        # Python remembers a Ctrl-C in code that was made from a text, as that of dataclasses is, and would end in a
        # signal in place of the exit code. Running any such code makes it forget.
        exec("")
        fail("stopped.", INTERRUPTED)
    except _TerminatedError:
        fail("stopped.", TERMINATED)


printed = ContextVar[set[str]]("printed")
"""The warnings that the running command has printed."""


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning of Python on the terminal as those of results are printed."""
    warn(str(message))


def error_line(error: ManyarmsError) -> str:
    """An error as one line on the terminal: the flag of its argument, the problem, and the remedy by flags.

    An argument that no flag of the running command sets keeps its name: "rewards must be 0 or 1".
    """
    argument = re.sub(r"\w+", lambda name: _flag_of(name[0]), error.argument)
    parts = (argument, error.problem, error.flag_remedy or error.remedy)
    return " ".join(part for part in parts if part)


FLAGS_OF_ARGUMENTS = {
    "n_items": "items",
    "n_categories": "categories",
    "n_rounds": "rounds",
}
"""Arguments in Python whose flag has another name."""

running_flags = ContextVar[Mapping[str, str]]("running_flags", default=MappingProxyType({}))
"""The flags of the running command, by the names of its parameters."""


def _flag_of(argument: str) -> str:
    return running_flags.get().get(FLAGS_OF_ARGUMENTS.get(argument, argument), argument)


class _TerminatedError(BaseException):
    """The process was asked to stop, perhaps by a scheduler at the end of its time limit."""


@contextmanager
def _terminable() -> Generator[None]:
    """Let a kill unwind as Ctrl-C does, so that drafts of files are removed."""

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


def visible(text: object) -> str:
    """Text for the terminal in which every character can be seen: a name cannot move the cursor or change colours.

    Line breaks stay. Other characters that are not printed appear as the escapes that Python writes for them.
    """
    return "".join(
        letter if letter.isprintable() or letter == "\n" else letter.encode("unicode_escape").decode("ascii")
        for letter in str(text)
    )


def say(text: object, *, err: bool = False) -> None:
    """Print text on the terminal; names in it may hold anything."""
    typer.echo(visible(text), err=err)


def fail(message: str, code: int = BAD_INPUT) -> NoReturn:
    """Print an error on the terminal in one line and exit."""
    say(f"manyarms: error: {_one_line(message)}", err=True)
    raise typer.Exit(code) from None


NAMES = re.compile(r"(current policy|\S+)(, (current policy|\S+))*( \([^)]*\))?: ")
"""The policies and estimators that a warning is about, before its text."""


def warn(message: str) -> None:
    """Print a warning on the terminal, in one line on stderr and once in a command, which goes on.

    It ends with a full stop and begins with a capital, unless it begins with names: of policies, or of a file.
    """
    if re.match(r"[a-z]+\s", message) and not NAMES.match(message):
        message = message[0].upper() + message[1:]
    message += "" if message.endswith(".") else "."
    earlier = printed.get(None)
    if earlier is not None:
        if message in earlier:
            return
        earlier.add(message)
    say(f"manyarms: warning: {_one_line(message)}", err=True)


def note(message: str) -> None:
    """Print on the terminal, in one line on stderr, what a reader may want to know but need not act on."""
    say(f"manyarms: note: {_one_line(message)}", err=True)


def _one_line(message: str) -> str:
    return " ".join(message.split())


@contextmanager
def spinner(activity: str) -> Generator[None]:
    """The terminal shows that the command is at work; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console  # noqa: PLC0415

    with Console(stderr=True).status(f"{activity} ..."):
        yield


@contextmanager
def row_bar(activity: str) -> Generator[_RowBar]:
    """The terminal shows the rows done as a bar, once the work takes a second; nothing elsewhere.

    Args:
        activity: A word for what is done with the rows, such as "Reading".
    """
    bar = _RowBar(activity, shown=sys.stderr.isatty())
    try:
        yield bar
    finally:
        bar.stop()


class _RowBar:
    """Rows done, rows per second and the time left, starting again with every pass.

    Args:
        activity: A word for what is done with the rows.
        shown: False where nobody would see the bar.
    """

    def __init__(self, activity: str, shown: bool):
        self._activity, self._shown, self._begun = activity, shown, time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, done: int, total: int | None) -> None:
        """Show how many rows are done, and of how many; None or 0 if the total is not known."""
        if not self._ready():
            return
        if done == 0:
            self._bar.reset(self._task, total=total or None, description=self._activity)
        self._bar.update(self._task, completed=done, total=total or None)

    def step(self, done: int, total: int, activity: str = "Learning, step") -> None:
        """Show the step of a search that runs after all rows are read and has no known end."""
        if self._ready():
            self._bar.update(self._task, description=f"{activity} {done}", total=None)

    def stop(self) -> None:
        """Leave the terminal as it was."""
        if self._bar is not None:
            self._bar.stop()

    def _ready(self) -> bool:
        if not self._shown or time.monotonic() - self._begun < PATIENCE:
            return False
        if self._bar is None:
            self._bar = _rich_row_bar()
            self._bar.start()
            self._task = self._bar.add_task(self._activity, total=None)
        return True


def _rich_row_bar() -> Any:
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn  # noqa: PLC0415
    from rich.table import Column  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    class Rows(ProgressColumn):
        """Rows done and rows per second."""

        def render(self, task: Task) -> Text:
            speed = "" if task.speed is None else f"  {task.speed:,.0f} rows/s"
            return Text(f"{int(task.completed):,} rows{speed}" if task.completed else "")

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        Rows(Column(no_wrap=True)),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True)


STOPPING = "stopping ... (running cells are finished first; press Ctrl-C again to stop at once)"


@dataclass(frozen=True)
class _CellBar:
    """The functions that a run of many cells calls.

    Attributes:
        progress: Called with the number of cells done and the number of all cells.
        on_interrupt: Called on Ctrl-C.
    """

    progress: Callable[[int, int], None]
    on_interrupt: Callable[[], None]


@contextmanager
def cell_bar(title: str) -> Generator[_CellBar]:
    """The terminal shows the cells done as a bar, as `row_bar` does for rows; elsewhere one line with their number."""
    if not sys.stderr.isatty():
        yield _CellBar(lambda done, total: _announce(title, done, total), lambda: typer.echo(STOPPING, err=True))
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(visible(title), total=None)
        yield _CellBar(
            lambda done, total: bar.update(task, completed=done, total=total),
            lambda: bar.console.print(STOPPING, highlight=False),
        )


def _announce(title: str, done: int, total: int) -> None:
    if done == 0:
        say(f"{title}: {f'{total:,} cells to do' if total else 'nothing to do'}", err=True)


HARMLESS = re.compile(
    rb"Using incubator modules|Picked up _?JAVA_|Using Spark's default log4j profile|Setting default log level to"
    rb"|To adjust logging level use|WARN NativeCodeLoader"
)
"""Lines that every Spark prints when it starts."""


@contextmanager
def quiet_children() -> Generator[None]:
    """The terminal shows no harmless lines of processes started in the block, on stderr and as long as they live."""
    reader, writer = os.pipe()
    stderr = os.dup(2)
    threading.Thread(target=_pass_on, args=(reader, stderr), daemon=True).start()
    os.dup2(writer, 2)
    os.close(writer)
    try:
        yield
    finally:
        # A duplicate, since the thread goes on writing to the original.
        os.dup2(stderr, 2)


def _pass_on(source: int, target: int) -> None:
    with os.fdopen(source, "rb") as lines, os.fdopen(target, "wb", buffering=0) as out:
        for line in lines:
            if not HARMLESS.search(line):
                out.write(line)
