"""score: the best actions of every row, and nothing half-written."""

import os
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose
from small_shop import ITEMS, done, figures, log_table, refused

import manyarms as ma


def test_score_writes_the_best_actions_of_every_row(shop, tmp_path):
    out = tmp_path / "scores.parquet"
    shown = figures(
        "score", "--model", shop / "model.arrow", "--contexts", shop / "new", "--keep", "user,city", "--top-k", 3,
        "--out", out,
    )  # fmt: skip
    assert shown["contexts"] == 200 and shown["rows"] == 600
    found, rows, posterior = pq.read_table(out), pq.read_table(shop / "new"), ma.load(shop / "model.arrow")
    best = ma.Greedy(posterior).top_k(rows, 3)
    assert found.column_names == ["user", "city", "row", "rank", "action", "expected_reward", "reward_std"]
    assert found["action"].to_pylist() == [ITEMS[a] for a in best.reshape(-1)]
    assert found["user"].to_pylist() == np.repeat(rows["user"].to_pylist(), 3).tolist()
    assert found["rank"].to_pylist() == [1, 2, 3] * 200
    repeated = rows.take(np.repeat(np.arange(200), 3))
    assert_allclose(found["expected_reward"], posterior.expected_reward(repeated, best.reshape(-1)), rtol=1e-12)
    assert_allclose(found["reward_std"], posterior.reward_std(repeated, best.reshape(-1)), rtol=1e-9)
    written = ma.score(shop / "model.arrow", shop / "new", tmp_path / "scores.csv", keep=["user", "city"], top_k=3)
    lines = (tmp_path / "scores.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 601 and lines[0].replace('"', "") == ",".join(found.column_names)
    assert_allclose(written.to_arrow()["expected_reward"], found["expected_reward"], rtol=1e-12)


def test_score_follows_a_policy_and_what_is_eligible(shop, tmp_path):
    rows = pq.read_table(shop / "new").append_column("may", pa.array([[ITEMS[i % 20], ITEMS[3]] for i in range(200)]))
    pq.write_table(rows, tmp_path / "rows.parquet", row_group_size=37)
    done(
        "score", "--policy", shop / "policy.arrow", "--contexts", tmp_path / "rows.parquet", "--eligible", "may",
        "--top-k", 2, "--out", tmp_path / "scores.parquet",
    )  # fmt: skip
    found = pq.read_table(tmp_path / "scores.parquet").to_pylist()
    assert len(found) == 2 * 200 - 10  # every twentieth row may choose item 3 alone
    assert all(row["action"] in (ITEMS[row["row"] % 20], ITEMS[3]) for row in found)


def test_score_drops_rows_that_lack_a_value_on_request(shop, tmp_path):
    ages = log_table(10, 3)["age"].to_pylist()
    ages[4] = None
    pq.write_table(log_table(10, 3).set_column(1, "age", pa.array(ages)), tmp_path / "rows.parquet")
    command = [
        "score",
        "--model",
        shop / "model.arrow",
        "--contexts",
        tmp_path / "rows.parquet",
        "--out",
        tmp_path / "s.parquet",
    ]
    refused(*command, words=["column age is missing in row 4"])
    shown = figures(*command, "--missing", "drop", "--keep", "user")
    assert shown["dropped"]["missing"] == 1
    found = pq.read_table(tmp_path / "s.parquet")
    assert found["row"].to_pylist() == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert found["user"].to_pylist() == [f"u3-{i}" for i in (0, 1, 2, 3, 5, 6, 7, 8, 9)]


def test_bad_rows_deep_in_a_file_leave_the_old_scores_as_they_were(shop, tmp_path):
    rows = log_table(40_000, 0)
    ages = rows["age"].to_pylist()
    ages[39_999] = None
    pq.write_table(rows.set_column(1, "age", pa.array(ages)), tmp_path / "rows.parquet")
    (tmp_path / "scores.parquet").write_bytes(b"old")
    command = ["score", "--model", shop / "model.arrow", "--contexts", tmp_path / "rows.parquet"]
    refused(*command, "--out", tmp_path / "scores.parquet", words=["column age is missing in row 39999"])
    refused(*command, "--out", tmp_path / "rows.parquet", words=["one of the files to be read"])
    assert sorted(os.listdir(tmp_path)) == ["rows.parquet", "scores.parquet"]
    assert (tmp_path / "scores.parquet").read_bytes() == b"old"


def in_process(*arguments, before="", **options):
    code = f"{before}\nfrom manyarms.cli import app\napp()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def test_a_disk_that_fills_up_while_scores_are_written(shop, tmp_path):
    pq.write_table(log_table(30_000, 0), tmp_path / "rows.parquet")
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({1 << 16}, {resource.RLIM_INFINITY}))"
    out = ["--contexts", tmp_path / "rows.parquet", "--keep", "user", "--out", tmp_path / "scores.parquet"]
    process = in_process("score", "--model", shop / "model.arrow", *out, before=limit)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 2, stderr
    assert stdout == "" and stderr.startswith(f"manyarms: error: {tmp_path / 'scores.parquet'} could not be written")
    assert stderr.count("\n") == 1 and os.listdir(tmp_path) == ["rows.parquet"]


@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_a_command_that_is_stopped_leaves_nothing(sent, code, shop, tmp_path):
    """In the middle of its writing."""
    slow = (
        "import sys, time, pyarrow.parquet as pq\n"
        "def wait(*a, **k): print('ready', file=sys.stderr, flush=True); time.sleep(60)\n"
        "pq.ParquetWriter.write_table = wait"
    )
    out = ["--contexts", shop / "new", "--out", tmp_path / "scores.parquet"]
    process = in_process("score", "--model", shop / "model.arrow", *out, before=slow)
    assert process.stderr.readline() == "ready\n"
    assert len(os.listdir(tmp_path)) == 1
    time.sleep(0.2)
    process.send_signal(sent)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + sent and stderr == "manyarms: error: stopped.\n"
    assert os.listdir(tmp_path) == []
