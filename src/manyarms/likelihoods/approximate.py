"""The loop around the closed-form solve, for likelihoods that are not Gaussian.

Every round gets a site, a Gaussian factor in its predictor η_i = φ(x_i)ᵀ θ_{a_i} that stands in for p(r_i | η_i). Given
the sites the posterior is one solve. Given the posterior N(m_i, v_i) of every predictor, each likelihood says what its
site should be. A step moves all sites towards that, in natural parameters, halved until the objective does not fall.

- variational: sites from expected derivatives under N(m_i, v_i). The fixed point maximises the evidence lower bound
  over Gaussians (conjugate-computation variational inference, Khan and Lin, 2017).
- laplace: sites from derivatives at m_i, v_i = 0. The fixed point is the joint mode of ψ and θ, with its curvature.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from manyarms._arrays import Array
from manyarms._progress import Progress, reporter
from manyarms.core.data import LoggedData
from manyarms.core.hierarchy import HierarchicalGaussian
from manyarms.core.statistics import Statistics
from manyarms.inference import condition
from manyarms.likelihoods.base import Likelihood, Site
from manyarms.linalg.quadratic import row_norms

MAX_ITERATIONS = 100
SMALLEST_STEP = 1.0 / 1024


@dataclass(frozen=True)
class Approximation:
    """A Gaussian posterior, with the sites that make it.

    Attributes:
        weights: The posterior of ψ and θ.
        statistics: The sites as sums, in units of a noise of one.
        sites: One for each round.
        mean: Of the predictor of each round.
        variance: Of the same; zero under "laplace".
        log_evidence: The evidence lower bound, or Laplace's approximation of the evidence.
        trace: The objective after each step; it never falls.
        converged: Whether the last step changed next to nothing.
    """

    weights: HierarchicalGaussian
    statistics: Statistics
    sites: Site
    mean: Float[Array, " n"]
    variance: Float[Array, " n"]
    log_evidence: float
    trace: tuple[float, ...]
    converged: bool


@dataclass(frozen=True)
class _State:
    sites: Site
    statistics: Statistics
    weights: HierarchicalGaussian
    mean: Float[Array, " n"]
    variance: Float[Array, " n"]
    objective: float


def approximate(
    prior: HierarchicalGaussian,
    logs: LoggedData,
    likelihood: Likelihood,
    *,
    start: Site | HierarchicalGaussian | None = None,
    max_iterations: int = MAX_ITERATIONS,
    tolerance: float = 1e-6,
    progress: Progress = False,
) -> Approximation:
    """The Gaussian that stands in for the posterior.

    Args:
        prior: What is believed before these rounds; an earlier posterior is allowed, and its sites stay as they are.
        logs: Rounds whose rewards the likelihood has checked.
        likelihood: Whose `treatment` says how.
        start: Sites of the same rounds, or weights whose predictions to start from; by default the prior's.
        max_iterations: Steps at most.
        tolerance: Stop when a full step raises the objective by less than this, in nats.
        progress: As everywhere.
    """
    loop = _Loop(prior, logs, likelihood)
    sites = start if isinstance(start, Site) else loop.target_from(prior if start is None else start)
    state = loop.state(sites)
    trace, converged = [state.objective], False
    with reporter(progress, max_iterations, "fitting") as report:
        while not converged and len(trace) <= max_iterations:
            target, step = loop.target(state), 1.0
            trial = loop.state(target)
            # A full step may overshoot, as Newton's does on a curved log density.
            while not trial.objective >= state.objective - _rounding(state) and step > SMALLEST_STEP:
                step /= 2
                trial = loop.state(_between(state.sites, target, step))
            gain = trial.objective - state.objective
            if gain < -_rounding(state):
                # No step along this direction helps: as good as it gets in floating point.
                converged = True
                break
            state = trial
            trace.append(max(state.objective, trace[-1]))
            converged = step == 1.0 and gain < tolerance
            report(len(trace) - 1, max_iterations)
    return Approximation(
        state.weights,
        state.statistics,
        state.sites,
        state.mean,
        state.variance,
        loop.log_evidence(state),
        tuple(trace),
        converged,
    )


class _Loop:
    """The rounds, and what is computed of them at every step."""

    def __init__(self, prior: HierarchicalGaussian, logs: LoggedData, likelihood: Likelihood):
        self.prior, self.logs, self.likelihood = prior, logs, likelihood
        self.counts = np.ones(len(logs)) if logs.weights is None else logs.weights
        self.variational = likelihood.treatment != "laplace"

    def target_from(self, weights: HierarchicalGaussian) -> Site:
        """The sites that the predictions of some weights ask for."""
        start = getattr(self.likelihood, "start", None) if weights is self.prior else None
        mean, variance = self._predict(weights)
        return self._site(*((mean, variance) if start is None else start(self.logs.rewards, mean, variance)))

    def target(self, state: _State) -> Site:
        """The sites that the present posterior asks for."""
        return self._site(state.mean, state.variance)

    def state(self, sites: Site) -> _State:
        """Solve for given sites and look at what follows."""
        logs = self.logs
        statistics = Statistics.of_rounds(
            logs.contexts, logs.actions, sites.linear / sites.weight, self.prior.n_actions, sites.weight * self.counts
        )
        weights = condition(self.prior, statistics, 1.0)
        mean, variance = self._predict(weights)
        state = _State(sites, statistics, weights, mean, variance, 0.0)
        objective = self._lower_bound(state) if self.variational else self._log_joint(state)
        return _State(sites, statistics, weights, mean, variance, objective)

    def log_evidence(self, state: _State) -> float:
        """The lower bound of the evidence, or Laplace's approximation: the same expression without the variances."""
        return self._lower_bound(state)

    def _site(self, mean: Float[Array, " n"], variance: Float[Array, " n"]) -> Site:
        return self.likelihood.site(self.logs.rewards, mean, variance)

    def _predict(self, weights: HierarchicalGaussian) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Mean and variance of every predictor."""
        x, actions = self.logs.contexts, self.logs.actions
        seen, where = np.unique(actions, return_inverse=True)
        mean = np.einsum("nd,nd->n", x, weights.action_mean(seen)[where])
        if not self.variational:
            return mean, np.zeros_like(mean)
        return mean, row_norms(x, actions, weights.action_cov) ** 2

    def _lower_bound(self, state: _State) -> float:
        """Σ E log p(r_i | η_i) - KL(posterior, prior), the second through the normaliser of the sites."""
        (weight, linear), m, v = state.sites, state.mean, state.variance
        fit = self.likelihood.expected_log_density(self.logs.rewards, m, v)
        site = linear * m - 0.5 * weight * (m**2 + v)
        # log ∫ prior Π exp(linear η - weight η² / 2): the evidence of pseudo-rewards without what only normalises them.
        quadratic = self._gained(state) - self._normaliser(state) + 0.5 * self._pseudo_squares(state)
        return float(self.counts @ (fit - site)) + quadratic

    def _log_joint(self, state: _State) -> float:
        """log p(rewards, ψ, θ) at the mean, but for a constant."""
        (weight, linear), m = state.sites, state.mean
        fit = self.likelihood.expected_log_density(self.logs.rewards, m, state.variance)
        misfit = state.weights.misfit + state.weights.observed.residual
        misfit -= self.prior.misfit + self.prior.observed.residual
        explained = self._pseudo_squares(state) - float(self.counts @ (2 * linear * m - weight * m**2))
        return float(self.counts @ fit) - 0.5 * (misfit - explained)

    def _gained(self, state: _State) -> float:
        return state.weights.log_evidence - self.prior.log_evidence

    def _normaliser(self, state: _State) -> float:
        return -0.5 * state.statistics.total_weight * float(np.log(2 * np.pi))

    def _pseudo_squares(self, state: _State) -> float:
        weight, linear = state.sites
        return float(self.counts @ (linear**2 / weight))


def _between(old: Site, new: Site, share: float) -> Site:
    return Site(*((1 - share) * a + share * b for a, b in zip(old, new, strict=True)))


def _rounding(state: _State) -> float:
    """What the objective may fall by without having fallen: its terms are sums of squares that nearly cancel."""
    return 1e-12 * (abs(state.objective) + float(np.sum(state.sites.linear**2 / state.sites.weight)))
