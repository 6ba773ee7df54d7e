"""Fits a hierarchy that is not linear: a Gaussian around the mode of ψ."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, as_count, as_floats, as_instance, as_scalar
from manyarms._base.progress import Progress, reporter
from manyarms.core import LoggedData, Logs, Method
from manyarms.engines import Engine
from manyarms.errors import InputError, ShapeError
from manyarms.likelihoods import Likelihood
from manyarms.likelihoods.gaussian import as_likelihood
from manyarms.likelihoods.variational import fit_weights
from manyarms.nonlinear.mode_search import Climb, ascent_for, climb
from manyarms.nonlinear.nonlinear_hierarchy import NonlinearHierarchy, check_rounds
from manyarms.nonlinear.seen_actions import SeenActions
from manyarms.posterior.reward_posterior import RewardPosterior

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

    def refit(self, logs: Logs, *, engine: Engine | str | None = None) -> NonlinearPosterior:
        """The posterior of all these logs and no others, linearised anew on the way up from this mode.

        Args:
            logs: All rounds, old and new, in memory.
            engine: Not used: rounds are in memory.
        """
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
    starts = [seen.white(psi) for psi in _as_starts(start, hierarchy)]
    ascent = ascent_for(seen, likelihood, tolerance)
    with reporter(progress, max_iterations, "fitting") as report:
        climbs = [climb(ascent, white, max_iterations, tolerance, report) for white in starts]
    climbs.sort(key=lambda climb: -climb.state.objective)
    best = climbs[0]
    mode = seen.latent(best.state.white)
    prior = hierarchy.linearised(mode)
    inner = min(tolerance, 1e-6)
    fitted = fit_weights(prior, logs.counted(), likelihood, start=best.state.sites, tolerance=inner)
    return NonlinearPosterior(
        fitted.weights,
        prior,
        fitted.statistics,
        likelihood,
        (logs.fingerprint,),
        (*_warnings(climbs), *fitted.warnings),
        fitted.evidence_offset,
        best.trace,
        best.converged and fitted.converged,
        logs.features,
        logs.catalog,
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
