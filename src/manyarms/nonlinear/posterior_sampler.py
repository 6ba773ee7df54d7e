"""Draws from the posterior itself, for any f_a and any likelihood: the paper's "approximate sampling".

By elliptical slice sampling (Murray, Adams and MacKay, 2010): a Gaussian times anything, without a step size to tune.

A point z ~ N(m, S) and a second draw span an ellipse on which the Gaussian plays no part. A level is drawn below the
log of the other factor at z, and angles are tried, from a bracket that shrinks towards z, until one lies above it.

In one sweep of the sampler ψ and, unless it is integrated out, θ move on ellipses of Gaussians near the posterior.

Functions called in every sweep are methods with their first arguments filled in, so that none is made anew.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int

from manyarms._base.checks import Array, as_count
from manyarms._base.progress import Progress, reporter
from manyarms._base.rng import split
from manyarms.core import HierarchicalGaussian, LoggedData
from manyarms.errors import TooLargeError
from manyarms.likelihoods import Likelihood
from manyarms.likelihoods.likelihood import as_likelihood
from manyarms.nonlinear.fit_nonlinear import Ascent, ByRows, Climb, ascent_for, climb
from manyarms.nonlinear.nonlinear_hierarchy import NonlinearHierarchy, as_hierarchy, check_rounds
from manyarms.nonlinear.posterior_draws import MAX_KEPT, PosteriorDraws
from manyarms.nonlinear.seen_actions import Conditional, SeenActions

Kept = TypeVar("Kept")
_NARROWEST = 1e-13
"""The narrowest bracket, in radians: below it an angle is zero in all that matters."""


def _slice_one(
    at: Callable[[float], tuple[float, Kept]], current: tuple[float, Kept], rng: np.random.Generator
) -> tuple[float, Kept]:
    """A new point on the ellipse: `at` gives the log of the other factor at an angle, and what to keep of it."""
    level = current[0] - rng.standard_exponential()
    angle = rng.uniform(0.0, 2 * np.pi)
    low, high = angle - 2 * np.pi, angle
    while high - low > _NARROWEST:
        trial = at(angle)
        if trial[0] > level:
            return trial
        low, high = (angle, high) if angle < 0 else (low, angle)
        angle = rng.uniform(low, high)
    return current


def _slice_many(
    at: Callable[[Float[Array, " m"], Bool[Array, " m"]], Float[Array, " m"]],
    current: Float[Array, " m"],
    rng: np.random.Generator,
) -> Float[Array, " m"]:
    """The angles of new points on m independent ellipses at once, each with its own level and bracket.

    `at` gives the logs of the other factors at some angles; only those of the ellipses that are marked count.
    """
    m = len(current)
    level = current - rng.standard_exponential(m)
    angle = rng.uniform(0.0, 2 * np.pi, m)
    low, high = angle - 2 * np.pi, angle.copy()
    todo = np.ones(m, dtype=bool)
    while todo.any():
        todo &= ~(at(angle, todo) > level)
        below: Int[Array, " q"] = np.flatnonzero(todo & (angle < 0))
        above: Int[Array, " q"] = np.flatnonzero(todo & (angle >= 0))
        low[below], high[above] = angle[below], angle[above]
        lost = todo & (high - low <= _NARROWEST)
        angle[lost], todo[lost] = 0.0, False
        left = np.flatnonzero(todo)
        angle[left] = rng.uniform(low[left], high[left])
    return angle


MAX_STEPS = 100
"""The largest number of steps of a climb; a chain may start anywhere, so it need not have converged."""
TOLERANCE = 1e-6
"""The tolerance of the climbs that chains start from, in nats."""
DEGREES = 4.0
"""Degrees of freedom of the t distribution around the linearised posterior of ψ."""


@dataclass(frozen=True)
class ChainPoint:
    """The sampler's present point: z, with ψ = μ + F z; f_a(ψ); and z_a, with θ_a = f_a(ψ) + L_a z_a.

    There is no z_a where θ is integrated out.
    """

    white: Float[Array, " p"]
    centres: Float[Array, "m d"]
    noise: Float[Array, "m d"] | None = None


class _Ellipse(NamedTuple):
    """Points middle + cos φ away + sin φ across."""

    middle: Float[Array, " p"]
    away: Float[Array, " p"]
    across: Float[Array, " p"]


Rest = Callable[[Array], float]
"""A term of the log density of ψ, as a function of f_a(ψ)."""
Level = Callable[[float, float, Array], float]
"""The log density that a slice is drawn under, as a function of cos φ, sin φ and f_a(ψ)."""


class _Kernel(ABC):
    """A sweep that leaves the posterior as it is."""

    keeps_weights: bool
    """True when θ is drawn along with ψ."""

    def __init__(self, ascent: Ascent, climbed: Climb):
        self.seen = ascent.seen
        self._observed, self._rows = ascent.rows(climbed.state), climbed.tangent.rows
        # θ given ψ, when the rows that the climb found stand for the rounds.
        self.conditional = Conditional(ascent.seen, self._observed)
        self._mixing, self._mode = climbed.tangent.posterior.mixing, climbed.tangent.latent.white_mean
        self._factor = climbed.tangent.latent.white_factor()

    @abstractmethod
    def sweep(self, point: ChainPoint, rng: np.random.Generator) -> ChainPoint:
        """Move everything once."""

    def start(self, rng: np.random.Generator, *, from_prior: bool) -> ChainPoint:
        """The mode that the climb found, or the one above a draw of the prior, for the rows of the first."""
        white = self._mode
        if from_prior:
            drawn = rng.standard_normal(len(white))
            white = climb(ByRows(self.seen, self._observed), drawn, MAX_STEPS, TOLERANCE).state.white
        centres = self.seen.centre(white)
        if not self.keeps_weights:
            return ChainPoint(white, centres)
        spread = self.conditional.spread(rng.standard_normal(centres.shape))
        return ChainPoint(white, centres, self.conditional.noise_mean(centres) + spread)

    def _fit(self, centres: Float[Array, "m d"]) -> float:
        """The log density of the rows given ψ, θ integrated out, up to a constant."""
        misses = self._rows.misses(centres)
        return -0.5 * float(misses @ misses)

    def _around_fit(self, point: ChainPoint, rest: Rest, rng: np.random.Generator) -> ChainPoint:
        """Move ψ, of density prior times rows times `rest`, on an ellipse of the linearised posterior."""
        return self._moved(point, *self.fitted_ellipse(point, rest, rng), rng)

    def fitted_ellipse(self, point: ChainPoint, rest: Rest, rng: np.random.Generator) -> tuple[_Ellipse, Level]:
        """An ellipse of N(ẑ, s P⁻¹), P = I + Σ_a (H_a J_a F)ᵀ (H_a J_a F), with s drawn given z.

        Over s it is a Student t distribution around the linearised posterior (Nishihara, Murray and Adams, 2014): the
        tails of a Gaussian may be thinner than the posterior's, and a chain would get stuck in them. Only products with
        P are needed, so nothing of its size is formed.
        """
        mode, p = self._mode, len(self._mode)
        away, across = point.white - mode, self._factor.apply(rng.standard_normal(p))
        away_rows, across_rows = self._pulled(away), self._pulled(across)
        far = float(away @ away + away_rows @ away_rows)
        width = np.sqrt((DEGREES + far) / (2.0 * rng.standard_gamma((DEGREES + p) / 2.0)))
        pairs = (away, away_rows), (width * across, width * across_rows)
        return _Ellipse(mode, away, width * across), partial(self._fit_level, rest, *pairs)

    def _fit_level(
        self,
        rest: Rest,
        away: tuple[Float[Array, " p"], Float[Array, " r"]],
        across: tuple[Float[Array, " p"], Float[Array, " r"]],
        cos: float,
        sin: float,
        centres: Float[Array, "m d"],
    ) -> float:
        """Log density less that of the t distribution, whose argument is (z - ẑ)ᵀ P (z - ẑ)."""
        offset, rows = cos * away[0] + sin * across[0], cos * away[1] + sin * across[1]
        white, far = self._mode + offset, float(offset @ offset + rows @ rows)
        log_t = -0.5 * (DEGREES + len(white)) * float(np.log1p(far / DEGREES))
        return self._fit(centres) + rest(centres) - 0.5 * float(white @ white) - log_t

    def _around_prior(self, point: ChainPoint, rest: Rest, rng: np.random.Generator) -> ChainPoint:
        """Move ψ, of density prior times `rest`, on an ellipse of its prior."""
        across = rng.standard_normal(len(point.white))
        ellipse = _Ellipse(np.zeros_like(across), point.white, across)
        return self._moved(point, ellipse, lambda cos, sin, centres: rest(centres), rng)

    def _moved(self, point: ChainPoint, ellipse: _Ellipse, level: Level, rng: np.random.Generator) -> ChainPoint:
        current = level(1.0, 0.0, point.centres), point
        return _slice_one(partial(self._at, point.noise, ellipse, level), current, rng)[1]

    def _at(
        self, noise: Float[Array, "m d"] | None, ellipse: _Ellipse, level: Level, angle: float
    ) -> tuple[float, ChainPoint]:
        cos, sin = float(np.cos(angle)), float(np.sin(angle))
        white = ellipse.middle + cos * ellipse.away + sin * ellipse.across
        centres = self.seen.centre(white)
        return level(cos, sin, centres), ChainPoint(white, centres, noise)

    def _pulled(self, white: Float[Array, " p"]) -> Float[Array, " r"]:
        """H_a J_a F z."""
        moved = self.seen.hierarchy.latent_factor.apply(white)
        return self._rows.pulled(self._mixing.apply(moved[None], np.arange(self.seen.n_actions))[0])


class _Collapsed(_Kernel):
    """Gaussian rewards: ψ alone, θ integrated out."""

    keeps_weights = False

    def sweep(self, point: ChainPoint, rng: np.random.Generator) -> ChainPoint:
        point = self._around_fit(point, lambda centres: 0.0, rng)
        return self._around_prior(point, self._fit, rng)


class _Blocked(_Kernel):
    """Other rewards: ψ and z_a in turns, first as sites would have them, then as the prior would."""

    keeps_weights = True

    def __init__(self, ascent: Ascent, climbed: Climb, likelihood: Likelihood):
        super().__init__(ascent, climbed)
        assert climbed.state.sites is not None
        self._likelihood, self._sites = likelihood, climbed.state.sites
        logs = self.seen.logs
        self._x, self._where, self._rewards = logs.contexts, logs.actions, logs.rewards
        self._v = self.conditional.rooted(self._x, self._where)

    def sweep(self, point: ChainPoint, rng: np.random.Generator) -> ChainPoint:
        point = self._actions(point, rng, around_sites=True)
        point = self._latent_given_rest(point, rng)
        point = self._actions(point, rng, around_sites=False)
        return self._latent_given_noise(point, rng)

    def _latent_given_rest(self, point: ChainPoint, rng: np.random.Generator) -> ChainPoint:
        """Move ψ given e_a = D_aᵀ (z_a - E[z_a | ψ]): z_a follows as the sites would have it."""
        assert point.noise is not None
        spread = point.noise - self.conditional.noise_mean(point.centres)
        moved = self._around_fit(point, partial(self._given_rest, self._along(spread, self._v)), rng)
        return ChainPoint(moved.white, moved.centres, self.conditional.noise_mean(moved.centres) + spread)

    def _given_rest(self, given: Float[Array, " n"], centres: Float[Array, "m d"]) -> float:
        mean = self._along(self.conditional.noise_mean(centres), self._v)
        return float(self.seen.counts @ self._log_ratio(self._along(centres, self._x) + mean + given))

    def _latent_given_noise(self, point: ChainPoint, rng: np.random.Generator) -> ChainPoint:
        """Move ψ given z_a: θ_a moves along with f_a(ψ)."""
        assert point.noise is not None
        return self._around_prior(point, partial(self._given_noise, self._along(point.noise, self._v)), rng)

    def _given_noise(self, given: Float[Array, " n"], centres: Float[Array, "m d"]) -> float:
        return float(self.seen.counts @ self._log_density(self._along(centres, self._x) + given))

    def _actions(self, point: ChainPoint, rng: np.random.Generator, *, around_sites: bool) -> ChainPoint:
        """Move z_a given ψ, every action on an ellipse of its own: of what its sites say, or of its prior."""
        assert point.noise is not None
        middle, across = np.zeros_like(point.noise), rng.standard_normal(point.noise.shape)
        if around_sites:
            middle, across = self.conditional.noise_mean(point.centres), self.conditional.spread(across)
        away, log_factor = point.noise - middle, self._log_ratio if around_sites else self._log_density
        fixed = self._along(point.centres, self._x) + self._along(middle, self._v)
        at = partial(self._levels, log_factor, fixed, self._along(away, self._v), self._along(across, self._v))
        m = len(middle)
        angles = _slice_many(at, at(np.zeros(m), np.ones(m, dtype=bool)), rng)[:, None]
        return ChainPoint(point.white, point.centres, middle + np.cos(angles) * away + np.sin(angles) * across)

    def _levels(
        self,
        log_factor: Callable[[Array, Array], Array],
        fixed: Float[Array, " n"],
        away: Float[Array, " n"],
        across: Float[Array, " n"],
        angles: Float[Array, " m"],
        wanted: Bool[Array, " m"],
    ) -> Float[Array, " m"]:
        """Σ log factor over the rounds of every action that is wanted, each at its own angle."""
        rounds = np.flatnonzero(wanted[self._where])
        mine = self._where[rounds]
        eta = fixed[rounds] + np.cos(angles)[mine] * away[rounds] + np.sin(angles)[mine] * across[rounds]
        terms = np.bincount(mine, self.seen.counts[rounds] * log_factor(eta, rounds), minlength=len(wanted))
        # Without any rounds NumPy counts in integers.
        return terms.astype(np.float64, copy=False)

    def _along(self, vectors: Float[Array, "m d"], rows: Float[Array, "n d"]) -> Float[Array, " n"]:
        return np.einsum("nd,nd->n", rows, vectors[self._where])

    def _log_density(self, eta: Float[Array, " q"], rounds: Any = slice(None)) -> Float[Array, " q"]:
        """log p(r | η), minus infinity where it cannot be computed."""
        with np.errstate(over="ignore", invalid="ignore"):
            density = self._likelihood.log_density(self._rewards[rounds], eta)
        return np.where(np.isnan(density), -np.inf, density)

    def _log_ratio(self, eta: Float[Array, " q"], rounds: Any = slice(None)) -> Float[Array, " q"]:
        """log p(r | η) less the log of its site."""
        weight, linear = self._sites.weight[rounds], self._sites.linear[rounds]
        return self._log_density(eta, rounds) - (linear * eta - 0.5 * weight * eta**2)


def kernel_for(seen: SeenActions, likelihood: Likelihood) -> _Kernel:
    """The sweep of the sampler that suits a likelihood, around the mode above the prior mean."""
    # Of all treatments this one lies closest to the posterior, so that its ellipses are the best.
    treated = likelihood if likelihood.treatment == "exact" else likelihood.treated("variational")
    ascent = ascent_for(seen, treated, TOLERANCE)
    climbed = climb(ascent, np.zeros(seen.hierarchy.latent_dim), MAX_STEPS, TOLERANCE)
    return _Collapsed(ascent, climbed) if likelihood.treatment == "exact" else _Blocked(ascent, climbed, likelihood)


def sample_posterior(
    logs: LoggedData,
    prior: NonlinearHierarchy | HierarchicalGaussian,
    likelihood: Likelihood | None = None,
    n_draws: int = 1000,
    *,
    rng: np.random.Generator,
    warmup: int = 200,
    thin: int = 1,
    n_chains: int = 4,
    progress: Progress = False,
) -> PosteriorDraws:
    """Draws of ψ and θ given the logs, where θ_a | ψ ~ N(f_a(ψ), Σ_a) and rewards follow any likelihood.

    Elliptical slice sampling around the Gaussians of `fit_nonlinear`. ψ moves on ellipses of the linearised posterior,
    with the tails of a t distribution, and in between on those of the prior, so that it does not get stuck where the
    linearisation is poor. With Gaussian rewards θ is integrated out, and drawn exactly afterwards. With others each
    round has a Gaussian site, and θ_a = f_a(ψ) + L_a z_a is written as what the sites say given ψ plus a rest e_a. ψ
    moves given the e_a, which under the sites are independent of it, and, in between, given the z_a; the e_a and the
    z_a of all actions move at once, each on an ellipse of its own. The exact density decides every move, so draws are
    exact in the long run, whatever the linearisation is worth.

    Chains start from climbs of their own from draws of the prior, so that modes which do not mix show up in
    `PosteriorDraws.r_hat` and its `warnings`.

    Args:
        logs: Logged rounds.
        prior: A `NonlinearHierarchy`, or a linear prior that has not seen data.
        likelihood: How rewards arise; by default `Gaussian(noise_std=1.0)`. Its treatment does not matter.
        n_draws: The number of draws to keep in all chains together; rounded up to the same number each.
        rng: A NumPy generator.
        warmup: The number of sweeps of each chain that are thrown away.
        thin: Keep one of every `thin` sweeps.
        n_chains: The number of chains; at least two to see whether they agree.
        progress: True shows a progress bar; a function is called as progress(sweep, all sweeps).
    """
    hierarchy, likelihood = as_hierarchy(prior), as_likelihood(likelihood)
    check_rounds(logs, hierarchy)
    likelihood.check(logs.rewards, logs.weights)
    n_chains, thin = as_count("n_chains", n_chains), as_count("thin", thin)
    warmup, length = as_count("warmup", warmup, minimum=0), -(-as_count("n_draws", n_draws) // n_chains)
    noise_rng, *rngs = split(rng, "noise", *(f"chain {number}" for number in range(n_chains)))
    seen = SeenActions(hierarchy, logs)
    kernel = kernel_for(seen, likelihood)
    latent = np.empty((n_chains, length, hierarchy.latent_dim))
    shape = (n_chains, length, seen.n_actions, hierarchy.dim)
    if kernel.keeps_weights and int(np.prod(shape)) > MAX_KEPT:
        raise TooLargeError(
            f"{n_chains * length} draws of the weights of {shape[2]} seen actions are more than {MAX_KEPT:,} numbers.",
            "Ask for fewer draws, with a larger thin=.",
        )
    weights = np.empty(shape) if kernel.keeps_weights else None
    per_chain = warmup + length * thin
    with reporter(progress, n_chains * per_chain, "sampling") as report:
        for number, chain_rng in enumerate(rngs):
            point = kernel.start(chain_rng, from_prior=number > 0)
            for sweep in range(per_chain):
                point = kernel.sweep(point, chain_rng)
                report(number * per_chain + sweep + 1, n_chains * per_chain)
                place, rest = divmod(sweep - warmup, thin)
                if place < 0 or rest < thin - 1:
                    continue
                latent[number, place] = seen.latent(point.white)
                if weights is not None and point.noise is not None:
                    weights[number, place] = kernel.conditional.weights(point.centres, point.noise)
    return PosteriorDraws(
        hierarchy,
        likelihood,
        latent,
        seen.actions[: len(seen.actions) if len(seen.logs) else 0],
        weights,
        kernel.conditional,
        tuple(int(word) for word in noise_rng.integers(0, 1 << 63, size=2)),
        (logs.fingerprint,),
        logs.features,
        logs.catalog,
    )
