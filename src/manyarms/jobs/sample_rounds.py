"""A random sample of the rounds of a stream, read through several feature maps at once where needed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, as_count, as_instance
from manyarms._base.rng import as_generator
from manyarms.core import FeatureMap, LoggedData, Policy, PolicyWithOwnFeatures
from manyarms.core.feature_map import StackedMap
from manyarms.errors import InputError
from manyarms.logs.log_stream import LogStream, joined
from manyarms.logs.warehouse_table import WarehouseTable


@dataclass(frozen=True)
class RoundSample:
    """A sample of rounds, drawn from a stream.

    Attributes:
        logs: The rounds, with the contexts of the first map where they were read through several.
        total: The number of rounds in the stream.
        contexts: (n, d) the rounds in all features that were read.
        features: The feature maps of `contexts`.
    """

    logs: LoggedData
    total: int
    contexts: Float[Array, "n d"]
    features: FeatureMap | None

    def bound(self, policy: Policy) -> Policy:
        """A policy on these rounds, in the features of its own map; as it is where that is the map of the logs."""
        if policy.features is None or policy.features == self.logs.features:
            return policy
        if not isinstance(self.features, StackedMap) or policy.features not in self.features.maps:
            raise InputError("these rounds were not read through the feature map of the policy.")
        return PolicyWithOwnFeatures(policy, self.features.part(self.contexts, policy.features))


def sample_rounds(stream: LogStream, n: int, *, rng: np.random.Generator) -> RoundSample:
    """At most n rounds, drawn without replacement in one pass and kept in their order.

    Every round gets a random key, and the n smallest stay: about 2 n rounds are held, however many there are.

    Args:
        stream: What `read_logs` gave; with a `StackedMap` as its features, the result serves several maps.
        n: The most rounds to draw.
        rng: A NumPy generator.
    """
    as_instance("stream", stream, LogStream, "what read_logs gave for files")
    n, rng = as_count("n", n), as_generator(rng)
    parts, keys = list[LoggedData](), list[Array]()
    total = held = 0
    worst = np.inf
    drawn = _thinned(stream, n)
    for batch in drawn.batches():
        key = rng.random(len(batch))
        likely = np.flatnonzero(key < worst)
        # Joined again, since a part of a batch would keep all of it in memory.
        parts.append(joined([batch.take(likely)], stream))
        keys.append(key[likely])
        total, held = total + len(batch), held + len(likely)
        if held > 2 * n:
            part, key = _smallest(parts, keys, n, stream)
            parts, keys, held, worst = [part], [key], n, float(key.max())
    if drawn is not stream:
        stream.note_dropped(drawn.dropped)
        total = stream.source.n_rows or total
    return sample_of_all(_smallest(parts, keys, n, stream)[0] if parts else joined([], stream), total)


def sample_of_all(logs: LoggedData, total: int | None = None) -> RoundSample:
    """Make a sample of all rounds: with several feature maps, each has its own contexts.

    Args:
        logs: The rounds; those with one feature map stay as they are.
        total: The number of rounds that they were drawn from; None for their own number.
    """
    contexts, features = logs.contexts, logs.features
    if isinstance(features, StackedMap):
        first, whole = features.maps[0], logs
        logs = LoggedData(
            features.part(contexts, first), logs.actions, logs.rewards, logs.propensities, logs.n_actions,
            weights=logs.weights, groups=logs.groups, times=logs.times, segments=logs.segments,
            features=first, catalog=logs.catalog,
        ).keeping(whole.table)  # fmt: skip
        logs.eligible, logs.action_column = whole.eligible, whole.action_column
    return RoundSample(logs, len(logs) if total is None else total, contexts, features)


def _thinned(stream: LogStream, n: int) -> LogStream:
    """A stream with fewer rounds to choose n from: a database draws them where they are. Files are read as they are."""
    if not isinstance(stream.source, WarehouseTable):
        return stream
    fewer = stream.source.thinned(n)
    return stream if fewer is stream.source else LogStream(fewer, stream.reader)


def _smallest(
    parts: list[LoggedData], keys: list[Array], n: int, stream: LogStream
) -> tuple[LoggedData, Float[Array, " n"]]:
    """The rounds with the n smallest keys, in their order, with their keys."""
    rounds, key = joined(parts, stream), np.concatenate(keys)
    if len(key) <= n:
        return rounds, key
    kept = np.sort(np.argpartition(key, n - 1)[:n])
    return rounds.take(kept), key[kept]
