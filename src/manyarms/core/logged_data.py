"""Logged rounds: contexts, actions and rewards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from functools import cached_property
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

from manyarms._base.arrow import pa
from manyarms._base.checks import (
    Array,
    as_actions,
    as_count,
    as_instance,
    as_matrix,
    as_rows,
    as_scalar,
    as_times,
    as_vector,
    as_weights,
    check_rows,
    frozen,
    import_optional,
)
from manyarms._base.rng import as_generator
from manyarms._base.row_numbers import row_name, row_number, rows_from
from manyarms.core.action_columns import as_column
from manyarms.core.catalog import Catalog
from manyarms.core.eligibility import as_eligibility
from manyarms.core.feature_map import FeatureMap
from manyarms.core.fingerprint import Fingerprint, digest
from manyarms.core.hierarchical_gaussian import HierarchicalGaussian
from manyarms.core.labels import check_hashable
from manyarms.core.policy import Policy
from manyarms.errors import DataTypeError, EligibilityError, InputError, PropensityError, ShapeError
from manyarms.linalg.indexing import chunks

COLUMNS = ("contexts", "actions", "rewards", "propensities", "weights", "groups", "times", "segments")
"""The attributes of `LoggedData` that have a row per round, unless they are None."""


@runtime_checkable
class Logs(Protocol):
    """Rounds that are read batch by batch, from memory (`LoggedData`) or from files (`LogStream`)."""

    @property
    def dim(self) -> int:
        """d."""
        ...

    @property
    def fingerprint(self) -> Fingerprint:
        """The identity of these rounds; see `core.fingerprint`."""
        ...

    def batches(self, size: int = ...) -> Iterator[LoggedData]:
        """The rounds in order, at most `size` at a time."""
        ...

    def collect(self) -> LoggedData:
        """All rounds in memory at once."""
        ...

    n_actions: int

    @property
    def features(self) -> FeatureMap | None:
        """The map from context columns to φ(x); None if contexts were given as arrays."""
        ...

    @property
    def catalog(self) -> Catalog | None:
        """The map from ids to action numbers; None if actions were given as numbers."""
        ...


class LoggedData:
    """Rounds (x_i, a_i, r_i), i = 1 ... n, logged by some policy π_0; checked here once, and read-only afterwards.

    Contexts are used as they are: φ(x) = x, no intercept, no scaling. Arrays of the right type are not copied, since
    logs are large, so do not change them afterwards.

    Args:
        contexts: (n, d) features.
        actions: (n,) integers in 0 ... n_actions - 1.
        rewards: (n,) numbers.
        propensities: (n,) π_0(a_i | x_i) in (0, 1], if known. The direct methods do not need them.
        n_actions: K, including actions never logged; by default one more than the largest logged action.
        weights: (n,) non-negative; weight 2 counts a row twice, in a fit as in an estimator.
        logging_policy: π_0 as a policy, if known, for estimators that need it for every action.
        groups: (n,) integer ids of users or sessions, if rounds come in clusters.
        times: (n,) datetime64, or numbers that increase with time, if known; rounds need not be in their order.
        segments: (n,) labels of parts of the traffic to show results by, such as countries; None or NaN where one is
            missing. No model sees them.
        features: The `FeatureMap` that contexts were made with, if any: a posterior of these rounds keeps it.
        catalog: The ids of the actions, if they have any.

    Attributes:
        eligible: The actions that could be chosen in each round, as `with_eligible` sets them.
        dropped: The numbers of rows that `read_logs` left out, by reason; None for rounds that it did not read.
        action_column: The column that `read_logs` read the actions from; empty for rounds that it did not read.

    Raises:
        InputError: If an argument is wrong; the message names it, the first bad row and a remedy.
    """

    action_column: str = ""

    def __init__(
        self,
        contexts: Any,
        actions: Any,
        rewards: Any,
        propensities: Any = None,
        n_actions: int | None = None,
        *,
        weights: Any = None,
        logging_policy: Policy | None = None,
        groups: Any = None,
        times: Any = None,
        segments: Any = None,
        features: FeatureMap | None = None,
        catalog: Catalog | None = None,
    ):
        self.contexts: Float[Array, "n d"] = as_matrix("contexts", contexts)
        n, d = self.contexts.shape
        if d == 0:
            raise ShapeError(
                "must have at least one column.", "Use a column of ones if there is no context.", argument="contexts"
            )
        if isinstance(actions, list | tuple) and not actions:
            actions = np.empty(0, dtype=np.int64)  # an empty list has no type
        if n_actions is None and len(as_actions("actions", actions)) == 0:
            raise ShapeError("an empty log does not show how many actions there are.", "Pass n_actions=.")
        self.n_actions = int(np.asarray(actions).max()) + 1 if n_actions is None else as_count("n_actions", n_actions)
        self.actions: Int[Array, " n"] = as_actions("actions", actions, n_actions=self.n_actions, length=n)
        self.rewards: Float[Array, " n"] = as_vector("rewards", rewards, length=n)
        self.propensities = as_propensities(propensities, n)
        self.weights = None if weights is None else as_weights(weights, n)
        self.logging_policy = None if logging_policy is None else self._check_logging_policy(logging_policy)
        self.groups = None if groups is None else as_actions("groups", groups, length=n)
        self.times = None if times is None else as_times("times", times, length=n)
        self.segments = None if segments is None else as_segments(segments, n)
        self.features = None if features is None else as_instance("features", features, FeatureMap, "a FeatureMap")
        if self.features is not None and self.features.dim != d:
            raise ShapeError(f"makes {self.features.dim} columns; contexts have {d}.", argument="features")
        self.catalog = None if catalog is None else as_instance("catalog", catalog, Catalog, "a Catalog")
        if self.catalog is not None and self.catalog.n_actions != self.n_actions:
            raise ShapeError(
                f"has {self.catalog.n_actions} actions; n_actions is {self.n_actions}.", argument="catalog"
            )
        self.eligible: sparse.csr_array | None = None
        self.dropped: Any = None
        # None for a whole log: a reference to itself would keep batches alive long after their use.
        self._source: LoggedData | None = None
        self._rows: Int[Array, " n"] | None = None
        self._table: pa.Table | None = None
        self._library = ""

    @classmethod
    def checked(
        cls,
        columns: Mapping[str, Array | None],
        n_actions: int,
        features: FeatureMap | None,
        catalog: Catalog | None,
        table: pa.Table | None = None,
    ) -> LoggedData:
        """Rounds whose columns were checked when they were read; not for users."""
        out = object.__new__(cls)
        out._table, out._library = table, ""
        for name, column in columns.items():
            setattr(out, name, None if column is None else frozen(column))
        out.n_actions, out.features, out.catalog = n_actions, features, catalog
        out.logging_policy, out.eligible, out.dropped, out._source, out._rows = None, None, None, None, None
        return out

    def _check_logging_policy(self, policy: Policy) -> Policy:
        as_instance("logging_policy", policy, Policy, "a policy")
        if policy.n_rows not in (None, len(self)):
            problem = f"is tied to {policy.n_rows} rows; the logs have {len(self)}."
            raise ShapeError(problem, argument="logging_policy")
        if policy.n_actions != self.n_actions:
            problem = f"has {policy.n_actions} actions; the logs have {self.n_actions}."
            raise ShapeError(problem, "Pass n_actions= to both.", argument="logging_policy")
        return policy

    def __len__(self) -> int:
        return len(self.actions)

    def __repr__(self) -> str:
        known = [
            name
            for name in ("propensities", "weights", "groups", "times", "segments", "eligible")
            if getattr(self, name) is not None
        ]
        extra = f", with {', '.join(known)}" if known else ""
        return f"LoggedData({len(self):,} rounds, {self.n_actions:,} actions, d={self.dim}{extra})"

    @property
    def dim(self) -> int:
        """d."""
        return self.contexts.shape[1]

    def take(self, rows: slice | Int[Array, " m"]) -> LoggedData:
        """A log of these rows only; the logging policy is restricted to them too."""
        rows = as_rows(rows, len(self))
        whole = {name: getattr(self, name) for name in COLUMNS}
        columns = {name: None if column is None else column[rows] for name, column in whole.items()}
        part = LoggedData.checked(columns, self.n_actions, self.features, self.catalog)
        part.logging_policy = None if self.logging_policy is None else self.logging_policy.take(rows)
        part.eligible = None if self.eligible is None else self.eligible[rows]
        part._source = self if self._source is None else self._source
        part._rows, part.action_column = self.rows[rows], self.action_column
        return part

    @property
    def table(self) -> pa.Table | None:
        """The columns of these rounds that `read_logs` has kept, as an Arrow table; None if it kept none."""
        source = self if self._source is None else self._source
        return source._table if self._rows is None or source._table is None else source._table.take(self._rows)

    @property
    def frame(self) -> Any:
        """The kept columns of these rounds, as a table of the library that they came from: pandas, Polars or Arrow."""
        table, source = self.table, self if self._source is None else self._source
        if table is None or source._library not in ("pandas", "polars"):
            return table
        if source._library == "pandas":
            return table.to_pandas()
        return import_optional("polars", "frames of Polars").from_arrow(table)

    def keeping(self, table: pa.Table | None, library: str = "") -> LoggedData:
        """These rounds with the rows of a table kept beside them, which came from a library such as "pandas"."""
        rounds = copy(self)
        rounds._table, rounds._library = table, library
        return rounds

    def counted(self) -> LoggedData:
        """The rounds whose weight is not zero."""
        return self if self.weights is None or self.weights.all() else self.take(np.flatnonzero(self.weights))

    def with_rewards(self, rewards: Float[Array, " n"]) -> LoggedData:
        """A log of these rounds with other rewards, such as 1 where there was any reward."""
        other = self.take(slice(None))
        other.rewards = frozen(as_vector("rewards", rewards, length=len(self)))
        return other

    def with_segments(self, segments: Any) -> LoggedData:
        """A log of these rounds with segments: a label for each round, None or NaN where one is missing."""
        other = self.take(slice(None))
        other.segments = as_segments(segments, len(self))
        return other

    def with_eligible(self, eligible: Any) -> LoggedData:
        """A log of these rounds with the candidates of each: policies evaluated on it choose among them.

        Args:
            eligible: The actions that may be chosen in each round, in any form that `policy.actions` takes; the logged
                action must be among them.
        """
        sets = as_eligibility(eligible, len(self), self.n_actions)
        other = self.take(slice(None))
        other.eligible = None if sets is None else check_candidates(sets.block(slice(0, len(self))), self.actions)
        return other

    def split(
        self, fraction: float, by: Literal["row", "group", "time"] = "row", *, rng: np.random.Generator | None = None
    ) -> tuple[LoggedData, LoggedData]:
        """Two logs without a round in common: one to learn from and one to evaluate on.

        Args:
            fraction: The share of rounds (or groups) in the first.
            by: "row" draws rounds at random; "group" draws whole groups, so that no user is in both; "time" puts the
                earlier rounds in the first and the later ones in the second. By time, rounds of one instant stay
                together, so the share is as close to `fraction` as that allows. Where there are groups too, each one
                counts from its first round and stays whole: every round of the second log is then later than the
                start of every group of the first, but groups of the first may go on after that. Logs without times
                are split in the order of their rounds, whatever their groups.
            rng: A NumPy generator; needed unless `by` is "time".
        """
        fraction = as_scalar("fraction", fraction, above=0.0, below=1.0)
        if by == "time":
            first = self._earlier(fraction)
        elif by in ("row", "group"):
            first = self._drawn(fraction, by, rng)
        else:
            raise InputError(f'must be "row", "group" or "time"; got {by!r}.', argument="by")
        if first.all() or not first.any():
            raise InputError(f"of {fraction} leaves one side of the split without rounds.", argument="fraction")
        return self.take(np.flatnonzero(first)), self.take(np.flatnonzero(~first))

    def _drawn(self, fraction: float, by: str, rng: np.random.Generator | None) -> Bool[Array, " n"]:
        """A mask of a share of the rounds or of the groups, drawn at random."""
        if rng is None:
            raise InputError(f'a split by "{by}" draws at random.', "Pass rng=np.random.default_rng(seed).")
        if by == "group" and self.groups is None:
            raise InputError("these logs have no groups.", 'Pass groups= to LoggedData, or split by "row".')
        keys = np.arange(len(self)) if by == "row" else _ranks(np.asarray(self.groups))
        n_keys = int(keys.max(initial=-1)) + 1
        return as_generator(rng).permutation(n_keys)[keys] < round(fraction * n_keys)

    def _earlier(self, fraction: float) -> Bool[Array, " n"]:
        """A mask of the earlier share of the rounds; those that begin at one instant are all in it or all outside."""
        starts = self._starts()
        if len(self) > 1 and not starts.any():
            problem = "are the same for all rounds" if self.groups is None else "are the same where groups begin"
            raise InputError(f"{problem}, so none are earlier.", 'Split by "group" or "row".', argument="times")
        ends = np.concatenate([[0], np.cumsum(np.bincount(starts))])
        return starts < np.argmin(np.abs(ends - round(fraction * len(self))))

    def _starts(self) -> Int[Array, " n"]:
        """The rank of each round in time: 0 for the earliest instant; a round of a group has that of its first one."""
        if self.times is None:
            return np.arange(len(self))
        instants = _ranks(self.times)
        if self.groups is None:
            return instants
        groups = _ranks(self.groups)
        begins = np.full(len(self), len(self))
        np.minimum.at(begins, groups, instants)
        # Ranks again: a later instant at which no group begins is not a place to cut.
        return _ranks(begins[groups])

    @property
    def rows(self) -> Int[Array, " n"]:
        """The numbers of these rows in the log they were taken from: `policy.take(part.rows)` follows a split."""
        return np.arange(len(self)) if self._rows is None else self._rows

    @property
    def fingerprint(self) -> Fingerprint:
        """The identity of these rows and their log, whichever reward is used; see `core.fingerprint`."""
        source = self if self._source is None else self._source
        return Fingerprint.of_rows(source._digest, len(source), self._rows)

    @cached_property
    def _digest(self) -> str:
        # Not the rewards: a policy learned from the clicks of some rounds must not be evaluated on their spend either.
        return digest(self.contexts, self.actions)

    def collect(self) -> LoggedData:
        """All rounds in memory, where these are already: code that collects a stream works on a table too."""
        return self

    def batches(self, size: int = 1 << 20) -> Iterator[LoggedData]:
        """The rounds in order, `size` at a time; all code here reads logs this way."""
        for rows in chunks(len(self), as_count("size", size)):
            with rows_from(row_number(rows.start)):
                yield self.take(rows)


def _ranks(values: Array) -> Int[Array, " n"]:
    """The rank of each value among the distinct ones, from 0."""
    return np.unique(values, return_inverse=True)[1]


def as_propensities(value: Any, length: int) -> Float[Array, " n"] | None:
    """Check the propensities of logged data; None if they are not known."""
    if value is None:
        return None
    propensities = as_vector("propensities", value, length=length)
    check_rows(
        "propensities", propensities, lambda p: (p > 0) & (p <= 1), PropensityError,
        "must lie in (0, 1]", "They are the logging policy's probabilities of the logged actions.",
    )  # fmt: skip
    return propensities


def as_segments(value: Any, length: int) -> Array:
    """Check the argument `segments` of `LoggedData`: the label of each round."""
    labels = as_column("segments", value, minimum=0)
    if len(labels) != length:
        raise ShapeError(f"must have a label for each of {length:,} rounds; got {len(labels):,}.", argument="segments")
    return check_hashable("segments", labels)


def check_candidates(eligible: sparse.csr_array, actions: Int[Array, " n"]) -> sparse.csr_array:
    """Check the candidates of logged data: the logged action must be among those of its round."""
    among = np.asarray(eligible[np.arange(len(actions)), actions] != 0).ravel()
    if not among.all():
        row = int(np.argmin(among))
        raise EligibilityError(
            f"the logged action of {row_name(row)} is not among its candidates.",
            "Add it to them, or leave the row out.",
            argument="eligible",
        )
    return eligible


def check_logs(logs: Any, prior: HierarchicalGaussian) -> LoggedData:
    """Check that the argument `logs` is logged data in memory that fit the prior."""
    as_logs(as_instance("logs", logs, LoggedData, "a LoggedData; collect() a stream first"), prior)
    return logs


def as_logs(logs: Any, prior: HierarchicalGaussian) -> Logs:
    """Check that the argument `logs` is logged data, in memory or not, that fit the prior."""
    if not isinstance(logs, Logs):
        raise DataTypeError(
            f"must be a LoggedData, or what ma.read_logs returned; got {type(logs).__name__}.", argument="logs"
        )
    if logs.dim != prior.dim:
        raise ShapeError(
            f"contexts of the logs have {logs.dim} columns; the prior's weights have dimension {prior.dim}.",
            "Build the prior with dim equal to the number of context columns.",
        )
    if logs.n_actions > prior.n_actions:
        raise ShapeError(
            f"the logs have {logs.n_actions} actions; the prior knows {prior.n_actions}.",
            "Build the prior on the whole catalog, or add the new ones with with_actions().",
            flag_remedy="Build the prior on the whole catalog.",
        )
    return logs


def check_maps(features: FeatureMap | None, catalog: Catalog | None, logs: Logs) -> None:
    """Check that logged data were read with the posterior's own feature map and catalog."""
    remedy = "Read them with ma.read_logs(..., features=posterior.features, catalog=posterior.catalog)."
    if features is not None and logs.features is not None and features != logs.features:
        raise InputError("these logs were read through another feature map than the posterior's.", remedy)
    if catalog is not None and logs.catalog is not None and not catalog.begins_with(logs.catalog):
        raise InputError("these logs number actions by another catalog than the posterior's.", remedy)
