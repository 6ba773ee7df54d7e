"""A plan from files: the rounds that would settle whether a policy beats the current one (`manyarms plan`).

The options are the flags of the command, with the same defaults.
"""

from __future__ import annotations

from typing import Unpack

from manyarms._base.checks import as_text
from manyarms._base.files import PathLike
from manyarms._base.job_options import CatalogFile, LogOptions, PlanOptions, only, takes, with_defaults
from manyarms.decision.plan import Plan, plan
from manyarms.decision.recommendation import SURE
from manyarms.jobs.evaluate_files import read_evaluation_inputs
from manyarms.jobs.fit_files import OnRows
from manyarms.policies import Logged
from manyarms.posterior.posterior import Posterior


@takes(PlanOptions)
def plan_files(
    logs: PathLike,
    action: str,
    reward: str,
    propensity: str | None = None,
    *,
    model: PathLike | Posterior,
    sure: float = SURE,
    seed: int = 0,
    on_rows: OnRows | None = None,
    **options: Unpack[PlanOptions],
) -> Plan:
    """Plan the rounds that would settle whether a policy beats the current one, from a model and recent logs.

    The logs show the contexts to come, and what the current policy shows. `sure` is as in `plan`, `candidate` is one of
    the `policies` of `evaluate_files`, and all other arguments are as in `evaluate_files`.
    """
    given = with_defaults("plan_files", options, PlanOptions)
    candidate = as_text("candidate", given.candidate)
    inputs = read_evaluation_inputs(
        logs, action, reward, propensity, model, seed, on_rows, policies=(candidate,), sample=given.sample,
        **only(options, LogOptions), **only(options, CatalogFile),
    )  # fmt: skip
    rounds, posterior = inputs.sample.logs, inputs.posterior
    assert posterior is not None
    return plan(
        posterior, inputs.policies[candidate], Logged(rounds), rounds.contexts, sure=sure, chance=given.chance,
        share=given.share, max_cost=given.max_cost, weights=rounds.weights, groups=rounds.groups,
    )  # fmt: skip
