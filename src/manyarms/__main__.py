"""`python -m manyarms` is the command `manyarms`."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, NoReturn


def main() -> Any:
    """`python -m manyarms`, or the command `manyarms`: Ctrl-C ends it in one line, also while it is being imported."""
    # A job that a shell has put into the background ignores Ctrl-C, and goes on doing so.
    listens = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if listens:
        signal.signal(signal.SIGINT, _leave)
    from manyarms.cli import app  # noqa: PLC0415

    if listens:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return app(prog_name="manyarms")
    except KeyboardInterrupt:
        # Before or after the command itself, which ends in a line of its own.
        _leave()


def _leave(*_: object) -> NoReturn:
    """Stop the command at once: nothing has begun, and an exception could get lost between the imports."""
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"manyarms: error: stopped.\n")
    os._exit(130)


if __name__ == "__main__":
    main()
