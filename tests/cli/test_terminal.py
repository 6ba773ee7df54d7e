"""However a command ends, the terminal has one line of it, and no lines that only look like problems."""

import os
import signal
import subprocess
import sys
import threading

import pytest
import typer

from manyarms.cli.terminal import one_line_errors, quiet_children, spinner
from manyarms.errors import InputError


def stop():
    raise KeyboardInterrupt


def lack():
    raise MemoryError("Unable to allocate 8.00 TiB")


def refuse():
    raise InputError("no such column.", "Name another.")


ENDS = {
    "a kill": (lambda: signal.raise_signal(signal.SIGTERM), 143, "stopped."),
    "Ctrl-C": (stop, 130, "stopped."),
    "no memory": (lack, 1, "there is not enough memory: Unable to allocate 8.00 TiB."),
    "a missing file": (lambda: open("/nowhere/x"), 2, "cannot use /nowhere/x: No such file or directory."),
    "bad input": (refuse, 2, "no such column. Name another."),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_command_that_ends_early_says_so_in_one_line(name, capsys):
    end, code, text = ENDS[name]
    before, cleaned = signal.getsignal(signal.SIGTERM), []
    with pytest.raises(typer.Exit) as caught, one_line_errors():
        try:
            end()
        finally:
            cleaned.append(True)
    assert caught.value.exit_code == code and cleaned
    assert capsys.readouterr().err == f"manyarms: error: {text}\n"
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_bug_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError), one_line_errors():
        _ = 1 / 0


def test_a_command_may_run_in_a_thread_which_cannot_listen_to_signals():
    done = []

    def work():
        with one_line_errors():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]


def test_harmless_lines_of_other_processes_are_left_out_and_all_others_shown(capfd):
    lines = ["WARN NativeCodeLoader: no native library", "a real problem", "Setting default log level to WARN", "more"]
    with quiet_children():
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=2)
        child.communicate("".join(f"{line}\n" for line in lines).encode())
    os.write(2, b"Setting default log level of our own\n")
    shown = ""
    while "more" not in shown:
        shown += capfd.readouterr().err
    assert sorted(shown.splitlines()) == sorted(["a real problem", "more", "Setting default log level of our own"])


def test_a_terminal_shows_what_is_being_done_and_a_pipe_nothing(monkeypatch, capsys):
    with spinner("Learning"):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with spinner("Learning"):
        pass
    assert "Learning ..." in capsys.readouterr().err
