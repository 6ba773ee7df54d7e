"""Periods of a log, such as days: the rounds of each, and names for tables and charts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
from jaxtyping import Int

from manyarms._base.checks import Array, as_instance, as_scalar
from manyarms.core import LoggedData
from manyarms.errors import InputError, RangeError

MOST_PERIODS = 2000
"""More periods than this are refused: each of them updates the model."""
_DAY = np.timedelta64(1, "D").astype("timedelta64[us]")
_FARTHEST_YEAR = 10_000
_LONGEST = timedelta(microseconds=2**63 - 1)
_MOST_STEPS = 2.0**52


@dataclass(frozen=True)
class Periods:
    """The periods of a log that have rounds, in the order of time.

    Attributes:
        logs: The rounds.
        start: The time at which the first period begins: datetime64 in microseconds, or a number.
        width: The length of a period: timedelta64 in microseconds, or a number.
        numbers: (p,) The number of each period with rounds, counted from the first.
        codes: (n,) The place of each round's period in `numbers`.
    """

    logs: LoggedData
    start: Any
    width: Any
    numbers: Int[Array, " p"]
    codes: Int[Array, " n"]

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def n_empty(self) -> int:
        """The number of periods without rounds, from the first to the last."""
        return int(self.numbers[-1]) + 1 - len(self.numbers)

    @property
    def by_clock(self) -> bool:
        """True if times are dates, and not numbers."""
        return isinstance(self.start, np.datetime64)

    def begin(self, place: int) -> Any:
        """The time at which a period begins."""
        return self.start + int(self.numbers[place]) * self.width

    def name(self, place: int) -> str:
        """The name of a period: its date, with the time of day where periods are not whole days, or its number."""
        begin = self.begin(place)
        if not self.by_clock:
            return f"{begin:g}"
        return str(np.datetime_as_string(begin, unit="D" if self.width % _DAY == np.timedelta64(0, "us") else "m"))

    def rows(self, first: int, last: int) -> Int[Array, " m"]:
        """The rows of the log in the periods from `first` up to `last`, which is not among them."""
        return np.flatnonzero((self.codes >= first) & (self.codes < last))

    def share_left(self, place: int, half_life: Any) -> float:
        """The weight that rounds keep from the period before `place` up to it."""
        passed = int(self.numbers[place] - self.numbers[place - 1]) * self.width
        return float(2.0 ** -(passed / half_life))


def cut_periods(logs: LoggedData, period: Any) -> Periods:
    """Cut a log into periods of equal length.

    Args:
        logs: Rounds with times.
        period: A timedelta where times are dates, else a number; None for a day.
    """
    if logs.times is None:
        raise InputError(
            "have no times, so it is not known which rounds came first.",
            'Pass times= to LoggedData, or time="at" to read_logs.',
            argument="logs",
            flag_remedy="Name the column of times with --time.",
        )
    if len(logs) == 0:
        raise InputError("have no rounds.", argument="logs")
    width = as_span("period", timedelta(days=1) if period is None and _is_dated(logs) else period, logs)
    times = np.asarray(logs.times)
    if _is_dated(logs):
        if np.abs(times.astype("datetime64[Y]").astype(np.int64)).max() > _FARTHEST_YEAR:
            raise RangeError("must lie within ten thousand years of 1970.", argument="times")
        times = times.astype("datetime64[us]")
        # Days begin at midnight, and shorter periods at a multiple of their length.
        start: Any = times.min() - (times.min() - np.datetime64(0, "us")) % min(width, _DAY)
        steps = (times - start) // width
    else:
        # An overflow leaves infinity or NaN, and neither is below the limit.
        with np.errstate(over="ignore", invalid="ignore"):
            start = float(np.floor(times.min() / width) * width)
            steps = np.floor((times - start) / width)
        if not np.abs(steps).max() < _MOST_STEPS:
            raise RangeError("is too short: there would be too many periods.", "Pass a longer one.", argument="period")
    numbers, codes = np.unique(steps.astype(np.int64), return_inverse=True)
    if len(numbers) > MOST_PERIODS:
        problem = f"makes {len(numbers):,} periods; there can be at most {MOST_PERIODS:,}."
        raise RangeError(problem, "Pass a longer one.", argument="period")
    return Periods(logs, start, width, numbers, codes)


def as_span(name: str, value: Any, logs: LoggedData) -> Any:
    """Check the length of a period, or of a half-life, in the unit of the times of a log."""
    if not _is_dated(logs):
        if value is None or isinstance(value, timedelta):
            raise InputError(
                "must be a number, since the times of the logs are numbers.",
                f"Pass {name}=1.0 for one unit of time.",
                argument=name,
                flag_remedy="Convert the column of times to timestamps.",
            )
        return as_scalar(name, value, above=0.0)
    span = as_instance(name, value, timedelta, "a timedelta, as in timedelta(days=1)")
    if span <= timedelta(0):
        raise RangeError(f"must be above zero; got {span}.", argument=name)
    if span > _LONGEST:
        # NumPy would wrap it around to a negative one.
        raise RangeError(f"is too long: {span}.", argument=name)
    return np.timedelta64(span, "us").astype("timedelta64[us]")


def _is_dated(logs: LoggedData) -> bool:
    return logs.times is not None and logs.times.dtype.kind == "M"
