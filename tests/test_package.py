"""The package as a whole: its surface, its weight, and the code in its documents."""

import ast
import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import manyarms as ma
from manyarms import theory

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
EXPERIMENTS = ROOT / "docs" / "experiments.md"
SCALE = ROOT / "docs" / "scale.md"  # needs clusters: run by test_engines.py


def test_everything_exported_exists_once():
    assert len(set(ma.__all__)) == len(ma.__all__)
    for name in ma.__all__:
        assert getattr(ma, name) is not None


def test_type_checkers_are_told_of_the_names_that_are_there():
    stub = ast.parse((ROOT / "src" / "manyarms" / "__init__.pyi").read_text(encoding="utf-8"))
    told = {
        alias.asname: getattr(importlib.import_module(node.module), alias.name)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    neighbours = {"arviz", "mlflow", "obp", "sklearn"}
    assert told.keys() == {*ma.__all__, *neighbours}
    assert all(getattr(ma, name) is thing for name, thing in told.items())
    assert told.keys() <= set(dir(ma))


def test_a_star_brings_all_names_and_hides_no_other_library():
    names = {}
    exec("import sklearn\nfrom manyarms import *", names)
    assert set(ma.__all__) <= names.keys()
    assert names["sklearn"].__name__ == "sklearn"


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'manyarms' has no attribute 'fitt'"):
        _ = ma.fitt
    with pytest.raises(ImportError, match="cannot import name 'fitt'"):
        exec("from manyarms import fitt")


def test_docstring_example_runs():
    for module in (ma, ma.core.hierarchy, ma.prior_choice.compare, ma.prior_choice.checks, ma.sklearn, theory):
        found = doctest.testmod(module)
        assert found.attempted > 0
        assert found.failed == 0


FRAMES = {"pandas", "polars", "pyarrow", "narwhals", "sklearn", "matplotlib", "altair", "torch"}


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import manyarms", FRAMES | {"numpy", "scipy", "jaxtyping", "rich", "typer"}),
        ("from manyarms.cli import app; app(['--version'], standalone_mode=False)", FRAMES | {"numpy", "scipy"}),
        ("from manyarms.cli import app; app(['fit', '--help'], standalone_mode=False)", FRAMES | {"numpy", "scipy"}),
        ("import manyarms as ma; ma.fit, ma.Greedy, ma.read_logs, ma.evaluate", FRAMES | {"scipy.optimize", "typer"}),
    ],
    ids=["the package", "its version", "help", "a fit"],
)
def test_nothing_heavy_is_loaded_for(code, heavy):
    """First contact waits for nothing that it does not use."""
    script = f"{code}\nimport sys; print(sorted({heavy} & sys.modules.keys()))"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.splitlines()[-1] == "[]"


def blocks_of(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_python_blocks_on_experiments_run_as_a_script(tmp_path):
    """Worker processes import what a reader saved: all blocks in one file, the method in its own."""
    blocks = blocks_of(EXPERIMENTS)
    (tmp_path / "my_method.py").write_text(next(block for block in blocks if "class MyMethod" in block))
    (tmp_path / "page.py").write_text("\n".join(blocks))
    done = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^sDM over mine: [+-]\d\.\d+ ± \d\.\d+$", done.stdout, flags=re.MULTILINE)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page not in (EXPERIMENTS, SCALE)], ids=lambda page: page.name
)
def test_python_blocks_of_the_documents_run(page, tmp_path, monkeypatch):
    """The blocks of a page run one after the other, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    blocks = blocks_of(page)
    exec(compile("\n".join(blocks), str(page), "exec"), {"__name__": "__main__"})
