"""A hierarchical prior on a GPU, for sums of sites that lie there: posteriors of all actions, and their evidence.

Actions of one kind share u_k = W_a ψ. They are absorbed into evidence on u_k, kind by kind, and from there into that on
ψ = μ + F z. The effects of the largest group are eliminated one by one: no action has two of them. The few others, such
as one that all actions share, are solved for together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from manyarms._base.checks import Array
from manyarms.core import DenseMixing, EffectGroup, HierarchicalGaussian, MixedEffects
from manyarms.core.effect_group import effect_slices
from manyarms.errors import NumericalError
from manyarms.gpu.batched_posterior import AbsorbedActions, SharedEffects, absorb_actions, action_means
from manyarms.gpu.cuda_kernels import kernel_size, sum_runs
from manyarms.gpu.device import Tensor, load_torch, upload
from manyarms.inference.evidence_gradient import EvidenceGradient

MOST_TOGETHER = 32
"""Effects outside the largest group that are solved for together."""


class EffectLayout:
    """The effects of some actions on a device: those that were logged, in an order in which kinds are neighbours.

    Args:
        prior: A prior that `is_solvable`.
        actions: The actions, in their order on the device.
        size: The size of a kernel, to which vectors are padded.
        device: The GPU.

    Attributes:
        kind_of: (m,) the kind of each action; kinds are numbered along the order.
        actions: An action of each kind.
        own: (k,) the effect of each kind among those that are eliminated one by one.
        weight: (k,) its weight in that kind.
        together: (k, q) the weights of the effects that are solved for together.
        eliminated, core: The numbers of both sorts of effects in ψ.
        matrices: (m, D, D) W_a of every action where it is dense, else None; ψ is then one effect.
    """

    def __init__(self, prior: HierarchicalGaussian, actions: Array, size: int, device: str):
        torch, mixing = load_torch(), prior.mixing
        self.source, self._device = _source(mixing), device
        kind, weights = np.zeros(len(actions), dtype=np.int64), np.ones((1, 1))
        self.matrices = None
        self.eliminated, self.core = np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64)
        if isinstance(mixing, DenseMixing):
            self.matrices = padded(mixing.matrices[actions], size, device)
        elif isinstance(mixing, MixedEffects):
            self.eliminated, self.core = _sorted_out(prior.effects)
            kind = mixing.kinds[0][actions]
        change = np.diff(kind, prepend=kind[:1] - 1) != 0
        kind, self.actions = np.cumsum(change) - 1, actions[np.flatnonzero(change)]
        own, weight = np.zeros(len(self.actions), dtype=np.int64), np.ones(len(self.actions))
        if isinstance(mixing, MixedEffects):
            weights = mixing.weights[self.actions]
            own, weight = _own_effects(weights[:, self.eliminated])
            self.together = upload(weights[:, self.core].toarray(), device)
        else:
            self.together = upload(np.zeros((len(own), 0)), device)
        self.kind_of = torch.from_numpy(kind.astype(np.int32)).to(device)
        self.own, self.weight = torch.from_numpy(own).to(device), upload(weight, device)
        order = np.argsort(own, kind="stable")
        self._order = torch.from_numpy(order).to(device)
        begin = np.flatnonzero(np.diff(own[order], prepend=-1))
        self._targets = torch.from_numpy(own[order][begin].astype(np.int32)).to(device)
        self._begin = torch.from_numpy(np.append(begin, len(own)).astype(np.int32)).to(device)

    def fits(self, prior: HierarchicalGaussian) -> bool:
        """True if the prior has the mixing that this was made for."""
        return _source(prior.mixing) is self.source

    def by_own(self, rows: Tensor) -> Tensor:
        """Sums over the kinds of each effect that is eliminated, always in the same order."""
        out = rows.new_zeros(len(self.eliminated), *rows.shape[1:])
        if not rows.is_cuda:
            return out.index_add_(0, self.own, rows)
        if rows.numel():
            sum_runs(rows[self._order].contiguous(), self._begin, self._targets, out)
        return out

    def by_kind(self, rows: Tensor, runs: SharedEffects) -> Tensor:
        """Sums over the actions of each kind, always in the same order."""
        torch = load_torch()
        out = rows.new_zeros(len(self.actions), *rows.shape[1:])
        if not rows.is_cuda:
            return out.index_add_(0, self.kind_of.to(torch.int64), rows)
        work, n_runs = runs.work, len(runs.work.first) - 1
        parts = rows.new_empty(n_runs, *rows.shape[1:])
        sum_runs(rows.contiguous(), work.first, torch.arange(n_runs, dtype=torch.int32, device=rows.device), parts)
        sum_runs(parts, work.bounds, work.effects, out)
        return out


def is_solvable(prior: HierarchicalGaussian) -> bool:
    """True if a prior can be a `DevicePrior`, so that posteriors under it are solved for on a GPU."""
    covariance, mixing = prior.action_covariance, prior.mixing
    matrix = covariance.blocks(np.arange(1)) if covariance.each is None else covariance.each
    smallest = np.linalg.eigvalsh(matrix)
    if not (smallest[:, 0] > 1e-12 * smallest[:, -1]).all():
        return False
    if not isinstance(mixing, MixedEffects):
        return prior.latent_dim <= (kernel_size(prior.dim) or 0)
    eliminated, core = _sorted_out(prior.effects)
    if prior.prior_factor.with_block_size(prior.dim) is None or len(core) > MOST_TOGETHER:
        return False
    return int(np.diff(mixing.weights[:, eliminated].indptr).max(initial=0)) <= 1


def neighbours_first(prior: HierarchicalGaussian, actions: Array) -> Array:
    """The order of actions that a `DevicePrior` needs: those of one kind are neighbours, kinds of one effect too."""
    mixing = prior.mixing
    if not isinstance(mixing, MixedEffects):
        return np.arange(len(actions))
    own, _ = _own_effects(mixing.weights[actions][:, _sorted_out(prior.effects)[0]])
    return np.lexsort((mixing.kinds[0][actions], own))


@dataclass(frozen=True, eq=False)
class _SolvedEffects:
    """The posterior of ψ in units of its prior, and of u_k.

    Attributes:
        white: (J, D) E z of the effects that are eliminated; `core_white` of the others, (q, D).
        covs: (J, D, D) their Cov z, and `core_covs`, (q, D, D).
        mean: (k, D) E u_k - W μ of every kind.
        cov: (k, D, D) Cov u_k.
        log_det: log |Cov ψ before the data| - log |Cov ψ|.
    """

    white: Tensor
    covs: Tensor
    core_white: Tensor
    core_covs: Tensor
    mean: Tensor
    cov: Tensor
    log_det: Tensor


@dataclass(frozen=True, eq=False)
class Solved:
    """Posteriors of all actions given sums of sites.

    Attributes:
        white: (m, D, D) the sums Σ w x xᵀ in units in which actions are N(W z, I); `right` their moments around the
            centre of the prior.
        absorbed: The actions given their effects.
        effects: The posterior of the effects.
        mean: (m, D) E θ_a.
        log_det: log |prior covariance| - log |posterior covariance|.
    """

    white: Tensor
    right: Tensor
    absorbed: AbsorbedActions
    effects: _SolvedEffects
    mean: Tensor
    log_det: Tensor


class DevicePrior:
    """A prior on a device, in units in which z ~ N(0, I) and θ_a - c_a = L_a (W_a z + ε), ε ~ N(0, I).

    Args:
        prior: A prior that `is_solvable`.
        layout: Its effects.
        actions: The actions of the layout.
        size: The size of a kernel.
        device: The GPU.
    """

    def __init__(self, prior: HierarchicalGaussian, layout: EffectLayout, actions: Array, size: int, device: str):
        torch, d = load_torch(), prior.dim
        self.layout, self._dim = layout, d
        eye = np.eye(d)[None]
        shared = prior.action_covariance.each is None
        which = actions[:1] if shared else actions
        root = prior.action_covariance.times_root(np.broadcast_to(eye, (len(which), d, d)), which)
        self.root = padded(root, size, device)
        # The padding has no prior variance, and no data either; a one keeps its factor invertible.
        self.root[:, range(d, size), range(d, size)] = 1.0
        kind_of = layout.kind_of.to(torch.int64)
        if layout.matrices is None:
            blocks = prior.prior_factor.with_block_size(d)
            assert blocks is not None
            factors = blocks.blocks
            centre = padded(prior.mixing.apply(prior.latent_mean[None], layout.actions)[0], size, device)[kind_of]
            basis = torch.eye(size, dtype=torch.float64, device=device)[None]
        else:
            factors = prior.prior_factor.dense()[None]
            centre = layout.matrices @ padded(prior.latent_mean[None], size, device)[0]
            basis = layout.matrices
        offset = prior.offset_of(actions)
        self.centre = centre + padded(offset, size, device)
        self.factors = padded(factors[layout.eliminated], size, device)
        self.core = padded(factors[layout.core], size, device)
        white = torch.linalg.solve(self.root, basis).contiguous()
        index = torch.arange(len(actions), device=device) if len(white) > 1 else torch.zeros_like(kind_of)
        self.effects = SharedEffects(white, index.to(torch.int32), layout.kind_of, len(layout.actions))
        self._eye = torch.eye(size, dtype=torch.float64, device=device)

    def marginals(self) -> tuple[Tensor, Tensor]:
        """Mean and covariance of every action before any rounds."""
        torch, layout = load_torch(), self.layout
        own, core = self.factors[layout.own], self.core @ self.core.mT
        latent = torch.einsum("kq,qde->kde", layout.together**2, core)
        latent += layout.weight[:, None, None] ** 2 * (own @ own.mT)
        basis = self.root @ self.effects.mixing
        return self.centre, self.root @ self.root.mT + basis @ latent[layout.kind_of.to(torch.int64)] @ basis.mT

    def solve(self, gram: Tensor, moment: Tensor) -> Solved:
        """The posterior given sums of sites."""
        torch = load_torch()
        white = self.root.mT @ gram @ self.root
        left = moment - torch.einsum("mde,me->md", gram, self.centre)
        right = torch.einsum("mde,md->me", self.root.expand_as(gram), left).contiguous()
        absorbed = absorb_actions(white, right, self.effects)
        effects = self._solve_effects(absorbed.precision, absorbed.score)
        moved = action_means(absorbed.factor, right, self.effects, effects.mean)
        mean = self.centre + torch.einsum("mde,me->md", self.root.expand_as(gram), moved)
        return Solved(white, right, absorbed, effects, mean, absorbed.log_det + effects.log_det)

    def covariances(self, solved: Solved) -> Tensor:
        """Cov θ_a of every action."""
        torch, factor = load_torch(), solved.absorbed.factor
        own = self.root @ factor
        shared = own @ (factor.mT @ self.effects.mixing)
        return own @ own.mT + shared @ solved.effects.cov[self.layout.kind_of.to(torch.int64)] @ shared.mT

    def evidence(self, gram: Tensor, moment: Tensor, groups: tuple[EffectGroup, ...]) -> EvidenceGradient:
        """The log evidence of the Gaussian rounds that sites stand for, up to a constant, and its derivatives."""
        torch, d = load_torch(), self._dim
        solved = self.solve(gram, moment)
        at_centre = torch.einsum("mde,me->md", gram, self.centre)
        value = (self.centre * (moment - 0.5 * at_centre)).sum() - 0.5 * solved.log_det
        value = float(value + 0.5 * ((moment - at_centre) * (solved.mean - self.centre)).sum())
        if not np.isfinite(value):
            raise NumericalError("the log evidence overflows.", "Rescale contexts, or use another prior.")
        pull = moment - torch.einsum("mde,me->md", gram, solved.mean)
        return EvidenceGradient(
            value, self._action_excess(solved)[:d, :d], self._effect_excess(solved.effects, groups),
            self._latent_pull(pull), pull.sum(dim=0)[:d].cpu().numpy(),
        )  # fmt: skip

    def _action_excess(self, solved: Solved) -> Array:
        """Σ_a E ε ε' - I: with A = (I + G)⁻¹, ε is A (b - G W z) ± A given z, and A - I = - G A."""
        torch, out = load_torch(), self._eye * 0.0
        mixing, kinds = self.effects.mixing, self.layout.kind_of.to(torch.int64)
        for part in torch.arange(len(kinds), device=kinds.device).split(_CHUNK):
            G, U = solved.white[part], solved.absorbed.factor[part]
            W, kind = mixing if len(mixing) == 1 else mixing[part], kinds[part]
            latent = solved.effects.mean[kind]
            miss = solved.right[part] - torch.einsum("mde,me->md", G, (W @ latent[:, :, None])[:, :, 0])
            own = torch.einsum("mde,me->md", U, torch.einsum("mde,md->me", U, miss))
            GU = G @ U
            spread = U @ (GU.mT @ W)
            known = torch.einsum("mde,mfe->df", GU, U)
            out += own.T @ own + torch.einsum("mde,mfe->df", spread @ solved.effects.cov[kind], spread) - known
        return ((out + out.T) / 2).cpu().numpy()

    def _effect_excess(self, effects: _SolvedEffects, groups: tuple[EffectGroup, ...]) -> tuple[Array, ...]:
        """Σ_j E z_j z_jᵀ - I for each group of effects."""
        torch = load_torch()
        second = [white[:, :, None] * white[:, None, :] + covs - self._eye for white, covs in (
            (effects.white, effects.covs), (effects.core_white, effects.core_covs))]  # fmt: skip
        if self.layout.matrices is not None:
            whole, out = second[0][0].cpu().numpy(), list[Array]()
            for group, where in effect_slices(groups):
                starts = range(where.start, where.stop, group.part_dim)
                out.append(sum((whole[s : s + group.part_dim, s : s + group.part_dim] for s in starts), np.zeros(())))
            return tuple(out)
        each = torch.empty_like(torch.cat(second))
        for numbers, values in zip((self.layout.eliminated, self.layout.core), second, strict=True):
            each[torch.from_numpy(numbers).to(each.device)] = values
        d, out = self._dim, list[Array]()
        for _, where in effect_slices(groups):
            out.append(each[where.start // d : where.stop // d].sum(dim=0)[:d, :d].cpu().numpy())
        return tuple(out)

    def _latent_pull(self, pull: Tensor) -> Array:
        layout, d = self.layout, self._dim
        if layout.matrices is not None:
            p = layout.source.shape[2]
            return (layout.matrices.mT @ pull[:, :, None]).sum(dim=0)[:p, 0].cpu().numpy()
        total = layout.by_kind(pull, self.effects)[:, :d].cpu().numpy()
        return np.asarray(layout.source[layout.actions].T @ total).reshape(-1)

    def _solve_effects(self, precision: Tensor, score: Tensor) -> _SolvedEffects:
        """The posterior of the effects, given the evidence on u_k of every kind."""
        torch, layout, F, H = load_torch(), self.layout, self.factors, self.core
        (q, size, _), w, V = H.shape, layout.weight, layout.together
        lower = _cholesky(F.mT @ layout.by_own(w[:, None, None] ** 2 * precision) @ F + self._eye)
        inverse = torch.linalg.solve_triangular(lower, self._eye.expand_as(lower), upper=False)
        moved = torch.einsum("jde,je->jd", inverse, torch.einsum("jde,jd->je", F, layout.by_own(w[:, None] * score)))
        log_det = 2 * torch.log(torch.einsum("jdd->jd", lower)).sum()
        # How far the effects that are solved for together move an eliminated one.
        across = layout.by_own((w[:, None] * V)[:, :, None, None] * precision[:, None])
        across = (inverse @ F.mT)[:, None] @ across @ H
        flat = across.transpose(1, 2).reshape(len(F), size, q * size)
        own_root = F @ inverse.mT
        core = torch.einsum("kq,kr,kde->qdre", V, V, precision)
        core = torch.einsum("qdf,qdre,reg->qfrg", H, core, H).reshape(q * size, q * size)
        core = core - torch.einsum("jde,jdf->ef", flat, flat) + torch.eye(q * size).to(core)
        core_lower = _cholesky(core[None])[0]
        core_score = torch.einsum("qdf,qd->qf", H, torch.einsum("kq,kd->qd", V, score)).reshape(-1)
        core_score = core_score - torch.einsum("jde,jd->e", flat, moved)
        together = torch.cholesky_solve(core_score[:, None], core_lower)[:, 0]
        log_det = log_det + 2 * torch.log(torch.diagonal(core_lower)).sum()
        root = torch.linalg.solve_triangular(core_lower, torch.eye(len(core)).to(core), upper=False).T
        white = torch.einsum("jde,jd->je", inverse, moved - flat @ together)
        # Roots of Cov z and of Cov u_k: one part from each sort of effect.
        second = -(inverse.mT @ flat) @ root
        covs = inverse.mT @ inverse + second @ second.mT
        core_root = root.reshape(q, size, q * size)
        u = w[:, None] * torch.einsum("jde,je->jd", F, white)[layout.own]
        u = u + torch.einsum("kq,qd->kd", V, torch.einsum("qde,qe->qd", H, together.reshape(q, size)))
        own = w[:, None, None] * own_root[layout.own]
        shared = w[:, None, None] * (F @ second)[layout.own] + torch.einsum("kq,qde->kde", V, H @ core_root)
        core_covs = core_root @ core_root.mT
        cov = own @ own.mT + shared @ shared.mT
        return _SolvedEffects(white, covs, together.reshape(q, size), core_covs, u.contiguous(), cov, log_det)


def padded(array: Array, size: int, device: str) -> Tensor:
    """Copy of a prior's matrices or vectors on a device, with zeros up to the size of a kernel."""
    shape = (len(array), *(size for _ in array.shape[1:]))
    out = np.zeros(shape)
    out[(slice(None), *(slice(0, length) for length in array.shape[1:]))] = array
    return upload(out, device)


def _source(mixing: Any) -> Any:
    """The array that says what a mixing is; copies of a mixing share it."""
    return mixing.weights if isinstance(mixing, MixedEffects) else mixing.matrices


def _sorted_out(groups: tuple[EffectGroup, ...]) -> tuple[Array, Array]:
    """The numbers of the effects of the largest group, and of all others."""
    largest = int(np.argmax([group.count for group in groups]))
    sort = np.repeat(np.arange(len(groups)), [group.count for group in groups])
    return np.flatnonzero(sort == largest), np.flatnonzero(sort != largest)


def _own_effects(weights: Any) -> tuple[Array, Array]:
    """The only effect of each row and its weight; effect 0 with a weight of nothing where there is none."""
    has = np.flatnonzero(np.diff(weights.indptr))
    effect, weight = np.zeros(weights.shape[0], dtype=np.int64), np.zeros(weights.shape[0])
    effect[has], weight[has] = weights.indices, weights.data
    return effect, weight


def _cholesky(matrices: Tensor) -> Tensor:
    torch = load_torch()
    if not matrices.shape[-1]:
        return matrices
    lower, failed = torch.linalg.cholesky_ex(matrices)
    if bool((failed != 0).any()) or not bool(torch.isfinite(lower).all()):
        raise NumericalError(
            "the evidence on the effects of the prior is too uneven.", 'Rescale contexts, or use device="cpu".'
        )
    return lower


_CHUNK = 1 << 17
