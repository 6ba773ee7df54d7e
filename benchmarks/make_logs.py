"""Logs of any size, written as Parquet files part by part: for benchmarks out of core and on clusters."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS_PER_GROUP = 1 << 17


def write_logs(folder: Path, n: int, dim: int, n_actions: int, n_files: int, seed: int = 0) -> None:
    """Write rounds of a linear problem: columns x0 ... x{d-1}, action, reward and propensity, uniform logging."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    weights = 0.3 * rng.standard_normal((n_actions, dim))
    for number, rows in enumerate(np.array_split(np.arange(n), n_files)):
        with pq.ParquetWriter(folder / f"part-{number:04}.parquet", _schema(dim)) as writer:
            for begin in range(0, len(rows), ROWS_PER_GROUP):
                writer.write_table(_rounds(rng, min(ROWS_PER_GROUP, len(rows) - begin), weights))


def _rounds(rng: np.random.Generator, n: int, weights: np.ndarray) -> pa.Table:
    n_actions, dim = weights.shape
    x = rng.standard_normal((n, dim))
    actions = rng.integers(n_actions, size=n)
    rewards = np.einsum("nd,nd->n", x, weights[actions]) + rng.standard_normal(n)
    columns = [x[:, i] for i in range(dim)] + [actions, rewards, np.full(n, 1.0 / n_actions)]
    return pa.table([pa.array(column) for column in columns], schema=_schema(dim))


def _schema(dim: int) -> pa.Schema:
    fields = [(f"x{i}", pa.float64()) for i in range(dim)]
    return pa.schema([*fields, ("action", pa.int64()), ("reward", pa.float64()), ("propensity", pa.float64())])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=20_000_000)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--actions", type=int, default=100_000)
    parser.add_argument("--files", type=int, default=20)
    args = parser.parse_args()
    write_logs(args.folder, args.rounds, args.dim, args.actions, args.files)
