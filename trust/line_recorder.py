"""A pytest plugin that records which test runs which line of the library, with the CPU time of each test.

`python -m pytest -p trust.line_recorder` writes a JSON file to the path in the environment variable LINE_RECORD:
the tests with their seconds, and for every source file the numbers of the tests that run each line. A line that runs
while a shared fixture is made counts for every test with that fixture. Lines that run while a module is imported
belong to no test and are left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage

LIBRARY = Path(__file__).resolve().parents[1] / "src" / "manyarms"


class LineRecorder:
    """Coverage of the library, with one context per test and one per shared fixture."""

    def __init__(self, record: Path) -> None:
        self.record = record
        self.seconds: dict[str, float] = {}
        self.users: dict[str, list[str]] = {}
        """The tests of each context: a test itself, or all tests with a shared fixture."""
        self.current = ""
        self.coverage = Coverage(data_file=None, include=[f"{LIBRARY}/*"], config_file=False)
        self.coverage.start()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None]:
        self.users[item.nodeid] = [item.nodeid]
        for fixture in getattr(item, "fixturenames", ()):
            self.users.setdefault(f"fixture {fixture}", []).append(item.nodeid)
        self.current = item.nodeid
        self.coverage.switch_context(self.current)
        start = sum(os.times()[:4])
        yield
        self.seconds[item.nodeid] = round(sum(os.times()[:4]) - start, 3)
        self.coverage.switch_context("")

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None]:
        outer = self.current
        if fixturedef.scope != "function":
            self.current = f"fixture {fixturedef.argname}"
            self.coverage.switch_context(self.current)
        yield
        self.current = outer
        self.coverage.switch_context(self.current)

    def pytest_sessionfinish(self) -> None:
        self.coverage.stop()
        data = self.coverage.get_data()
        numbers = {test: number for number, test in enumerate(self.seconds)}
        files = dict[str, dict[int, list[int]]]()
        for file in data.measured_files():
            lines = data.contexts_by_lineno(file)
            files[Path(file).relative_to(LIBRARY).as_posix()] = {
                line: sorted({numbers[test] for test in self._tests(contexts)}) for line, contexts in lines.items()
            }
        self.record.write_text(json.dumps({"tests": self.seconds, "files": files}))

    def _tests(self, contexts: Iterable[str]) -> Iterable[str]:
        return (test for context in contexts for test in self.users.get(context, ()))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(LineRecorder(Path(os.environ["LINE_RECORD"])), "line-recorder")
