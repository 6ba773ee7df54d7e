"""The files of a small shop, and every command that writes files, for the checks of faults and load."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

N_DAYS = 8
ROUNDS_PER_DAY = 150
ROLES = ("--action", "item", "--reward", "spend", "--propensity", "p")
CONTEXT = ("--context", "age,city")
CATALOG = ("--catalog", "shop/items.parquet", "--id", "sku", "--category", "kind")
FIT = ("fit", "--logs", "shop/old", *CONTEXT, *ROLES, *CATALOG, "--no-learn-prior")


def write_shop(folder: Path) -> None:
    """Write a catalog and eight days of logs: four in `old/`, the others one by one."""
    (folder / "old").mkdir(parents=True)
    items = [f"i{number:02d}" for number in range(20)]
    kinds = [("tea", "mug", "pot")[number % 3] for number in range(20)]
    pq.write_table(pa.table({"sku": items, "kind": kinds}), folder / "items.parquet")
    for day in range(N_DAYS):
        place = folder / "old" if day < N_DAYS // 2 else folder
        pq.write_table(_day(day, items), place / f"day-{day}.parquet", row_group_size=60)


def _day(day: int, items: list[str]) -> pa.Table:
    """The rounds of a day; the last five items are never shown."""
    rng = np.random.default_rng([16, day])
    item, age = rng.integers(15, size=ROUNDS_PER_DAY), rng.normal(40, 12, ROUNDS_PER_DAY)
    return pa.table(
        {
            "user": [f"u{day}-{number}" for number in range(ROUNDS_PER_DAY)],
            "age": age,
            "city": rng.choice(["Oslo", "Riga", "Turin"], ROUNDS_PER_DAY),
            "item": [items[number] for number in item],
            "spend": (item % 3) * (age - 40) / 12 + rng.normal(size=ROUNDS_PER_DAY),
            "p": np.full(ROUNDS_PER_DAY, 1 / 15),
        }
    )


@dataclass(frozen=True)
class WritingCommand:
    """A command that writes files.

    Args:
        name: The name by which checks report it.
        arguments: The command line. It runs in a folder that holds the shop in `shop/` and writes to `out/`.
        outputs: The files that it writes, relative to the folder in which it runs.
        codes: The exit codes of success.
        begins_with: A file of the shop that `out/` holds before the command runs, by its name there.
        runs_again: Whether the same command succeeds again. An update in place refuses a file that it has counted.
    """

    name: str
    arguments: tuple[str, ...]
    outputs: tuple[str, ...]
    codes: tuple[int, ...] = (0,)
    begins_with: tuple[str, str] | None = None
    runs_again: bool = True


_MODEL = ("--model", "shop/model.arrow")
_NEW = ("--logs", "shop/day-4.parquet", *ROLES)
_DECIDE = ("decide", "--logs", "shop/day-4.parquet", *CONTEXT, *ROLES, *CATALOG)
_DEMO_FILES = ("logs.parquet", "new-logs.parquet", "catalog.parquet", "shop.toml", "decide.py", "report.html")
DEMO = ("demo", "--items", "30", "--categories", "3", "--rounds", "200", "--output", "out")

COMMANDS = (
    WritingCommand("fit", (*FIT, "--out", "out/model.arrow"), ("out/model.arrow",)),
    WritingCommand("update", ("update", *_MODEL, *_NEW, "--out", "out/model.arrow"), ("out/model.arrow",)),
    WritingCommand(
        "update in place",
        ("update", "--model", "out/model.arrow", *_NEW, "--out", "out/model.arrow"),
        ("out/model.arrow",),
        begins_with=("shop/model.arrow", "out/model.arrow"),
        runs_again=False,
    ),
    WritingCommand("learn", ("learn", *_MODEL, "--out", "out/policy.arrow"), ("out/policy.arrow",)),
    WritingCommand(
        "score",
        ("score", *_MODEL, "--contexts", "shop/old", "--keep", "user", "--top-k", "3", "--out", "out/scores.parquet"),
        ("out/scores.parquet",),
    ),
    WritingCommand(
        "report", ("report", *_MODEL, *_NEW, "--policies", "greedy", "--out", "out/report.html"), ("out/report.html",)
    ),
    WritingCommand(
        "report as charts",
        ("report", *_MODEL, *_NEW, "--policies", "greedy", "--format", "svg", "--out", "out"),
        (),
    ),
    WritingCommand(
        "decide",
        (
            "decide",
            "--logs",
            "shop/day-4.parquet",
            *CONTEXT,
            *ROLES,
            *CATALOG,
            "--out",
            "out/page.json",
            "--policy",
            "out/p.arrow",
        ),
        ("out/page.json", "out/p.arrow"),
        codes=(0, 3, 4),
    ),
    WritingCommand("demo", DEMO, tuple(f"out/{name}" for name in _DEMO_FILES)),
)


def content(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, without the time at which a report was made.

    The demo's record of its own files is left out: it also lists files of earlier demos.
    """
    return {
        path.relative_to(folder).as_posix(): TIME.sub(b"", path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".manyarms-demo"
    }


TIME = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d UTC")
"""The minute at which a report was made, as it is written into the report."""


def is_draft(name: str) -> bool:
    """Whether a file is the draft of another, which a killed command may leave behind."""
    file = name.rpartition("/")[2]
    return file.startswith(".") and file.endswith(".tmp")
