"""A process that runs commands in forks of itself, and breaks them off or limits their disk as a fault is asked for.

The process imports the library once, so that a command costs what it does and not what it imports. A request is a line
of JSON; so is the answer. The server itself starts no threads, so that a fork of it is a clean process.
"""

from __future__ import annotations

import atexit
import errno
import io
import json
import mmap
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 120.0
"""Seconds after which a command counts as hanging."""

IMPORTED = (
    "manyarms.cli.demo_files",
    "manyarms.cli.demo_results",
    "manyarms.cli.print_results",
    "manyarms.decision.decide_files",
    "manyarms.decision.write_report",
    "manyarms.jobs",
    "narwhals._interchange.dataframe",
    "pyarrow.dataset",
    "pydantic.type_adapter",
    "scipy.optimize",
    "typer._adapters",
)
"""Modules that commands import, some of them late."""
CHART_SCRIPT = "import sys, vl_convert; sys.stdout.buffer.write(vl_convert.javascript_bundle().encode())"


@dataclass(frozen=True)
class Fault:
    """What happens to a command.

    Args:
        kill_after: The seconds after which it is killed; None for never.
        kill_at: The number of the file operation at which it is killed, from 1; None for none. A write is cut in half.
        room: The bytes that fit on its disk; None for a disk that is large enough. The file operations of the library
            then fail as on a full disk.
        largest: The bytes that fit into one file, enforced by the system; None for no limit.
        without_drafts: Files are written in place, which the checks must notice.
    """

    kill_after: float | None = None
    kill_at: int | None = None
    room: int | None = None
    largest: int | None = None
    without_drafts: bool = False


@dataclass(frozen=True)
class Ending:
    """How a command ended.

    Attributes:
        code: Its exit code; the negative number of a signal; None where it hung and was ended.
        seconds: The time that it took.
        operations: The number of file operations that it began.
        stdout: What it printed.
        stderr: What it printed about errors.
    """

    code: int | None
    seconds: float
    operations: int
    stdout: str
    stderr: str

    @property
    def in_one_line(self) -> bool:
        """Whether the command refused with one line that names a problem."""
        lines = [line for line in self.stderr.splitlines() if not line.startswith("manyarms: warning: ")]
        return self.code in (1, 2) and len(lines) == 1 and lines[0].startswith("manyarms: error: ")


def run(folder: Path, arguments: Sequence[str], fault: Fault | None = None) -> Ending:
    """Run a command in a folder."""
    return run_together(folder, [arguments], [fault or Fault()])[0]


def run_together(folder: Path, commands: Sequence[Sequence[str]], faults: Sequence[Fault] = ()) -> list[Ending]:
    """Run several commands at the same time in one folder."""
    chosen = [asdict(fault) for fault in faults or [Fault()] * len(commands)]
    server = _server()
    assert server.stdin is not None and server.stdout is not None
    request = {"folder": str(folder), "commands": [list(arguments) for arguments in commands], "faults": chosen}
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    return [Ending(**ending) for ending in json.loads(server.stdout.readline())]


@cache
def _server() -> subprocess.Popen[str]:
    """The server of this process; it ends when its standard input does."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    server = subprocess.Popen(
        [sys.executable, "-m", "trust.command_server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": paths, "COLUMNS": "200", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    atexit.register(server.communicate)
    return server


# The server's side.


def serve() -> None:
    """Answer requests until standard input ends."""
    for module in IMPORTED:
        import_module(module)
    # The charts' script takes seconds to make and starts threads, so it is made once and in another process.
    script = subprocess.check_output([sys.executable, "-c", CHART_SCRIPT]).decode()
    import vl_convert  # noqa: PLC0415

    vl_convert.javascript_bundle = lambda: script
    for line in sys.stdin:
        request = json.loads(line)
        children = [
            _Child(request["folder"], arguments, Fault(**fault))
            for arguments, fault in zip(request["commands"], request["faults"], strict=True)
        ]
        print(json.dumps([asdict(child.ending()) for child in children]), flush=True)


class _Child:
    """A fork that runs a command."""

    def __init__(self, folder: str, arguments: list[str], fault: Fault) -> None:
        self.fault, self.start, self.operations = fault, time.monotonic(), mmap.mmap(-1, 8)
        self.files = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self.pid = os.fork()
        if not self.pid:
            self._run(folder, arguments)

    def _run(self, folder: str, arguments: list[str]) -> None:
        code = 70
        try:
            os.chdir(folder)
            for file, number in zip(self.files, (1, 2), strict=True):
                os.dup2(file.fileno(), number)
            _inject(self.fault, self.operations)
            sys.argv = ["manyarms", *arguments]
            from manyarms.cli import app  # noqa: PLC0415

            code = _exit_code(lambda: app(prog_name="manyarms"))
        finally:
            os._exit(code)

    def ending(self) -> Ending:
        """How the command ended, once it has."""
        process = os.pidfd_open(self.pid)
        limit, code = self.fault.kill_after, None
        done = select.select([process], [], [], max(0.0, self.start + (limit or LONGEST) - time.monotonic()))[0]
        if not done:
            os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        os.close(process)
        if done or limit is not None:
            code = os.waitstatus_to_exitcode(status)
        texts = list[str]()
        for file in self.files:
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
            file.close()
        operations = int.from_bytes(self.operations[:8], "little")
        return Ending(code, time.monotonic() - self.start, operations, texts[0], texts[1])


def _exit_code(command: Callable[[], Any]) -> int:
    """Run a command as Python runs a program, with its traceback and its exit code."""
    try:
        command()
        code: Any = 0
    except SystemExit as leaving:
        code = leaving.code
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        code = 1
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        return 120
    return code if isinstance(code, int) else 0 if code is None else 1


def _inject(fault: Fault, counter: mmap.mmap) -> None:
    """Put a counter, and the fault, in front of every file operation of the library."""
    from manyarms._base import files  # noqa: PLC0415

    if fault.largest is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (fault.largest, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    room = [sys.maxsize if fault.room is None else fault.room]

    def begin(before_death: Callable[[], Any] = lambda: None) -> None:
        number = int.from_bytes(counter[:8], "little") + 1
        counter[:8] = number.to_bytes(8, "little")
        if number == fault.kill_at:
            before_death()
            os.kill(os.getpid(), signal.SIGKILL)

    def watched(operation: Callable[..., Any]) -> Callable[..., Any]:
        def watched_operation(*arguments: Any, **options: Any) -> Any:
            begin()
            outcome = operation(*arguments, **options)
            begin()
            return outcome

        return watched_operation

    class Raw(io.FileIO):
        def write(self, data: Any) -> int:
            written = bytes(data)
            begin()
            begin(lambda: super(Raw, self).write(written[: len(written) // 2]))
            if room[0] < len(written):
                kept, room[0] = room[0], 0
                if not kept:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return super().write(written[:kept])
            room[0] -= len(written)
            return super().write(written)

    # Small buffers, so that a file takes many operations.
    files.open = lambda where, mode: io.BufferedWriter(Raw(where, mode), 2048) if mode == "wb" else open(where, mode)  # type: ignore[attr-defined]
    if fault.without_drafts:
        files._new_draft = lambda path, mode: (path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
    for name in ("fsync", "replace", "unlink", "mkdir"):
        setattr(os, name, watched(getattr(os, name)))


if __name__ == "__main__":
    serve()
