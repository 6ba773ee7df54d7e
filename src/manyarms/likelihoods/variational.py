"""The variational loop: a posterior of the weights by repeated solves, for rewards that are not Gaussian.

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

from manyarms._base.progress import Progress, reporter
from manyarms.core import EffectGroup, HierarchicalGaussian, LoggedData, Logs, Statistics
from manyarms.engines import LOCAL, Engine
from manyarms.gpu.click_sums import SiteSums
from manyarms.gpu.device import CPU
from manyarms.inference.evidence_gradient import EvidenceGradient
from manyarms.likelihoods.device_sites import DeviceRounds, DeviceSiteSolver
from manyarms.likelihoods.likelihood import Likelihood, Site
from manyarms.likelihoods.rounds_by_action import RoundsByAction
from manyarms.likelihoods.sites import MemorySiteSolver, StreamSiteSolver, between

MAX_ITERATIONS = 100
Start = Site | Statistics | SiteSums | HierarchicalGaussian | None
"""Sites of the same rounds, one by one or as sums, or weights to predict from."""
SMALLEST_STEP = 1.0 / 1024


@dataclass(frozen=True, eq=False)
class Approximation:
    """The result of the variational loop.

    Attributes:
        state: The last sites, with the posterior that they give.
        trace: The objective after each step; it never falls.
        converged: True if the last full step changed next to nothing.
        stuck: True if the loop stopped before it converged because no step raised the objective.
    """

    state: Any
    trace: tuple[float, ...]
    converged: bool
    stuck: bool = False

    @property
    def weights(self) -> HierarchicalGaussian:
        """The posterior."""
        return self.state.weights

    @property
    def statistics(self) -> Statistics:
        """The last sites as sums."""
        return self.state.statistics

    @property
    def sites(self) -> Site | None:
        """The last site of every round; None for rounds that are not in memory."""
        return self.state.sites if isinstance(self.state.sites, Site) else None

    @property
    def log_evidence(self) -> float:
        """The evidence lower bound, or Laplace's approximation of the evidence."""
        return self.state.log_evidence

    def evidence(self, groups: tuple[EffectGroup, ...], prior: HierarchicalGaussian | None = None) -> EvidenceGradient:
        """The evidence of the Gaussian rounds that the sites stand for, under the prior of the loop or another one."""
        return self.state.evidence(groups, prior)

    @property
    def dispersion_slope(self) -> float:
        """The derivative of the objective by the logarithm of the likelihood's dispersion."""
        return self.state.dispersion_slope()


def approximate(
    prior: HierarchicalGaussian,
    logs: Logs,
    likelihood: Likelihood,
    *,
    engine: Engine = LOCAL,
    rounds: RoundsByAction | None = None,
    start: Start = None,
    max_iterations: int = MAX_ITERATIONS,
    tolerance: float = 1e-6,
    progress: Progress = False,
    device: str | DeviceRounds = CPU,
) -> Approximation:
    """Run the variational loop: the Gaussian that stands in for the posterior.

    `likelihood.treatment` chooses the approximation. `rounds` are those of logs in memory, sorted by action, where they
    are at hand from an earlier loop.

    The prior may be an earlier posterior, whose sites stay as they are. The likelihood must have checked rounds in
    memory. The loop starts from sites of the same rounds (as sums, for rounds that are not in memory), or from the
    predictions of some weights, by default the prior. It ends when a full step gains less than `tolerance` nats. A
    device may be given by rounds that lie on it already.
    """
    in_memory = isinstance(logs, LoggedData)
    if in_memory and not prior.observed.groups and prior.n_actions <= len(logs):
        # There are enough rounds that preparing sums by kind of action pays off in the first step.
        prior = prior.grouped()
    solver: Any
    if device != CPU:
        there = DeviceRounds(prior, logs, likelihood, device) if isinstance(device, str) else device
        solver = DeviceSiteSolver(prior, there)
    elif in_memory:
        solver = MemorySiteSolver(prior, logs, likelihood, rounds)
    else:
        solver = StreamSiteSolver(prior, logs, likelihood, engine)
    is_sites = isinstance(start, Site | Statistics | SiteSums)
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
    return Approximation(state, tuple(trace), converged, stuck)


def _take_step(solver: Any, state: Any) -> tuple[Any, float]:
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
