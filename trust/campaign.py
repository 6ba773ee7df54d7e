"""Running checks: cases in two processes, and a journal that keeps every finished case.

A journal is a file of JSON lines per check. Its first line is the fingerprint of the code; a journal of other code is
set aside, not mixed in. Comments, docstrings and layout are not code, except for a check whose rows name lines. A line
that was cut off in the middle is ignored, and its cases run again.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from trust.check import Check, Outcome, Row

ROOT = Path(__file__).resolve().parents[1]

Report = Callable[[str], None]


def code_of(check: Check) -> str:
    """A hash of all that the cases of a check depend on: its folders, and the files of the campaign behind it."""
    pending, files = [check.measure.__module__], set[str]()
    while pending:
        file = Path(*pending.pop().split(".")).with_suffix(".py").as_posix()
        if file in files or not (ROOT / file).is_file() or not file.startswith("trust/"):
            continue
        files.add(file)
        text = (ROOT / file).read_text()
        # Imports, and also modules and files that are started as processes of their own.
        names = re.findall(r"\btrust[./](\w+)", text)
        for group in re.findall(r"^from trust import ([\w, ]+|\([^)]*\))", text, re.MULTILINE):
            names += re.findall(r"(?<!as )\b\w+", group)
        pending += [f"trust.{name}" for name in names]
    return fingerprint([*check.folders, *sorted(files)], with_layout=check.names_lines)


def fingerprint(places: Iterable[str], *, with_layout: bool = False) -> str:
    """A hash of the code in some folders of the repository, or in single files.

    Files that are not Python count byte by byte, and with `with_layout` all of them do.
    """
    digest = hashlib.sha256()
    for place in map(ROOT.joinpath, places):
        for file in [place] if place.is_file() else sorted(place.rglob("*.py")):
            content = file.read_bytes()
            if file.suffix == ".py" and not with_layout:
                content = _code(content)
            digest.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + content + b"\0")
    return digest.hexdigest()[:16]


def _code(source: bytes) -> bytes:
    """The statements of a Python file, without comments, docstrings and layout."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            # A text that stands alone does nothing, be it the docstring of a function or of the constant above it.
            node.body = [line for line in node.body if not _is_text(line)]
    return ast.dump(tree).encode()


def _is_text(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)


class Journal:
    """The finished cases of one check."""

    def __init__(self, folder: Path, name: str, code: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{name}.jsonl"
        self.rows: dict[int, Row] = {}
        self.seconds = 0.0
        """CPU-independent wall time of all batches, added up."""
        self.finished = ""
        """The date of the last batch."""
        lines = self._lines()
        if lines and lines[0] != {"code": code}:
            self.path.rename(self.path.with_suffix(f".{lines[0].get('code', 'unknown')}.jsonl"))
            lines = []
        if not lines:
            self._append({"code": code})
        for line in lines[1:]:
            self._take(line)

    def _lines(self) -> list[Row]:
        if not self.path.exists():
            return []
        lines = list[Row]()
        for line in self.path.read_text().split("\n")[:-1]:
            try:
                lines.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return lines

    def _take(self, line: Row) -> None:
        self.rows.update({int(case): row for case, row in line["rows"].items()})
        self.seconds += line["seconds"]
        self.finished = max(self.finished, line["date"])

    def add(self, rows: dict[int, Row], seconds: float) -> None:
        line = {"rows": rows, "seconds": round(seconds, 3), "date": time.strftime("%Y-%m-%d", time.gmtime())}
        self._append(line)
        self._take(line)

    def _append(self, line: Row) -> None:
        with self.path.open("a") as file:
            # A line that was cut off must not swallow this one.
            if file.tell() and self.path.read_bytes()[-1:] != b"\n":
                file.write("\n")
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())


def batches(cases: Iterable[int], size: int) -> Iterator[list[int]]:
    """The cases, in lists of at most `size`."""
    pending = list(cases)
    for start in range(0, len(pending), size):
        yield pending[start : start + size]


def run_check(
    check: Check, n_cases: int, folder: Path, processes: int, report: Report = print
) -> tuple[Outcome, Journal]:
    """Run the cases that are not in the journal yet, and summarise all of them."""
    journal = Journal(folder, check.name, code_of(check))
    missing = [case for case in range(n_cases) if not is_finished(check, journal, case)]
    parts = list(batches(missing, check.batch))
    if parts and (check.alone or processes == 1):
        for part in parts:
            journal.add(*_measure(check.measure, part))
            report(f"{check.name}: {len(journal.rows)} of {n_cases}")
    elif parts:
        # Fresh processes: a fork would copy locked threads of BLAS and Arrow.
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            # Only the function travels: a check holds functions without a name, which cannot.
            futures: list[Future[tuple[dict[int, Row], float]]] = [
                pool.submit(_measure, check.measure, part) for part in parts
            ]
            for future in as_completed(futures):
                journal.add(*future.result())
                report(f"{check.name}: {len(journal.rows)} of {n_cases}")
    return check.summarise([journal.rows[case] for case in range(n_cases)]), journal


def is_finished(check: Check, journal: Journal, case: int) -> bool:
    """True if a case is in the journal and its row still holds."""
    return case in journal.rows and check.is_current(journal.rows[case])


def n_finished(check: Check, folder: Path) -> int:
    """The number of cases from the first on that have finished."""
    journal = Journal(folder, check.name, code_of(check))
    return next((case for case in range(check.cases) if not is_finished(check, journal, case)), check.cases)


def _measure(measure: Callable[[int], Row], cases: Sequence[int]) -> tuple[dict[int, Row], float]:
    start = time.monotonic()
    rows = {case: json.loads(json.dumps(measure(case))) for case in cases}
    return rows, time.monotonic() - start
