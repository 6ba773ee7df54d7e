"""Libraries that only some users need: imported when they are needed, and named when they are not there."""

from __future__ import annotations

import importlib
from typing import Any

from manyarms.errors import MissingLibraryError


def imported(module: str, who: str, install: str | None = None) -> Any:
    """A module of another library.

    Args:
        module: Its name.
        who: What needs it, as the caller wrote it.
        install: What to give to pip, where that is not the module's name.

    Raises:
        MissingLibraryError: When it is not installed, with the way out.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise MissingLibraryError(f'{who} needs {module}: pip install "{install or module}".') from missing
