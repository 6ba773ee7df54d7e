"""The package as a whole: its surface, its weight, and the code in its documents."""

import doctest
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


def test_docstring_example_runs():
    for module in (ma, ma.core.hierarchy, ma.prior_choice.compare, ma.prior_choice.checks, theory):
        found = doctest.testmod(module)
        assert found.attempted > 0
        assert found.failed == 0


def test_import_is_light():
    """Nothing heavy comes along: no data frames, no plotting, no learning library, no table reader."""
    heavy = ["pandas", "polars", "sklearn", "pyarrow", "matplotlib", "altair", "torch", "rich", "typer"]
    code = f"import sys, manyarms; print([name for name in {heavy} if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


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
