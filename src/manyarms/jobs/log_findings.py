"""Findings in logs: one pass over them for a check-up, what follows from it, and warnings of jobs that read them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from shlex import quote
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from manyarms._base.arrow import pa
from manyarms._base.checks import Array
from manyarms.core.arrow_columns import codes_of
from manyarms.core.labels import other_type, rough_key
from manyarms.jobs.guess_roles import MANY_VALUES, RoleGuess
from manyarms.logs.column_profile import ColumnProfile
from manyarms.logs.row_reader import DroppedRows

MOST_HASHES = 5_000_000
"""Rows whose repeats are counted; of longer logs, the first ones."""
MOST_DAYS = 100_000
"""Days whose rounds are counted."""
LEAKING = 0.98
"""A correlation with the reward beyond which a column is likely to be made from it."""
NUMBER = r"[+-]?[\d.]+(e[+-]?\d+)?"
FUTURE = r"after|later|next|return|refund|outcome|result|delivered|paid|converted|future|label|target"
Level = Literal["problem", "warning", "note"]
Row = tuple[Any, str, str, str]
"""Level, subject, problem and remedy of a finding."""


@dataclass(frozen=True)
class LogFinding:
    """A finding in logs or catalog: one thing that the check-up noticed.

    Attributes:
        level: "problem" if it must be fixed, "warning" if the answer may be wrong, "note" for anything else to know.
        subject: The column, or what the finding is about.
        problem: The finding, as a sentence.
        remedy: What to do about it, as a sentence.
    """

    level: Level
    subject: str
    problem: str
    remedy: str


class LogPass:
    """A pass over logs for findings: the profile of each column, weights by propensities, repeated rows, days.

    Args:
        roles: The roles of the columns.
        columns: The names of all columns.
    """

    def __init__(self, roles: RoleGuess, columns: Sequence[str]):
        self.roles, self.names = roles, list(columns)
        self.columns = dict[str, ColumnProfile]()
        self.n_rows = self.n_hashed = self.n_bad_propensities = 0
        self.first_bad_propensity: tuple[int, float] | None = None
        self.weights = np.zeros(3)
        self._hashes = list[Array]()
        self.days = dict[Any, int]()

    def add(self, batch: pa.RecordBatch) -> None:
        """Count a batch of rows."""
        rewards = self._numbers(batch, self.roles.reward)
        for name in batch.schema.names:
            column = batch.column(name)
            profile = self.columns.setdefault(name, ColumnProfile(name, column.type))
            profile.add(column, None if name == self.roles.reward else rewards)
        self._add_propensities(self._numbers(batch, self.roles.propensity))
        self._add_times(batch)
        self._add_hashes(batch)
        self.n_rows += batch.num_rows

    @property
    def rewards(self) -> ColumnProfile | None:
        """The profile of the rewards."""
        return self.columns.get(self.roles.reward)

    @property
    def is_binary(self) -> bool:
        """True if all rewards are 0 or 1."""
        rewards = self.rewards
        return rewards is not None and rewards.is_open and rewards.n_distinct > 0 and set(rewards.counts) <= {0, 1}

    def _numbers(self, batch: pa.RecordBatch, name: str) -> Float[Array, " n"] | None:
        if not name or name not in batch.schema.names:
            return None
        try:
            return batch.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False).astype(np.float64)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None

    def _add_propensities(self, propensities: Float[Array, " n"] | None) -> None:
        if propensities is None:
            return
        with np.errstate(invalid="ignore"):
            fine = (propensities > 0) & (propensities <= 1)
        bad = np.flatnonzero(~fine)
        self.n_bad_propensities += len(bad)
        if len(bad) and self.first_bad_propensity is None:
            self.first_bad_propensity = (self.n_rows + int(bad[0]), float(propensities[bad[0]]))
        weights = 1.0 / propensities[fine]
        self.weights += np.array([len(weights), weights.sum(), (weights**2).sum()])

    def _add_times(self, batch: pa.RecordBatch) -> None:
        name = self.roles.time
        if not name:
            return
        column = batch.column(name)
        if pa.types.is_string(column.type):
            try:
                column = column.cast(pa.timestamp("us"))
            except pa.ArrowInvalid:
                return
        if not (pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)):
            return
        moments = column.drop_null().cast(pa.timestamp("us"), safe=False).to_numpy(zero_copy_only=False)
        if len(self.days) <= MOST_DAYS:
            days, counts = np.unique(moments.astype("datetime64[D]"), return_counts=True)
            for day, count in zip(days.tolist(), counts.tolist(), strict=True):
                self.days[day] = self.days.get(day, 0) + count

    def _add_hashes(self, batch: pa.RecordBatch) -> None:
        """Count rows that came before, by a hash of all their values."""
        if self.n_hashed >= MOST_HASHES:
            return
        hashes = np.zeros(batch.num_rows, dtype=np.uint64)
        for column in batch.columns:
            if not pa.types.is_nested(column.type):
                hashes = hashes * MULTIPLIER + _hashed(column)
        self._hashes.append(hashes)
        self.n_hashed += len(hashes)

    @property
    def n_repeated(self) -> int:
        """The number of rows that are copies of earlier ones."""
        return self.n_hashed - len(np.unique(np.concatenate(self._hashes))) if self._hashes else 0


MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def _hashed(column: pa.Array) -> Array:
    """(n,) a hash of each value: numbers by their bits, others by a hash of each distinct value."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_timestamp(kind):
        whole = column.cast(pa.int64()) if pa.types.is_timestamp(kind) else column.cast(pa.float64(), safe=False)
        bits = whole.to_numpy(zero_copy_only=False).astype(np.float64).view(np.uint64)
        return (bits ^ (bits >> np.uint64(29))) * MULTIPLIER
    codes, distinct = codes_of(pa.chunked_array([column]))
    values = np.array([hash(value) & 0xFFFFFFFFFFFFFFFF for value in [*distinct, None]], dtype=np.uint64)
    return values[np.nan_to_num(codes.astype(np.float64), nan=len(distinct)).astype(np.int64)]


def log_findings(
    logs: LogPass, catalog: Sequence[ColumnProfile], roles: RoleGuess, categories: Mapping[Any, Any]
) -> Iterator[Row]:
    """Everything that a pass over the logs shows: level, subject, problem and remedy.

    Args:
        logs: The logs, after the pass.
        catalog: The columns of the catalog; none without one.
        roles: The roles of the columns.
        categories: The category of each id of the catalog.
    """
    yield from _roles(logs, roles)
    yield from _texts(logs, roles)
    yield from _gaps(logs, roles)
    yield from _leakage(logs, roles)
    items = {column.name: column for column in catalog}
    if roles.action and roles.id in items:
        yield from _ids(logs.columns[roles.action], items[roles.id])
        for name in roles.picks:
            yield from _picks(logs.columns[name], items[roles.id], roles.action)
        yield from _support(logs.columns[roles.action], categories, roles)
    if roles.action and not catalog:
        problem = "there is no catalog, so only items that were logged are known, and they have no categories."
        yield "warning", "catalog", problem, "Pass a table of all items, with a column of categories."
    yield from _propensities(logs, roles, items.get(roles.id))
    yield from _rewards(logs, roles)
    yield from _repeats_and_times(logs)


def _roles(logs: LogPass, roles: RoleGuess) -> Iterator[Row]:
    for role in ("action", "reward"):
        if not getattr(roles, role):
            problem = f"no column looks like the {role}; the columns are {', '.join(logs.names)}."
            likely = _outcomes(logs, roles) if role == "reward" else []
            example = f" Columns of 0 and 1: {', '.join(likely)}." if likely else ""
            yield "problem", role, problem, f"Name it: --{role} COLUMN.{example}"
    if not roles.propensity:
        problem = "no column looks like propensities, the probability with which the logged item was chosen."
        yield "note", "propensity", problem, "They are optional: where they are needed, they are estimated."
    if roles.action and not roles.context:
        problem = "no column looks like a context, so all rounds look alike."
        yield "warning", "context", problem, "Add columns that were known before the choice, such as device or age."


def _outcomes(logs: LogPass, roles: RoleGuess) -> list[str]:
    """The columns that may be rewards by their values: contexts that are 0 or 1 in every row."""
    return [name for name in roles.context if set(logs.columns[name].counts) == {0, 1}]


def _texts(logs: LogPass, roles: RoleGuess) -> Iterator[Row]:
    """Columns of texts that should be numbers, and those with so many values that fits are slow."""
    for name, column in logs.columns.items():
        if name in roles.left_out and column.odd_number is not None:
            problem = f"column {name} looks like numbers but is read as texts because of values such as "
            problem += f"{column.odd_number!r}, so each value would become a feature of its own."
            remedy = "Write plain numbers, such as 1250.00, and leave unknown ones empty. Until then, the commands "
            yield "warning", name, problem, remedy + "below leave the column out."
        elif roles.left_out.get(name) == MANY_VALUES:
            problem = f"column {name} has {column.n_distinct:,} values. As a context, each of the commonest 100 would "
            problem += "become a feature of its own, and fits would be slow."
            yield "note", name, problem, "Group them into fewer values. The commands below leave the column out."


def _gaps(logs: LogPass, roles: RoleGuess) -> Iterator[Row]:
    used = {*roles.context, roles.action, roles.reward, roles.propensity, *roles.picks}
    for column in logs.columns.values():
        share = column.n_missing / max(column.n_rows, 1)
        if column.n_missing and column.name in used:
            level = "problem" if share > 0.5 else "warning"
            problem = (
                f"column {column.name} is missing in {column.n_missing:,} of {column.n_rows:,} rows "
                f"({100 * share:.1f} %)."
            )
            yield level, column.name, problem, "Fill the gaps in, leave the column out, or pass --missing drop."
        elif column.is_constant and column.n_rows > 1 and column.name not in (roles.propensity, roles.weight):
            value = next(iter(column.counts), None)
            problem = f"column {column.name} is {'empty' if value is None else f'{value!r} in every row'}."
            if column.name in (roles.action, roles.reward):
                yield "problem", column.name, problem, "Add rounds with other values: these have nothing to compare."
            else:
                yield "note", column.name, problem, "Leave it out of the context: it says nothing."


def _leakage(logs: LogPass, roles: RoleGuess) -> Iterator[Row]:
    rewards = logs.rewards
    if rewards is None:
        return
    for name in roles.context:
        column = logs.columns[name]
        remedy = f"Leave {name} out of --context unless it was known before the choice."
        if abs(column.correlation) > LEAKING:
            problem = (
                f"column {name} has a correlation of {column.correlation:.3f} with the reward, as if computed from it."
            )
            yield "problem", name, problem, remedy
        elif column.n_missing and column.filled_rewarded and not column.filled_unrewarded:
            problem = f"column {name} is filled in only where the reward is not zero, so it is known only afterwards."
            yield "problem", name, problem, remedy
        elif re.search(FUTURE, name.lower()):
            problem = f"judging by its name, column {name} may be known only after the choice."
            yield "warning", name, problem, remedy
    time = logs.columns.get(roles.time)
    for name, column in logs.columns.items():
        if time is None or not (time.is_time and column.is_time) or name == roles.time:
            continue
        if _after(column.low, time.low) and _after(column.high, time.high):
            problem = f"column {name} is later than {roles.time}, so it was not known at the time of the choice."
            yield "warning", name, problem, "Do not use it as a context."


def _after(left: Any, right: Any) -> bool:
    try:
        return bool(left > right)
    except TypeError:
        return False


def _ids(actions: ColumnProfile, ids: ColumnProfile) -> Iterator[Row]:
    if ids.n_distinct < ids.n_rows:
        twice = next((value for value, count in ids.counts.items() if count > 1), None)
        problem = f"the catalog's column {ids.name} is not unique: {twice!r} occurs {ids.counts.get(twice, 0)} times."
        yield "problem", ids.name, problem, "Keep one row per item, or name the column of ids with --id."
    unknown = {
        value: count for value, count in actions.counts.items()
        if value not in ids.counts and other_type(value) not in ids.counts
    }  # fmt: skip
    rough = {rough_key(value): value for value in ids.counts}
    near = {value: rough[rough_key(value)] for value in unknown if rough_key(value) in rough}
    if near:
        left, right = next(iter(near.items()))
        rows = sum(unknown[value] for value in near)
        problem = (
            f"{len(near):,} ids in the logs ({rows:,} rows) nearly match the catalog: the logs have {left!r}, "
            f"the catalog has {right!r}."
        )
        yield "problem", actions.name, problem, "Spell them the same way in both files."
    strange = {value: count for value, count in unknown.items() if value not in near}
    if strange:
        first = next(iter(strange))
        rows = sum(strange.values())
        problem = f"{len(strange):,} ids in the logs ({rows:,} rows) are not in the catalog, such as {first!r}."
        level = "problem" if len(strange) > 0.5 * actions.n_distinct else "warning"
        remedy = "Add them to the catalog, or pass --unknown drop or --unknown other."
        yield level, actions.name, problem, remedy if level == "warning" else f"Is {ids.name} the right --id? {remedy}"
    logged = sum(1 for value in ids.counts if value in actions.counts or other_type(value) in actions.counts)
    never = ids.n_distinct - logged
    if never:
        share = never / max(ids.n_distinct, 1)
        problem = f"{never:,} of {ids.n_distinct:,} items ({100 * share:.0f} %) were never logged."
        remedy = "That is fine: they borrow from their category. Values that rest on them are marked."
        yield "note", ids.name, problem, remedy


def _support(actions: ColumnProfile, categories: Mapping[Any, Any], roles: RoleGuess) -> Iterator[Row]:
    if not categories:
        problem = "the catalog has no column of categories, so items that were never logged have nothing to learn from."
        yield "warning", "category", problem, "Add one, or name tags, a taxonomy or embeddings: see docs/priors.md."
        return
    rounds = dict.fromkeys(categories.values(), 0)
    for id, category in categories.items():
        rounds[category] += actions.counts.get(id, actions.counts.get(other_type(id), 0))
    empty = [str(category) for category, count in rounds.items() if count == 0]
    if empty:
        shown = ", ".join(empty[:5]) + (", ..." if len(empty) > 5 else "")
        problem = f"{len(empty):,} of {len(rounds):,} categories ({roles.category}) have no round: {shown}."
        yield "warning", roles.category, problem, "Values that rest on them come from the prior. Merge or log them."
    thin = sum(0 < count < 10 for count in rounds.values())
    if thin:
        problem = f"{thin:,} of {len(rounds):,} categories ({roles.category}) have fewer than 10 rounds."
        yield "note", roles.category, problem, "Merge small categories, or add a taxonomy above them."


def _picks(picks: ColumnProfile, ids: ColumnProfile, action: str) -> Iterator[Row]:
    strange = [value for value in picks.counts if value not in ids.counts and other_type(value) not in ids.counts]
    problem = (
        f"columns {action} and {picks.name} both hold items. We assume that {action} holds the items that were shown."
    )
    policy, name = quote(f"{picks.name}=column:{picks.name}"), quote(picks.name)
    remedy = (
        f"Evaluate the other as the picks of a recommender: --policies {policy}. If the items "
        f"in {picks.name} were shown instead, run doctor again with --action {name}."
    )
    yield "note", picks.name, problem, remedy
    if strange:
        problem = f"{len(strange):,} of its items are not in the catalog, such as {strange[0]!r}."
        yield "problem", picks.name, problem, "Add them to the catalog, or leave such rows out."


def _propensities(logs: LogPass, roles: RoleGuess, ids: ColumnProfile | None) -> Iterator[Row]:
    if not roles.propensity:
        return
    if logs.first_bad_propensity is not None:
        row, value = logs.first_bad_propensity
        count = f"{logs.n_bad_propensities:,} propensities"
        problem = f"{count} are outside the valid range, above 0 and at most 1; the first is {value:g} in row {row}."
        yield "problem", roles.propensity, problem, "Log the probability of the item that was shown, or leave it out."
    n, total, square = logs.weights.tolist()
    actions = logs.columns.get(roles.action)
    if n < 2 or actions is None or not actions.is_open or roles.eligible:
        # With candidates, 1 / p averages to their number, which differs from round to round.
        return
    # Under the logging policy, 1 / p averages to the number of items that it can choose.
    mean = total / n
    error = float(np.sqrt(max(square / n - mean**2, 0.0) / n))
    seen, known = actions.n_distinct, None if ids is None else ids.n_distinct
    remedy = "Check that the column holds the probability of the item that was shown, in this context, at that time."
    if mean + 5 * error + 1e-9 < 0.9 * seen:
        problem = (
            f"the mean of 1 / propensity is {mean:.3g}. If every item could be shown in every round, it would be at "
            f"least {seen:,}, the number of items shown."
        )
        yield "problem", roles.propensity, problem, remedy
    elif known is not None and mean - 5 * error > 1.1 * known:
        problem = (
            f"the mean of 1 / propensity is {mean:.3g}. It cannot be above {known:,}, the number of items, so the "
            "propensities are too small."
        )
        yield "problem", roles.propensity, problem, remedy


def _rewards(logs: LogPass, roles: RoleGuess) -> Iterator[Row]:
    rewards = logs.rewards
    if rewards is not None and rewards.is_text:
        example = next((value for value in rewards.counts if not re.fullmatch(NUMBER, value)), "")
        problem = f"the rewards are read as texts because of values such as {example!r}."
        yield "problem", roles.reward, problem, "Write numbers, such as 0 and 1, and leave unknown ones empty."
    if rewards is None or rewards.low is None:
        return
    values = [value for value in rewards.counts if isinstance(value, int | float)]
    never_zero = rewards.is_open and 0 not in rewards.counts
    stars = rewards.is_open and 2 < rewards.n_distinct <= 11 and 0 < rewards.low and rewards.high <= 10
    if re.search(r"rating|stars|review", roles.reward.lower()) or (never_zero and stars):
        problem = (
            f"the rewards ({min(values):g} to {max(values):g}, never 0) look like ratings that users chose to give."
        )
        remedy = "Self-selection: such a log does not show what happens if the system chooses. Read docs/limits.md."
        yield "warning", roles.reward, problem, remedy
    elif never_zero and rewards.low > 0 and rewards.n_rows > 100:
        problem = "no reward is 0: rounds without a success may not have been logged."
        yield "warning", roles.reward, problem, "Log every round, including those in which nothing happened."
    if logs.is_binary:
        problem = f"all rewards are 0 or 1 ({rewards.counts.get(1, rewards.counts.get(True, 0)):,} are 1)."
        yield "note", roles.reward, problem, "Pass --likelihood bernoulli."


def _repeats_and_times(logs: LogPass) -> Iterator[Row]:
    share = logs.n_repeated / max(logs.n_hashed, 1)
    # Few columns of few values repeat by chance.
    distinct = np.prod([min(column.n_distinct + 1.0, 1e6) for column in logs.columns.values()])
    expected = logs.n_hashed**2 / (2.0 * max(float(distinct), 1.0))
    if logs.n_repeated > 10 * expected + 5 and share > 0.001:
        problem = f"{logs.n_repeated:,} rows ({100 * share:.1f} %) are exact copies of earlier rows."
        yield (
            "warning",
            "rows",
            problem,
            "If rows were written twice, drop the copies: they would count as extra evidence. With few columns, "
            "identical rows can also arise by chance.",
        )
    days = sorted(logs.days)
    if len(days) > 2:
        gaps = [(right - left).days for left, right in pairwise(days)]
        longest = max(gaps)
        if longest > max(3 * float(np.median(gaps)), 2):
            place = gaps.index(longest)
            problem = f"nothing was logged between {_day(days[place])} and {_day(days[place + 1])}."
            yield "warning", logs.roles.time, problem, "If the system changed then, use only the rounds after the gap."


def _day(moment: Any) -> str:
    return moment.date().isoformat() if isinstance(moment, datetime) else str(moment)


def row_warnings(dropped: DroppedRows) -> list[str]:
    """Findings in the rows that a job has read, as warnings: none of them is an error."""
    warnings = list[str]()
    if dropped.ahead:
        rounds = "1 round is" if dropped.ahead == 1 else f"{dropped.ahead:,} rounds are"
        warnings.append(
            f"{rounds} later than now and counted in full: check the time given as now, and the column of times"
        )
    if dropped.spelled and dropped.unknown + dropped.mapped:
        warnings.append(f"ids are compared as they are written: {dropped.spelled}; spell them alike")
    return warnings
