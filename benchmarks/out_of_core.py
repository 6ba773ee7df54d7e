"""A fit of logs on disk, compared with only reading them: CPU time, wall time and peak memory, each in its own process.

    python benchmarks/make_logs.py big --rounds 20000000 --dim 16 --actions 100000
    python benchmarks/out_of_core.py big --actions 100000

CPU times cover all threads of a process. Compare them within one run only: machines differ, and so does their load.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CATEGORIES = 50


def columns_of(folder: Path) -> list[str]:
    """The context columns x0, x1, ..."""
    names = pq.read_schema(next(iter(sorted(folder.glob("*.parquet"))))).names
    return [name for name in names if name.startswith("x")]


def read_only(folder: Path, n_actions: int) -> None:
    """Read the columns that a fit needs, and drop them."""
    for file in sorted(folder.glob("*.parquet")):
        for _ in pq.ParquetFile(file).iter_batches(columns=[*columns_of(folder), "action", "reward"]):
            pass


def scan(folder: Path, n_actions: int) -> None:
    """Read the columns through the reader that a fit uses."""
    from manyarms.logs.log_stream import BATCH  # noqa: PLC0415
    from manyarms.logs.sources import as_source  # noqa: PLC0415

    for _ in as_source(folder).batches([*columns_of(folder), "action", "reward"], BATCH):
        pass


def stream_of(folder: Path, n_actions: int) -> Any:
    """The logs as they are on disk: without intercept or scaling, so that one pass is enough."""
    import manyarms as ma  # noqa: PLC0415  so that reading alone is not charged with the import
    from manyarms.core.feature_map import Numeric  # noqa: PLC0415

    columns = columns_of(folder)
    features = ma.FeatureMap([Numeric(name) for name in columns], intercept=False)
    return ma.read_logs(folder, columns, "action", "reward", features=features, n_actions=n_actions)


def statistics(folder: Path, n_actions: int) -> None:
    """Make the one pass: everything that a posterior needs from the logs."""
    import manyarms as ma  # noqa: PLC0415

    ma.Gaussian(1.0).statistics(stream_of(folder, n_actions), n_actions)


def fit(folder: Path, n_actions: int) -> None:
    """Make the pass, and solve over all seen actions."""
    import manyarms as ma  # noqa: PLC0415

    stream = stream_of(folder, n_actions)
    ma.fit(stream, ma.priors.from_categories(np.arange(n_actions) % CATEGORIES, dim=stream.dim), ma.Gaussian(1.0))


STAGES: dict[str, Callable[[Path, int], None]] = {"read": read_only, "scan": scan, "statistics": statistics, "fit": fit}


def measure(stage: str, folder: Path, n_actions: int) -> dict[str, float]:
    """Measure one stage in this process, without the time to load the libraries: a few rounds come first."""
    with TemporaryDirectory() as small:
        few = next(pq.ParquetFile(next(folder.glob("*.parquet"))).iter_batches(batch_size=100))
        pq.write_table(pa.Table.from_batches([few]), Path(small) / "few.parquet")
        STAGES[stage](Path(small), n_actions)
    cpu, wall = time.process_time(), time.perf_counter()
    STAGES[stage](folder, n_actions)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"cpu_s": cpu, "wall_s": wall, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6}


def main() -> None:
    """Run every stage in a process of its own, in turn, `--repeats` times; show the least of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--actions", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--stage", choices=STAGES)
    args = parser.parse_args()
    if args.stage:
        print(json.dumps(measure(args.stage, args.folder, args.actions)))
        return
    rows = sum(pq.read_metadata(file).num_rows for file in args.folder.glob("*.parquet"))
    print(f"{rows:,} rounds, {len(columns_of(args.folder))} context columns, {args.actions:,} actions")
    measurements: dict[str, list[dict[str, float]]] = {stage: [] for stage in STAGES}
    for _ in range(args.repeats):
        for stage, runs in measurements.items():
            call = [sys.executable, __file__, str(args.folder), "--actions", str(args.actions), "--stage", stage]
            runs.append(json.loads(subprocess.run(call, check=True, capture_output=True, text=True).stdout))
    base = min(run["cpu_s"] for run in measurements["read"])
    print(f"{'stage':12} {'CPU s':>8} {'of reading':>10} {'wall s':>8} {'peak MB':>8}")
    for stage, runs in measurements.items():
        best = {name: min(run[name] for run in runs) for name in runs[0]}
        peak = max(run["peak_mb"] for run in runs)
        print(f"{stage:12} {best['cpu_s']:8.2f} {best['cpu_s'] / base:10.2f} {best['wall_s']:8.2f} {peak:8.0f}")


if __name__ == "__main__":
    main()
