"""Mutation testing: does a test fail when the library has a bug?

Each case puts one mutant (mutants.py) into a copy of the library and runs the tests that run its lines, those of its
package first and the fastest first, until one fails. Some cases are controls without a bug, where no test may fail.
A mutant that survives either gets a test or is listed in equivalent_mutants.toml, which says why it is not a bug.

A verdict lasts as long as the tests behind it: the file with the test that failed, or all tests where none did.
"""

from __future__ import annotations

import ast
import atexit
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from trust.campaign import ROOT, fingerprint
from trust.check import Check, Outcome, Row
from trust.covering_tests import (
    FOLDERS,
    HOMES,
    covering_tests,
    environment_of,
    likely_tests,
    line_maps,
    pytest_command,
    read_map,
    record_lines,
)
from trust.mutant_server import CANNOT_APPLY
from trust.mutants import LIBRARY, Mutant, chosen_mutants

SECTION = "Mutation testing"
CONTROLS = 6
"""Cases without a bug, which show that the tests do not fail for another reason."""
STEPS = (5.0, 15.0, 60.0)
"""Seconds of a processor for the tests of each step; a mutant that survives all steps has survived."""
NO_TESTS = 5
"""The status of pytest where all the tests are slow ones."""
UNKNOWN = 300.0
"""Seconds of a processor for tests that have not been timed."""
WAITING = 30.0
"""How many times the limit on the time of the processor a run may last."""
NOT_COPIED = (".*", "trust-journal", "site", "big-logs", "dist")
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")
CAUGHT_SHARE = 0.95
COVERED_SHARE = 0.95
ON_A_GPU = ("gpu/cuda_kernels.py", "gpu/recorded.py")
"""Files that only run on a GPU. `benchmarks/gpu.py` compares their answers with double precision, at full size."""


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: which test failed, if any, and after how many seconds."""

    caught_by: str
    seconds: float

    def row(self) -> Row:
        """The verdict in the types of JSON, with the state of the tests behind it."""
        return {"caught_by": self.caught_by, "seconds": self.seconds, "tests": state_of_tests(self.caught_by)}


def measure_mutant(case: int) -> Row:
    """Run the mutant of a case, or a control, against the tests that run its lines."""
    mutant = mutant_of(case)
    row: Row = {"case": case, "mutant": mutant.key, "line": mutant.line, "package": mutant.package}
    if case >= len(chosen_mutants()):
        harmless = replace(
            mutant, after=(ROOT / "src/manyarms" / mutant.file).read_bytes()[mutant.start : mutant.end].decode()
        )
        verdict = run_mutant(harmless, steps_of(mutant)[:1])
        return row | {"kind": "control"} | verdict.row()
    if mutant.key in equivalent_mutants():
        return row | {"kind": "equivalent", "caught_by": "", "seconds": 0.0}
    return row | {"kind": "mutant"} | run_mutant(mutant, steps_of(mutant)).row()


def mutant_of(case: int) -> Mutant:
    """The mutant of a case, or the one whose place a control takes."""
    mutants = chosen_mutants()
    return mutants[case] if case < len(mutants) else mutants[case * 7919 % len(mutants)]


def is_current(row: Row) -> bool:
    """True if a case still has this mutant, and the tests behind its verdict have not changed."""
    # The number of mutants of a package depends on its lines, and so on its docstrings.
    if row["mutant"] != mutant_of(row["case"]).key:
        return False
    return "tests" not in row or row["tests"] == state_of_tests(row["caught_by"])


@cache
def state_of_tests(caught_by: str) -> str:
    """A hash of the file with the test that caught a mutant, or of all tests if none did."""
    file = caught_by.split("::", maxsplit=1)[0]
    return fingerprint([file if (ROOT / file).is_file() else "tests"])


@cache
def equivalent_mutants() -> dict[str, str]:
    """The mutants that behave as the library does, each with the reason."""
    if not EQUIVALENT.exists():
        return {}
    return {entry["mutant"]: entry["why"] for entry in tomllib.loads(EQUIVALENT.read_text())["equivalent"]}


def steps_of(mutant: Mutant) -> list[tuple[list[str], float]]:
    """The tests that run the lines of a mutant, in steps of growing length, with the seconds each step takes."""
    tests = covering_tests(mutant, line_maps())
    if not tests:
        likely, folder = likely_tests(mutant), f"tests/{HOMES.get(mutant.package, mutant.package)}"
        return [(names, UNKNOWN) for names in (likely[:4], likely[4:25], [folder]) if names]
    steps = list[tuple[list[str], float]]()
    for budget in STEPS:
        names, total = list[str](), 0.0
        while tests and (not names or total + tests[0][1] <= budget):
            names.append(tests[0][0])
            total += tests.pop(0)[1]
        if names:
            steps.append((names, total))
    return steps


def run_mutant(mutant: Mutant, steps: Sequence[tuple[list[str], float]]) -> Verdict:
    """Put a mutant into the copy of the library and run its tests step by step, until one fails.

    It is put into the memory of a process that has imported the library, which is fast. Where that is not possible, as
    with the default of an argument, each step starts a process of its own.
    """
    start = time.monotonic()
    file = copied_tree() / "src/manyarms" / mutant.file
    original = (LIBRARY / mutant.file).read_bytes()
    caught_by: str | None = ""
    for tests, seconds in steps:
        caught_by = _failing_in_memory(mutant, mutant.applied(original), tests, 30.0 + 5.0 * seconds)
        if caught_by or caught_by is None:
            break
    if caught_by is not None:
        return Verdict(caught_by, round(time.monotonic() - start, 1))
    caught_by = ""
    try:
        _write(file, mutant.applied(original))
        for tests, seconds in steps:
            caught_by = _failing_test(tests, 60.0 + 5.0 * seconds)
            if caught_by:
                break
    finally:
        _write(file, original)
    return Verdict(caught_by, round(time.monotonic() - start, 1))


def _failing_in_memory(mutant: Mutant, source: bytes, tests: Sequence[str], longest: float) -> str | None:
    """The first test that fails with the mutant in memory, "" if none does, or None if it cannot be put there."""
    module = "manyarms." + mutant.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    request = {
        "module": module,
        "source": source.decode(),
        "arguments": pytest_command(tests)[3:],
        "seconds": longest,
        "waiting": WAITING * longest,
    }
    server = mutant_server()
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    reply = json.loads(server.stdout.readline())
    return None if reply["status"] == CANNOT_APPLY else _first_failure(reply["status"], reply["text"])


@cache
def mutant_server() -> subprocess.Popen[str]:
    """A process that runs tests against mutants, over the copied tree."""
    tree = copied_tree()
    server = subprocess.Popen(
        [sys.executable, "-m", "trust.mutant_server"],
        cwd=tree,
        env=environment_of(tree) | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(server.kill)
    return server


def _write(file: Path, source: bytes) -> None:
    """Write a source file and forget its compiled form, whose time stamp is too coarse to tell the two apart."""
    file.write_bytes(source)
    for compiled in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
        compiled.unlink()


def _failing_test(tests: Sequence[str], longest: float) -> str:
    """The first test that fails in the copied tree, or "" if none does.

    The limit is on the time of the processor, so that a busy machine does not make a test look endless.
    """
    tree, limit = copied_tree(), (int(longest), int(longest))
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            pytest_command(tests),
            cwd=tree,
            env=environment_of(tree),
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, limit),  # noqa: PLW1509
        )
        try:
            status = process.wait(WAITING * longest)
        except subprocess.TimeoutExpired:
            return "a test that does not end"
        finally:
            _end_group(process)
        output.seek(0)
        return _first_failure(status, output.read())


def _first_failure(status: int, text: str) -> str:
    """The test that failed first, from the exit status and the output of pytest, or "" if all passed."""
    if status in (0, NO_TESTS):
        return ""
    if status in (-signal.SIGXCPU, -signal.SIGKILL):
        return "a test that does not end"
    failure = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", text, re.MULTILINE)
    return failure.group(1) if failure else f"pytest, with status {status}"


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a run of the tests together with the workers it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


@cache
def copied_tree() -> Path:
    """A copy of the repository for this process, which goes when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="mutants-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    tree = folder / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*NOT_COPIED))
    return tree


def summarise_mutants(rows: Sequence[Row]) -> Outcome:
    """The share of the mutants that a test catches, equivalent ones left out, and the names of the survivors."""
    known = equivalent_mutants()
    equivalent = [row for row in rows if row["kind"] == "equivalent" or (_survived(row) and row["mutant"] in known)]
    mutants = [row for row in rows if row["kind"] == "mutant" and row not in equivalent]
    controls = [row for row in rows if row["kind"] == "control"]
    survivors = list(filter(_survived, mutants))
    caught = len(mutants) - len(survivors)
    share = caught / len(mutants) if mutants else 0.0
    alarms = [row for row in controls if row["caught_by"]]
    notes = [f"Survived: {row['mutant']} (line {row['line']})." for row in survivors]
    notes += [f"A control without a bug failed {row['caught_by']}, so no catch by that test counts." for row in alarms]
    notes.append(
        f"{len(equivalent)} mutants are equivalent to the library, for the reasons in trust/equivalent_mutants.toml; "
        f"{len(controls) - len(alarms)} of {len(controls)} controls without a bug passed."
    )
    return Outcome(
        f"{caught} of {len(mutants)} caught ({share:.1%})", share >= CAUGHT_SHARE and not alarms, tuple(notes)
    )


def _survived(row: Row) -> bool:
    return row["kind"] == "mutant" and not row["caught_by"]


def measure_lines(case: int) -> Row:
    """Record which tests of a folder run which lines."""
    line_map = read_map(record_lines(FOLDERS[case]))
    lines = {file: sorted(numbers) for file, numbers in line_map.tests.items()}
    return {"folder": FOLDERS[case], "tests": len(line_map.seconds), "lines": lines}


def summarise_lines(rows: Sequence[Row]) -> Outcome:
    """The share of the library's statements that the tests of all folders run together."""
    run = dict[str, set[int]]()
    for file, lines in (item for row in rows for item in row["lines"].items()):
        run.setdefault(file, set()).update(lines)
    files = [file.relative_to(LIBRARY).as_posix() for file in LIBRARY.rglob("*.py")]
    counted = [file for file in files if file not in ON_A_GPU]
    missed = [run.get(file, set()).isdisjoint(lines) for file in counted for lines in statements_of(file)]
    share = 1.0 - sum(missed) / len(missed)
    n_tests = sum(row["tests"] for row in rows)
    measured = f"{share:.1%} of {len(missed):,} by {n_tests:,} tests"
    left_out = sum(len(statements_of(file)) for file in ON_A_GPU)
    notes = [f"Left out: {left_out} statements in files that only run on a GPU ({', '.join(ON_A_GPU)})."]
    if len(rows) < len(FOLDERS):
        notes.append(f"Only {len(rows)} of {len(FOLDERS)} folders of tests have run, so the threshold does not apply.")
        return Outcome(measured, True, tuple(notes))
    return Outcome(measured, share >= COVERED_SHARE, tuple(notes))


@cache
def statements_of(file: str) -> list[range]:
    """The lines of each simple statement inside a function of a source file; docstrings and the like are left out."""
    functions = (
        node for node in ast.walk(ast.parse((LIBRARY / file).read_bytes())) if isinstance(node, ast.FunctionDef)
    )
    return [
        range(node.lineno, (node.end_lineno or node.lineno) + 1)
        for statements in {function.body[0].lineno: function.body for function in functions}.values()
        for statement in statements
        for node in _simple_statements(statement)
    ]


def _simple_statements(statement: ast.stmt) -> Iterator[ast.stmt]:
    """The statements within a statement that hold no others, without those of functions and classes inside it."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.Pass | ast.Nonlocal | ast.Global):
        return
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return
    inner = [child for child in ast.walk(statement) if child is not statement and isinstance(child, ast.stmt)]
    if not inner:
        yield statement
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            yield from _simple_statements(child)
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            for nested in child.body:
                yield from _simple_statements(nested)


CHECKS = (
    Check(
        "covered-statements",
        SECTION,
        "The fast tests of the packages run nearly every statement of the library's functions.",
        f"at least {COVERED_SHARE:.0%}",
        len(FOLDERS),
        measure_lines,
        summarise_lines,
        folders=("src", "tests"),
        names_lines=True,
    ),
    Check(
        "mutations",
        SECTION,
        "A test fails when a small bug is put into the library.",
        f"at least {CAUGHT_SHARE:.0%} of the bugs",
        len(chosen_mutants()) + CONTROLS,
        measure_mutant,
        summarise_mutants,
        is_current=is_current,
    ),
)
