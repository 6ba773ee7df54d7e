"""The posterior of the weights: one solve for Gaussian rewards, the variational loop of solves for all others.

In the loop every round gets a site: a Gaussian factor in its predictor η_i = φ(x_i)ᵀ θ_{a_i} that stands in for
p(r_i | η_i). Given the sites, the posterior is one solve. Given the posterior N(m_i, v_i) of every predictor, the
likelihood computes new sites. A step moves all sites towards these, in natural parameters, and is halved until the
objective does not fall.

- variational: sites from expected derivatives under N(m_i, v_i). The fixed point maximises the evidence lower bound
  over Gaussians (conjugate-computation variational inference, Khan and Lin, 2017).
- laplace: sites from derivatives at m_i, v_i = 0. The fixed point is the joint mode of ψ and θ, with its curvature.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from manyarms._base.progress import Progress, reporter
from manyarms.core import DenseMixing, HierarchicalGaussian, LoggedData, Logs, Statistics
from manyarms.engines import LOCAL, Engine
from manyarms.errors import InputError
from manyarms.inference import condition
from manyarms.likelihoods.collect_statistics import CollectedStatistics, CollectStatistics
from manyarms.likelihoods.likelihood import Likelihood, Site
from manyarms.likelihoods.sites import MemorySiteSolver, SiteState, StreamSiteSolver, between

MAX_ITERATIONS = 100
SMALLEST_STEP = 1.0 / 1024


@dataclass(frozen=True)
class Approximation:
    """A Gaussian posterior, with the last `SiteState` of the loop; `sites` are None for rounds that are not in memory.

    Attributes:
        trace: The objective after each step; it never falls.
        converged: True if the last full step changed next to nothing.
        stuck: True if the loop stopped before it converged because no step raised the objective.
    """

    weights: HierarchicalGaussian
    statistics: Statistics
    sites: Site | None
    dispersion_slope: float
    log_evidence: float
    trace: tuple[float, ...]
    converged: bool
    stuck: bool = False


def approximate(
    prior: HierarchicalGaussian,
    logs: Logs,
    likelihood: Likelihood,
    *,
    engine: Engine = LOCAL,
    start: Site | Statistics | HierarchicalGaussian | None = None,
    max_iterations: int = MAX_ITERATIONS,
    tolerance: float = 1e-6,
    progress: Progress = False,
) -> Approximation:
    """The Gaussian that stands in for the posterior; `likelihood.treatment` chooses the approximation.

    The prior may be an earlier posterior, whose sites stay as they are. The likelihood must have checked rounds in
    memory. The loop starts from sites of the same rounds (as sums, for rounds that are not in memory), or from the
    predictions of some weights, by default the prior. It ends when a full step gains less than `tolerance` nats.
    """
    in_memory = isinstance(logs, LoggedData)
    solver: Any = (
        MemorySiteSolver(prior, logs, likelihood) if in_memory else StreamSiteSolver(prior, logs, likelihood, engine)
    )
    is_sites = isinstance(start, Site | Statistics)
    sites = start if is_sites else solver.sites_from(prior if start is None else start)
    state = solver.state(sites)
    trace, converged, stuck = [state.objective], False, False
    with reporter(progress, max_iterations, "fitting") as report:
        while not converged and len(trace) <= max_iterations:
            trial, step = _take_step(solver, state)
            gain = trial.objective - state.objective
            if not gain >= -state.rounding:
                # No step in this direction helps: floating point allows no better, or the arithmetic has failed.
                converged = abs(gain) < tolerance
                stuck = not converged
                break
            state = trial
            trace.append(max(state.objective, trace[-1]))
            converged = step == 1.0 and gain < tolerance
            report(len(trace) - 1, max_iterations)
    last, slope = state.sites if in_memory else None, state.dispersion_slope()
    return Approximation(
        state.weights, state.statistics, last, slope, state.log_evidence, tuple(trace), converged, stuck
    )


def _take_step(solver: Any, state: SiteState) -> tuple[SiteState, float]:
    """The state after a step, halved until the objective does not fall, and the length of the step."""
    target, step, least = state.target(), 1.0, state.objective - state.rounding
    trial = solver.state(target)
    if not trial.objective >= least and (careful := state.careful()) is not None:
        target, trial = careful, solver.state(careful)
    # A full step may overshoot, as Newton's method does on a curved log density.
    while not trial.objective >= least and step > SMALLEST_STEP:
        step /= 2
        trial = solver.state(between(state.sites, target, step))
    return trial, step


RIDGE = 1e-3
"""The penalty on ‖θ_a‖² under which the paper's per-action maximum likelihood exists."""


@dataclass(frozen=True)
class FittedWeights:
    """Posterior of the weights from one solve or the variational loop, with its convergence and its faults in words.

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
    start: Site | HierarchicalGaussian | None = None,
    max_iterations: int = MAX_ITERATIONS,
    tolerance: float = 1e-6,
    progress: Progress = False,
) -> FittedWeights:
    """Posterior of weights given rounds: the variational loop, or one solve under an exact likelihood.

    The prior may be an earlier posterior.
    """
    if likelihood.treatment == "exact":
        return fit_statistics(
            prior, engine.total(logs, CollectStatistics(likelihood, prior.n_actions, logs.dim)), likelihood
        )
    options: dict[str, Any] = {"max_iterations": max_iterations, "tolerance": tolerance, "progress": progress}
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
    """The exact posterior, which needs no variational loop, from statistics that one pass has collected."""
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
