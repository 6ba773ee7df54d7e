"""The package as a whole: its surface, its weight, and the code in its documents."""

import doctest
import operator
import re
import subprocess
import sys

import pytest
from pages import DOCS, ROOT, blocks_of, python_of, run

import manyarms as ma
from manyarms import theory

EXPERIMENTS = DOCS / "experiments.md"
# Clusters: test_engines.py; real logs: test_command_docs.py.
ELSEWHERE = [EXPERIMENTS, *(DOCS / name for name in ("scale.md", "how-to/dask.md", "how-to/spark.md", "tutorial.md"))]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


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


def test_python_blocks_on_experiments_run_as_a_script(tmp_path):
    """Worker processes import what a reader saved: all blocks in one file, the method in its own."""
    blocks = python_of(EXPERIMENTS)
    (tmp_path / "my_method.py").write_text(next(block for block in blocks if "class MyMethod" in block))
    (tmp_path / "page.py").write_text("\n".join(blocks))
    done = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^sDM over mine: [+-]\d\.\d+ ± \d\.\d+$", done.stdout, flags=re.MULTILINE)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page not in ELSEWHERE and blocks_of(page)], ids=lambda page: page.stem
)
def test_the_blocks_of_a_page_run_and_print_what_it_shows(page, tmp_path, monkeypatch):
    """One after the other, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    # The commands of this page need files: test_command_docs.py has them.
    run(page, commands=page.name != "command-line.md")


def test_every_public_name_is_on_one_page_of_the_api():
    text = "\n".join(page.read_text(encoding="utf-8") for page in sorted((DOCS / "api").glob("*.md")))
    found = re.findall(r"^::: manyarms\.(\S+)$", text, flags=re.MULTILINE)
    beside = ["datasets", "engines", "engines.dask", "engines.spark", "theory"]  # imported by their own names
    builders = [f"priors.{name}" for name in ma.priors.__all__]
    assert sorted(found) == sorted([*map(path_on_a_page, [*ma.__all__, *builders]), *beside])


def path_on_a_page(name):
    """Where its module has the same name, a function is found by its whole path only."""
    last = name.split(".")[-1]
    module = getattr(operator.attrgetter(name)(ma), "__module__", "")
    return f"{module}.{last}".removeprefix("manyarms.") if module.endswith(f".{last}") else name


def test_every_page_is_in_the_menu():
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r"^ +- (?:.*: )?(\S+\.md)$", menu, flags=re.MULTILINE)
    assert sorted(listed) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))
