"""Every public entry point with a valid call, from which hostile calls are made.

hostile_names.py checks that no public name is missing here.
"""

from __future__ import annotations

from trust import hostile_job_calls as jobs
from trust import hostile_model_calls as models
from trust import hostile_policy_calls as policies
from trust.hostile_call import HostileCall


def every_call() -> tuple[HostileCall, ...]:
    """All entry points, in a fixed order."""
    parts = (
        models.core_calls, models.prior_calls, models.fit_calls, models.likelihood_calls, models.posterior_calls,
        policies.policy_calls, policies.estimator_calls, policies.learner_calls, policies.decision_calls,
        jobs.job_calls, jobs.environment_calls, jobs.theory_calls, jobs.experiment_calls, jobs.bridge_calls,
    )  # fmt: skip
    return tuple(call for part in parts for call in part())
