"""Logged rounds: what was shown to whom, and what came back."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import (
    Array,
    as_actions,
    as_count,
    as_instance,
    as_matrix,
    as_scalar,
    as_vector,
    check_rows,
    frozen,
    row_number,
    rows_from,
)
from manyarms._base.rng import as_generator
from manyarms.core.catalog import Catalog
from manyarms.core.feature_map import FeatureMap
from manyarms.core.fingerprint import Fingerprint, digest
from manyarms.core.policy import Policy
from manyarms.errors import InputError, PropensityError, ShapeError
from manyarms.linalg.indexing import chunks


@runtime_checkable
class Logs(Protocol):
    """Rounds that are consumed batch by batch: in memory (`LoggedData`) or read as they are needed (`LogStream`)."""

    @property
    def dim(self) -> int:
        """d."""
        ...

    @property
    def fingerprint(self) -> Fingerprint:
        """Which rounds these are; see `core.fingerprint`."""
        ...

    def batches(self, size: int = ...) -> Iterator[LoggedData]:
        """The rounds in order, at most `size` at a time."""
        ...

    n_actions: int

    @property
    def features(self) -> FeatureMap | None:
        """From context columns to φ(x); None where contexts came as arrays."""
        ...

    @property
    def catalog(self) -> Catalog | None:
        """From ids to action numbers; None where actions came as numbers."""
        ...


class LoggedData:
    """Rounds (x_i, a_i, r_i), i = 1 ... n, logged by some policy π_0; checked once, here, and read-only after.

    Contexts are used as they are: φ(x) = x, no intercept, no scaling. Arrays of the right type are not copied, since
    logs are large: leave them alone after.

    Args:
        contexts: (n, d) features.
        actions: (n,) integers in 0 ... n_actions - 1.
        rewards: (n,) numbers.
        propensities: (n,) π_0(a_i | x_i) in (0, 1], if known. The direct methods need none.
        n_actions: K, counting actions never logged; by default one more than the largest action logged.
        weights: (n,) non-negative; to a fit or an estimator, weight 2 says the same as the row twice.
        logging_policy: π_0 as a policy, if known, for estimators that need it for every action.
        groups: (n,) integer ids of users or sessions, if rounds come in clusters.
        features: What contexts were made with, if that was a `FeatureMap`: a posterior of these rounds keeps it.
        catalog: What actions are called, if they have ids.

    Raises:
        InputError: Naming the argument, the first bad row and a way out.
    """

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
        features: FeatureMap | None = None,
        catalog: Catalog | None = None,
    ):
        self.contexts: Float[Array, "n d"] = as_matrix("contexts", contexts)
        n, d = self.contexts.shape
        if d == 0:
            raise ShapeError("contexts must have at least one column; use a column of ones when there is no context.")
        actions = as_empty_ids(actions)
        self.n_actions = self._count_actions(actions, n_actions)
        self.actions: Int[Array, " n"] = as_actions("actions", actions, n_actions=self.n_actions, length=n)
        self.rewards: Float[Array, " n"] = as_vector("rewards", rewards, length=n)
        self.propensities = None if propensities is None else _as_propensities(propensities, n)
        self.weights = None if weights is None else _as_weights(weights, n)
        if logging_policy is not None:
            as_instance("logging_policy", logging_policy, Policy, "a policy")
            if logging_policy.n_rows not in (None, n):
                raise ShapeError(f"logging_policy is tied to {logging_policy.n_rows} rows; the logs have {n}.")
        if logging_policy is not None and logging_policy.n_actions != self.n_actions:
            raise ShapeError(
                f"logging_policy has {logging_policy.n_actions} actions; the logs have {self.n_actions}. "
                "Pass n_actions= to both."
            )
        self.logging_policy = logging_policy
        self.groups = None if groups is None else as_actions("groups", groups, length=n)
        self.features = None if features is None else as_instance("features", features, FeatureMap, "a FeatureMap")
        if self.features is not None and self.features.dim != d:
            raise ShapeError(f"features makes {self.features.dim} columns; contexts have {d}.")
        self.catalog = None if catalog is None else as_instance("catalog", catalog, Catalog, "a Catalog")
        if self.catalog is not None and self.catalog.n_actions != self.n_actions:
            raise ShapeError(f"catalog has {self.catalog.n_actions} actions; n_actions is {self.n_actions}.")
        # None when it is a log of its own: a reference to itself would keep batches alive long after their use.
        self._source: LoggedData | None = None
        self._rows: Int[Array, " n"] | None = None

    @classmethod
    def checked(
        cls,
        contexts: Float[Array, "n d"],
        actions: Int[Array, " n"],
        rewards: Float[Array, " n"],
        n_actions: int,
        *,
        propensities: Float[Array, " n"] | None = None,
        weights: Float[Array, " n"] | None = None,
        groups: Int[Array, " n"] | None = None,
        features: FeatureMap | None = None,
        catalog: Catalog | None = None,
    ) -> LoggedData:
        """Rounds of a table, whose columns were checked one by one when they were read; not for users."""
        out = object.__new__(cls)
        n = len(actions)
        out.contexts, out.actions, out.rewards = frozen(contexts), frozen(actions), frozen(rewards)
        out.n_actions, out.features, out.catalog = n_actions, features, catalog
        out.propensities = None if propensities is None else _as_propensities(propensities, n)
        out.weights = None if weights is None else _as_weights(weights, n)
        out.groups = None if groups is None else frozen(groups)
        out.logging_policy, out._source, out._rows = None, None, None
        return out

    @staticmethod
    def _count_actions(actions: Any, n_actions: int | None) -> int:
        if n_actions is not None:
            return as_count("n_actions", n_actions)
        found = as_actions("actions", actions)
        if len(found) == 0:
            raise ShapeError("an empty log does not say how many actions there are; pass n_actions=.")
        return int(found.max()) + 1

    def __len__(self) -> int:
        return len(self.actions)

    def __repr__(self) -> str:
        known = [name for name in ("propensities", "weights", "groups") if getattr(self, name) is not None]
        extra = f", with {', '.join(known)}" if known else ""
        return f"LoggedData({len(self):,} rounds, {self.n_actions:,} actions, d={self.dim}{extra})"

    @property
    def dim(self) -> int:
        """d."""
        return self.contexts.shape[1]

    def take(self, rows: slice | Int[Array, " m"]) -> LoggedData:
        """These rows only; the logging policy is restricted to them too."""
        part = object.__new__(LoggedData)
        for name in ("contexts", "actions", "rewards", "propensities", "weights", "groups"):
            column = getattr(self, name)
            setattr(part, name, None if column is None else frozen(column[rows]))
        part.n_actions, part.features, part.catalog = self.n_actions, self.features, self.catalog
        part.logging_policy = None if self.logging_policy is None else self.logging_policy.take(rows)
        part._source = self if self._source is None else self._source
        part._rows = self.rows[rows]
        return part

    def counted(self) -> LoggedData:
        """The rounds whose weight is not zero."""
        return self if self.weights is None or self.weights.all() else self.take(np.flatnonzero(self.weights))

    def with_rewards(self, rewards: Float[Array, " n"]) -> LoggedData:
        """The same rounds with other rewards, such as whether there was one at all."""
        other = self.take(slice(None))
        other.rewards = frozen(as_vector("rewards", rewards, length=len(self)))
        return other

    def split(
        self, fraction: float, by: Literal["row", "group", "time"] = "row", *, rng: np.random.Generator | None = None
    ) -> tuple[LoggedData, LoggedData]:
        """Two logs without a round in common: one to learn from and one to judge on.

        Args:
            fraction: The share of rounds (or groups) in the first.
            by: "row" draws rounds at random; "group" draws whole groups, so that no user is in both; "time" takes the
                first rounds as they stand.
            rng: A NumPy generator; needed unless `by` is "time".
        """
        fraction = as_scalar("fraction", fraction, above=0.0, below=1.0)
        if by == "time":
            first = np.arange(len(self)) < round(fraction * len(self))
        elif by in ("row", "group"):
            if rng is None:
                raise InputError(f'a split by "{by}" draws at random: pass rng=np.random.default_rng(seed).')
            if by == "group" and self.groups is None:
                raise InputError('these logs have no groups; pass groups= to LoggedData, or split by "row".')
            keys = np.arange(len(self)) if by == "row" else np.unique(np.asarray(self.groups), return_inverse=True)[1]
            n_keys = int(keys.max(initial=-1)) + 1
            first = as_generator(rng).permutation(n_keys)[keys] < round(fraction * n_keys)
        else:
            raise InputError(f'by must be "row", "group" or "time"; got {by!r}.')
        if first.all() or not first.any():
            raise InputError(f"a fraction of {fraction} leaves one side of the split without rounds.")
        return self.take(np.flatnonzero(first)), self.take(np.flatnonzero(~first))

    @property
    def rows(self) -> Int[Array, " n"]:
        """Which rows of the log they were taken from these are: `policy.take(part.rows)` follows a split."""
        return np.arange(len(self)) if self._rows is None else self._rows

    @property
    def fingerprint(self) -> Fingerprint:
        """Which rows of which log these are, whatever reward is looked at; see `core.fingerprint`."""
        source = self if self._source is None else self._source
        return Fingerprint.of_rows(source._digest, len(source), self._rows)

    @cached_property
    def _digest(self) -> str:
        # Not the rewards: a policy learned from the clicks of some rounds has seen them when judged on their spend.
        return digest(self.contexts, self.actions)

    def batches(self, size: int = 1 << 20) -> Iterator[LoggedData]:
        """The rounds in order, `size` at a time: how everything here consumes logs."""
        for rows in chunks(len(self), as_count("size", size)):
            with rows_from(row_number(rows.start)):
                yield self.take(rows)


def _as_propensities(value: Any, length: int) -> Float[Array, " n"]:
    found = as_vector("propensities", value, length=length)
    check_rows(
        "propensities", found, lambda p: (p > 0) & (p <= 1), PropensityError,
        "must lie in (0, 1]", "They are the logging policy's probabilities of the logged actions.",
    )  # fmt: skip
    return found


def _as_weights(value: Any, length: int) -> Float[Array, " n"]:
    found = as_vector("weights", value, length=length)
    check_rows(
        "weights", found, lambda w: w >= 0, InputError, "must not be negative",
        "Weight 0 drops a row, weight 2 counts it twice.",
    )  # fmt: skip
    return found


def as_empty_ids(actions: Any) -> Any:
    """An empty list has no integer type of its own; everything else is left as it is."""
    return np.empty(0, dtype=np.int64) if isinstance(actions, list | tuple) and not actions else actions
