"""The numbering of actions: from the ids in a column of a table to 0 ... K - 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int
from scipy import sparse

from manyarms._base.arrow import compute, pa
from manyarms._base.checks import Array, as_actions, as_count
from manyarms._base.row_numbers import row_name, row_of
from manyarms.core.arrow_columns import codes_of, whole_numbers_of
from manyarms.core.catalog import Catalog
from manyarms.core.labels import integer_of
from manyarms.errors import ActionError, DataTypeError, EligibilityError

MOST_COMPARED = 1_000
"""Unknown ids of a batch that are compared with the catalog's in other spellings."""


@dataclass(frozen=True)
class NumberedColumn:
    """The action numbers of a column.

    Attributes:
        actions: (n,) the number of each row's action; not an action where it is not known.
        known: (n,) true where the id is that of an action.
        spelled: An unknown id, and the one that the catalog has in another spelling; None where there is none.
    """

    actions: Int[Array, " n"]
    known: Bool[Array, " n"]
    spelled: tuple[str, str] | None

    def spelling(self, holder: str) -> str:
        """The two spellings of an id, in words; `holder` is what has the column, such as "the log"."""
        if self.spelled is None:
            return ""
        given, near = self.spelled
        return f"{holder} has {given!r}, the catalog has {near!r}"


@dataclass(frozen=True)
class ActionNumbering:
    """Actions by id: those of a catalog, or, without one, numbers 0 ... K - 1 that stand for themselves.

    Attributes:
        n_actions: K.
        catalog: The ids; None where they are numbers.
        column: The column of the logs that holds them; empty where it is not known.
    """

    n_actions: int
    catalog: Catalog | None = None
    column: str = ""

    def of_column(self, name: str, column: pa.ChunkedArray) -> NumberedColumn:
        """The actions in a column of ids that has no gaps; `name` is its name in errors."""
        if self.catalog is None:
            is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
            numbers = _written_numbers(name, column) if is_text else whole_numbers_of(name, column)
            actions = as_actions(name, numbers)
            return NumberedColumn(actions, actions < self.n_actions, None)
        codes, ids = codes_of(column)
        numbers = self.catalog.find(ids)
        actions = numbers[codes] if len(ids) else np.empty(0, dtype=np.int64)
        spelled = _spelled(self.catalog, [ids[place] for place in np.flatnonzero(numbers < 0)])
        return NumberedColumn(actions, actions >= 0, spelled)

    def sets_of(
        self, name: str, column: pa.ChunkedArray, where: Callable[[int], str] = row_name, *, skip_unknown: bool = False
    ) -> sparse.csr_array:
        """Lists of ids in a column, such as candidates, as sets of actions: one row each, with ones.

        Args:
            name: The name of the column in errors.
            column: Lists; none may be empty.
            where: The name of a row in errors.
            skip_unknown: True to leave out ids that are not those of actions, rather than refuse them.
        """
        kind = column.type
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            raise DataTypeError(f"column {name} must hold lists of actions; its type is {kind}.")
        sizes = compute.call_function("list_value_length", [column]).fill_null(0).to_numpy()
        if sizes.min(initial=1) == 0:
            row = where(int(np.argmin(sizes)))
            raise EligibilityError(f"column {name} leaves nothing to choose from in {row}.", "Leave such rows out.")
        flat, owner = compute.call_function("list_flatten", [column]), np.repeat(np.arange(len(sizes)), sizes)
        if flat.null_count:
            row = where(int(owner[flat.is_null().to_pylist().index(True)]))
            raise ActionError(f"column {name} has a missing action in {row}.", "Leave it out.")
        flat = flat if isinstance(flat, pa.ChunkedArray) else pa.chunked_array([flat])
        numbered = self.of_column(name, flat)
        known = numbered.known
        if not known.all() and not skip_unknown:
            place = int(np.argmin(known))
            raise ActionError(
                f"column {name} has {flat[place].as_py()!r} in {where(int(owner[place]))}, which is not among "
                f"the {self.n_actions:,} actions."
            )
        entries = (np.ones(int(known.sum())), (owner[known], numbered.actions[known]))
        return sparse.csr_array(entries, shape=(len(sizes), self.n_actions))

    def unknown(
        self,
        name: str,
        column: pa.ChunkedArray,
        numbered: NumberedColumn,
        remedy: str,
        flag_remedy: str = "",
        rows: Int[Array, " n"] | None = None,
        holder: str = "",
    ) -> ActionError:
        """The error about the first row of a column whose id is not that of an action.

        `rows` gives the row of the table that each id is from, where a row has several. `holder` is the table of the
        column, where that is not the log.
        """
        place = int(np.argmin(numbered.known))
        row = row_of(place if rows is None else rows[place], holder)
        known = f"below {self.n_actions:,}, the number of actions"
        known = known if self.catalog is None else f"in the catalog of {self.n_actions:,} actions"
        problem = f"{row} has {column[place].as_py()!r} in column {name}, which is not {known}."
        if numbered.spelled:
            spelling = f"Ids are compared as they are written: {numbered.spelling(holder or 'the log')}."
            return ActionError(f"{problem} {spelling}", "Spell them alike.")
        return ActionError(problem, remedy, flag_remedy=flag_remedy)


def as_numbering(value: Any) -> ActionNumbering:
    """The numbering of a catalog, of logs, of a posterior, or of so many actions that are numbered already."""
    if isinstance(value, ActionNumbering):
        return value
    if isinstance(value, Catalog):
        return ActionNumbering(value.n_actions, value)
    count, catalog = getattr(value, "n_actions", value), getattr(value, "catalog", None)
    if isinstance(count, int | np.integer) and not isinstance(count, bool) and isinstance(catalog, Catalog | None):
        return ActionNumbering(as_count("actions", count), catalog, str(getattr(value, "action_column", "")))
    raise DataTypeError(
        f"must be a Catalog, logs, a posterior or the number of actions; got {type(value).__name__}.",
        "Pass the logs that the policy is evaluated on.",
        argument="actions",
    )


def _written_numbers(name: str, column: pa.ChunkedArray) -> Int[Array, " n"]:
    """Action numbers that a CSV file has as texts; 2.0, which tables with gaps write for 2, is one too."""
    codes, distinct = codes_of(column)
    numbers = [integer_of(str(text).removesuffix(".0")) for text in distinct]
    if None in numbers:
        place = numbers.index(None)
        row = row_name(int(np.argmax(codes == place)))
        raise ActionError(
            f"{row} has {distinct[place]!r} in column {name}, but without a catalog ids are numbers 0, 1, 2, ...",
            "Write numbers without leading zeros or exponents, or pass a catalog.",
        )
    return np.array(numbers, dtype=np.int64)[codes] if numbers else np.empty(0, dtype=np.int64)


def _spelled(catalog: Catalog, unknown: Sequence[Any]) -> tuple[str, str] | None:
    """The first unknown id that the catalog has in another spelling, and that one; not all of many are looked up."""
    for id in unknown[:MOST_COMPARED]:
        near = catalog.spelled_otherwise(id)
        if near is not None:
            return str(id), str(near)
    return None
