"""The best actions for every context of a file, batch by batch into another file, or piece by piece into a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
from jaxtyping import Int

from manyarms._base.arrow import csv, pa, parquet_table, pq
from manyarms._base.checks import Array, as_count, as_instance, as_names, as_path, as_text, check_choice
from manyarms._base.files import replacing, write_failure
from manyarms._base.job_options import Missing
from manyarms._base.progress import Progress, reporter
from manyarms._base.row_numbers import numbered_row, rows_from
from manyarms.core import FeatureMap, Policy, Tabular, as_arrow, as_contexts, html_facts
from manyarms.core.action_numbering import ActionNumbering
from manyarms.engines import Engine, Local, as_engine
from manyarms.errors import DataFileError, InputError
from manyarms.logs.row_reader import complete_rows
from manyarms.logs.sources import Source, as_source, refuse_overwriting
from manyarms.model_file.load import load
from manyarms.policies import Greedy
from manyarms.posterior.posterior import Posterior

COLUMNS = ("row", "rank", "action", "expected_reward", "reward_std")
"""What the output has beside the columns that are passed through."""

ROWS = 1 << 15
"""Contexts that are scored at a time."""

_NUMBER = "__row__"
_Batch = tuple[int, int, "pa.Table | None"]
"""Some contexts, scored: how many were read, how many of them were left out, and the actions of the others."""


@dataclass(frozen=True)
class ScoreResult(Tabular):
    """The outcome of `score`.

    Attributes:
        path: The file that was written, or the folder of the parts.
        n_contexts: The number of contexts that were scored.
        n_rows: The number of rows that were written: up to k for each context.
        n_dropped: The number of contexts that were left out because a value was missing.
    """

    path: Path
    n_contexts: int
    n_rows: int
    n_dropped: int

    def record(self) -> dict[str, Any]:
        """The counts as plain values, for JSON."""
        counts = {"contexts": self.n_contexts, "rows": self.n_rows, "dropped": {"missing": self.n_dropped}}
        return {"out": str(self.path), **counts}

    def records(self) -> list[dict[str, Any]]:
        """The rows that were written, read back."""
        return self.to_arrow().to_pylist()

    def _repr_html_(self) -> str:
        # Not the rows: there may be too many to read back.
        facts = {"contexts": self.n_contexts, "rows": self.n_rows, "left out": self.n_dropped}
        return html_facts(str(self.path), facts)

    def to_arrow(self, **options: Any) -> pa.Table:
        """All that was written, read back into memory."""
        return csv.read_csv(self.path) if self.path.suffix.lower() == ".csv" else parquet_table(self.path)


def score(
    model: Posterior | Policy | str | os.PathLike[str],
    contexts: Any,
    out: str | os.PathLike[str],
    *,
    top_k: int = 1,
    keep: Sequence[str] = (),
    eligible: str | None = None,
    missing: Missing = "refuse",
    progress: Progress = False,
    engine: Engine | str | None = None,
) -> ScoreResult:
    """Write the k best actions of every context to a Parquet or CSV file, whatever the number of rows.

    The file has a row for each context and rank: the columns kept, `row` (the number of the context, from 0), `rank`
    (from 1), `action` (its id where there is a catalog, else its number), `expected_reward`, and `reward_std`, its
    posterior standard deviation; both are missing where the policy has no posterior. The file is written beside its
    place and renamed when it is complete.

    An engine other than "local" writes a folder with a file for each piece of the contexts, named so that the files in
    order have the rows in order. Each file is there whole or not at all, and a piece that is done twice, because a
    process died, is the same file. In the end, files that an earlier run has left behind are removed.

    Args:
        model: A posterior, for the actions with the highest expected reward; a policy, for its own ranking; or the file
            of either.
        contexts: A table or files with the columns of the model's feature map; see `read_logs`.
        out: The file to write, in CSV if it ends in .csv, else in Parquet; an existing file is replaced. Or the folder
            of parts, which all processes of the engine must be able to write to.
        top_k: The number of actions for each context.
        keep: Columns to copy to the output, such as a user id.
        eligible: A column with a list of the actions that may be chosen in each row; None for all actions everywhere.
        missing: "refuse" a row that lacks a value, or "drop" it.
        progress: True shows how many rows are done; a function is called as progress(rows done, rows in all or 0). Only
            for the engine "local".
        engine: Where contexts are scored: "local" (the default), "dask", "spark", or an engine with options of its own.
    """
    check_choice("missing", missing, get_args(Missing))
    policy, posterior = policy_to_score(load(model) if isinstance(model, str | os.PathLike) else model)
    features, path, source, where = _map_of(policy), as_path("out", out), as_source(contexts), as_engine(engine)
    kept = tuple(as_text("keep", name) for name in as_names("keep", keep))
    source.need([*features.columns, *kept, *([] if eligible is None else [eligible])])
    source = source.with_labels(features.categories, features.columns)
    if path.suffix.lower() in (".gz", ".arrow", ".feather"):
        problem = f"must end in .parquet or .csv, since scores are written as Parquet or CSV; got {path}."
        raise InputError(problem, argument="out")
    taken = [name for name in kept if name in (*COLUMNS, _NUMBER)]
    if taken:
        problem = f"names {taken[0]!r}, which is a column of the output itself."
        raise InputError(problem, "Rename it first.", argument="keep")
    ids = pa.array(np.arange(policy.n_actions)) if policy.catalog is None else as_arrow(policy.catalog.ids.tolist())
    work = _Scoring(
        policy, features, posterior, ids, as_count("top_k", top_k), kept, eligible, missing,
    )  # fmt: skip
    if work.top_k > policy.n_actions:
        raise InputError(f"must be at most the {policy.n_actions} actions there are; got {top_k}.", argument="top_k")
    refuse_overwriting(path, source, model)
    if not isinstance(where, Local):
        return _in_parts(work, source, path, where)
    if path.is_dir():
        raise InputError(
            f"{path} is a folder, but the local engine writes a single file.",
            "Pass another path, or remove it.",
        )
    with reporter(progress, source.n_rows or 0, "scoring") as report:
        result = _write(path, work.batches(source), lambda done: report(done, source.n_rows or 0))
    return _not_empty(result)


def policy_to_score(model: Posterior | Policy) -> tuple[Policy, Posterior | None]:
    """The policy that a model stands for in a scoring job, and the posterior that gives the expected rewards, if any.

    Raises:
        InputError: If the policy has choices for particular rows only.
    """
    policy = model if isinstance(model, Policy) else Greedy(model)
    if policy.n_rows is not None:
        raise InputError(f"{policy!r} has no choices for other rows.")
    # Of a policy that follows another one, the posterior is that of the other.
    posterior = getattr(getattr(policy, "policy", policy), "posterior", None)
    return policy, posterior if isinstance(posterior, Posterior) else None


def _not_empty(result: ScoreResult) -> ScoreResult:
    if not result.n_contexts:
        raise InputError("there are no rows to score.")
    return result


def _in_parts(work: _Scoring, source: Source, folder: Path, engine: Engine) -> ScoreResult:
    """A file for each piece of the contexts."""
    if folder.is_file():
        raise InputError(
            f"{folder} is a file, and several processes write a folder of files.", "Pass another path, or remove it."
        )
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Other processes may be in other folders.
        results = engine.each(source, partial(_write_part, work, folder.absolute()))
        sums = (sum(getattr(part, name) for part in results) for name in ("n_contexts", "n_rows", "n_dropped"))
        total = _not_empty(ScoreResult(folder, *sums))
    except BaseException:
        # Folders that were made for this go again when nothing has come into them.
        with suppress(OSError):
            for place in made:
                place.rmdir()
        raise
    written = {part.path.name for part in results if part.n_contexts}
    for old in folder.glob("part-*.parquet"):
        if old.name not in written and re.fullmatch(r"part-\d{15}\.parquet", old.name):
            old.unlink()
    return total


def _write_part(work: _Scoring, folder: Path, piece: Source) -> ScoreResult:
    """Score a piece into a file that is named by its first row, so that names are in the order of rows."""
    return _write(folder / f"part-{piece.first_row:015d}.parquet", work.batches(piece))


def _write(path: Path, batches: Iterator[_Batch], report: Callable[[int], None] = lambda done: None) -> ScoreResult:
    """Write all batches into one file, which appears when it is complete; no file where no context is left."""
    n_read = n_rows = n_dropped = 0
    try:
        with ExitStack() as open_files:
            writer = None
            for rows, dropped, table in batches:
                if table is not None:
                    if writer is None:
                        file = open_files.enter_context(replacing(path))
                        kind: Any = csv.CSVWriter if path.suffix.lower() == ".csv" else pq.ParquetWriter
                        writer = open_files.enter_context(kind(file, table.schema))
                    writer.write_table(table)
                    n_rows += table.num_rows
                n_read, n_dropped = n_read + rows, n_dropped + dropped
                report(n_read)
    except OSError as problem:
        # Sources name the files that cannot be read themselves.
        raise DataFileError(*write_failure(path, problem)) from problem
    return ScoreResult(path, n_read - n_dropped, n_rows, n_dropped)


@dataclass(frozen=True)
class _Scoring:
    """From batches of contexts to tables of actions; plain data, so that it travels to other processes."""

    policy: Policy
    features: FeatureMap
    posterior: Posterior | None
    ids: pa.Array
    top_k: int
    keep: tuple[str, ...]
    eligible: str | None
    missing: Missing

    def batches(self, source: Source) -> Iterator[_Batch]:
        """The contexts of a source, or of a piece of one, and their actions."""
        more = [] if self.eligible is None else [self.eligible]
        names = list(dict.fromkeys((*self.features.columns, *self.keep, *more)))
        first = source.first_row
        for batch in source.batches(names, ROWS):
            numbered = batch.append_column(_NUMBER, pa.array(np.arange(first, first + batch.num_rows)))
            table = pa.Table.from_batches([batch])
            with rows_from(first, source.place_of):
                # Other columns than features may lack a value.
                kept, dropped = complete_rows(numbered, [*self.features.columns, _NUMBER], self.missing)
                rows = kept[_NUMBER].to_numpy()
                table = table.take(rows - first) if dropped else table
                yield batch.num_rows, dropped, self._scored(table, rows) if table.num_rows else None
            first += batch.num_rows

    def _scored(self, table: pa.Table, rows: Int[Array, " n"]) -> pa.Table:
        x = as_contexts(table, self.features)
        allowed = None
        if self.eligible is not None:
            numbering = ActionNumbering(self.policy.n_actions, self.policy.catalog)
            allowed = numbering.sets_of(self.eligible, table[self.eligible], lambda row: numbered_row(rows[row]))
        best = self.policy.top_k(x, self.top_k, eligible=allowed)
        which, rank = np.nonzero(best >= 0)
        actions = best[which, rank]
        reward = std = pa.nulls(len(actions), pa.float64())
        if self.posterior is not None:
            reward = self.posterior.expected_reward(x[which], actions)
            std = self.posterior.reward_std(x[which], actions)
        return pa.table(
            {
                **{name: table[name].take(which) for name in self.keep},
                "row": rows[which],
                "rank": (rank + 1).astype(np.int32),
                "action": self.ids.take(actions),
                "expected_reward": reward,
                "reward_std": std,
            }
        )


def _map_of(policy: Policy) -> FeatureMap:
    if policy.features is None:
        raise InputError(
            f"{type(policy).__name__} has no feature map, so columns cannot be read.",
            "Score a policy or a posterior made from logs that ma.read_logs read.",
            flag_remedy="Score a file that `manyarms fit` or `manyarms learn` wrote.",
        )
    return as_instance("features", policy.features, FeatureMap, "a FeatureMap")
