"""The command line: it parses, calls and prints; no maths lives here."""

from manyarms.cli.main import app

__all__ = ["app"]
