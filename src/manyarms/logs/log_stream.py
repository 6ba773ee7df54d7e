"""Logs bigger than memory: read batch by batch, again for every pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b

from manyarms._base.checks import as_count, rows_from
from manyarms.core.catalog import Catalog
from manyarms.core.feature_map import FeatureMap
from manyarms.core.fingerprint import Fingerprint
from manyarms.core.logged_data import LoggedData
from manyarms.errors import InputError
from manyarms.logs.row_reader import DroppedRows, RowReader
from manyarms.logs.sources import Source, give_back_memory

BATCH = 1 << 15
"""Rows that are read at a time unless something else is asked for: a few megabytes, which are soon used again."""


class LogStream:
    """Rounds that are read when they are needed. What consumes logs by `batches()` takes it in place of `LoggedData`.

    Args:
        source: Where rows come from.
        reader: How they become rounds.
    """

    def __init__(self, source: Source, reader: RowReader):
        self.source, self.reader = source, reader
        self.n_actions = reader.n_actions
        self._dropped: DroppedRows | None = None

    @property
    def fingerprint(self) -> Fingerprint:
        """Which rounds these are: all of these files as they are now, or those in them after some time."""
        after = None if self.reader.age is None else self.reader.age.after
        known = self.source.identity if after is None else f"{self.source.identity} after {after.isoformat()}"
        return Fingerprint(blake2b(known.encode(), digest_size=16).hexdigest(), 1)

    @property
    def dim(self) -> int:
        """d."""
        return self.reader.features.dim

    @property
    def features(self) -> FeatureMap:
        """From context columns to φ(x)."""
        return self.reader.features

    @property
    def catalog(self) -> Catalog | None:
        """From ids to action numbers."""
        return self.reader.catalog

    @property
    def dropped(self) -> DroppedRows:
        """How many rows were left out, and why; known after a pass over all of them."""
        if self._dropped is None:
            raise InputError("rows that are left out are counted while reading: go through batches() to the end first.")
        return self._dropped

    def __repr__(self) -> str:
        return f"LogStream({self.n_actions:,} actions, d={self.dim}, context {', '.join(self.features.columns)})"

    def batches(self, size: int = BATCH) -> Iterator[LoggedData]:
        """The rounds in order, at most `size` at a time. Errors raised on the way count rows from the first of all."""
        first, dropped = self.source.first_row, DroppedRows()
        for batch in self.source.batches(self.reader.roles.columns, as_count("size", size)):
            with rows_from(first, self.source.place_of):
                rounds, left_out = self.reader.rounds(batch)
                dropped += left_out
                if len(rounds):
                    yield rounds
            first += batch.num_rows
        self.note_dropped(dropped)
        give_back_memory()

    def ageless(self) -> LogStream:
        """The same rounds, all at full weight whatever their age."""
        age = self.reader.age
        if age is None or age.half_life is None:
            return self
        return LogStream(self.source, replace(self.reader, age=replace(age, half_life=None)))

    def note_dropped(self, dropped: DroppedRows) -> None:
        """What a pass over all rows, here or elsewhere, has left out."""
        self._dropped = dropped

    def collect(self) -> LoggedData:
        """All rounds in memory at once."""
        return joined(list(self.batches()), self)


def joined(parts: list[LoggedData], stream: LogStream) -> LoggedData:
    """Several logs of one stream as one."""
    import numpy as np  # noqa: PLC0415

    if not parts:
        return LoggedData(
            np.empty((0, stream.dim)), np.empty(0, dtype=np.int64), np.empty(0), n_actions=stream.n_actions,
            features=stream.features, catalog=stream.catalog,
        )  # fmt: skip
    columns = {
        name: None if getattr(parts[0], name) is None else np.concatenate([getattr(part, name) for part in parts])
        for name in ("contexts", "actions", "rewards", "propensities", "weights", "groups")
    }
    return LoggedData(
        columns["contexts"], columns["actions"], columns["rewards"], columns["propensities"], stream.n_actions,
        weights=columns["weights"], groups=columns["groups"], features=stream.features, catalog=stream.catalog,
    )  # fmt: skip
