"""The posterior of the weights: one solve for Gaussian rewards, the variational loop for all others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from manyarms._base.progress import Progress
from manyarms.core import DenseMixing, HierarchicalGaussian, LoggedData, Logs, Statistics
from manyarms.engines import LOCAL, Engine
from manyarms.errors import InputError
from manyarms.gpu.device import CPU
from manyarms.inference import condition
from manyarms.likelihoods.collect_statistics import CollectedStatistics, CollectStatistics
from manyarms.likelihoods.device_sites import DeviceRounds, check_loop
from manyarms.likelihoods.likelihood import Likelihood
from manyarms.likelihoods.variational import MAX_ITERATIONS, Approximation, Start, approximate

RIDGE = 1e-3
"""The penalty on ‖θ_a‖² under which the paper's per-action maximum likelihood exists."""


@dataclass(frozen=True)
class FittedWeights:
    """The result of `fit_weights`: a posterior of the weights, with its convergence and its faults in words.

    Attributes:
        statistics: Sums over the rewards of these rounds, or over the pseudo-rewards that stand in for them.
        evidence_offset: The log evidence of these rounds less that of the Gaussian solve.
        trace: The objective after each step; empty where one solve was enough.
    """

    weights: HierarchicalGaussian
    statistics: Statistics
    evidence_offset: float = 0.0
    trace: tuple[float, ...] = ()
    converged: bool = True
    warnings: tuple[str, ...] = ()


def fit_weights(
    prior: HierarchicalGaussian,
    logs: Logs,
    likelihood: Likelihood,
    *,
    engine: Engine = LOCAL,
    start: Start = None,
    max_iterations: int = MAX_ITERATIONS,
    tolerance: float = 1e-6,
    progress: Progress = False,
    device: str | DeviceRounds = CPU,
) -> FittedWeights:
    """Fit the weights to rounds: the variational loop, or one solve under an exact likelihood.

    The prior may be an earlier posterior. The loop for clicks can run on a GPU.
    """
    if device != CPU:
        check_loop(prior, logs, likelihood)
    if likelihood.treatment == "exact":
        return fit_statistics(
            prior, engine.total(logs, CollectStatistics(likelihood, prior.n_actions, logs.dim)), likelihood
        )
    options: dict[str, Any] = {"max_iterations": max_iterations, "tolerance": tolerance, "progress": progress}
    options["device"] = device
    if isinstance(logs, LoggedData):
        likelihood.check(logs.rewards, logs.weights)
        logs = logs.counted()
    if likelihood.treatment == "paper":
        if not isinstance(logs, LoggedData):
            raise InputError('treatment "paper" needs the rounds in memory.', "Pass logs.collect().")
        return _by_action(prior, logs, likelihood, options)
    result = approximate(prior, logs, likelihood, engine=engine, start=start, **options)
    offset = result.log_evidence - (result.weights.log_evidence - prior.log_evidence)
    warnings = (*_warnings(result), *likelihood.warnings)
    return FittedWeights(result.weights, result.statistics, offset, result.trace, result.converged, warnings)


def fit_statistics(
    prior: HierarchicalGaussian, collected: CollectedStatistics, likelihood: Likelihood
) -> FittedWeights:
    """Fit the weights, under an exact likelihood, to statistics that one pass has collected."""
    weights = condition(prior, collected.statistics, likelihood.noise_std)
    return FittedWeights(weights, collected.statistics, float(collected.numbers[0]), warnings=likelihood.warnings)


def _by_action(
    prior: HierarchicalGaussian, logs: LoggedData, likelihood: Likelihood, options: dict[str, Any]
) -> FittedWeights:
    """The paper's approximation: N(μ̆_a, Ğ_a⁻¹) for the rounds of each action, from its own maximum of the likelihood.

    The maximum is found as the mode under a flat prior, N(0, I / RIDGE) for every action by itself.
    """
    empty = DenseMixing(np.zeros((prior.n_actions, prior.dim, 0)))
    flat = HierarchicalGaussian(np.zeros(0), np.zeros((0, 0)), empty, 1.0 / RIDGE)
    mode = approximate(flat, logs, likelihood.treated("laplace"), **options)
    seen, where = np.unique(logs.actions, return_inverse=True)
    peak = np.einsum("nd,nd->n", logs.contexts, mode.weights.action_mean(seen)[where])
    assert mode.sites is not None
    counts = np.ones(len(logs)) if logs.weights is None else logs.weights
    statistics = Statistics.of_rounds(logs.contexts, logs.actions, peak, prior.n_actions, mode.sites.weight * counts)
    warnings = (*_warnings(mode), _PAPER)
    weights = condition(prior, statistics, 1.0)
    return FittedWeights(weights, statistics, 0.0, mode.trace, mode.converged, warnings)


def _warnings(result: Approximation) -> tuple[str, ...]:
    if result.converged:
        return ()
    steps = len(result.trace) - 1
    if result.stuck:
        return (
            f"the fit stopped after {steps} steps, before it converged: no step raised the objective any further. "
            "Scale contexts to about one, or narrow the prior",
        )
    return (f"the fit had not converged after {steps} steps; allow more iterations",)


_PAPER = (
    'treatment "paper" ignores actions whose rewards are all the same: values are biased and intervals too narrow. '
    'Use "variational"'
)
