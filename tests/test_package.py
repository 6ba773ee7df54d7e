"""The package as a whole: its surface, its weight, and the code in its documents."""

import ast
import doctest
import importlib
import operator
import pkgutil
import re
import subprocess
import sys

import pytest
from pages import DOCS, ROOT, blocks_of, python_of, run

import manyarms as ma
from manyarms import theory

EXPERIMENTS = DOCS / "experiments.md"
# Clusters: test_engines.py; databases: test_ibis.py; real logs: test_command_docs.py; an index: test_examples.py.
NOT_HERE = ("dask.md", "serving.md", "spark.md", "warehouse.md")
ELSEWHERE = [EXPERIMENTS, DOCS / "scale.md", DOCS / "tutorial.md", *(DOCS / "how-to" / name for name in NOT_HERE)]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


def test_everything_exported_exists_once():
    assert len(set(ma.__all__)) == len(ma.__all__)
    for name in ma.__all__:
        assert getattr(ma, name) is not None


def imported(module, name):
    """The attribute of a module; a submodule is one only after it has been imported."""
    parent = importlib.import_module(module)
    return getattr(parent, name) if hasattr(parent, name) else importlib.import_module(f"{module}.{name}")


def test_type_checkers_are_told_of_the_names_that_are_there():
    stub = ast.parse((ROOT / "src" / "manyarms" / "__init__.pyi").read_text(encoding="utf-8"))
    told = {
        alias.asname: imported(node.module, alias.name)
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
    with pytest.raises(AttributeError, match=r"module 'manyarms' has no attribute 'fitt'\. Did you mean 'fit'\?"):
        _ = ma.fitt
    with pytest.raises(AttributeError, match=r"no attribute 'quux'$"):
        _ = ma.quux


def test_the_packages_that_the_docs_name_are_completed():
    used = {name for page in PAGES for name in re.findall(r"\bma\.([a-z_]+)\b", page.read_text(encoding="utf-8"))}
    assert {"datasets", "jobs"} <= used <= set(dir(ma))
    with pytest.raises(ImportError, match="cannot import name 'fitt'"):
        exec("from manyarms import fitt")
    for name in ("a.b", "core.catalog", "", "fit "):
        assert not hasattr(ma, name)


def test_docstring_example_runs():
    for module in (
        ma,
        ma.core.hierarchical_gaussian,
        importlib.import_module("manyarms.prior_learning.compare_priors"),
        importlib.import_module("manyarms.prior_checks.check_categories"),
        ma.sklearn,
        theory,
    ):
        result = doctest.testmod(module)
        assert result.attempted > 0
        assert result.failed == 0


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


@pytest.mark.slow
def test_python_blocks_on_experiments_run_as_a_script(tmp_path):
    """Worker processes import what a reader saved: all blocks in one file, the method in its own."""
    blocks = python_of(EXPERIMENTS)
    (tmp_path / "my_method.py").write_text(next(block for block in blocks if "class MyMethod" in block))
    (tmp_path / "page.py").write_text("\n".join(blocks))
    done = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^sDM over mine: [+-]\d\.\d+ ± \d\.\d+$", done.stdout, flags=re.MULTILINE)


LONG_PAGES = ("delayed-rewards", "ecosystem", "features-and-priors", "goals", "likelihoods", "own-policy", "routing")
EXECUTED = [
    pytest.param(page, id=page.stem, marks=[pytest.mark.slow] if page.stem in LONG_PAGES else [])
    for page in PAGES
    if page not in ELSEWHERE and blocks_of(page)
]


@pytest.mark.parametrize("page", EXECUTED)
def test_the_blocks_of_a_page_run_and_print_what_it_shows(page, tmp_path, monkeypatch):
    """One after the other, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    # The commands of this page need files: test_command_docs.py has them.
    run(page, commands=page.name != "command-line.md")


def test_no_page_takes_stars_and_underscores_of_a_formula_for_emphasis():
    """π_*(x) lost its star, and half of the proof of a bound was in italics."""
    markdown = importlib.import_module("markdown")
    lost = list[str]()
    for page in PAGES:
        text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        emphasised = re.findall(r"<em>(.*?)</em>", markdown.markdown(text, extensions=["tables"]), flags=re.DOTALL)
        texts = [re.sub("<[^>]+>", "", part) for part in emphasised]
        lost += [f"{page.name}: {part[:50]}" for part in texts if re.search(r"[=≤_θπΣ]", part)]
    assert lost == []


def test_every_public_name_is_on_one_page_of_the_api():
    text = "\n".join(page.read_text(encoding="utf-8") for page in sorted((DOCS / "api").glob("*.md")))
    on_pages = [named_on_page(path) for path in re.findall(r"^::: manyarms\.(\S+)$", text, flags=re.MULTILINE)]
    public = [getattr(ma, name) for name in ma.__all__ if name != "plots"]
    public += [getattr(module, name) for module in (ma.priors, ma.plots) for name in module.__all__]
    shown = {id(thing) for thing in on_pages}
    assert len(shown) == len(on_pages)
    assert [thing for thing in public if id(thing) not in shown] == []
    # Documented beside the public names, and imported by their packages' names.
    beside = ("manyarms.datasets", "manyarms.engines", "manyarms.theory", "manyarms.jobs")
    names = {id(thing) for thing in public}
    others = [thing for thing in on_pages if id(thing) not in names]
    assert [thing for thing in others if not getattr(thing, "__module__", thing.__name__).startswith(beside)] == []


def named_on_page(path):
    """What a page names: a function whose module has the same name is there by its whole path."""
    try:
        return operator.attrgetter(path)(ma)
    except AttributeError:
        return pkgutil.resolve_name(f"manyarms.{path}")


def test_every_page_is_in_the_menu():
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r"^ +- (?:.*: )?(\S+\.md)$", menu, flags=re.MULTILINE)
    pages = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    pages += [f"notebooks/{notebook.stem}.md" for notebook in (ROOT / "notebooks").glob("*.ipynb")]
    assert sorted(listed) == sorted(pages)
