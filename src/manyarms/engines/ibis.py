"""Statistics summed up by a database: a GROUP BY over the rounds, of which only the sums travel."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from manyarms._base.arrow import pa
from manyarms._base.checks import Array
from manyarms.core import OTHER, Statistics
from manyarms.core.logged_data import Logs
from manyarms.core.statistics import ActionRows, ActionSums
from manyarms.engines.engine import Answer, Engine, OneShard, Result, Shards, Task, Work, pass_over
from manyarms.errors import ActionError, EngineError, InputError, NonFiniteError, PropensityError, RangeError
from manyarms.linalg.indexing import group_by
from manyarms.logs.log_stream import LogStream
from manyarms.logs.row_reader import DroppedRows, RowReader
from manyarms.logs.sources import Source
from manyarms.logs.warehouse_features import can_be_computed, with_features
from manyarms.logs.warehouse_table import Expression, WarehouseTable

MOST_SUMS = 1_200
"""Sums per query: PostgreSQL allows 1,664 columns."""


class Ibis(Engine):
    """The engine of rounds in a database. The local engine hands them over to it, so nobody has to ask for it.

    Gaussian rewards need sums per action alone, and the database computes them: (seen actions) x (d + 1)(d + 2) / 2
    numbers travel. Other rewards, rounds that count by age, and maps of more than 100 features need the rounds
    themselves, which are then read in batches.
    """

    def total(self, logs: Logs, task: Task[Answer]) -> Answer:
        if not isinstance(logs, LogStream) or not isinstance(logs.source, WarehouseTable):
            raise InputError(
                'is "ibis", and the logs are not in a database.',
                'Pass an Ibis table to read_logs, or leave engine="local".',
                argument="engine",
                flag_remedy="Name a database table with --logs, or leave --engine out.",
            )
        if not task.takes_statistics or logs.reader.age is not None or not can_be_computed(logs.features):
            return pass_over(logs, task)
        statistics, dropped = warehouse_statistics(logs.source, logs.reader)
        logs.note_dropped(dropped)
        return task.of_statistics(statistics)

    def each(self, source: Source, work: Work[Result]) -> list[Result]:
        return [work(source)]

    @contextmanager
    def sharded(self, logs: Logs, task: Task[Answer]) -> Generator[Shards[Answer]]:
        yield OneShard(self.total(logs, task))


def warehouse_statistics(source: WarehouseTable, reader: RowReader) -> tuple[Statistics, DroppedRows]:
    """The statistics of all rounds, as sums that the database computes, and the rows that were left out."""
    roles = reader.roles
    rows, missing = source.complete(roles.needed, reader.missing)
    facts = _facts(rows, reader)
    if roles.weight is not None:
        weight = rows.table[roles.weight].cast("float64")
        rows = WarehouseTable(rows.table.filter(weight > 0))
    # Sums about the mean reward keep the digits of the noise; a column of ones is needed to undo the shift.
    centre = facts["mean"] if reader.features.intercept else 0.0
    with rows.without_compiler():
        ids, counts, packed = _sums_by_action(rows, reader, centre)
    actions, kept, dropped = _numbered(ids, counts, reader)
    dropped = replace(dropped, missing=missing)
    squares = _unpacked(packed[kept], reader.features.dim + 1)
    sums = _by_action(actions[kept], squares, centre)
    rows_kept = ActionRows(np.empty(0, dtype=np.int64), np.empty((0, reader.features.dim + 1)))
    n_rounds = int(counts[kept].sum())
    total = float(n_rounds) if roles.weight is None else float(packed[kept][:, -1].sum())
    whole = bool(facts["whole"])
    return Statistics(reader.n_actions, reader.features.dim, n_rounds, total, rows_kept, sums, whole), dropped


def _facts(rows: WarehouseTable, reader: RowReader) -> dict[str, Any]:
    """The mean reward, and whether weights are whole numbers. Values that no round may have are refused."""
    table, roles = rows.table, reader.roles
    reward = table[roles.reward].cast("float64")
    query: dict[str, Expression] = {"mean": reward.mean(), "n": table.count()}
    if roles.propensity is not None:
        propensity = table[roles.propensity].cast("float64")
        query["improbable"] = ((propensity <= 0) | (propensity > 1)).ifelse(1, 0).sum()
    if roles.weight is not None:
        weight = table[roles.weight].cast("float64")
        query |= {
            "negative": (weight < 0).ifelse(1, 0).sum(),
            "huge": (weight >= 1e100).ifelse(1, 0).sum(),
            "broken": (weight != weight.round().cast("float64")).ifelse(1, 0).sum(),
        }
    facts = rows.ask(table.aggregate(**query)).to_pylist()[0]
    if facts["n"] and not np.isfinite(facts["mean"]):
        problem = f"has a value that is not finite; the mean of column {roles.reward} is {facts['mean']}."
        raise NonFiniteError(problem, "Leave such rows out first.", argument=f"column {roles.reward}")
    for fact, kind, column, problem in (
        ("improbable", PropensityError, roles.propensity, "must lie in (0, 1]"),
        ("negative", RangeError, roles.weight, "must not be negative"),
        ("huge", RangeError, roles.weight, "must be below 1e100"),
    ):
        if facts.get(fact):
            raise kind(f"{problem}; {facts[fact]:,} rows are not so.", "Correct them.", argument=f"column {column}")
    return {"mean": float(facts["mean"] or 0.0), "whole": not facts.get("broken")}


def _sums_by_action(
    rows: WarehouseTable, reader: RowReader, centre: float
) -> tuple[pa.ChunkedArray, Int[Array, " m"], Float[Array, "m s"]]:
    """The action ids of the log, their counts, and Σ w z zᵀ of z = (φ, r - centre), packed, with Σ w last."""
    roles = reader.roles
    table, names = with_features(rows.table, reader.features)
    weight = None if roles.weight is None else table[roles.weight].cast("float64")
    values = [*(table[name] for name in names), table[roles.reward].cast("float64") - centre]
    named = {f"z{place}": value for place, value in enumerate(values)}
    table = table.select(action=table[roles.action], **named, **({} if weight is None else {"w": weight}))
    left, right = np.triu_indices(len(values))
    sums = [
        (f"s{place}", table[f"z{i}"] * table[f"z{j}"] if weight is None else table[f"z{i}"] * table[f"z{j}"] * table.w)
        for place, (i, j) in enumerate(zip(left, right, strict=True))
    ]
    if weight is not None:
        sums.append((f"s{len(sums)}", table.w))
    parts = list[Float[Array, "m s"]]()
    first: pa.Table | None = None
    for start in range(0, len(sums), MOST_SUMS):
        chosen = {name: product.sum() for name, product in sums[start : start + MOST_SUMS]}
        answer = rows.ask(table.group_by("action").aggregate(n=table.count(), **chosen)).sort_by("action")
        if first is not None and not (answer["action"].equals(first["action"]) and answer["n"].equals(first["n"])):
            raise EngineError("the table changed while it was read.", "Read a snapshot of it, or try again.")
        first = answer if first is None else first
        parts.append(np.column_stack([answer[name].to_numpy().astype(np.float64) for name in chosen]))
    assert first is not None
    packed = np.hstack(parts)
    if not np.isfinite(packed).all():
        raise NonFiniteError("the sums of features and rewards overflow.", "Rescale rewards and context columns.")
    return first["action"], first["n"].to_numpy().astype(np.int64), packed


def _numbered(
    ids: pa.ChunkedArray, counts: Int[Array, " m"], reader: RowReader
) -> tuple[Int[Array, " m"], Bool[Array, " m"], DroppedRows]:
    """The action number of each id, a mask of those that are in the catalog, and the rows of the others."""
    name = reader.roles.action
    actions, known, spelled = replace(reader, unknown="drop").actions_of(pa.table({name: ids}))
    strangers = int(counts[~known].sum())
    if strangers and reader.unknown == "refuse":
        stranger = ids[int(np.argmin(known))].as_py()
        raise ActionError(
            f"{strangers:,} rows have an action in column {name} that is not in the catalog of {reader.n_actions:,} "
            f"actions; {stranger!r} is one."
            + (f" Ids are compared as they are written: {spelled}." if spelled else ""),
            'Put it there, or pass unknown="drop" or unknown="other".',
            flag_remedy="Put it there, or pass --unknown drop or --unknown other.",
        )
    if reader.unknown == "other" and reader.catalog is not None:
        actions = np.where(known, actions, reader.catalog.find([OTHER])[0])
        return actions, np.ones_like(known), DroppedRows(mapped=strangers, spelled=spelled)
    return actions, known, DroppedRows(unknown=strangers, spelled=spelled)


def _unpacked(packed: Float[Array, "m s"], width: int) -> Float[Array, "m e e"]:
    """Symmetric matrices from their upper triangles."""
    left, right = np.triu_indices(width)
    out = np.empty((len(packed), width, width))
    out[:, left, right] = out[:, right, left] = packed[:, : len(left)]
    return out


def _by_action(actions: Int[Array, " m"], squares: Float[Array, "m e e"], centre: float) -> ActionSums:
    """Sums of ascending actions, ids of one action added up, with the shift of rewards by `centre` undone."""
    groups = group_by(actions)
    starts = np.concatenate([[0], np.cumsum(groups.counts)[:-1]]).astype(np.int64)
    squares = np.add.reduceat(squares[groups.order], starts) if len(actions) else squares
    e = squares.shape[2]
    about = np.zeros((len(squares), 2, e))
    # Weights (centre, 0, ..., 0): the first feature is one.
    about[:, 0, 0], about[:, 0, -1] = centre, 1.0
    about[:, 1] = squares[:, :, -1]
    if centre:
        moment, total = squares[:, :-1, -1].copy(), squares[:, -1, -1].copy()
        shifted = moment + centre * squares[:, :-1, 0]
        squares[:, :-1, -1] = squares[:, -1, :-1] = shifted
        squares[:, -1, -1] = total + centre * (moment[:, 0] + shifted[:, 0])
    return ActionSums(groups.keys, squares, about)
