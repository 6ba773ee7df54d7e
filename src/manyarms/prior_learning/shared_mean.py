"""Means that the effects of a group share, and which of them can be learned from the logs.

A mean that all effects of a group share moves every action by the sum of its weights on that group. Two groups whose
sums are proportional (the levels of a taxonomy: one effect of each) cannot both have a mean. Nor can a single effect:
one draw does not show whether it lies far from zero because its mean does or because its standard deviation is large.
Its mean stays as given.

A mean is either maximised with everything else, or integrated out under a flat prior, as an effect that all actions of
the group share. Covariances are then learned without pretending that the mean was known (restricted likelihood).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array
from manyarms.core.hierarchical_gaussian import HierarchicalGaussian
from manyarms.core.mixing import MAX_DENSE, EffectGroup, MixedEffects
from manyarms.linalg.factor import triangular


@dataclass(frozen=True)
class SharedMean:
    """A mean to be learned that `count` effects of a group share, or all actions.

    Attributes:
        name: The name of the group; "all actions" for the offset that they share.
        coordinates: The place of the effects of the group in ψ; None for the offset.
    """

    name: str
    coordinates: slice | None
    count: int

    def weights(self, prior: HierarchicalGaussian) -> Float[Array, " K"]:
        """The factor by which every action moves with this mean."""
        everyone = np.arange(prior.n_actions)
        return np.ones(prior.n_actions) if self.coordinates is None else _moved(prior, self.coordinates, everyone)


def learnable_means(
    prior: HierarchicalGaussian, seen: Int[Array, " m"]
) -> tuple[tuple[SharedMean, ...], tuple[str, ...]]:
    """The means that can be learned, and notes on why others cannot."""
    means, notes, spanned, spanned_by = list[SharedMean](), list[str](), list[Array](), list[str]()
    for group, where in group_slices(prior.effects):
        if group.part_dim != prior.dim:
            # Effects outside the space of θ have no mean that sums could distinguish from others.
            continue
        column = _moved(prior, where, seen)
        if group.count == 1:
            # The direction in which one effect moves all actions is taken, whether or not its mean is learned.
            if not column.any():
                continue
            spanned.append(column)
            spanned_by.append(f"the {group.name} effect")
            notes.append(
                f"{group.name}: one effect does not show both its mean and its spread; the mean stays as given"
            )
        elif not group.has_mean or np.ptp(prior.latent_mean[where].reshape(group.count, -1), axis=0).any():
            notes.append(f"{group.name}: the means of its effects stay as given")
        elif _spans(spanned, column):
            notes.append(f"{group.name}: its mean cannot be distinguished from {spanned_by[-1]}; it stays as given")
        else:
            spanned.append(column)
            spanned_by.append(f"the mean of {group.name}")
            means.append(SharedMean(group.name, where, group.count))
    everyone = np.ones(len(seen))
    if not _spans(spanned, everyone):
        means.append(SharedMean("all actions", None, len(seen)))
    return tuple(means), tuple(notes)


def group_slices(groups: tuple[EffectGroup, ...]) -> list[tuple[EffectGroup, slice]]:
    """Every group with its place in ψ."""
    ends = np.cumsum([0, *(group.count * group.part_dim for group in groups)])
    return [(group, slice(int(low), int(high))) for group, low, high in zip(groups, ends[:-1], ends[1:], strict=True)]


def _moved(prior: HierarchicalGaussian, where: slice, actions: Int[Array, " m"]) -> Float[Array, " m"]:
    """The sum of the weights of each action on the effects there."""
    shift = np.zeros(prior.latent_dim)
    shift[where].reshape(-1, prior.dim)[:, 0] = 1.0
    return prior.mixing.apply(shift[None], actions)[0, :, 0]


def can_have_mean_effects(prior: HierarchicalGaussian) -> bool:
    """True if effects can be added without writing out a large dense mixing; otherwise means are maximised."""
    sparse = isinstance(prior.mixing, MixedEffects) or prior.latent_dim == 0
    return sparse or prior.n_actions * prior.dim * (prior.latent_dim + prior.dim) <= MAX_DENSE // 8


def with_mean_effects(
    prior: HierarchicalGaussian, means: tuple[SharedMean, ...], stds: Float[Array, " d"]
) -> HierarchicalGaussian:
    """The prior with an effect N(0, diag(stds²)) for each mean: nearly flat when stds are far above any likely mean."""
    for mean in means:
        mixing = MixedEffects(mean.weights(prior)[:, None], prior.dim)
        group = EffectGroup(f"mean of {mean.name}", 1, prior.dim)
        prior += HierarchicalGaussian(np.zeros(prior.dim), stds**2, mixing, 0.0, effects=[group])
    return prior


def _spans(columns: list[Array], new: Float[Array, " m"]) -> bool:
    size = float(np.linalg.norm(new))
    if size == 0.0:
        return True
    if not columns:
        return False
    stacked = np.column_stack([column / np.linalg.norm(column) for column in columns] + [new / size])
    return abs(float(triangular(stacked)[-1, -1])) < 1e-6 if len(stacked) >= stacked.shape[1] else True
