"""The catalog: every action by its id, and the metadata of each."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np
from jaxtyping import Int
from scipy import sparse

from manyarms._base.checks import Array, as_actions, as_instance, frozen
from manyarms.core.action_columns import as_column, as_embedding_column, as_path_column, as_tag_column
from manyarms.core.labels import (
    RaggedLabels,
    TagRow,
    check_hashable,
    is_hashable,
    is_missing,
    is_packed,
    other_type,
    pack_labels,
    pack_rows,
    plain_values,
    rough_key,
    unpack_labels,
)
from manyarms.errors import (
    ActionError,
    DataTypeError,
    InputError,
    ModelFileError,
)
from manyarms.linalg.indexing import chunks
from manyarms.linalg.sparse_matrices import csr_from_parts, csr_parts, shape_of
from manyarms.model_file.part_checks import is_size, maybe, once, saved_csr
from manyarms.model_file.save import Saved

Value = TypeVar("Value")


def _is_grid(part: Any) -> bool:
    """Check saved paths of equal length: all labels, and how many each action has."""
    return isinstance(part, tuple) and len(part) == 2 and is_packed(part[0]) and is_size(part[1])


def _is_embeddings(part: Any) -> bool:
    """Check saved embeddings: finite, except rows of NaN, which are missing."""
    if not isinstance(part, np.ndarray) or part.dtype != np.float64 or part.ndim != 2 or part.shape[1] == 0:
        return False
    stored = once(part)
    blocks = (stored[rows] for rows in chunks(len(stored), 4096))
    return all((np.isfinite(block) | np.isnan(block).all(axis=1, keepdims=True)).all() for block in blocks)


def _as_labels(name: str, value: Any, length: int) -> Array:
    return check_hashable(name, as_column(name, value, length=length))


class Catalog(Saved):
    """Actions 0 ... K - 1 with their ids and metadata; checked here once, and read-only afterwards.

    Ids turn into action numbers here and nowhere else, so a catalog also lists the actions never logged. Arrays of the
    right type are not copied, so do not change them afterwards.

    Args:
        ids: (K,) hashable and unique, in the order in which actions are numbered: a list, an array, a table's column.
        categories: (K,) one label each; None, NaN, NaT or masked where it is missing.
        tags: Labels per action, or a mapping from label to weight per action; or a sparse (K, T) matrix of weights.
        paths: Labels per action from the top of a taxonomy down, as far as they are known; a (K, depth) array may have
            missing values at the end of a row.
        embeddings: (K, e) numbers; a row of NaN where the embedding is missing.
        names: (K,) texts that a report shows instead of ids; None where one is missing.

    Raises:
        InputError: If an argument is wrong; the message names it, the first bad row and a remedy.

    Examples:
        >>> from manyarms.core.catalog import Catalog
        >>> catalog = Catalog(["tea", "mug", "pot"], categories=["food", "kitchen", None])
        >>> catalog
        Catalog(3 actions, with categories)
        >>> catalog.numbers(["pot", "tea", "pot"])
        array([2, 0, 2])
    """

    saved_as = "catalog"
    saved_fields = ("ids", "categories", "tags", "paths", "n_actions", "embeddings", "names")
    saved_checks: ClassVar = {
        "ids": is_packed,
        "categories": maybe(is_packed),
        "names": maybe(is_packed),
        "tags": maybe(lambda part: isinstance(part, RaggedLabels) or saved_csr(part)),
        "paths": maybe(lambda part: isinstance(part, RaggedLabels) or _is_grid(part)),
        "n_actions": is_size,
        "embeddings": maybe(_is_embeddings),
    }

    def __init__(
        self,
        ids: Any,
        *,
        categories: Any = None,
        tags: Any = None,
        paths: Any = None,
        embeddings: Any = None,
        names: Any = None,
    ):
        self._stored: dict[str, Any] = {}
        self.ids = as_column("ids", ids)
        self._numbers = _numbered(self.ids)
        self.n_actions = K = len(self.ids)
        self.categories = None if categories is None else _as_labels("categories", categories, K)
        self.tags = None if tags is None else as_tag_column("tags", tags, length=K)
        self.paths = None if paths is None else as_path_column("paths", paths, length=K)
        self.embeddings = None if embeddings is None else as_embedding_column("embeddings", embeddings, length=K)
        self.names = None if names is None else _as_labels("names", names, K)

    # Metadata from a file stay there until they are needed: reading a million words takes a second.

    @cached_property
    def ids(self) -> Array:
        """(K,) the ids of the actions."""
        return self._read("ids")

    @cached_property
    def categories(self) -> Array | None:
        """(K,) one label each, or None where there are no categories."""
        return self._read("categories")

    @cached_property
    def names(self) -> Array | None:
        """(K,) the names that a report shows instead of ids, or None where there are none."""
        return self._read("names")

    def name_of(self, action: int) -> str:
        """The name of an action, or an empty text where it has none."""
        (number,) = as_actions("action", [action], n_actions=len(self))
        name = None if self.names is None else self.names[number]
        return "" if is_missing(name) else str(name)

    @cached_property
    def tags(self) -> sparse.csr_array | tuple[TagRow, ...] | None:
        """The tags of every action."""
        return self._read("tags")

    @cached_property
    def paths(self) -> Array | tuple[tuple[Hashable, ...], ...] | None:
        """The labels of every action, from the top of a taxonomy down."""
        return self._read("paths")

    @cached_property
    def _numbers(self) -> dict[Any, int]:
        # Ids were checked before they were saved, unless a file pretends to be one that we wrote.
        with _file_problems():
            return _numbered(self.ids)

    def _read(self, name: str) -> Any:
        """A column that is still in the model file."""
        with _file_problems():
            stored = self._stored[name]
            column = csr_from_parts(stored) if name == "tags" and isinstance(stored, tuple) else _unpacked(stored)
            if (
                column is not None
                and (shape_of(column)[0] if sparse.issparse(column) else len(column)) != self.n_actions
            ):
                raise ValueError("one value per action is needed")
            return column

    def saved(self) -> dict[str, Any]:
        fresh = {name: _packed(name, getattr(self, name)) for name in _LABELS if name not in self._stored}
        return {**self._stored, **fresh, "n_actions": self.n_actions, "embeddings": self.embeddings}

    @classmethod
    def from_saved(cls, parts: dict[str, Any]) -> Catalog:
        out = object.__new__(cls)
        out.n_actions, out.embeddings = parts["n_actions"], parts["embeddings"]
        # Files of earlier versions have no names.
        out._stored = {name: parts.get(name) for name in _LABELS}
        return out

    def consistent(self) -> bool:
        """True if every column has a value for each action; the length of one in JSON is only known when it is read."""
        columns = [self.embeddings, *(self._stored[name] for name in _LABELS)]
        return all(_saved_length(column) in (None, self.n_actions) for column in columns)

    def __len__(self) -> int:
        return self.n_actions

    def __repr__(self) -> str:
        known = [name for name in ("categories", "tags", "paths", "embeddings", "names") if self._has(name)]
        extra = f", with {', '.join(known)}" if known else ""
        return f"Catalog({len(self):,} actions{extra})"

    def _has(self, name: str) -> bool:
        return (self._stored.get(name) if name in self._stored else getattr(self, name)) is not None

    def numbers(self, ids: Any) -> Int[Array, " n"]:
        """The action number of every id; an id that is not in the catalog raises an error that names its row."""
        values = plain_values(as_column("ids", ids, minimum=0))
        try:
            return np.fromiter(map(self._numbers.__getitem__, values), dtype=np.int64, count=len(values))
        except (KeyError, TypeError):
            # An id that cannot be hashed is in no catalog.
            numbers = self.find([value if is_hashable(value) else None for value in values])
        if (numbers >= 0).all():
            return numbers
        row = int(np.argmax(numbers < 0))
        near = self.spelled_otherwise(values[row])
        hint = "" if near is None else f" The catalog has {near!r}."
        raise ActionError(
            f"must be among the {len(self):,} of the catalog; row {row} has {values[row]!r}.{hint}",
            "Add it to the catalog, or drop such rows." if near is None else "Spell it alike in both.",
            argument="ids",
        )

    def begins_with(self, other: Catalog) -> bool:
        """True if this catalog starts with the actions of another, in the same order: their numbers agree."""
        if self is other or plain_values(self.ids)[: len(other)] == plain_values(other.ids):
            return True
        # Integers and texts match where they are written alike.
        return len(self) >= len(other) and bool((self.find(plain_values(other.ids)) == np.arange(len(other))).all())

    def grown_with(self, other: Catalog) -> Catalog:
        """This catalog followed by the actions that only the other one lists; its own metadata stay as they are.

        Raises:
            InputError: If the other catalog lacks a column that this one has.
        """
        ids = plain_values(as_instance("other", other, Catalog, "a Catalog").ids)
        new = np.flatnonzero(self.find(ids) < 0)
        columns = dict[str, Any]()
        for name in ("categories", "tags", "paths", "embeddings", "names"):
            known, added = getattr(self, name), getattr(other, name)
            if known is None:
                continue
            if added is None and name == "names":
                # Names are for readers: without them, new actions are shown by their ids.
                added = np.full(len(ids), None, dtype=object)
            if added is None:
                raise InputError(f"the new catalog has no {name}, but the one it extends does.")
            if sparse.issparse(known) or sparse.issparse(added):
                raise DataTypeError("tags as a matrix have no labels to match.", "Pass labels to both catalogs.")
            more = [added[row] for row in new]
            columns[name] = [*known, *(_like(known, more) if name == "categories" else more)]
        kept = plain_values(self.ids)
        return Catalog([*kept, *_like(kept, [ids[row] for row in new])], **columns)

    def find(self, ids: Sequence[Hashable]) -> Int[Array, " n"]:
        """The action number of every id; -1 for an id that is not in the catalog.

        An id is found as it is, or else as it is written: the text "7" is the integer 7, but "007" is not.
        """
        keys = plain_values(as_column("ids", ids, minimum=0))
        try:
            numbers = np.fromiter((self._numbers.get(key, -1) for key in keys), dtype=np.int64, count=len(keys))
        except TypeError as unhashable:
            raise DataTypeError(f"must hold hashable ids: {unhashable}.", argument="ids") from None
        for place in np.flatnonzero(numbers < 0).tolist():
            other = other_type(keys[place])
            if other is not None:
                numbers[place] = self._numbers.get(other, -1)
        return numbers

    def spelled_otherwise(self, id: Any) -> Hashable | None:
        """The id in the catalog that differs from an unknown one only in spelling, as 7 does from "007"; else None."""
        return None if is_missing(id) else self._rough.get(rough_key(id))

    @cached_property
    def _rough(self) -> dict[Hashable, Hashable]:
        return {rough_key(id): id for id in reversed(self._numbers)}


_LABELS = ("ids", "categories", "tags", "paths", "names")


def _like(known: Sequence[Any] | Array, added: list[Any]) -> list[Any]:
    """Labels to be added to known ones, in the type of those that are written alike."""
    kinds = {type(label) for label in known if not is_missing(label)}
    if len(kinds) != 1 or kinds & {type(label) for label in added}:
        return added
    others = [label if is_missing(label) else other_type(label) for label in added]
    return [
        label if other is None or type(other) not in kinds else other
        for label, other in zip(added, others, strict=True)
    ]


def _packed(name: str, column: Any) -> Any:
    """A column of labels in a form that a model file can hold."""
    if column is None or isinstance(column, tuple):
        return None if column is None else pack_rows(name, column)
    if sparse.issparse(column):
        return csr_parts(column)
    return pack_labels(name, column) if column.ndim == 1 else (pack_labels(name, column.reshape(-1)), column.shape[1])


def _saved_length(column: Any) -> int | float | None:
    """The number of actions that a packed column has values for; None if that is not known before it is read."""
    if isinstance(column, tuple):
        parts: tuple[Any, ...] = column
        if len(parts) != 2:  # sparse: values, columns, row starts, ...
            return len(parts[2]) - 1
        flat = _saved_length(parts[0])
        return None if flat is None else flat / parts[1]
    return len(column) if hasattr(column, "__len__") else None


def _unpacked(stored: Any) -> Any:
    """The column that was packed, unless it was sparse."""
    if stored is None or isinstance(stored, RaggedLabels):
        return None if stored is None else stored.rows()
    flat, depth = stored if isinstance(stored, tuple) else (stored, None)
    return frozen(unpack_labels(flat) if depth is None else unpack_labels(flat).reshape(-1, depth))


@contextmanager
def _file_problems() -> Generator[None]:
    """Turn any exception into a `ModelFileError`: columns of a catalog are read from the file when they are needed."""
    try:
        yield
    except ModelFileError:
        raise
    except Exception as damage:
        problem = f"the catalog in the model file is damaged ({type(damage).__name__})."
        raise ModelFileError(problem, "Restore the file from a copy, or fit again.") from damage


def _numbered(ids: Array) -> dict[Any, int]:
    values = plain_values(ids)
    for row, value in enumerate(values):
        if not is_hashable(value):
            raise DataTypeError(f"must be hashable; row {row} holds {value!r}.", argument="ids")
        if is_missing(value):
            problem = f"must not be missing; row {row} has {value!r}."
            raise InputError(problem, "Drop such rows or name them.", argument="ids")
    numbers = dict(zip(values, range(len(values)), strict=True))
    if len(numbers) < len(values):
        # The dictionary keeps the last of equal ids.
        first = next(i for i, value in enumerate(values) if numbers[value] != i)
        raise InputError(
            f"must be unique; {values[first]!r} is in row {first} and in row {numbers[values[first]]}.",
            "Keep one row per action.",
            argument="ids",
        )
    return numbers


def metadata(source: Any, column: str, check: Callable[[str, Any], Value], name: str | None = None) -> Value:
    """A column of a catalog, or a plain array in its place that is checked as a catalog checks it.

    `name` is the name of the argument, where it differs from the column.
    """
    if not isinstance(source, Catalog):
        return check(name or column, source)
    if getattr(source, column) is None:
        raise InputError(
            f"the catalog has no {column}.",
            f"Pass them: Catalog(ids, {column}=...).",
            flag_remedy="Name their column, or columns: --category, --tags, --taxonomy or --embedding.",
        )
    return getattr(source, column)
