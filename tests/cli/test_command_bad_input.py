"""Bad input to any command is one line and exit code 2, and leaves nothing behind."""

import os
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
from small_shop import (
    CONTEXT,
    ROLES,
    done,
    fit_command,
    log_table,
    refused,
    run,
    write_bad_files,
)

import manyarms as ma
from manyarms._base.files import draft_of
from manyarms.errors import InputError


def test_bad_input_to_the_others_is_one_line(shop, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_bad_files(tmp_path)
    before = sorted(os.listdir(tmp_path))
    model, policy, new = shop / "model.arrow", shop / "policy.arrow", shop / "new"
    judge = ["evaluate", "--model", model, "--logs", new, *ROLES]
    refused("evaluate", "--model", "nowhere.arrow", "--logs", new, *ROLES, words=["nowhere.arrow"])
    refused("evaluate", "--model", new / "day=3" / "part.parquet", "--logs", new, *ROLES, words=["part.parquet"])
    refused("evaluate", "--model", policy, "--logs", new, *ROLES, words=["holds a policy", "manyarms fit"])
    refused(*judge, "--policies", model, words=["holds a model", "manyarms learn"])
    refused(*judge, "--policies", "best", words=["no policy 'best'", "greedy"])
    refused(*judge, "--policies", "lost.arrow", words=["lost.arrow"])
    refused("evaluate", "--model", model, *ROLES, words=["--logs is needed", "path under [logs]"])
    refused("evaluate", "--model", model, "--logs", new, "--reward", "spend", words=["--action is needed"])
    unlogged = ["--action", "item", "--reward", "spend", "--estimators", "ips"]
    estimated = run("evaluate", "--model", model, "--logs", new, *unlogged)
    assert estimated.exit_code == 0 and "propensities were estimated from the logs" in estimated.stderr
    refused(
        "evaluate", "--logs", new, *CONTEXT, *ROLES, "--policies", "uniform", words=["Pass --model, or --estimators"]
    )
    refused("evaluate", "--logs", new, *CONTEXT, *ROLES, "--policies", "greedy", words=["made from a model"])
    refused("learn", "--model", model, "--policy", "softmax", "--out", "p.arrow", words=["needs a number"])
    refused("learn", "--model", model, "--policy", "softmax:-1", "--out", "p.arrow", words=["temperature"])
    score = ["score", "--model", model, "--out", "s.parquet", "--contexts"]
    pq.write_table(log_table(5, 0).drop_columns(["city"]), tmp_path / "other.parquet")
    before = sorted(os.listdir(tmp_path))
    refused(*score, "other.parquet", words=["no column 'city'", "the columns are user, age"])
    refused(*score, new, "--keep", "email", words=["no column 'email'"])
    refused(*score, new, "--eligible", "age", words=["column age must hold lists"])
    refused(*score, new, "--top-k", 21, words=["--top-k must be at most the 20 actions"])
    refused(*score, "truncated", words=["part.parquet cannot be read"])
    refused(*score, "holes.parquet", words=["column age is missing in row 2"])
    update = ["update", "--model", model, "--out", "m.arrow", *ROLES, "--logs"]
    refused(*update, "other.parquet", words=["no column 'city'"])
    refused(*update, "strangers.parquet", words=["row 3 has 'i99'"])
    refused(*update, new, "--catalog", shop / "items.csv", "--id", "sku", words=["the new catalog has no categories"])
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("out", ["x" * 250, "/proc/out"])
def test_a_place_that_cannot_be_written_is_refused_before_any_work(out, shop, tmp_path, monkeypatch):
    if not os.path.isdir(os.path.dirname(out) or "."):
        pytest.skip("NOT RUN: there is no /proc, a folder that nobody can write to")
    monkeypatch.chdir(tmp_path)
    words = ["--out cannot be written", "Name another place"]
    refused("fit", "--logs", "nowhere", *CONTEXT, *ROLES, "--out", out, words=words)
    refused("update", "--model", "nowhere", "--logs", "nowhere", *ROLES, "--out", out, words=words)
    refused("learn", "--model", "nowhere", "--out", out, words=words)
    refused("score", "--model", "nowhere", "--contexts", "nowhere", "--out", out, words=words)
    spread = ["score", "--engine", "dask", "--model", "nowhere", "--contexts", "nowhere", "--out"]
    refused(*spread, "/proc/scores/today", words=[*words, "/proc"])
    assert os.listdir(tmp_path) == []


def test_a_file_where_a_folder_is_to_be_and_the_other_way_round_say_what_to_do(shop, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    command = ["score", "--model", shop / "model.arrow", "--contexts", shop / "new", "--out"]
    refused(*command, tmp_path / "folder", words=["folder is a folder", "Name another file, or remove it"])
    refused(*command, tmp_path / "file", "--engine", "dask", words=["file is a file", "leave --engine out"])
    refused(*command, tmp_path / "file" / "scores", "--engine", "dask", words=["must lie in a folder"])
    with pytest.raises(InputError, match="is a folder, but the local engine writes a single file"):
        ma.score(ma.load(shop / "model.arrow"), shop / "new", tmp_path / "folder")


def test_drafts_of_processes_that_are_gone_are_removed_and_no_others(shop, tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    draft = draft_of(tmp_path / "policy.arrow").name
    mine = f"-{os.getpid()}-"
    assert mine in draft
    machine = draft.split(".")[-2].split("-")[0]
    dead = draft.replace(mine, f"-{gone.pid}-")
    others = [
        draft.replace(mine, f"-{os.getppid()}-"),
        dead.replace(machine, "0" * len(machine)),
        dead.replace("policy", "other-policy"),
        "policy.arrow.tmp",
    ]
    for name in (dead, *others):
        (tmp_path / name).touch()
    done("learn", "--model", shop / "model.arrow", "--out", tmp_path / "policy.arrow")
    assert sorted(os.listdir(tmp_path)) == sorted([*others, "policy.arrow"])


@pytest.mark.parametrize("command", ["fit", "learn", "score", "update"])
def test_a_full_disk_is_one_line_and_leaves_nothing(command, shop, tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    new = ["--logs", shop / "new", *ROLES]
    arguments = {
        "fit": fit_command(shop),
        "learn": ["learn", "--model", shop / "model.arrow"],
        "score": ["score", "--model", shop / "model.arrow", "--contexts", shop / "new"],
        "update": ["update", "--model", shop / "model.arrow", *new],
    }[command]
    monkeypatch.setattr(os, "fsync", full)
    refused(*arguments, "--out", tmp_path / "out", words=["out could not be written: No space left on device"])
    assert os.listdir(tmp_path) == []
