"""`python -m manyarms` is the command `manyarms`."""

from manyarms.cli import app

if __name__ == "__main__":
    app(prog_name="manyarms")
