"""`manyarms reproduce`, killed or interrupted: it goes on where it was."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from manyarms.experiments import (
    Store,
)
from manyarms.experiments.result_store import (
    ROWS,
)


def manyarms(*arguments, **options):
    command = [sys.executable, "-c", "from manyarms.cli import app; app()", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_worker_ignores_ctrl_c_where_it_cannot_be_held(tmp_path, monkeypatch):
    """As on Windows, where a worker would otherwise end in the middle of a cell."""
    run, before = sys.modules["manyarms.experiments.run"], signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(run, "_Worker", type("Worker", (), {}))
    monkeypatch.setattr(run, "stay_on_one_core", lambda: None)
    try:
        run._start_worker(tmp_path, (), multiprocessing.Event(), multiprocessing.Event())
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_and_ends_with_the_rows_of_one_that_was_not(tmp_path):
    figure = ["reproduce", "scaling-k", "--quick", "--instances", "2", "--workers", "2"]
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    deadline = time.monotonic() + 120
    with manyarms(*figure, "--out", killed) as process:
        while sum(len(path.read_bytes().split()) for path in killed.glob("journal-*")) < 250:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        process.kill()
    journals = list(killed.glob("journal-*"))
    assert journals and not (killed / ROWS).exists()
    workers = [int(path.name.split("-")[1]) for path in journals]
    deadline = time.monotonic() + 20
    while any(alive(pid) for pid in workers):
        assert time.monotonic() < deadline, "a worker outlived its parent"
        time.sleep(0.05)
    kept = Store(killed).read()
    assert len(kept) >= 5
    for folder in (killed, whole):
        output, errors = manyarms(*figure, "--out", folder).communicate(timeout=300)
        assert "scaling-k" in output and errors.startswith("scaling-k (1 of 1): ") and errors.count("\n") == 1
    assert (killed / ROWS).read_bytes() == (whole / ROWS).read_bytes()
    after = Store(killed).read()
    assert all(after[cell] == kept[cell] for cell in kept), "a finished cell was computed again"
    assert {path.suffix for path in whole.iterdir()} >= {".svg", ".png", ".md", ".parquet"}


@pytest.mark.slow
def test_ctrl_c_is_answered_at_once_and_keeps_what_was_finished(tmp_path):
    figure = ["reproduce", "digits", "--quick", "--instances", "20", "--workers", "2", "--out", tmp_path / "out"]
    with manyarms(*figure, start_new_session=True) as process:
        deadline = time.monotonic() + 120
        while sum(path.stat().st_size for path in (tmp_path / "out").glob("journal-*")) < 2000:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        # As a terminal does: to all processes of the group.
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    lines = errors.strip().split("\n")
    assert process.returncode == 130
    assert [line.split()[0] for line in lines] == ["digits", "stopping", "Stopped."], errors
    assert not list((tmp_path / "out").glob("journal-*")) and len(Store(tmp_path / "out").read()) >= 5
