"""The direct method as an estimator: a posterior's answer, beside the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from manyarms._arrays import as_instance
from manyarms.core.data import LoggedData
from manyarms.core.estimate import Estimate
from manyarms.core.policy import Policy
from manyarms.estimators.base import check_target
from manyarms.estimators.diagnostics import Thresholds, judge
from manyarms.posterior.judge import PolicyJudge


class DM:
    """V(π) under a posterior: sDM, DM (Bayes) or DM (Freq), according to the prior it was fitted with.

    It needs no propensities, and it may be judged on the logs it was fitted to: a posterior already counts them.

    Args:
        posterior: What `fit` returned.
        name: What to call it in a table.
        thresholds: When to warn.
    """

    def __init__(self, posterior: PolicyJudge, *, name: str = "DM", thresholds: Thresholds | None = None):
        self.posterior = as_instance("posterior", posterior, PolicyJudge, "what ma.fit returned")
        self.name = name
        self.thresholds = Thresholds() if thresholds is None else thresholds

    def estimate(self, policy: Policy, logs: LoggedData, *, eligible: Any = None) -> Estimate:
        """The posterior of the policy's value on the logged contexts."""
        check_target(policy, logs)
        found = self.posterior.value(policy, logs.contexts, eligible=eligible, weights=logs.weights, groups=logs.groups)
        return replace(found, warnings=(*found.warnings, *judge(found.diagnostics, self.thresholds)))
