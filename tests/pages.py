"""Run the pages of the docs as a reader would, and compare what they print with what they show."""

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
    return [Block(*match) for match in FENCE.findall(page.read_text(encoding="utf-8"))]


def python_of(page: Path) -> list[str]:
    return [block.text for block in blocks_of(page) if block.language == "python"]


def run(page: Path, *, names: dict | None = None, figures: bool = True, commands: bool = True) -> dict:
    """Run the Python and the commands of a page, in order, in one namespace and in the current folder.

    A "text" block shows what the block before it prints. It is compared if `figures` is true.
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
            # The first line names the file.
            Path(text.split()[1]).write_text(text, encoding="utf-8")
        elif language == "text" and figures:
            assert_shown(text, printed, page)
    return space


def command(line: str) -> str:
    name, *arguments = shlex.split(line)
    assert name == "manyarms", line
    result = CliRunner().invoke(app, arguments)
    # The exit code of `decide` is its verdict.
    fine = (0, 3, 4) if arguments[0] == "decide" else (0,)
    assert result.exit_code in fine, (line, result.output, result.exception)
    return result.stdout


def assert_shown(shown: str, printed: str, page: Path) -> None:
    """Check that words are the same and that numbers agree to about two digits: libraries round differently."""
    assert _words(shown) == _words(printed), f"{page.name} shows\n{shown}\nand prints\n{printed}"
    for expected, actual in zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True):
        a, b = (float(number.replace(",", "")) for number in (expected, actual))
        message = f"{page.name} shows {expected} for {actual}:\n{printed}"
        assert abs(a - b) <= 0.02 * max(abs(a), abs(b)) + 1e-12, message


def _words(text: str) -> str:
    # The width of a rule and the padding of columns depend on the digits.
    return re.sub(r"[─\s]+", " ", NUMBER.sub("#", text)).strip()
