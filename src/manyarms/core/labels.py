"""Labels of ids, categories and tags: which of them mean "missing", and how model files store them."""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any, ClassVar, TypeAlias

import numpy as np
from jaxtyping import Bool, Int, UInt8

from manyarms._base.arrow import pa
from manyarms._base.checks import Array, as_actions
from manyarms.errors import DataTypeError, ShapeError
from manyarms.model_file.part_checks import bytes_array, flags_array, indices, instance_of, maybe
from manyarms.model_file.save import Saved

MISSING = "(missing)"
"""Name of the effect of actions that lack the metadata. As a label it means the same as None."""

INTEGER = r"0|-?[1-9][0-9]*"
"""The one spelling of an integer that stays the same when it is read and written again; 007 and 1e5 have another."""

TagRow: TypeAlias = tuple[Hashable, ...] | dict[Hashable, Any]


def is_missing(value: Any) -> bool:
    """True if a label means that there is none."""
    if value is None or value is np.ma.masked or (isinstance(value, str) and value == MISSING):
        return True
    try:
        return bool(value != value)  # noqa: PLR0124
    except TypeError:  # pandas' NA compares to NA, which is neither true nor false
        return True
    except ValueError:  # an array, which is refused where labels are numbered
        return False


def integer_of(text: str) -> int | None:
    """The 64-bit integer that a label spells, if writing the integer gives the same text; else None."""
    if re.fullmatch(INTEGER, text) is None or len(text) > 20:
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None


def labels_from_texts(labels: Sequence[str | None]) -> list[Any]:
    """Labels that are written as texts: integers if every one of them spells one exactly, else the texts themselves."""
    numbers = [None if label is None else integer_of(label) for label in labels]
    exact = all(label is None or number is not None for label, number in zip(labels, numbers, strict=True))
    return numbers if exact else list(labels)


def other_type(label: Any) -> int | str | None:
    """A label in the type that another file may have for it: text for an integer, an integer for its text."""
    if isinstance(label, str):
        return integer_of(label)
    return str(label) if type(label) is int else None


def rough_key(label: Any) -> Hashable:
    """A key that labels share if they differ in spelling alone: 007 and 7, 1e5 and 100000, Tea and tea."""
    text = str(label).strip().casefold()
    exact = integer_of(text)
    if exact is not None:
        return exact
    if len(text) > 40 or re.fullmatch(r"[+-]?\d+(\.\d*)?(e[+-]?\d{1,3})?", text, re.ASCII) is None:
        return text
    number = Decimal(text)
    return int(number) if number == number.to_integral_value() else number


def free_label(name: str, taken: Collection[str]) -> str:
    """A label that is still free: the given name, or the name with a number if it is taken."""
    number = next(i for i in range(1, len(taken) + 2) if (name if i == 1 else f"{name} ({i})") not in taken)
    return name if number == 1 else f"{name} ({number})"


@dataclass(frozen=True, eq=False)
class WordLabels(Saved):
    """Labels that are text, in the layout of Arrow, which reads it straight from the mapped file."""

    saved_as = "words"
    saved_checks: ClassVar = {"starts": indices(), "text": bytes_array, "present": maybe(bytes_array)}
    starts: Int[Array, " m"]
    text: UInt8[Array, " t"]
    present: UInt8[Array, " b"] | None

    def __len__(self) -> int:
        return len(self.starts) - 1

    def consistent(self) -> bool:
        """True if the words fill the text, and there is a bit for each; Arrow checks the rest when they are read."""
        starts, size = self.starts, len(self) // 8 + (len(self) % 8 > 0)
        inside = starts.dtype == np.int64 and len(starts) > 0 and starts[0] == 0 and starts[-1] == len(self.text)
        return bool(inside and (self.present is None or len(self.present) == size))

    def array(self) -> Array:
        memory = [None if part is None else pa.py_buffer(part) for part in (self.present, self.starts, self.text)]
        words = pa.LargeStringArray.from_buffers(len(self.starts) - 1, memory[1], memory[2], memory[0])
        words.validate(full=True)
        return words.to_numpy(zero_copy_only=False)


@dataclass(frozen=True, eq=False)
class IntegerLabels(Saved):
    """Labels that are Python integers."""

    saved_as = "integers"
    saved_checks: ClassVar = {"values": indices(at_least=-(2**63))}
    values: Int[Array, " m"]

    def __len__(self) -> int:
        return len(self.values)

    def array(self) -> Array:
        return self.values.astype(object)


@dataclass(frozen=True, eq=False)
class MixedLabels(Saved):
    """Labels of several types, as JSON."""

    saved_as = "mixed labels"
    saved_checks: ClassVar = {"json": instance_of(bytes)}
    json: bytes

    def array(self) -> Array:
        values = [_from_json(value) for value in json.loads(self.json)]
        # np.array would turn tuples into a matrix.
        return np.fromiter(values, dtype=object, count=len(values))


Labels: TypeAlias = Array | WordLabels | IntegerLabels | MixedLabels


def is_packed(part: Any) -> bool:
    """True for labels in one of the forms that `pack_labels` gives."""
    array = isinstance(part, np.ndarray) and part.ndim == 1
    return array or isinstance(part, WordLabels | IntegerLabels | MixedLabels)


def pack_labels(name: str, labels: Sequence[Any] | Array) -> Labels:
    """Labels in a form that a model file can hold. Typed arrays stay as they are; in others, missing ones become None.

    An error calls them `name`, and names the row of a label that is not text, a number, a date, bytes or a tuple.
    """
    if isinstance(labels, np.ndarray) and not labels.dtype.hasobject:
        return labels
    values: list[Any] = [None if is_missing(value) and not isinstance(value, str) else value for value in labels]
    kinds = {type(value) for value in values}
    if kinds == {int} and -(2**63) <= min(values) and max(values) < 2**63:
        return IntegerLabels(np.array(values, dtype=np.int64))
    if kinds <= {str, np.str_, type(None)}:
        try:
            return _words(values)
        except UnicodeEncodeError:
            pass  # a lone surrogate, which JSON can hold
    return MixedLabels(json.dumps([_as_json(name, row, value) for row, value in enumerate(values)]).encode())


def unpack_labels(packed: Labels) -> Array:
    """The labels that were packed."""
    return packed if isinstance(packed, np.ndarray) else packed.array()


def _words(values: list[Any]) -> WordLabels:
    present, starts, text = pa.array(values, pa.large_string()).buffers()
    offsets = np.frombuffer(starts, np.int64)[: len(values) + 1] if values else np.zeros(1, np.int64)
    bits = None if present is None else np.frombuffer(present, np.uint8)[: -(-len(values) // 8)]
    return WordLabels(offsets, np.frombuffer(text or b"", np.uint8)[: offsets[-1]], bits)


@dataclass(frozen=True, eq=False)
class RaggedLabels(Saved):
    """Labels of which every row has several, with or without weights, as a model file stores them."""

    saved_as = "ragged labels"
    saved_checks: ClassVar = {
        "flat": is_packed,
        "starts": indices(),
        "weights": maybe(is_packed),
        "weighted": flags_array,
    }
    flat: Labels
    starts: Int[Array, " m"]
    weights: Labels | None
    weighted: Bool[Array, " k"]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def consistent(self) -> bool:
        """True if the rows fill the list of labels; the length of one in JSON is only known when it is read."""
        starts = self.starts
        known = [
            len(part) for part in (self.flat, self.weights) if part is not None and not isinstance(part, MixedLabels)
        ]
        inside = len(starts) > 0 and starts[0] == 0 and all(starts[-1] == size for size in known)
        return bool(inside and len(self.weighted) == len(self))

    def rows(self) -> tuple[TagRow, ...]:
        if (np.diff(self.starts) < 0).any():
            raise ValueError("rows must not go back")
        labels, ends = unpack_labels(self.flat).tolist(), self.starts.tolist()
        parts = [tuple(labels[start:end]) for start, end in pairwise(ends)]
        if self.weights is None:
            return tuple(parts)
        weights = unpack_labels(self.weights).tolist()
        return tuple(
            dict(zip(part, weights[start:], strict=False)) if weighted else part
            for part, start, weighted in zip(parts, ends, self.weighted.tolist(), strict=False)
        )


def pack_rows(name: str, rows: Sequence[TagRow]) -> RaggedLabels:
    """Rows of labels in a form that a model file can hold."""
    flat = [label for row in rows for label in row]
    starts = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int64)
    weighted = np.array([isinstance(row, dict) for row in rows], dtype=bool)
    weights = [weight for row in rows for weight in (row.values() if isinstance(row, dict) else [None] * len(row))]
    packed = pack_labels(f"weights of {name}", weights) if weighted.any() else None
    return RaggedLabels(pack_labels(name, flat), starts, packed, weighted)


def _as_json(name: str, row: int, value: Any) -> Any:
    for kind, (tag, text, _) in _TAGGED.items():
        # A datetime is a date too.
        if type(value) is kind:
            return [tag, text(value)]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, tuple):
        return ["tuple", [_as_json(name, row, None if is_missing(part) else part) for part in value]]
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise DataTypeError(
        f"cannot be saved: row {row} has a {type(value).__name__}.",
        "Model files hold text, numbers, dates, bytes and tuples of these; use str() for anything else.",
        argument=name,
    )


def _from_json(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    tag, content = value
    if tag == "tuple":
        return tuple(_from_json(part) for part in content)
    return _READERS[tag](content)


_TAGGED: dict[type, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    bytes: ("bytes", bytes.hex, bytes.fromhex),
    float: ("float", float.hex, float.fromhex),
    datetime.datetime: ("datetime", datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    datetime.date: ("date", datetime.date.isoformat, datetime.date.fromisoformat),
    np.datetime64: ("datetime64", lambda v: [str(v), np.datetime_data(v)[0]], lambda v: np.datetime64(*v)),
}
_READERS = {tag: read for tag, _, read in _TAGGED.values()}


@dataclass(frozen=True)
class Codes:
    """Labels coded as integers.

    Attributes:
        codes: The number of each label; -1 where it is missing.
        labels: The distinct labels, sorted where they have an order, else in the order of appearance.
    """

    codes: Int[Array, " n"]
    labels: tuple[Hashable, ...]


def encode(name: str, column: Array, rows: Int[Array, " n"] | None = None) -> Codes:
    """Number the distinct labels of a column; None, NaN, NaT, masked, pandas' NA and MISSING mean "no label".

    `rows` gives the action of each label, where actions may have several. Errors call the labels `name`.
    """
    if column.dtype.kind in "biufmM":
        distinct, inverse = np.unique(column, return_inverse=True)
        kept = distinct == distinct  # noqa: PLR0124  NaN and NaT differ from themselves
        number = np.where(kept, np.cumsum(kept) - 1, -1)
        return Codes(number[inverse.reshape(-1)], tuple(plain_values(distinct[kept])))
    values, table = column.tolist(), dict[Any, int]()
    try:
        raw = np.fromiter((table.setdefault(v, len(table)) for v in values), dtype=np.int64, count=len(values))
    except TypeError:
        raise unhashable(name, values, rows) from None
    distinct = list(table)
    kept = [i for i, value in enumerate(distinct) if not is_missing(value)]
    try:
        kept.sort(key=distinct.__getitem__)
    except TypeError:
        pass  # labels of several types have no order
    number = np.full(len(distinct), -1, dtype=np.int64)
    number[kept] = np.arange(len(kept))
    return Codes(number[raw], tuple(distinct[i] for i in kept))


def check_hashable(name: str, column: Array, rows: Int[Array, " n"] | None = None) -> Array:
    """`column` itself, or an error if one of its labels cannot be hashed, such as a list; `rows` as in `encode`."""
    if column.dtype == object:
        values = column.tolist()
        try:
            set(values)
        except TypeError:
            raise unhashable(name, values, rows) from None
    return column


def unhashable(name: str, values: list[Any], rows: Int[Array, " n"] | None = None) -> DataTypeError:
    """The error about the first label that cannot be hashed."""
    bad = next(i for i, value in enumerate(values) if not is_hashable(value))
    row = bad if rows is None else rows[bad]
    problem = f"must hold hashable labels; row {row} has {values[bad]!r}."
    return DataTypeError(problem, "Pass numbers or texts as labels.", argument=name)


def plain_values(column: Array) -> list[Any]:
    """Labels as Python objects, which hash alike wherever they came from; dates keep their NumPy type."""
    return list(column) if column.dtype.kind in "mM" else column.tolist()


def is_hashable(value: Any) -> bool:
    """True if a value can be a label."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def with_missing(column: Codes) -> tuple[Int[Array, " K"], tuple[Hashable, ...], int]:
    """Codes with missing labels as a last label: the codes, all labels, and how many labels were missing."""
    missing = column.codes < 0
    n_missing = int(missing.sum())
    labels = (*column.labels, MISSING) if n_missing else column.labels
    return np.where(missing, len(column.labels), column.codes), labels, n_missing


def as_labels(name: str, value: Any, n_actions: int | None = None) -> Int[Array, " K"]:
    """Check labels of actions, numbers or texts or combinations in columns, and number them 0, 1, ...

    Actions without a label (None) share one label.
    """
    try:
        array = np.asarray(value)
    except ValueError as cause:
        raise ShapeError(f"must have a label for every action: {cause}", argument=name) from cause
    if array.ndim not in (1, 2) or array.size == 0:
        raise ShapeError(f"must be (K,) labels or (K, c) columns of them; got shape {array.shape}.", argument=name)
    # Numbers with decimals are measurements, which would make every action a label of its own.
    columns = [
        as_actions(name, column) if array.dtype.kind in "biuf" else encode(name, column).codes
        for column in (array.T if array.ndim == 2 else array[None])
    ]
    if n_actions is not None and len(array) != n_actions:
        raise ShapeError(f"must have a label for each of {n_actions} actions; got {len(array)}.", argument=name)
    return np.unique(np.column_stack(columns), axis=0, return_inverse=True)[1].reshape(-1)
