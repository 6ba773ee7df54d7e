"""MkDocs hooks: formulas become MathML, every notebook becomes a page, and every chart opens in full."""

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_CHART = re.compile(r'(<img [^>]*src="([^"]+\.svg)"[^>]*>)')
_CELL = re.compile(r"<td( style=[^>]*)?>(.*?)</td>", flags=re.DOTALL)
_PRINTED = re.compile(r'<div class="((?:language-(?:text|sh|console) )?highlight)">(<pre>.*?</pre>)', flags=re.DOTALL)
LONG = 100
"""Characters per line of printed text beyond which a block is prose, not a table."""
SENTENCE = 45
"""Characters in a cell of a table beyond which it holds a sentence."""
_FENCE = re.compile(r"^```math\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace every fenced `math` block by MathML, so that no page needs a script."""
    return _FENCE.sub(
        lambda fence: f'<div class="formula">{convert(fence[1].strip(), display="block")}</div>', markdown
    )


def on_page_content(html: str, **_: Any) -> str:
    """Link charts to their files, keep per cent signs with their numbers, and wrap long commands and printed sentences.

    On a phone a chart is as wide as the screen, and opens in full.
    """
    html = _CHART.sub(r'<a class="chart" href="\2">\1</a>', html)
    return _PRINTED.sub(_wrapped, _CELL.sub(_cell, html))


def _cell(cell: re.Match[str]) -> str:
    """A cell of a table: numbers stay with their per cent signs, and sentences have room on a phone."""
    content = re.sub(r"(\d) %", r"\1&nbsp;%", cell[2])
    is_long = len(re.sub(r"<[^>]+>", "", content)) > SENTENCE
    start = "<td" + (cell[1] or "") + (' class="long"' if is_long else "")
    return f"{start}>{content}</td>"


def _wrapped(block: re.Match[str]) -> str:
    """A block of commands, or of printed text with a line that is too long to be read without scrolling, marked."""
    longest = max(map(len, unescape(re.sub(r"<[^>]+>", "", block[2])).splitlines()), default=0)
    is_wide = longest > LONG or "language-sh" in block[1]
    return f'<div class="{block[1]} wrapped">{block[2]}' if is_wide else block[0]


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
