"""Rounds made from the columns of a table: the role of each column, ids, missing values, ages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC
from hashlib import blake2b
from typing import Any, cast

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from manyarms._base.arrow import pa
from manyarms._base.checks import Array, as_weights
from manyarms._base.job_options import Missing, Unknown
from manyarms._base.row_numbers import keep_rows, row_name, row_numbers
from manyarms.core import OTHER, Catalog, FeatureMap, LoggedData, as_propensities
from manyarms.core.action_numbering import ActionNumbering
from manyarms.core.arrow_columns import codes_of, column_of, numbers_of, whole_numbers_of
from manyarms.core.labels import integer_of
from manyarms.core.logged_data import check_candidates
from manyarms.errors import DataTypeError, InputError, NonFiniteError
from manyarms.logs.age_rule import AgeRule, local_time, seconds_between
from manyarms.model_file.save import Saved

Memory = Callable[[int], Float[Array, "n d"] | None]
"""Gives memory for the contexts of the next n rounds, which are used before the next ones are read; None for none."""

ROW = "row"
"""The column of row numbers in tables that `score` writes, and among the columns that logs keep."""


@dataclass(frozen=True)
class ColumnRoles:
    """The column that a row reader takes each part of a round from, by the names that `read_logs` has for them."""

    context: tuple[str, ...]
    action: str
    reward: str
    propensity: str | None = None
    weight: str | None = None
    group: str | None = None
    time: str | None = None
    segment: str | None = None
    eligible: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all columns, each once."""
        return tuple(dict.fromkeys([*self.needed, *([] if self.segment is None else [self.segment])]))

    @property
    def needed(self) -> tuple[str, ...]:
        """The names of the columns in which no value may be missing: a round without a segment is still a round."""
        single = (self.action, self.reward, self.propensity, self.weight, self.group, self.time, self.eligible)
        return tuple(dict.fromkeys([*self.context, *(name for name in single if name is not None)]))


REASONS = {
    "missing": "missing value",
    "unknown": "unknown action",
    "immature": "too young",
    "counted": "already in the model",
}
"""Reasons why rows are left out, by their names in `DroppedRows`, in words."""


@dataclass(frozen=True)
class DroppedRows(Saved):
    """Rows that were left out, by reason, and those that stayed as something else.

    Attributes:
        missing: Rows that lack a value.
        unknown: Rows whose action is not in the catalog.
        immature: Rows that are too young.
        counted: Rows that were in an earlier fit or update.
        mapped: Rows that stayed: their action is not in the catalog, and counts as its "(other)".
        ahead: Rows that stayed: they are later than `now`, and count in full where older ones count less.
        spelled: An action that is not in the catalog, but for its spelling, as in "the log has '007', the catalog has
            '7'"; empty where there is none.
    """

    saved_as = "dropped"
    missing: int = 0
    unknown: int = 0
    immature: int = 0
    mapped: int = 0
    ahead: int = 0
    counted: int = 0
    spelled: str = ""

    def __add__(self, other: DroppedRows) -> DroppedRows:
        names = [part.name for part in fields(self) if part.name != "spelled"]
        counts = {name: getattr(self, name) + getattr(other, name) for name in names}
        return DroppedRows(**counts, spelled=self.spelled or other.spelled)

    @property
    def total(self) -> int:
        """The number of rows that were left out."""
        return self.missing + self.unknown + self.immature + self.counted

    def record(self) -> dict[str, Any]:
        """The counts as plain values, for JSON."""
        return {"dropped": {name: getattr(self, name) for name in REASONS}, "counted_as_other": self.mapped}

    def words(self) -> str:
        """The numbers of rows that were left out, by reason, as in "3 rows (missing value)"; empty where none was."""
        counts = ((getattr(self, name), reason) for name, reason in REASONS.items())
        return ", ".join(f"{count:,} row{'' if count == 1 else 's'} ({reason})" for count, reason in counts if count)


@dataclass(frozen=True)
class RowReader:
    """Makes rounds of the rows of a table, as `read_logs` was asked to; plain data, to be sent to other processes."""

    roles: ColumnRoles
    features: FeatureMap
    n_actions: int
    catalog: Catalog | None = None
    missing: Missing = "refuse"
    unknown: Unknown = "refuse"
    age: AgeRule | None = None
    written: frozenset[str] = frozenset()
    kept: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all columns that are read, each once."""
        return tuple(dict.fromkeys([*self.roles.columns, *self.kept]))

    def rounds(self, batch: pa.RecordBatch, memory: Memory | None = None) -> tuple[LoggedData, DroppedRows]:
        """The rounds of a batch, and the rows that were left out; `memory` is where contexts are to be written."""
        table, actions, decay, times, dropped = self._kept(batch)
        place = None if memory is None else memory(table.num_rows)
        contexts = self.features(table) if place is None else self.features.write(table, place)
        return self._logged(table, contexts, actions, decay, times), dropped

    def _kept(
        self, batch: pa.RecordBatch
    ) -> tuple[pa.Table, Int[Array, " n"], Float[Array, " n"] | None, pa.ChunkedArray | None, DroppedRows]:
        """The rows that become rounds, with their actions, weights by age and times, and the number of all others."""
        table, missing = complete_rows(batch, self.roles.needed, self.missing, self.columns)
        times = None if self.roles.time is None else _time_column(self.roles.time, column_of(table, self.roles.time))
        decay, mature, fresh, ahead = self._aged(times, table.num_rows)
        actions, known, spelled = self.actions_of(table)
        wanted = mature & fresh
        mapped = 0
        if self.unknown == "other" and self.catalog is not None:
            mapped = int(np.count_nonzero(~known & wanted))
            actions, known = np.where(known, actions, self.catalog.find([OTHER])[0]), np.ones_like(known)
        kept = known & wanted
        counts = (int(np.count_nonzero(rows)) for rows in (~known & wanted, ~mature & fresh, kept & ahead, ~fresh))
        unknown, immature, n_ahead, counted = counts
        dropped = DroppedRows(missing, unknown, immature, mapped, n_ahead, counted, spelled)
        if not kept.all():
            table, actions, decay = table.filter(kept), actions[kept], None if decay is None else decay[kept]
            times = None if times is None else times.filter(pa.array(kept))
            keep_rows(kept)
        return table, actions, decay, times, dropped

    def _logged(
        self,
        table: pa.Table,
        contexts: Float[Array, "n d"],
        actions: Int[Array, " n"],
        decay: Float[Array, " n"] | None,
        times: pa.ChunkedArray | None,
    ) -> LoggedData:
        def numbers(name: str | None) -> Float[Array, " n"] | None:
            return None if name is None else numbers_of(name, column_of(table, name))

        weights = numbers(self.roles.weight)
        if decay is not None:
            weights = decay if weights is None else weights * decay
        columns = dict(
            contexts=contexts,
            actions=actions,
            rewards=numbers_of(self.roles.reward, column_of(table, self.roles.reward)),
            propensities=as_propensities(numbers(self.roles.propensity), len(actions)),
            weights=None if weights is None else as_weights(weights, len(actions)),
            groups=None if self.roles.group is None else self._groups(column_of(table, self.roles.group)),
            times=None if times is None else _times(str(self.roles.time), times),
            segments=None if self.roles.segment is None else _labels(table.column(self.roles.segment)),
        )
        rounds = LoggedData.checked(columns, self.n_actions, self.features, self.catalog, self._kept_columns(table))
        if self.roles.eligible is not None:
            numbering, skip = ActionNumbering(self.n_actions, self.catalog), self.unknown != "refuse"
            candidates = column_of(table, self.roles.eligible)
            sets = numbering.sets_of(self.roles.eligible, candidates, row_name, skip_unknown=skip)
            rounds.eligible = check_candidates(sets, actions)
        return rounds

    def _kept_columns(self, table: pa.Table) -> pa.Table | None:
        """The rows as they are, with their numbers in the whole log unless a column has that name."""
        if not self.kept:
            return None
        named = table.select(list(self.columns))
        numbers = pa.array(row_numbers(table.num_rows))
        return named if ROW in self.columns else named.append_column(ROW, numbers)

    def actions_of(self, table: pa.Table) -> tuple[Int[Array, " n"], Bool[Array, " n"], str]:
        """Action numbers, a mask of the rows that have one, and in words an id that the catalog spells otherwise."""
        name = self.roles.action
        column, numbering = column_of(table, name), ActionNumbering(self.n_actions, self.catalog)
        numbered = numbering.of_column(name, column)
        if self.unknown == "refuse" and not numbered.known.all():
            raise numbering.unknown(
                name,
                column,
                numbered,
                'Put it there, or pass unknown="drop" or unknown="other".',
                "Put it there, or pass --unknown drop or --unknown other.",
            )
        return numbered.actions, numbered.known, numbered.spelling("the log")

    def _groups(self, column: pa.ChunkedArray) -> Int[Array, " n"]:
        """Ids of users or sessions as integers: texts by a digest, so that batches and machines agree without a list.

        In CSV files, an integer that is written exactly stays as it is.
        """
        if pa.types.is_integer(column.type):
            return column.to_numpy()
        codes, distinct = codes_of(column)
        exact = [integer_of(cast(str, text)) if self.roles.group in self.written else None for text in distinct]
        numbers = [
            int.from_bytes(blake2b(str(text).encode(), digest_size=7).digest(), "big")
            if number is None or number < 0
            else number
            for text, number in zip(distinct, exact, strict=True)
        ]
        return np.array(numbers, dtype=np.int64)[codes] if numbers else np.empty(0, dtype=np.int64)

    def _aged(
        self, times: pa.ChunkedArray | None, n_rows: int
    ) -> tuple[Any, Bool[Array, " n"], Bool[Array, " n"], Bool[Array, " n"]]:
        """The weight of each row, or None; masks of rows that are old enough, not counted before, later than now."""
        everyone = np.ones(n_rows, dtype=bool)
        if self.age is None or times is None:
            return None, everyone, everyone, ~everyone
        age = _ages(str(self.roles.time), times, self.age)
        mature = everyone if self.age.maturity is None else age >= self.age.maturity.total_seconds()
        fresh = everyone if self.age.after is None else age < seconds_between(self.age.after, self.age.now)
        decay = None
        if self.age.half_life is not None:
            decay = np.exp2(-np.maximum(age, 0.0) / self.age.half_life.total_seconds())
        return decay, mature, fresh, age < 0


def complete_rows(
    batch: pa.RecordBatch, columns: Sequence[str], missing: Missing, further: Sequence[str] = ()
) -> tuple[pa.Table, int]:
    """The rows of a batch that can be read as they lack no value, and the number of the others; NaN counts as missing.

    Columns in `further` are kept too, whether a value is missing there or not.
    """
    table = pa.Table.from_batches([batch]).select(list(dict.fromkeys((*columns, *further))))
    for place, column in enumerate(table.columns):
        if pa.types.is_dictionary(column.type) and any(chunk.dictionary.null_count for chunk in column.chunks):
            # A value may be missing in the dictionary as well as in the rows.
            table = table.set_column(place, table.column_names[place], column.cast(column.type.value_type))
    if missing == "refuse" and not any(table.column(name).null_count for name in columns):
        # Numbers are looked at one by one where they are used, and a NaN is refused there.
        return table, 0
    fine = np.ones(table.num_rows, dtype=bool)
    for name in columns:
        fine &= _present(table.column(name))
    if fine.all():
        return table, 0
    if missing == "refuse":
        row = int(np.argmin(fine))
        name = next(name for name in columns if not _present(table.column(name).slice(row, 1)).all())
        raise NonFiniteError(
            f"column {name} is missing in {row_name(row)}.",
            'Fill it in, or pass missing="drop".',
            flag_remedy="Fill it in, or pass --missing drop.",
        )
    keep_rows(fine)
    return table.filter(fine), int((~fine).sum())


def _labels(column: pa.ChunkedArray) -> Array:
    """The labels of a column as objects, None where one is missing; equal labels are one object."""
    present = column.is_valid().to_numpy()
    codes, levels = codes_of(column.drop_null())
    labels = np.full(len(column), None, dtype=object)
    labels[present] = np.array([*levels, None], dtype=object)[codes]
    return labels


def _present(column: pa.ChunkedArray) -> Bool[Array, " n"]:
    if pa.types.is_floating(column.type):
        return ~np.isnan(column.to_numpy())
    return np.ones(len(column), dtype=bool) if column.null_count == 0 else column.is_valid().to_numpy()


def _ages(name: str, column: pa.ChunkedArray, age: AgeRule) -> Float[Array, " n"]:
    """Ages in seconds, counted back from `age.now`."""
    if not _is_time(column.type):
        raise DataTypeError(
            f"must hold times to count ages; its type is {column.type}.",
            "Convert the numbers to timestamps, or leave out half_life and maturity.",
            argument=f"column {name}",
            flag_remedy="Convert the numbers to timestamps, or leave out --half-life and --maturity.",
        )
    zone, now = getattr(column.type, "tz", None), age.now
    if zone is None and age.by_clock:
        now = local_time(now)
    if zone is not None and now.tzinfo is None:
        raise InputError(
            f"must have a time zone, as column {name} has ({zone}); got {now.isoformat()}.",
            f"Write it with one, as in {now.isoformat()}+00:00.",
            argument="now",
        )
    if zone is None and now.tzinfo is not None:
        raise InputError(
            f"must have no time zone, as column {name} has none; it is {now.isoformat(timespec='seconds')}.",
            "Write it by the clock of the column, as in 2024-05-01T03:00:00.",
            argument="now",
        )
    moments = column.cast(pa.timestamp("us", tz=zone), safe=False).to_numpy().astype("datetime64[us]")
    plain = now.astimezone(UTC).replace(tzinfo=None) if now.tzinfo else now
    return (np.datetime64(plain, "us") - moments) / np.timedelta64(1, "s")


def _is_time(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) or pa.types.is_date(kind)


def _time_column(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of timestamps, dates or numbers: texts are parsed, and other types refused."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _parsed_times(name, column)
    if not (_is_time(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise DataTypeError(
            f"must hold times; its type is {kind}.",
            "Convert it to timestamps, dates, or numbers that increase with time.",
            argument=f"column {name}",
        )
    return column


def _times(name: str, column: pa.ChunkedArray) -> Shaped[Array, " n"]:
    """The values of a column of times as `LoggedData` holds them: datetime64, in UTC if there is a zone, or numbers."""
    return column.to_numpy() if _is_time(column.type) else whole_numbers_of(name, column)


def _parsed_times(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times written as texts, as in 2024-05-01 09:30:00+02:00, all with an offset or all without."""
    for zone in ("UTC", None):
        try:
            return column.cast(pa.timestamp("us", tz=zone))
        except pa.ArrowInvalid as problem:
            reason = problem
    raise DataTypeError(
        f"must hold times: {str(reason).rstrip('.')}.",
        "Write them as in 2024-05-01 09:30:00, all with an offset such as +02:00 or all without.",
        argument=f"column {name}",
    )
