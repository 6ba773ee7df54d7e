"""Logs larger than memory, read batch by batch, again for every pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from manyarms._base.arrow import pa
from manyarms._base.checks import as_count
from manyarms._base.row_numbers import rows_from
from manyarms.core import FeatureMap, Fingerprint, LoggedData
from manyarms.core.feature_map import StackedMap
from manyarms.core.logged_data import COLUMNS
from manyarms.errors import InputError
from manyarms.logs.age_rule import AgeRule
from manyarms.logs.row_reader import DroppedRows, Memory, RowReader
from manyarms.logs.sources import Source

IN_MEMORY = (
    *COLUMNS, "eligible", "frame", "logging_policy", "rows", "split", "table", "take", "with_eligible", "with_rewards",
    "with_segments",
)  # fmt: skip
"""Columns and methods of `LoggedData` that need all rounds at once."""
BATCH = 1 << 15
"""Rows that are read at a time by default: a few megabytes, which are soon used again."""


class LogStream:
    """Rounds that are read when they are needed; it can take the place of `LoggedData` wherever batches are consumed.

    It also has the columns and methods of `LoggedData`, such as `rewards` and `split`. The first use of one reads all
    rounds into memory, as `collect` does, and keeps them there.

    Attributes:
        source: The rows.
        reader: Makes rounds of them.
        n_actions: K.
        features: The map from context columns to φ(x).
        dim: d.
        catalog: The map from ids to action numbers.
    """

    def __init__(self, source: Source, reader: RowReader):
        self.source, self.reader = source, reader
        self.n_actions, self.catalog = reader.n_actions, reader.catalog
        self.features, self.dim = reader.features, reader.features.dim
        self._dropped: DroppedRows | None = None
        self._held: LoggedData | None = None

    def __getattr__(self, name: str) -> Any:
        # Python asks for this only if there is no such attribute here.
        if name not in IN_MEMORY:
            raise AttributeError(f"'LogStream' object has no attribute {name!r}", name=name, obj=self)
        return getattr(self._rounds(), name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *IN_MEMORY})

    def __len__(self) -> int:
        return len(self._rounds())

    def __bool__(self) -> bool:
        return True  # a question of whether there are logs at all does not read them

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_held": None}

    def _rounds(self) -> LoggedData:
        if self._held is None:
            self._held = self.collect()
        return self._held

    @property
    def action_column(self) -> str:
        """The column of the actions."""
        return self.reader.roles.action

    @property
    def fingerprint(self) -> Fingerprint:
        """The fingerprint of these rounds: all of the files as they are now, or the rounds after some time."""
        after = None if self.reader.age is None else self.reader.age.after
        known = self.source.identity if after is None else f"{self.source.identity} after {after.isoformat()}"
        return Fingerprint(blake2b(known.encode(), digest_size=16).hexdigest(), 1)

    @property
    def dropped(self) -> DroppedRows:
        """The number of rows left out, by reason; known after a pass over all of them."""
        if self._dropped is None:
            raise InputError("rows that are left out are counted while reading.", "Read batches() to the end first.")
        return self._dropped

    def __repr__(self) -> str:
        return f"LogStream({self.n_actions:,} actions, d={self.dim}, context {', '.join(self.features.columns)})"

    def batches(self, size: int = BATCH, memory: Memory | None = None) -> Iterator[LoggedData]:
        """The rounds in order, at most `size` at a time. Errors raised on the way count rows from the first of all.

        Contexts are written to what `memory` gives for so many rounds, where it gives something.
        """
        first, dropped = self.source.first_row, DroppedRows()
        for batch in self.source.batches(self.reader.columns, as_count("size", size)):
            with rows_from(first, self.source.place_of):
                rounds, left_out = self.reader.rounds(batch, memory)
                dropped += left_out
                if len(rounds):
                    yield rounds
            first += batch.num_rows
        self.note_dropped(dropped)
        # Arrow keeps memory for the next batch: after the last one, others need it more.
        pa.default_memory_pool().release_unused()

    def part(self, files: Sequence[Path], after: datetime | None) -> LogStream:
        """The rounds of some of the files, those later than a time where one is given."""
        reader, source = self.reader, self.source.only(files)
        if after is None:
            return LogStream(source, reader)
        if reader.roles.time is None:
            raise InputError(
                f"the model has the rounds of {files[0]} up to {after}, and only times tell which ones are later.",
                'Name the column of times, as in read_logs(..., time="at").',
                flag_remedy="Name the column of times with --time.",
            )
        age = reader.age or AgeRule(datetime.now().astimezone(), by_clock=True)
        return LogStream(source, replace(reader, age=replace(age, after=after)))

    def also_through(self, maps: Sequence[FeatureMap]) -> LogStream:
        """These rounds, read through further feature maps at once, such as those of a `ColumnPolicy`."""
        own = self.features.maps if isinstance(self.features, StackedMap) else [self.features]
        features = StackedMap([*own, *maps])
        self.source.need(features.columns)
        roles = replace(self.reader.roles, context=features.columns)
        labels = [name for name in (roles.action, roles.group, *features.categories) if name is not None]
        source = self.source.with_labels(labels, roles.context)
        return LogStream(source, replace(self.reader, roles=roles, features=features, written=source.written))

    def ageless(self) -> LogStream:
        """These rounds, all at full weight whatever their age."""
        age = self.reader.age
        if age is None or age.half_life is None:
            return self
        return LogStream(self.source, replace(self.reader, age=replace(age, half_life=None)))

    def note_dropped(self, dropped: DroppedRows) -> None:
        """Keep the count of rows that a full pass, here or in other processes, has left out."""
        self._dropped = dropped

    def collect(self) -> LoggedData:
        """All rounds in memory at once."""
        rounds = joined(list(self.batches()), self)
        rounds.dropped = self.dropped
        return rounds


def joined(parts: list[LoggedData], stream: LogStream) -> LoggedData:
    """The batches of a stream as one log."""
    if not parts:
        return LoggedData(
            np.empty((0, stream.dim)), np.empty(0, dtype=np.int64), np.empty(0), n_actions=stream.n_actions,
            features=stream.features, catalog=stream.catalog,
        )  # fmt: skip
    columns: dict[str, Any] = {
        name: None if getattr(parts[0], name) is None else np.concatenate([getattr(part, name) for part in parts])
        for name in COLUMNS
    }
    logs = LoggedData(**columns, n_actions=stream.n_actions, features=stream.features, catalog=stream.catalog)
    logs.action_column = stream.action_column
    if parts[0].eligible is not None:
        logs.eligible = sparse.csr_array(sparse.vstack([part.eligible for part in parts]))
    tables = [part.table for part in parts]
    return logs.keeping(pa.concat_tables(tables), stream.source.library) if stream.reader.kept else logs
