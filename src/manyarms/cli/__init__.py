"""The command line parses options, calls one function of the library and prints its result."""

from manyarms.cli.main import app

__all__ = ["app"]
