"""Standard deviations as numbers on a log scale: how a covariance of the prior is written as a vector, and back.

Every form works in the coordinates of the prior it stands for: with Λ = F Fᵀ and ψ = μ + F z, what the data say of it
is the matrix of excess moments Σ E z zᵀ - I (`inference.evidence_gradient`), and a change of F by dF changes the log
evidence by the inner product of that matrix with F⁻¹ dF.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.linalg import solve_triangular

from manyarms._base.checks import Array

Form = Literal["scale", "diagonal", "full"]
WIDE = 10.0
"""Standard deviations far above WIDE times the scale of the data are held back by a half-normal prior."""


class CovarianceForm(ABC):
    """A covariance written as a vector.

    Attributes:
        name: What it is the covariance of.
        size: The length of the vector.
    """

    name: str
    size: int

    @abstractmethod
    def start(self) -> Float[Array, " s"]:
        """The vector of the covariance that learning begins with."""

    @abstractmethod
    def scales(self) -> Float[Array, " s"]:
        """Which entries are logarithms of a scale (1), and which are something else (0)."""

    @abstractmethod
    def gradient(self, x: Float[Array, " s"], excess: Float[Array, "b b"]) -> Float[Array, " s"]:
        """The derivative of the log evidence."""

    @abstractmethod
    def stds(self, x: Float[Array, " s"]) -> Float[Array, " k"]:
        """Standard deviations, as they are reported."""

    def log_std_slope(self, x: Float[Array, " s"]) -> Float[Array, "k s"]:
        """The derivative of the logarithms of `stds`; zero for one that is zero."""
        step = 1e-6 * np.eye(len(x))
        stds = self.stds(x)[:, None]
        moved = np.array([self.stds(x + row) - self.stds(x - row) for row in step]).reshape(len(x), len(stds)).T
        return np.divide(moved, 2e-6 * stds, out=np.zeros_like(moved), where=stds > 0)

    def penalty(self, x: Float[Array, " s"]) -> tuple[float, Float[Array, " s"]]:
        """A prior on standard deviations that avoids zero, with its derivative: a half-normal one, very wide.

        Flat at zero on the scale of a standard deviation, its density on the log scale vanishes there; the mode is
        taken on the log scale.
        """
        scales = self.scales()
        return float(scales @ x - 0.5 * self.squares(x).sum() / WIDE**2), scales - self.squares_slope(x) / (2 * WIDE**2)

    @abstractmethod
    def squares(self, x: Float[Array, " s"]) -> Float[Array, " k"]:
        """Variances in units of the reference, as the prior on standard deviations looks at them."""

    @abstractmethod
    def squares_slope(self, x: Float[Array, " s"]) -> Float[Array, " s"]:
        """The derivative of their sum."""

    @abstractmethod
    def units(self) -> Float[Array, " s"]:
        """The logarithm of what an entry of the vector is when a standard deviation is that of the reference."""

    @abstractmethod
    def root(self, x: Float[Array, " s"]) -> Float[Array, "b b"] | float:
        """F: a matrix, or a number by which a given F is multiplied."""

    def is_degenerate(self, x: Float[Array, " s"]) -> bool:
        """Whether a direction has next to no spread, where that is no entry of the vector by itself."""
        return False

    @abstractmethod
    def without(self, which: int) -> CovarianceForm | None:
        """The same spread with one scale at exactly zero, or None where that is not to be written."""


class ScaledCovariance(CovarianceForm):
    """Λ = s² Λ₀: one number for all, the shape of Λ₀ kept. A scalar covariance is the simplest case.

    Args:
        name: What it is the covariance of.
        stds: Standard deviations of Λ₀.
        reference: What they could be, judging by the data.
    """

    size = 1

    def __init__(self, name: str, stds: Float[Array, " b"], reference: Float[Array, " b"]):
        self.name = name
        self.typical = float(np.sqrt(np.mean(stds**2)))
        self._ratio = float(np.sqrt(np.mean((stds / reference) ** 2)))

    def start(self) -> Float[Array, " s"]:
        return np.zeros(1)

    def scales(self) -> Float[Array, " s"]:
        return np.ones(1)

    def gradient(self, x: Float[Array, " s"], excess: Float[Array, "b b"]) -> Float[Array, " s"]:
        return np.array([np.trace(excess)])

    def stds(self, x: Float[Array, " s"]) -> Float[Array, " k"]:
        return self.typical * np.exp(x)

    def squares(self, x: Float[Array, " s"]) -> Float[Array, " k"]:
        return self._ratio**2 * np.exp(2 * x)

    def squares_slope(self, x: Float[Array, " s"]) -> Float[Array, " s"]:
        return 2 * self.squares(x)

    def units(self) -> Float[Array, " s"]:
        return np.array([-np.log(self._ratio)])

    def root(self, x: Float[Array, " s"]) -> Float[Array, "b b"] | float:
        return float(np.exp(x[0]))

    def without(self, which: int) -> CovarianceForm | None:
        return ZeroCovariance(self.name)


class ZeroCovariance(ScaledCovariance):
    """Λ = 0: what is left of a scale that the data put at zero."""

    size = 0

    def __init__(self, name: str):
        super().__init__(name, np.zeros(1), np.ones(1))

    def start(self) -> Float[Array, " s"]:
        return np.zeros(0)

    def scales(self) -> Float[Array, " s"]:
        return np.zeros(0)

    def gradient(self, x: Float[Array, " s"], excess: Float[Array, "b b"]) -> Float[Array, " s"]:
        return np.zeros(0)

    def stds(self, x: Float[Array, " s"]) -> Float[Array, " k"]:
        return np.zeros(1)

    def squares(self, x: Float[Array, " s"]) -> Float[Array, " k"]:
        return np.zeros(1)

    def squares_slope(self, x: Float[Array, " s"]) -> Float[Array, " s"]:
        return np.zeros(0)

    def units(self) -> Float[Array, " s"]:
        return np.zeros(0)

    def root(self, x: Float[Array, " s"]) -> Float[Array, "b b"] | float:
        return 0.0

    def without(self, which: int) -> CovarianceForm | None:
        return None


class DiagonalCovariance(CovarianceForm):
    """Λ = diag(τ²): a standard deviation for every coordinate.

    Args:
        name: What it is the covariance of.
        stds: The standard deviations that learning begins with; those at zero stay there.
        reference: What they could be, judging by the data.
    """

    def __init__(self, name: str, stds: Float[Array, " b"], reference: Float[Array, " b"]):
        self.name = name
        self._start, self._reference = stds, reference
        self._free = np.flatnonzero(stds)
        self.size = len(self._free)

    def start(self) -> Float[Array, " s"]:
        return np.log(self._start[self._free])

    def scales(self) -> Float[Array, " s"]:
        return np.ones(self.size)

    def gradient(self, x: Float[Array, " s"], excess: Float[Array, "b b"]) -> Float[Array, " s"]:
        return np.diagonal(excess)[self._free].copy()

    def stds(self, x: Float[Array, " s"]) -> Float[Array, " k"]:
        out = np.zeros(len(self._start))
        out[self._free] = np.exp(x)
        return out

    def squares(self, x: Float[Array, " s"]) -> Float[Array, " k"]:
        return np.exp(2 * (x - self.units()))

    def squares_slope(self, x: Float[Array, " s"]) -> Float[Array, " s"]:
        return 2 * self.squares(x)

    def units(self) -> Float[Array, " s"]:
        return np.log(self._reference[self._free])

    def root(self, x: Float[Array, " s"]) -> Float[Array, "b b"] | float:
        return np.diag(self.stds(x))

    def without(self, which: int) -> CovarianceForm | None:
        kept = self._start.copy()
        kept[self._free[which]] = 0.0
        return DiagonalCovariance(self.name, kept, self._reference)


class FullCovariance(CovarianceForm):
    """Λ = L Lᵀ with L = diag(e^h) U: the logarithms h of its pivots, and the entries of U below its unit diagonal.

    Args:
        name: What it is the covariance of.
        lower: L of the covariance that learning begins with.
        reference: What standard deviations could be, judging by the data.
    """

    def __init__(self, name: str, lower: Float[Array, "b b"], reference: Float[Array, " b"]):
        self.name = name
        self._reference = reference
        self._b = len(lower)
        self._below = np.tril_indices(self._b, -1)
        pivots = np.diagonal(lower)
        self._start = np.concatenate([np.log(pivots), (lower / pivots[:, None])[self._below]])
        self.size = len(self._start)

    def start(self) -> Float[Array, " s"]:
        return self._start

    def scales(self) -> Float[Array, " s"]:
        return np.repeat([1.0, 0.0], [self._b, self.size - self._b])

    def _lower(self, x: Float[Array, " s"]) -> Float[Array, "b b"]:
        unit = np.eye(self._b)
        unit[self._below] = x[self._b :]
        return np.exp(x[: self._b])[:, None] * unit

    def gradient(self, x: Float[Array, " s"], excess: Float[Array, "b b"]) -> Float[Array, " s"]:
        L = self._lower(x)
        return self._chain(L, solve_triangular(L, excess, lower=True, trans=1))

    def _chain(self, L: Float[Array, "b b"], by_entry: Float[Array, "b b"]) -> Float[Array, " s"]:
        """From a derivative by the entries of L to one by the vector."""
        # A pivot e^h scales its whole row; an entry of U is scaled by its pivot.
        pivots = np.diagonal(L)
        return np.concatenate([np.sum(np.tril(by_entry) * L, axis=1), (by_entry * pivots[:, None])[self._below]])

    def stds(self, x: Float[Array, " s"]) -> Float[Array, " k"]:
        return np.sqrt(np.sum(self._lower(x) ** 2, axis=1))

    def squares(self, x: Float[Array, " s"]) -> Float[Array, " k"]:
        return (self.stds(x) / self._reference) ** 2

    def squares_slope(self, x: Float[Array, " s"]) -> Float[Array, " s"]:
        L = self._lower(x)
        return self._chain(L, 2 * L / self._reference[:, None] ** 2)

    def units(self) -> Float[Array, " s"]:
        return np.concatenate([np.log(self._reference), np.zeros(self.size - self._b)])

    def root(self, x: Float[Array, " s"]) -> Float[Array, "b b"] | float:
        return self._lower(x)

    def is_degenerate(self, x: Float[Array, " s"]) -> bool:
        # Of the correlations: what is small must not depend on units.
        sizes = np.linalg.svd(self._lower(x) / self.stds(x)[:, None], compute_uv=False)
        return bool(sizes[-1] < 1e-2 * sizes[0])

    def without(self, which: int) -> CovarianceForm | None:
        # A direction without any spread has no pivot to take the logarithm of; it stays as small as it was found.
        return None
