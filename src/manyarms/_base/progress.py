"""Progress of a long run, shown to the user."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

Progress = bool | Callable[[int, int], None]
"""True draws a bar with the time left; a function is called as progress(done, total); False is silent."""


@contextmanager
def reporter(progress: Progress, total: int, label: str) -> Generator[Callable[[int, int], None]]:
    """The function that shows progress, to call as report(done, total) after each of `total` steps."""
    if callable(progress):
        yield progress
    elif not progress:
        yield lambda done, total: None
    else:
        from rich.progress import Progress as Bar  # noqa: PLC0415

        with Bar(transient=True) as bar:
            task = bar.add_task(label, total=total)
            yield lambda done, total: bar.update(task, completed=done, total=total)
