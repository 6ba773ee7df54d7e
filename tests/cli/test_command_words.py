"""Whatever the commands print speaks of flags and files; nothing of Python is left in it."""

import ast
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

import manyarms as ma
from manyarms.cli import app
from manyarms.cli.main import EXAMPLES
from manyarms.cli.terminal import FLAGS_OF_ARGUMENTS, error_line
from manyarms.errors import InputError

PYTHON = re.compile(r"\bma\.\w|\bnp\.|\b(?:pyarrow|scipy|pandas)\.|(?<![\w/-])[a-z_]+=(?!=)|\.\w+\(|\b\w+\(\)")
"""A call, an attribute of a module, or an argument by its name."""
ITEMS = [f"i{k}" for k in range(8)]


def commands():
    return typer.main.get_command(app).commands


def flags():
    parameters = [parameter for command in commands().values() for parameter in command.params]
    return {flag for parameter in parameters for flag in (*parameter.opts, *parameter.secondary_opts)}


# ---------------------------------------------------------------- every error, as it is written in the source

PYTHON_ONLY = ("nonlinear", "theory", "integrations", "learners", "prior_checks")
"""Packages that no command calls."""


def text(node):
    """A string in the source, with a word in the place of what is filled in; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "word" for part in node.values)
    return None


def raised():
    """Place, problem, remedy and remedy by flags of every error that the library raises with its words in place."""
    for path in sorted(Path(ma.__file__).parent.rglob("*.py")):
        if any(package in path.parts for package in PYTHON_ONLY):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                call, options = node.exc, {keyword.arg: keyword.value for keyword in node.exc.keywords}
                name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
                if hasattr(ma.errors, name):
                    words = [text(argument) or "" for argument in call.args[:2]] + ["", ""]
                    yield f"{path.name}:{node.lineno}", words[0], words[1], text(options.get("flag_remedy")) or ""


def test_remedies_by_flags_name_flags_that_a_command_has():
    remedies = [flag_remedy for *_, flag_remedy in raised() if flag_remedy]
    assert len(remedies) > 10
    for remedy in remedies:
        assert set(re.findall(r"--[a-z][a-z-]*", remedy)) <= flags(), remedy
        assert not PYTHON.search(remedy), remedy


def test_arguments_with_a_flag_of_another_name_have_that_flag():
    names = {parameter.name for command in commands().values() for parameter in command.params}
    assert set(FLAGS_OF_ARGUMENTS.values()) <= names
    assert not set(FLAGS_OF_ARGUMENTS) & names


# ---------------------------------------------------------------- errors that commands reach, as they print them


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A log with clicks, amounts, gaps and late items; a catalog; models with a feature map and without one."""
    folder, rng, n = tmp_path_factory.mktemp("words"), np.random.default_rng(0), 60
    item = rng.integers(6, size=n)
    table = pa.table(
        {
            "age": rng.normal(size=n),
            "gaps": [None, *rng.normal(size=n - 1)],
            "item": [ITEMS[i] for i in item],
            "number": item,
            "big": item * 10**12,  # from 0 on: numbers, not codes
            "spend": rng.normal(size=n),
            "zero": np.zeros(n),
            "click": (rng.random(n) < 0.5).astype(float),
            "p": np.full(n, 1 / 6),
            "at": np.datetime64("2024-05-01") + np.arange(n) // 10,
        }
    )
    pq.write_table(table, folder / "logs.parquet")
    pq.write_table(pa.table({"item": ITEMS, "kind": ["tea", "mug"] * 4}), folder / "items.parquet")
    pq.write_table(pa.table({"item": ITEMS[:3], "kind": ["tea", "mug", "tea"]}), folder / "few.parquet")
    logs = ma.LoggedData(np.ones((n, 1)), item, table["spend"].to_numpy(), n_actions=6)
    ma.fit(logs, ma.priors.independent(6, dim=1)).save(folder / "plain.arrow")
    fitted = run(folder, "fit", *LOGS, "--catalog", "items.parquet", "--out", "model.arrow", "--no-learn-prior")
    assert fitted.exit_code == 0, fitted.output
    return folder


LOGS = ["--logs", "logs.parquet", "--context", "age", "--action", "item", "--reward", "spend"]
NUMBERED = ["--logs", "logs.parquet", "--context", "age", "--action", "number", "--out", "new.arrow"]
UNIFORM = [*LOGS, "--catalog", "items.parquet", "--policies", "uniform"]
FIT = ["fit", *LOGS, "--catalog", "items.parquet", "--out", "new.arrow"]


def run(folder, *arguments):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "100"})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*FIT, "--half-life", "7d"], ["--half-life", "--time"]),
        ([*FIT, "--maturity", "7d"], ["--maturity", "--time"]),
        ([*FIT, "--engine", "ray"], ["--engine must be local, dask, spark or ibis; got 'ray'"]),
        ([*FIT, "--unknown", "some"], ["--unknown must be one of refuse, drop, other; got 'some'"]),
        ([*FIT, "--category", "kind", "--prior-std", "-1"], ["--effect-std must"]),
        ([*FIT, "--action-std", "-1"], ["--action-std must"]),
        ([*FIT, "--prior", "tags"], ["--tags"]),
        ([*FIT, "--prior", "embeddings"], ["--embedding"]),
        ([*FIT, "--context", "gaps"], ["gaps", "row 0", "--missing drop"]),
        ([*FIT, "--catalog", "few.parquet"], ["catalog of 3 actions", "--unknown drop or --unknown other"]),
        (["fit", *NUMBERED, "--action", "big", "--reward", "spend"], ["column big", "catalog with all ids"]),
        (["fit", *NUMBERED, "--reward", "spend", "--unknown", "other"], ["--unknown other", "--catalog"]),
        ([*FIT, "--likelihood", "bernoulli"], ["rewards must be 0 or 1", "--likelihood gaussian"]),
        ([*FIT, "--likelihood", "poisson"], ["rewards must be", "--likelihood gaussian"]),
        ([*FIT, "--likelihood", "log-normal"], ["rewards must be above", "--likelihood gaussian"]),
        ([*FIT, "--reward", "zero", "--likelihood", "bernoulli"], ["--no-learn-prior"]),
        (["evaluate", *UNIFORM], ["--model", "--estimators"]),
        (["evaluate", *LOGS, "--catalog", "items.parquet", "--policies", "greedy"], ["greedy", "--model"]),
        (
            ["evaluate", *UNIFORM, "--estimators", "dr"],
            ["dr", "--model"],
        ),
        (
            ["evaluate", *UNIFORM, "--propensity", "p", "--estimators", "dr"],
            ["dr", "--model"],
        ),
        (
            ["evaluate", *UNIFORM, "--propensity", "p", "--estimators", "ips:100"],
            ["ips:100", "floor on the propensity"],
        ),
        (["evaluate", *UNIFORM, "--propensity", "p", "--estimators", "best"], ["best"]),
        (["score", "--model", "plain.arrow", "--contexts", "logs.parquet", "--out", "s.parquet"], ["manyarms fit"]),
        (["score", "--model", "model.arrow", "--contexts", "logs.parquet", "--out", "s.parquet", "--top-k", 99], []),
        (["score", "--model", "items.parquet", "--contexts", "logs.parquet", "--out", "s.parquet"], ["items.parquet"]),
        (["update", "--model", "plain.arrow", *LOGS[:2], *LOGS[4:], "--out", "new.arrow"], ["feature map"]),
        (["learn", "--model", "model.arrow", "--policy", "best", "--out", "p.arrow"], ["best"]),
        (["demo", "--items", "3", "--output", "shop"], ["--categories", "3"]),
        (["report", "--model", "model.arrow", *LOGS, "--format", "pdf"], ["--format must be one of html"]),
        (["fit", *LOGS, "--out", "."], ["--out must name a file"]),
        ([word for word in FIT if word not in ("--context", "age")], ["--context is needed", "--context none"]),
    ],
    ids=lambda value: " ".join(map(str, value[:1] + value[-2:])) if isinstance(value, list) else None,
)
def test_an_error_is_one_line_about_flags(shop, arguments, words):
    result = run(shop, *arguments)
    assert result.exit_code == 2, (result.output, result.exception)
    line = result.stderr.strip().splitlines()[-1]
    assert line.startswith("manyarms: error: ")
    for word in words:
        assert word in line, line
    assert not PYTHON.search(line), line


@pytest.mark.parametrize(
    "arguments",
    [
        [*FIT, "--noise-std", "0.01", "--no-learn-prior"],
        [*FIT, "--noise-std", "100", "--no-learn-prior"],
        FIT,
        [*FIT, "--reward", "click"],
        ["evaluate", "--model", "model.arrow", *LOGS, "--propensity", "p", "--estimators", "dr,ips,replay"],
        pytest.param(["report", "--model", "model.arrow", *LOGS, "--propensity", "p"], marks=pytest.mark.slow),
        ["report", *UNIFORM, "--propensity", "p", "--estimators", "snips"],
    ],
    ids=lambda arguments: " ".join(arguments[:1] + arguments[-2:]),
)
def test_warnings_and_results_speak_of_flags(shop, arguments):
    result = run(shop, *arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    for line in result.output.splitlines():
        assert not PYTHON.search(line), line


def test_an_argument_without_a_flag_keeps_its_name_and_a_remedy_by_flags_goes_first():
    error = InputError("must be 0 or 1.", "Use Gaussian().", argument="rewards", flag_remedy="Pass --likelihood.")
    assert str(error) == "rewards must be 0 or 1. Use Gaussian()."
    assert error_line(error) == "rewards must be 0 or 1. Pass --likelihood."


def test_help_lists_what_is_required_first():
    shown = CliRunner().invoke(app, ["plan", "--help"]).output
    panel = shown[shown.index("Logs:") :]
    assert max(panel.index(name) for name in ("--logs", "--action", "--reward")) < panel.index("--weight")


def test_help_shows_the_extras_of_an_engine_in_brackets():
    shown = " ".join(CliRunner().invoke(app, ["fit", "--help"]).output.replace("│", " ").split())
    assert "install manyarms[dask] or manyarms[spark]" in shown


@pytest.mark.parametrize("columns", [60, 80, 109, 110, 160])
def test_help_cuts_no_word_at_any_width(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    for name in (command.__name__.removesuffix("_command").replace("_", "-") for command in EXAMPLES):
        shown = CliRunner().invoke(app, [name, "--help"]).output
        assert "…" not in shown
    shown = CliRunner().invoke(app, ["decide", "--help"]).output
    assert "pessimistic[:delta]:" in shown and "new=column:recommended" in shown
    assert all(heading in shown for heading in ("Options", "Logs", "Catalog", "Model"))


@pytest.mark.parametrize("columns", [80, 140])
def test_help_shows_no_type_for_a_switch_and_british_spelling(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    for arguments in ([], ["report"]):
        shown = CliRunner().invoke(app, [*arguments, "--help"]).output
        assert "--help" in shown and "<bool>" not in shown and "customize" not in shown


def test_help_of_an_option_says_what_the_command_does_with_it():
    def shown(command):
        return " ".join(CliRunner().invoke(app, [command, "--help"]).output.split())

    choosing = "Policies choose only among these."
    assert [choosing in shown(name) for name in ("fit", "update", "decide", "plan")] == [False, False, True, True]
    default = "Default: snips,dr if the logs have propensities, otherwise none."
    assert default in shown("report") and default not in shown("evaluate")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["decide", "--sure", "1.0"], "--sure must be at least 0.5 and below 1.0; got 1.0."),
        (["decide", "--sure", "0.4"], "--sure must be at least 0.5 and below 1.0; got 0.4."),
        (["report", "--model", "model.arrow", "--sure", "1.0"], "--sure must be at least 0.5 and below 1.0; got 1.0."),
        (["plan", "--model", "model.arrow", "--sure", "0.5"], "--sure must be above 0.5 and below 1.0; got 0.5."),
        (["backtest", "--time", "at", "--level", "0"], "--level must be above 0.0 and below 1.0; got 0.0."),
        (["backtest", "--time", "at", "--false-alarm", "1"], "--false-alarm must be above 0.0 and below 1.0; got 1.0."),
    ],
    ids=lambda value: " ".join(value[:1] + value[-2:]) if isinstance(value, list) else None,
)
def test_a_number_out_of_range_is_refused_and_help_states_the_range(shop, arguments, words):
    roles = ["--logs", "logs.parquet", "--action", "item", "--reward", "spend"]
    context = [] if arguments[0] == "plan" else ["--context", "age"]
    catalog = [] if "--model" in arguments else ["--catalog", "items.parquet"]
    result = run(shop, *arguments, *roles, *context, *catalog)
    assert result.exit_code == 2 and words in result.stderr, (result.output, result.exception)
    shown = " ".join(run(shop, arguments[0], "--help").output.split())
    assert "below 1" in shown and "<=x<=" not in shown
