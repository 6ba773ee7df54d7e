"""The parts of a prior that are learned: covariances, each written as a vector, and means that effects share.

Standard deviations are logarithms in the vector. Every form works in the coordinates of the prior that it stands for:
with Λ = F Fᵀ and ψ = μ + F z, the data enter through the matrix of excess moments Σ E z zᵀ - I
(`inference.evidence_gradient`), and a change of F by dF changes the log evidence by the inner product of that matrix
with F⁻¹ dF.

A mean that all effects of a group share moves every action by the sum of its weights on that group. Two groups whose
sums are proportional (the levels of a taxonomy: one effect of each) cannot both have a mean. Nor can a single effect:
one draw does not show whether it lies far from zero because its mean does or because its standard deviation is large.
Its mean stays as given. For clicks and counts a mean of zero is a rate far from that of most logs, so there the effect
that all actions share learns its mean in the column of the contexts that is constant, and its standard deviation from
the other columns.

A mean is either maximised with everything else, or integrated out under a flat prior, as an effect that all actions of
the group share. Covariances are then learned without pretending that the mean was known (restricted likelihood).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import solve_triangular

from manyarms._base.checks import Array
from manyarms.core import ActionCovariance, BlockFactor, EffectGroup, HierarchicalGaussian, MixedEffects
from manyarms.core.effect_group import effect_slices
from manyarms.linalg.factor_and_solve import triangular

FormName = Literal["scale", "diagonal", "full"]
Vector = Float[Array, " s"]
FAR = 1.0
"""Contexts are far from zero where the squares of their columns' means, in units of the constant, sum to more."""
WIDE = 10.0
"""Standard deviations far above WIDE times the scale of the data are held back by a half-normal prior."""


class CovarianceForm(ABC):
    """A learnable covariance, written as a vector of parameters.

    It is made from the name, the standard deviations (or L) that learning begins with, and as `reference` those that
    the data suggest.

    Attributes:
        name: The group of effects, or "actions".
        start: The vector of the covariance that learning begins with.
        scales: 1 for entries that are the logarithm of a scale, 0 for all others.
        units: The value of each entry when standard deviations equal those that the data suggest; 0 where not a scale.
    """

    name: str
    start: Vector
    scales: Vector
    units: Vector

    @abstractmethod
    def gradient(self, x: Vector, excess: Float[Array, "b b"]) -> Vector:
        """The derivative of the log evidence."""

    @abstractmethod
    def stds(self, x: Vector) -> Float[Array, " k"]:
        """Standard deviations, as they are reported."""

    def log_std_slope(self, x: Vector) -> Float[Array, "k s"]:
        """The derivative of the logarithms of `stds`; zero for a standard deviation of zero."""
        step = 1e-6 * np.eye(len(x))
        stds = self.stds(x)[:, None]
        moved = np.array([self.stds(x + row) - self.stds(x - row) for row in step]).reshape(len(x), len(stds)).T
        return np.divide(moved, 2e-6 * stds, out=np.zeros_like(moved), where=stds > 0)

    def penalty(self, x: Vector) -> tuple[float, Vector]:
        """A prior on standard deviations that avoids zero, with its derivative: a half-normal one, very wide.

        It is flat at zero on the scale of a standard deviation, so its density on the log scale vanishes there; the
        mode is taken on the log scale.
        """
        squares, slope = self.relative_squares(x)
        return float(self.scales @ x - 0.5 * squares / WIDE**2), self.scales - slope / (2 * WIDE**2)

    @abstractmethod
    def relative_squares(self, x: Vector) -> tuple[float, Vector]:
        """The sum of variances relative to those that the data suggest, and its derivative."""

    @abstractmethod
    def root(self, x: Vector) -> Float[Array, "b b"] | float:
        """F: a matrix, or a number by which the given F is multiplied."""

    def is_degenerate(self, x: Vector) -> bool:
        """True if a direction has next to no spread, although no single entry of the vector says so."""
        return False

    def without(self, entry: int) -> CovarianceForm | None:
        """This form with one scale at exactly zero, or None where that cannot be written."""
        return None


class ScaledCovariance(CovarianceForm):
    """A learnable covariance Λ = s² Λ₀: one number for all, the shape of Λ₀ kept. If Λ₀ is zero, nothing is learned."""

    def __init__(self, name: str, stds: Float[Array, " b"], reference: Float[Array, " b"]):
        self.name = name
        self._typical = float(np.sqrt(np.mean(stds**2)))
        self._ratio = float(np.sqrt(np.mean((stds / reference) ** 2)))
        free = stds.any()
        self.start, self.scales = np.zeros(int(free)), np.ones(int(free))
        self.units = np.array([-np.log(self._ratio)]) if free else np.zeros(0)

    def gradient(self, x: Vector, excess: Float[Array, "b b"]) -> Vector:
        return np.full(len(x), np.trace(excess))

    def stds(self, x: Vector) -> Float[Array, " k"]:
        return self._typical * np.exp(x) if len(x) else np.zeros(1)

    def relative_squares(self, x: Vector) -> tuple[float, Vector]:
        squares = self._ratio**2 * np.exp(2 * x)
        return squares.sum(), 2 * squares

    def root(self, x: Vector) -> Float[Array, "b b"] | float:
        return float(np.exp(x[0])) if len(x) else 0.0

    def without(self, entry: int) -> CovarianceForm | None:
        return ScaledCovariance(self.name, np.zeros(1), np.ones(1))


class DiagonalCovariance(CovarianceForm):
    """A learnable Λ = diag(τ²): a standard deviation for every coordinate; those that begin at zero stay there."""

    def __init__(self, name: str, stds: Float[Array, " b"], reference: Float[Array, " b"]):
        self.name = name
        self._stds, self._reference = stds, reference
        self._free = np.flatnonzero(stds)
        self.start, self.scales = np.log(stds[self._free]), np.ones(len(self._free))
        self.units = np.log(reference[self._free])

    def gradient(self, x: Vector, excess: Float[Array, "b b"]) -> Vector:
        return np.diagonal(excess)[self._free].copy()

    def stds(self, x: Vector) -> Float[Array, " k"]:
        out = np.zeros(len(self._stds))
        out[self._free] = np.exp(x)
        return out

    def relative_squares(self, x: Vector) -> tuple[float, Vector]:
        squares = np.exp(2 * (x - self.units))
        return squares.sum(), 2 * squares

    def root(self, x: Vector) -> Float[Array, "b b"] | float:
        return np.diag(self.stds(x))

    def without(self, entry: int) -> CovarianceForm | None:
        kept = self._stds.copy()
        kept[self._free[entry]] = 0.0
        return DiagonalCovariance(self.name, kept, self._reference)


class FullCovariance(CovarianceForm):
    """A learnable Λ = L Lᵀ, L = diag(e^h) U: the logarithms h of its pivots, and U below its unit diagonal.

    A direction without any spread has no pivot to take the logarithm of; it stays as small as it was learned.
    """

    def __init__(self, name: str, lower: Float[Array, "b b"], reference: Float[Array, " b"]):
        self.name = name
        self._reference = reference
        self._b = b = len(lower)
        self._below = np.tril_indices(b, -1)
        pivots = np.diagonal(lower)
        self.start = np.concatenate([np.log(pivots), (lower / pivots[:, None])[self._below]])
        self.scales = np.repeat([1.0, 0.0], [b, len(self.start) - b])
        self.units = np.concatenate([np.log(reference), np.zeros(len(self.start) - b)])

    def root(self, x: Vector) -> Float[Array, "b b"]:
        unit = np.eye(self._b)
        unit[self._below] = x[self._b :]
        return np.exp(x[: self._b])[:, None] * unit

    def gradient(self, x: Vector, excess: Float[Array, "b b"]) -> Vector:
        L = self.root(x)
        return self._chain(L, solve_triangular(L, excess, lower=True, trans=1))

    def _chain(self, L: Float[Array, "b b"], by_entry: Float[Array, "b b"]) -> Vector:
        """The derivative by the vector, from the derivative by the entries of L."""
        # A pivot e^h scales its whole row; an entry of U is scaled by its pivot.
        pivots = np.diagonal(L)
        return np.concatenate([np.sum(np.tril(by_entry) * L, axis=1), (by_entry * pivots[:, None])[self._below]])

    def stds(self, x: Vector) -> Float[Array, " k"]:
        return np.sqrt(np.sum(self.root(x) ** 2, axis=1))

    def relative_squares(self, x: Vector) -> tuple[float, Vector]:
        L = self.root(x)
        return ((self.stds(x) / self._reference) ** 2).sum(), self._chain(L, 2 * L / self._reference[:, None] ** 2)

    def is_degenerate(self, x: Vector) -> bool:
        # Singular values of the correlations, so that the threshold does not depend on units.
        sizes = np.linalg.svd(self.root(x) / self.stds(x)[:, None], compute_uv=False)
        return bool(sizes[-1] < 1e-2 * sizes[0])


@dataclass(frozen=True)
class SharedMean:
    """A learnable mean that `count` effects of a group share, or all actions.

    Attributes:
        name: The name of the group; "all actions" for the offset that they share.
        coordinates: The place of the effects of the group in ψ; None for the offset.
        columns: The coordinates of θ in which the mean is learned, those of the context columns.
    """

    name: str
    coordinates: slice | None
    count: int
    columns: slice

    @property
    def is_single(self) -> bool:
        """True for the mean of one effect, which is learned in the constant column alone."""
        return self.coordinates is not None and self.count == 1


def learnable_means(
    prior: HierarchicalGaussian, seen: Int[Array, " m"], constant: int | None = None
) -> tuple[tuple[SharedMean, ...], tuple[str, ...]]:
    """The learnable means of a prior, and notes on why others cannot be learned.

    `constant` is the context column in which a single effect that all actions share learns its mean; None for none.
    """
    means, notes, spanned, spanned_by = list[SharedMean](), list[str](), list[Array](), list[str]()
    everyone, all_columns = np.ones(len(seen)), slice(0, prior.dim)
    for group, where in effect_slices(prior.effects):
        if group.part_dim != prior.dim:
            # Effects outside the space of θ have no mean that sums could distinguish from others.
            continue
        column = _moved(prior, where, seen)
        if group.count == 1:
            # The direction in which one effect moves all actions is taken, whether or not its mean is learned.
            if not column.any():
                continue
            if constant is not None and group.has_mean and not np.ptp(column) and not _spans(spanned, everyone):
                means.append(SharedMean(group.name, where, 1, slice(constant, constant + 1)))
            notes.append(_single_effect_note(group.name, bool(means) and means[-1].name == group.name))
            spanned.append(column)
            spanned_by.append(f"the {group.name} effect")
        elif not group.has_mean or np.ptp(prior.latent_mean[where].reshape(group.count, -1), axis=0).any():
            notes.append(f"{group.name}: the means of its effects stay as given")
        elif not column.any():
            notes.append(f"{group.name}: its effects move no logged action on the whole; their mean stays as given")
        elif _spans(spanned, column):
            notes.append(f"{group.name}: its mean cannot be told apart from {spanned_by[-1]}, so it is not learned")
        else:
            spanned.append(column)
            spanned_by.append(f"the mean of {group.name}")
            means.append(SharedMean(group.name, where, group.count, all_columns))
    if not _spans(spanned, everyone):
        means.append(SharedMean("all actions", None, len(seen), all_columns))
    return tuple(means), tuple(notes)


def _single_effect_note(name: str, in_constant: bool) -> str:
    which = "only the mean of the constant column is learned" if in_constant else "the mean is not learned"
    return f"{name}: a mean and a spread cannot both be learned from one effect, so {which}"


def _moved(prior: HierarchicalGaussian, where: slice, actions: Int[Array, " m"]) -> Float[Array, " m"]:
    """The sum of the weights of each action on the effects there."""
    shift = np.zeros(prior.latent_dim)
    shift[where].reshape(-1, prior.dim)[:, 0] = 1.0
    return prior.mixing.apply(shift[None], actions)[0, :, 0]


def with_mean_effects(
    prior: HierarchicalGaussian, means: tuple[SharedMean, ...], stds: Float[Array, " d"]
) -> HierarchicalGaussian:
    """The prior with an effect N(0, diag(stds²)) per learnable mean, nearly flat if stds are far above likely means."""
    everyone = np.arange(prior.n_actions)
    for mean in means:
        moved = np.ones(len(everyone)) if mean.coordinates is None else _moved(prior, mean.coordinates, everyone)
        mixing = MixedEffects(moved[:, None], prior.dim)
        group = EffectGroup(f"mean of {mean.name}", 1, prior.dim)
        prior += HierarchicalGaussian(np.zeros(prior.dim), within(mean, stds) ** 2, mixing, 0.0, effects=[group])
    return prior


def within(mean: SharedMean, stds: Float[Array, " d"]) -> Float[Array, " d"]:
    """Standard deviations in the coordinates of a learnable mean, and zero in all others."""
    out = np.zeros_like(stds)
    out[mean.columns] = stds[mean.columns]
    return out


def around_average(prior: HierarchicalGaussian, centre: tuple[int, Vector] | None) -> HierarchicalGaussian:
    """A learnable prior: coordinates of θ are alike at the average context, where that context is far from zero.

    θ_a has a level in the constant column and slopes in the others. If all have one standard deviation s, the expected
    reward at an average context with means m varies between actions by s² (1 + ‖m‖²): columns far from zero make levels
    vary more than anybody said, and logs in which levels are alike then push s, and the slopes with it, to zero. So
    where ‖m‖² exceeds FAR, the level at the average context gets the standard deviation s. Only a prior that treats all
    coordinates alike is changed.
    """
    if centre is None:
        return prior
    constant, means = centre
    means = np.where(np.arange(len(means)) == constant, 0.0, means)
    factor, cov = prior.prior_factor, prior.action_covariance
    blocks = BlockFactor(np.zeros((0, prior.dim, prior.dim))) if factor.dim == 0 else factor.with_block_size(prior.dim)
    if not means @ means > FAR or blocks is None or cov.each is not None:
        return prior
    own = cov.blocks(np.zeros(1, dtype=np.int64))
    unit = np.eye(prior.dim)
    if not all(np.array_equal(part, part[:, :1, :1] * unit) for part in (blocks.blocks, own)):
        return prior
    turned = unit.copy()
    turned[constant] -= means
    action = ActionCovariance.from_root(np.sqrt(own[0, 0, 0]) * turned)
    latent = BlockFactor(turned @ blocks.blocks) if factor.dim else factor
    return prior.with_parts(prior.latent_mean, latent, action, prior.offset)


def _spans(columns: list[Array], new: Float[Array, " m"]) -> bool:
    size = float(np.linalg.norm(new))
    if size == 0.0:
        return True
    if not columns:
        return False
    stacked = np.column_stack([column / np.linalg.norm(column) for column in columns] + [new / size])
    return abs(float(triangular(stacked)[-1, -1])) < 1e-6 if len(stacked) >= stacked.shape[1] else True
