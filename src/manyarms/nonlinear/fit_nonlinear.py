"""Fits a hierarchy that is not linear: a Gaussian around the mode of ψ.

The mode is climbed to: linearise f_a, solve in closed form, and go as far that way as the objective rises. The
direction is that of Gauss and Newton: an ascent direction wherever the gradient is not zero, since the precision behind
it, I + Σ_a (H_a J_a F)ᵀ (H_a J_a F), is positive definite.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, as_count, as_floats, as_instance, as_scalar
from manyarms._base.progress import Progress, reporter
from manyarms.core import HierarchicalGaussian, LoggedData, Logs, Method, ObservedRows
from manyarms.core.observed_rows import observe
from manyarms.engines import Engine
from manyarms.errors import InputError, NonFiniteError, RangeError, ShapeError
from manyarms.gpu.device import CPU
from manyarms.inference.condition import solve
from manyarms.inference.latent_posterior import LatentPosterior
from manyarms.likelihoods import Likelihood
from manyarms.likelihoods.fit_weights import fit_weights
from manyarms.likelihoods.likelihood import Site, as_likelihood
from manyarms.likelihoods.variational import approximate
from manyarms.nonlinear.nonlinear_hierarchy import NonlinearHierarchy, check_rounds
from manyarms.nonlinear.seen_actions import SeenActions, WhiteRows
from manyarms.posterior.reward_posterior import RewardPosterior

_FARTHEST = 1e100
"""A start is at most so many prior standard deviations away from the prior mean: its square must not overflow."""
NEARBY = 10.0
"""Another mode within so many nats of the best one is worth a warning, where several starts were given."""


@dataclass(frozen=True, eq=False)
class NonlinearPosterior(RewardPosterior):
    """The posterior that `fit_nonlinear` returns, under the linear hierarchy that touches the given one at its mode.

    `weights` and `prior` are over all actions, so policies, `value` and `difference` work as for `RewardPosterior`.
    `update` and `with_actions` keep the linearisation; `refit` moves it.

    Attributes:
        latent_mode: ψ at the mode, where f_a was linearised.
        mode_objectives: The objective that every start ended with, best first.
        hierarchy: The hierarchy that was linearised.
    """

    not_saved = "Its functions are code: keep the hierarchy, and fit again."
    latent_mode: Float[Array, " p"] = field(default_factory=lambda: np.zeros(0))
    mode_objectives: tuple[float, ...] = ()
    hierarchy: NonlinearHierarchy | None = None

    def __repr__(self) -> str:
        return "Nonlinear" + super().__repr__().removeprefix("Reward")

    @property
    def method(self) -> Method:
        # Values are linear in θ, but the posterior of θ is exact only up to the linearisation.
        return "delta"

    def refit(self, logs: Logs, *, engine: Engine | str | None = None, device: str = CPU) -> NonlinearPosterior:
        """The posterior of all these logs and no others, linearised anew on the way up from this mode.

        Args:
            logs: All rounds, old and new, in memory.
            engine: Not used: rounds are in memory.
            device: "cpu"; a GPU has no such fit.
        """
        if device != CPU:
            raise InputError("a GPU cannot fit a nonlinear hierarchy.", 'Use device="cpu".', argument="device")
        if self.hierarchy is None or self.hierarchy.n_actions != self.n_actions:
            raise InputError(
                "this posterior has actions that its hierarchy does not know.",
                "Make a hierarchy with all of them, and fit_nonlinear(logs, hierarchy, likelihood, start=posterior).",
            )
        rounds = as_instance("logs", logs, LoggedData, "a LoggedData; collect() a stream first")
        return fit_nonlinear(rounds, self.hierarchy, self.likelihood, start=self)


def fit_nonlinear(
    logs: LoggedData,
    hierarchy: NonlinearHierarchy,
    likelihood: Likelihood | None = None,
    *,
    start: Any = None,
    max_iterations: int = 100,
    tolerance: float = 1e-8,
    progress: Progress = False,
) -> NonlinearPosterior:
    """A Gaussian around the mode of ψ: θ_a | ψ ~ N(f_a(ψ), Σ_a), linearised there, with the closed-form posterior.

    Iterated linearisation (Gauss-Newton): with W_a = ∂f_a/∂ψ and c_a = f_a(ψ_t) - W_a ψ_t at the present ψ_t, the solve
    of the linear hierarchy gives the next ψ; a step is halved until the objective rises. With f_a linear one step is
    exact.

    Guaranteed: the objective in `trace` never falls, and where the fit converged its slope in ψ is zero:

    - rewards Gaussian around φ(x)ᵀ θ_a: log p(ψ, rewards), θ integrated out. ψ is a mode of its posterior.
    - "laplace": log p(ψ, θ, rewards) at its maximum over θ. ψ and θ are a joint mode.
    - "variational": a lower bound of log p(ψ, rewards), over Gaussians for θ. At its mode the linearised model is
      fitted once more, now with ψ as uncertain as it is, as `fit` does; no single objective covers both parts.

    Not guaranteed: the mode is a local one. Where f_a is not monotone there may be others, of more mass. Give several
    starts, for example `hierarchy.draw_latent(rng, 20)`; the best is kept and a warning names others that come near
    it. The covariance and `log_evidence` (Laplace's approximation, curvature without second derivatives of f_a) are
    those of the linearisation: good when f_a is nearly linear over the posterior of ψ. Where it bends, intervals may be
    too narrow or too wide, most of all for unseen actions. `sample_posterior` has no such limits.

    Args:
        logs: Logged rounds.
        hierarchy: The prior; f_a is called for seen actions while climbing, and once for all of them at the end.
        likelihood: How rewards arise; by default `Gaussian(noise_std=1.0)`.
        start: ψ to start from, (d',), several as rows of (s, d'), or an earlier `NonlinearPosterior`; by default μ.
        max_iterations: The largest number of steps for each start; a warning says when that was not enough.
        tolerance: Stop when the linearisation promises a rise of less than this, in nats: ψ is then within
            √(2 tolerance) posterior standard deviations of where the next step would lead.
        progress: True shows a progress bar; a function is called as progress(step, max_iterations).
    """
    hierarchy = as_instance("hierarchy", hierarchy, NonlinearHierarchy, "a NonlinearHierarchy")
    likelihood = as_likelihood(likelihood)
    check_rounds(logs, hierarchy)
    likelihood.check(logs.rewards, logs.weights)
    max_iterations = as_count("max_iterations", max_iterations)
    tolerance = as_scalar("tolerance", tolerance, above=0.0)
    seen = SeenActions(hierarchy, logs)
    starts = [_as_white(seen, psi) for psi in _as_starts(start, hierarchy)]
    ascent = ascent_for(seen, likelihood, tolerance)
    with reporter(progress, max_iterations, "fitting") as report:
        climbs = [climb(ascent, white, max_iterations, tolerance, report) for white in starts]
    climbs.sort(key=lambda climb: -climb.state.objective)
    best = climbs[0]
    mode = seen.latent(best.state.white)
    prior, inner = hierarchy.linearised(mode), min(tolerance, 1e-6)
    fitted = fit_weights(prior, logs.counted(), likelihood, start=best.state.sites, tolerance=inner)
    parts = NonlinearPosterior.fitted_parts(fitted, logs)
    parts["fit_warnings"] = (*_warnings(climbs), *fitted.warnings)
    parts |= {"trace": best.trace, "converged": best.converged and fitted.converged}
    return NonlinearPosterior(
        prior=prior,
        likelihood=likelihood,
        **parts,
        latent_mode=mode,
        mode_objectives=tuple(climb.state.objective for climb in climbs),
        hierarchy=hierarchy,
    )


def _as_starts(start: Any, hierarchy: NonlinearHierarchy) -> list[Float[Array, " p"]]:
    if start is None:
        return [hierarchy.latent_mean]
    given = start.latent_mode if isinstance(start, NonlinearPosterior) else start
    rows = np.atleast_2d(as_floats("start", given, ndim=(1, 2)))
    if rows.shape[1] != hierarchy.latent_dim or len(rows) == 0:
        p = hierarchy.latent_dim
        raise ShapeError(
            f"must be ({p},), or rows of ({p},) for several starts; got shape {np.shape(given)}.", argument="start"
        )
    return list(rows)


def _as_white(seen: SeenActions, latent: Float[Array, " p"]) -> Float[Array, " p"]:
    """The z of a start, whose square must not overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        white = seen.white(latent)
    if not np.abs(white).max(initial=0.0) < _FARTHEST:
        raise RangeError(
            f"must lie within {_FARTHEST:g} standard deviations of the prior mean.",
            "Start near it, for example at hierarchy.draw_latent(rng, 20).",
            argument="start",
        )
    return white


def _warnings(climbs: list[Climb]) -> tuple[str, ...]:
    best, warnings = climbs[0], list[str]()
    if best.stuck:
        warnings.append(
            "no step along the linearisation raised the density, though it should: compare jacobian= with the default, "
            "which takes differences, and see that function is smooth"
        )
    elif not best.converged:
        warnings.append(f"the fit had not converged after {len(best.trace) - 1} steps; raise max_iterations")
    near = [
        other
        for other in climbs[1:]
        if other.state.objective > best.state.objective - NEARBY
        and np.linalg.norm(other.state.white - best.state.white) > 1e-3 * (1.0 + np.linalg.norm(best.state.white))
    ]
    if near:
        warnings.append(
            f"{len(near)} of {len(climbs)} starts ended at other modes within {NEARBY:g} nats of the best: the "
            "posterior is not one Gaussian. Use sample_posterior"
        )
    return tuple(warnings)


SUFFICIENT = 1e-4
"""The share of the rise that the linearisation promises which a step must keep (Armijo)."""
SMALLEST_STEP = 2.0**-30


@dataclass(frozen=True)
class _State:
    """A point on the way up: z, with ψ = μ + F z; f_a(ψ) of seen actions; the objective, which never falls.

    Where rounds are not Gaussian, sites are the Gaussian factors that stand in for them at this ψ.
    """

    white: Float[Array, " p"]
    centres: Float[Array, "m d"]
    objective: float
    sites: Site | None = None


@dataclass(frozen=True)
class _Tangent:
    """The linear hierarchy at a state, solved: its posterior, and that of ψ in units of its prior.

    `rows` stand for the rounds, with θ integrated out. `decrement` is the slope of the objective towards the mean of ψ;
    half of it is the rise that the linearisation promises, in nats.
    """

    rows: WhiteRows
    posterior: HierarchicalGaussian
    latent: LatentPosterior
    decrement: float


class Ascent(ABC):
    """An objective of ψ that `fit_nonlinear` climbs, for a way of treating rewards."""

    def __init__(self, seen: SeenActions):
        self.seen = seen

    @abstractmethod
    def state(self, white: Float[Array, " p"], near: _State | None) -> _State:
        """The objective at a point; `near` is a state to start inner loops from."""

    @abstractmethod
    def rows(self, state: _State) -> ObservedRows:
        """The Gaussian rows that have the same slope in ψ as the rounds have at this state."""

    def tangent(self, state: _State) -> _Tangent:
        """Linearise and solve: the mean of ψ is where a full step leads."""
        observed = self.rows(state)
        prior = self.seen.tangent(state.white, state.centres)
        posterior, latent = solve(prior, observed)
        rows, step = WhiteRows.of(self.seen.action_covariance, observed), latent.white_mean - state.white
        pulled = rows.pulled(prior.mixing.apply(prior.prior_factor.apply(step)[None], np.arange(prior.n_actions))[0])
        return _Tangent(rows, posterior, latent, float(step @ step + pulled @ pulled))


class ByRows(Ascent):
    """The objective of `fit_nonlinear` for Gaussian rewards: log p(ψ, rewards), θ integrated out, but for a constant.

    It is -½ ‖z‖² - ½ Σ_a ‖h_a - H_a f_a(ψ)‖² + constant; the rows stay as they are.
    """

    def __init__(self, seen: SeenActions, observed: ObservedRows):
        super().__init__(seen)
        self._observed, self._rows = observed, WhiteRows.of(seen.action_covariance, observed)

    def state(self, white: Float[Array, " p"], near: _State | None) -> _State:
        centres = self.seen.centre(white)
        misses = self._rows.misses(centres)
        return _State(white, centres, self._rows.constant - 0.5 * float(misses @ misses + white @ white))

    def rows(self, state: _State) -> ObservedRows:
        return self._observed


class _ByRounds(Ascent):
    """The best that the treatment of a likelihood makes of log p(ψ, rewards), but for a constant.

    "laplace": max over θ of log p(ψ, θ, rewards), so that the climb ends at the joint mode. "variational": the evidence
    lower bound of log p(rewards | ψ), over Gaussians for θ, plus log p(ψ). Either is found by the inner loop with
    f_a(ψ) held fixed. At its end the slope in ψ is that of its sites taken as rows (the envelope theorem).
    """

    def __init__(self, seen: SeenActions, likelihood: Likelihood, tolerance: float):
        super().__init__(seen)
        self._likelihood, self._tolerance = likelihood, tolerance

    def state(self, white: Float[Array, " p"], near: _State | None) -> _State:
        centres = self.seen.centre(white)
        start = None if near is None else near.sites
        given = self.seen.given(centres)
        fitted = approximate(given, self.seen.logs, self._likelihood, start=start, tolerance=self._tolerance)
        return _State(white, centres, fitted.trace[-1] - 0.5 * float(white @ white), fitted.sites)

    def rows(self, state: _State) -> ObservedRows:
        assert state.sites is not None
        return self.seen.rows_of(state.sites)


def ascent_for(seen: SeenActions, likelihood: Likelihood, tolerance: float) -> Ascent:
    """The objective that `fit_nonlinear` climbs under a likelihood that allows the rewards."""
    if likelihood.treatment == "exact":
        return ByRows(seen, observe(likelihood.statistics(seen.logs, seen.n_actions), likelihood.noise_std))
    if likelihood.treatment == "paper":
        # Each action's own maximum of the likelihood: no prior enters, so these rows never change.
        independent = seen.given(np.zeros((seen.n_actions, seen.hierarchy.dim)))
        return ByRows(seen, observe(fit_weights(independent, seen.logs, likelihood).statistics, 1.0))
    # The inner loop must be far more exact than the rises that are compared.
    return _ByRounds(seen, likelihood, 1e-2 * tolerance)


@dataclass(frozen=True)
class Climb:
    """The end of the climb of `fit_nonlinear`: the last state, its linear hierarchy, and the objective at every state.

    It has converged when the linearisation promises less than the tolerance. It is stuck when no step along the
    direction raised the objective, though one should have.
    """

    state: _State
    tangent: _Tangent
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
    """Climb, for `fit_nonlinear`, until the linearisation promises a rise of less than `tolerance` nats."""
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
            # The objective is a sum of squares, each with an error in its last digits.
            misses = tangent.rows.misses(state.centres)
            rounding = 1e-11 * (1.0 + abs(state.objective) + float(misses @ misses))
            at_rest = 0.5 * tangent.decrement < rounding
            return Climb(state, tangent, tuple(trace), at_rest, stuck=not at_rest)
        state = higher
        trace.append(state.objective)
        report(len(trace) - 1, max_iterations)


def _backtrack(ascent: Ascent, state: _State, tangent: _Tangent) -> _State | None:
    """The longest of the steps 1, 1/2, 1/4, ... that keeps a share of what the linearisation promises."""
    direction, share = tangent.latent.white_mean - state.white, 1.0
    while share > SMALLEST_STEP:
        try:
            # A long step may leave the region where f_a can be computed; only a shorter one tells.
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                trial = ascent.state(state.white + share * direction, state)
        except NonFiniteError:
            if share <= 2 * SMALLEST_STEP:
                raise
        else:
            if trial.objective >= state.objective + SUFFICIENT * share * tangent.decrement:
                return trial
        share /= 2
    return None
