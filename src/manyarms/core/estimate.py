"""An estimated quantity with its error, and the shapes of estimates that are not normal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr, ndtri

from manyarms._base.checks import Array, as_scalar, check_choice
from manyarms.core.result_tables import Tabular, html_facts
from manyarms.errors import InputError

Kind = Literal["posterior", "sampling", "checked"]
Method = Literal["exact", "delta", "draws", "normal", "bootstrap", "bernstein", "sequence", "quadrature"]


@dataclass(frozen=True)
class Estimate(Tabular):
    """The value of a policy, a difference of two, or a relative change; N(value, std²) unless it has another `shape`.

    Two errors are kept apart. `posterior_std` is the uncertainty about the rewards that the logs leave: it belongs to
    the value *on the given contexts*. `context_std` is the sampling error of these contexts as a sample of the
    population. `std` combines both and belongs to the value in the population.

    Attributes:
        value: The point estimate.
        std: Standard deviation of the total error.
        posterior_std: The part that more rewards would reduce, where it is known.
        context_std: The part that more contexts would reduce, where it is known.
        kind: "posterior" for a posterior distribution, "sampling" for a sampling distribution, "checked" for the
            posterior of `Checked`, which held-out rewards have corrected.
        method: The method that gave the distribution.
        diagnostics: Figures that show how far to trust the estimate.
        warnings: Problems with the estimate, in plain words; empty if there are none.
        shape: The distribution if it is not normal: bootstrap draws, a concentration bound, a mixture.
        posterior_shape: The distribution of the value on the given contexts if it is not normal.
    """

    value: float
    std: float
    posterior_std: float | None = None
    context_std: float | None = None
    kind: Kind = "posterior"
    method: Method = "exact"
    diagnostics: Mapping[str, float] = field(default_factory=dict[str, float])
    warnings: tuple[str, ...] = ()
    shape: Shape | None = field(default=None, repr=False)
    posterior_shape: Shape | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        as_scalar("value", self.value)
        as_scalar("std", self.std, at_least=0.0)

    def interval(
        self, level: float = 0.95, *, of: Literal["population", "contexts"] = "population"
    ) -> tuple[float, float]:
        """The central interval that holds the value with probability `level`.

        Args:
            level: A probability between 0 and 1.
            of: The value in the "population" that the contexts were drawn from, or on these "contexts" themselves.
        """
        level = as_scalar("level", level, above=0.0, below=1.0)
        check_choice("of", of, ("population", "contexts"))
        std = self.std if of == "population" else self.posterior_std
        if std is None:
            raise InputError("this estimate has no posterior_std.", 'Ask for the interval of the "population".')
        shape = self.shape if of == "population" else self.posterior_shape
        if shape is not None:
            return shape.interval(level)
        half = float(ndtri(0.5 + level / 2)) * std
        return self.value - half, self.value + half

    @property
    def probability_positive(self) -> float:
        """The probability that the quantity is above zero: for a difference, that the policy beats its baseline."""
        if self.shape is not None:
            return self.shape.probability_positive
        if self.std == 0.0:
            return 0.5 if self.value == 0.0 else float(self.value > 0.0)
        return float(ndtr(self.value / self.std))

    def record(self, level: float = 0.95) -> dict[str, Any]:
        """The estimate as plain values: its figures, kind and method, warnings and diagnostics.

        Args:
            level: The probability of the interval from `low` to `high`.
        """
        low, high = self.interval(level)
        return {
            "value": self.value,
            "std": self.std,
            "low": low,
            "high": high,
            "kind": self.kind,
            "method": self.method,
            "warnings": "; ".join(self.warnings),
            **self.diagnostics,
        }

    def records(self, level: float = 0.95) -> list[dict[str, Any]]:
        """The record as a table of one row."""
        return [self.record(level)]

    def _repr_html_(self) -> str:
        low, high = self.interval()
        facts = {
            "95 % interval": f"{low:.4g} to {high:.4g}",
            "probability of being positive": f"{self.probability_positive:.4f}",
            "method": f"{self.kind}, {self.method}",
            **self.diagnostics,
        }
        return html_facts(f"{self.value:.4g}", facts, self.warnings)

    def __repr__(self) -> str:
        return f"Estimate({self})"

    def __str__(self) -> str:
        low, high = self.interval()
        count = len(self.warnings)
        note = f" ({count} warning{'s' if count > 1 else ''}, see .warnings)" if count else ""
        return f"{self.value:.4g} [{low:.4g}, {high:.4g}]{note}"


@runtime_checkable
class Shape(Protocol):
    """The shape of an estimate whose distribution is not normal."""

    def interval(self, level: float) -> tuple[float, float]:
        """The interval that holds the value with probability `level`."""
        ...

    @property
    def probability_positive(self) -> float:
        """The probability that the quantity is above zero."""
        ...


@dataclass(frozen=True)
class EmpiricalShape:
    """The shape of an estimate that is known by draws of the reward or the value."""

    draws: Float[Array, " s"]

    def interval(self, level: float) -> tuple[float, float]:
        """The central interval that holds a share `level` of the draws."""
        low, high = np.quantile(self.draws, [0.5 - level / 2, 0.5 + level / 2])
        return float(low), float(high)

    @property
    def probability_positive(self) -> float:
        """The share of draws above zero; those at zero count half."""
        return float(np.mean(self.draws > 0) + 0.5 * np.mean(self.draws == 0))


@dataclass(frozen=True)
class NormalMixture:
    """The shape of an estimate that is a mixture of normal distributions, such as one around each draw."""

    means: Float[Array, " k"]
    stds: Float[Array, " k"]
    shares: Float[Array, " k"]

    @classmethod
    def around(cls, values: Float[Array, " k"], std: float) -> NormalMixture:
        """Draws, each blurred by a normal distribution of the same width."""
        return cls(values, np.full(len(values), std), np.full(len(values), 1.0 / len(values)))

    def below(self, x: float) -> float:
        """The probability of a value below x."""
        z = np.divide(x - self.means, self.stds, out=np.sign(x - self.means) * 40.0, where=self.stds > 0)
        return float(self.shares @ ndtr(z))

    def interval(self, level: float) -> tuple[float, float]:
        """The central interval that holds the value with probability `level`."""
        return self.quantile(0.5 - level / 2), self.quantile(0.5 + level / 2)

    def quantile(self, share: float) -> float:
        """The number that the value is below with probability `share`."""
        # Between means that surely lie on either side: far ones of hardly any share would cost all precision.
        order, reach = np.argsort(self.means), 40 * float(self.stds.max())
        first, last = np.searchsorted(np.cumsum(self.shares[order]), (share / 2, (1 + share) / 2))
        low = float(self.means[order[max(first - 1, 0)]]) - reach
        high = float(self.means[order[min(last + 1, len(order) - 1)]]) + reach
        # Cells without a width are steps, which may reach beyond the share at either end.
        if not high > low or self.below(low) >= share:
            return low
        if self.below(high) <= share:
            return high
        return _crossing(lambda x: self.below(x) - share, low, high)

    @property
    def probability_positive(self) -> float:
        """The probability that the quantity is above zero."""
        return 1.0 - self.below(0.0)


def _crossing(function: Callable[[float], float], low: float, high: float) -> float:
    """The zero of a rising function, by the method of Chandrupatla (1997): SciPy's takes long to import.

    It interpolates through three points by an inverse parabola where that is safe, and halves the bracket elsewhere.
    """
    x1, x2, f1, f2 = low, high, function(low), function(high)
    allowed, step = 1e-13 * (high - low), 0.5
    while True:
        x = x1 + step * (x2 - x1)
        f = function(x)
        same_side = (f > 0) == (f1 > 0)
        # x3 is the end that the bracket has just lost.
        x3, f3, x2, f2 = (x1, f1, x2, f2) if same_side else (x2, f2, x1, f1)
        x1, f1 = x, f
        best = x1 if abs(f1) < abs(f2) else x2
        narrow = (2 * np.finfo(float).eps * abs(best) + allowed) / abs(x2 - x1)
        if narrow > 0.5 or min(abs(f1), abs(f2)) == 0.0:
            return best
        place, height = (x1 - x2) / (x3 - x2), (f1 - f2) / (f3 - f2)
        step = 0.5
        if height**2 < place and (1 - height) ** 2 < 1 - place:
            step = f1 / (f2 - f1) * f3 / (f2 - f3) + (x3 - x1) / (x2 - x1) * f1 / (f3 - f1) * f2 / (f3 - f2)
        step = min(max(step, narrow), 1 - narrow)
