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
from jaxtyping import Float, Int

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
SMALLEST_OWN_STEP = 2.0**-20
OWN_STEPS = 3


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
        stuck: Whether it stopped because no step raised the objective, though it had not come to rest.
    """

    weights: HierarchicalGaussian
    statistics: Statistics
    sites: Site
    mean: Float[Array, " n"]
    variance: Float[Array, " n"]
    log_evidence: float
    trace: tuple[float, ...]
    converged: bool
    stuck: bool = False


@dataclass(frozen=True)
class _State:
    sites: Site
    statistics: Statistics
    weights: HierarchicalGaussian
    mean: Float[Array, " n"]
    variance: Float[Array, " n"]
    objective: float
    rounding: float


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
    trace, converged, stuck = [state.objective], False, False
    with reporter(progress, max_iterations, "fitting") as report:
        while not converged and len(trace) <= max_iterations:
            target, step = loop.target(state), 1.0
            trial = loop.state(target)
            if loop.variational and not trial.objective >= state.objective - state.rounding:
                target = loop.settled(state)
                trial = loop.state(target)
            # A full step may overshoot, as Newton's does on a curved log density.
            while not trial.objective >= state.objective - state.rounding and step > SMALLEST_STEP:
                step /= 2
                trial = loop.state(_between(state.sites, target, step))
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
        state.sites,
        state.mean,
        state.variance,
        loop.log_evidence(state),
        tuple(trace),
        converged,
        stuck,
    )


class _Loop:
    """The rounds, and what is computed of them at every step."""

    def __init__(self, prior: HierarchicalGaussian, logs: LoggedData, likelihood: Likelihood):
        self.prior, self.logs, self.likelihood = prior, logs, likelihood
        self.counts = np.ones(len(logs)) if logs.weights is None else logs.weights
        self.variational = likelihood.treatment != "laplace"
        self.prior_mean = self._predict(prior)[0]

    def target_from(self, weights: HierarchicalGaussian) -> Site:
        """The sites that the predictions of some weights ask for."""
        mean, variance = self._predict(weights)
        first = self.likelihood.start(self.logs.rewards, mean, variance)
        # Of a wide predictor even an earlier posterior knows no better than the prior.
        fresh = (weights is self.prior) | (variance > 1.0)
        return self._site(np.where(fresh, first[0], mean), np.where(fresh, first[1], variance))

    def target(self, state: _State) -> Site:
        """The sites that the present posterior asks for."""
        return self._site(state.mean, state.variance)

    def settled(self, state: _State) -> Site:
        """A few steps of every round on its own, the others as they are.

        Where few rounds share a weight, the variance of a predictor hangs on its own site most, and all sites at once
        would overshoot: each has a step length of its own, the best of 1, 1/2, 1/4, ... for what `_own` says.
        """
        c, m, v = self.counts, state.mean, np.maximum(state.variance, 1e-100)
        # What the others and the prior say of a predictor: its posterior less its own site.
        rest = Site(np.maximum(1.0 / v - c * state.sites.weight, 1e-14 / v), m / v - c * state.sites.linear)
        sites, everyone = state.sites, np.arange(len(m))
        for _ in range(OWN_STEPS):
            target = self._site(*_posterior(rest, sites, c))
            step, best, live, length = np.ones(len(m)), self._own(rest, target, everyone), everyone, 1.0
            while len(live) and length > SMALLEST_OWN_STEP:
                length /= 2
                trial = self._own(rest, _between(sites, target, length), live)
                better = ~(trial <= best[live])
                live = live[better]
                step[live], best[live] = length, trial[better]
            sites = _between(sites, target, step)
        return sites

    def _own(self, rest: Site, sites: Site, rounds: Int[Array, " m"]) -> Float[Array, " m"]:
        """What some rounds gain by a site of theirs: E log p - KL(N(m, v), rest), but for a constant."""
        rest, sites = (Site(*(part[rounds] for part in of)) for of in (rest, sites))
        m, v = _posterior(rest, sites, self.counts[rounds])
        fit = self.likelihood.expected_log_density(self.logs.rewards[rounds], m, v)
        return self.counts[rounds] * fit - 0.5 * (rest.weight * (m**2 + v) - 2 * rest.linear * m - np.log(v))

    def state(self, sites: Site) -> _State:
        """Solve for given sites and look at what follows."""
        logs = self.logs
        statistics = Statistics.of_rounds(
            logs.contexts, logs.actions, sites.linear / sites.weight, self.prior.n_actions, sites.weight * self.counts
        )
        weights = condition(self.prior, statistics, 1.0)
        mean, variance = self._predict(weights)
        state = _State(sites, statistics, weights, mean, variance, 0.0, 0.0)
        fit, moved = self._log_joint_terms(state)
        objective = self.log_evidence(state) if self.variational else float(np.sum(fit - 0.5 * moved))
        rounding = 1e-13 * float(np.sum(np.abs(fit)) + np.sum(np.abs(moved)))
        return _State(sites, statistics, weights, mean, variance, objective, rounding)

    def log_evidence(self, state: _State) -> float:
        """Σ E log p(r_i | η_i) - KL(posterior, prior); without the variances it is Laplace's approximation.

        KL = ½ (Σ (l - w m) (m - m₀) + log |S₀| / |S| - Σ w v): no squares of pseudo-rewards, which cancel.
        """
        fit, moved = self._log_joint_terms(state)
        gained = state.weights.log_det - self.prior.log_det - float(self.counts @ (state.sites.weight * state.variance))
        return float(np.sum(fit - 0.5 * moved)) - 0.5 * gained

    def _log_joint_terms(self, state: _State) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """E log p of every round, and its share of ‖θ̂ - θ₀‖² in units of S₀, Σ (l - w m) (m - m₀) by the solve."""
        (weight, linear), m = state.sites, state.mean
        fit = self.likelihood.expected_log_density(self.logs.rewards, m, state.variance)
        return self.counts * fit, self.counts * (linear - weight * m) * (m - self.prior_mean)

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


def _between(old: Site, new: Site, share: float | Float[Array, " n"]) -> Site:
    return Site(*((1 - share) * a + share * b for a, b in zip(old, new, strict=True)))


def _posterior(rest: Site, sites: Site, counts: Float[Array, " n"]) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Mean and variance of predictors of which the rest and their own sites speak."""
    variance = 1.0 / (rest.weight + counts * sites.weight)
    return variance * (rest.linear + counts * sites.linear), variance
