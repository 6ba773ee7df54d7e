"""The loop around the closed-form solve, for likelihoods that are not Gaussian.

Every round gets a site, a Gaussian factor in its predictor η_i = φ(x_i)ᵀ θ_{a_i} that stands in for p(r_i | η_i). Given
the sites the posterior is one solve. Given the posterior N(m_i, v_i) of every predictor, each likelihood says what its
site should be. A step moves all sites towards that, in natural parameters, halved until the objective does not fall.

- variational: sites from expected derivatives under N(m_i, v_i). The fixed point maximises the evidence lower bound
  over Gaussians (conjugate-computation variational inference, Khan and Lin, 2017).
- laplace: sites from derivatives at m_i, v_i = 0. The fixed point is the joint mode of ψ and θ, with its curvature.

Rounds and a prior in, a posterior out: one solve where rewards are Gaussian, a loop of solves where they are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from manyarms._base.progress import Progress, reporter
from manyarms.core.hierarchical_gaussian import HierarchicalGaussian
from manyarms.core.logged_data import LoggedData, Logs
from manyarms.core.mixing import DenseMixing
from manyarms.core.statistics import Statistics
from manyarms.engines import LOCAL, Engine
from manyarms.errors import InputError
from manyarms.inference import condition
from manyarms.likelihoods.collect_statistics import CollectedStatistics, CollectStatistics
from manyarms.likelihoods.likelihood import Likelihood, Site
from manyarms.likelihoods.sites import MemorySiteSolver, SiteSolver, StreamSiteSolver

MAX_ITERATIONS = 100
SMALLEST_STEP = 1.0 / 1024


@dataclass(frozen=True)
class Approximation:
    """A Gaussian posterior, with the sites that make it.

    Attributes:
        weights: The posterior of ψ and θ.
        statistics: The sites as sums, in units of a noise of one.
        sites: One for each round; None for rounds that are not in memory.
        dispersion_slope: The derivative of the objective by the logarithm of the likelihood's dispersion.
        log_evidence: The evidence lower bound, or Laplace's approximation of the evidence.
        trace: The objective after each step; it never falls.
        converged: Whether the last step changed next to nothing.
        stuck: Whether it stopped because no step raised the objective, though it had not come to rest.
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
    """The Gaussian that stands in for the posterior.

    Args:
        prior: What is believed before these rounds; an earlier posterior is allowed, and its sites stay as they are.
        logs: Rounds. Those in memory must have been checked by the likelihood.
        likelihood: Whose `treatment` says how.
        engine: Where rounds that are not in memory are gone through.
        start: Sites of the same rounds (as sums, for rounds that are not in memory), or weights whose predictions to
            start from; by default the prior's.
        max_iterations: Steps at most.
        tolerance: Stop when a full step raises the objective by less than this, in nats.
        progress: As everywhere.
    """
    rounds = _rounds(prior, logs, likelihood, engine)
    is_sites = isinstance(start, Site | Statistics)
    sites = start if is_sites else rounds.sites_from(prior if start is None else start)
    state = rounds.state(sites)
    trace, converged, stuck = [state.objective], False, False
    with reporter(progress, max_iterations, "fitting") as report:
        while not converged and len(trace) <= max_iterations:
            target, step = rounds.target(state), 1.0
            trial = rounds.state(target)
            if not trial.objective >= state.objective - state.rounding:
                calmer = rounds.settled(state)
                if calmer is not None:
                    target = calmer
                    trial = rounds.state(target)
            # A full step may overshoot, as Newton's does on a curved log density.
            while not trial.objective >= state.objective - state.rounding and step > SMALLEST_STEP:
                step /= 2
                trial = rounds.state(rounds.between(state, target, step))
            gain = trial.objective - state.objective
            if not gain >= -state.rounding:
                # No step along this direction helps: as good as it gets in floating point, or the arithmetic is lost.
                converged = abs(gain) < tolerance
                stuck = not converged
                break
            state = trial
            trace.append(max(state.objective, trace[-1]))
            converged = step == 1.0 and gain < tolerance
            report(len(trace) - 1, max_iterations)
    return Approximation(
        state.weights,
        state.statistics,
        state.sites if isinstance(state.sites, Site) else None,
        rounds.dispersion_slope(state),
        state.log_evidence,
        tuple(trace),
        converged,
        stuck,
    )


def _rounds(prior: HierarchicalGaussian, logs: Logs, likelihood: Likelihood, engine: Engine) -> SiteSolver[Any]:
    if isinstance(logs, LoggedData):
        return MemorySiteSolver(prior, logs, likelihood)
    return StreamSiteSolver(prior, logs, likelihood, engine)


RIDGE = 1e-3
"""The penalty on ‖θ_a‖² under which the paper's per-action maximum likelihood exists."""


@dataclass(frozen=True)
class FittedWeights:
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
    """The posterior of a prior (an earlier posterior is allowed) given logged rounds."""
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
            raise InputError('treatment "paper" needs the rounds in memory: pass logs.collect().')
        return _by_action(prior, logs, likelihood, options)
    found = approximate(prior, logs, likelihood, engine=engine, start=start, **options)
    offset = found.log_evidence - (found.weights.log_evidence - prior.log_evidence)
    warnings = (*_warnings(found), *likelihood.warnings)
    return FittedWeights(found.weights, found.statistics, offset, found.trace, found.converged, warnings)


def fit_statistics(prior: HierarchicalGaussian, counted: CollectedStatistics, likelihood: Likelihood) -> FittedWeights:
    """The same where one pass over the rounds was enough, and is done."""
    weights = condition(prior, counted.statistics, likelihood.noise_std)
    return FittedWeights(weights, counted.statistics, float(counted.numbers[0]), warnings=likelihood.warnings)


def _by_action(
    prior: HierarchicalGaussian, logs: LoggedData, likelihood: Likelihood, options: dict[str, Any]
) -> FittedWeights:
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
    return FittedWeights(weights, statistics, 0.0, found.trace, found.converged, warnings)


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
