"""Arrow tables, from data frames and Parquet files, and the modules of pyarrow, loaded when they are first used.

`import manyarms` and `manyarms --help` do without them.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np


class _LazyModule:
    """A module that is imported when one of its names is first used."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self._name), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq
    from pyarrow import compute, csv
else:
    pa, compute, csv = _LazyModule("pyarrow"), _LazyModule("pyarrow.compute"), _LazyModule("pyarrow.csv")
    ds, pq = _LazyModule("pyarrow.dataset"), _LazyModule("pyarrow.parquet")

__all__ = ["compute", "csv", "ds", "pa", "pq"]


def parquet_bytes(table: pa.Table, **options: Any) -> bytes:
    """An Arrow table as the content of a Parquet file with checksums, for `replace_files` to write.

    The options are those of pyarrow.
    """
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, write_page_checksum=True, **options)
    return sink.getvalue().to_pybytes()


def parquet_table(path: Path, **options: Any) -> pa.Table:
    """The Arrow table in a Parquet file on this machine.

    Arrow takes a relative path such as `a:b/logs.parquet` for an address.
    """
    return pq.read_table(path.absolute(), **options)


def table_of(value: Any) -> pa.Table | None:
    """The Arrow table with all columns of a table or data frame of any library; None if `value` is not a table."""
    if isinstance(value, np.ndarray | list | tuple | str):
        return None
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    import narwhals as nw  # noqa: PLC0415

    try:
        frame = nw.from_native(value)
    except TypeError:
        return None
    frame = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
    return frame.to_arrow()
