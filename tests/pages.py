"""The pages of the documents as a reader types them in: what is run, and whether it prints what the page shows."""

import contextlib
import io
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from typer.testing import CliRunner

from manyarms.cli import app

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[+-]\d+)?")


class Block(NamedTuple):
    language: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    return [Block(*found) for found in FENCE.findall(page.read_text(encoding="utf-8"))]


def python_of(page: Path) -> list[str]:
    return [block.text for block in blocks_of(page) if block.language == "python"]


def run(page: Path, *, names: dict | None = None, figures: bool = True, commands: bool = True) -> dict:
    """Python and commands of a page, in order, in one namespace and in the folder in use.

    A block of "text" is what the block before it prints; `figures` says whether to compare.
    """
    space, printed = {"__name__": "__main__", **(names or {})}, ""
    for language, text in blocks_of(page):
        if language == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(text, str(page), "exec"), space)
            printed = out.getvalue()
        elif language == "sh" and commands:
            printed = "".join(command(line) for line in text.replace("\\\n", "").strip().splitlines())
        elif language == "toml":
            # Its first line says what the file is called.
            Path(text.split()[1]).write_text(text, encoding="utf-8")
        elif language == "text" and figures:
            assert_shown(text, printed, page)
    return space


def command(line: str) -> str:
    name, *arguments = shlex.split(line)
    assert name == "manyarms", line
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, (line, result.output, result.exception)
    return result.stdout


def assert_shown(shown: str, printed: str, page: Path) -> None:
    """The same words, and figures that differ in their last digits at most: libraries round differently."""
    wanted, found = (" ".join(text.split()) for text in (shown, printed))
    assert _words(wanted) == _words(found), f"{page.name} shows\n{shown}\nand prints\n{printed}"
    for one, other in zip(NUMBER.findall(wanted), NUMBER.findall(found), strict=True):
        a, b = (float(number.replace(",", "")) for number in (one, other))
        assert abs(a - b) <= 0.02 * max(abs(a), abs(b)) + 1e-12, f"{page.name} shows {one} for {other}:\n{printed}"


def _words(text: str) -> str:
    # How wide a rule is and how columns are filled up hangs on the digits.
    return re.sub(r"[─\s]+", " ", NUMBER.sub("#", text)).strip()
