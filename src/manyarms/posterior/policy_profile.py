"""What values need to know of policies, from contexts in memory or from a pass over a stream of rounds.

How expected rewards vary from row to row: means and products around them, which parts of the rows can add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, as_actions, as_instance
from manyarms.core.catalog import Catalog
from manyarms.core.feature_map import FeatureMap
from manyarms.core.logged_data import LoggedData, Logs
from manyarms.core.policy import FeatureMass, Policy, row_weights
from manyarms.engines import Engine, Tally, Task, as_engine
from manyarms.errors import InputError, ShapeError
from manyarms.linalg.indexing import sum_by
from manyarms.logs.log_stream import LogStream
from manyarms.model_file.save import Saved

if TYPE_CHECKING:
    from manyarms.posterior.posterior import Posterior


Masses: TypeAlias = tuple[FeatureMass, ...]
"""How a value moves with the weights of every action: one mass for each part of the posterior, and for two parts whose
rewards multiply a last one, a matrix for each action as a row: the second derivative by the weights of both."""

Forms: TypeAlias = tuple[tuple[float, ...], ...]
"""Combinations of policies, a number for each policy: their expected rewards are looked at row by row."""

ALONE: Forms = ((1.0,),)
PAIR: Forms = ((1.0, -1.0), (0.0, 1.0))
"""A policy less its baseline, and the baseline. Differences are taken row by row, for what two variances leave of one
another where policies hardly differ is rounding errors."""


@dataclass(frozen=True, eq=False)
class RowMoments(Saved):
    """First and second moments of q numbers a row, and the sums of their groups where rows come in clusters.

    Attributes:
        weight: Σ w.
        mean: Σ w x / Σ w.
        scatter: Σ w (x - mean)(x - mean)ᵀ.
        groups: The ids of groups of any weight, ascending; None when every row stands for itself.
        group_sums: For each of them Σ w (x - mean), and Σ w in the last column (e = q + 1).
    """

    saved_as = "row moments"
    weight: float
    mean: Float[Array, " q"]
    scatter: Float[Array, "q q"]
    groups: Int[Array, " g"] | None = None
    group_sums: Float[Array, "g e"] | None = None

    @classmethod
    def of_none(cls, size: int) -> RowMoments:
        """Of no rows."""
        return cls(0.0, np.zeros(size), np.zeros((size, size)))

    @classmethod
    @np.errstate(over="ignore", invalid="ignore")
    def of_rows(cls, columns: Float[Array, "q n"], weights: Float[Array, " n"], groups: Any = None) -> RowMoments:
        """Of rows in memory; an overflow is reported when the moments are used.

        Args:
            columns: The numbers, a column of x after the other.
            weights: How often each row counts, not all zero.
            groups: (n,) users or sessions; None for none.
        """
        mean = np.average(columns, axis=1, weights=weights)
        centred = columns - mean[:, None]
        weighted = weights * centred
        weight, scatter = float(weights.sum()), weighted @ centred.T
        if groups is None:
            return cls(weight, mean, scatter)
        keys, counted = as_actions("groups", groups, length=len(weights)), weights > 0
        sums = np.column_stack([*weighted, weights])
        return cls(weight, mean, scatter, *sum_by(keys[counted], sums[counted]))

    @classmethod
    @np.errstate(over="ignore", invalid="ignore")
    def merged(cls, parts: Sequence[RowMoments]) -> RowMoments:
        """Of the rows of all parts, in any order.

        Every part is moved from its own mean to that of all (Chan, Golub and LeVeque, 1983): no difference of large
        sums is ever taken, however far from zero the rewards lie.
        """
        weights, means = np.array([part.weight for part in parts]), np.array([part.mean for part in parts])
        weight = float(weights.sum())
        mean = means[0] + weights @ (means - means[0]) / weight
        shifts = means - mean
        scatter = sum((part.scatter for part in parts), (weights * shifts.T) @ shifts)
        keys, sums = list[Array](), list[Array]()
        for part, shift in zip(parts, shifts, strict=True):
            if part.groups is None or part.group_sums is None:
                return cls(weight, mean, scatter)
            keys.append(part.groups)
            sums.append(part.group_sums + part.group_sums[:, -1:] * np.append(shift, 0.0))
        return cls(weight, mean, scatter, *sum_by(np.concatenate(keys), np.concatenate(sums)))

    def mean_variance(self, combination: Float[Array, " q"]) -> float | None:
        """The variance of the mean of a combination, over independent rows or groups; None when there is only one."""
        W = self.weight
        if self.group_sums is None:
            spread = np.maximum(combination @ self.scatter @ combination, 0.0)
            return float(spread) / (W - 1) / W if W > 1 else None
        n, sums = len(self.group_sums), self.group_sums[:, :-1] @ combination
        return float(np.sum(sums**2)) / W**2 * n / (n - 1) if n > 1 else None


def mean_variance(values: Float[Array, " n"], counts: Float[Array, " n"], groups: Any) -> float | None:
    """The variance of a mean over independent rows, or over groups of them; None when there is only one."""
    return RowMoments.of_rows(values[None], counts, groups).mean_variance(np.ones(1))


@dataclass(frozen=True, eq=False)
class Profiles(Saved):
    """What values need to know of p policies on some contexts: of the size of actions and groups, and not of contexts.

    Attributes:
        masses: Of each policy, as means over the contexts; empty when there were none.
        forms: (q, p) combinations of the policies.
        rows: Moments over contexts of the expected rewards of each combination.
    """

    saved_as = "profiles"
    masses: tuple[Masses, ...]
    forms: Forms
    rows: RowMoments

    @classmethod
    @np.errstate(over="ignore", invalid="ignore")
    def of_rows(
        cls, masses: tuple[Masses, ...], rows: Sequence[Float[Array, " n"]], forms: Forms, weights: Any, groups: Any
    ) -> Profiles:
        """From the expected rewards of every policy, row by row."""
        columns = np.array(forms) @ np.array(rows)
        return cls(masses, forms, RowMoments.of_rows(columns, row_weights(weights, len(rows[0])), groups))

    @classmethod
    @np.errstate(over="ignore", invalid="ignore")
    def merged(cls, parts: Sequence[Profiles]) -> Profiles:
        """Of the contexts of all parts, at least one of which has some."""
        parts = [part for part in parts if part.rows.weight > 0]
        if len(parts) == 1:
            return parts[0]
        rows = RowMoments.merged([part.rows for part in parts])
        shares = [part.rows.weight / rows.weight for part in parts]
        policies = zip(*(part.masses for part in parts), strict=True)
        masses = tuple(
            tuple(FeatureMass.total(fellows, shares) for fellows in zip(*of_policy, strict=True))
            for of_policy in policies
        )
        return cls(masses, parts[0].forms, rows)

    def masses_of(self, combination: tuple[float, ...]) -> Masses:
        """The masses of a combination of the forms."""
        factors = np.array(combination) @ np.array(self.forms)
        used = np.flatnonzero(factors)
        if len(used) == 1 and factors[used[0]] == 1:
            return self.masses[used[0]]
        fellows = zip(*(self.masses[i] for i in used), strict=True)
        return tuple(FeatureMass.total(masses, factors[used].tolist()) for masses in fellows)

    @property
    def size(self) -> int:
        """About how many numbers it holds."""
        groups = 0 if self.rows.group_sums is None else self.rows.group_sums.size
        return groups + sum(mass.vectors.size for masses in self.masses for mass in masses)


def profiles(
    judge: Posterior,
    policies: Mapping[str, Policy],
    forms: Forms,
    contexts: Any,
    eligible: Any,
    weights: Any,
    groups: Any,
    engine: Engine | str | None,
) -> Profiles:
    """What values need to know of policies: from one walk through contexts in memory, or one pass over a stream.

    Args:
        judge: The posterior.
        policies: By what they are called in messages.
        forms: Combinations of them.
        contexts: (n, d), a table, or a `LogStream`.
        eligible: Which actions may be chosen where; for a stream one mask for all rows.
        weights: (n,) or None; those of a stream are a column of it.
        groups: (n,) or None; likewise.
        engine: Where a stream is gone through.
    """
    where = as_engine(engine)
    if not isinstance(contexts, LogStream):
        return _profiled(judge, policies, forms, contexts, eligible, weights, groups)
    _check_stream(judge, policies, contexts, eligible, {"weights": weights, "groups": groups})
    found = where.total(contexts, Judging(judge, dict(policies), forms, eligible))
    if not found.rows.weight > 0:
        raise ShapeError("the stream has no rounds of any weight: a mean over none is undefined.")
    return found


def _profiled(
    judge: Posterior, policies: Mapping[str, Policy], forms: Forms, contexts: Any, eligible: Any, weights: Any,
    groups: Any,
) -> Profiles:  # fmt: skip
    # An overflow is reported when the sums are used.
    with np.errstate(over="ignore", invalid="ignore"):
        found = [judge.profile_parts(one, contexts, eligible, weights, name) for name, one in policies.items()]
    return Profiles.of_rows(tuple(masses for masses, _ in found), [rows for _, rows in found], forms, weights, groups)


@dataclass(frozen=True)
class Judging(Task[Profiles]):
    """What a posterior expects of policies in the contexts of logged rounds, with their weights and groups.

    Attributes:
        judge: The posterior.
        policies: By what they are called in messages.
        forms: Combinations of them.
        eligible: One mask for all rows, or None.
    """

    kinds = (Profiles, RowMoments, FeatureMass)
    judge: Posterior
    policies: dict[str, Policy]
    forms: Forms
    eligible: Any = None

    def begin(self) -> _Judging:
        return _Judging(self)


class _Judging(Tally[Profiles]):
    """Parts are put together when they have become twice as large as their sum was: each is touched a few times."""

    def __init__(self, task: Judging):
        self._task = task
        self._parts, self._held, self._limit = list[Profiles](), 0, _LEAST

    def take(self, rounds: LoggedData) -> None:
        rounds, task = rounds.counted(), self._task
        if len(rounds):
            here = {name: policy.on(rounds) for name, policy in task.policies.items()}
            self.merge(
                _profiled(task.judge, here, task.forms, rounds.contexts, task.eligible, rounds.weights, rounds.groups)
            )

    def merge(self, found: Profiles) -> None:
        self._parts.append(found)
        self._held += found.size
        if self._held > self._limit or len(self._parts) > _MOST:
            self._parts = [self.answer()]
            self._held = self._parts[0].size
            self._limit = max(_LEAST, 2 * self._held)

    def answer(self) -> Profiles:
        if any(part.rows.weight > 0 for part in self._parts):
            return Profiles.merged(self._parts)
        return Profiles((), self._task.forms, RowMoments.of_none(len(self._task.forms)))


_LEAST, _MOST = 1 << 20, 64
"""How many numbers, and how many parts, are held before they are put together."""


def check_maps(features: FeatureMap | None, catalog: Catalog | None, logs: Logs) -> None:
    """Refuse rounds whose contexts or actions mean something else to a posterior with this map and catalog."""
    way_out = "Read them with ma.read_logs(..., features=posterior.features, catalog=posterior.catalog)."
    if features is not None and logs.features is not None and features != logs.features:
        raise InputError(f"these logs were read through another feature map than the posterior's. {way_out}")
    if catalog is not None and logs.catalog is not None and not catalog.begins_with(logs.catalog):
        raise InputError(f"these logs number actions by another catalog than the posterior's. {way_out}")


def _check_stream(
    judge: Posterior, policies: Mapping[str, Policy], stream: LogStream, eligible: Any, given: Mapping[str, Any]
) -> None:
    """Refuse what does not go with a stream, before any of it is read."""
    for name, value in given.items():
        if value is not None:
            raise InputError(f"{name} of a stream are a column of it: name it in ma.read_logs(..., {name[:-1]}=...).")
    is_mask = isinstance(eligible, np.ndarray) and eligible.ndim == 1 and eligible.dtype == bool
    if eligible is not None and not is_mask:
        raise InputError(
            "eligible must be one boolean mask for all rows where contexts are a stream. For sets of their own pass "
            "stream.collect().contexts."
        )
    check_maps(judge.features, judge.catalog, stream)
    for name, policy in policies.items():
        as_instance(name, policy, Policy, "a policy")
        if policy.features is not None and policy.features != stream.features:
            raise InputError(
                f"{name} was learned with another feature map than the one this stream is read through. Pass the table "
                "with the columns themselves, or a sample of it, which each reads through its own map."
            )
        if policy.n_rows is not None or policy.tied_to not in (None, stream.fingerprint):
            tied = "another stream" if policy.n_rows is None else f"{policy.n_rows:,} rows in memory"
            raise InputError(f"{name} is tied to {tied}, not to this stream. What runs now here is ma.Logged(stream).")
