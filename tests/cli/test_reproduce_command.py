"""`manyarms reproduce`: what is printed, what is written, what is refused."""

import re
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
import small_data
from typer.testing import CliRunner

from manyarms.cli import app
from manyarms.cli.reproduce_figures import _data_error_line
from manyarms.errors import DataFileError
from manyarms.experiments import Store
from manyarms.experiments import cell as cells
from manyarms.experiments import real_data_problems as matrices
from manyarms.experiments.figure import QUICK
from manyarms.experiments.reproduction import Reproduction, figures

OWN = """
import manyarms as ma
from manyarms.experiments import Method

class Guess(Method):
    name = "guess | <b>bold</b>"
    def estimate(self, task, target):
        return ma.Estimate(float(task.logs.rewards.mean()), 1.0)
"""


@pytest.fixture(autouse=True)
def no_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYARMS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MANYARMS_DATA", raising=False)
    monkeypatch.chdir(tmp_path)


def reproduce(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


def test_the_list_has_every_figure_with_its_claims():
    listed = reproduce("--list")
    assert listed.exit_code == 0
    for figure in figures().values():
        assert re.search(rf"^{figure.name}  ", listed.stdout, flags=re.MULTILINE)
        assert all(claim.text in listed.stdout for claim in figure.claims)


WITH_OWN_METHOD = ("cost", "--instances", 2, "--workers", 1, "--method", "own.py:Guess")


def test_a_figure_comes_with_rows_drawing_page_and_verdicts_and_a_second_run_computes_nothing(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    first = reproduce(*WITH_OWN_METHOD)
    assert first.exit_code == 0, first.output
    out = tmp_path / "reproduction"
    rows = pq.read_table(out / "rows.parquet")
    assert set(rows["method"].to_pylist()) == {"sDM", "DM (Bayes)", "joint posterior", "guess | <b>bold</b>"}
    assert (out / "cost.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert b"<svg" in (out / "cost.svg").read_bytes()
    page = (out / "reproduction.md").read_text()
    assert "manyarms reproduce cost --quick --instances 2 --method own.py:Guess`" in page and str(tmp_path) not in page
    assert "decided after results" not in page and first.stderr == "cost (1 of 1): 32 cells to do\n"
    assert r"guess \| &lt;b>bold&lt;/b> against each method: K = 10**" in page
    assert re.search(
        r"^  guess .* by CPU time, K = 10, n = 1,000: (better|worse|open)", first.stdout, flags=re.MULTILINE
    )
    assert "](cost.svg)" in page and r"guess \| &lt;b>bold" in page and "<b>" not in page
    for claim in figures()["cost"].claims:
        assert claim.text in first.stdout and claim.text in page
    assert re.search(r"(holds|does not hold|undecided) ", first.stdout)
    before = (out / "rows.parquet").stat()
    assert reproduce(*WITH_OWN_METHOD, "--page", "elsewhere/page.md").exit_code == 0
    assert (out / "rows.parquet").stat().st_mtime_ns == before.st_mtime_ns
    assert "](../reproduction/cost.svg)" in (tmp_path / "elsewhere" / "page.md").read_text()


@pytest.mark.slow
def test_rows_of_an_own_method_are_redone_when_asked_and_refused_when_its_file_has_changed(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    assert reproduce(*WITH_OWN_METHOD).exit_code == 0
    out = tmp_path / "reproduction"
    rows, before = pq.read_table(out / "rows.parquet"), (out / "rows.parquet").stat()
    redone = reproduce(*WITH_OWN_METHOD, "--redo", "guess | <b>bold</b>")
    assert redone.exit_code == 0 and (out / "rows.parquet").stat().st_mtime_ns > before.st_mtime_ns
    assert pq.read_table(out / "rows.parquet").equals(rows)
    (tmp_path / "own.py").write_text(OWN + "# changed")
    quoted = "'guess | <b>bold</b>'"
    refused(reproduce(*WITH_OWN_METHOD), f"own.py has changed since its rows were made. Pass --redo {quoted}.")


def refused(result, *words):
    assert result.exit_code == 2 and result.stderr.startswith("manyarms: error: ")
    assert "Traceback" not in result.output
    for word in words:
        assert word in result.stderr, result.stderr


def test_what_cannot_be_run_is_refused_with_the_way_out(tmp_path):
    refused(reproduce("nonsense"), "no figure nonsense", "synthetic-opl", "kuairec")
    refused(reproduce(), "--list")
    refused(reproduce("cost", "--quick", "--paper"), "--quick and --paper cannot be used together")
    refused(reproduce("cost", "--redo", "mine"), "no method or problem mine", "sDM")
    refused(reproduce("cost", "--method", "nowhere.py:Mine"), "nowhere.py")
    movielens = reproduce("movielens", "--instances", 2)
    refused(movielens, "ml-1m.zip", "GroupLens", "cache", "--data", "--download: 6 MB")
    assert "download=True" not in movielens.stderr and not (tmp_path / "reproduction" / "reproduction.md").exists()
    refused(reproduce("jester", "--instances", 2, "--data", tmp_path), "jester_data_1.parquet", "Berkeley", "--data")
    refused(reproduce("jester", "--download"), "jester_data_1.parquet")
    refused(reproduce("movielens", "jester"), "not run because data is missing: movielens, jester")
    assert not (tmp_path / "reproduction" / "reproduction.md").exists(), "a page of nothing"
    (tmp_path / "ml-1m").mkdir()
    (tmp_path / "ml-1m" / "movies.dat").write_text("1::Film::War")
    (tmp_path / "ml-1m" / "ratings.dat").write_text("1::1::x::0")
    refused(reproduce("movielens", "--data", tmp_path), f"{tmp_path}/ml-1m/ratings.dat must hold whole numbers; line 1")
    refused(reproduce("cost", "--page", tmp_path), "--page", "folder")
    (tmp_path / "file").touch()
    refused(reproduce("cost", "--page", "file/page.md"), "file is a file")
    refused(reproduce("cost", "--out", "file"), "file is a file, not a folder")
    refused(reproduce("cost", "--prune"), "--prune needs --all")
    (tmp_path / "reproduction" / "rows.parquet").write_bytes(b"half")
    damaged = reproduce("cost")
    refused(damaged, "rows.parquet", "Move it away")
    assert ".." not in damaged.stderr
    # Only with a remedy, and for a figure that needs data, are the flags named that help.
    assert _data_error_line(DataFileError("a.dat is damaged."), "ml-1m") == "a.dat is damaged."
    assert _data_error_line(DataFileError("b is damaged.", "Remove it."), None) == "b is damaged. Remove it."


@pytest.mark.slow
def test_figures_without_data_are_named_at_the_end_and_the_others_are_run(tmp_path):
    result = reproduce("movielens", "cost", "--instances", 2, "--workers", 1)
    assert result.exit_code == 2
    assert "not run because data is missing: movielens" in result.stderr
    assert "cost" in result.stdout and (tmp_path / "reproduction" / "cost.svg").exists()
    page = (tmp_path / "reproduction" / "reproduction.md").read_text()
    assert "## cost" in page and "## movielens" not in page


@pytest.mark.slow
def test_rows_of_a_truncated_file_are_not_mixed_with_those_of_the_whole_one(tmp_path):
    data = small_data.write_all(tmp_path / "data", np.random.default_rng(0))
    arguments = ("jester", "--instances", 2, "--workers", 1, "--data", data)
    first = reproduce(*arguments)
    assert first.exit_code == 0, first.output
    caveat = "not the full data: 160 users instead of 7,200"
    assert caveat in first.stdout and caveat in (tmp_path / "reproduction" / "reproduction.md").read_text()
    path = data / "jester" / "jester_data_1.parquet"
    pq.write_table(pq.read_table(path).slice(100), path)
    refused(forgetful(arguments), "'Jester K=50 d=6'", "other data", "--out", "--redo 'Jester K=50 d=6'")
    again = forgetful([*arguments, "--redo", "Jester K=50 d=6"])
    assert again.exit_code == 0 and "159 users instead of 7,200" in again.stdout


def forgetful(arguments):
    """As a new process would see the data."""
    for cached in (matrices.load_once, cells.draw_world, cells.draw_log):
        cached.cache_clear()
    return reproduce(*arguments)


@pytest.mark.slow
def test_rows_that_no_figure_wants_are_pruned_and_the_page_is_as_before(tmp_path):
    size, figure = replace(QUICK, rounds=(100,), instances=2, slow_instances=2, exact=True), figures()["cost"]
    work = Reproduction(tmp_path, size, workers=1)
    work.run(figure)
    wanted = dict(work._results)
    extra = {replace(cell, instance=7): outcome for cell, outcome in wanted.items()}
    work._store.write(wanted | extra)
    work.run(figure)
    pages = []
    for _ in range(2):
        work.write_page([figure], tmp_path / "page.md", "", everything=True)
        pages.append((tmp_path / "page.md").read_text())
        work.prune([figure])
    assert pages[0] == pages[1] and Store(tmp_path).read() == wanted
