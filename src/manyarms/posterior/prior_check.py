"""Whether rewards look like what prior and noise say: sums of squares that are χ² when both are right.

Of rewards that are not Gaussian only the mean of the prior is checked, by a score test of the sites.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import chdtr, chdtrc, ndtr

from manyarms._base.checks import Array
from manyarms.core.hierarchical_gaussian import HierarchicalGaussian
from manyarms.core.observed_rows import ObservedRows
from manyarms.likelihoods import Likelihood

SURE = 0.001
"""A warning needs a p-value below this ..."""
CLOSE = (0.8, 1.25)
"""... and a ratio outside these: with much data every model is wrong a little."""


@dataclass(frozen=True)
class Misfit:
    """A sum of squares that is χ² with so many degrees of freedom when the model is right.

    Attributes:
        value: The sum, in units of the variance that the model expects.
        degrees: Of freedom.
    """

    value: float
    degrees: float

    @property
    def ratio(self) -> float:
        """Misfit over what is expected: 1 on average."""
        return self.value / self.degrees

    @property
    def p_value(self) -> float:
        """How rarely a right model has a misfit this far from what is expected, on either side."""
        tails = chdtr(self.degrees, self.value), chdtrc(self.degrees, self.value)
        return min(1.0, 2.0 * float(min(tails)))

    @property
    def contradicts(self) -> bool:
        """Whether it is both surely and markedly off."""
        return self.p_value < SURE and not CLOSE[0] <= self.ratio <= CLOSE[1]

    def __str__(self) -> str:
        return (
            f"{self.ratio:.3g} times what is expected ({self.degrees:,.10g} degrees of freedom, p = {self.p_value:.2g})"
        )


@dataclass(frozen=True)
class MeanShift:
    """How far the weights of all actions lie from where the prior has them, in the coordinate that is farthest off.

    Attributes:
        column: Which coordinate: the column of the contexts that it belongs to.
        shift: By how much all actions would have to move there.
        error: Its standard error, with how far actions spread under the prior in it.
        spread: The standard deviation that the prior gives a single action there.
        n_columns: Of how many coordinates it is the farthest.
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
        """How rarely a right prior has any coordinate this far off."""
        return min(1.0, 2.0 * self.n_columns * float(ndtr(-abs(self.z))))

    @property
    def contradicts(self) -> bool:
        """Whether it is both surely and markedly off: with the shift, E θ² would leave what is close."""
        return self.p_value < SURE and self.shift**2 > (CLOSE[1] - 1.0) * self.spread**2

    def __str__(self) -> str:
        return (
            f"off by {self.shift:.3g} ± {self.error:.2g} in column {self.column}, of spread {self.spread:.3g} "
            f"(p = {self.p_value:.2g})"
        )


@dataclass(frozen=True, repr=False)
class PriorCheck:
    """What `check_prior` returns.

    Attributes:
        noise: The part of the rewards that no weights could explain; None when there is no such part.
        prior: The part that weights could explain; None when nothing was logged.
        mean: Where the weights lie, which is checked in the place of both when rewards are not Gaussian.
        unchecked: Why noise and spread were not checked; empty when they were.
        warnings: What the data contradict, in plain words; empty when nothing.
    """

    noise: Misfit | None
    prior: Misfit | None
    warnings: tuple[str, ...] = ()
    mean: MeanShift | None = None
    unchecked: str = ""

    @property
    def total(self) -> Misfit | None:
        """Both together: rᵀ V⁻¹ r with V the covariance of all rewards under prior and noise, r centred."""
        parts = [part for part in (self.noise, self.prior) if part is not None]
        return Misfit(sum(p.value for p in parts), sum(p.degrees for p in parts)) if parts else None

    @property
    def against_prior(self) -> Misfit | MeanShift | None:
        """What was checked of the prior: its spread, or its mean."""
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
            parts = (("noise", self.noise, "no action has more rounds than it has weights"),
                     ("prior", self.prior, "no rounds"))  # fmt: skip
            lines = [f"misfit of the {name}: {missing if part is None else part}" for name, part, missing in parts]
            fine = "nothing contradicts prior or noise"
        return "\n".join([*lines, *([f"warning: {text}" for text in self.warnings] or [fine])])


def check_misfit(weights: HierarchicalGaussian, noise_std: float, total_weight: float | None) -> PriorCheck:
    """The two parts of the misfit of all rounds since the first prior; see `check_prior`.

    Args:
        weights: A posterior.
        noise_std: σ, for the words of a warning.
        total_weight: Of all these rounds; None when it is not known, and the noise is not checked.
    """
    inside = float(_informative_rows(weights.observed))
    prior = Misfit(max(weights.misfit, 0.0), inside) if inside else None
    outside = 0.0 if total_weight is None else total_weight - inside
    noise = Misfit(weights.observed.residual, outside) if outside > 1e-9 * max(inside, 1.0) else None
    return PriorCheck(noise, prior, _warnings(noise, prior, noise_std))


def check_mean(weights: HierarchicalGaussian, likelihood: Likelihood) -> PriorCheck:
    """Whether the weights of all actions lie around the mean of the prior, when rewards are not Gaussian.

    A score test, one coordinate j after the other: were E θ_aj larger by δ for every action, the log evidence would
    have slope z_j = Σ_a [B_a - G_a θ̂_a]_j and curvature J_j = Σ_a [G_a]_jj - Var Σ_a [G_a θ_a]_j at δ = 0, with the
    sites' G_a and B_a and the posterior's θ̂ and variance. So δ would be z_j / J_j, and z_j / √J_j is standard normal as
    far as the posterior is. Unlike a misfit it does not hang on single rounds, whose sites fit by construction.
    """
    kind = type(likelihood).__name__
    if likelihood.treatment == "paper":
        return PriorCheck(None, None, unchecked='under the treatment "paper"')
    shift = _mean_shift(weights) if weights.observed.groups else None
    found = () if shift is None or not shift.contradicts else (_mean_warning(shift, kind),)
    return PriorCheck(None, None, found, shift, f"under {kind}")


def _mean_shift(weights: HierarchicalGaussian) -> MeanShift | None:
    seen, groups = weights.observed.actions, weights.observed.groups
    order = np.argsort(np.concatenate([g.actions for g in groups]))
    gram = np.concatenate([np.einsum("mrj,mrk->mjk", g.root, g.root) for g in groups])[order]
    moment = np.concatenate([np.einsum("mrj,mr->mj", g.root, g.response) for g in groups])[order]
    z = np.sum(moment - np.einsum("mjk,mk->mj", gram, weights.action_mean(seen)), axis=0)
    J = np.array([gram[:, j, j].sum() - weights.variance_of(gram[:, j], seen) for j in range(weights.dim)])
    # What is left of two numbers that nearly cancel where data are plenty; below this nothing but rounding.
    known = np.flatnonzero(J > 1e-12 * np.einsum("mjj->j", gram))
    if len(known) == 0:
        return None
    j = int(known[np.argmax(np.abs(z[known]) / np.sqrt(J[known]))])
    spread = _prior_std(weights.base, seen, j)
    return MeanShift(j, float(z[j] / J[j]), float(J[j] ** -0.5), spread, len(known))


def _prior_std(prior: HierarchicalGaussian, seen: Array, column: int) -> float:
    """Root mean square over actions, a thousand at most: they hardly differ."""
    some = seen[:: 1 + len(seen) // 1000]
    variances: Float[Array, " m"] = prior.action_cov(some)[:, column, column]
    return float(np.sqrt(variances.mean()))


def _mean_warning(shift: MeanShift, kind: str) -> str:
    side = "above" if shift.shift > 0 else "below"
    meaning = _ZERO.get(kind)
    return (
        f"the weights of context column {shift.column} lie {abs(shift.shift):.3g} ± {shift.error:.2g} {side} the mean "
        f"of the prior, which spreads actions by {shift.spread:.3g}"
        + ("" if meaning is None else f" (a predictor of zero is {meaning})")
        + ". Learn the mean with ma.learn_prior, or set it."
    )


_ZERO = {"Bernoulli": "50 % clicks", "Poisson": "one event a round"}


def _informative_rows(observed: ObservedRows) -> int:
    """How many rows say anything: sums with a singular Gram matrix are held with rows of zeros."""
    count = 0
    for group in observed.groups:
        size = np.sqrt(np.einsum("mrd,mrd->mr", group.root, group.root))
        # To rounding: a null direction can come out as a row of 1e-9 of the others, with a response as small.
        empty = (size <= 1e-7 * size.max(axis=1, keepdims=True)) & (np.abs(group.response) < 1e-4)
        count += int(np.sum(~empty))
    return count


def _warnings(noise: Misfit | None, prior: Misfit | None, noise_std: float) -> tuple[str, ...]:
    found = list[str]()
    if noise is not None and noise.contradicts:
        more = noise.ratio > 1
        found.append(
            f"rewards vary {'more' if more else 'less'} around their expectation than noise_std={noise_std:.4g} says: "
            f"{noise_std * noise.ratio**0.5:.4g} would fit"
            + (", unless the contexts lack a feature. " if more else ". ")
            + "Learn it with ma.learn_prior."
        )
    if prior is not None and prior.contradicts:
        found.append(
            f"actions differ {'more' if prior.ratio > 1 else 'less'} than the prior says: their misfit is "
            f"{prior.ratio:.3g} times what it expects{' (mend the noise first)' if found else ''}. "
            "Learn it with ma.learn_prior."
        )
    return tuple(found)
