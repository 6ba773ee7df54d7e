"""The doubt about a model whose own rounds chose the policy: two posteriors of one prior that may not agree.

A policy that was learned from a log takes what the noise of that log favours. Bayes' rule allows for it, if the prior
is right. If effects are smaller or of another shape than the prior says, the model overrates just this policy, though
it may be right on average over all other choices. A second posterior, given the rounds of the evaluation alone, knows
nothing of that noise. Where the two differ by more than their variances explain, the prior is wrong for this policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from manyarms.core import Estimate, LoggedData, Policy
from manyarms.posterior.posterior import Posterior


@dataclass(frozen=True)
class SelectionDoubt:
    """The doubt that two posteriors of one prior leave about a policy: how far they differ beyond their variances.

    Attributes:
        together: The posterior given the rounds that chose the policy and those of the evaluation.
        alone: The posterior given the rounds of the evaluation alone.
    """

    together: Posterior
    alone: Posterior

    def std(self, policy: Policy, baseline: Policy | None, logs: LoggedData, eligible: Any = None) -> float:
        """The standard deviation of the model's error that the two reveal, of a value or of the gain over a baseline.

        If the prior is right, `together` is efficient, so that its errors are uncorrelated with the difference of the
        two (Hausman, 1978). The difference then has the variance of `alone` minus that of `together`. What its square
        has beyond that is the error of the prior.
        """
        first, second = (_answer(side, policy, baseline, logs, eligible) for side in (self.together, self.alone))
        explained = max(posterior_std(second) ** 2 - posterior_std(first) ** 2, 0.0)
        return float(np.sqrt(max((first.value - second.value) ** 2 - explained, 0.0)))


def posterior_std(estimate: Estimate) -> float:
    """The standard deviation that is the model's own, without that of the contexts where the two are told apart."""
    return estimate.std if estimate.posterior_std is None else estimate.posterior_std


def _answer(posterior: Posterior, policy: Policy, baseline: Policy | None, logs: LoggedData, eligible: Any) -> Estimate:
    """The value of the policy, or its gain over the baseline, on the contexts of the log."""
    if baseline is None:
        return posterior.value(policy, logs.contexts, eligible=eligible, weights=logs.weights)
    return posterior.difference(policy, baseline, logs.contexts, eligible=eligible, weights=logs.weights)
