"""The tree can be read: one name for one thing, docstrings that name their subject, a page that describes it."""

import ast
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from pages import DOCS, ROOT

PACKAGE = ROOT / "src" / "manyarms"
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
MODULES = [path for path in TREES if path.name != "__init__.py"]


def named(kind):
    """Every definition of a kind, with the files it is in."""
    places = defaultdict(list)
    for path, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, kind):
                places[node.name].append(path.relative_to(PACKAGE).as_posix())
    return places


def test_the_package_stays_small_enough_to_read():
    """200 files when the tree was designed; later capabilities bring their own, and no folder becomes a heap."""
    assert len(TREES) <= 313
    files_per_folder = Counter(path.parent for path in TREES)
    assert max(files_per_folder.values()) <= 28


def test_every_module_has_a_name_of_its_own():
    places = defaultdict(list)
    for path in MODULES:
        places[path.stem].append(path.relative_to(PACKAGE).as_posix())
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_every_class_has_a_name_of_its_own():
    assert {name: paths for name, paths in named(ast.ClassDef).items() if len(paths) > 1} == {}


UNNAMED = re.compile(r"(What|Of|The same|How|Whether|All of it|As before|Where)\b")


def test_every_docstring_names_its_subject():
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef
    opening = {
        f"{path.relative_to(PACKAGE)}: {text.splitlines()[0]}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, kinds) and (text := ast.get_docstring(node))
    }
    assert sorted(line for line in opening if UNNAMED.match(line.split(": ", 1)[1])) == []


VAGUE = {"found", "told", "said", "of"}


def test_variables_say_what_they_hold():
    functions = [
        (path, node) for path, tree in TREES.items() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
    ]
    vague = {
        f"{path.relative_to(PACKAGE)}:{node.lineno} {node.id}"
        for path, function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE
    }
    assert sorted(vague) == []


def test_functions_and_files_stay_short():
    # A table of cases, a class body of one kind of plot: exceptions are named here, with their length.
    long_files = [path.relative_to(PACKAGE).as_posix() for path in TREES if len(path.read_text().splitlines()) > 450]
    assert long_files == []


ARCHITECTURE = (DOCS / "architecture.md").read_text(encoding="utf-8")


def test_the_architecture_page_names_files_that_exist():
    named_files = set(re.findall(r"`((?:\w+/)*\w+\.pyi?)`", ARCHITECTURE))
    assert len(named_files) > 30
    missing = {
        name for name in named_files if not any((root / name).exists() for root in (PACKAGE, ROOT, ROOT / "tests"))
    }
    assert missing == set()


def test_the_architecture_page_lists_the_layers_in_their_order():
    contract = (ROOT / "pyproject.toml").read_text(encoding="utf-8").split("layers = [", 1)[1].split("]", 1)[0]
    layers = [name for line in re.findall(r'"([^"]+)"', contract) for name in line.split(" | ")]
    listed = re.findall(r"^\| `(\w+)(?:/|\.py)?`", ARCHITECTURE, flags=re.MULTILINE)
    assert sorted(listed) == sorted(set(layers) - {"__main__"})


@pytest.mark.parametrize("walk", re.findall(r"^### (.+)$", ARCHITECTURE, flags=re.MULTILINE))
def test_a_walk_has_at_most_a_dozen_hops(walk):
    section = ARCHITECTURE.split(f"### {walk}\n", 1)[1].split("\n#", 1)[0]
    hops = re.findall(r"^(\d+)\. ", section, flags=re.MULTILINE)
    assert 4 <= len(hops) <= 12


def test_every_package_has_a_folder_of_tests():
    packages = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    tested = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and list(Path(path).glob("test_*.py"))}
    assert packages - tested <= {"inference"}
