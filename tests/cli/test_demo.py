"""The demo's figures are right, its files safe, its script honest, its errors short."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm
from typer.testing import CliRunner

from manyarms import __version__
from manyarms._base.files import replace_files
from manyarms.cli import app
from manyarms.cli import demo_files as files
from manyarms.datasets import Shop

SMALL = ["--items", "60", "--categories", "6", "--rounds", "300", "--seed", "3"]
NAMES = ["current policy", "greedy", "pessimistic", "uniform"]


def invoke(*arguments, columns=80):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": str(columns)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("demo") / "new" / "shop"


@pytest.fixture(scope="module")
def figures(folder):
    result = invoke("demo", *SMALL, "--output", folder, "--json")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def dense(figures, folder):
    return DenseShop(folder, figures["learned"])


class DenseShop:
    """The Parquet files, and the posterior of all θ by the textbook formula: nothing of the library but the scales."""

    def __init__(self, folder, learned):
        logs, new, catalog = (pq.read_table(folder / f"{name}.parquet") for name in ("logs", "new-logs", "catalog"))
        ids, categories = catalog["item"].to_pylist(), catalog["category"].to_pylist()
        self.seen, self.actions = (np.array([ids.index(i) for i in part["item"].to_pylist()]) for part in (logs, new))
        names = ("age", "evening", "mobile", "returning", "past_spend")
        old, self.x = (
            np.column_stack([np.ones(len(part)), *(part[name].to_numpy() for name in names)]) for part in (logs, new)
        )
        self.n, self.d, self.K = *self.x.shape, len(ids)
        same = np.equal.outer(categories, categories).astype(float)
        own, alike, shared = (learned[f"{name} std"] ** 2 for name in ("actions", "category", "shared"))
        cov = np.kron(shared + alike * same + own * np.eye(self.K), np.eye(self.d))
        mean = np.zeros(self.K * self.d)
        design = np.einsum("ia,id->iad", np.eye(self.K)[self.seen], old).reshape(len(logs), -1)
        V = design @ cov @ design.T + learned["noise std"] ** 2 * np.eye(len(logs))
        gain = np.linalg.solve(V, design @ cov).T
        self.mean = mean + gain @ (logs["margin"].to_numpy() - design @ mean)
        self.cov = cov - gain @ design @ cov

    def rows(self, probabilities):
        """Row i holds π(a | x_i) x_i for all actions."""
        return np.einsum("ia,id->iad", probabilities, self.x).reshape(self.n, -1)

    def policies(self):
        theta = self.mean.reshape(self.K, self.d)
        blocks = self.cov.reshape(self.K, self.d, self.K, self.d)[np.arange(self.K), :, np.arange(self.K)]
        scores = self.x @ theta.T
        log = np.log(1 / 0.05)
        radius = np.sqrt(self.d + 2 * np.sqrt(self.d * log) + 2 * log)
        lower = scores - radius * np.sqrt(np.einsum("ni,aij,nj->na", self.x, blocks, self.x))
        everyone = np.eye(self.K)
        return {
            "current policy": everyone[self.actions],
            "greedy": everyone[scores.argmax(axis=1)],
            "pessimistic": everyone[lower.argmax(axis=1)],
            "uniform": np.full((self.n, self.K), 1 / self.K),
        }

    def estimate(self, probabilities):
        """Value, and the standard deviation of all its error, of probabilities or of a difference of two."""
        rows = self.rows(probabilities)
        direction, by_row = rows.mean(axis=0), rows @ self.mean
        return by_row.mean(), np.sqrt(direction @ self.cov @ direction + by_row.var(ddof=1) / self.n)


def test_figures_equal_a_dense_computation_from_the_files(figures, dense):
    policies = dense.policies()
    unseen = np.bincount(dense.seen, minlength=60) == 0
    assert [row["name"] for row in figures["policies"]] == NAMES
    for row in figures["policies"]:
        probabilities = policies[row["name"]]
        value, std = dense.estimate(probabilities)
        assert_allclose([row["value"], row["std"]], [value, std], rtol=1e-9)
        assert_allclose(row["interval_95"], norm.interval(0.95, value, std), rtol=1e-9)
        assert row["share_never_shown"] == pytest.approx(probabilities[:, unseen].sum() / 150, abs=1e-12)
        if row["name"] == "current policy":
            assert row["difference"] is None and row["probability_beats_now"] is None
            continue
        # The checked gain: near the model's, since this model is right, and within its own wider interval.
        gain, _ = dense.estimate(probabilities - policies["current policy"])
        low, high = row["difference_interval_95"]
        assert low < gain < high and low < row["difference"] < high
    shop = {"rounds": 300, "items": 60, "categories": 6, "items_never_shown": int(unseen.sum())}
    assert figures["shop"] == shop


def test_true_values_are_those_of_the_shop_that_was_drawn(figures, dense):
    truth = Shop(n_items=60, n_categories=6, n_rounds=300).draw(np.random.default_rng(3)).environment.weights
    for row in figures["policies"]:
        probabilities = dense.policies()[row["name"]]
        assert row["true_value"] == pytest.approx(float((probabilities * (dense.x @ truth.T)).sum() / 150), rel=1e-9)


@pytest.mark.slow
def test_saved_script_runs_and_gives_the_demos_figures(figures, folder, tmp_path):
    script = folder / "decide.py"
    found = subprocess.run(
        [sys.executable, "-W", "error", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    number = r"-?\d+\.?\d*(?:e-?\d+)?"
    learned, lines = (part.splitlines() for part in found.stdout.split("\n\n"))
    for line in (line for line in learned[1:] if not line.startswith("  note:")):
        name, value = (
            re.match(rf"  (.*?)  +({number})", line).groups() if " std" in line or " mean" in line else ("", 0)
        )
        assert not name or float(value) == pytest.approx(figures["learned"][name], rel=1e-3)
    assert len(lines) == 4
    for line, row in zip(lines, figures["policies"], strict=True):
        assert line.startswith(row["name"])
        expected = [row["value"], *row["interval_95"]]
        if row["difference"] is not None:
            expected += [row["difference"], *row["difference_interval_95"], row["probability_beats_now"]]
        without_counts = re.sub(r"\(\d+ warnings?, see .warnings\)", "", line)
        got = [float(text) for text in re.findall(number, without_counts)]
        assert_allclose(got, expected, rtol=6e-4, atol=6e-5)


def test_terminal_shows_the_same_figures_and_ends_with_the_way_to_ones_own_data(figures, folder):
    result = invoke("demo", *SMALL, "--output", folder)
    assert result.exit_code == 0
    assert_nothing_is_cut_or_wrapped(result.stdout, folder, columns=80)
    table = {line[:14].strip(): line[14:] for line in result.stdout.splitlines()}
    for row in figures["policies"]:
        low, high = row["interval_95"]
        shown = table[row["name"]]
        assert f"{row['value']:.3f}   {low:.3f} to {high:.3f}" in shown
        assert f"{row['true_value']:.3f}" in shown
        if row["difference"] is not None:
            assert f"{row['difference']:+.3f}" in shown
    assert f"The evidence on one page: {folder / 'report.html'}" in result.stdout
    assert result.stdout.rstrip().endswith("decide.py")
    # The commands that it names run as they are, on the spec that it wrote.
    for command in figures["commands"]:
        assert command in result.stdout
        program, *arguments = shlex.split(command)
        assert program == "manyarms"
        done = invoke(*arguments)
        assert done.exit_code == 0, done.output
    assert "over the current policy" in done.stdout
    assert (folder / "my-report.html").stat().st_size < 2_000_000


def assert_nothing_is_cut_or_wrapped(shown, folder, columns):
    assert "…" not in shown
    report = shown.splitlines()
    assert max(len(line) for line in report if str(folder) not in line) <= columns
    table = next(k for k, line in enumerate(report) if "95 % interval" in line)
    assert [line[:14].strip() for line in report[table + 2 : table + 6]] == NAMES


@pytest.mark.slow
def test_a_wider_terminal_shows_the_same_table(tmp_path):
    result = invoke("demo", *SMALL, "--output", tmp_path, columns=120)
    assert_nothing_is_cut_or_wrapped(result.stdout, tmp_path, columns=120)


@pytest.mark.slow
def test_decision_follows_the_probability(tmp_path):
    few = json.loads(
        invoke("demo", "--items", 60, "--categories", 6, "--rounds", 5, "--output", tmp_path, "--json").stdout
    )
    assert few["decision"]["ship"] is None
    assert few["decision"]["sentence"].startswith("Undecided")
    many = ["--items", 300, "--categories", 10, "--rounds", 60_000]
    many = json.loads(invoke("demo", *many, "--output", tmp_path, "--json").stdout)
    best = max(many["policies"][1:], key=lambda row: row["difference"])
    assert best["probability_beats_now"] > 0.95
    assert many["decision"]["ship"] == best["name"]
    assert f"{best['difference']:+.3f}" in many["decision"]["sentence"]


@pytest.mark.slow
def test_a_second_run_replaces_its_own_files_and_keeps_yours(figures, folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    before = (tmp_path / "logs.parquet").read_bytes()
    assert invoke("demo", *SMALL, "--seed", 4, "--output", tmp_path).exit_code == 0
    after = (tmp_path / "logs.parquet").read_bytes()
    assert after != before
    script = tmp_path / "decide.py"
    script.write_text(script.read_text().replace('"item"', '"sku"'))
    refused = invoke("demo", *SMALL, "--output", tmp_path)
    assert refused.exit_code == 2
    assert_one_line(refused, "decide.py", "--force")
    assert '"sku"' in script.read_text()
    assert (tmp_path / "logs.parquet").read_bytes() == after
    assert invoke("demo", *SMALL, "--output", tmp_path, "--force").exit_code == 0
    assert '"sku"' not in script.read_text()
    assert (tmp_path / "logs.parquet").read_bytes() == before


def test_a_log_that_was_there_before_is_not_replaced(tmp_path):
    (tmp_path / "logs.parquet").write_bytes(b"mine")
    assert_one_line(invoke("demo", *SMALL, "--output", tmp_path), "logs.parquet", "--force")
    assert (tmp_path / "logs.parquet").read_bytes() == b"mine"
    assert os.listdir(tmp_path) == ["logs.parquet"]


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_files_whole_and_nothing_else(broken, tmp_path, monkeypatch):
    old = {"one": b"old one", "two": b"old two"}
    files.write_ours(tmp_path, old)

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, broken, fail)
    with pytest.raises(OSError, match="No space"):
        replace_files({tmp_path / name: b"new" for name in old})
    monkeypatch.undo()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != files.LEDGER} == old
    files.refuse_foreign(tmp_path, list(old))


def test_files_known_as_ours_stay_known_when_a_run_stops_half_way(tmp_path, monkeypatch):
    files.write_ours(tmp_path, {"one": b"old one", "two": b"old two"})
    rename, names = os.replace, []

    def stop_at_second_file(source, target):
        names.append(target)
        if len(names) == 3:
            raise OSError(28, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(os, "replace", stop_at_second_file)
    with pytest.raises(OSError, match="No space"):
        files.write_ours(tmp_path, {"one": b"new one", "two": b"new two"})
    monkeypatch.undo()
    assert [(tmp_path / name).read_bytes() for name in ("one", "two")] == [b"new one", b"old two"]
    files.refuse_foreign(tmp_path, ["one", "two"])


def assert_one_line(result, *words):
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("manyarms: error: ")
    assert result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr


def test_errors_are_one_line_and_exit_2(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    assert_one_line(invoke("demo", *SMALL, "--output", tmp_path / "file" / "shop"), "Not a directory", "file")
    assert_one_line(
        invoke("demo", "--items", 3, "--output", tmp_path, "--json"),
        "--categories must be at most the number of items",
        "got 40 for 3 items",
    )


def test_a_full_disk_is_one_line_too(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert_one_line(invoke("demo", *SMALL, "--output", tmp_path), "No space left on device")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("arguments", [["--rounds", "0"], ["--seed", "-1"], ["--items", "many"], ["--unknown"]])
def test_wrong_usage_exits_2(arguments, tmp_path):
    assert invoke("demo", "--output", tmp_path, *arguments).exit_code == 2
    assert os.listdir(tmp_path) == []


def test_help_shows_an_example_and_version_the_version():
    for arguments in (["--help"], ["demo", "--help"]):
        result = invoke(*arguments)
        assert result.exit_code == 0
        assert "Example: manyarms demo" in result.stdout
    assert invoke("--version").stdout == f"manyarms {__version__}\n"


def test_help_does_not_wait_for_tables():
    code = "import sys, manyarms.cli; print([m for m in ('pyarrow', 'rich.table') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("reproduce synthetic-op", {"synthetic-opl", "synthetic-ope"}),
        ("evaluate --policies uniform,epsilon-greedy:0.1,s", {"uniform,epsilon-greedy:0.1,softmax"}),
        ("evaluate --policies greedy,g", set()),
        ("evaluate --estimators switch", {"switch-dr"}),
        ("learn --policy pess", {"pessimistic"}),
        ("fit --likelihood ", {"gaussian", "bernoulli", "poisson", "student-t", "log-normal"}),
        ("fit --prior t", {"taxonomy", "tags"}),
        ("update --engine s", {"spark"}),
        ("sc", {"score"}),
    ],
)
def test_a_shell_is_offered(typed, offered):
    words = f"manyarms {typed}"
    count = str(len(words.split()) - (not words.endswith(" ")))
    said = {"_MANYARMS_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": count}
    result = CliRunner().invoke(app, prog_name="manyarms", env=said)
    assert set(result.output.split()) == offered
