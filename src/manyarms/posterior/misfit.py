"""The misfit of prior and noise to all rewards: sums of squares that are χ² when both are right.

If rewards are not Gaussian, only the mean of the prior is checked, by a score test of the sites.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import chdtr, chdtrc, ndtr

from manyarms.core import HierarchicalGaussian, ObservedRows
from manyarms.likelihoods import Likelihood
from manyarms.linalg.factor_and_solve import gram
from manyarms.linalg.indexing import cache_chunks

SURE = 0.001
"""A warning needs a p-value below this ..."""
CLOSE = (0.8, 1.25)
"""... and a ratio outside these: with much data every model is wrong a little."""


@dataclass(frozen=True)
class Misfit:
    """The misfit of a model: a sum of squares in units of the variance it expects, χ² with `degrees` if it is right."""

    value: float
    degrees: float

    @property
    def ratio(self) -> float:
        """The misfit over its expectation: 1 on average."""
        return self.value / self.degrees

    @property
    def p_value(self) -> float:
        """The probability that a correct model has a misfit this far from the expected one, on either side."""
        tails = chdtr(self.degrees, self.value), chdtrc(self.degrees, self.value)
        return min(1.0, 2.0 * float(min(tails)))

    @property
    def contradicts(self) -> bool:
        """True if the deviation is both significant and large."""
        return self.p_value < SURE and not CLOSE[0] <= self.ratio <= CLOSE[1]

    def __str__(self) -> str:
        test = f"{self.degrees:,.10g} degrees of freedom, p = {self.p_value:.2g}"
        return f"{self.ratio:.3g} times the expected value ({test})"


@dataclass(frozen=True)
class MeanShift:
    """The misfit of the prior's mean: the shift of all actions' weights from it, in the coordinate farthest off.

    Attributes:
        column: The coordinate: its column of the contexts.
        shift: The amount by which all actions would have to move there.
        error: The standard error of the shift, including the spread of actions under the prior.
        spread: The standard deviation that the prior gives a single action there.
        n_columns: The number of coordinates out of which this is the farthest.
    """

    column: int
    shift: float
    error: float
    spread: float
    n_columns: int

    @property
    def z(self) -> float:
        """The shift in standard errors: standard normal when the prior is right, but for having been picked."""
        return self.shift / self.error

    @property
    def p_value(self) -> float:
        """The probability that a correct prior has any coordinate this far off."""
        return min(1.0, 2.0 * self.n_columns * float(ndtr(-abs(self.z))))

    @property
    def contradicts(self) -> bool:
        """True if the shift is both significant and large: with it, E θ² would exceed the tolerance."""
        return self.p_value < SURE and self.shift**2 > (CLOSE[1] - 1.0) * self.spread**2

    def __str__(self) -> str:
        return (
            f"off by {self.shift:.3g} ± {self.error:.2g} in column {self.column} "
            f"(prior std {self.spread:.3g}, p = {self.p_value:.2g})"
        )


@dataclass(frozen=True, repr=False)
class PriorCheck:
    """The misfits of prior and noise to all rewards, with the warnings that follow. `check_prior` returns it.

    Attributes:
        noise: The misfit of the part of the rewards that no weights could explain; None if there is no such part.
        prior: The misfit of the part that weights could explain; None if nothing was logged.
        mean: The shift of the weights, which is checked instead of both when rewards are not Gaussian.
        unchecked: The reason why noise and spread were not checked; empty if they were.
        warnings: The contradictions between data and model, in plain words; empty if there are none.
    """

    noise: Misfit | None
    prior: Misfit | None
    warnings: tuple[str, ...] = ()
    mean: MeanShift | None = None
    unchecked: str = ""

    @property
    def total(self) -> Misfit | None:
        """The misfit of both parts: rᵀ V⁻¹ r, V the covariance of all rewards under prior and noise, r centred."""
        parts = [part for part in (self.noise, self.prior) if part is not None]
        return Misfit(sum(p.value for p in parts), sum(p.degrees for p in parts)) if parts else None

    @property
    def against_prior(self) -> Misfit | MeanShift | None:
        """The check of the prior: of its spread, or of its mean."""
        return self.mean if self.prior is None else self.prior

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        if self.unchecked:
            lines = [f"noise and spread: not checked {self.unchecked}"]
            if self.mean is not None:
                lines.append(f"mean of the weights: {self.mean}")
            fine = "nothing was checked" if self.mean is None else "nothing contradicts the mean of the prior"
        else:
            parts = (("noise", self.noise, "not checked, as no action has more rounds than weights"),
                     ("prior", self.prior, "not checked, as there are no rounds"))  # fmt: skip
            lines = [f"misfit of the {name}: {missing if part is None else part}" for name, part, missing in parts]
            fine = (
                "No deviation is large enough for a warning.\n"
                f"(A warning needs a misfit, a sum of squares, outside {CLOSE[0]:g} to {CLOSE[1]:g} times its "
                f"expected value,\nand p < {SURE:g}.)"
            )
        return "\n".join([*lines, *([f"warning: {text}" for text in self.warnings] or [fine])])


def check_misfit(
    weights: HierarchicalGaussian, noise_std: float, total_weight: float | None, *, prior_learned: bool = False
) -> PriorCheck:
    """The misfit of all rounds since the first prior, in two parts; see `check_prior`.

    `total_weight` is the sum of the weights of all these rounds; None if unknown, so that the noise is not checked.
    `prior_learned` is true for a prior learned from these rounds: learning it is then no advice.
    """
    inside = float(_informative_rows(weights.observed))
    prior = Misfit(max(float(weights.misfit), 0.0), inside) if inside else None
    outside = 0.0 if total_weight is None else total_weight - inside
    noise = Misfit(weights.observed.residual, outside) if outside > 1e-9 * max(inside, 1.0) else None
    return PriorCheck(noise, prior, _warnings(noise, prior, noise_std, prior_learned))


def mean_misfit(weights: HierarchicalGaussian, likelihood: Likelihood, *, prior_learned: bool = False) -> PriorCheck:
    """The misfit of the prior's mean, the centre of the weights of all actions, when rewards are not Gaussian.

    A score test, one coordinate j after the other: were E θ_aj larger by δ for every action, the log evidence would
    have slope z_j = Σ_a [B_a - G_a θ̂_a]_j and curvature J_j = Σ_a [G_a]_jj - Var Σ_a [G_a θ_a]_j at δ = 0, with the
    sites' G_a and B_a and the posterior's θ̂ and variance. So δ would be z_j / J_j, and z_j / √J_j is standard normal as
    far as the posterior is. Unlike a misfit it does not depend on single rounds, whose sites fit by construction.
    """
    kind = type(likelihood).__name__
    if likelihood.treatment == "paper":
        return PriorCheck(None, None, unchecked='under the treatment "paper"')
    shift = _mean_shift(weights) if weights.observed.groups else None
    if shift is None or not shift.contradicts:
        return PriorCheck(None, None, (), shift, f"under {kind}")
    side, meaning = "above" if shift.shift > 0 else "below", _ZERO.get(kind)
    warning = (
        f"the weights of context column {shift.column} lie {abs(shift.shift):.3g} ± {shift.error:.2g} {side} the mean "
        f"of the prior, which gives an action a standard deviation of {shift.spread:.3g}"
        + ("" if meaning is None else f" (a predictor of zero means {meaning})")
        + (f". {_LEARNED} or set its mean." if prior_learned else ". Learn the prior from the logs, or set its mean.")
    )
    return PriorCheck(None, None, (warning,), shift, f"under {kind}")


def _mean_shift(weights: HierarchicalGaussian) -> MeanShift | None:
    groups, d = weights.observed.groups, weights.dim
    z, weight = np.zeros(d), np.zeros(d)
    for group in groups:
        miss = group.response - np.einsum("mrd,md->mr", group.root, weights.action_mean(group.actions))
        z += np.einsum("mrd,mr->d", group.root, miss)
        weight += np.einsum("mrd,mrd->d", group.root, group.root)
    # The columns of G_a are the vectors of action a.
    grams = (
        (gram(group.root[part]), group.actions[part])
        for group in groups
        for part in cache_chunks(len(group.root), d**2)
    )
    J = weight - weights.variances_of_sums(grams, d)
    # Two numbers nearly cancel here where data are plentiful; below this threshold only rounding is left.
    known = np.flatnonzero(J > 1e-12 * weight)
    if len(known) == 0:
        return None
    j = int(known[np.argmax(np.abs(z[known]) / np.sqrt(J[known]))])
    # Root mean square over at most a thousand actions, which hardly differ.
    seen = weights.observed.actions
    spread = float(np.sqrt(weights.base.action_cov(seen[:: 1 + len(seen) // 1000])[:, j, j].mean()))
    return MeanShift(j, float(z[j] / J[j]), float(J[j] ** -0.5), spread, len(known))


_LEARNED = "The prior was learned from these rounds and still does not fit: choose another one, with compare_priors,"
_LEARN = "Learn the prior from the logs, or choose another one."
_ZERO = {"Bernoulli": "50 % clicks", "Poisson": "one event per round"}


def _informative_rows(observed: ObservedRows) -> int:
    """The number of rows that carry information: sums with a singular Gram matrix are stored with rows of zeros."""
    count = 0
    for group in observed.groups:
        size = np.sqrt(np.einsum("mrd,mrd->mr", group.root, group.root))
        # Up to rounding: a null direction can come out as a row 1e-9 times the others, with a response as small.
        empty = (size <= 1e-7 * size.max(axis=1, keepdims=True)) & (np.abs(group.response) < 1e-4)
        count += int(np.sum(~empty))
    return count


def _warnings(noise: Misfit | None, prior: Misfit | None, noise_std: float, prior_learned: bool) -> tuple[str, ...]:
    warnings = list[str]()
    if noise is not None and noise.contradicts:
        more = noise.ratio > 1
        warnings.append(
            f"rewards vary {'more' if more else 'less'} around their expectation than a noise standard deviation of "
            f"{noise_std:.4g} implies: {noise_std * noise.ratio**0.5:.4g} would fit"
            + (", unless the contexts lack a feature. " if more else ". ")
            + "Learn the noise from the logs, or set it."
        )
    if prior is not None and prior.contradicts:
        warnings.append(
            f"actions differ {'more' if prior.ratio > 1 else 'less'} than the prior implies: their misfit is "
            f"{prior.ratio:.3g} times the expected value{' (correct the noise first)' if warnings else ''}. "
            + (f"{_LEARNED} or learn more of it." if prior_learned else _LEARN)
        )
    return tuple(warnings)
