"""Hostile input to the commands: one line and exit code 2, or a result that is finite and complete.

A case takes a valid command line and corrupts a value, a flag, the data, the model file or the spec. Whatever the
command does, the files that it reads keep their bytes; a command that refuses leaves no file behind. Most cases run in
this process, two in a hundred as processes of their own.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from typer.testing import CliRunner

from manyarms.cli import app
from trust.check import Check, Outcome, Row
from trust.hostile_world import HostileWorld, hostile_world

SEED = 16_002
OWN_PROCESS = 0.02
"""The share of cases that run as processes of their own."""
ROLES = {"--action": "item", "--reward": "spend", "--propensity": "p"}
CATALOG = {"--catalog": "{catalog}", "--id": "sku", "--category": "kind"}
COMMANDS: dict[str, dict[str, str]] = {
    "fit": {"--logs": "{logs}", "--context": "age,city", **ROLES, **CATALOG, "--time": "at", "--half-life": "14d",
            "--max-levels": "10", "--seed": "0", "--action-std": "0.5", "--out": "{out}/model.arrow"},
    "update": {"--model": "{model}", "--logs": "{new}", **ROLES, "--out": "{out}/model.arrow"},
    "evaluate": {"--model": "{model}", "--logs": "{new}", **ROLES, "--policies": "greedy,softmax:0.5",
                 "--estimators": "ips,snips:0.01", "--seed": "0"},
    "learn": {"--model": "{model}", "--policy": "pessimistic:0.1", "--seed": "0", "--out": "{out}/policy.arrow"},
    "score": {"--model": "{policy}", "--contexts": "{logs}", "--top-k": "2", "--keep": "user",
              "--missing": "refuse", "--out": "{out}/scores.parquet"},
    "report": {"--model": "{model}", "--logs": "{new}", **ROLES, "--policies": "greedy", "--sure": "0.9",
               "--title": "Mine", "--unit": "euros", "--segment": "city", "--format": "json",
               "--out": "{out}/report.json"},
    "plan": {"--model": "{model}", "--logs": "{new}", **ROLES, "--candidate": "softmax:0.5", "--chance": "0.7",
             "--share": "0.3", "--policy": "{out}/explore.arrow", "--sample": "40"},
    "decide": {"--logs": "{logs}", "--context": "age,city", **ROLES, **CATALOG, "--sure": "0.9",
               "--out": "{out}/decision.json"},
    "backtest": {"--logs": "{logs}", "--context": "age,city", **ROLES, **CATALOG, "--time": "at", "--level": "0.9",
                 "--logged-by": "city", "--period": "1d", "--out": "{out}/backtest.json"},
    "demo": {"--output": "{out}/shop", "--items": "20", "--categories": "4", "--rounds": "60", "--seed": "0"},
    "reproduce": {"--instances": "2", "--out": "{out}/figures", "--list": ""},
}  # fmt: skip
"""A valid command line of every command."""

ORDER = (
    "fit", "update", "evaluate", "score", "learn", "report", "fit", "update", "score", "decide", "evaluate", "fit",
    "backtest", "plan", "demo", "score", "update", "learn", "report", "reproduce", "evaluate", "fit",
)  # fmt: skip
"""The commands of successive cases: those that take long come less often."""

READING = ("--logs", "--contexts", "--catalog", "--model", "--spec")
"""Flags that name a file to read."""

SIZES = ("--items", "--categories", "--rounds")
"""Flags that are never left out, since the default takes long."""

VERDICTS = {0, 3, 4}
"""Exit codes of `decide`, of which `backtest` has the first two; those of all other commands are 0 and 2."""

TEXTS = (
    '', ' ', 'nowhere', '../..', '/', '/dev/null', '/dev/full', '/proc/x', "x" * 300, "x" * 5000,
    '\xe9\u202e\U0001f600', '\x1b[31m', 'a\nb', '\udc80', 'nan', 'inf', '-inf', '1e400', '-1', '0', '1e-320', '0.5',
    '99999999999999999999', '2', 'None', 'true', 'a,b,c', ',', ',,', '*', '[', '{}', '${HOME}', '`id`',
    'greedy:nan', 'softmax:0', 'softmax:-1', 'thompson:1e9', 'ips:2', 'ips:x', 'greedy,greedy', '-', '--', '--out',
    '1d', '-5d', '1e9d', '2024-13-45', 'age', 'spend', 'item', 'city', 'at', '<script>',
)  # fmt: skip
"""Words to replace a value by."""

EXTRA_FLAGS = (
    ['--nonsense'], ['--help-me', '3'], ['stray'], ['--json', '--json'], ['--seed', 'x'], ['--engine', 'nonsense'],
    ['--engine', 'dask:tcp://127.0.0.1:1'], ['--weight', 'w'], ['--weight', 'spend'], ['--group', 'user'],
    ['--time', 'city'], ['--maturity', '9999999d'], ['--half-life', '0d'], ['--now', 'yesterday'],
    ['--expand', 'splines'], ['--expand', 'x'], ['--missing', 'drop'], ['--unknown', 'drop'],
    ['--unknown', 'other'], ['--categorical', 'age'], ['--max-levels', '0'], ['--likelihood', 'bernoulli'],
    ['--likelihood', 'poisson'], ['--likelihood', 'x'], ['--noise-std', '0'], ['--prior', 'taxonomy'],
    ['--prior', 'embeddings'], ['--components', '0'], ['--no-learn-prior'], ['--eligible', 'age'],
    ['--spec', 'nowhere.toml'], ['--allow-repeats'], ['--sure', '2'], ['--format', 'exe'], ['--top-k', '7'],
    ['--force'],
)  # fmt: skip
"""Flags to add to a command."""

SPECS = (
    b'', b'[logs', b'\xff\xfe\x00', b'logs = 3', b'[logs]\npath = 3', b'[logs]\ncontext = 3', b'[log]\nx = 1',
    b"[prior]\nlearn = 'yes'", b'[prior]\naction_std = nan', b'[prior]\naction_std = -1',
    b'[likelihood]\nnoise_std = inf', b'[logs]\nmax_levels = 99999999999999999999999', b"[[logs]]\npath = 'x'",
    b"[logs]\npath = '\\u0000'", b'a = 1\na = 2', b'[logs]\nhalf_life = 3', b'[logs]\nnow = 0001-01-01T00:00:00Z',
    b'[logs.path]\nx = 1', b"x = " + b"[" * 3000,
)  # fmt: skip
"""Contents of spec files that are wrong."""

Column = Callable[[pa.ChunkedArray, np.random.Generator], Any]


def _with(value: Any) -> Column:
    """A column with one entry replaced."""

    def change(column: pa.ChunkedArray, rng: np.random.Generator) -> Any:
        values = column.to_pylist()
        values[int(rng.integers(len(values)))] = value
        return values

    return change


COLUMNS: dict[str, Column] = {
    "a missing value": _with(None),
    "NaN": _with(float("nan")),
    "infinity": _with(float("inf")),
    "1e308": _with(1e308),
    "a negative number": _with(-1.0),
    "zero": _with(0.0),
    "2^62": _with(2**62),
    "a text": _with("x"),
    "an empty text": _with(""),
    "control characters": _with("\x1b[2J\x00\u202e"),
    "all missing": lambda column, _: pa.nulls(len(column)),
    "all the same": lambda column, _: [column[0].as_py()] * len(column),
    "texts": lambda column, _: [str(value) for value in column.to_pylist()],
    "lists": lambda column, _: [[value] for value in column.to_pylist()],
    "records": lambda column, _: [{"a": value} for value in column.to_pylist()],
    "booleans": lambda column, _: [bool(row % 2) for row in range(len(column))],
    "bytes": lambda column, _: [str(value).encode() for value in column.to_pylist()],
    "dictionary": lambda column, _: column.dictionary_encode(),
    "times": lambda column, _: np.arange(len(column)).astype("M8[us]"),
    "unsigned beyond int64": lambda column, _: np.full(len(column), 2**63, dtype=np.uint64),
    "long texts": lambda column, _: ["x" * 10**4] * len(column),
}
"""Ways to corrupt a column of the logs or of the catalog."""


@dataclass(frozen=True)
class CommandLine:
    """A hostile command line, and what was changed to make it so."""

    arguments: list[str]
    what: str

    @property
    def model(self) -> str:
        """The model that the command reads."""
        return next((word for flag, word in pairwise(self.arguments) if flag == "--model"), "")


def measure_command(case: int) -> Row:
    """Run a hostile command; `defect` is empty when it behaved."""
    world, rng = hostile_world(), np.random.default_rng([SEED, case])
    name = ORDER[case % len(ORDER)]
    folder = world.folder / f"command-{os.getpid()}-{case}"
    (folder / "out").mkdir(parents=True)
    try:
        line = _hostile_line(world, name, folder, rng)
        before = _marks(folder, world)
        run = _run_alone if rng.random() < OWN_PROCESS else _run_here
        code, output, errors, crash = run(line, folder)
        after = _marks(folder, world)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    defect = crash or _defect(name, code, output, errors) or _file_defect(line, code, before, after)
    return {"command": name, "what": line.what, "code": code, "defect": defect}


def _paths(world: HostileWorld, folder: Path) -> dict[str, str]:
    """The files that commands read, copied to the folder of the case."""
    sources = {
        "logs": world.log_file, "new": world.new_log_file, "catalog": world.catalog_file, "model": world.model_file,
        "policy": world.policy_file,
    }  # fmt: skip
    for path in sources.values():
        shutil.copy(path, folder / path.name)
    return {name: str(folder / path.name) for name, path in sources.items()} | {"out": str(folder / "out")}


def _hostile_line(world: HostileWorld, name: str, folder: Path, rng: np.random.Generator) -> CommandLine:
    paths = _paths(world, folder)
    flags = {flag: value.format(**paths) for flag, value in COMMANDS[name].items()}
    readers = [flag for flag in flags if flag in ("--logs", "--contexts", "--catalog")]
    makers: list[Callable[[], tuple[dict[str, str], list[str], str]]] = [
        lambda: _with_text(flags, rng),
        lambda: _with_text(flags, rng),
        lambda: _without_flag(flags, rng),
        lambda: _with_extra(flags, rng),
        lambda: _with_other_path(flags, paths, folder, rng),
    ]
    if readers:
        makers += [lambda: _with_bad_data(flags, readers, folder, rng)] * 3
        makers += [lambda: _with_spec(flags, folder, rng)]
    if readers or "--model" in flags:
        makers += [lambda: _with_damage(flags, folder, rng)] * 2
    flags, extra, what = makers[int(rng.integers(len(makers)))]()
    words = [word for flag, value in flags.items() for word in ((flag, value) if COMMANDS[name].get(flag) else (flag,))]
    return CommandLine([name, *words, *extra, *([] if name == "reproduce" else ["--json"])], what)


Change = tuple[dict[str, str], list[str], str]


def _chosen(values: Sequence[Any], rng: np.random.Generator) -> Any:
    return values[int(rng.integers(len(values)))]


def _with_text(flags: dict[str, str], rng: np.random.Generator) -> Change:
    flag, text = _chosen(list(flags), rng), _chosen(TEXTS, rng)
    if flag == "--output" and text in ("/", "../.."):
        # `demo` rightly writes into any folder, and these are not folders of the case.
        text = "."
    return flags | {flag: text}, [], f"{flag} {text[:30]!a}"


def _without_flag(flags: dict[str, str], rng: np.random.Generator) -> Change:
    flag = _chosen([flag for flag in flags if flag not in SIZES], rng)
    return {key: value for key, value in flags.items() if key not in (flag, "--list")}, [], f"no {flag}"


def _with_extra(flags: dict[str, str], rng: np.random.Generator) -> Change:
    extra = _chosen(EXTRA_FLAGS, rng)
    return flags, list(extra), " ".join(extra)


def _with_other_path(flags: dict[str, str], paths: dict[str, str], folder: Path, rng: np.random.Generator) -> Change:
    """Another file of the case: a model where logs should be, or an input as the output."""
    (folder / "empty").mkdir()
    (folder / "link").symlink_to(paths["logs"])
    (folder / "dangling").symlink_to(folder / "gone")
    files = [flag for flag in flags if flag in ("--logs", "--catalog", "--model", "--contexts", "--out", "--output")]
    flag = _chosen(files, rng)
    path = _chosen([*paths.values(), str(folder), *(str(folder / name) for name in ("empty", "link", "dangling"))], rng)
    return flags | {flag: path}, [], f"{flag} {Path(path).name}"


def _with_bad_data(flags: dict[str, str], readers: list[str], folder: Path, rng: np.random.Generator) -> Change:
    flag = _chosen(readers, rng)
    source = Path(flags[flag])
    table: pa.Table = pyarrow.csv.read_csv(source) if source.suffix == ".csv" else pq.read_table(source)
    used = [name for name in table.column_names if name not in ("click", "w", "size")]
    column, change = _chosen(used, rng), _chosen([*COLUMNS, "no rows", "no column", "twice"], rng)
    place = table.column_names.index(column)
    if change == "no rows":
        table = table.slice(0, 0)
    elif change == "no column":
        table = table.drop_columns([column])
    elif change == "twice":
        table = pa.concat_tables([table, table])
    else:
        table = _replaced_column(table, place, COLUMNS[change](table[column], rng))
    pq.write_table(table, folder / "hostile.parquet")
    return flags | {flag: str(folder / "hostile.parquet")}, [], f"{flag} with {column}: {change}"


def _replaced_column(table: pa.Table, place: int, values: Any) -> pa.Table:
    try:
        column = values if isinstance(values, pa.ChunkedArray | pa.Array) else pa.array(values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        # Arrow has no columns of mixed types.
        column = pa.array([str(value) for value in values])
    return table.set_column(place, table.column_names[place], column)


def _with_spec(flags: dict[str, str], folder: Path, rng: np.random.Generator) -> Change:
    number = int(rng.integers(len(SPECS)))
    (folder / "spec.toml").write_bytes(SPECS[number])
    return flags, ["--spec", str(folder / "spec.toml")], f"spec {number}"


def _with_damage(flags: dict[str, str], folder: Path, rng: np.random.Generator) -> Change:
    """A file that is truncated, empty, or has bits flipped."""
    flag = _chosen([flag for flag in flags if flag in ("--logs", "--contexts", "--catalog", "--model")], rng)
    source = Path(flags[flag])
    content = bytearray(source.read_bytes())
    damage = _chosen(("truncated", "empty", "flipped", "flipped", "doubled", "zeros"), rng)
    if damage == "truncated":
        del content[int(rng.integers(len(content))) :]
    elif damage == "flipped":
        content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
    else:
        content = {"empty": bytearray(), "doubled": content * 2, "zeros": bytearray(len(content))}[damage]
    path = folder / f"damaged{source.suffix}"
    path.write_bytes(content)
    return flags | {flag: str(path)}, [], f"{flag} {damage}"


def _run_here(line: CommandLine, folder: Path) -> tuple[int, str, str, str]:
    """Exit code, stdout and stderr of a command in this process, and a complaint if it raised something."""
    back = Path.cwd()
    os.chdir(folder / "out")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            result = CliRunner().invoke(app, line.arguments, env={"COLUMNS": "200"})
    finally:
        os.chdir(back)
    raised = result.exception
    crash = "" if raised is None or isinstance(raised, SystemExit) else f"{type(raised).__name__}: {raised}"[:300]
    return result.exit_code, result.stdout, result.stderr, crash


def _run_alone(line: CommandLine, folder: Path) -> tuple[int, str, str, str]:
    """The same in a process of its own."""
    if any("\x00" in word for word in line.arguments):
        return 2, "", "", ""
    command = [sys.executable, "-m", "manyarms", *line.arguments]
    environment = os.environ | {"COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, cwd=folder / "out", timeout=120, env=environment, check=False)
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"), ""


def _defect(name: str, code: int, output: str, errors: str) -> str:
    """What is wrong with what a command printed; empty when nothing is."""
    if "Traceback" in errors or "Warning:" in errors:
        return f"a traceback or a warning: {errors.strip()[-200:]}"
    if code == 2:
        by_typer = errors.startswith("Usage:")
        one_line = errors.count("\n") == 1 + errors.count("manyarms: warning:") and "manyarms: error: " in errors
        return "" if by_typer or one_line else f"not a one-line error: {errors[:200]!r}"
    if code not in (VERDICTS if name in ("decide", "backtest") else {0}):
        return f"exit code {code}: {errors[:200]!r}"
    if name == "reproduce":
        return ""
    try:
        # Python's JSON module would read NaN without complaint.
        json.loads(output, parse_constant=_refuse_constant)
    except ValueError as error:
        return f"not JSON, or not finite: {error}: {output[:100]!r}"
    return ""


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is not a finite number")


def _marks(folder: Path, world: HostileWorld) -> dict[str, str]:
    """A hash of every file of the case, and of those that the world shares."""
    shared = (world.log_file, world.new_log_file, world.catalog_file, world.model_file, world.policy_file)
    mine = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in (*shared, *mine)}


def _file_defect(line: CommandLine, code: int, before: dict[str, str], after: dict[str, str]) -> str:
    """What a command did to files that it should not have done."""
    new = [path for path in after if path not in before]
    drafts = [path for path in new if path.endswith(".tmp")]
    if drafts:
        return f"left the draft {Path(drafts[0]).name}"
    changed = [path for path, mark in before.items() if after.get(path) != mark]
    if code == 2 and (new or changed):
        return f"refused, and yet wrote {Path((new + changed)[0]).name}"
    # `--out` may name any file that exists, as the help says, except one that the command reads.
    read = [word for flag, word in pairwise(line.arguments) if flag in READING]
    lost = [path for path in changed if path not in after or path in read]
    # An update may replace its model, but nothing else that it reads.
    if line.arguments[0] == "update":
        lost = [path for path in lost if path != line.model]
    return f"changed or removed {Path(lost[0]).name}" if lost else ""


def summarise_commands(rows: Sequence[Row]) -> Outcome:
    """No command may be a defect."""
    defects = [(number, row) for number, row in enumerate(rows) if row["defect"]]
    refused = Counter(row["code"] == 2 for row in rows)[True]
    measured = f"{len(defects):,} defects in {len(rows):,} commands: {refused:,} refused, {len(rows) - refused:,} done"
    notes = [f"Case {number}: `{row['command']}`, {row['what']}: {row['defect']}" for number, row in defects[:20]]
    return Outcome(measured, not defects, tuple(notes))


CHECKS = (
    Check(
        "hostile-commands", "Hostile input",
        "A command with hostile flags, data, files or specs gives one line and exit code 2, or a finite result; it "
        "leaves its inputs unchanged and, where it refuses, no file behind.",
        "0 defects", 1500, measure_command, summarise_commands, batch=25,
    ),
)  # fmt: skip
