"""A process that has imported the library once, and forks to run tests against a mutant.

A mutant lives in functions. The fork compiles the changed file and gives the functions in memory their changed code, so
that no time goes into starting Python and checking annotations. Requests and replies are lines of JSON.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import jaxtyping

CANNOT_APPLY = 99
"""The status of a fork in which the mutant could not be put into memory."""

USED_BY_TESTS = (
    "_pytest.assertion.rewrite",
    "hypothesis.strategies",
    "mpmath",
    "pyarrow.csv",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "scipy.optimize",
    "scipy.stats",
    "sklearn.linear_model",
    "sklearn.gaussian_process",
    "typer.testing",
)
_AS_IMPORTED = ("-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning")
"""Plugins of pytest that were imported with the library are not rewritten, which is no error here."""


def main() -> None:
    """Answer requests until there are no more."""
    # As in tests/conftest.py, which is too late here.
    jaxtyping.install_import_hook("manyarms", "beartype.beartype")
    import manyarms  # noqa: PLC0415  after the hook

    modules = [module.name for module in pkgutil.walk_packages(manyarms.__path__, "manyarms.")]
    for name in (*USED_BY_TESTS, *modules):
        if not name.endswith("__main__"):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    gc.freeze()
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Run tests against a mutant in a fork: the exit status and the output."""
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if child == 0:
            _run_in_fork(request, output.fileno())
        status = _ending(child, request["waiting"])
        output.seek(0)
        return {"status": status, "text": output.read()[-20000:]}


def _run_in_fork(request: dict[str, Any], output: int) -> None:
    """Apply the mutant and run the tests; never returns."""
    status = CANNOT_APPLY
    try:
        os.setsid()
        for stream in (1, 2):
            os.dup2(output, stream)
        used = int(sum(os.times()[:2]))
        limit = used + int(request["seconds"])
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        if put_into_memory(importlib.import_module(request["module"]), request["source"].encode()):
            import pytest  # noqa: PLC0415

            sys.stdout = sys.__stderr__
            status = int(pytest.main([*_AS_IMPORTED, *request["arguments"]]))
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    os._exit(status)


def _ending(child: int, longest: float) -> int:
    """Wait for a fork, end what it started, and return its exit status; a signal is a negative number."""
    deadline = time.monotonic() + longest
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done or time.monotonic() > deadline:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            if not done:
                os.waitpid(child, 0)
                return -signal.SIGKILL
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)


def put_into_memory(module: ModuleType, source: bytes) -> bool:
    """Give the functions of a module the code of a changed source file; False if that is not possible."""
    path, loader = str(module.__file__), module.__loader__
    compiled = loader.source_to_code  # type: ignore[union-attr]
    original = Path(path).read_bytes()
    if source == original:
        return True
    before = list(codes_in(compiled(original, path)))
    after = list(codes_in(compiled(source, path)))
    if [code.co_qualname for code in before] != [code.co_qualname for code in after]:
        return False
    changed = {(old.co_qualname, old.co_firstlineno): new for old, new in zip(before, after, strict=True) if old != new}
    gc.unfreeze()
    functions = [item for item in gc.get_objects() if isinstance(item, FunctionType)]
    n_applied = 0
    for function in functions:
        code = function.__code__
        new = changed.get((code.co_qualname, code.co_firstlineno)) if code.co_filename == path else None
        if new is not None and new.co_freevars == code.co_freevars:
            function.__code__ = new
            n_applied += 1
    return n_applied > 0


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """The code of every function that a piece of code defines, at any depth."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from codes_in(constant)


if __name__ == "__main__":
    main()
