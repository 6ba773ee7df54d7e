"""Which tests run which line: a map that is measured once per folder of tests and kept beside the journals.

A map belongs to one state of the library and of the folder of tests: it is kept under a hash of both. Where a map is
missing, tests that name the function or its file come first, and then the folder of tests that mirrors the package.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from trust.campaign import ROOT, fingerprint
from trust.mutants import Mutant

MAPS = ROOT / "trust-journal" / "line-maps"
TOP = "."
"""The tests of the repository as a whole, which lie in tests/ itself."""
FOLDERS = (
    *sorted(path.name for path in (ROOT / "tests").iterdir() if any(path.glob("test_*.py")) and path.name != "trust"),
    TOP,
)
"""The folders of tests: one per package, and the one with the tests of the whole."""
HOMES = {"inference": "posterior", ".": "cli"}
"""The folders with the tests of packages that have none of their own."""
LONGEST = 7200
"""Seconds after which a folder of tests is taken to hang."""


@dataclass(frozen=True)
class LineMap:
    """The tests of a folder with their seconds, and the tests that run each line of a source file."""

    seconds: dict[str, float]
    tests: dict[str, dict[int, list[str]]]


def record_lines(folder: str) -> Path:
    """Run the fast tests of a folder, write its map and return the map's file. An earlier map is kept."""
    file = map_file(folder)
    if file.exists():
        return file
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(f".{os.getpid()}")
    command = pytest_command(_files_of(folder), "-p", "trust.line_recorder")
    environment = environment_of(ROOT) | {"LINE_RECORD": str(unfinished)}
    run = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LONGEST, check=False
    )
    if run.returncode:
        raise RuntimeError(f"tests/{folder} must pass before its lines are recorded:\n{run.stdout[-2000:]}")
    unfinished.rename(file)
    return file


def _files_of(folder: str) -> list[str]:
    """A folder of tests as arguments of pytest. The tests of the whole are named one by one, without the folders."""
    if folder != TOP:
        return [f"tests/{folder}"]
    return sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").glob("test_*.py"))


def map_file(folder: str) -> Path:
    """The file of a folder's map for the present library and tests."""
    return MAPS / _state(folder) / f"{'top' if folder == TOP else folder}.json"


@cache
def _state(folder: str) -> str:
    helpers = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").glob("*.py"))
    return fingerprint(("src", f"tests/{folder}", *helpers), with_layout=True)


@cache
def line_maps() -> tuple[LineMap, ...]:
    """The maps that have been measured for the present library and tests."""
    return tuple(read_map(map_file(folder)) for folder in FOLDERS if map_file(folder).exists())


def read_map(file: Path) -> LineMap:
    """The map in a file that the line recorder wrote."""
    record = json.loads(file.read_text())
    names = list(record["tests"])
    return LineMap(
        record["tests"],
        {
            source: {int(line): [names[number] for number in numbers] for line, numbers in lines.items()}
            for source, lines in record["files"].items()
        },
    )


def covering_tests(mutant: Mutant, maps: Sequence[LineMap]) -> list[tuple[str, float]]:
    """The tests that run the lines of a mutant, with their seconds: those of its package first.

    The files take turns, each with its fastest test, so that the first tests are not all of one kind. If no test is
    known to run the lines, all tests of the package are given.
    """
    home = f"tests/{HOMES.get(mutant.package, mutant.package)}/"
    seconds = dict[str, float]()
    for line_map in maps:
        lines = line_map.tests.get(mutant.file, {})
        for test in (test for line in mutant.run_lines for test in lines.get(line, ())):
            seconds[test] = line_map.seconds[test]
    if not seconds:
        # The line may run in a process of its own, which the recorder does not see.
        seconds = {test: time for line_map in maps for test, time in line_map.seconds.items() if test.startswith(home)}
    turns, n_before = dict[str, int](), Counter[str]()
    for test in sorted(seconds, key=lambda test: (seconds[test], test)):
        file = test.split("::")[0]
        turns[test] = n_before[file]
        n_before[file] += 1
    order = sorted(seconds, key=lambda test: (not test.startswith(home), turns[test], seconds[test], test))
    return [(test, seconds[test]) for test in order]


def likely_tests(mutant: Mutant) -> list[str]:
    """The fast tests whose text names the function, class or file of a mutant most often; for lack of a map."""
    function, stem = mutant.function.split("."), Path(mutant.file).stem
    words = {name.strip("_"): 3 for name in function} | {stem: 2, stem.replace("_", " "): 2, stem.split("_")[-1]: 1}
    home = f"tests/{HOMES.get(mutant.package, mutant.package)}/"
    scores = dict[str, float]()
    for test, text in _texts_of_tests().items():
        score = sum(weight * min(text.count(word), 3) for word, weight in words.items())
        if score and (score > 2 or test.startswith(home)):
            scores[test] = score + 4 * test.startswith(home) + 4 * (f"test_{stem}" in test)
    return sorted(scores, key=lambda test: (-scores[test], test))


@cache
def _texts_of_tests() -> dict[str, str]:
    """The source of every fast test."""
    texts = dict[str, str]()
    for file in (file for folder in FOLDERS for file in sorted((ROOT / "tests" / folder).glob("test_*.py"))):
        source = file.read_text()
        lines = source.splitlines()
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                text = "\n".join(lines[first - 1 : node.end_lineno])
                if "mark.slow" not in text:
                    texts[f"{file.relative_to(ROOT).as_posix()}::{node.name}"] = text
    return texts


def pytest_command(tests: Iterable[str], *options: str) -> list[str]:
    """The command that runs some of the fast tests and stops at the first failure."""
    return [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", *options, *tests]


def environment_of(tree: Path) -> dict[str, str]:
    """The environment in which tests import the library from a tree, not from where it is installed."""
    paths = [str(tree / "src"), str(tree), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
