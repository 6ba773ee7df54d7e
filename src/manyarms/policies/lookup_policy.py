"""The policy that looks its choices up in a table, by user, by row, or by any other column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.arrow import pa
from manyarms._base.checks import Array, as_actions, as_names, as_text
from manyarms._base.row_numbers import row_name, row_numbers, row_of
from manyarms.core import OTHER, Catalog, Choices
from manyarms.core.action_numbering import ActionNumbering, as_numbering
from manyarms.core.arrow_columns import codes_of, column_of, numbers_of, whole_numbers_of
from manyarms.errors import InputError, PropensityError, RangeError, TooLargeError
from manyarms.linalg.sparse_matrices import csr_from_parts, csr_parts, shape_of
from manyarms.logs.row_reader import ROW
from manyarms.model_file.part_checks import indices, instance_of, is_size, is_text, maybe, saved_csr, tuple_of
from manyarms.policies.given_policy import ChoiceMap, GivenPolicy
from manyarms.policies.picks import (
    PositionWeights,
    as_position_weights,
    column_of_picks,
    listed_picks,
    read_picks,
    rows_of_picks,
    single_picks,
    table_name,
)
from manyarms.policies.table import SUM_ERROR


class LookupPolicy(GivenPolicy):
    """Chooses what a table says about the key of a row: picks, probabilities, or ranked lists by position weights.

    The table has one row per key with the pick, or with a list of picks; or several rows per key, each with a pick and
    its probability or its rank. A row whose key is "(other)" holds for all keys that are not listed.

    Args:
        table: A table of pandas, Polars or Arrow; or a Parquet, CSV or Arrow file.
        key: The columns, in the table and in the contexts, that say which row of the table applies: a user, a city, the
            id of a row. None for the number of a row of the contexts, from 0, in the table's column "row", as `score`
            writes it.
        actions: The numbering of the actions: the logs, a `Catalog`, a posterior, or the number of actions.
        action: The column of picks; None for the logs' column of actions, `action`, or the only column left.
        probability: The column of probabilities, if there is one; those of a key must sum to 1.
        rank: The column of ranks, if there is one: lower ranks come first.
        position_weights: How much each position of a list of picks counts, best first. Lists, and several ranks, need
            them.
        separator: The character between the ids of a list that is written as a text.

    Raises:
        InputError: If a key comes twice, an id is unknown, a probability is wrong; the message names the row.

    Examples:
        >>> import pyarrow as pa
        >>> import manyarms as ma
        >>> picks = pa.table({"user": ["ann", "bob"], "item": ["mug", "tea"]})
        >>> policy = ma.LookupPolicy(picks, "user", ma.Catalog(["tea", "mug"]))
        >>> policy.actions(pa.table({"user": ["bob", "ann", "bob"]}))
        array([0, 1, 0])
    """

    saved_as = "lookup"
    saved_fields = ("key", "levels", "codes", "table", "n_actions", "catalog")
    saved_checks: ClassVar = {
        "key": tuple_of(is_text),
        "levels": tuple_of(instance_of(Catalog)),
        "codes": indices(),
        "table": saved_csr,
        "n_actions": is_size,
        "catalog": maybe(instance_of(Catalog)),
    }

    def __init__(
        self,
        table: Any,
        key: str | Iterable[str] | None,
        actions: Any,
        *,
        action: str | None = None,
        probability: str | None = None,
        rank: str | None = None,
        position_weights: Any = None,
        separator: str = "|",
    ):
        names = tuple(as_text("key", name) for name in as_names("key", key))
        numbering = as_numbering(actions)
        if probability is not None and rank is not None:
            raise InputError("and rank exclude one another.", "Name one of them.", argument="probability")
        holder = table_name(table)
        others = [name for name in (*(names or (ROW,)), probability, rank) if name is not None]
        column = column_of_picks(table, action, others, numbering)
        picks = _Picks(names, column, probability, rank, as_text("separator", separator), holder)
        positions = as_position_weights(position_weights)
        with rows_of_picks(table):
            content = picks.read(table)
            levels, codes = _key_levels(content, names)
            keys, places = np.unique(codes, return_inverse=True)
            probabilities = picks.probabilities(content, places, len(keys), numbering, positions)
        self._set(names, levels, keys, probabilities, numbering)

    def _set(
        self,
        key: tuple[str, ...],
        levels: tuple[Catalog, ...],
        codes: Int[Array, " m"],
        table: sparse.csr_array,
        numbering: ActionNumbering,
    ) -> None:
        self._number_by(numbering)
        self.key, self._table = key, table
        self.features = self._keys = _KeyMap(key, levels, codes)

    def saved(self) -> dict[str, Any]:
        keys = self._keys
        return {"key": self.key, "levels": keys.levels, "codes": keys.codes, "table": csr_parts(self._table),
                "n_actions": self.n_actions, "catalog": self.catalog}  # fmt: skip

    @classmethod
    def from_saved(cls, parts: dict[str, Any]) -> LookupPolicy:
        out = object.__new__(cls)
        numbering = ActionNumbering(parts["n_actions"], parts["catalog"])
        out._set(parts["key"], parts["levels"], parts["codes"], csr_from_parts(parts["table"]), numbering)
        return out

    def consistent(self) -> bool:
        """True if there is a row of probabilities for each key, in order, and each sums to one."""
        keys, shape = self._keys, shape_of(self._table)
        sizes = shape == (len(keys.codes), self.n_actions) and len(keys.levels) == len(self.key)
        catalogs = self.catalog is None or self.catalog.n_actions == self.n_actions
        if not (sizes and catalogs and len(keys.codes) > 0 and (np.diff(keys.codes) > 0).all()):
            return False
        totals = np.asarray(self._table.sum(axis=1)).reshape(-1)
        return bool((self._table.data >= 0).all() and (np.abs(totals - 1.0) <= SUM_ERROR).all())

    def __repr__(self) -> str:
        by = ", ".join(self.key) or "row number"
        return f"LookupPolicy({len(self._keys.codes):,} keys by {by}, {self.n_actions:,} actions)"

    def choices(self, contexts: Float[Array, "n k"], eligible: sparse.csr_array | None) -> Choices:
        return Choices.of_table(self._table[contexts[:, 0].astype(np.int64)], eligible)


class _KeyMap(ChoiceMap):
    """The place of each row's key in a table."""

    def __init__(self, key: tuple[str, ...], levels: tuple[Catalog, ...], codes: Int[Array, " m"]):
        super().__init__(key)
        self.levels, self.codes = levels, codes
        other = [int(part.find([OTHER])[0]) for part in levels]
        code = _combined([np.array([place]) for place in other], levels) if levels and min(other) >= 0 else None
        place = -1 if code is None else int(np.searchsorted(codes, code[0]))
        self._other = place if code is not None and place < len(codes) and codes[place] == code[0] else -1

    def __call__(self, table: pa.Table | pa.RecordBatch) -> Float[Array, "n k"]:
        if self.columns:
            parts = list[Int[Array, " n"]]()
            for name, level in zip(self.columns, self.levels, strict=True):
                rows, ids = codes_of(column_of(table, name))
                parts.append(level.find(ids)[rows] if len(ids) else np.empty(0, dtype=np.int64))
            codes = np.where(np.min(parts, axis=0) < 0, -1, _combined(parts, self.levels))
        elif ROW in table.schema.names:
            codes = as_actions(ROW, whole_numbers_of(ROW, column_of(table, ROW)))
        else:
            codes = row_numbers(table.num_rows)
        places = np.minimum(np.searchsorted(self.codes, codes), len(self.codes) - 1)
        known = self.codes[places] == codes
        if self._other >= 0:
            return np.where(known, places, self._other).astype(np.float64)[:, None]
        if not known.all():
            raise self._unknown(table, int(np.argmin(known)))
        return places.astype(np.float64)[:, None]

    def _unknown(self, table: pa.Table | pa.RecordBatch, row: int) -> InputError:
        values = [f"{name} {column_of(table, name)[row].as_py()!r}" for name in self.columns]
        lacks = f"has {', '.join(values)}, which is" if values else "is"
        return InputError(
            f"{row_name(row)} {lacks} not among the {len(self.codes):,} keys of the policy's table.",
            f"Add it to the table, or add a row with the key {OTHER!r}, which holds for all others.",
        )


def _combined(parts: Sequence[Int[Array, " n"]], levels: Sequence[Catalog]) -> Int[Array, " n"]:
    """One number for the numbers of several key columns."""
    codes = parts[0]
    for part, level in zip(parts[1:], levels[1:], strict=True):
        codes = codes * len(level) + part
    return codes


def _key_levels(content: pa.Table, key: tuple[str, ...]) -> tuple[tuple[Catalog, ...], Int[Array, " m"]]:
    """The values of each key column, and one number for the key of each row."""
    if not key:
        return (), as_actions(ROW, whole_numbers_of(ROW, column_of(content, ROW)))
    coded = [codes_of(column_of(content, name)) for name in key]
    levels = tuple(Catalog(ids) for _, ids in coded)
    if float(np.prod([float(len(level)) for level in levels])) >= 2.0**62:
        raise TooLargeError("the key columns have too many combinations.", "Join them into one column.")
    return levels, _combined([rows.astype(np.int64) for rows, _ in coded], levels)


class _Picks:
    """The columns of a table of picks, and what they mean."""

    def __init__(
        self,
        key: tuple[str, ...],
        action: str,
        probability: str | None,
        rank: str | None,
        separator: str,
        holder: str,
    ):
        self.key, self.action, self.probability, self.rank = key or (ROW,), action, probability, rank
        self.separator, self.holder = separator, holder

    def read(self, table: Any) -> pa.Table:
        """The columns that are needed, without gaps."""
        labels = [*self.key, self.action]
        columns = [*labels, *(name for name in (self.probability, self.rank) if name is not None)]
        return read_picks(table, columns, [name for name in labels if name != ROW])

    def probabilities(
        self,
        content: pa.Table,
        places: Int[Array, " m"],
        n_keys: int,
        numbering: ActionNumbering,
        positions: PositionWeights | None,
    ) -> sparse.csr_array:
        """(keys, K) the probabilities that the rows of the table give to the actions of each key."""
        column, shape = column_of(content, self.action), (n_keys, numbering.n_actions)
        if self.probability is None and self.rank is None:
            self._refuse_twice(content, places, "a column of probabilities or of ranks")
            order = np.argsort(places)
            if positions is None:
                picks = single_picks(self.action, column, numbering, self.holder)[order]
                return sparse.csr_array((np.ones(n_keys), picks, np.arange(n_keys + 1)), shape=shape)
            listed = listed_picks(self.action, column, numbering, len(positions), self.separator, self.holder)
            return positions.table(listed[order], numbering.n_actions)
        actions = single_picks(self.action, column, numbering, self.holder)
        self._refuse_twice(content, places * numbering.n_actions + actions, "", f" and {self.action}")
        if self.rank is not None:
            return self._ranked(content, places, actions, shape, positions)
        shares = numbers_of(str(self.probability), column_of(content, str(self.probability)))
        if shares.min() < 0:
            row = row_of(int(np.argmin(shares)), self.holder)
            problem = f"{row} has the probability {shares.min():g}."
            raise PropensityError(problem, "Clip and renormalise.")
        totals = np.bincount(places, weights=shares, minlength=n_keys)
        if not (np.abs(totals - 1.0) <= SUM_ERROR).all():
            key = int(np.argmin(np.abs(totals - 1.0) <= SUM_ERROR))
            row = int(np.argmax(places == key))
            raise PropensityError(
                f"the probabilities of {self._name(content, row)}, first in {row_of(row, self.holder)}, sum to "
                f"{totals[key]:.6g}, not to 1.",
                "Divide those of each key by their sum.",
            )
        table = sparse.csr_array((shares, (places, actions)), shape=shape)
        table.eliminate_zeros()
        return table

    def _ranked(
        self,
        content: pa.Table,
        places: Int[Array, " m"],
        actions: Int[Array, " m"],
        shape: tuple[int, int],
        positions: PositionWeights | None,
    ) -> sparse.csr_array:
        ranks = numbers_of(str(self.rank), column_of(content, str(self.rank)))
        order = np.lexsort((ranks, places))
        counts = np.bincount(places, minlength=shape[0])
        within = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
        same = (np.diff(places[order]) == 0) & (np.diff(ranks[order]) == 0)
        if same.any():
            row = int(order[np.argmax(same) + 1])
            raise InputError(
                f"{row_of(row, self.holder)} has the rank of another pick for {self._name(content, row)}.",
                "Give each pick of a key its own rank.",
            )
        if positions is None and counts.max() > 1:
            raise RangeError(
                f"the table ranks up to {counts.max()} picks per key, and it is not known how much each counts.",
                "Pass position_weights=, such as [1, 0.5, 0.25].",
                flag_remedy="Pass --position-weights, such as 1,0.5,0.25.",
            )
        positions = positions or PositionWeights([1.0])
        listed = np.full((shape[0], len(positions)), -1, dtype=np.int64)
        inside = within < len(positions)
        listed[places[order][inside], within[inside]] = actions[order][inside]
        return positions.table(listed, shape[1])

    def _refuse_twice(self, content: pa.Table, codes: Int[Array, " m"], remedy: str, more: str = "") -> None:
        """Refuse a key that comes twice, or the same action twice for one key."""
        order = np.argsort(codes, kind="stable")
        same = np.flatnonzero(np.diff(codes[order]) == 0)
        if not len(same):
            return
        first, second = (int(order[same[0] + step]) for step in (0, 1))
        raise InputError(
            f"{row_of(second, self.holder)} has the same {', '.join(self.key)}{more} as {row_name(first)}: "
            f"{self._name(content, second)}.",
            "Keep one of them." if not remedy else f"Keep one row per key, or name {remedy}.",
        )

    def _name(self, content: pa.Table, row: int) -> str:
        return ", ".join(f"{name} {content.column(name)[row].as_py()!r}" for name in self.key)
