"""Climbing to the mode of ψ: linearise f_a, solve in closed form, and go as far that way as the objective rises.

The direction is that of Gauss and Newton: an ascent direction wherever the gradient is not zero, since the precision
behind it, I + Σ_a (H_a J_a F)ᵀ (H_a J_a F), is positive definite.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array
from manyarms.core import HierarchicalGaussian, ObservedRows
from manyarms.errors import NonFiniteError
from manyarms.inference.condition import observe, solve
from manyarms.inference.latent_posterior import LatentPosterior
from manyarms.likelihoods import Likelihood
from manyarms.likelihoods.likelihood import Site
from manyarms.likelihoods.variational import approximate, fit_weights
from manyarms.nonlinear.seen_actions import SeenActions, WhiteRows, whiten

SUFFICIENT = 1e-4
"""The share of the rise that the linearisation promises which a step must keep (Armijo)."""
SMALLEST_STEP = 2.0**-30


@dataclass(frozen=True)
class State:
    """A point on the way up.

    Attributes:
        white: z, with ψ = μ + F z.
        centres: f_a(ψ) of seen actions.
        objective: The objective, which never falls.
        sites: The Gaussian factors that stand in for the rounds at this ψ; None where the rounds are Gaussian.
    """

    white: Float[Array, " p"]
    centres: Float[Array, "m d"]
    objective: float
    sites: Site | None = None


@dataclass(frozen=True)
class Tangent:
    """The linear hierarchy at a state, solved.

    Attributes:
        rows: The rows that stand for the rounds, with θ integrated out.
        posterior: The posterior of ψ and θ under it.
        latent: The posterior of ψ in units of its prior.
        decrement: The slope of the objective towards the mean of ψ; half of it is the rise that the linearisation
            promises, in nats.
    """

    rows: WhiteRows
    posterior: HierarchicalGaussian
    latent: LatentPosterior
    decrement: float


class Ascent(ABC):
    """An objective of ψ, for a way of treating rewards."""

    def __init__(self, seen: SeenActions):
        self.seen = seen

    @abstractmethod
    def state(self, white: Float[Array, " p"], near: State | None) -> State:
        """The objective at a point; `near` is a state to start inner loops from."""

    @abstractmethod
    def rows(self, state: State) -> ObservedRows:
        """The Gaussian rows that have the same slope in ψ as the rounds have at this state."""

    def tangent(self, state: State) -> Tangent:
        """Linearise and solve: the mean of ψ is where a full step leads."""
        observed = self.rows(state)
        prior = self.seen.tangent(state.white, state.centres)
        posterior, latent = solve(prior, observed)
        rows, step = whiten(self.seen.action_covariance, observed), latent.white_mean - state.white
        pulled = rows.pulled(prior.mixing.apply(prior.prior_factor.apply(step)[None], np.arange(prior.n_actions))[0])
        return Tangent(rows, posterior, latent, float(step @ step + pulled @ pulled))


class ByRows(Ascent):
    """log p(ψ, rewards), θ integrated out, but for a constant: for rewards that are Gaussian around φ(x)ᵀ θ_a.

    It is -½ ‖z‖² - ½ Σ_a ‖h_a - H_a f_a(ψ)‖² + constant; the rows stay as they are.
    """

    def __init__(self, seen: SeenActions, observed: ObservedRows):
        super().__init__(seen)
        self._observed, self._rows = observed, whiten(seen.action_covariance, observed)

    def state(self, white: Float[Array, " p"], near: State | None) -> State:
        centres = self.seen.centre(white)
        misses = self._rows.misses(centres)
        return State(white, centres, self._rows.constant - 0.5 * float(misses @ misses + white @ white))

    def rows(self, state: State) -> ObservedRows:
        return self._observed


class ByRounds(Ascent):
    """The best that the treatment of a likelihood makes of log p(ψ, rewards), but for a constant.

    "laplace": max over θ of log p(ψ, θ, rewards), so that the climb ends at the joint mode. "variational": the evidence
    lower bound of log p(rewards | ψ), over Gaussians for θ, plus log p(ψ). Either is found by the inner loop with
    f_a(ψ) held fixed. At its end the slope in ψ is that of its sites taken as rows (the envelope theorem).
    """

    def __init__(self, seen: SeenActions, likelihood: Likelihood, tolerance: float):
        super().__init__(seen)
        self._likelihood, self._tolerance = likelihood, tolerance

    def state(self, white: Float[Array, " p"], near: State | None) -> State:
        centres = self.seen.centre(white)
        start = None if near is None else near.sites
        given = self.seen.given(centres)
        fitted = approximate(given, self.seen.logs, self._likelihood, start=start, tolerance=self._tolerance)
        return State(white, centres, fitted.trace[-1] - 0.5 * float(white @ white), fitted.sites)

    def rows(self, state: State) -> ObservedRows:
        assert state.sites is not None
        return self.seen.rows_of(state.sites)


def ascent_for(seen: SeenActions, likelihood: Likelihood, tolerance: float) -> Ascent:
    """The objective to climb under a likelihood, whose rewards are checked here."""
    if likelihood.treatment == "exact":
        return ByRows(seen, observe(likelihood.statistics(seen.logs, seen.n_actions), likelihood.noise_std))
    likelihood.check(seen.logs.rewards, seen.logs.weights)
    if likelihood.treatment == "paper":
        # Each action's own maximum of the likelihood: no prior enters, so these rows never change.
        independent = seen.given(np.zeros((seen.n_actions, seen.hierarchy.dim)))
        return ByRows(seen, observe(fit_weights(independent, seen.logs, likelihood).statistics, 1.0))
    # The inner loop must be far more exact than the rises that are compared.
    return ByRounds(seen, likelihood, 1e-2 * tolerance)


@dataclass(frozen=True)
class Climb:
    """The end of a climb.

    Attributes:
        state: The last state.
        tangent: The linear hierarchy there, solved.
        trace: The objective at every state; it never falls.
        converged: True when the linearisation promises less than the tolerance.
        stuck: True when no step along the direction raised the objective, though one should have.
    """

    state: State
    tangent: Tangent
    trace: tuple[float, ...]
    converged: bool
    stuck: bool = False


def climb(
    ascent: Ascent,
    white: Float[Array, " p"],
    max_iterations: int,
    tolerance: float,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Climb:
    """Step until the linearisation promises a rise of less than `tolerance` nats."""
    state = ascent.state(white, None)
    trace = [state.objective]
    while True:
        tangent = ascent.tangent(state)
        if 0.5 * tangent.decrement < tolerance:
            return Climb(state, tangent, tuple(trace), True)
        if len(trace) > max_iterations:
            return Climb(state, tangent, tuple(trace), False)
        higher = _backtrack(ascent, state, tangent)
        if higher is None:
            at_rest = 0.5 * tangent.decrement < _rounding(state, tangent)
            return Climb(state, tangent, tuple(trace), at_rest, stuck=not at_rest)
        state = higher
        trace.append(state.objective)
        report(len(trace) - 1, max_iterations)


def _backtrack(ascent: Ascent, state: State, tangent: Tangent) -> State | None:
    """The longest of the steps 1, 1/2, 1/4, ... that keeps a share of what the linearisation promises."""
    direction, share = tangent.latent.white_mean - state.white, 1.0
    while share > SMALLEST_STEP:
        try:
            # A long step may leave the region where f_a can be computed; only a shorter one tells.
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                trial = ascent.state(state.white + share * direction, state)
        except NonFiniteError:
            if share < 2 * SMALLEST_STEP:
                raise
        else:
            if trial.objective >= state.objective + SUFFICIENT * share * tangent.decrement:
                return trial
        share /= 2
    return None


def _rounding(state: State, tangent: Tangent) -> float:
    """The rise that the objective cannot resolve: it is a sum of squares, each with an error in its last digits."""
    misses = tangent.rows.misses(state.centres)
    return 1e-11 * (1.0 + abs(state.objective) + float(misses @ misses))
