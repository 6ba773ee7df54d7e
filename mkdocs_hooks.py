"""MkDocs hooks: formulas become MathML, every notebook becomes a page, and every chart opens in full."""

import json
import re
import textwrap
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_CHART = re.compile(r'(<img [^>]*src="([^"]+\.svg)"[^>]*>)')
_FENCE = re.compile(r"^```math\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace every fenced `math` block by MathML, so that no page needs a script."""
    return _FENCE.sub(
        lambda fence: f'<div class="formula">{convert(fence[1].strip(), display="block")}</div>', markdown
    )


def on_page_content(html: str, **_: Any) -> str:
    """Link every chart to its file: on a phone it is as wide as the screen, and opens in full."""
    return _CHART.sub(r'<a class="chart" href="\2">\1</a>', html)


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
                page.append("\n".join(["```text", *(textwrap.fill(line, 110) for line in printed), "```"]))
    return {f"{path.stem}.md": "\n\n".join(page), **files}
