"""The result of a backtest: forecasts beside what happened, alarms, and the answer in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from manyarms.core import Tabular
from manyarms.core.result_tables import number, percent
from manyarms.jobs.drift_alarm import DriftAlarm
from manyarms.jobs.reward_forecast import Series
from manyarms.posterior import RewardPosterior


@dataclass(frozen=True)
class PeriodForecast:
    """One forecast of a backtest, and what happened.

    Attributes:
        period: The name of the period, such as its date.
        series: What the forecast is about: "all" rounds, those of a "category", those that a policy logged ("logged
            by"), or the value of a "policy".
        group: The category or the policy; "all rounds" for all of them.
        n_rounds: The number of rounds, by weight.
        forecast: The mean reward that the model expected.
        std: The standard deviation of the mean reward by the forecast.
        low: The lower end of the interval.
        high: The upper end of the interval.
        observed: The mean reward that was observed; for the value of a policy, its estimate by snIPS.
        z: The normal score of the error; N(0, 1) if the forecast is right.
        evidence: The evidence of drift in this series so far, as odds; see `jobs.drift_alarm`.
    """

    period: str
    series: Series
    group: str
    n_rounds: float
    forecast: float
    std: float
    low: float
    high: float
    observed: float
    z: float
    evidence: float = 1.0

    @property
    def is_inside(self) -> bool:
        """True if the observed mean reward lies in the interval."""
        return self.low <= self.observed <= self.high


@dataclass(frozen=True, repr=False)
class Backtest(Tabular):
    """Forecasts of a log, period by period, beside what happened.

    Attributes:
        forecasts: All forecasts: by series, then in the order of time.
        alarms: The alarms, those of all rounds first.
        level: The probability of the intervals.
        false_alarm: The probability that right forecasts raise any alarm, for each kind of series.
        n_training: The number of periods used only to fit the model; 0 if a model was given.
        n_empty: The number of periods without rounds.
        posterior: The model after the last period.
        made_with: The sizes and options behind the figures.
        unit: The unit of the reward, for the page; empty where it has no name.
    """

    forecasts: tuple[PeriodForecast, ...]
    alarms: tuple[DriftAlarm, ...]
    level: float
    false_alarm: float
    n_training: int
    n_empty: int
    posterior: RewardPosterior
    made_with: Mapping[str, str] = field(default_factory=dict[str, str])
    unit: str = ""

    def series(self, series: Series = "all", group: str | None = None) -> tuple[PeriodForecast, ...]:
        """The forecasts of a kind of series, or of one group of it, in the order of time."""
        return tuple(row for row in self.forecasts if row.series == series and group in (None, row.group))

    @property
    def coverage(self) -> float:
        """The share of periods whose mean reward, over all rounds, lies in its interval."""
        return float(np.mean([row.is_inside for row in self.series()]))

    def coverage_of(self, series: Series) -> float | None:
        """The share of forecasts of a kind of series whose observed value lies in its interval; None without any."""
        rows = self.series(series)
        return float(np.mean([row.is_inside for row in rows])) if rows else None

    @property
    def discrepancy(self) -> float:
        """The distance of mean rewards from their forecasts beyond what those expect, as a share of the mean reward.

        The square root of the mean of (observed - forecast)² minus the variance of the forecast, at least 0.
        """
        rows = self.series()
        mean = abs(float(np.mean([row.observed for row in rows])))
        excess = max(0.0, float(np.mean([(row.observed - row.forecast) ** 2 - row.std**2 for row in rows])))
        return float(np.sqrt(excess) / mean) if mean > 0 else np.inf if excess > 0 else 0.0

    @property
    def verdict(self) -> Literal["drift", "held"]:
        """The verdict: "drift" if an alarm was raised, else "held"."""
        return "drift" if self.alarms else "held"

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        rows = self.series()
        inside = f"{sum(row.is_inside for row in rows):,} of {len(rows):,} forecasts of the mean reward"
        covered = f"{inside} held within their {_level(self.level)} intervals"
        if not self.alarms:
            return f"No sign of drift: {covered}."
        first = self.alarms[0]
        where = "" if first.series == "all" else f" of {first.group}"
        direction = "higher" if first.z > 0 else "lower"
        since = f"since about {first.since}{self._clearest_category()}; {covered}."
        if abs(first.z) > CLEAR_SHIFT:
            return f"Drift: rewards{where} are {direction} than forecast {since}"
        return f"Drift: the forecasts{where} miss by more than they should {since}"

    def _clearest_category(self) -> str:
        """The category with most evidence of drift, where all rounds drift but most categories do not."""
        own = [alarm for alarm in self.alarms if alarm.series == "category"]
        groups = {row.group for row in self.series("category")}
        if self.alarms[0].series != "all" or not own or 2 * len(own) > len(groups):
            return ""
        last = {row.group: row.evidence for row in self.series("category")}
        return f", most clearly in {max(own, key=lambda alarm: last[alarm.group]).group}"

    @property
    def reason(self) -> str:
        """The evidence behind the sentence."""
        odds = f"If the forecasts are right, the probability of an alarm is at most {percent(self.false_alarm)}"
        if not self.alarms:
            few = f" {len(self.series()):,} periods are few: they would show only a large drift."
            return f"{odds}, and there was none.{few if len(self.series()) < FEW_PERIODS else ''}"
        first, others = self.alarms[0], len(self.alarms) - 1
        more = f" There are {others:,} more alarms." if others > 1 else " There is one more alarm." if others else ""
        return (
            f"The alarm came in the period {first.period}, at odds of {odds_in_words(first.evidence)} against the "
            f"forecasts. {odds}.{more} Either the rewards have changed, or the model is wrong about their spread."
        )

    @property
    def size(self) -> str:
        """The size of the drift in words: how far mean rewards have been off since it began; empty without an alarm."""
        if not self.alarms:
            return ""
        first = self.alarms[0]
        rows = self.series(first.series, first.group)
        since = rows[[row.period for row in rows].index(first.since) :]
        expected = abs(sum(row.n_rounds * row.forecast for row in since) / sum(row.n_rounds for row in since))
        part = f" ({percent(abs(first.error) / expected)})" if expected > 0 else ""
        amount = f"{number(abs(first.error))} {self.unit}".strip()
        side = "above" if first.error > 0 else "below"
        return f"Since then, the mean reward per round has been {amount}{part} {side} the forecasts."

    @property
    def next_step(self) -> str:
        """The next step, in one or two sentences."""
        if not self.alarms:
            return "Use the model as it is, and run the backtest again when more days have been logged."
        return (
            f"Find out what changed around {self.alarms[0].since} before you trust a decision that rests on these "
            "rounds. If the change is going to last, fit the model with a half-life, so that it forgets older rounds."
        )

    def records(self) -> list[dict[str, Any]]:
        """One plain record per forecast."""
        return [{**vars(row), "inside": row.is_inside} for row in self.forecasts]

    def as_json(self) -> dict[str, Any]:
        """The whole backtest as plain values."""
        return {
            "verdict": self.verdict,
            "sentence": self.sentence,
            "reason": self.reason,
            "size": self.size,
            "next_step": self.next_step,
            "unit": self.unit,
            "level": self.level,
            "coverage": {name: self.coverage_of(name) for name in ("all", "category", "logged by", "policy")},
            "discrepancy": self.discrepancy if np.isfinite(self.discrepancy) else None,
            "false_alarm": self.false_alarm,
            "alarms": [vars(alarm) for alarm in self.alarms],
            "training_periods": self.n_training,
            "empty_periods": self.n_empty,
            "forecasts": self.records(),
            "made_with": dict(self.made_with),
        }

    def __repr__(self) -> str:
        return f"Backtest({len(self.series()):,} periods: {self.sentence})"

    def __str__(self) -> str:
        lines = [f"{'period':<18}{'rounds':>10}{'forecast':>12}{_level(self.level) + ' interval':>24}{'observed':>12}"]
        rows = self.series()
        for row in rows[-SHOWN:]:
            interval = f"{number(row.low)} to {number(row.high)}"
            mark = "" if row.is_inside else "  outside"
            lines.append(
                f"{row.period:<18}{row.n_rounds:>10,.6g}{number(row.forecast):>12}{interval:>24}"
                f"{number(row.observed):>12}{mark}"
            )
        if len(rows) > SHOWN:
            lines.insert(1, f"... {len(rows) - SHOWN:,} earlier periods ...")
        words = [self.sentence, self.size, self.reason, self.next_step]
        return "\n".join([*lines, "", " ".join(text for text in words if text)])


def _level(level: float) -> str:
    return f"{100 * level:g} %"


def odds_in_words(evidence: float) -> str:
    """The odds in a backtest's result, written out up to a million."""
    return f"{evidence:,.0f} to 1" if evidence < 1e6 else "over a million to 1"


FEW_PERIODS = 10
"""With fewer periods than this, a backtest says that only a large drift would show."""
SHOWN = 40
"""The most periods in the printed table."""
CLEAR_SHIFT = 0.5
"""The mean score of the errors from which on a drift has a direction."""
