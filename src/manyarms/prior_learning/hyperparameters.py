"""The hyper-parameters of a prior as one vector η: noise, covariances of actions and effects, means."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, check_choice
from manyarms.core import MAX_DENSE, ActionCovariance, BlockFactor, EffectGroup, HierarchicalGaussian, MixedEffects
from manyarms.core.effect_group import effect_slices
from manyarms.errors import InputError
from manyarms.inference.evidence_gradient import EvidenceGradient
from manyarms.linalg.factor_and_solve import psd_root
from manyarms.prior_learning.learnable_parts import (
    WIDE,
    CovarianceForm,
    DiagonalCovariance,
    FormName,
    FullCovariance,
    ScaledCovariance,
    SharedMean,
    Vector,
    learnable_means,
    with_mean_effects,
    within,
)

Choice = FormName | Literal["fixed"]
Means = Literal["integrated", "maximised", "fixed"]


@dataclass(frozen=True)
class Scale:
    """The units of hyper-parameters: the size of rewards and weights, from the data alone."""

    reward: float
    """Root mean square reward."""
    weight: Float[Array, " d"]
    """Root mean square reward over that of each feature: a size for each coordinate of θ."""
    fineness: float = 1.0
    """The share of the noise in the size of rewards where it is tiny, since they lie far from zero; else 1."""


class Hyperparameters:
    """The vector η, and the prior and noise at each value of it.

    Attributes:
        given: The prior that learning begins with.
        groups: The groups of effects in ψ, each with a covariance of its own.
        forms: How the covariance of the actions, then of each group, is learned; None where it is fixed.
        means: The means that are learned.
        integrated: True if means are effects that are integrated out, rather than part of η.
        maximised: Means that are part of η, each with its place in η and its unit.
        notes: The parts that are not learned, each with the reason.
    """

    def __init__(
        self,
        prior: HierarchicalGaussian,
        noise_std: float | None,
        seen: Int[Array, " m"],
        scale: Scale,
        *,
        effect_cov: Choice | Mapping[str, Choice],
        action_cov: Choice,
        means: Means,
        learn_noise: bool,
        constant: int | None = None,
    ):
        check_choice("means", means, ("integrated", "maximised", "fixed"))
        self.given, self._noise_std, self._scale = prior, noise_std, scale
        self.learn_noise = learn_noise and noise_std is not None
        self.groups, self._roots, notes = _independent_groups(prior)
        self._n_given = len(self.groups)
        self.means, why_not = learnable_means(prior, seen, constant) if means != "fixed" else ((), ())
        # Means are maximised where further effects would mean to write out a large dense mixing.
        small = prior.n_actions * prior.dim * (prior.latent_dim + prior.dim) <= MAX_DENSE // 8
        can_add = isinstance(prior.mixing, MixedEffects) or prior.latent_dim == 0 or small
        self.integrated = means == "integrated" and can_add
        self._prior = prior
        if self.integrated:
            # Means are effects of their own, after the given ones.
            wide = WIDE * scale.weight
            self._prior = with_mean_effects(prior, self.means, wide)
            self.groups += self._prior.effects[len(prior.effects) :]
            self._roots += [np.diag(within(mean, wide))[None] for mean in self.means]
        self._prior = self._prior.grouped()
        given = self.groups[: self._n_given]
        # One other column is too little to learn the standard deviation of a single effect with a learned mean from.
        alone = {mean.name for mean in self.means if mean.is_single and prior.dim <= 2}
        notes += [f"{name}: its standard deviation stays as given, as contexts have few columns" for name in alone]
        unseen = _unseen_groups(prior, given, seen)
        self.forms: tuple[CovarianceForm | None, ...] = (
            _action_form(prior.action_covariance, action_cov, scale.weight, notes),
            *(
                _effect_form(
                    group,
                    root,
                    "fixed" if group.name in alone else _chosen(effect_cov, group, given),
                    group.name in unseen,
                    scale.weight,
                    notes,
                )
                for group, root in zip(given, self._roots, strict=False)
            ),
            *(None for _ in self.groups[self._n_given :]),
        )
        self.notes = (*notes, *why_not)
        self._measure()

    def _measure(self) -> None:
        d = self._prior.dim
        maximised = () if self.integrated else self.means
        sizes = [0 if form is None else len(form.start) for form in self.forms]
        edges = np.cumsum([0, int(self.learn_noise), *sizes, *(len(range(d)[mean.columns]) for mean in maximised)])
        self.size = int(edges[-1])
        self._parts = [slice(int(low), int(high)) for low, high in pairwise(edges)]
        self.maximised = tuple(
            (mean, part, self._scale.weight[mean.columns] / np.sqrt(mean.count))
            for mean, part in zip(maximised, self._parts[1 + len(self.forms) :], strict=True)
        )

    @property
    def form_parts(self) -> list[slice]:
        """The place of each form in η."""
        return self._parts[1 : 1 + len(self.forms)]

    @property
    def free_forms(self) -> list[tuple[CovarianceForm, slice]]:
        """The covariances that are learned, each with its place in η."""
        return [(form, part) for form, part in zip(self.forms, self.form_parts, strict=True) if form is not None]

    def start(self) -> Vector:
        """η of the prior as it was given."""
        return self._gathered(0.0 if self._noise_std is None else float(np.log(self._noise_std)), "start")

    def log_scales(self) -> Vector:
        """1 for entries of η that are logarithms of a standard deviation, 0 for all others."""
        return self._gathered(1.0, "scales")

    def _gathered(self, noise: float, attribute: str) -> Vector:
        out = np.zeros(self.size)
        out[: int(self.learn_noise)] = noise
        for form, part in self.free_forms:
            out[part] = getattr(form, attribute)
        return out

    def bounds(self) -> tuple[Vector, Vector]:
        """Lower and upper bounds of η: standard deviations within six orders of magnitude of the scale of the data.

        Where rewards lie far from zero, their noise is a scale of the data as well.
        """
        is_scale, units = self.log_scales() > 0, self._gathered(0.0, "units")
        low, high = (np.where(is_scale, units + sign * _DECADES, sign * np.inf) for sign in (-1.0, 1.0))
        if self.learn_noise:
            low[0], high[0] = np.log(1e-6 * self._scale.reward), np.log(1e3 * self._scale.reward)
        low += np.log(self._scale.fineness)
        return low, high

    def build(self, eta: Vector) -> tuple[HierarchicalGaussian, float | None]:
        """The prior and the noise at η; means that are integrated out are effects of this prior."""
        prior, noise_std = self._prior, float(np.exp(eta[0])) if self.learn_noise else self._noise_std
        latent_mean, offset = prior.latent_mean.copy(), prior.offset
        for mean, part, unit in self.maximised:
            offset = _shift(mean, unit * eta[part], latent_mean, offset)
        action, form = prior.action_covariance, self.forms[0]
        if form is not None:
            root = form.root(eta[self.form_parts[0]])
            action = ActionCovariance.from_root(root) if isinstance(root, np.ndarray) else action.scaled(root**2)
        factor = self._factor(eta, len(self.groups))
        return prior.with_parts(latent_mean, factor, action, offset), noise_std

    def _factor(self, eta: Vector, n_groups: int, known: Mapping[str, Array] | None = None) -> BlockFactor:
        """The factor of the covariance of ψ, for the first `n_groups` groups; see `_widened` for those in `known`."""
        factor = BlockFactor(np.zeros((1, 0, 0)))
        for group, given, form, part in zip(
            self.groups[:n_groups], self._roots, self.forms[1:], self.form_parts[1:], strict=False
        ):
            root = 1.0 if form is None else form.root(eta[part])
            blocks = np.broadcast_to(root, given.shape) if isinstance(root, np.ndarray) else root * given
            if form is not None and known is not None and group.name in known:
                blocks = _widened(blocks, known[group.name])
            factor = factor.beside(BlockFactor(blocks))
        return factor

    def plugged(self, eta: Vector, posterior: HierarchicalGaussian) -> HierarchicalGaussian:
        """The prior at η in the given structure, with integrated means at their posterior expectation.

        A single effect whose mean was learned becomes wider by UNSURE standard deviations of what is not known about
        the sum of both, so that the posterior of the effect does not count the logs twice.
        """
        built, _ = self.build(eta)
        if not self.integrated:
            return self.given.with_parts(built.latent_mean, built.prior_factor, built.action_covariance, built.offset)
        own, d = self.given.latent_dim, self.given.dim
        latent_mean, offset, known = built.latent_mean[:own].copy(), self.given.offset, dict[str, Array]()
        for number, mean in enumerate(self.means):
            start = own + number * d
            shift = posterior.latent_mean[start : start + d][mean.columns]
            offset = _shift(mean, shift, latent_mean, offset)
            if mean.is_single:
                known[mean.name] = posterior.latent_factor.part_gram(start, 1, d)
        factor = self._factor(eta, self._n_given, known)
        return self.given.with_parts(latent_mean, factor, built.action_covariance, offset)

    def gradient(self, eta: Vector, by_part: EvidenceGradient, by_noise: float) -> Vector:
        """The derivative of the log evidence by η, given that by the logarithm of the noise."""
        out = np.zeros(self.size)
        if self.learn_noise:
            out[0] = by_noise
        excesses = (by_part.action_excess, *by_part.effect_excess)
        for form, part, excess in zip(self.forms, self.form_parts, excesses, strict=True):
            if form is not None:
                out[part] = form.gradient(eta[part], excess)
        for mean, part, unit in self.maximised:
            pull = by_part.offset_pull
            if mean.coordinates is not None:
                pull = by_part.latent_pull[mean.coordinates].reshape(mean.count, -1).sum(axis=0)
            out[part] = unit * pull[mean.columns]
        return out

    def penalty(self, eta: Vector) -> tuple[float, Vector]:
        """The log of the boundary-avoiding prior, and its derivative."""
        total, slope = 0.0, np.zeros(self.size)
        if self.learn_noise:
            wide = WIDE * self._scale.reward
            total, slope[0] = eta[0] - 0.5 * np.exp(2 * eta[0]) / wide**2, 1.0 - np.exp(2 * eta[0]) / wide**2
        for form, part in self.free_forms:
            value, slope[part] = form.penalty(eta[part])
            total += value
        return total, slope

    def without(self, place: int) -> Hyperparameters | None:
        """Hyper-parameters with one standard deviation, by its place in η, at zero; None where that is not possible."""
        for number, (form, part) in enumerate(zip(self.forms, self.form_parts, strict=True)):
            if form is not None and part.start <= place < part.stop:
                reduced = form.without(place - part.start)
                if reduced is None:
                    return None
                out = copy(self)
                out.forms = (*self.forms[:number], reduced, *self.forms[number + 1 :])
                out._measure()
                return out
        return None


def _shift(
    mean: SharedMean, shift: Float[Array, " c"], latent_mean: Float[Array, " p"], offset: Float[Array, "*K d"] | None
) -> Float[Array, "*K d"] | None:
    """Move a mean: in place for the mean of a group of effects; the offset is returned."""
    if mean.coordinates is None:
        return shift if offset is None else offset + shift
    latent_mean[mean.coordinates].reshape(mean.count, -1)[:, mean.columns] += shift
    return offset


def _widened(root: Float[Array, "1 d d"], mean_cov: Float[Array, "d d"]) -> Float[Array, "1 d d"]:
    """The root of the covariance of an effect with what is not known about effect plus mean, UNSURE² times, added.

    Given that sum, its mean under a flat prior varies as much as the effect does; so what is not known about the sum is
    the posterior variance of the mean less the variance of the effect.
    """
    cov = root @ root.swapaxes(1, 2)
    unknown = np.maximum(np.diagonal(mean_cov) - np.diagonal(cov[0]), 0.0)
    return psd_root(cov + UNSURE**2 * np.diag(unknown))


def _independent_groups(prior: HierarchicalGaussian) -> tuple[tuple[EffectGroup, ...], list[Array], list[str]]:
    """The groups of effects with a root of the covariance of each effect; all of ψ as one group if they correlate."""
    factor, groups = prior.prior_factor, prior.effects
    if factor.dim == 0:
        return (), [], []
    sized = [factor.with_block_size(group.part_dim) for group in groups]
    roots = list[Array]()
    for (group, where), part in zip(effect_slices(groups), sized, strict=True):
        if part is None or where.start % group.part_dim:
            return _groups_of_dense(prior)
        first = where.start // group.part_dim
        roots.append(part.blocks[first : first + group.count])
    return groups, roots, []


def _groups_of_dense(prior: HierarchicalGaussian) -> tuple[tuple[EffectGroup, ...], list[Array], list[str]]:
    """Groups and roots from one full matrix, if it is block diagonal by effect after all."""
    cov = prior.prior_factor.covariance()
    rest, roots = cov.copy(), list[Array]()
    for group, where in effect_slices(prior.effects):
        starts = where.start + group.part_dim * np.arange(group.count)
        index = starts[:, None] + np.arange(group.part_dim)
        roots.append(psd_root(cov[index[:, :, None], index[:, None, :]]))
        rest[index[:, :, None], index[:, None, :]] = 0.0
    if not rest.any():
        return prior.effects, roots, []
    whole = EffectGroup("latent", 1, prior.latent_dim, has_mean=False)
    note = "latent: effects are correlated in the prior, so one scale is learned for all of them"
    return (whole,), [prior.prior_factor.dense()[None]], [note]


def _unseen_groups(prior: HierarchicalGaussian, groups: tuple[EffectGroup, ...], seen: Int[Array, " m"]) -> set[str]:
    """Groups of effects that no logged action has."""
    if not isinstance(prior.mixing, MixedEffects) or groups != prior.effects:
        return set()
    used = np.zeros(prior.mixing.n_effects, dtype=bool)
    used[prior.mixing.weights[seen].indices] = True
    ends = np.cumsum([0, *(group.count for group in groups)])
    return {
        group.name for group, low, high in zip(groups, ends[:-1], ends[1:], strict=True) if not used[low:high].any()
    }


def _chosen(choice: Choice | Mapping[str, Choice], group: EffectGroup, groups: tuple[EffectGroup, ...]) -> Choice:
    if isinstance(choice, str):
        return choice
    if not isinstance(choice, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(
            f"must be a word or a mapping from groups to words; got {type(choice).__name__}.", argument="effect_cov"
        )
    known = [other.name for other in groups]
    for name in choice:
        if name not in known:
            raise InputError(
                f"names {name!r}; this prior has {', '.join(map(repr, known)) or 'no effects'}.", argument="effect_cov"
            )
    return choice.get(group.name, "scale")


def _effect_form(
    group: EffectGroup,
    root: Float[Array, "J b b"],
    choice: Choice,
    unseen: bool,
    weight: Float[Array, " d"],
    notes: list[str],
) -> CovarianceForm | None:
    check_choice("effect_cov", choice, _CHOICES)
    if choice == "fixed":
        return None
    if unseen:
        notes.append(f"{group.name}: no logged action has such an effect; its standard deviation stays as given")
        return None
    if not root.any():
        notes.append(f"{group.name}: a standard deviation of exactly 0 stays 0")
        return None
    if choice != "scale" and (group.count == 1 or not (root == root[0]).all()):
        why = "there is only one effect" if group.count == 1 else "its effects have covariances of their own"
        notes.append(f"{group.name}: {why}, so only a common scale is learned")
        choice = "scale"
    return _form(group.name, root if choice == "scale" else root[:1], choice, weight)


def _action_form(
    cov: ActionCovariance, choice: Choice, weight: Float[Array, " d"], notes: list[str]
) -> CovarianceForm | None:
    check_choice("action_cov", choice, _CHOICES)
    if choice == "fixed":
        return None
    if cov.each is not None:
        if choice != "scale":
            notes.append("actions: each has its own covariance, so only a common scale is learned")
        stds = np.sqrt(np.einsum("kdd->d", cov.each) / len(cov.each))
        return ScaledCovariance("actions", stds, weight) if stds.any() else None
    root = psd_root(cov.blocks(np.zeros(1, dtype=np.int64))[0])
    if not root.any():
        notes.append("actions: a standard deviation of exactly 0 stays 0")
        return None
    return _form("actions", root[None], choice, weight)


def _form(name: str, roots: Float[Array, "J b b"], choice: FormName, weight: Float[Array, " d"]) -> CovarianceForm:
    stds = np.sqrt(np.mean(np.sum(roots**2, axis=2), axis=0))
    # Effects outside the space of θ have units of their own; the start is all that is known of these units.
    reference = weight if len(stds) == len(weight) else np.where(stds > 0, stds, stds.max())
    if choice == "scale":
        return ScaledCovariance(name, stds, reference)
    if choice == "diagonal":
        return DiagonalCovariance(name, stds, reference)
    # A singular start is lifted a little, as a pivot at zero could never leave it.
    lifted = np.where(stds > 0, stds, reference) ** 2
    return FullCovariance(name, np.linalg.cholesky(roots[0] @ roots[0].T + np.diag(1e-6 * lifted)), reference)


UNSURE = 3.0
"""The width added to an effect with a learned mean: a posterior std then is 5 % narrower than with a flat prior."""
_CHOICES = ("scale", "diagonal", "full", "fixed")
_DECADES = 6 * float(np.log(10.0))
