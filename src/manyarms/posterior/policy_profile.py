"""The profile of a policy: all that its value needs to know of it, from contexts in memory or a stream of rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, as_actions, as_instance, check_overflow, row_weights
from manyarms.core import FeatureMass, LoggedData, Policy
from manyarms.core.logged_data import check_maps
from manyarms.engines import Engine, Tally, Task, as_engine
from manyarms.errors import InputError, ShapeError
from manyarms.linalg.indexing import sum_by
from manyarms.logs.log_stream import LogStream
from manyarms.model_file.save import Saved

if TYPE_CHECKING:
    from manyarms.posterior.posterior import Posterior


Masses: TypeAlias = tuple[FeatureMass, ...]
"""How a value moves with the weights of every action: one mass per factor of the reward. Where two factors multiply, a
last mass has a matrix per action, as a row: the second derivative by the weights of both."""

Forms: TypeAlias = tuple[tuple[float, ...], ...]
"""Linear combinations of policies, with one number per policy. Their expected rewards are collected row by row."""

POLICY_ALONE: Forms = ((1.0,),)
POLICY_AND_BASELINE: Forms = ((1.0, -1.0), (0.0, 1.0))
"""The policy minus its baseline, and the baseline. Differences are taken row by row: where two policies hardly differ,
the difference of their variances would be rounding error."""


class PolicyProfile(NamedTuple):
    """One policy on some contexts: the derivative of its value by every weight, and its expected reward in each.

    Where the posterior is known by draws, also its value under each of them.
    """

    masses: Masses
    rows: Float[Array, " n"]
    draws: Float[Array, " s"] | None = None


@dataclass(frozen=True, eq=False)
class RowMoments(Saved):
    """Moments in a policy's profile: first and second, of q numbers per row, and sums by group where rows cluster.

    Attributes:
        weight: Σ w.
        mean: Σ w x / Σ w.
        scatter: Σ w (x - mean)(x - mean)ᵀ.
        groups: The ids of groups with any weight, ascending; None when every row stands for itself.
        group_sums: For each group Σ w (x - mean), and Σ w in the last column (e = q + 1).
    """

    saved_as = "row moments"
    weight: float
    mean: Float[Array, " q"]
    scatter: Float[Array, "q q"]
    groups: Int[Array, " g"] | None = None
    group_sums: Float[Array, "g e"] | None = None

    @classmethod
    @np.errstate(over="ignore", invalid="ignore")
    def of_rows(cls, columns: Float[Array, "q n"], weights: Float[Array, " n"], groups: Any = None) -> RowMoments:
        """The moments of rows in memory, whose weights are not all zero; an overflow is reported when they are used."""
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
        """The moments of the rows of all parts, in any order.

        Every part is moved from its own mean to the common one (Chan, Golub and LeVeque, 1983), so that large sums are
        never subtracted from each other, however far from zero the rewards lie.
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
        if n <= 1:
            return None
        # The sums are divided before they are squared: squares of very small or large weights leave the range.
        with np.errstate(over="ignore"):
            variance = np.sum((sums / W) ** 2) * n / (n - 1)
        return float(check_overflow("the variance over contexts", np.array(variance)))


def mean_variance(values: Float[Array, " n"], counts: Float[Array, " n"], groups: Any) -> float | None:
    """Variance of a mean over a profile's rows, independent or in independent groups; None when there is only one."""
    return RowMoments.of_rows(values[None], counts, groups).mean_variance(np.ones(1))


@dataclass(frozen=True, eq=False)
class PolicyProfiles(Saved):
    """The profiles of p policies on the same contexts. Their size grows with actions and groups, not with contexts.

    `masses` are means over the contexts, empty when there were none; `rows` are moments over contexts of the expected
    rewards of each of the `forms`.
    """

    saved_as = "profiles"
    masses: tuple[Masses, ...]
    forms: Forms
    rows: RowMoments
    draws: Float[Array, "p s"] | None = None

    @classmethod
    @np.errstate(over="ignore", invalid="ignore")
    def of(cls, profiles: Sequence[PolicyProfile], forms: Forms, weights: Any, groups: Any) -> PolicyProfiles:
        """The profiles of several policies, put together."""
        columns = np.array(forms) @ np.array([profile.rows for profile in profiles])
        rows = RowMoments.of_rows(columns, row_weights(weights, len(profiles[0].rows)), groups)
        draws = None if profiles[0].draws is None else np.array([profile.draws for profile in profiles])
        return cls(tuple(profile.masses for profile in profiles), forms, rows, draws)

    @classmethod
    @np.errstate(over="ignore", invalid="ignore")
    def merged(cls, parts: Sequence[PolicyProfiles]) -> PolicyProfiles:
        """The profiles on the contexts of all parts, at least one of which has some."""
        parts = [part for part in parts if part.rows.weight > 0]
        if len(parts) == 1:
            return parts[0]
        rows = RowMoments.merged([part.rows for part in parts])
        shares = [part.rows.weight / rows.weight for part in parts]
        masses = tuple(
            tuple(FeatureMass.total(same, shares) for same in zip(*policy, strict=True))
            for policy in zip(*(part.masses for part in parts), strict=True)
        )
        draws = [part.draws * share for part, share in zip(parts, shares, strict=True) if part.draws is not None]
        return cls(masses, parts[0].forms, rows, sum(draws[1:], draws[0]) if draws else None)

    def factors(self, combination: tuple[float, ...]) -> Float[Array, " p"]:
        """The number of times that each policy counts in a combination of the forms."""
        return np.array(combination) @ np.array(self.forms)

    def masses_of(self, combination: tuple[float, ...]) -> Masses:
        """The masses of a combination of the forms."""
        factors = self.factors(combination)
        used = np.flatnonzero(factors)
        if len(used) == 1 and factors[used[0]] == 1:
            return self.masses[used[0]]
        same = zip(*(self.masses[i] for i in used), strict=True)
        return tuple(FeatureMass.total(masses, factors[used].tolist()) for masses in same)

    @property
    def size(self) -> int:
        """About how many numbers it holds."""
        groups = 0 if self.rows.group_sums is None else self.rows.group_sums.size
        return groups + sum(mass.vectors.size for masses in self.masses for mass in masses)


def collect_profiles(
    posterior: Posterior,
    policies: Mapping[str, Policy],
    forms: Forms,
    contexts: Any,
    eligible: Any,
    weights: Any,
    groups: Any,
    engine: Engine | str | None,
) -> PolicyProfiles:
    """The profiles of policies, by the names that messages use, from contexts in memory or one pass over a stream.

    For a stream `eligible` is one mask for all rows; its weights and groups are columns of it.
    """
    where = as_engine(engine)
    if not isinstance(contexts, LogStream):
        return _collect_rows(posterior, policies, forms, contexts, eligible, weights, groups)
    _check_stream(posterior, policies, contexts, eligible, {"weights": weights, "groups": groups})
    profiles = where.total(contexts, ProfileTask(posterior, dict(policies), forms, eligible))
    if not profiles.rows.weight > 0:
        raise ShapeError("the stream has no rounds of any weight: a mean over none is undefined.")
    return profiles


def _collect_rows(
    posterior: Posterior, policies: Mapping[str, Policy], forms: Forms, contexts: Any, eligible: Any, weights: Any,
    groups: Any,
) -> PolicyProfiles:  # fmt: skip
    profiles = [posterior.profile(policy, contexts, eligible, weights, name) for name, policy in policies.items()]
    return PolicyProfiles.of(profiles, forms, weights, groups)


@dataclass(frozen=True)
class ProfileTask(Task[PolicyProfiles]):
    """Collects the profiles of policies on logged rounds, with the weights and groups of the rounds."""

    kinds = (PolicyProfiles, RowMoments, FeatureMass)
    posterior: Posterior
    policies: dict[str, Policy]
    forms: Forms
    eligible: Any = None

    def begin(self) -> _ProfileTally:
        return _ProfileTally(self)


class _ProfileTally(Tally[PolicyProfiles]):
    """Merges its parts when they have grown to twice the size of their last sum, so each is touched a few times."""

    def __init__(self, task: ProfileTask):
        self._task = task
        self._parts, self._held, self._limit = list[PolicyProfiles](), 0, _MIN_NUMBERS

    def take(self, rounds: LoggedData) -> None:
        rounds, task = rounds.counted(), self._task
        if len(rounds):
            policies = {name: policy.on(rounds) for name, policy in task.policies.items()}
            context_columns = rounds.contexts, task.eligible, rounds.weights, rounds.groups
            self.merge(_collect_rows(task.posterior, policies, task.forms, *context_columns))

    def merge(self, found: PolicyProfiles) -> None:
        self._parts.append(found)
        self._held += found.size
        if self._held > self._limit or len(self._parts) > _MAX_PARTS:
            self._parts = [self.answer()]
            self._held = self._parts[0].size
            self._limit = max(_MIN_NUMBERS, 2 * self._held)

    def answer(self) -> PolicyProfiles:
        if any(part.rows.weight > 0 for part in self._parts):
            return PolicyProfiles.merged(self._parts)
        size = len(self._task.forms)
        return PolicyProfiles((), self._task.forms, RowMoments(0.0, np.zeros(size), np.zeros((size, size))))


_MIN_NUMBERS, _MAX_PARTS = 1 << 20, 64
"""How many numbers, and how many parts, are held before they are merged."""


def _check_stream(
    posterior: Posterior, policies: Mapping[str, Policy], stream: LogStream, eligible: Any, columns: Mapping[str, Any]
) -> None:
    """Refuse what does not go with a stream, before any of it is read."""
    for name, value in columns.items():
        if value is not None:
            raise InputError(
                "of a stream are a column of it.", f"Name it in ma.read_logs(..., {name[:-1]}=...).", argument=name
            )
    is_mask = isinstance(eligible, np.ndarray) and eligible.ndim == 1 and eligible.dtype == bool
    if eligible is not None and not is_mask:
        raise InputError(
            "must be one boolean mask for all rows where contexts are a stream.",
            "For sets that differ by row pass stream.collect().contexts.",
            argument="eligible",
        )
    check_maps(posterior.features, posterior.catalog, stream)
    for name, policy in policies.items():
        as_instance(name, policy, Policy, "a policy")
        own = policy.features
        missing = [] if own is None else [column for column in own.columns if column not in stream.reader.columns]
        if own is not None and not own.is_context and (missing or not stream.reader.kept):
            raise InputError(
                f"reads {', '.join(missing) or 'the rows'}, which this stream does not keep.",
                f"Read it with ma.read_logs(..., keep={missing or [stream.reader.roles.action]}).",
                argument=name,
            )
        if own is not None and own.is_context and own != stream.features:
            raise InputError(
                "was learned with another feature map than the one this stream is read through.",
                "Pass the table with the columns themselves, or a sample of it, which each reads through its own map.",
                argument=name,
            )
        if policy.n_rows is not None or policy.tied_to not in (None, stream.fingerprint):
            tied = "another stream" if policy.n_rows is None else f"{policy.n_rows:,} rows in memory"
            raise InputError(
                f"is tied to {tied}, not to this stream.", "The current policy here is ma.Logged(stream).",
                argument=name,
            )  # fmt: skip
