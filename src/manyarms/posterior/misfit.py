"""Whether rewards look like what prior and noise say: sums of squares that are χ² when both are right."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import chdtr, chdtrc

from manyarms.core.hierarchy import HierarchicalGaussian
from manyarms.core.observed import Observed

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


@dataclass(frozen=True, repr=False)
class PriorCheck:
    """What `check_prior` returns.

    Attributes:
        noise: The part of the rewards that no weights could explain; None when there is no such part.
        prior: The part that weights could explain; None when nothing was logged.
        warnings: What the data contradict, in plain words; empty when nothing.
    """

    noise: Misfit | None
    prior: Misfit | None
    warnings: tuple[str, ...] = ()

    @property
    def total(self) -> Misfit | None:
        """Both together: rᵀ V⁻¹ r with V the covariance of all rewards under prior and noise, r centred."""
        parts = [part for part in (self.noise, self.prior) if part is not None]
        return Misfit(sum(p.value for p in parts), sum(p.degrees for p in parts)) if parts else None

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        parts = (("noise", self.noise, "no action has more rounds than it has weights"),
                 ("prior", self.prior, "no rounds"))  # fmt: skip
        lines = [f"misfit of the {name}: {missing if part is None else part}" for name, part, missing in parts]
        verdict = [f"warning: {text}" for text in self.warnings] or ["nothing contradicts prior or noise"]
        return "\n".join([*lines, *verdict])


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


def _informative_rows(observed: Observed) -> int:
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
