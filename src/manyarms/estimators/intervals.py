"""Standard errors and intervals of sampling estimates: normal, bootstrap, empirical Bernstein.

A sampling estimate is mean(direct) + mean(numerator) / mean(denominator) over rounds. Self-normalised estimators have
a ratio; for the others the denominator is 1. When rounds come in groups, such as the rounds of one user, the groups are
the independent units, and everything here counts groups.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, as_count, as_scalar, check_choice
from manyarms._base.rng import as_generator
from manyarms.core import LoggedData
from manyarms.core.estimate import EmpiricalShape, Method, Shape
from manyarms.linalg.indexing import chunks, sum_by
from manyarms.linalg.single_screen import binary_exponent


@dataclass(frozen=True)
class Units:
    """Units of an interval: sums over independent rounds, or over groups of them.

    Attributes:
        direct: (u,) Sums of the direct terms of each unit's rounds.
        numerator: (u,) Sums of the numerators.
        denominator: (u,) Sums of the denominators; for no division, `size`.
        size: (u,) Sums of the rounds' own weights.
        grouped: True when a unit is a group. A round of weight 2 is two rounds; a group is one unit whatever its size.
    """

    direct: Float[Array, " u"]
    numerator: Float[Array, " u"]
    denominator: Float[Array, " u"]
    size: Float[Array, " u"]
    grouped: bool

    @property
    def value(self) -> float:
        """The estimate."""
        return float(self.direct.sum() / self.size.sum() + self.numerator.sum() / self.denominator.sum())

    @property
    def influence(self) -> Float[Array, " u"]:
        """Numbers with mean zero, whose standard error is that of the estimate (the delta method for the ratio)."""
        total, below = self.size.sum(), self.denominator.sum()
        ratio = self.numerator.sum() / below
        centred = (self.direct - self.size * self.direct.sum() / total) / total
        return len(self.size) * (centred + (self.numerator - ratio * self.denominator) / below)

    @property
    def std(self) -> float:
        """The standard error of the estimate."""
        n, total, influence = len(self.size), float(self.size.sum()), self.influence
        power = binary_exponent(influence)
        influence = np.ldexp(influence, -power)
        if self.grouped:
            return float(np.ldexp(np.sqrt(np.sum(influence**2) / max(n - 1, 1) / n), power))
        squares = np.divide(influence**2, self.size, out=np.zeros(n), where=self.size > 0) * (total / n) ** 2
        return float(np.ldexp(np.sqrt(squares.sum() / max(total - 1, 1) / total), power))

    @property
    def count(self) -> float:
        """The number of independent units: a round of weight 2 is two, a group is one."""
        return float(len(self.size)) if self.grouped else float(self.size.sum())

    def resampled(self, rng: np.random.Generator, n_draws: int) -> Float[Array, " b"]:
        """The estimate on units drawn with replacement, `n_draws` times."""
        columns = np.stack([self.direct, self.numerator, self.denominator, self.size])
        n = len(self.size)
        if self.grouped or (self.size == 1).all():
            direct, numerator, below, size = columns[:, rng.integers(0, n, (n_draws, n))].sum(axis=2)
        else:
            kept = self.size > 0
            per_round = columns[:, kept] / self.size[kept]
            shares = self.size[kept] / self.size.sum()
            counts = rng.multinomial(max(2, round(self.count)), shares, size=n_draws)
            direct, numerator, below, size = (counts @ per_round.T).T
        # A draw in which a self-normalised estimator has no weight at all leaves the ratio undefined.
        ratio = np.divide(numerator, below, out=np.full(n_draws, np.nan), where=below > 0)
        return direct / size + ratio


def as_units(
    direct: Float[Array, " n"],
    numerator: Float[Array, " n"],
    denominator: Float[Array, " n"] | None,
    weights: Float[Array, " n"] | None,
    groups: Int[Array, " n"] | None,
) -> Units:
    """Sums of rounds per unit, the independent parts behind an interval. A round of weight 2 is that round twice."""
    size = np.ones(len(direct)) if weights is None else np.asarray(weights)
    columns = [direct * size, numerator * size, (size if denominator is None else denominator * size), size]
    if groups is not None:
        columns = list(sum_by(np.unique(groups, return_inverse=True)[1], np.column_stack(columns))[1].T)
    return Units(*columns, grouped=groups is not None)


def standard_error(terms: Float[Array, " n"], logs: LoggedData, groups: Int[Array, " n"] | None) -> float:
    """The standard error of a mean over rounds, or over groups of them."""
    return as_units(terms, np.zeros(len(terms)), None, logs.weights, groups).std


class Interval(ABC):
    """A kind of interval around a sampling estimate."""

    method: Method

    @abstractmethod
    def shape(self, units: Units) -> Shape | None:
        """The distribution of the estimate; None for the normal one with the units' standard error."""


@dataclass(frozen=True)
class Normal(Interval):
    """The interval of the central limit theorem: value ± z std."""

    method: Method = "normal"

    def __post_init__(self) -> None:
        check_choice("method", self.method, ("normal",))

    def shape(self, units: Units) -> Shape | None:
        return None


class Bootstrap(Interval):
    """The interval of bootstrap quantiles: of the estimate over units drawn with replacement.

    Args:
        n_draws: The number of bootstrap samples.
        rng: A NumPy generator. It is read once, here, so the same estimate comes out each time.
    """

    method: Method = "bootstrap"

    def __init__(self, n_draws: int = 1000, *, rng: np.random.Generator):
        self.n_draws = as_count("n_draws", n_draws)
        self._seed = as_generator(rng).integers(0, 1 << 63)

    def shape(self, units: Units) -> Shape:
        rng, n = np.random.default_rng(int(self._seed)), len(units.size)
        draws = np.empty(self.n_draws)
        for part in chunks(self.n_draws, max(1, (1 << 20) // max(n, 1))):
            draws[part] = units.resampled(rng, part.stop - part.start)
        return EmpiricalShape(np.sort(draws[np.isfinite(draws)]))


class EmpiricalBernstein(Interval):
    """The interval of Maurer and Pontil: wide, and it holds for any n when contributions have a known range.

    Args:
        width: The width of the range of one round's contribution: for IPS with rewards in [0, 1] and weights capped at
            c, it is c. None takes the observed width, which makes the bound a rule of thumb instead of a guarantee.
            For ratios (snIPS, snDR) it is a rule of thumb in any case.
    """

    method: Method = "bernstein"

    def __init__(self, width: float | None = None):
        self.width = None if width is None else as_scalar("width", width, above=0.0)

    def shape(self, units: Units) -> Shape:
        # A group of twice the mean size can move the estimate twice as far.
        scale = float(units.size.max() / units.size.mean()) if units.grouped else 1.0
        width = float(np.ptp(units.influence)) if self.width is None else self.width * scale
        return _Bernstein(units.value, units.std, width, units.count)


@dataclass(frozen=True)
class _Bernstein:
    value: float
    std: float
    width: float
    n: float

    def interval(self, level: float) -> tuple[float, float]:
        # Two sides share the error, and each side of the inequality needs log(2 / δ).
        half = self._half(np.log(4.0 / (1.0 - level)))
        return self.value - half, self.value + half

    @property
    def probability_positive(self) -> float:
        """The largest level of a one-sided bound that excludes zero; one half when none does."""
        low, high = 0.0, 700.0
        if self.value == 0.0:
            return 0.5
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self._half(middle) < abs(self.value) else (low, middle)
        probability = max(0.5, 1.0 - 2.0 * float(np.exp(-low)))
        return probability if self.value > 0 else 1.0 - probability

    def _half(self, log: float) -> float:
        return float(self.std * np.sqrt(2 * log) + 7 * self.width * log / (3 * max(self.n - 1, 1)))
