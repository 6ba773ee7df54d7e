"""Commands that are killed: every file stays the old one or becomes the new one, and the command can run again."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from trust.check import Check, Outcome, Row
from trust.command_server import Ending, Fault, run
from trust.shop_files import COMMANDS, DEMO, FIT, WritingCommand, content, is_draft, write_shop

KILLS_PER_CASE = 4
REAL_PROCESSES = 10
"""One case in this many runs its command as a process of its own, and not in the command server."""


@dataclass(frozen=True)
class CleanRun:
    """What a command does when nothing disturbs it: the files it leaves, its time and its file operations."""

    files: dict[str, bytes]
    ending: Ending


@cache
def shop_folder() -> Path:
    """The folder of a shop with a fitted model, made once per process and removed with it."""
    folder = Path(_temporary_folder().name)
    write_shop(folder / "shop")
    ending = run(folder, [*FIT, "--out", "shop/model.arrow"])
    assert ending.code == 0, ending.stderr
    return folder


@cache
def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="trust-shop-")


@cache
def shop_content() -> dict[str, bytes]:
    """The files of the shop as they were written."""
    return content(shop_folder() / "shop")


def prepare(folder: Path, command: WritingCommand, with_old_files: bool = False) -> dict[str, bytes]:
    """Prepare a folder in which a command can run, and return the files of `out/`; the shop itself is shared."""
    (folder / "shop").symlink_to(shop_folder() / "shop")
    (folder / "out").mkdir()
    if command.begins_with is not None:
        source, target = command.begins_with
        shutil.copy(folder / source, folder / target)
    elif with_old_files and command.name == "demo":
        # The demo keeps files that it has not written itself.
        assert run(folder, [*DEMO, "--seed", "1"]).code == 0
    elif with_old_files:
        for name in command.outputs:
            (folder / name).write_bytes(b"an older file\n")
    return content(folder / "out")


@cache
def clean_run(number: int) -> CleanRun:
    """The undisturbed run of the command with this number."""
    command = COMMANDS[number]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        prepare(folder, command)
        ending = run(folder, command.arguments)
        assert ending.code in command.codes, ending.stderr
        return CleanRun(content(folder / "out"), ending)


def measure_kills(case: int) -> Row:
    """Kill a command several times in a row, look at its files each time, and let it finish in the end."""
    number = case % len(COMMANDS)
    command, rng = COMMANDS[number], np.random.default_rng([1601, case])
    clean, defects, kills = clean_run(number), list[str](), 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        old = prepare(folder, command, with_old_files=bool(rng.integers(2)))
        for _ in range(KILLS_PER_CASE):
            if case // len(COMMANDS) % REAL_PROCESSES == REAL_PROCESSES - 1:
                code = _kill_a_process(folder, command, float(rng.uniform(0.0, 3.0)))
            else:
                code = run(folder, command.arguments, _random_kill(rng, clean.ending)).code
            kills += code == -signal.SIGKILL
            if code != -signal.SIGKILL and not _is_an_end(command, code):
                defects.append(f"exit code {code} before the kill")
            defects += torn_files(content(folder / "out"), old, clean.files)
        defects += _defects_of_the_last_run(folder, command, clean)
    if content(shop_folder() / "shop") != shop_content():
        defects.append("an input has changed")
    return {"command": command.name, "kills": kills, "defects": defects}


def _random_kill(rng: np.random.Generator, clean: Ending) -> Fault:
    """A kill at a random file operation, or at a random moment of the time that the command takes."""
    if rng.random() < 0.5:
        return Fault(kill_at=int(rng.integers(1, clean.operations + 1)))
    return Fault(kill_after=float(rng.uniform(0.0, 1.1 * clean.seconds)))


def _kill_a_process(folder: Path, command: WritingCommand, seconds: float) -> int:
    process = subprocess.Popen(
        [sys.executable, "-m", "manyarms", *command.arguments],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _is_an_end(command: WritingCommand, code: int | None) -> bool:
    """Whether a command that was not reached by its kill ended as it should."""
    return code in command.codes or (not command.runs_again and code == 2)


def torn_files(files: dict[str, bytes], old: dict[str, bytes], new: dict[str, bytes]) -> list[str]:
    """Files that are neither the old nor the new ones, files that are lost, and files that nobody asked for."""
    defects = [f"{name} is lost" for name in old if name not in files]
    for name, data in files.items():
        if is_draft(name):
            continue
        if name not in old and name not in new:
            defects.append(f"{name} is unexpected")
        elif data not in (old.get(name), new.get(name)):
            defects.append(f"{name} is torn")
    return defects


def _defects_of_the_last_run(folder: Path, command: WritingCommand, clean: CleanRun) -> list[str]:
    """What is wrong after a last run that nothing disturbs: it must end with the files of a clean run and no drafts."""
    before = content(folder / "out")
    ending = run(folder, command.arguments)
    finished_before = not command.runs_again and all(before.get(name) == clean.files[name] for name in clean.files)
    if finished_before:
        # Its rounds are in the model; counting them again is refused.
        if not ending.in_one_line or "has seen" not in ending.stderr:
            return [f"a finished update ran again with exit code {ending.code}"]
    elif ending.code not in command.codes:
        return [f"the next run ended with {ending.code}: {ending.stderr[-200:]}"]
    files = content(folder / "out")
    wrong = [name for name in clean.files if files.get(name) != clean.files[name]]
    left = [name for name in files if name not in clean.files and not (finished_before and is_draft(name))]
    return [f"{name} differs from that of a clean run" for name in wrong] + [f"{name} is left behind" for name in left]


def summarise_kills(rows: Sequence[Row]) -> Outcome:
    """No file may be torn, lost or left behind, and nothing counted twice."""
    kills = Counter[str]()
    for row in rows:
        kills[row["command"]] += row["kills"]
    bad = [(case, row) for case, row in enumerate(rows) if row["defects"]]
    notes = [", ".join(f"{command}: {count} kills" for command, count in kills.items()) + "."]
    notes += [f"Case {case} ({row['command']}): {'; '.join(row['defects'])}." for case, row in bad[:10]]
    return Outcome(
        f"{len(bad)} defects in {sum(kills.values()):,} kills", not bad and bool(kills.total()), tuple(notes)
    )


KILLS = Check(
    name="killed-commands",
    section="Faults",
    claim="A command that is killed leaves every file old or new and whole, and the same command then finishes.",
    threshold="no defect",
    cases=50 * len(COMMANDS),
    measure=measure_kills,
    summarise=summarise_kills,
    batch=len(COMMANDS),
    shortest=len(COMMANDS),
)
