"""Files that a model has learned from: which of their rounds are new to it, and as of when rounds were weighed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from manyarms.core import Fingerprint, LoggedData, Logs
from manyarms.engines import LOCAL, Engine, as_engine
from manyarms.errors import InputError
from manyarms.likelihoods import Likelihood
from manyarms.logs.log_stream import LogStream, joined
from manyarms.logs.warehouse_table import WarehouseTable

if TYPE_CHECKING:
    from manyarms.posterior.reward_posterior import RewardPosterior

MAX_HELD = 1 << 26
"""Most numbers of a stream that are held in memory (half a gigabyte)."""


def new_rounds(stream: LogStream, learned_from: Sequence[Fingerprint]) -> Iterator[LogStream]:
    """The rounds of a stream that a model has not seen, as one stream for the files it has seen equally much of.

    A file is known by its content, wherever it lies. Where a maturity left out the young rounds of a file, those rounds
    are new; such a file is known by its path too, since it may be written again when their rewards come in.

    Raises:
        InputError: Naming a file that the model has seen in full.
    """
    known = _by_origin_and_path(learned_from)
    if isinstance(stream.source, WarehouseTable) and stream.source.fingerprints[0].origin in known:
        raise InputError(
            "the model has seen this database table already: its rounds would count twice.",
            "Pass the new rows only, as in table.filter(...), or count all again with allow_repeats=True.",
            flag_remedy="Name a view of the new rows only, or count all again with --allow-repeats.",
        )
    fingerprints = stream.source.fingerprints if stream.source.files else ()
    bounds = dict[Path, str | None]()
    for file, fingerprint in zip(stream.source.files, fingerprints, strict=True):
        earlier = known.get(fingerprint.origin) or known.get(fingerprint.path or "")
        if earlier is not None and earlier.until is None:
            raise InputError(
                f"the model has seen {file} already: its rounds would count twice.",
                "Name new files only, or count them again with allow_repeats=True.",
                flag_remedy="Name new files only, or count them again with --allow-repeats.",
            )
        # The time up to which the model has the rounds of the file; None where it has none of them.
        bounds[file] = None if earlier is None else earlier.until
    if not any(bounds.values()):
        yield stream
        return
    ordered = sorted(bounds, key=lambda file: bounds[file] or "")
    for moment, files in groupby(ordered, key=bounds.__getitem__):
        yield stream.part(list(files), None if moment is None else datetime.fromisoformat(moment))


def _by_origin_and_path(learned_from: Sequence[Fingerprint]) -> dict[str, Fingerprint]:
    return {
        key: fingerprint
        for fingerprint in learned_from
        for key in (fingerprint.origin, fingerprint.path)
        if key is not None
    }


def remember_files(posterior: RewardPosterior, logs: Logs) -> RewardPosterior:
    """The posterior with the files of a stream among what it was learned from, and the time that ages are counted from.

    Rounds in memory leave it as it is.
    """
    if not isinstance(logs, LogStream):
        return posterior
    age, fingerprints = logs.reader.age, logs.source.fingerprints
    until = None
    if age is not None and age.until is not None and logs.dropped.immature:
        until = age.until.isoformat()
    known = _by_origin_and_path(posterior.learned_from)
    files = dict[str, Fingerprint]()
    for fingerprint in fingerprints:
        earlier = known.get(fingerprint.origin) or known.get(fingerprint.path or "")
        reached = until
        if until is not None and earlier is not None and earlier.until is not None:
            # A cut-off that moves back does not take rounds out of the model.
            reached = max(until, earlier.until, key=datetime.fromisoformat)
        files[fingerprint.origin] = replace(
            fingerprint, until=reached, path=None if reached is None else fingerprint.path
        )
    # What is known now of a file takes the place of what was known.
    paths = {fingerprint.path for fingerprint in fingerprints} - {None}
    others = [
        fingerprint
        for fingerprint in posterior.learned_from
        if fingerprint.origin not in files and fingerprint.path not in paths
    ]
    as_of = posterior.as_of if age is None or age.half_life is None else age.now.isoformat()
    return replace(posterior, learned_from=(*others, *files.values()), as_of=as_of)


def in_memory_if_small(logs: Logs, likelihood: Likelihood, engine: Engine | str | None) -> Logs:
    """Rounds of training files: in memory if a likelihood needs them repeatedly and there is room, else as they are."""
    if not isinstance(logs, LogStream) or likelihood.treatment == "exact" or as_engine(engine) is not LOCAL:
        return logs
    n_rows = logs.source.n_rows
    if n_rows is None or n_rows * (logs.dim + 4) > MAX_HELD:
        return logs
    parts = list[LoggedData]()
    for batch in logs.batches():
        # Here, while it is known which row of which file a reward comes from.
        likelihood.check(batch.rewards, batch.weights)
        parts.append(batch)
    return joined(parts, logs)
