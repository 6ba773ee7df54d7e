"""The container of a model file: a description in JSON and arrays, in one Arrow IPC file, both under checksums.

The schema's metadata holds what the file is, the version of its format and the description. Every array is a record
batch of bytes, without compression and 64-byte aligned, so that a file is mapped into memory and its arrays are views
of it, read-only and not copied. Nothing in a file is ever executed.
"""

from __future__ import annotations

import json
import math
import os
import stat
import zlib
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from manyarms._base.checks import Array, frozen
from manyarms._base.files import not_written, replacing
from manyarms._version import __version__
from manyarms.errors import DataTypeError, ModelFileError

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = b"manyarms model"
FORMAT_VERSION = 1
"""Raised when an older manyarms would misread what is written; a kind or a part that it does not know it names."""
ALIGNMENT = 64
PIECE = 1 << 23
"""How many bytes one checksum covers: that of a large array is a list, so that its parts are checked side by side."""


def as_path(path: Any) -> Path:
    """What a user passed as the path of a model file."""
    if not isinstance(path, str | os.PathLike):
        raise DataTypeError(f"path must be a string or a Path; got {type(path).__name__}.")
    found = Path(os.fsdecode(path))
    if not found.name or "\0" in str(found):
        raise ModelFileError(f"path must name a file; got {str(found)!r}.")
    return found


# Writing.


def write(path: Path, model: dict[str, Any], arrays: Sequence[Array]) -> None:
    """Make `path` a model file, whole or not at all.

    Args:
        path: Where; a file that is there already is replaced once the new one is on the disk.
        model: Values that JSON can hold.
        arrays: Of numbers, truth values, dates or text of fixed width.

    Raises:
        ModelFileError: When the disk is full or the place cannot be written to; a file that was there is as it was.
    """
    try:
        with replacing(path) as file:
            _write(file, model, arrays)
    except OSError as problem:
        raise ModelFileError(not_written(path, problem)) from problem


def _write(file: IO[bytes], model: dict[str, Any], arrays: Sequence[Array]) -> None:
    import pyarrow as pa  # noqa: PLC0415  slow to import, and only tables and model files need it

    entries = _entries(arrays)
    schema = _schema(json.dumps({"model": model, "arrays": entries}, allow_nan=False))
    writer = pa.ipc.new_file(file, schema)

    def batch(data: Array) -> pa.RecordBatch:
        column = pa.Array.from_buffers(pa.uint8(), data.size, [None, pa.py_buffer(data)])
        return pa.record_batch([column], schema=schema)

    # Arrow aligns to 8 bytes only. Before every array comes a batch of as many zeros as bring it to the next 64.
    zeros = np.zeros(ALIGNMENT, np.uint8)
    head = batch(zeros).serialize().size - ALIGNMENT
    writer.write_batch(batch(zeros))  # the schema goes out with the first batch; from here on positions are known
    for entry, array in zip(entries, arrays, strict=True):
        if entry["batch"] is not None:
            writer.write_batch(batch(zeros[: ALIGNMENT - (file.tell() + 2 * head) % ALIGNMENT]))
            writer.write_batch(batch(_bytes_of(array)))
    # Not in a `finally`: a file that failed half way needs no footer.
    writer.close()


def _schema(description: str) -> pa.Schema:
    import pyarrow as pa  # noqa: PLC0415

    said = {
        b"format": FORMAT,
        b"format_version": str(FORMAT_VERSION).encode(),
        b"written_by": f"manyarms {__version__}".encode(),
        b"description": description.encode(),
    }
    return pa.schema([pa.field("bytes", pa.uint8(), nullable=False)], {**said, b"crc32": _crc_of_said(said)})


def _crc_of_said(said: dict[bytes, bytes]) -> bytes:
    return str(zlib.crc32(b"\n".join(said[key] for key in _CHECKED))).encode()


def _entries(arrays: Sequence[Array]) -> list[dict[str, Any]]:
    """What is said of every array: how to see its bytes, and their checksums."""
    out, batch = list[dict[str, Any]](), 2
    for array in arrays:
        entry: dict[str, Any] = {"dtype": array.dtype.str, "shape": array.shape, "batch": None}
        if array.nbytes:
            repeated, order = _layout(array)
            pieces = _checksums(_pieces(_bytes_of(array)))
            entry |= {"batch": batch, "repeated": repeated, "order": order, "crc32": pieces}
            batch += 2
        out.append(entry)
    return out


def _layout(array: Array) -> tuple[list[int], list[int]]:
    """Along which axes all values are the same ones, and the axes from the slowest to the fastest.

    Products round differently when an array lies in another order, and results must be the same to the last bit.
    """
    repeated = [axis for axis, size in enumerate(array.shape) if size > 1 and array.strides[axis] == 0]
    if array.flags.c_contiguous:
        return repeated, list(range(array.ndim))
    return repeated, sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))


def _bytes_of(array: Array) -> Array:
    """The array's memory; a copy only where its values do not lie side by side."""
    repeated, order = _layout(array)
    once = array[tuple(slice(0, 1) if axis in repeated else slice(None) for axis in range(array.ndim))]
    return np.ascontiguousarray(once.transpose(order)).reshape(-1).view(np.uint8)


# Reading.


def read(path: Path) -> tuple[Any, list[Array]]:
    """The description and the arrays of a model file, all checksums verified.

    Raises:
        ModelFileError: When there is no such file, it is no model file, it is damaged, or a newer version wrote it.
    """
    return _contents(path, _open(path))


def to_bytes(model: dict[str, Any], arrays: Sequence[Array]) -> bytes:
    """What a model file would hold, for the way between processes."""
    sink = BytesIO()
    _write(sink, model, arrays)
    return sink.getvalue()


def from_bytes(data: Any) -> tuple[Any, list[Array]]:
    """What `to_bytes` was given."""
    import pyarrow as pa  # noqa: PLC0415

    return _contents(Path("what came from another process"), pa.ipc.open_file(pa.py_buffer(data)))


def _contents(path: Path, reader: pa.RecordBatchFileReader) -> tuple[Any, list[Array]]:
    with explained(path):
        description = _description(path, dict(reader.schema.metadata or {}))
        entries = description["arrays"]
        stored = [_stored(reader, entry) for entry in entries]
        pieces = [piece for data in stored for piece in _pieces(data)]
        expected = [crc for entry in entries for crc in entry.get("crc32", ())]
        if _checksums(pieces) != expected:
            raise ModelFileError(f"{path} is damaged: a checksum is wrong. Restore it from a copy, or fit again.")
        arrays = [_array(data, entry) for data, entry in zip(stored, entries, strict=True)]
        return description["model"], arrays


class UnknownPart(Exception):
    """Something in a file that only a newer manyarms can have put there; `explained` says which file."""


@contextmanager
def explained(path: Path) -> Generator[None]:
    """Whatever goes wrong inside is damage of the file, and told as such, unless the file is too new."""
    try:
        yield
    except ModelFileError:
        raise
    except UnknownPart as unknown:
        raise ModelFileError(
            f"{path} was written by a newer manyarms: it holds {unknown}, which this one does not know. "
            "Update manyarms: pip install --upgrade manyarms."
        ) from unknown
    except Exception as damage:
        raise ModelFileError(
            f"{path} is damaged ({type(damage).__name__}). Restore it from a copy, or fit again."
        ) from damage


def _open(path: Path) -> pa.RecordBatchFileReader:
    import pyarrow as pa  # noqa: PLC0415

    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            raise ModelFileError(f"{path} is a folder; pass the path of a model file.")
        if not stat.S_ISREG(found.st_mode):
            raise ModelFileError(f"{path} is no regular file; pass the path of a model file.")
        with open(path, "rb") as file:
            first = file.read(len(_MAGIC))
            file.seek(max(0, found.st_size - len(_MAGIC)))
            last = file.read()
    except FileNotFoundError:
        raise ModelFileError(f"{path} does not exist.") from None
    except OSError as problem:
        raise ModelFileError(f"{path} could not be read: {problem.strerror or problem}.") from problem
    if not first:
        raise ModelFileError(f"{path} is empty. Restore it from a copy, or save the model again.")
    if first != _MAGIC:
        raise ModelFileError(f"{path} is no model file: save() writes one.")
    if last != _MAGIC:
        raise ModelFileError(f"{path} is cut short or damaged at its end. Restore it from a copy, or fit again.")
    with explained(path):
        source = pa.memory_map(str(path), "r")
        reader = pa.ipc.open_file(source)
        # The schema is there twice, at the beginning for those who read a stream.
        source.seek(_START)
        if not pa.ipc.open_stream(source).schema.equals(reader.schema, check_metadata=True):
            raise ValueError("its two schemas differ")
        return reader


def _description(path: Path, said: dict[bytes, bytes]) -> dict[str, Any]:
    if said.get(b"format") != FORMAT:
        raise ModelFileError(f"{path} is an Arrow file, but no model file: save() writes one.")
    version = int(said[b"format_version"])
    if version > FORMAT_VERSION:
        raise ModelFileError(
            f"{path} was written by a newer manyarms (format {version}; this one reads up to {FORMAT_VERSION}): "
            "upgrade."
        )
    if _crc_of_said(said) != said[b"crc32"] or version < 1:
        raise ModelFileError(
            f"{path} is damaged: the checksum of its description is wrong. Restore it from a copy, or fit again."
        )
    return json.loads(said[b"description"])


def _stored(reader: pa.RecordBatchFileReader, entry: dict[str, Any]) -> Array:
    """The bytes of an array."""
    if entry["batch"] is None:
        return np.empty(0, np.uint8)
    column = reader.get_batch(entry["batch"]).column(0)
    repeated = set(entry["repeated"])
    size = math.prod(n for axis, n in enumerate(entry["shape"]) if axis not in repeated) * _dtype(entry).itemsize
    if column.type.bit_width != 8 or column.offset or len(column) != size:
        raise ValueError("the size of an array is not what its description says")
    return np.frombuffer(column.buffers()[1], np.uint8, count=size)


def _array(data: Array, entry: dict[str, Any]) -> Array:
    shape, dtype = tuple(entry["shape"]), _dtype(entry)
    if entry["batch"] is None:
        return frozen(np.empty(shape, dtype).reshape(shape))
    order, repeated = entry["order"], set(entry["repeated"])
    once = [1 if axis in repeated else n for axis, n in enumerate(shape)]
    # Not a view of the bytes: SciPy copies an array that is a small part of what it is a view of, counted in elements.
    lying = np.frombuffer(data.data, dtype).reshape([once[axis] for axis in order])
    return frozen(np.broadcast_to(lying.transpose(np.argsort(order)), shape))


def _dtype(entry: dict[str, Any]) -> np.dtype[Any]:
    dtype = np.dtype(entry["dtype"])
    # An object's bytes are an address.
    if dtype.kind not in "biufmMUS" or dtype.str != entry["dtype"]:
        raise ValueError("an array of this type is not read")
    return dtype


# Checksums.


def _pieces(data: Array) -> list[memoryview]:
    return [data[start : start + PIECE].data for start in range(0, data.size, PIECE)]


def _checksums(pieces: Sequence[memoryview]) -> list[int]:
    if len(pieces) < 2 or sum(map(len, pieces)) < PIECE:
        return [zlib.crc32(piece) for piece in pieces]
    # crc32 releases the GIL.
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        return list(pool.map(zlib.crc32, pieces))


_MAGIC = b"ARROW1"
_START = 8
_CHECKED = (b"format", b"format_version", b"written_by", b"description")
