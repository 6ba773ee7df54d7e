"""MkDocs hooks: formulas become MathML, every notebook becomes a page, and every chart opens in full."""

import json
import posixpath
import re
from html import unescape
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_CHART = re.compile(r'(<img [^>]*src="([^"]+\.svg)"[^>]*>)')
_TABLE = re.compile(r"<table>.*?</table>", flags=re.DOTALL)
_ROW = re.compile(r"<tr>.*?</tr>", flags=re.DOTALL)
_CELL = re.compile(r"<(t[dh](?: style=[^>]*)?)>(.*?)</t[dh]>", flags=re.DOTALL)
_NUMBER = re.compile(r"(?:&lt;|&gt;|[≈+−-])?\s?\d[\d.,]*(?:(?:&nbsp;| )?[%×])?|\d{4}-\d\d-\d\d|-|–")
"""A number, a date or a dash, in a cell of a table."""
_PRINTED = re.compile(r'<div class="((?:language-(?:text|sh|console) )?highlight)">(<pre>.*?</pre>)', flags=re.DOTALL)
LONG = 100
"""Characters per line of printed text beyond which a block is prose, not a table."""
SENTENCE = 45
"""Characters in a cell of a table beyond which it holds a sentence."""
SHORT = 12
"""Characters in a cell of a table that stay on one line."""
_CODE = re.compile(r"<code>.*?</code>", flags=re.DOTALL)
_FLAG = re.compile(r"(<[^>]*>)|(?<![\w-])--[a-z][\w-]*")
"""A flag of a command, or a tag, in which there are none."""
_FENCE = re.compile(r"^```math\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace every fenced `math` block by MathML, so that no page needs a script."""
    return _FENCE.sub(
        lambda fence: f'<div class="formula">{convert(fence[1].strip(), display="block")}</div>', markdown
    )


def on_page_content(html: str, page: Page, files: Files, **_: Any) -> str:
    """Link charts to their files, keep flags in one piece, align numbers in tables, and wrap long printed lines.

    On a phone a chart can be moved sideways, and opens in full.
    """
    folder = posixpath.dirname(page.file.src_uri)

    def linked(chart: re.Match[str]) -> str:
        file = files.get_file_from_path(posixpath.normpath(posixpath.join(folder, chart[2])))
        drawn = None if file is None else re.search(r'<svg[^>]* width="(\d+)', file.content_string[:3000])
        width = f' style="--drawn: {drawn[1]}px"' if drawn else ""
        return f'<a class="chart" href="{chart[2]}"{width}>{chart[1]}</a>'

    html = _CODE.sub(_whole_flags, _CHART.sub(linked, html))
    return _PRINTED.sub(_wrapped, _TABLE.sub(_table, html))


def _whole_flags(code: re.Match[str]) -> str:
    """A piece of code whose flags, such as --out, are not torn apart at the end of a line."""
    return _FLAG.sub(lambda part: part[1] or f'<span class="flag">{part[0]}</span>', code[0])


def _table(table: re.Match[str]) -> str:
    """A table: columns of numbers are aligned, numbers keep their per cent signs, sentences have room on a phone."""
    rows = [[_text(cell[2]) for cell in _CELL.finditer(row[0])] for row in _ROW.finditer(table[0])]
    columns = [[text for text in column if text] for column in zip(*rows[1:], strict=False)]
    aligned = [bool(column) and all(map(_NUMBER.fullmatch, column)) for column in columns]

    def with_classes(row: re.Match[str]) -> str:
        places = iter(range(len(columns)))
        return _CELL.sub(lambda cell: _cell(cell, aligned[next(places)]), row[0])

    return _ROW.sub(with_classes, table[0])


def _text(content: str) -> str:
    return re.sub(r"<[^>]+>", "", content).strip()


def _cell(cell: re.Match[str], is_number: bool) -> str:
    """A cell of a table, or of its head, with the class of its content."""
    content = re.sub(r"(\d) %", r"\1&nbsp;%", cell[2])
    length = len(_text(content))
    kind = "number" if is_number else "long" if length > SENTENCE else "short" if length <= SHORT else ""
    return f"<{cell[1]}{f' class={chr(34)}{kind}{chr(34)}' if kind else ''}>{content}</{cell[1].split()[0]}>"


def _wrapped(block: re.Match[str]) -> str:
    """A block of commands, or of printed text with a line that is too long to be read without scrolling, marked.

    A tree, a table or comments in a column would be torn apart, so such a block scrolls.
    """
    lines = unescape(re.sub(r"<[^>]+>", "", block[2])).splitlines()
    is_drawn = any(set(line) & set("│├└─") for line in lines)
    is_aligned = sum(re.search(r"\S {3,}\S", line) is not None for line in lines) >= 2
    is_wide = max(map(len, lines), default=0) > LONG or "language-sh" in block[1]
    return f'<div class="{block[1]} wrapped">{block[2]}' if is_wide and not (is_drawn or is_aligned) else block[0]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the notebooks: each as a page, with its charts, and as a file to download."""
    for path in sorted((Path(config.config_file_path).parent / "notebooks").glob("*.ipynb")):
        for name, content in _page_and_files(path).items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def _page_and_files(path: Path) -> dict[str, str]:
    text = path.read_text(encoding="utf-8")
    title, _, *cells = json.loads(text)["cells"]
    link = f"[Download this notebook]({path.name}) and open it in Jupyter or in any hosted notebook service. Its first "
    page = [title["source"], link + "cell installs the package if it is missing."]
    files = {path.name: text}
    for cell in cells:
        page.append(cell["source"] if cell["cell_type"] == "markdown" else f"```python\n{cell['source']}\n```")
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/svg+xml" in data:
                chart = f"{path.stem}-{len(files)}.svg"
                files[chart] = data["image/svg+xml"]
                page.append(f"![A chart, described in the text around it]({chart})")
            else:
                printed = output.get("text", data.get("text/plain", "")).rstrip().splitlines()
                page.append("\n".join(["```text", *printed, "```"]))
    return {f"{path.stem}.md": "\n\n".join(page), **files}
