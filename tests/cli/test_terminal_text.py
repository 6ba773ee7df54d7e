"""Names reach the terminal as text, mistakes and Ctrl-C end in one line, and a leaking reward is warned about."""

import contextlib
import os
import pty
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fast_first import fast_first
from small_shop import CATALOG, ROLES, done, figures, fit_command, log_table, refused, run

import manyarms as ma
from manyarms import jobs
from manyarms.cli.terminal import cell_bar, visible
from manyarms.errors import InputError, RangeError

ESCAPE = "\x1b[31m"


def test_visible_text_keeps_letters_and_shows_the_rest():
    assert visible("Größe 日本 [/red] a\nb") == "Größe 日本 [/red] a\nb"
    assert visible("\x1b]0;title\x07\r\u202e\udc80\x9b") == r"\x1b]0;title\x07\r\u202e\udc80\x9b"


@pytest.mark.parametrize("name", fast_first([f"[/red]{ESCAPE}.arrow", "[bold]x[/bold].arrow", "a\rb.arrow"]))
def test_a_policy_file_may_have_any_name(name, shop, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # A slash is part of the name as markup, and of the path as a folder.
    (tmp_path / name).parent.mkdir(exist_ok=True)
    learned = done("learn", "--model", shop / "model.arrow", "--out", name)
    assert visible(name) in learned.stdout
    base = ["--model", shop / "model.arrow", "--logs", shop / "new", *ROLES, "--policies", f"{name},uniform"]
    shown = done("evaluate", *base, "--estimators", "snips")
    assert shown.stdout.count(visible(name)) == 2
    for result in (learned, shown, done("report", *base, "--out", f"{name}.json")):
        assert not set("\x1b\r") & set(result.stdout + result.stderr)


def test_escapes_in_names_of_columns_ids_and_files_do_not_reach_the_terminal(shop, tmp_path):
    table = log_table(50, 1)
    table = table.rename_columns([f"{ESCAPE}age" if name == "age" else name for name in table.column_names])
    items = [f"{ESCAPE}i99", *table["item"].to_pylist()[1:]]
    place = table.column_names.index("item")
    path = tmp_path / f"{ESCAPE}logs.parquet"
    pq.write_table(table.set_column(place, "item", pa.array(items)), path)
    out = ["--out", tmp_path / f"{ESCAPE}model.arrow"]
    known = ["--catalog", shop / "items.parquet", *CATALOG]
    base = ["fit", "--logs", path, *ROLES, *known, *out]
    errors = [
        refused(*base, "--context", "age", words=["no column 'age'", r"\x1b[31mage"]),
        refused(*base, "--context", f"{ESCAPE}age", words=[r"\x1b[31mi99"]),
        refused(*base[:2], f"{path}-lost", *base[3:], "--context", "age", words=[r"\x1b[31mlogs.parquet-lost"]),
    ]
    fitted = done(*base, "--context", f"{ESCAPE}age", "--unknown", "drop")
    assert ESCAPE not in "".join([*errors, fitted.stdout, fitted.stderr]) and r"\x1b[31mmodel.arrow" in fitted.stdout


def _read_to_the_end(reader):
    """Everything that a terminal was sent; one read returns only what had arrived by then."""
    parts = []
    with contextlib.suppress(OSError):  # which says that the other end is closed
        while part := os.read(reader, 1 << 16):
            parts.append(part)
    os.close(reader)
    return b"".join(parts).decode()


def test_the_title_of_a_bar_is_no_markup(monkeypatch):
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with cell_bar(f"[/red]{ESCAPE}x") as bar:
            bar.progress(1, 2)
        monkeypatch.undo()
    shown = _read_to_the_end(reader)
    assert r"[/red]\x1b[31mx" in shown


def test_times_that_no_calendar_has_are_refused(shop, tmp_path):
    times = ["--time", "at", "--maturity", "1d", "--out", tmp_path / "model.arrow"]
    for now in ("0001-01-01", "0001-01-01T00:00:00+14:00"):
        refused(*fit_command(shop), *times, "--now", now, words=["--now and --maturity", "years 1 to 9999"])
    columns = {"action": "item", "reward": "spend", "time": "at"}
    for now, more in (
        (datetime(1, 1, 1), {"maturity": timedelta(days=1)}),
        (datetime.fromisoformat("0001-01-01T00:00:00+14:00"), {"half_life": timedelta(days=1)}),
        (datetime.fromisoformat("9999-12-31T23:00:00-10:00"), {"half_life": timedelta(days=1)}),
        (datetime(1, 1, 3, tzinfo=UTC), {"maturity": timedelta(days=999)}),
    ):
        with pytest.raises(RangeError, match="years 1 to 9999"):
            ma.read_logs(shop / "new", "age", **columns, now=now, **more)


def test_an_empty_separator_is_refused(shop, tmp_path):
    base = [*fit_command(shop)[:-2], "--tags", "kind", "--out", tmp_path / "model.arrow"]
    refused(*base, "--separator", "", words=["--separator must not be empty"])
    for separator in ("", 3):
        with pytest.raises(InputError, match="separator must"):
            ma.read_catalog(shop / "items.parquet", "sku", tags="kind", separator=separator)


def test_draws_that_no_memory_holds_are_refused(shop, tmp_path):
    for draws in ("1e9", "100001", "1e300"):
        out = ["--policy", f"thompson:{draws}", "--out", tmp_path / "p"]
        refused("learn", "--model", shop / "model.arrow", *out, words=["too many draws", "100,000"])
    with pytest.raises(RangeError, match="n_draws must be at most 100,000"):
        ma.Thompson(ma.load(shop / "model.arrow"), 10**9, rng=np.random.default_rng(0))


def test_a_spec_that_is_nested_too_deeply_is_refused(shop, tmp_path):
    spec = tmp_path / "deep.toml"
    spec.write_text(f"[logs]\ncontext = {'[' * 5000}{']' * 5000}\n")
    refused(*fit_command(shop), "--spec", spec, "--out", tmp_path / "m", words=["deep.toml", "nested too deeply"])


STOPPED_WHILE_IMPORTING = """
import os, signal, sys
class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Stop())
sys.argv[1:] = ["learn", "--model", "lost", "--out", "model"]
from manyarms.__main__ import main
main()
"""


@pytest.mark.parametrize("name", ["manyarms.cli", "typer", "manyarms.jobs", "numpy", "scipy.sparse"])
def test_ctrl_c_while_modules_are_imported_is_one_line_and_exit_code_130(name, tmp_path):
    code = STOPPED_WHILE_IMPORTING.format(name=name)
    stopped = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (stopped.returncode, stopped.stderr, stopped.stdout) == (130, "manyarms: error: stopped.\n", "")


def test_ctrl_c_in_code_made_from_a_text_still_gives_exit_code_130(tmp_path):
    code = """
import os, signal
from manyarms.cli.terminal import one_line_errors
from manyarms.__main__ import main
import manyarms.cli.commands as commands
def stop(*_):
    exec("os.kill(os.getpid(), signal.SIGINT)\\nfor _ in range(100): pass")
commands.check_output = stop
import sys
sys.argv[1:] = ["learn", "--model", "lost", "--out", "model"]
main()
"""
    stopped = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (stopped.returncode, stopped.stderr) == (130, "manyarms: error: stopped.\n")


def test_ctrl_c_that_is_ignored_stays_ignored(tmp_path):
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + STOPPED_WHILE_IMPORTING.format(
        name="typer"
    )
    went_on = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert went_on.returncode == 2 and "lost does not exist" in went_on.stderr


LEAK = "the reward column 'spend' is also a context column"


def test_a_reward_among_the_contexts_is_warned_about(shop, tmp_path):
    columns = {"context": ["age", "spend"], "action": "item", "reward": "spend"}
    for logs in (shop / "new", pq.read_table(shop / "new")):
        with pytest.warns(UserWarning, match=LEAK):
            ma.read_logs(logs, **columns)
    model = tmp_path / "model.arrow"
    with pytest.warns(UserWarning, match=LEAK):
        fitted = jobs.fit_files(shop / "old", **columns, catalog=shop / "items.parquet", id="sku", out=model)
    assert any(LEAK in text for text in fitted.warnings)
    new = ["--logs", shop / "new", *ROLES]
    leaking = ["--context", "age,spend", "--catalog", shop / "items.parquet", *CATALOG]
    for arguments in (
        ["fit", *new, *leaking, "--out", tmp_path / "other.arrow"],
        ["update", "--model", model, *new, "--out", tmp_path / "other.arrow"],
        ["evaluate", "--model", model, *new, "--policies", "uniform"],
        ["report", "--model", model, *new, "--policies", "uniform", "--out", tmp_path / "report.html"],
        ["decide", *new, *leaking, "--out", tmp_path / "report.json"],
    ):
        result = run(*arguments)
        assert result.exit_code in (0, 3, 4), result.output
        lines = [line for line in result.stderr.splitlines() if LEAK[1:] in line]
        assert len(lines) == 1 and lines[0].startswith("manyarms: warning: The"), (arguments[0], result.stderr)
    assert LEAK.split("'", maxsplit=1)[0] in (tmp_path / "report.html").read_text()
    assert LEAK in (tmp_path / "report.json").read_text()
    shown = figures("evaluate", "--model", model, *new, "--policies", "uniform")
    assert any(LEAK in text for text in shown["warnings"])


def test_other_contexts_are_not_warned_about(shop, tmp_path):
    assert "is also a context column" not in done(*fit_command(shop), "--out", tmp_path / "m").stderr
