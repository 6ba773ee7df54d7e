"""`ma.backtest`: forecast each day from the days before it, and compare with what happened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Int

from manyarms._base.checks import Array, as_count, as_instance, as_scalar
from manyarms._base.job_options import PriorChoice
from manyarms._base.progress import Progress, reporter
from manyarms.core import HierarchicalGaussian, LoggedData, Policy, any_shared, as_column, encode
from manyarms.core.labels import with_missing
from manyarms.errors import InputError
from manyarms.estimators.importance_weighted import SNIPS
from manyarms.jobs.backtest_result import Backtest, PeriodForecast
from manyarms.jobs.drift_alarm import DriftAlarm, drift_evidence
from manyarms.jobs.periods import Periods, as_span, cut_periods
from manyarms.jobs.reward_forecast import RewardForecast, RoundForecasts, Series
from manyarms.likelihoods import Likelihood
from manyarms.posterior import RewardPosterior
from manyarms.posterior.model_line import model_line
from manyarms.prior_learning.learn_prior import learn_prior
from manyarms.priors import from_categories

TRAINING_SHARE = 0.2
"""The share of the periods used only for fitting, unless another number is given."""
MOST_GROUPS = 30
"""Categories, or logging policies, that are forecast one by one; the rounds of all others are taken together."""
ALL = "all rounds"


def backtest(
    logs: LoggedData,
    posterior: RewardPosterior | None = None,
    *,
    prior: HierarchicalGaussian | PriorChoice | None = None,
    likelihood: Likelihood | None = None,
    period: Any = None,
    training: int | None = None,
    categories: Any = None,
    logged_by: Any = None,
    policies: Mapping[str, Policy] | None = None,
    half_life: Any = None,
    level: float = 0.95,
    false_alarm: float = 0.05,
    progress: Progress = False,
) -> Backtest:
    """Forecast the mean reward of each day from the days before it, and compare with what happened.

    A forecast knows the contexts and actions of the next day, and none of its rewards. It is the posterior predictive
    of their mean reward: uncertainty about the weights, which rounds share, plus the noise of single rewards. With
    Gaussian rewards it is exact. After each day the posterior is updated with it; nothing is fitted twice.

    Where there is no model, the prior and the noise are learned once, from the first periods; the rest are forecast.

    Args:
        logs: Rounds with times; they need not be in the order of time.
        posterior: A model of earlier rounds. None to learn one from the first periods.
        prior: The prior to learn the model with, or its kind, as in `learn_prior`; by default the one that suits the
            categories, or else the catalog.
        likelihood: The likelihood of the rewards; by default Gaussian noise of learned size.
        period: The length of a period: a timedelta, or a number where times are numbers. By default a day; days begin
            at midnight in the clock of the times.
        training: The number of periods at the start that are only used to fit the model, and are not forecast; by
            default a fifth of them, and at least one.
        categories: (K,) The category labels of the actions. Each is forecast separately. None: those of the catalog.
        logged_by: (n,) The name of the policy that chose the action in each round. Each policy's rounds are also
            forecast separately.
        policies: Policies by name whose values are forecast, and compared with their estimates by snIPS. The logs need
            propensities.
        half_life: The age at which a round counts half as much as a new one, by whole periods; None to forget nothing.
        level: The probability of the intervals.
        false_alarm: The maximum probability of raising an alarm when the forecasts are in fact right.
        progress: True shows how many periods are done; a function is called as progress(done, total).

    Raises:
        InputError: If the logs have no times, or all rounds are of one period.
    """
    logs = as_instance("logs", logs, LoggedData, "a LoggedData; collect() a stream first")
    policies = as_instance("policies", policies or {}, Mapping, "a mapping")
    if logs.weights is not None and not logs.weights.all():
        kept = np.flatnonzero(logs.weights)
        logged_by = None if logged_by is None else as_column("logged_by", logged_by, length=len(logs))[kept]
        policies = {name: policy.take(kept) for name, policy in policies.items()}
        logs = logs.take(kept)
    level = as_scalar("level", level, above=0.0, below=1.0)
    false_alarm = as_scalar("false_alarm", false_alarm, above=0.0, below=1.0)
    periods = cut_periods(logs, period)
    half_life = None if half_life is None else as_span("half_life", half_life, logs)
    groups = _Groups(logs, categories, logged_by, policies)
    first = _first_forecast(periods, posterior, training)
    if posterior is None:
        posterior = _learn(logs.take(periods.rows(0, first)), prior, likelihood, categories)
    else:
        _check_model(posterior, logs, prior=prior, likelihood=likelihood, training=training)
    rows = list[PeriodForecast]()
    with reporter(progress, len(periods) - first, "periods") as report:
        for place in range(first, len(periods)):
            if half_life is not None and place > 0:
                posterior = posterior.discounted(max(periods.share_left(place, half_life), _FORGOTTEN))
            mine = periods.rows(place, place + 1)
            rows.extend(groups.forecasts(posterior, mine, periods.name(place), level))
            posterior = posterior.update(logs.take(mine))
            report(place + 1 - first, len(periods) - first)
    forecasts, alarms = _judged(rows, false_alarm)
    facts = {
        "rounds": f"{len(logs):,} in {len(periods):,} periods, the first {first:,} used only for fitting",
        "empty periods": f"{periods.n_empty:,}",
        "model": model_line(posterior),
    }
    return Backtest(forecasts, alarms, level, false_alarm, first, periods.n_empty, posterior, facts)


class _Groups:
    """The groups of rounds that a backtest forecasts."""

    def __init__(self, logs: LoggedData, categories: Any, logged_by: Any, policies: Mapping[str, Policy]):
        column = None if categories is None else as_column("categories", categories, length=logs.n_actions)
        if column is None and logs.catalog is not None:
            column = logs.catalog.categories
        self._codes = dict[Series, tuple[Int[Array, " n"], list[str]]]()
        if column is not None:
            codes, labels, _ = with_missing(encode("categories", column))
            self._codes["category"] = _largest(codes[logs.actions], [str(label) for label in labels])
        if logged_by is not None:
            codes, labels, _ = with_missing(encode("logged_by", as_column("logged_by", logged_by, length=len(logs))))
            self._codes["logged by"] = _largest(codes, [str(label) for label in labels])
        self._policies = {name: as_instance(name, policy, Policy, "a policy") for name, policy in policies.items()}
        if policies and logs.propensities is None:
            raise InputError("need propensities to compare their values with what happened.", argument="policies")
        self._logs = logs

    def forecasts(
        self, posterior: RewardPosterior, mine: Int[Array, " m"], period: str, level: float
    ) -> Iterator[PeriodForecast]:
        """The forecasts of one period, which has these rows of the log."""
        rounds = self._logs.take(mine)
        model = RoundForecasts(posterior, rounds)

        def compared(series: Series, group: str, rows: Int[Array, " m"]) -> PeriodForecast:
            forecast = model.forecast(rows)
            weights = None if rounds.weights is None else rounds.weights[rows]
            observed = float(np.average(rounds.rewards[rows], weights=weights))
            return _compared(period, series, group, forecast, observed, level)

        yield compared("all", ALL, np.arange(len(rounds)))
        for series, (codes, labels) in self._codes.items():
            here = codes[mine]
            for code in np.unique(here):
                yield compared(series, labels[code], np.flatnonzero(here == code))
        for name, policy in self._policies.items():
            yield self._value(posterior, name, policy.take(mine), rounds, period, level)

    @staticmethod
    def _value(
        posterior: RewardPosterior, name: str, policy: Policy, rounds: LoggedData, period: str, level: float
    ) -> PeriodForecast:
        """The value of a policy on the contexts of a period: by the model, and by snIPS on its rewards."""
        model = posterior.value(policy, rounds.contexts, weights=rounds.weights)
        estimate = SNIPS().estimate(policy, rounds)
        error = float(np.hypot(model.posterior_std or 0.0, estimate.std))
        weight = float(len(rounds) if rounds.weights is None else rounds.weights.sum())
        forecast = RewardForecast(model.value, error, weight)
        return _compared(period, "policy", name, forecast, estimate.value, level)


def _compared(
    period: str, series: Series, group: str, forecast: RewardForecast, observed: float, level: float
) -> PeriodForecast:
    low, high = forecast.interval(level)
    score = forecast.z_score(observed)
    figures = forecast.weight, forecast.mean, forecast.std
    return PeriodForecast(period, series, group, *figures, low, high, observed, score)


def _largest(codes: Int[Array, " n"], labels: list[str]) -> tuple[Int[Array, " n"], list[str]]:
    """The groups with most rounds; the others are one group, the last."""
    counts = np.bincount(codes, minlength=len(labels))
    present = np.flatnonzero(counts)
    order = present[np.argsort(-counts[present], kind="stable")]
    kept = order if len(order) <= MOST_GROUPS else order[: MOST_GROUPS - 1]
    place = np.full(len(labels), len(kept))
    place[kept] = np.arange(len(kept))
    rest = [f"{len(order) - len(kept):,} others"] if len(kept) < len(order) else []
    return place[codes], [*(labels[code] for code in kept), *rest]


def _judged(
    rows: list[PeriodForecast], false_alarm: float
) -> tuple[tuple[PeriodForecast, ...], tuple[DriftAlarm, ...]]:
    """The forecasts with the evidence of drift in their series, and the alarms."""
    groups = dict[tuple[Series, str], list[PeriodForecast]]()
    for row in rows:
        groups.setdefault((row.series, row.group), []).append(row)
    forecasts, alarms = list[PeriodForecast](), list[DriftAlarm]()
    for (series, group), own in groups.items():
        scores = np.array([row.z for row in own])
        evidence = drift_evidence(scores)
        # Of several series of a kind, each has its part of the probability of a false alarm.
        threshold = sum(kind == series for kind, _ in groups) / false_alarm
        odds = np.exp(np.minimum(evidence.log_evidence, _LARGEST_LOG))
        forecasts += [replace(row, evidence=float(ratio)) for row, ratio in zip(own, odds, strict=True)]
        place = evidence.first_above(threshold)
        if place is not None:
            began = evidence.began(place)
            since, shift = own[began:], float(scores[began:].mean())
            rounds = [row.n_rounds for row in since]
            error = float(np.average([row.observed - row.forecast for row in since], weights=rounds))
            periods = own[place].period, since[0].period
            alarms.append(DriftAlarm(series, group, *periods, float(odds[place]), shift, error))
    return tuple(forecasts), tuple(alarms)


def _first_forecast(periods: Periods, posterior: Any, training: int | None) -> int:
    """The place of the first period to forecast."""
    if posterior is not None:
        return 0
    if len(periods) < 2:
        raise InputError(
            f"are all of one period, {periods.name(0)}, so there is nothing to forecast.",
            "Pass the logs of at least two periods, a shorter period=, or a model of earlier rounds.",
            argument="logs",
            flag_remedy="Pass the logs of at least two days, a shorter --period, or a --model of earlier rounds.",
        )
    first = max(1, round(TRAINING_SHARE * len(periods))) if training is None else as_count("training", training)
    if first >= len(periods):
        problem = f"must leave a period to forecast; got {first} of {len(periods)}."
        raise InputError(problem, "Pass a smaller number.", argument="training")
    return first


def _learn(
    rounds: LoggedData,
    prior: HierarchicalGaussian | PriorChoice | None,
    likelihood: Likelihood | None,
    categories: Any,
) -> RewardPosterior:
    """The model that is learned from the first periods."""
    if prior is None:
        prior = "auto" if categories is None else from_categories(categories, dim=rounds.dim, shared_std=1.0)
    return learn_prior(rounds, prior, likelihood).posterior


def _check_model(posterior: Any, logs: LoggedData, **others: Any) -> None:
    """Refuse a model that cannot be updated or has seen the rounds, and arguments that do not go with a model."""
    as_instance("posterior", posterior, RewardPosterior, "a model with one set of weights, as fit() returns")
    for name, value in others.items():
        if value is not None:
            raise InputError("cannot be combined with a fitted model.", "Leave it out.", argument=name)
    if any_shared(posterior.learned_from, (logs.fingerprint,)):
        raise InputError(
            "has seen these rounds, so its forecasts of them would look better than they are.",
            "Pass a model of earlier rounds, or none.",
            argument="posterior",
            flag_remedy="Pass a --model of earlier rounds, or none.",
        )


_FORGOTTEN = 1e-200
_LARGEST_LOG = 690.0
