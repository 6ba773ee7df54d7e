"""The rule for the age of a row: how much an old one counts, and which are too young to count."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


@dataclass(frozen=True)
class AgeRule:
    """The rule for the age of a row: how much an old one counts, and which are too young to count.

    Attributes:
        now: The time from which ages are counted.
        half_life: A round this old counts half, one twice as old a quarter; None for no such decay.
        maturity: Younger rounds are left out, since their rewards may still come in; None for none.
        after: Rounds at this time or before are left out, since they were counted already; None for none.
        by_clock: True where `now` was read from the clock, and so stands for local time where times have no zone.
    """

    now: datetime
    half_life: timedelta | None = None
    maturity: timedelta | None = None
    after: datetime | None = None
    by_clock: bool = False

    @property
    def until(self) -> datetime | None:
        """The last moment whose rounds are old enough."""
        if self.maturity is None:
            return None
        # In a zone with summer time a day by the clock may be 23 hours.
        return (self.now if self.now.tzinfo is None else self.now.astimezone(UTC)) - self.maturity


def seconds_between(earlier: datetime, later: datetime) -> float:
    """Seconds from one moment to another, such as the age of a row: by the local clock if just one has a zone."""
    if (earlier.tzinfo is None) != (later.tzinfo is None):
        earlier, later = local_time(earlier), local_time(later)
    return (later - earlier).total_seconds()


def local_time(moment: datetime) -> datetime:
    """A moment that an age is counted from, as a clock without a time zone shows it here."""
    return moment if moment.tzinfo is None else moment.astimezone().replace(tzinfo=None)
