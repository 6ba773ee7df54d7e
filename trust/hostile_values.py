"""Hostile values: for each kind of argument, the ways in which it is replaced by something that nobody should pass.

A corruption says what must follow: `same` (only the form changed, so the answer must not), `refused` (a typed error),
or `either` (a typed error, or a finite answer).
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy import sparse

Expectation = Literal["same", "refused", "either"]
Change = Callable[[Any, np.random.Generator], Any]


@dataclass(frozen=True)
class Corruption:
    """A way to replace a valid argument.

    Args:
        name: A few words for the list of defects.
        expectation: What the library must do with it.
        change: Makes the hostile value from the valid one.
    """

    name: str
    expectation: Expectation
    change: Change


class NoSets:
    """A function of rows that has no eligible actions for them. It counts its calls: an unused one does no harm."""

    def __init__(self) -> None:
        self.n_calls = 0

    def __call__(self, rows: Any) -> None:
        self.n_calls += 1


class _Subclass(np.ndarray):
    """A subclass of arrays, as other libraries have them."""


def _put(new: Any, dtype: Any = None) -> Change:
    """Replace one entry of an array by `new`."""

    def change(value: Any, rng: np.random.Generator) -> Any:
        array = np.array(value, dtype=dtype)
        if array.size:
            array.reshape(-1)[rng.integers(array.size)] = new
        return array

    return change


def _times(factor: float) -> Change:
    return lambda value, _: np.asarray(value) * factor


def _always(new: Any) -> Change:
    return lambda value, rng: new


def _strided(value: Any, _: Any) -> Any:
    doubled = np.repeat(np.asarray(value), 2, axis=-1)
    return doubled[..., ::2]


def _read_only(value: Any, _: Any) -> Any:
    array = np.array(value)
    array.flags.writeable = False
    return array


def _masked(value: Any, rng: np.random.Generator) -> Any:
    array = np.ma.array(value)
    array[tuple(int(rng.integers(size)) for size in array.shape)] = np.ma.masked
    return array


def _made(name: str, expectation: Expectation, change: Change) -> Corruption:
    return Corruption(name, expectation, change)


def _replaced(expectation: Expectation, **values: Any) -> tuple[Corruption, ...]:
    return tuple(Corruption(name.replace("_", " "), expectation, _always(value)) for name, value in values.items())


SAME_ARRAYS = (
    _made("strided", "same", _strided),
    _made("read-only", "same", _read_only),
    _made("Fortran order", "same", lambda value, _: np.asfortranarray(value)),
    _made("big-endian", "same", lambda value, _: np.asarray(value).astype(np.asarray(value).dtype.newbyteorder(">"))),
    _made("nested lists", "same", lambda value, _: np.asarray(value).tolist()),
    _made("subclass", "same", lambda value, _: np.array(value).view(_Subclass)),
)
NOT_ARRAYS = (
    *_replaced("refused", text="x", bytes=b"\x00", mapping={"a": 1}, thing=object(), function=len, set={1.0, 2.0}),
    *_replaced("refused", complex=1j, date=datetime.date(2024, 1, 1), kind=float, path=Path("x")),
    _made("generator", "refused", lambda value, _: (row for row in value)),
    _made("strings", "refused", lambda value, _: np.asarray(value).astype(str)),
    _made("bytes inside", "refused", lambda value, _: np.asarray(value).astype("S8")),
    _made("complex array", "refused", lambda value, _: np.asarray(value) + 0j),
    _made("object array", "refused", lambda value, _: np.asarray(value).astype(object)),
    _made("None inside", "refused", _put(None, object)),
    _made("dates inside", "refused", lambda value, _: np.asarray(value).astype(np.int64).astype("M8[s]")),
    _made("durations inside", "refused", lambda value, _: np.asarray(value).astype(np.int64).astype("m8[s]")),
    _made("records", "refused", lambda value, _: np.zeros(np.asarray(value).shape, [("a", float), ("b", int)])),
    _made("masked", "refused", _masked),
    _made("ragged", "refused", lambda value, _: [[1.0], [1.0, 2.0], [[3.0]]]),
)
WRONG_SHAPES = (
    _made("no rows", "either", lambda value, _: np.asarray(value)[:0]),
    _made("one row less", "either", lambda value, _: np.asarray(value)[:-1]),
    _made("one row more", "either", lambda value, _: np.concatenate([value, np.asarray(value)[:1]])),
    _made("one axis more", "either", lambda value, _: np.asarray(value)[..., None]),
    _made("flat", "either", lambda value, _: np.asarray(value).reshape(-1)),
    _made("transposed", "either", lambda value, _: np.asarray(value).T),
    _made("0-d", "either", lambda value, _: np.asarray(value).reshape(-1)[:1].reshape(())),
    _made("32 axes", "either", lambda value, _: np.zeros((1,) * 32)),
    _made("no columns", "either", lambda value, _: np.asarray(value)[..., :0]),
    _made("empty list", "either", _always([])),
    _made("empty nested list", "either", _always([[]])),
    _made("memoryview", "either", lambda value, _: memoryview(np.ascontiguousarray(value))),
    _made("data frame", "either", lambda value, _: pd.DataFrame(np.asarray(value).reshape(len(value), -1))),
    _made("sparse", "either", lambda value, _: sparse.csr_array(np.asarray(value).reshape(len(value), -1))),
    _made("booleans", "either", lambda value, _: np.asarray(value) > 0),
)
NUMBERS = (
    *SAME_ARRAYS,
    _made("float32", "same", lambda value, _: np.asarray(value).astype(np.float32)),
    *(_made(f"{bad} inside", "refused", _put(bad, float)) for bad in (np.nan, np.inf, -np.inf)),
    *NOT_ARRAYS,
    *WRONG_SHAPES,
    *(_made(f"times {scale:g}", "either", _times(scale)) for scale in (1e300, 1e150, 1e30, 1e-30, 1e-300, -1.0, 0.0)),
    *(_made(f"{bad:g} inside", "either", _put(bad, float)) for bad in (1e308, -1e308, 1e200, 5e-324, -0.0, -1.0)),
    _made("float16", "either", lambda value, _: np.asarray(value).astype(np.float16)),
    _made("long double", "either", lambda value, _: np.asarray(value).astype(np.longdouble)),
    _made("integers", "either", lambda value, _: np.asarray(value).astype(np.int64)),
    _made("2^63 integers", "either", lambda value, _: np.full(np.asarray(value).shape, 2**63, dtype=np.uint64)),
    _made("integers beyond 64 bits", "either", lambda value, _: np.full(np.asarray(value).shape, 10**30).tolist()),
)
ACTIONS = (
    *SAME_ARRAYS,
    _made("int32", "same", lambda value, _: np.asarray(value).astype(np.int32)),
    _made("uint8", "same", lambda value, _: np.asarray(value).astype(np.uint8)),
    *(_made(f"{bad} inside", "refused", _put(bad, float)) for bad in (np.nan, np.inf, -np.inf, 0.5, 1e300)),
    *(_made(f"{bad} inside", "refused", _put(bad)) for bad in (-1, -(2**63))),
    _made("2^63 inside", "refused", _put(2**63, np.uint64)),
    _made("2^62 inside", "either", _put(2**62)),
    _made("integers beyond 64 bits", "refused", lambda value, _: [10**30] * len(value)),
    *NOT_ARRAYS,
    *WRONG_SHAPES,
)
ROWS = tuple(
    _made(change.name, "either", change.change) if change.name == "-1 inside" else change for change in ACTIONS
)
"""Row numbers: -1 is the last row."""
GROUPS = (*SAME_ARRAYS, _made("NaN inside", "either", _put(np.nan, float)), *WRONG_SHAPES)
NUMBER = (
    _made("NumPy scalar", "same", lambda value, _: np.float64(value)),
    *_replaced("refused", nan=float("nan"), text="1", bytes=b"1", complex=1j, list=[1.0], mapping={}, thing=object()),
    *_replaced("refused", kind=float, function=len, pair=np.ones(2), date=datetime.date(2024, 1, 1)),
    *_replaced("either", inf=float("inf"), minus_inf=-float("inf"), huge=1e300, tiny=5e-324, negative=-1.0, zero=0.0),
    *_replaced("either", minus_zero=-0.0, true=True, decimal=decimal.Decimal("0.5"), zero_axes=np.array(0.5)),
    *_replaced("either", huge_integer=10**400, none=None, empty=np.array([])),
)
COUNT = (
    _made("NumPy integer", "same", lambda value, _: np.int64(value)),
    *_replaced("refused", nan=float("nan"), inf=float("inf"), text="1", bytes=b"1", complex=1j, list=[1], mapping={}),
    *_replaced("refused", thing=object(), kind=int, fraction=1.5, pair=np.ones(2, int), negative=-1),
    *_replaced("either", zero=0, true=True, minimum=-(2**63), none=None, whole=2.0, zero_axes=np.array(2)),
    *_replaced("either", beyond_64_bits=2**63, beyond_floats=10**400),
)
RNG = _replaced("refused", seed=3, legacy=np.random.RandomState(0), text="x", thing=object(), kind=np.random.Generator)
OBJECT = (
    *_replaced("refused", number=3, text="x", thing=object(), array=np.zeros((2, 2)), mapping={}, list=[], nan=np.nan),
    *_replaced("refused", function=len, bytes=b"", true=True),
    _made("its class", "refused", lambda value, _: type(value)),
    *_replaced("either", none=None),
)
FUNCTION = (
    *_replaced("refused", number=3, text="x", thing=object(), array=np.zeros((2, 2)), mapping={}, list=[], nan=np.nan),
    *_replaced("refused", bytes=b"", true=True),
    *_replaced("either", none=None),
)
CHOICE = (
    *_replaced("refused", unknown="nonsense", empty="", control="\x00\x1b[31m", long="x" * 5000, surrogate="\ud800"),
    *_replaced("refused", number=3, bytes=b"row", list=["a", "b"], thing=object(), mapping={}),
    *_replaced("either", none=None, unicode="é\u202e😀"),
)
NAME = (
    *_replaced("refused", number=3, bytes=b"x", thing=object()),
    *_replaced("either", empty="", control="\x00\x1b[31m", long="x" * 5000, surrogate="\ud800", unicode="é\u202e😀"),
    *_replaced("either", newline="a\nb", none=None, markup="<script>|`"),
)
COLUMN = (*CHOICE, _made("other column", "either", _always("spend")), _made("path", "refused", _always("../x")))
PATH = (
    *_replaced("refused", missing="nowhere.arrow", empty="", zero="a\x00b", number=3.5, thing=object(), folder="/dev"),
    *_replaced("refused", surrogate="\ud800", long="x" * 5000, bytes=b"nowhere", device="/dev/null", list=["x"]),
    *_replaced("refused", mapping={}, unicode="é\u202e😀"),
    *_replaced("either", none=None),
)
OUT = (
    *_replaced("refused", folder="/", empty="", zero="a\x00b", number=3.5, thing=object(), no_folder="/dev/null/x"),
    *_replaced("refused", long="/tmp/" + "x" * 5000, device="/dev/full", list=["x"], proc="/proc/x"),
    *_replaced("either", none=None),
)
OUT_FOLDER = tuple(change for change in OUT if change.name != "folder")
"""A folder to write: one that exists is allowed, and the root of the machine should keep its files."""
LABELS = (
    _made("tuple", "same", lambda value, _: tuple(value)),
    _made("object array", "same", lambda value, _: np.array(value, dtype=object)),
    _made("series", "same", lambda value, _: pd.Series(value)),
    *_replaced("refused", number=3, text="x", thing=object(), nan=np.nan, function=len, bytes=b"abcdef"),
    _made("unhashable", "refused", lambda value, _: [[name] for name in value[:-1]] + [{}]),
    _made("one less", "either", lambda value, _: list(value)[:-1]),
    _made("one more", "either", lambda value, _: [*value, "new"]),
    _made("all the same", "either", lambda value, _: [value[0]] * len(value)),
    _made("None inside", "either", lambda value, _: [None, *value[1:]]),
    _made("NaN inside", "either", lambda value, _: [float("nan"), *value[1:]]),
    _made("infinity inside", "either", lambda value, _: [float("inf"), *value[1:]]),
    _made("mixed", "either", lambda value, _: [1, "1", 1.0, True, b"1", *value[5:]]),
    _made("control characters", "either", lambda value, _: ["\x00", "\x1b[2J", "\n", "\u202e", "\ud800", *value[5:]]),
    _made("2^63", "either", lambda value, _: [2**63 + row for row in range(len(value))]),
    _made("bytes inside", "either", lambda value, _: [name.encode() for name in map(str, value)]),
    _made("dates", "either", lambda value, _: np.arange(len(value)).astype("M8[D]")),
    _made("long text", "either", lambda value, _: ["x" * 10**5, *value[1:]]),
    _made("two axes", "either", lambda value, _: np.array(value).reshape(-1, 1)),
    _made("generator", "either", lambda value, _: (name for name in value)),
    _made("set", "either", lambda value, _: set(value)),
    *_replaced("either", none=None, empty=[], mapping={}),
)
COLLECTION = (
    *_replaced("refused", number=3, thing=object(), things=[object()], mapping_of_numbers={"x": 3}, numbers=[1, 2]),
    *_replaced("refused", text="greedy", bytes=b"x", nan=np.nan),
    *_replaced("either", empty_list=[], empty_mapping={}, none=None),
    _made("generator", "either", lambda value, _: (item for item in value)),
    _made("odd names", "either", lambda value, _: dict.fromkeys([3], _items(value)[0])),
    _made("control characters", "either", lambda value, _: {"\x00\x1b[2J\ud800": _items(value)[0]}),
)
ELIGIBLE = (
    *_replaced("refused", number=3, text="x", thing=object(), nan=np.nan, kind=list, mapping={}),
    _made("empty rows", "refused", lambda value, _: [[] for _ in value]),
    _made("negative", "refused", lambda value, _: [[-1] for _ in value]),
    _made("too large", "refused", lambda value, _: [[10**9] for _ in value]),
    _made("beyond 64 bits", "refused", lambda value, _: [[10**30] for _ in value]),
    _made("fractions", "refused", lambda value, _: [[0.5] for _ in value]),
    _made("NaN", "refused", lambda value, _: [[float("nan")] for _ in value]),
    _made("texts", "refused", lambda value, _: [["a"] for _ in value]),
    _made("None rows", "refused", lambda value, _: [None for _ in value]),
    _made("one row less", "refused", lambda value, _: value[:-1]),
    _made("twice", "either", lambda value, _: [[*row, *row] for row in value]),
    _made("booleans in lists", "either", lambda value, _: [[True, False] for _ in value]),
    _made("generator", "either", lambda value, _: (row for row in value)),
    _made("function of None", "refused", lambda value, _: NoSets()),
    _made("tuples", "same", lambda value, _: tuple(tuple(row) for row in value)),
    *_replaced("either", none=None, empty=[]),
)
FLAG = (
    _made("NumPy boolean", "same", lambda value, _: np.bool_(value)),
    *_replaced("refused", number=3, text="no", thing=object(), array=np.ones(2), mapping={}, nan=np.nan),
    *_replaced("either", none=None),
)

CORRUPTIONS: Mapping[str, tuple[Corruption, ...]] = {
    "numbers": NUMBERS,
    "actions": ACTIONS,
    "rows": ROWS,
    "groups": GROUPS,
    "number": NUMBER,
    "number or mapping": tuple(change for change in NUMBER if change.name != "mapping"),
    "count": COUNT,
    "rng": RNG,
    "object": OBJECT,
    "function": FUNCTION,
    "choice": CHOICE,
    "name": NAME,
    "column": COLUMN,
    "path": PATH,
    "out": OUT,
    "out folder": OUT_FOLDER,
    "labels": LABELS,
    "collection": COLLECTION,
    "eligible": ELIGIBLE,
    "flag": FLAG,
}
"""The corruptions of every kind of argument."""


def _items(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, Mapping) else list(value)
