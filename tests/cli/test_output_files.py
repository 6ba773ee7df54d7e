"""Outputs replace regular files only, never an input, and keep links, modes and the rounds of other updates."""

import errno
import os
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pyarrow.parquet as pq
import pytest
from fast_first import fast_first
from small_shop import CATALOG, CONTEXT, ROLES, done, fit_command, log_table, refused, run

import manyarms as ma
from manyarms import jobs
from manyarms._base import files
from manyarms.decision.write_report import write_report
from manyarms.errors import InputError, ModelFileError, OutputFileError

DEMO = ["demo", "--items", 40, "--categories", 4, "--rounds", 400, "--output"]


def commands(shop):
    """Every command that writes one file, without its --out."""
    model, new = ["--model", shop / "model.arrow"], ["--logs", shop / "new", *ROLES]
    return {
        "fit": fit_command(shop),
        "update": ["update", *model, *new],
        "learn": ["learn", *model],
        "score": ["score", *model, "--contexts", shop / "new"],
        "report": ["report", *model, *new, "--policies", "uniform", "--format", "html"],
        "decide": ["decide", *new, *CONTEXT, "--catalog", shop / "items.parquet", *CATALOG],
    }


COMMANDS = ["fit", "update", "learn", "score", "report", "decide"]


def content(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def own(shop, tmp_path):
    """The files of the shop, to be changed."""
    shutil.copytree(shop, tmp_path / "own")
    return tmp_path / "own"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_pipe_is_refused_and_stays(command, shop, tmp_path):
    pipe, link = tmp_path / "pipe.parquet", tmp_path / "link.parquet"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for out in (pipe, link):
        refused(*commands(shop)[command], "--out", out, words=["--out cannot", "is not a regular file"])
    assert stat.S_ISFIFO(pipe.stat().st_mode) and link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["link.parquet", "pipe.parquet"]


def test_python_refuses_a_pipe_too(shop, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    model = ma.load(shop / "model.arrow")
    with pytest.raises(ModelFileError, match="not a regular file"):
        model.save(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a regular file"):
        ma.score(model, shop / "new", tmp_path / "pipe")
    with pytest.raises(OutputFileError, match="pipe could not be written: it exists and is not a regular file"):
        files.replace_files({tmp_path / "pipe": b"x"})
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_the_demo_neither_reads_nor_replaces_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "report.html")
    refused(*DEMO, tmp_path, words=["report.html was changed, or was not written by the demo"])
    refused(*DEMO, tmp_path, "--force", words=["report.html could not be written", "not a regular file"])
    assert stat.S_ISFIFO((tmp_path / "report.html").stat().st_mode)


def test_the_page_of_a_reproduction_is_no_pipe_and_not_a_method(tmp_path):
    os.mkfifo(tmp_path / "page.md")
    (tmp_path / "own.py").write_text("class Guess: pass")
    base = ["reproduce", "cost", "--out", tmp_path / "out", "--page"]
    refused(*base, tmp_path / "page.md", words=["--page", "not a regular file"])
    method = ["--method", f"{tmp_path / 'own.py'}:Guess"]
    refused(*base, tmp_path / "own.py", *method, words=["--page", "one of the files to be read"])


def test_the_lock_of_a_reproduction_does_not_follow_a_planted_link(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "out" / ".lock").symlink_to(tmp_path / "precious")
    refused("reproduce", "cost", "--out", tmp_path / "out", words=[".lock"])
    assert (tmp_path / "precious").read_text() == "kept"


@pytest.mark.parametrize(
    "command", ["save", *(c if c != "decide" else pytest.param(c, marks=pytest.mark.slow) for c in COMMANDS)]
)
def test_a_file_is_replaced_behind_its_link_and_keeps_its_mode(command, shop, tmp_path):
    (tmp_path / "store").mkdir()
    target, link = tmp_path / "store" / "target", tmp_path / "link.html"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to("store/target")
    if command == "save":
        ma.Uniform(5).save(link)
    else:
        assert run(*commands(shop)[command], "--out", link).exit_code in (0, 3, 4)
    assert os.readlink(link) == "store/target" and target.read_bytes() != b"old"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert os.listdir(tmp_path / "store") == ["target"] and sorted(os.listdir(tmp_path)) == ["link.html", "store"]


def test_an_update_in_place_keeps_the_link_and_the_mode_of_the_model(own):
    target, link = own / "model.arrow", own / "link.arrow"
    link.symlink_to("model.arrow")
    target.chmod(0o640)
    done("update", "--model", link, "--logs", own / "new", *ROLES, "--out", link)
    assert link.is_symlink() and stat.S_IMODE(target.stat().st_mode) == 0o640
    assert ma.load(target).statistics.n_rounds == 800


def test_a_new_file_has_the_mode_that_the_system_gives_new_files(tmp_path):
    before = os.umask(0o027)
    try:
        ma.Uniform(5).save(tmp_path / "model")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o640


def test_a_link_to_a_file_that_does_not_exist_yet_is_written_through(tmp_path):
    (tmp_path / "link").symlink_to("target")
    ma.Uniform(5).save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and ma.load(tmp_path / "target").n_actions == 5
    (tmp_path / "lost").symlink_to("nowhere/target")
    with pytest.raises(InputError, match="nowhere, which does not exist"):
        files.check_output(tmp_path / "lost")


def test_no_output_replaces_an_input(own):
    (own / "spec.toml").write_text("[likelihood]\nkind = 'gaussian'\n")
    (own / "alias.arrow").symlink_to("model.arrow")
    shutil.copy(own / "model.arrow", own / "plain")
    log, catalog, spec = own / "new" / "day=3" / "part.parquet", own / "items.parquet", own / "spec.toml"
    everything, before = commands(own), content(own)
    old = next((own / "old").rglob("*.parquet"))
    grown = [*everything["update"], "--catalog", catalog, *CATALOG]
    chosen = [*everything["report"], "--policies", own / "policy.arrow"]
    cases = [
        (everything["fit"], [old, catalog]),
        (grown, [log, catalog]),
        (everything["learn"], [own / "model.arrow", own / "alias.arrow"]),
        (everything["score"], [log]),
        (["score", "--model", own / "plain", "--contexts", log], [own / "plain"]),
        (chosen, [log, own / "model.arrow", own / "alias.arrow", own / "policy.arrow"]),
        (everything["decide"], [log, catalog]),
    ]
    for command, outs in cases:
        for out in outs:
            refused(*command, "--out", out, words=[f"--out names {out}", "one of the files to be read"])
        if command[0] not in ("learn", "score"):
            refused(*command, "--spec", spec, "--out", spec, words=[f"--out names {spec}"])
    refused(*everything["decide"], "--policy", log, words=["--policy names"])
    both = ["--out", own / "one", "--policy", own / "one"]
    refused(*everything["decide"], *both, words=["--out and --policy name the same file"])
    assert content(own) == before


def test_python_functions_replace_no_input_either(own):
    log, model, catalog = own / "new" / "day=3" / "part.parquet", own / "model.arrow", own / "items.parquet"
    shutil.copy(model, own / "plain")
    before = content(own)
    columns = {"action": "item", "reward": "spend"}
    calls = [
        lambda: jobs.fit_files(log, ["age"], **columns, catalog=catalog, id="sku", out=log),
        lambda: jobs.fit_files(log, ["age"], **columns, catalog=catalog, id="sku", out=catalog),
        lambda: jobs.update_files(model, log, **columns, out=log),
        lambda: jobs.update_files(ma.load(model), log, **columns, catalog=catalog, id="sku", out=catalog),
        lambda: jobs.learn_policy(model, out=model),
        lambda: jobs.score(own / "plain", log, own / "plain"),
    ]
    for call in calls:
        with pytest.raises(InputError, match=r"^out names .* one of the files to be read"):
            call()
    assert content(own) == before


def test_of_two_updates_at_the_same_time_one_is_refused_and_no_rounds_are_lost(own):
    model = own / "model.arrow"
    pq.write_table(log_table(100, 9), own / "more.parquet")
    second = ["update", "--model", model, "--logs", own / "more.parquet", *ROLES, "--out", model]
    seen = []

    def meanwhile(*_):
        if not seen:
            seen.append(refused(*second, words=["another update of", "Run the update again"]))

    jobs.update_files(model, own / "new", "item", "spend", "p", out=model, on_rows=meanwhile)
    assert seen and ma.load(model).statistics.n_rounds == 800
    done(*second)
    assert ma.load(model).statistics.n_rounds == 900


def test_an_update_notices_that_its_model_was_replaced_meanwhile(own, monkeypatch):
    model = own / "model.arrow"

    def meanwhile(*_):
        ma.load(own / "model.arrow").save(model)

    before = model.read_bytes()
    with pytest.raises(ModelFileError, match="was replaced while this update was running") as caught:
        jobs.update_files(model, own / "new", "item", "spend", "p", out=model, on_rows=meanwhile)
    assert "Run the update again" in caught.value.remedy and model.read_bytes() == before
    # The same where files cannot be locked.
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(ModelFileError, match="was replaced"):
        jobs.update_files(model, own / "new", "item", "spend", "p", out=model, on_rows=meanwhile)


def test_processes_that_update_one_model_at_once_lose_no_rounds(own):
    model = own / "model.arrow"
    for number in range(2):
        pq.write_table(log_table(100, 20 + number), own / f"{number}.parquet")

    def update(number):
        logs = ["--logs", own / f"{number}.parquet", *ROLES]
        command = [sys.executable, "-m", "manyarms", "update", "--model", model, *logs, "--out", model]
        return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(update, range(2)))
    succeeded = [result for result in results if result.returncode == 0]
    assert ma.load(model).statistics.n_rounds == 600 + 100 * len(succeeded)
    for result in results:
        if result.returncode:
            assert result.returncode == 2 and "update" in result.stderr and result.stderr.count("\n") == 1


def test_a_draft_has_a_name_that_nobody_can_guess_and_follows_no_link(tmp_path, monkeypatch):
    path = tmp_path / "model"
    assert files.draft_of(path) != files.draft_of(path)
    (tmp_path / "precious").write_text("kept")
    planted = tmp_path / ".model.planted.tmp"
    planted.symlink_to("precious")
    monkeypatch.setattr(files, "draft_of", lambda _: planted)
    with pytest.raises(ModelFileError, match="File exists"):
        ma.Uniform(5).save(path)
    with pytest.raises(InputError, match="File exists"):
        files.check_output(path)
    assert (tmp_path / "precious").read_text() == "kept" and planted.is_symlink()


@pytest.mark.parametrize("out", fast_first(["page.html", "page.json", "charts"]))
def test_a_full_disk_names_the_file_of_the_report(out, shop, tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    kind = ["--format", "svg"] if out == "charts" else []
    command = [*commands(shop)["report"][:-2], *kind, "--out", tmp_path / out]
    refused(*command, words=[str(tmp_path / out), "could not be written: No space left on device"])
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_full_disk_names_the_file_of_the_demo(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    refused(*DEMO, tmp_path / "shop", words=["could not be written: No space left on device", str(tmp_path / "shop")])
    assert os.listdir(tmp_path / "shop") == []


def test_a_full_disk_is_a_typed_error_in_python(shop, tmp_path, monkeypatch):
    catalog = ma.load(shop / "model.arrow").catalog
    logs = ma.read_logs(pq.read_table(shop / "new"), ["age"], "item", "spend", catalog=catalog)
    decision = ma.decide({"uniform": ma.Uniform(20)}, logs, ma.fit(logs, ma.priors.independent(20, dim=2)))

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputFileError, match=r"page\.json could not be written: No space left on device\. An earlier"):
        write_report(decision, tmp_path / "page.json")
