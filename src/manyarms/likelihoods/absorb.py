"""Rounds and a prior in, a posterior out: one solve where rewards are Gaussian, a loop of solves where they are not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from manyarms._progress import Progress
from manyarms.core.data import LoggedData, Logs
from manyarms.core.hierarchy import HierarchicalGaussian
from manyarms.core.mixing import DenseMixing
from manyarms.core.statistics import Statistics
from manyarms.engines import LOCAL, Engine
from manyarms.errors import InputError
from manyarms.inference import condition
from manyarms.likelihoods.approximate import MAX_ITERATIONS, Approximation, approximate
from manyarms.likelihoods.base import Likelihood, Site
from manyarms.likelihoods.counting import Count, Counted

RIDGE = 1e-3
"""The penalty on ‖θ_a‖² under which the paper's per-action maximum likelihood exists."""


@dataclass(frozen=True)
class Absorbed:
    """A posterior, and how it was come by.

    Attributes:
        weights: Of ψ and θ.
        statistics: Of these rounds: of their rewards, or of the pseudo-rewards that stand in for them.
        evidence_offset: The log evidence of these rounds less that of the Gaussian solve.
        trace: The objective after each step; empty where one solve was enough.
        converged: Whether the loop came to an end.
        warnings: In plain words.
    """

    weights: HierarchicalGaussian
    statistics: Statistics
    evidence_offset: float = 0.0
    trace: tuple[float, ...] = ()
    converged: bool = True
    warnings: tuple[str, ...] = ()


def absorb(
    prior: HierarchicalGaussian,
    logs: Logs,
    likelihood: Likelihood,
    *,
    engine: Engine = LOCAL,
    start: Site | HierarchicalGaussian | None = None,
    max_iterations: int = MAX_ITERATIONS,
    tolerance: float = 1e-6,
    progress: Progress = False,
) -> Absorbed:
    """The posterior of a prior (an earlier posterior is allowed) given logged rounds."""
    if likelihood.treatment == "exact":
        return absorb_counted(prior, engine.total(logs, Count(likelihood, prior.n_actions, logs.dim)), likelihood)
    options: dict[str, Any] = {"max_iterations": max_iterations, "tolerance": tolerance, "progress": progress}
    if isinstance(logs, LoggedData):
        likelihood.check(logs.rewards, logs.weights)
        logs = logs.counted()
    if likelihood.treatment == "paper":
        if not isinstance(logs, LoggedData):
            raise InputError('treatment "paper" needs the rounds in memory: pass logs.collect().')
        return _by_action(prior, logs, likelihood, options)
    found = approximate(prior, logs, likelihood, engine=engine, start=start, **options)
    offset = found.log_evidence - (found.weights.log_evidence - prior.log_evidence)
    warnings = (*_warnings(found), *likelihood.warnings)
    return Absorbed(found.weights, found.statistics, offset, found.trace, found.converged, warnings)


def absorb_counted(prior: HierarchicalGaussian, counted: Counted, likelihood: Likelihood) -> Absorbed:
    """The same where one pass over the rounds was enough, and is done."""
    weights = condition(prior, counted.statistics, likelihood.noise_std)
    return Absorbed(weights, counted.statistics, float(counted.numbers[0]), warnings=likelihood.warnings)


def _by_action(
    prior: HierarchicalGaussian, logs: LoggedData, likelihood: Likelihood, options: dict[str, Any]
) -> Absorbed:
    """The paper's approximation: N(μ̆_a, Ğ_a⁻¹) for the rounds of each action, from its own maximum of the likelihood.

    The maximum is found as the mode under a flat prior, N(0, I / RIDGE) for every action by itself.
    """
    empty = DenseMixing(np.zeros((prior.n_actions, prior.dim, 0)))
    flat = HierarchicalGaussian(np.zeros(0), np.zeros((0, 0)), empty, 1.0 / RIDGE)
    found = approximate(flat, logs, likelihood.treated("laplace"), **options)
    seen, where = np.unique(logs.actions, return_inverse=True)
    peak = np.einsum("nd,nd->n", logs.contexts, found.weights.action_mean(seen)[where])
    assert found.sites is not None
    counts = np.ones(len(logs)) if logs.weights is None else logs.weights
    statistics = Statistics.of_rounds(logs.contexts, logs.actions, peak, prior.n_actions, found.sites.weight * counts)
    warnings = (*_warnings(found), _PAPER)
    weights = condition(prior, statistics, 1.0)
    return Absorbed(weights, statistics, 0.0, found.trace, found.converged, warnings)


def _warnings(found: Approximation) -> tuple[str, ...]:
    if found.converged:
        return ()
    steps = len(found.trace) - 1
    if found.stuck:
        return (
            f"the fit stopped after {steps} steps, before it converged: no step raised the objective any further. "
            "Scale contexts to about one, or narrow the prior",
        )
    return (f"the fit had not converged after {steps} steps; raise max_iterations",)


_PAPER = (
    'treatment "paper" drops what actions with one kind of reward say: values are biased and intervals too narrow. '
    'Use "variational"'
)
