"""The doubt about a model whose own rounds chose the policy: what it takes back when it sees other rounds.

A policy that was learned from a log takes what the noise of that log favours. Bayes' rule allows for it, if the prior
is right. If the prior is wrong, the model overrates just this policy, though it may be right on average over all other
choices. Rounds that had no part in the choice show it: they move the model further than its own variance allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from manyarms.core import Estimate, LoggedData, Policy
from manyarms.estimators.model_error import MARGIN
from manyarms.posterior.posterior import Posterior


@dataclass(frozen=True)
class SelectionDoubt:
    """The doubt that a posterior leaves about a policy when it takes back more than it was unsure of.

    Attributes:
        before: The posterior whose rounds chose the policy.
        after: The same, given further rounds.
    """

    before: Posterior
    after: Posterior

    def stds(
        self, policy: Policy, baseline: Policy | None, logs: LoggedData, eligible: Any = None
    ) -> tuple[float, float]:
        """The standard deviation of the model's error that is still left, downwards and upwards.

        It is that of a value, or of the gain over a baseline.

        If the prior is right, posterior means are a martingale: the step from `before` to `after` has mean zero, and
        the variance of `before` minus that of `after`, also for a policy that the rounds of `before` chose. What its
        square has beyond that is an error of the prior, of which the further rounds have removed a part. What is left
        may be larger by the margin of `model_error`. It has the direction of the step, so the other side is zero.
        """
        first, second = (_answer(side, policy, baseline, logs, eligible) for side in (self.before, self.after))
        explained = max(_posterior_std(first) ** 2 - _posterior_std(second) ** 2, 0.0)
        left = MARGIN * float(np.sqrt(max((first.value - second.value) ** 2 - explained, 0.0)))
        return (left, 0.0) if first.value > second.value else (0.0, left)


def _posterior_std(estimate: Estimate) -> float:
    """The standard deviation that is the model's own, without that of the contexts where the two are told apart."""
    return estimate.std if estimate.posterior_std is None else estimate.posterior_std


def _answer(posterior: Posterior, policy: Policy, baseline: Policy | None, logs: LoggedData, eligible: Any) -> Estimate:
    """The value of the policy, or its gain over the baseline, on the contexts of the log."""
    if baseline is None:
        return posterior.value(policy, logs.contexts, eligible=eligible, weights=logs.weights)
    return posterior.difference(policy, baseline, logs.contexts, eligible=eligible, weights=logs.weights)
