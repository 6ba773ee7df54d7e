"""Turn the scripts of this folder into notebooks: run their cells, and store what they print, show and draw.

A cell starts with `# %%`, a cell of text with `# %% [markdown]`. Run `make notebooks` after a change.

python notebooks/build.py [SCRIPT ...]
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import altair as alt
import vl_convert

import manyarms as ma

FOLDER = Path(__file__).parent
INSTALL = """# Installs manyarms if it is missing: from a wheel beside this notebook, else from the package index.
import glob
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("manyarms") is None:
    wheels = sorted(glob.glob("manyarms-*.whl")) or ["manyarms"]
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", wheels[-1]], check=True)"""


class Cell(NamedTuple):
    """A cell of a notebook: "markdown" or "code", and its text."""

    kind: str
    text: str


def scripts() -> list[Path]:
    """The scripts that are notebooks."""
    return sorted(path for path in FOLDER.glob("*.py") if path.name != "build.py")


def cells_of(script: Path) -> list[Cell]:
    """The cells of a script, after the title the one that installs the package."""
    cells: list[Cell] = []
    for part in re.split(r"^# %%", script.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        first, _, text = part.partition("\n")
        if first.strip() == "[markdown]":
            cells.append(Cell("markdown", re.sub(r"^# ?", "", text, flags=re.MULTILINE).strip()))
        else:
            cells.append(Cell("code", text.strip()))
    return [cells[0], Cell("code", INSTALL), *cells[1:]]


def run(text: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell as a notebook does: its outputs are what it prints, and the value of its last line."""
    body = ast.parse(text).body
    last = ast.Expression(body.pop().value) if body and isinstance(body[-1], ast.Expr) else None  # type: ignore[attr-defined]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), "<cell>", "exec"), names)
        value = None if last is None else eval(compile(last, "<cell>", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue()})
    if value is not None:
        outputs.append({"output_type": "display_data", "data": _shown(value), "metadata": {}})
    return outputs


def _shown(value: Any) -> dict[str, str]:
    """The value as a drawing if it is a chart, else as text."""
    if isinstance(value, alt.TopLevelMixin):
        drawing = vl_convert.vegalite_to_svg(value.configure(**ma.plots.theme()).to_json())
        return {"image/svg+xml": drawing, "text/plain": "a chart"}
    return {"text/plain": repr(value)}


def notebook(script: Path) -> dict[str, Any]:
    """The notebook of a script, run in an empty folder."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, before = [], Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for number, cell in enumerate(cells_of(script)):
                entry = {"cell_type": cell.kind, "id": f"cell-{number}", "metadata": {}, "source": cell.text}
                if cell.kind == "code":
                    entry |= {"execution_count": None, "outputs": run(cell.text, names)}
                cells.append(entry)
        finally:
            os.chdir(before)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def main() -> None:
    """Write the notebooks beside their scripts."""
    for script in [Path(name) for name in sys.argv[1:]] or scripts():
        text = json.dumps(notebook(script.resolve()), indent=1, ensure_ascii=False) + "\n"
        path = script.with_suffix(".ipynb")
        path.write_text(text, encoding="utf-8")
        print(f"{path.name}: {len(text) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
