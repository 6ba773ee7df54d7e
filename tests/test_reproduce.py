"""`manyarms reproduce`: what is printed, what is written, what is refused."""

import re

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from manyarms.cli import app
from manyarms.experiments.paper import figures

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


def test_a_figure_comes_with_rows_drawing_page_and_verdicts_and_a_second_run_computes_nothing(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    arguments = ("cost", "--instances", 3, "--workers", 1, "--method", "own.py:Guess")
    first = reproduce(*arguments)
    assert first.exit_code == 0, first.output
    out = tmp_path / "reproduction"
    rows = pq.read_table(out / "rows.parquet")
    assert set(rows["method"].to_pylist()) == {"sDM", "DM (Bayes)", "joint posterior", "guess | <b>bold</b>"}
    assert (out / "cost.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert b"<svg" in (out / "cost.svg").read_bytes()
    page = (out / "reproduction.md").read_text()
    assert "manyarms reproduce cost --quick --instances 3`" in page and str(tmp_path) not in page
    assert "](cost.svg)" in page and r"guess \| &lt;b>bold" in page and "<b>" not in page
    for claim in figures()["cost"].claims:
        assert claim.text in first.stdout and claim.text in page
    assert re.search(r"(holds|does not hold|undecided) ", first.stdout)
    before = (out / "rows.parquet").stat()
    assert reproduce(*arguments, "--page", "elsewhere/page.md").exit_code == 0
    assert (out / "rows.parquet").stat().st_mtime_ns == before.st_mtime_ns
    assert "](../reproduction/cost.svg)" in (tmp_path / "elsewhere" / "page.md").read_text()
    redone = reproduce(*arguments, "--redo", "guess | <b>bold</b>")
    assert redone.exit_code == 0 and (out / "rows.parquet").stat().st_mtime_ns > before.st_mtime_ns
    assert pq.read_table(out / "rows.parquet").equals(rows)


def refused(result, *words):
    assert result.exit_code == 2 and result.stderr.startswith("manyarms: error: ")
    assert "Traceback" not in result.output
    for word in words:
        assert word in result.stderr, result.stderr


def test_what_cannot_be_run_is_refused_with_the_way_out(tmp_path):
    refused(reproduce("nonsense"), "no figure nonsense", "synthetic-opl", "kuairec")
    refused(reproduce(), "--list")
    refused(reproduce("cost", "--quick", "--paper"), "exclude")
    refused(reproduce("cost", "--redo", "mine"), "no method mine", "sDM")
    refused(reproduce("cost", "--method", "nowhere.py:Mine"), "nowhere.py")
    refused(reproduce("movielens", "--instances", 2), "ml-1m.zip", "GroupLens", "cache")
    refused(reproduce("jester", "--instances", 2, "--data", tmp_path), "jester_data_1.parquet", "Berkeley")
    refused(reproduce("jester", "--download"), "jester_data_1.parquet")
    refused(reproduce("cost", "--page", tmp_path), "--page", "folder")
    (tmp_path / "reproduction" / "rows.parquet").write_bytes(b"half")
    refused(reproduce("cost"), "rows.parquet", "Move it away")


def test_figures_without_data_are_named_at_the_end_and_the_others_are_run(tmp_path):
    result = reproduce("movielens", "cost", "--instances", 2, "--workers", 1)
    assert result.exit_code == 2
    assert "not run for want of data: movielens" in result.stderr
    assert "cost" in result.stdout and (tmp_path / "reproduction" / "cost.svg").exists()
    page = (tmp_path / "reproduction" / "reproduction.md").read_text()
    assert "## cost" in page and "## movielens" not in page
