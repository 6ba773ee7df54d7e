"""Full disks, several writers at once, killed reproductions, dead workers: nothing torn, lost or counted twice."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np

import manyarms as ma
from manyarms.experiments import Store
from manyarms.experiments.result_store import ROWS
from trust import damage
from trust.check import Check, Outcome, Row
from trust.command_server import ROOT, Fault, run, run_together
from trust.kills import KILLS, clean_run, prepare, shop_content, shop_folder, torn_files
from trust.shop_files import COMMANDS, FIT, ROLES, ROUNDS_PER_DAY, content

DISKS = ("library", "file size", "mounted")
"""A disk that is full for the library alone, a limit of the system on the size of a file, and a tiny disk."""


def measure_full_disk(case: int) -> Row:
    """Run a command on a disk with too little room, and again when there is room."""
    number = case % len(COMMANDS)
    command, rng = COMMANDS[number], np.random.default_rng([1610, case])
    clean, defects = clean_run(number), list[str]()
    total, longest = (pick(map(len, clean.files.values())) for pick in (sum, max))
    disk = DISKS[int(rng.integers(3))]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        old = prepare(folder, command, with_old_files=bool(rng.integers(2)))
        fault = Fault()
        if disk == "library":
            fault = Fault(room=int(rng.integers(total)))
        elif disk == "file size":
            # What the command prints goes to a file too, and needs some room.
            fault = Fault(largest=int(rng.integers(min(4096, longest - 1), longest)))
        room = int(rng.integers(total))
        with _tiny_disk(folder / "out", room) if disk == "mounted" else _no_disk() as is_mounted:
            ending = run(folder, command.arguments, fault)
            files = content(folder / "out")
            if ending.code not in command.codes:
                if not ending.in_one_line:
                    defects.append(f"exit code {ending.code}: {ending.stderr[-300:]}")
                if len(command.outputs) == 1 and files != old:
                    defects.append("the old file was touched")
                defects += [f"{name} is left behind" for name in files if name.endswith(".tmp")]
            defects += torn_files(files, old, clean.files)
        if not is_mounted and ending.code not in command.codes:
            again = run(folder, command.arguments)
            if again.code not in command.codes or content(folder / "out") != clean.files:
                defects.append(f"with room, the command ended with {again.code}: {again.stderr[-300:]}")
    if content(shop_folder() / "shop") != shop_content():
        defects.append("an input has changed")
    outcome = "had room" if ending.code in command.codes else "was refused"
    return {"command": command.name, "disk": disk, "outcome": outcome, "defects": defects}


@contextmanager
def _no_disk() -> Generator[bool]:
    yield False


@contextmanager
def _tiny_disk(folder: Path, room: int) -> Generator[bool]:
    """Put a disk behind a folder, with the folder's files on it and a little room; without the right to, nothing."""
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    # A file takes whole pages of 4,096 bytes.
    pages = sum(-(-size // 4096) for size in (*map(len, files.values()), max(room, 1)))
    options = f"size={4096 * pages}"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, check=False)
    if mounted.returncode:
        yield False
        return
    try:
        for name, data in files.items():
            (folder / name).write_bytes(data)
        yield True
    finally:
        subprocess.run(["umount", folder], check=True)


def summarise_defects(rows: Sequence[Row]) -> Outcome:
    """No case may have a defect; the notes count what happened in the others."""
    bad = [(case, row) for case, row in enumerate(rows) if row["defects"]]
    happened = Counter(f"{row.get('disk', row['command'])} {row['outcome']}" for row in rows if not row["defects"])
    notes = [", ".join(f"{words}: {count:,}" for words, count in sorted(happened.items())) + "."]
    notes += [f"Case {case} ({row['command']}): {'; '.join(row['defects'])}." for case, row in bad[:10]]
    return Outcome(f"{len(bad)} defects in {len(rows):,} cases", not bad, tuple(notes))


# Several writers at once.

_IN_PLACE = ("update", "--model", "out/model.arrow", *ROLES, "--out", "out/model.arrow", "--logs")
_SCORE = ("score", "--model", "shop/model.arrow", "--contexts", "shop/old", "--out", "out/scores.parquet", "--top-k")
_DEMO = ("demo", "--items", "30", "--categories", "3", "--rounds", "200", "--output", "out")
WRITERS = (
    ("three updates of one model", tuple((*_IN_PLACE, f"shop/day-{day}.parquet") for day in (4, 5, 6))),
    ("the same update twice", ((*_IN_PLACE, "shop/day-4.parquet"),) * 2),
    ("two fits into one file", tuple((*FIT, *("--prior-std", std), "--out", "out/model.arrow") for std in ("1", "2"))),
    ("two scores into one file", tuple((*_SCORE, top_k) for top_k in ("1", "3"))),
    ("two demos in one folder", (_DEMO, _DEMO)),
)


def measure_writers(case: int) -> Row:
    """Run commands at the same time that write the same file; in every third case one of them is killed."""
    name, commands = WRITERS[case % len(WRITERS)]
    rng, defects = np.random.default_rng([1611, case]), list[str]()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        prepare(folder, COMMANDS[2])
        updates = commands[0][0] == "update"
        if not updates:
            (folder / "out/model.arrow").unlink()
        faults = [Fault()] * len(commands)
        if case % 3 == 2:
            faults[0] = Fault(kill_at=int(rng.integers(1, 40)))
        endings = run_together(folder, commands, faults)
        for ending in endings:
            if not (ending.code == 0 or ending.in_one_line or ending.code == -signal.SIGKILL):
                defects.append(f"exit code {ending.code}: {ending.stderr[-300:]}")
        finished = [number for number, ending in enumerate(endings) if ending.code == 0]
        if updates:
            defects += _defects_of_updates(folder, commands, endings[0].code == -signal.SIGKILL, len(finished))
        elif finished and "demos" not in name:
            written = {data for file, data in content(folder / "out").items() if not file.endswith(".tmp")}
            if not written <= {_written_alone(command) for command in commands}:
                defects.append("the file is that of neither command")
        elif "demos" in name:
            defects += _defects_of_demos(folder)
        left = [file for file in content(folder / "out") if file.endswith(".tmp")]
        if left and case % 3 != 2:
            defects.append(f"{left} are left behind")
    return {"command": name, "outcome": f"with {len(finished)} finished", "defects": defects}


def _defects_of_updates(folder: Path, commands: Sequence[Sequence[str]], killed: bool, n_finished: int) -> list[str]:
    """Rounds that were lost or counted twice, now and after every update has run again by itself."""
    base = ROUNDS_PER_DAY * 4
    rounds = _rounds(folder)
    possible = {base + ROUNDS_PER_DAY * (n_finished + extra) for extra in ((0, 1) if killed else (0,))}
    defects = [] if rounds in possible else [f"{rounds} rounds after {n_finished} updates of {ROUNDS_PER_DAY}"]
    for command in commands:
        ending = run(folder, command)
        if ending.code != 0 and "has seen" not in ending.stderr:
            defects.append(f"the next update ended with {ending.code}: {ending.stderr[-300:]}")
    expected = base + ROUNDS_PER_DAY * len(set(commands))
    if _rounds(folder) != expected:
        defects.append(f"{_rounds(folder)} rounds in the end in place of {expected}")
    return defects


def _rounds(folder: Path) -> int:
    model = ma.load(folder / "out/model.arrow")
    assert isinstance(model, ma.RewardPosterior)
    return model.statistics.n_rounds


def _defects_of_demos(folder: Path) -> list[str]:
    """Files that are not those of a demo by itself, after the demos and after one more."""
    clean = clean_run(len(COMMANDS) - 1).files
    defects = torn_files(content(folder / "out"), {}, clean)
    ending = run(folder, _DEMO)
    if ending.code or content(folder / "out") != clean:
        defects.append(f"the next demo ended with {ending.code}: {ending.stderr[-300:]}")
    return defects


@cache
def _written_alone(command: Sequence[str]) -> bytes:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        prepare(folder, COMMANDS[0])
        assert run(folder, command).code == 0
        (data,) = content(folder / "out").values()
        return data


# Reproductions that are killed.

FIGURE = ("reproduce", "scaling-k", "--quick", "--instances", "2", "--workers", "2", "--out")


def _reproduce(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "manyarms", *FIGURE, folder], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def measure_reproduction(case: int) -> Row:
    """Kill a reproduction again and again, then let it finish: its rows are those of one that was not killed."""
    rng, defects, kills, kept = np.random.default_rng([1612, case]), list[str](), 0, 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "results"
        while kills < KILLS_OF_A_REPRODUCTION:
            process = _reproduce(folder)
            try:
                if process.wait(float(rng.uniform(0.5, 12.0))):
                    defects.append(f"exit code {process.returncode}")
                break
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                kills += 1
            _wait_for_workers(folder)
            n_rows = len(Store(folder).read()) if folder.exists() else 0
            if n_rows < kept:
                defects.append(f"{kept - n_rows} finished cells were lost")
            kept = n_rows
        if _reproduce(folder).wait(300):
            defects.append("the last run failed")
        elif (folder / ROWS).read_bytes() != _whole_reproduction():
            defects.append("the rows differ from those of a run that was not killed")
        if list(folder.glob("journal-*")) or list(folder.glob(".*.tmp")):
            defects.append("journals or drafts are left behind")
    return {"command": "reproduce", "kills": kills, "outcome": f"with {kills} kills", "defects": defects}


KILLS_OF_A_REPRODUCTION = 5


def _wait_for_workers(folder: Path) -> None:
    """Wait until the workers of a killed run have noticed that it is gone."""
    deadline = time.monotonic() + 20
    workers = {int(path.name.split("-")[1]) for path in folder.glob("journal-*")}
    while any(Path(f"/proc/{worker}").exists() for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.05)


@cache
def _whole_reproduction() -> bytes:
    with tempfile.TemporaryDirectory() as place:
        assert _reproduce(Path(place)).wait(300) == 0
        return (Path(place) / ROWS).read_bytes()


# Dead workers of clusters.


def measure_dead_workers(case: int) -> Row:
    """Kill a worker of Dask or an executor of Spark during a fit; the answer is that of a fit in one process."""
    script, engine = ROOT / "tests/engines/kill_spark_executor.py", "spark"
    if case % 3:
        script, engine = ROOT / "trust/kill_dask_worker.py", "dask"
    elif shutil.which("java") is None:
        return {"command": engine, "outcome": "not run without Java", "defects": []}
    with tempfile.TemporaryDirectory() as place:
        _write_clicks(Path(place), case)
        paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, script, place, "60"],
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
            env=os.environ
            | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": paths}
            | {"TRUST_CASE": str(case)},
        )
    if done.returncode:
        return {"command": engine, "outcome": "failed", "defects": [done.stderr[-500:]]}
    killed, rounds, gap = done.stdout.split()[-3:]
    defects = [] if int(rounds) == CLICKS else [f"{rounds} rounds in place of {CLICKS}"]
    defects += [] if float(gap) < 1e-8 else [f"the means differ by {gap}"]
    defects += [] if int(killed) else ["no worker was killed"]
    return {"command": engine, "outcome": f"with {killed} killed", "defects": defects}


CLICKS = 6000


def _write_clicks(folder: Path, case: int) -> None:
    """Clicks in three Parquet files with small row groups, so that there are pieces for several workers."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    rng = np.random.default_rng([1613, case])
    contexts, actions = rng.normal(size=(CLICKS, 3)), np.minimum(rng.geometric(0.12, CLICKS) - 1, 57)
    clicks = (rng.random(CLICKS) < 1 / (1 + np.exp(1 - contexts[:, 0] - 0.02 * actions))).astype(float)
    table = pa.table({**{f"x{i}": contexts[:, i] for i in range(3)}, "item": actions, "click": clicks})
    for part in range(3):
        rows = table.slice(part * CLICKS // 3, CLICKS // 3)
        pq.write_table(rows, folder / f"part-{part}.parquet", row_group_size=CLICKS // 30)


CHECKS = (
    KILLS,
    Check(
        "full-disk",
        "Faults",
        "On a full disk, a command says so in one line, keeps the old file and leaves no draft.",
        "no defect",
        30 * len(COMMANDS),
        measure_full_disk,
        summarise_defects,
        batch=len(COMMANDS),
        shortest=len(COMMANDS),
    ),
    *damage.CHECKS,
    Check(
        "writers-at-once",
        "Faults",
        "Commands that write one file at the same time lose no rounds, count none twice and tear no file.",
        "no defect",
        40 * len(WRITERS),
        measure_writers,
        summarise_defects,
        batch=len(WRITERS),
        shortest=len(WRITERS),
    ),
    Check(
        "killed-reproductions",
        "Faults",
        "A reproduction that is killed loses no finished cell and ends with the rows of one that was not killed.",
        "no defect",
        4,
        measure_reproduction,
        summarise_defects,
        alone=True,
    ),
    Check(
        "dead-workers",
        "Faults",
        "A Dask worker or Spark executor that is killed during a fit changes nothing.",
        "the same rounds, means within 1e-8",
        6,
        measure_dead_workers,
        summarise_defects,
        alone=True,
    ),
)
