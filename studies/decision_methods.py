"""The methods of studies/decisions.py: every estimator as a function from a policy to its gain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import manyarms as ma
from manyarms.errors import InputError
from manyarms.estimators.estimator import SamplingEstimator
from manyarms.estimators.intervals import as_units
from manyarms.estimators.logging_policy import EstimatedLogging
from manyarms.estimators.reward_model import TableModel

Gain = Callable[[ma.Policy], ma.Estimate]


def noise_of(likelihood: str, logs: ma.LoggedData) -> ma.Bernoulli | ma.Gaussian:
    """The likelihood of this name. The noise of Gaussian rewards is the spread of those in the log."""
    return ma.Bernoulli() if likelihood == "bernoulli" else ma.Gaussian(max(0.05, float(logs.rewards.std())))


def without_propensities(logs: ma.LoggedData) -> ma.LoggedData:
    """The log with a logging policy that is estimated from its actions, once for all methods."""
    bare = ma.LoggedData(logs.contexts, logs.actions, logs.rewards, n_actions=logs.n_actions)
    estimated = EstimatedLogging(bare)
    return ma.LoggedData(logs.contexts, logs.actions, logs.rewards, n_actions=logs.n_actions, logging_policy=estimated)


def weighting_estimators(posterior: ma.RewardPosterior, logs: ma.LoggedData) -> tuple[SamplingEstimator, ...]:
    """The estimators with importance weights. Those with a model have the posterior's."""
    # The posterior's rewards, predicted once for all estimators.
    n, model = len(logs), TableModel(posterior.expected_reward(logs.contexts))
    # A weight of √n is where Switch-DR drops a round, and where DRos gives the largest weight.
    return ma.SNIPS(), ma.DR(model), ma.SNDR(model), ma.SwitchDR(model, np.sqrt(n)), ma.DRos(model, float(n))


def gains_over_log(posterior: ma.RewardPosterior, logs: ma.LoggedData, eligible: Any = None) -> dict[str, Gain]:
    """Every method as a function from a policy to its gain over the log."""
    logged, checked = ma.Logged(logs), ma.Checked(posterior)
    return {
        "posterior": lambda policy: posterior.difference(policy, logged, logs.contexts, eligible=eligible),
        "Checked": lambda policy: checked.difference(policy, logged, logs, eligible=eligible),
        **{
            estimator.name: lambda policy, by=estimator: gain_by(by, policy, logs, eligible)
            for estimator in weighting_estimators(posterior, logs)
        },
    }


def gain_by(estimator: SamplingEstimator, policy: ma.Policy, logs: ma.LoggedData, eligible: Any) -> ma.Estimate:
    """The estimate minus the mean logged reward, with the standard error of this difference: both share the rounds."""
    rounds = estimator.rounds(policy, logs, eligible)
    if rounds.denominator is not None and not rounds.denominator.any():
        raise InputError("all weights are zero.")
    units = as_units(rounds.direct - logs.rewards, rounds.numerator, rounds.denominator, None, None)
    return ma.Estimate(units.value, units.std, kind="sampling", method="normal")


def answer(gain: Gain, policy: ma.Policy) -> dict[str, Any]:
    """The gain with its interval and probability; NaN where a method has no answer."""
    try:
        estimate = gain(policy)
    except InputError:
        return dict.fromkeys(("gain", "low", "high", "probability"), np.nan)
    low, high = estimate.interval(0.95)
    return {"gain": estimate.value, "low": low, "high": high, "probability": estimate.probability_positive}
