"""The hierarchical Gaussian: the family of priors and posteriors over action weights, closed under conditioning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, as_actions, as_count, as_vector, check_overflow, frozen
from manyarms._base.rng import split
from manyarms.core.action_covariance import ActionCovariance
from manyarms.core.action_offset import as_offset, extended_offset
from manyarms.core.effect_group import EffectGroup, as_effects
from manyarms.core.latent_covariance import BlockFactor, LatentFactor
from manyarms.core.mixing import DenseMixing, MixedEffects, Mixing, Roots, as_mixing
from manyarms.core.observed_rows import ObservedRows
from manyarms.core.score_widths import ScoreWidths
from manyarms.errors import InputError, ShapeError
from manyarms.linalg.indexing import cache_chunks
from manyarms.model_file.part_checks import floats, instance_of, is_number, maybe, tuple_of
from manyarms.model_file.save import Saved

_STRUCTURE = ("mixing", "latent_mean", "latent_factor", "action_covariance", "offset", "effects")
_LEARNED = ("observed", "gains", "log_evidence", "misfit", "log_det")


class HierarchicalGaussian(Saved):
    """ψ ~ N(μ, Σ), and θ_a | ψ ~ N(W_a ψ + c_a, Σ_a), independent over actions given ψ (paper, eq. 4).

    Prior and posterior are both of this type. Given rows R_a θ_a + noise = ρ_a of the seen actions (noise of variance
    one), θ_a | ψ is centred on m + Σ_a N_aᵀ (ρ_a - R_a m) with m = W_a ψ + c_a and N_a = (I + R_a Σ_a R_aᵀ)⁻¹ R_a. So
    conditioning stores R_a, ρ_a and N_a L_a (with L_a L_aᵀ = Σ_a) for the actions it saw, and nothing for the others.

    `a + b` is the prior of θ_a + θ'_a, the sum of a draw from each: a category effect plus an embedding effect.

    Args:
        latent_mean: μ, (d',).
        latent_cov: Σ: a scalar, (d',), blocks (J, b, b) with J b = d', or (d', d').
        mixing: W: (K, d, d'), or `MixedEffects(weights, dim)`.
        action_cov: Σ_a: a scalar, (d,), (d, d) or (K, d, d); zero is allowed.
        offset: c_a: None, (d,) or (K, d).
        effects: The exchangeable parts of ψ, for `learn_prior`; by default all effects of a `MixedEffects` are one
            group, and so are all coordinates of ψ under a dense W.

    Raises:
        InputError: If shapes disagree, values are not finite, or a covariance is not symmetric PSD.

    Example: items in three categories, with one effect in R² per category and every item close to that effect.

        >>> import numpy as np
        >>> import manyarms as ma
        >>> category = np.array([0, 0, 1, 2, 2])
        >>> ma.HierarchicalGaussian(np.zeros(6), 1.0, ma.MixedEffects(np.eye(3)[category], dim=2), action_cov=0.1)
        HierarchicalGaussian(5 actions, d=2, latent_dim=6, effects: 3)
    """

    saved_as = "hierarchical Gaussian"
    saved_fields = (*_STRUCTURE, *_LEARNED, "base")
    saved_checks: ClassVar = {
        "mixing": instance_of(Mixing),
        "latent_mean": floats(1),
        "latent_factor": instance_of(LatentFactor),
        "action_covariance": instance_of(ActionCovariance),
        "offset": maybe(lambda part: floats(1)(part) or floats(2)(part)),
        "effects": tuple_of(instance_of(EffectGroup)),
        "observed": instance_of(ObservedRows),
        "gains": tuple_of(floats(3)),
        "base": maybe(lambda part: isinstance(part, HierarchicalGaussian)),
        **dict.fromkeys(("log_evidence", "misfit", "log_det"), is_number),
    }

    n_actions: int
    """K."""
    dim: int
    """d."""
    latent_dim: int
    """d'."""
    mixing: Mixing
    latent_mean: Float[Array, " p"]
    latent_factor: LatentFactor
    action_covariance: ActionCovariance
    offset: Array | None
    effects: tuple[EffectGroup, ...]
    observed: ObservedRows
    gains: tuple[Array, ...]
    log_evidence: float
    misfit: float
    log_det: float

    def __init__(
        self,
        latent_mean: Any,
        latent_cov: Any,
        mixing: Any,
        action_cov: Any,
        offset: Any = None,
        *,
        effects: Sequence[EffectGroup] | None = None,
    ):
        W = as_mixing(mixing)
        parts = dict(
            mixing=W,
            latent_mean=as_vector("latent_mean", latent_mean, length=W.latent_dim).copy(),
            latent_factor=BlockFactor.of(latent_cov, latent_dim=W.latent_dim),
            action_covariance=ActionCovariance.of(action_cov, n_actions=W.n_actions, dim=W.dim),
            offset=as_offset(offset, W.n_actions, W.dim),
            effects=as_effects(effects, W),
        )
        self._set(parts | _no_data())

    def conditioned(self, latent_mean: Array, latent_factor: LatentFactor, *learned: Any) -> HierarchicalGaussian:
        """The posterior with the parts that `inference.condition` has solved for, _LEARNED last; not for users."""
        parts = dict(zip(_LEARNED, learned, strict=True))
        return self._changed(latent_mean=latent_mean, latent_factor=latent_factor, base=self.base, **parts)

    def saved(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in (*_STRUCTURE, *_LEARNED)} | {"base": self._base}

    @classmethod
    def from_saved(cls, parts: dict[str, Any]) -> HierarchicalGaussian:
        out = object.__new__(cls)
        out._set(parts)
        return out

    def _set(self, parts: dict[str, Any]) -> None:
        # None for a prior, which is its own base: a reference to itself would keep it alive.
        self._base: HierarchicalGaussian | None = parts["base"]
        for name in parts.keys() - {"base"}:
            part = parts[name]
            setattr(self, name, frozen(part) if isinstance(part, np.ndarray) else part)
        self.n_actions, self.dim, self.latent_dim = self.mixing.n_actions, self.mixing.dim, self.mixing.latent_dim

    def consistent(self) -> bool:
        """True if its parts are of the same actions, features and latent dimensions."""
        K, d, p, base = self.n_actions, self.dim, self.latent_dim, self._base
        groups = self.observed.groups
        if base is not None and not (
            isinstance(base.latent_factor, BlockFactor) and (base.n_actions, base.dim, base.latent_dim) == (K, d, p)
        ):
            return False
        if isinstance(self.latent_factor, BlockFactor):
            factor_fits = True
        else:
            # A tree of effects, of which there is no prior.
            factor_fits = (
                base is not None and isinstance(self.mixing, MixedEffects) and self.latent_factor.part_dim == d
            )
        return bool(
            factor_fits
            and (self.latent_mean.shape, self.latent_factor.dim) == ((p,), p)
            and self.action_covariance.fits(K, d)
            and (self.offset is None or self.offset.shape in ((d,), (K, d)))
            and sum(group.count * group.part_dim for group in self.effects) == p
            and all(group.root.shape[2] == d and group.actions.max(initial=-1) < K for group in groups)
            and [gain.shape for gain in self.gains] == [group.root.shape for group in groups]
        )

    def _changed(self, **parts: Any) -> HierarchicalGaussian:
        return HierarchicalGaussian.from_saved(self.saved() | parts)

    def __repr__(self) -> str:
        seen = f", {len(self.observed.actions):,} seen" if self.observed.groups else ""
        return (
            f"HierarchicalGaussian({self.n_actions:,} actions{seen}, d={self.dim}, latent_dim={self.latent_dim}, "
            f"{', '.join(str(group) for group in self.effects) or 'independent'})"
        )

    @property
    def base(self) -> HierarchicalGaussian:
        """The prior before any data."""
        return self if self._base is None else self._base

    @property
    def latent_cov(self) -> Float[Array, "p p"]:
        """Σ as one matrix; an error above `core.latent_covariance.MAX_DENSE_LATENT`."""
        return self.latent_factor.covariance()

    @property
    def prior_factor(self) -> BlockFactor:
        """The factor of Σ before any data; only the posterior of a tree of effects has another form."""
        assert isinstance(self.base.latent_factor, BlockFactor)
        return self.base.latent_factor

    def action_mean(self, actions: Any = None) -> Float[Array, "m d"]:
        """E θ_a of the given actions, or of all, with ψ integrated out."""
        return self._all_means if actions is None else self.centre(self.latent_mean, self._checked(actions))

    def action_cov(self, actions: Any) -> Float[Array, "m d d"]:
        """Cov θ_a of each given action, with ψ integrated out."""
        actions = self._checked(actions)
        out, latent_roots = np.empty((len(actions), self.dim, self.dim)), self.mixing.roots(self.latent_factor)
        with np.errstate(over="ignore", invalid="ignore"):
            for part in cache_chunks(len(actions), self.mixing.action_size(self.latent_factor)):
                root = self._cov_root(actions[part], latent_roots)
                np.matmul(root, root.swapaxes(1, 2), out=out[part])
        return check_overflow("the covariances of the weights", out)

    def cross_cov(self, left: Any, right: Any) -> Float[Array, "m d d"]:
        """Cov(θ_a, θ_b) for pairs of actions (a, b), one pair per row."""
        left = as_actions("left", left, n_actions=self.n_actions)
        right = as_actions("right", right, n_actions=self.n_actions, length=len(left))
        out = np.empty((len(left), self.dim, self.dim))
        for part in cache_chunks(len(left), self.mixing.action_size(self.latent_factor)):
            # In one order, so that Cov(θ_b, θ_a) is the transpose to the last digit.
            a, b = np.minimum(left[part], right[part]), np.maximum(left[part], right[part])
            across = self.mixing.cross(self.latent_factor, a, b)
            out[part] = self._transfer(a) @ across @ self._transfer(b).swapaxes(1, 2)
        turned = np.flatnonzero(left > right)
        out[turned] = out[turned].swapaxes(1, 2)
        same = np.flatnonzero(left == right)
        out[same] = self.action_cov(left[same])
        return out

    def variance_of(self, vectors: Float[Array, "m d"], actions: Int[Array, " m"]) -> float:
        """Var Σ_a v_aᵀ θ_a for distinct actions: Σ_a v_aᵀ S_a v_a + ‖Fᵀ u‖², u = Σ_a (T_a W_a)ᵀ v_a (docs/maths.md)."""
        parts = cache_chunks(len(actions), self.mixing.product_size)
        return float(self.variances_of_sums(((vectors[part][:, None], actions[part]) for part in parts), 1)[0])

    def variances_of_sums(self, parts: Iterable[tuple[Array, Array]], count: int) -> Float[Array, " c"]:
        """Var Σ_a v_ajᵀ θ_a for j = 1, ..., `count`, given the (m, count, d) vectors and (m,) actions of every part."""
        out, u = np.zeros(count), np.zeros((count, self.latent_dim))
        with np.errstate(over="ignore", invalid="ignore"):
            for vectors, actions in parts:
                pulled, moved = self._pull_back(vectors, actions)
                for part in (self.action_covariance.times_root(pulled, actions), moved):
                    out += np.einsum("mcq,mcq->c", part, part)
                u += self.mixing.apply_t_each(pulled, actions)
            out += [np.sum(self.latent_factor.apply_t(row) ** 2) for row in u]
        return check_overflow("variances", out)

    def variances_of(self, vectors: Float[Array, "m d"], actions: Int[Array, " m"]) -> Float[Array, " m"]:
        """Var v_iᵀ θ_{a_i}, row by row, without the covariance of any action."""
        out, variances = np.empty(len(actions)), self.variances()
        for part in cache_chunks(len(actions), self.mixing.action_size(self.latent_factor)):
            out[part] = variances(vectors[part][:, None], actions[part])[:, 0]
        return out

    def variances(self) -> Callable[[Float[Array, "m c d"], Int[Array, " m"]], Float[Array, "m c"]]:
        """The function of vectors v_ij and actions a_i that computes Var v_ijᵀ θ_{a_i} as three sums of squares."""
        latent_roots = self.mixing.roots(self.latent_factor)

        def variances(vectors: Float[Array, "m c d"], actions: Int[Array, " m"]) -> Float[Array, "m c"]:
            pulled, moved = self._pull_back(vectors, actions)
            out = np.einsum("mcq,mcq->mc", moved, moved)
            for part in (self.action_covariance.times_root(pulled, actions), pulled @ latent_roots(actions)):
                out += np.einsum("mcq,mcq->mc", part, part)
            return out

        return variances

    def covariances_with(self, vectors: Float[Array, "m d"], actions: Int[Array, " m"]) -> Float[Array, "m d"]:
        """Cov(θ_a, Σ_b v_bᵀ θ_b) of distinct actions: T_a (Σ_a v_a + W_a F Fᵀ u), with u as in `variance_of`."""
        parts, u = list(cache_chunks(len(actions), self.mixing.product_size)), np.zeros(self.latent_dim)
        for part in parts:
            u += self.mixing.apply_t(self._pull_back(vectors[part][:, None], actions[part])[0][:, 0], actions[part])
        latent, out = self.latent_factor.apply(self.latent_factor.apply_t(u)), np.empty((len(actions), self.dim))
        for part in parts:
            ids = actions[part]
            own = np.einsum("mde,me->md", self.action_covariance.blocks(ids), vectors[part])
            out[part] = np.einsum("mde,me->md", self._transfer(ids), own + self.mixing.apply(latent[None], ids)[0])
        return out

    def centre(self, latent: Float[Array, " p"], actions: Int[Array, " m"]) -> Float[Array, "m d"]:
        """E[θ_a | ψ] for one ψ."""
        out = np.empty((len(actions), self.dim))
        for part in cache_chunks(len(actions), self.mixing.product_size):
            out[part] = self._correct(self._prior_centre(latent[None], actions[part]), actions[part], None)[0]
        return check_overflow("the mean weights", out)

    def draw_given(
        self, latent: Float[Array, "s p"], actions: Int[Array, " m"], rng: np.random.Generator
    ) -> Float[Array, "s m d"]:
        """One draw of θ_a | ψ for each given ψ: a draw from the prior, moved by the observations (Matheron's rule)."""
        noise = rng.standard_normal((len(latent), len(actions), self.dim))
        start = self._prior_centre(latent, actions) + self.action_covariance.colour(noise, actions)
        return self._correct(start, actions, rng)

    def draw_latent(self, rng: np.random.Generator, size: int) -> Float[Array, "s p"]:
        """Draws of ψ."""
        return self.latent_mean + self.latent_factor.apply(rng.standard_normal((size, self.latent_dim)))

    def sample(self, rng: np.random.Generator, size: int = 1, actions: Any = None) -> Float[Array, "s m d"]:
        """Joint draws of θ_a of the given actions (default: all), which share ψ within a draw.

        Args:
            rng: A NumPy generator.
            size: Number of draws.
            actions: The actions to draw; a draw has (m, d) numbers, so choose few if K is large.
        """
        ids = np.arange(self.n_actions) if actions is None else self._checked(actions)
        distinct, where = np.unique(ids, return_inverse=True)
        latent_rng, action_rng = split(rng, "latent", "actions")
        latent = self.draw_latent(latent_rng, as_count("size", size))
        # An action given twice is one random vector, not two.
        return self.draw_given(latent, distinct, action_rng)[:, where]

    def marginal(self) -> HierarchicalGaussian:
        """ψ integrated out: every θ_a keeps its mean and covariance, and actions become independent (paper, eq. 3)."""
        empty = DenseMixing(np.zeros((self.n_actions, self.dim, 0)))
        each = ActionCovariance(each=self.action_cov(np.arange(self.n_actions)))
        return HierarchicalGaussian(np.zeros(0), np.zeros((0, 0)), empty, each, self.action_mean())

    def __add__(self, other: HierarchicalGaussian) -> HierarchicalGaussian:
        if not isinstance(other, HierarchicalGaussian):  # pyright: ignore[reportUnnecessaryIsInstance]
            return NotImplemented
        if (self.n_actions, self.dim) != (other.n_actions, other.dim):
            raise ShapeError(
                f"a prior of {self.n_actions} actions in {self.dim} dimensions cannot be added to one of "
                f"{other.n_actions} actions in {other.dim} dimensions."
            )
        if self.observed.groups or other.observed.groups:
            raise InputError("only priors can be added.", "Add them before the fit.")
        offsets = [offset for offset in (self.offset, other.offset) if offset is not None]
        return self._changed(
            mixing=self.mixing.beside(other.mixing),
            effects=(*self.effects, *other.effects),
            latent_mean=np.concatenate([self.latent_mean, other.latent_mean]),
            latent_factor=self.prior_factor.beside(other.prior_factor),
            action_covariance=self.action_covariance.plus(other.action_covariance, self.n_actions),
            offset=sum(offsets[1:], offsets[0]) if offsets else None,
            **_no_data(),
        )

    def __radd__(self, other: int) -> HierarchicalGaussian:
        # sum() starts from 0.
        return self if other == 0 else NotImplemented

    def with_parts(
        self, latent_mean: Array, latent_factor: BlockFactor, action_covariance: ActionCovariance, offset: Array | None
    ) -> HierarchicalGaussian:
        """A prior of the same structure with other parameters, as when a prior is learned; not for users."""
        changes = dict(latent_mean=latent_mean, latent_factor=latent_factor, action_covariance=action_covariance)
        return self._changed(**changes, offset=offset, **_no_data())

    def grouped(self) -> HierarchicalGaussian:
        """This prior for many solves; see `Mixing.grouped`."""
        return self._changed(mixing=self.mixing.grouped())

    def with_actions(self, mixing: Any, action_cov: Any = None, offset: Any = None) -> HierarchicalGaussian:
        """This distribution with new, unseen actions after the existing ones; nothing is solved again.

        Args:
            mixing: W of the new actions, of the same kind as W here.
            action_cov: Their Σ_a; by default the one that all actions share.
            offset: Their c_a; by default the one that all actions share.
        """
        extra = as_mixing(mixing)
        n_old, n_new = self.n_actions, extra.n_actions
        added = None if action_cov is None else ActionCovariance.of(action_cov, n_actions=n_new, dim=self.dim)
        return self._changed(
            mixing=self.mixing.extended(extra),
            action_covariance=self.action_covariance.extended(added, n_old, n_new),
            offset=extended_offset(self.offset, as_offset(offset, n_new, self.dim), n_old, n_new),
            base=None if self._base is None else self._base.with_actions(mixing, action_cov, offset),
        )

    def offset_of(self, actions: Int[Array, " m"]) -> Float[Array, "#m d"]:
        """c_a, or one row that all share."""
        if self.offset is None:
            return np.zeros((1, self.dim))
        return self.offset[None] if self.offset.ndim == 1 else self.offset[actions]

    @cached_property
    def twins(self) -> Int[Array, " K"]:
        """The lowest action that nothing tells apart from each action: only those never logged have twins."""
        out, own_offsets = np.arange(self.n_actions), self.offset is not None and self.offset.ndim == 2
        if self.action_covariance.each is None and not own_offsets:
            ids = np.delete(out, self.observed.actions)
            kind, lowest = self.mixing.kinds[0][ids], np.empty(self.n_actions, dtype=np.int64)
            # Of several assignments to one place the last one stays, which is that of the lowest action.
            lowest[kind[::-1]] = ids[::-1]
            out[ids] = lowest[kind]
        return frozen(out)

    @cached_property
    def widths(self) -> ScoreWidths:
        """The standard deviations of φ(x)ᵀ θ_a, as norms of φ(x)."""
        return ScoreWidths(self)

    @cached_property
    def _all_means(self) -> Float[Array, "K d"]:
        return frozen(self.centre(self.latent_mean, np.arange(self.n_actions)))

    def _prior_centre(self, latent: Float[Array, "s p"], actions: Int[Array, " m"]) -> Float[Array, "s m d"]:
        return self.mixing.apply(latent, actions) + self.offset_of(actions)

    def _correct(
        self, start: Float[Array, "s m d"], actions: Int[Array, " m"], rng: np.random.Generator | None
    ) -> Float[Array, "s m d"]:
        """θ + Σ_a N_aᵀ (ρ_a - R_a θ - ε) for the seen ones of `actions`, with ε = 0 if there is no rng."""
        out = np.array(start)
        for number, where, place in self.observed.find(actions):
            group, gain = self.observed.groups[number], self.gains[number][place]
            miss = group.response[place] - np.einsum("mrd,smd->smr", group.root[place], start[:, where])
            if rng is not None:
                miss -= rng.standard_normal(miss.shape)
            gain = self.action_covariance.times_root_t(gain, actions[where])
            out[:, where] += np.einsum("mrd,smr->smd", gain, miss)
        return out

    def _pull_back(
        self, vectors: Float[Array, "m c d"], actions: Int[Array, " m"]
    ) -> tuple[Float[Array, "m c d"], Float[Array, "m c r"]]:
        """T_aᵀ v = v - R_aᵀ N_a Σ_a v and N_a Σ_a v of vectors of each action, whose squares add up to vᵀ S_a v."""
        places = list(self.observed.find(actions))
        rank = max((self.observed.groups[number].rank for number, _, _ in places), default=0)
        out, moved = np.array(vectors), np.zeros((*vectors.shape[:2], rank))
        for number, where, place in places:
            white = self.action_covariance.times_root(vectors[where], actions[where])
            own = white @ self.gains[number][place].swapaxes(1, 2)
            out[where] -= own @ self.observed.groups[number].root[place]
            moved[where, :, : own.shape[2]] = own
        return out, moved

    def _transfer(self, actions: Int[Array, " m"]) -> Float[Array, "m d d"]:
        """T_a = I - Σ_a N_aᵀ R_a: the part of the prior centre that remains after the data."""
        out = np.broadcast_to(np.eye(self.dim), (len(actions), self.dim, self.dim)).copy()
        for number, where, place in self.observed.find(actions):
            gain = self.action_covariance.times_root_t(self.gains[number][place], actions[where])
            out[where] -= gain.swapaxes(1, 2) @ self.observed.groups[number].root[place]
        return out

    def _cov_root(self, actions: Int[Array, " m"], latent_roots: Roots) -> Float[Array, "m d q"]:
        """B_a = [T_a L_a, T_a W_a F, Σ_a N_aᵀ] with Cov θ_a = B_a B_aᵀ (L_a L_aᵀ = Σ_a).

        The first and the last part give S_a = T_a Σ_a T_aᵀ + Σ_a N_aᵀ N_a Σ_a, the covariance given ψ. A sum of squares
        cannot be indefinite, however far the data outweigh the prior.
        """
        d, latent = self.dim, latent_roots(actions)
        rank = max((self.observed.groups[number].rank for number, _, _ in self.observed.find(actions)), default=0)
        out = np.zeros((len(actions), d, d + latent.shape[2] + rank))
        transfer = self._transfer(actions)
        out[:, :, :d] = self.action_covariance.times_root(transfer, actions)
        np.matmul(transfer, latent, out=out[:, :, d : d + latent.shape[2]])
        for number, where, place in self.observed.find(actions):
            gain = self.action_covariance.times_root_t(self.gains[number][place], actions[where])
            out[where, :, out.shape[2] - gain.shape[1] :] = gain.swapaxes(1, 2)
        return out

    def _checked(self, actions: Any) -> Int[Array, " m"]:
        return as_actions("actions", actions, n_actions=self.n_actions)


def _no_data() -> dict[str, Any]:
    """The parts of a prior that only data change."""
    return dict(base=None, observed=ObservedRows.empty(), gains=(), log_evidence=0.0, misfit=0.0, log_det=0.0)
