"""The notebooks: each is its script, uses public names alone, and prints what it shows."""

import ast
import json
import runpy
from types import SimpleNamespace

import pytest
from pages import ROOT, assert_shown

import manyarms as ma
from manyarms import datasets, jobs
from notebooks.build import INSTALL, cells_of, run, scripts

SCRIPTS = scripts()
PUBLIC = {"ma": ma, "ma.priors": ma.priors, "ma.plots": ma.plots, "jobs": jobs}


def stored(script):
    return json.loads(script.with_suffix(".ipynb").read_text(encoding="utf-8"))


def test_there_are_five_and_each_is_on_a_page_of_the_docs():
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert len(SCRIPTS) == 5
    assert [script.stem for script in SCRIPTS if f"notebooks/{script.stem}.md" not in menu] == []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_notebook_is_valid_small_and_the_same_as_its_script(script):
    notebook = stored(script)
    assert (notebook["nbformat"], notebook["metadata"]["kernelspec"]["language"]) == (4, "python")
    cells = notebook["cells"]
    assert [(cell["cell_type"], cell["source"]) for cell in cells] == cells_of(script)
    assert cells[1]["source"] == INSTALL and len({cell["id"] for cell in cells}) == len(cells)
    drawings = [
        output for cell in cells for output in cell.get("outputs", []) if "image/svg+xml" in output.get("data", {})
    ]
    assert 1 <= len(drawings) <= 2
    assert script.with_suffix(".ipynb").stat().st_size < 150_000


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_notebook_uses_public_names_alone(script):
    for cell in cells_of(script):
        if cell.kind == "code":
            for node in ast.walk(ast.parse(cell.text)):
                assert unknown_names(node) == []


def unknown_names(node):
    """Names of the package in a piece of code that are not public."""
    if isinstance(node, ast.Attribute) and (owner := PUBLIC.get(ast.unparse(node.value))) is not None:
        return [] if node.attr in owner.__all__ else [node.attr]
    if isinstance(node, ast.ImportFrom) and node.module.startswith("manyarms"):
        source = {"manyarms": [*ma.__all__, "jobs"], "manyarms.datasets": datasets.__all__}.get(node.module, [])
        return [alias.name for alias in node.names if alias.name not in source]
    return []


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_notebook_runs_and_prints_what_it_shows(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for cell in stored(script)["cells"]:
        if cell["cell_type"] == "code":
            outputs = run(cell["source"], names)
            assert [output["output_type"] for output in outputs] == [
                output["output_type"] for output in cell["outputs"]
            ]
            for shown, output in zip(cell["outputs"], outputs, strict=True):
                assert_shown(shown.get("text", ""), output.get("text", ""), script)


class Files(dict):
    """The files of a site, by path: what a hook asks of MkDocs."""

    def get_file_from_path(self, path):
        return SimpleNamespace(content_string=self[path]) if path in self else None


def page_content(html, **files):
    hooks = runpy.run_path(str(ROOT / "mkdocs_hooks.py"))
    page = SimpleNamespace(file=SimpleNamespace(src_uri="how-to/plan.md"))
    return hooks["on_page_content"](html, page=page, files=Files(files))


def test_a_chart_of_a_page_links_to_its_file_and_has_its_width():
    chart = '<img alt="gains" src="../report/gains.svg">'
    shown = page_content(
        f'<p>{chart} and <img src="photo.png"></p>',
        **{"report/gains.svg": '<svg class="marks" width="712" height="9">'},
    )
    link = '<a class="chart" href="../report/gains.svg" style="--drawn: 712px">'
    assert shown == f'<p>{link}{chart}</a> and <img src="photo.png"></p>'


def test_columns_of_numbers_are_marked_and_others_are_not():
    rows = "".join(f"<tr>{cells}</tr>\n" for cells in ("<th>n</th>\n<th>who</th>", "<td>1,000</td>\n<td>7 users</td>"))
    shown = page_content(f"<table>{rows}<tr><td>19.6 %</td>\n<td>4,500</td></tr></table>")
    assert shown.count('class="number"') == 3
    assert '<td class="number">19.6&nbsp;%</td>' in shown and '<td class="short">4,500</td>' in shown


def test_flags_in_code_stay_in_one_piece_and_columns_and_tags_as_they_are():
    page = '<p>a--b <code>fit {} 9 --</code></p><pre><code><i title="--x">{} f</i></code></pre>'
    flag = '<span class="flag">{}</span>'.format
    assert page_content(page.format("--max-levels", "--out")) == page.format(flag("--max-levels"), flag("--out"))


def test_a_tree_in_a_block_is_not_wrapped():
    block = '<div class="language-text highlight"><pre>{}</pre>'
    assert "wrapped" in page_content(block.format("word " * 40))
    assert "wrapped" not in page_content(block.format("├── " + "word " * 40))
