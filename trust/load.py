"""Load and determinism: updates and scores in a long loop with flat memory, and the same bytes from every process."""

from __future__ import annotations

import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from manyarms.jobs import score, update_files
from trust.check import Check, Outcome, Row
from trust.command_server import ROOT
from trust.kills import shop_folder
from trust.shop_files import N_DAYS, content

MINUTES = int(os.environ.get("MANYARMS_LOAD_MINUTES", "15"))
"""The length of the loop in a full campaign; an hour takes MANYARMS_LOAD_MINUTES=60."""
CASES_PER_MINUTE = 15
WEEKS_PER_CASE = 8
FLAT = 8e6
"""Bytes by which memory may differ between the second and the last quarter of the loop."""


@cache
def _out_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="trust-load-")


def measure_load(case: int) -> Row:
    """Update a model day by day and score with it, week after week; what the process holds afterwards."""
    out = Path(_out_folder().name)
    results = {_week(out) for _ in range(WEEKS_PER_CASE)}
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "process": os.getpid(),
        "time": round(time.monotonic(), 1),
        "memory": pages * os.sysconf("SC_PAGE_SIZE"),
        "open_files": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "files": sorted(os.listdir(out)),
        "updates": WEEKS_PER_CASE * N_DAYS // 2,
        "same": results == {_first_week()},
    }


def _week(out: Path) -> bytes:
    """A copy of the model, updated in place with every new day and scored after each; all files as bytes."""
    shop = shop_folder() / "shop"
    model = out / "model.arrow"
    shutil.copy(shop / "model.arrow", model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for day in range(N_DAYS // 2, N_DAYS):
            update_files(model, shop / f"day-{day}.parquet", "item", "spend", "p", out=model)
            score(model, shop / "old", out / "scores.parquet", top_k=3)
    return b"".join(content(out).values())


@cache
def _first_week() -> bytes:
    return _week(Path(_out_folder().name))


def summarise_load(rows: Sequence[Row]) -> Outcome:
    """Memory, open files and threads do not grow, and every week ends with the same files."""
    growth, minutes, notes = 0.0, 0.0, list[str]()
    by_process = defaultdict[int, list[Row]](list)
    for row in rows:
        by_process[row["process"]].append(row)
    holds = all(row["same"] and row["files"] == ["model.arrow", "scores.parquet"] for row in rows)
    if not holds:
        notes.append("A week ended with other files than the first one.")
    # A campaign that was interrupted has gone on in another process, which holds other things.
    for group in (group for group in by_process.values() if len(group) >= SHORTEST):
        quarter = len(group) // 4
        early, late = group[quarter : 2 * quarter], group[-quarter:]
        for name in ("open_files", "threads"):
            more = min(row[name] for row in late) - max(row[name] for row in early)
            if more > 0:
                holds = False
                notes.append(f"There are {more} more {name.replace('_', ' ')} at the end.")
        minutes += (group[-1]["time"] - group[0]["time"]) / 60
        medians = [statistics.median(row["memory"] for row in part) for part in (early, late)]
        growth = max(growth, medians[1] - medians[0])
    updates = sum(row["updates"] for row in rows)
    end = f"{rows[-1]['memory'] / 1e6:.0f} MB at the end"
    notes.append(f"{updates:,} updates and as many scores in {minutes:.0f} minutes; {end}.")
    measured = f"{growth / 1e6:+.1f} MB from the second to the last quarter"
    return Outcome(measured, holds and growth <= FLAT and len(rows) >= SHORTEST, tuple(notes))


SHORTEST = 8


# Determinism.


def measure_determinism(case: int) -> Row:
    """Make models, policies, scores and a decision in a process with its own hash seed, threads and cores."""
    rng = np.random.default_rng([1621, case])
    threads, cores, seed = 1 + case % 2, 1 + case // 2 % 2, int(rng.integers(2**32))
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {"PYTHONHASHSEED": str(seed), "PYTHONPATH": paths} | dict.fromkeys(names, str(threads))
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    done = subprocess.run(
        [sys.executable, "-m", "trust.model_digests", *SIZES[case // 4 % len(SIZES)]],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
        preexec_fn=lambda: os.sched_setaffinity(0, allowed),
    )
    digests = json.loads(done.stdout) if done.returncode == 0 else {"failed": done.stderr[-300:]}
    return {"size": case // 4 % len(SIZES), "threads": threads, "cores": len(allowed), "digests": digests}


SIZES = (("800", "30", "3"), ("20000", "300", "12"))
"""Rounds, actions and dimension: too small for threads, and large enough for them."""


def summarise_determinism(rows: Sequence[Row]) -> Outcome:
    """All processes write the same bytes."""
    versions = defaultdict[str, dict[str, list[str]]](lambda: defaultdict(list))
    for case, row in enumerate(rows):
        for name, digest in row["digests"].items():
            versions[f"{name} ({' x '.join(SIZES[row['size']])})"][digest].append(
                f"case {case}: {row['threads']} threads on {row['cores']} cores"
            )
    failed = sum("failed" in row["digests"] for row in rows)
    differ = {name: by_digest for name, by_digest in versions.items() if len(by_digest) > 1}
    notes = list[str]()
    for name, by_digest in differ.items():
        groups = "; ".join(", ".join(cases) for cases in by_digest.values())
        notes.append(f"{name}: {len(by_digest)} versions ({groups}).")
    notes += [f"{failed} processes failed."] if failed else []
    settings = {(row["threads"], row["cores"]) for row in rows}
    notes.append(f"{len(rows)} processes, each with its own hash seed; {len(settings)} settings of threads and cores.")
    return Outcome(f"{len(differ)} of {len(versions)} files differ", not differ and not failed, tuple(notes))


CHECKS = (
    Check(
        "flat-memory",
        "Load",
        "A process that updates a model and scores with it, over and over, holds no more and no other results.",
        f"growth at most {FLAT / 1e6:.0f} MB, no more files or threads, the same bytes",
        MINUTES * CASES_PER_MINUTE,
        measure_load,
        summarise_load,
        alone=True,
        shortest=SHORTEST,
    ),
    Check(
        "same-bytes",
        "Load",
        "Models, policies, scores and decisions are the same bytes from every process, with any hash seed and threads.",
        "no difference",
        24,
        measure_determinism,
        summarise_determinism,
        shortest=4,
    ),
)
