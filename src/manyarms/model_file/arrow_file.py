"""The format of a model file: one Arrow IPC file with a description in JSON and arrays, both under checksums.

The metadata of the schema hold the name and version of the format and the description. Every array is a record batch
of bytes, uncompressed and 64-byte aligned. So a file is mapped into memory, and its arrays are read-only views of it
that nobody copies. Nothing in a file is ever executed, and nothing that it says is believed: shapes must fit the bytes
that are there, so that reading needs memory in proportion to the file and no more.
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
from typing import IO, Any

import numpy as np

from manyarms._base.arrow import pa
from manyarms._base.checks import Array, as_path, frozen
from manyarms._base.files import replacing, write_failure
from manyarms._version import __version__
from manyarms.errors import DataTypeError, InputError, ModelFileError

FORMAT = b"manyarms model"
FORMAT_VERSION = 1
"""Increased only when an older manyarms would misread the file. An older one refuses unknown kinds and parts anyway."""
ALIGNMENT = 64
PIECE = 1 << 23
"""Bytes covered by one checksum. A large array has a list of them, so that its pieces are checked in parallel."""
LONGEST = 1 << 27
"""The longest axis that a file may declare without storing it: values that repeat, or the rows of an empty array.

A prior that is the same for all actions stores nothing per action, so the number of actions is then a bare number."""


def as_model_path(path: Any) -> Path:
    """Check the path of a model file that a user passed."""
    try:
        checked = as_path("path", path)
    except DataTypeError:
        raise
    except InputError as wrong:
        raise ModelFileError(wrong.problem, argument="path") from None
    if not checked.name:
        raise ModelFileError(f"must name a file; got {str(checked)!r}.", argument="path")
    return checked


# Writing.


def write(path: Path, model: dict[str, Any], arrays: Sequence[Array]) -> None:
    """Write a model file, as a whole or not at all: if that fails, an existing file is unchanged.

    Args:
        path: The file. One that exists is replaced once the new one is on the disk.
        model: The description, in values that JSON can hold.
        arrays: Arrays of numbers, booleans, dates or text of fixed width.
    """
    try:
        with replacing(path) as file:
            _write(file, model, arrays)
    except OSError as problem:
        raise ModelFileError(*write_failure(path, problem)) from problem


def _write(file: IO[bytes], model: dict[str, Any], arrays: Sequence[Array]) -> None:
    entries = _entries(arrays)
    metadata = {
        b"format": FORMAT,
        b"format_version": str(FORMAT_VERSION).encode(),
        b"written_by": f"manyarms {__version__}".encode(),
        b"description": json.dumps({"model": model, "arrays": entries}, allow_nan=False).encode(),
    }
    metadata[b"crc32"] = _metadata_crc(metadata)
    schema = pa.schema([pa.field("bytes", pa.uint8(), nullable=False)], metadata)
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
    # Not in a `finally`: a file that failed halfway needs no footer.
    writer.close()


def _metadata_crc(metadata: dict[bytes, bytes]) -> bytes:
    return str(zlib.crc32(b"\n".join(metadata[key] for key in _CHECKED))).encode()


def _entries(arrays: Sequence[Array]) -> list[dict[str, Any]]:
    """The description of every array: its type, its layout and its checksums."""
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
    """The axes along which values repeat (stride 0), and all axes from the slowest to the fastest.

    The order is kept because products round differently in another order, and results must agree to the last bit.
    """
    repeated = [axis for axis, size in enumerate(array.shape) if size > 1 and array.strides[axis] == 0]
    if array.flags.c_contiguous:
        return repeated, list(range(array.ndim))
    return repeated, sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))


def _bytes_of(array: Array) -> Array:
    """The bytes of an array; they are copied only if its values are not contiguous."""
    repeated, order = _layout(array)
    once = array[tuple(slice(0, 1) if axis in repeated else slice(None) for axis in range(array.ndim))]
    return np.ascontiguousarray(once.transpose(order)).reshape(-1).view(np.uint8)


# Reading.


def read(path: Path) -> tuple[Any, list[Array]]:
    """The description and the arrays of a model file, all checksums verified.

    Raises:
        ModelFileError: If the file does not exist, is not a model file, is damaged, or comes from a newer manyarms.
    """
    source = _open(path)
    with file_errors(path):
        return _contents(path, source)


def to_bytes(model: dict[str, Any], arrays: Sequence[Array]) -> bytes:
    """The content of an Arrow model file as bytes, from a description and arrays, to be sent to another process."""
    sink = BytesIO()
    _write(sink, model, arrays)
    return sink.getvalue()


def from_bytes(data: Any) -> tuple[Any, list[Array]]:
    """The description and the arrays in an Arrow model file, from its bytes as `to_bytes` gave them."""
    path = Path("the data from another process")
    with file_errors(path):
        return _contents(path, pa.BufferReader(data))


def _contents(path: Path, source: pa.NativeFile) -> tuple[Any, list[Array]]:
    schema = pa.ipc.open_file(source).schema
    # The schema is there twice: readers of a stream use the one at the beginning.
    source.seek(_START)
    if not pa.ipc.open_stream(source).schema.equals(schema, check_metadata=True):
        raise WrongPart("its two schemas differ")
    description = _description(path, dict(schema.metadata or {}))
    entries = description["arrays"]
    bodies = _bodies(source)
    stored = [_stored(bodies, entry) for entry in entries]
    pieces = [piece for data in stored for piece in _pieces(data)]
    expected = [crc for entry in entries for crc in entry.get("crc32", ())]
    if _checksums(pieces) != expected:
        raise WrongPart("a checksum is wrong")
    arrays = [_array(data, entry) for data, entry in zip(stored, entries, strict=True)]
    return description["model"], arrays


def _bodies(source: pa.NativeFile) -> list[pa.Buffer]:
    """The bytes of every record batch, as views of the file; Arrow does not decode them, so that nothing is unpacked.

    A batch has one column without nulls, and its bytes are the whole body. A compressed one would be expanded to
    whatever size it claims, if Arrow read it.
    """
    source.seek(_START)
    messages = [message.body for message in pa.ipc.MessageReader.open_stream(source)]
    return messages[1:]  # the first is the schema


class UnknownPart(Exception):
    """A part of an Arrow file that only a newer manyarms can have written; `file_errors` adds the name of the file."""


class WrongPart(Exception):
    """A part of an Arrow file that `save` does not write, as a clause that says what is wrong with it."""


@contextmanager
def file_errors(path: Path) -> Generator[None]:
    """Turn any exception raised while an Arrow file is read into a `ModelFileError`: it is too new, or damaged."""
    try:
        yield
    except ModelFileError:
        raise
    except UnknownPart as unknown:
        problem = f"{path} was written by a newer manyarms: it holds {unknown}, which this version does not know."
        raise ModelFileError(problem, UPGRADE) from unknown
    except WrongPart as wrong:
        raise ModelFileError(f"{path} is damaged: {wrong}.", _RESTORE) from wrong
    except Exception as damage:
        raise ModelFileError(f"{path} is damaged ({type(damage).__name__}).", _RESTORE) from damage


def _open(path: Path) -> pa.NativeFile:
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise ModelFileError(f"{path} is a folder.", "Pass the path of a model file.")
        if not stat.S_ISREG(status.st_mode):
            raise ModelFileError(f"{path} is not a regular file.", "Pass the path of a model file.")
        with open(path, "rb") as file:
            first = file.read(len(_MAGIC))
            file.seek(max(0, status.st_size - len(_MAGIC)))
            last = file.read()
    except FileNotFoundError:
        raise ModelFileError(f"{path} does not exist.") from None
    except OSError as problem:
        raise ModelFileError(f"{path} could not be read: {problem.strerror or problem}.") from problem
    if not first:
        raise ModelFileError(f"{path} is empty.", "Restore it from a copy, or save the model again.")
    if first != _MAGIC:
        raise _not_a_model(path, "is not a model file.")
    if last != _MAGIC:
        raise ModelFileError(f"{path} is cut short or damaged at its end.", _RESTORE)
    with file_errors(path):
        return pa.memory_map(str(path), "r")


def _description(path: Path, metadata: dict[bytes, bytes]) -> dict[str, Any]:
    if metadata.get(b"format") != FORMAT:
        raise _not_a_model(path, "is an Arrow file, but not a model file.")
    version = int(metadata[b"format_version"])
    if version > FORMAT_VERSION:
        problem = f"{path} was written by a newer manyarms: its format is {version}, and this version reads up to"
        raise ModelFileError(f"{problem} {FORMAT_VERSION}.", UPGRADE)
    if _metadata_crc(metadata) != metadata[b"crc32"] or version < 1:
        raise ModelFileError(f"{path} is damaged: the checksum of its description is wrong.", _RESTORE)
    return json.loads(metadata[b"description"])


def _not_a_model(path: Path, problem: str) -> ModelFileError:
    return ModelFileError(
        f"{path} {problem}",
        "Pass a file written by save().",
        flag_remedy="Pass a file written by `manyarms fit` or `manyarms learn`.",
    )


def _stored(bodies: Sequence[pa.Buffer], entry: dict[str, Any]) -> Array:
    """The bytes of an array, as a view of the file, after the description of the array is checked."""
    shape, itemsize, batch = entry["shape"], _dtype(entry).itemsize, entry["batch"]
    _check(isinstance(shape, list) and len(shape) <= _MOST_AXES and all(map(_is_count, shape)), "a shape is wrong")
    if batch is None:
        _check(0 in shape and max(shape) <= LONGEST, "an array without bytes has a shape that is not empty")
        return np.empty(0, np.uint8)
    repeated, order, axes = entry["repeated"], entry["order"], range(len(shape))
    _check(isinstance(order, list) and sorted(order) == list(axes), "the order of axes is wrong")
    _check(isinstance(repeated, list) and set(repeated) <= set(axes), "the repeated axes are wrong")
    _check(all(shape[axis] <= LONGEST for axis in repeated), "a repeated axis is too long")
    size = math.prod(n for axis, n in enumerate(shape) if axis not in repeated) * itemsize
    _check(_is_count(batch) and batch < len(bodies), "an array has no bytes")
    # Arrow pads the body of a batch to a multiple of 8 or of 64.
    _check(0 < size <= bodies[batch].size < size + ALIGNMENT, "the size of an array differs from its description")
    return np.frombuffer(bodies[batch], np.uint8, count=size)


def _array(data: Array, entry: dict[str, Any]) -> Array:
    shape, dtype = tuple(entry["shape"]), _dtype(entry)
    if entry["batch"] is None:
        return frozen(np.empty(shape, dtype).reshape(shape))
    order, repeated = entry["order"], set(entry["repeated"])
    once = [1 if axis in repeated else n for axis, n in enumerate(shape)]
    # Not a view of the bytes: SciPy copies a view that has far fewer elements than its base.
    stored = np.frombuffer(data.data, dtype).reshape([once[axis] for axis in order])
    return frozen(np.broadcast_to(stored.transpose(np.argsort(order)), shape))


def _dtype(entry: dict[str, Any]) -> np.dtype[Any]:
    dtype = np.dtype(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    # The bytes of a Python object are an address.
    if dtype is None or dtype.kind not in "biufmMUS" or dtype.str != entry["dtype"]:
        raise WrongPart("arrays of this type are not read")
    return dtype


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _check(holds: bool, problem: str) -> None:
    if not holds:
        raise WrongPart(problem)


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
_MOST_AXES = 8
_CHECKED = (b"format", b"format_version", b"written_by", b"description")
_RESTORE = "Restore it from a copy, or fit again."
UPGRADE = "Upgrade manyarms: pip install --upgrade manyarms."
