"""On the command line the library's sentences speak of flags; nothing of Python is left in them."""

import ast
import re
from pathlib import Path

import pytest
import typer

import manyarms as ma
from manyarms.cli import app
from manyarms.cli.error_words import ARGUMENTS, SENTENCES, in_flags


def sentences():
    """All texts in the library's source, with a word in the place of what is filled in when they are said."""
    for path in Path(ma.__file__).parent.rglob("*.py"):
        if "cli" not in path.parts:
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    yield "".join(str(part.value) if isinstance(part, ast.Constant) else "word" for part in node.values)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


def test_every_phrase_that_is_translated_is_one_that_the_library_says():
    said = list(sentences())
    for phrase in SENTENCES:
        assert any(re.search(phrase, one) for one in said), phrase


def test_every_argument_is_translated_into_a_flag_that_a_command_has():
    commands = typer.main.get_command(app).commands.values()
    flags = {flag for command in commands for one in command.params for flag in (*one.opts, *one.secondary_opts)}
    assert set(ARGUMENTS.values()) <= flags
    assert {word for phrase in SENTENCES.values() for word in re.findall(r"--[a-z-]+", phrase)} <= flags


@pytest.mark.parametrize(
    ("python", "flags"),
    [
        ('pass unknown="drop" or unknown="other".', "pass --unknown drop or --unknown other."),
        ("effect_std must be above 0.0; got 0.", "--prior-std must be above 0.0; got 0."),
        ("than noise_std=1.5 says", "than --noise-std 1.5 says"),
        ("Pass catalog=.", "Pass --catalog."),
        ("logs/time=3/part.parquet cannot be read", "logs/time=3/part.parquet cannot be read"),
        ("column keep is missing in row 3.", "column keep is missing in row 3."),
    ],
)
def test_arguments_become_flags_and_names_of_users_stay(python, flags):
    assert in_flags(python) == flags
