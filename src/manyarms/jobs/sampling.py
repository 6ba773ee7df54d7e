"""Some rows of many, each as likely as any other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from manyarms._arrays import Array, as_count
from manyarms._random import as_generator
from manyarms.logs.sources import Source
from manyarms.logs.stream import BATCH

if TYPE_CHECKING:
    import pyarrow as pa


def sample_rows(source: Source, columns: Sequence[str], n: int, *, rng: np.random.Generator) -> tuple[pa.Table, int]:
    """At most n rows, drawn without replacement in one pass and kept in their order; and how many rows there are.

    Every row gets a random key, and the n smallest stay: what is held is about 2 n rows, however many there are.

    Args:
        source: Where rows come from.
        columns: Which columns to keep.
        n: How many rows at most.
        rng: A NumPy generator.
    """
    import pyarrow as pa  # noqa: PLC0415

    n, rng = as_count("n", n), as_generator(rng)
    source.need(columns)
    tables, keys = list[pa.Table](), list[Array]()
    total = held = 0
    worst = np.inf
    for batch in source.batches(columns, BATCH):
        key = rng.random(batch.num_rows)
        likely = np.flatnonzero(key < worst)
        tables.append(pa.Table.from_batches([batch]).take(likely))
        keys.append(key[likely])
        total, held = total + batch.num_rows, held + len(likely)
        if held > 2 * n:
            table, key = _smallest(tables, keys, n)
            tables, keys, held, worst = [table], [key], len(key), float(key.max())
    if not tables:
        return pa.table({name: [] for name in columns}), 0
    return _smallest(tables, keys, n)[0], total


def _smallest(tables: list[pa.Table], keys: list[Array], n: int) -> tuple[pa.Table, Array]:
    """The rows with the n smallest keys, in their order."""
    import pyarrow as pa  # noqa: PLC0415

    table, key = pa.concat_tables(tables), np.concatenate(keys)
    if len(key) <= n:
        return table, key
    kept = np.sort(np.argpartition(key, n - 1)[:n])
    return table.take(kept), key[kept]
