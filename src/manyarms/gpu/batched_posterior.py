"""Posteriors of many actions at once on a GPU, given the effect that each action shares with others.

In units in which an action is N(W z, I) before its rounds, and in which its rounds are a Gram matrix G and a moment b,
the action given z has covariance A = (I + G)⁻¹ = U Uᵀ and mean A (b + W z), and z gains the precision Wᵀ G A W and the
score Wᵀ A b. `cuda/posterior.cu` does this with one warp per action; other devices use plain PyTorch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from manyarms.gpu.cuda_kernels import compiled, launch, sum_runs
from manyarms.gpu.device import Tensor, load_torch, processors

RESIDENT = {16: 16, 32: 8}
"""Warps of `absorb_actions` that fit on a multiprocessor at once, by number of features."""


@dataclass(frozen=True, eq=False)
class _EffectRuns:
    """Runs of actions of one effect.

    Attributes:
        first: The first action of each run, with the end.
        bounds: The first run of each effect, with the end.
        effects: 0 ... J - 1.
        blocks: Blocks to launch.
    """

    first: Tensor
    bounds: Tensor
    effects: Tensor
    blocks: int


@dataclass(frozen=True, eq=False)
class SharedEffects:
    """The effect and the W of each action in a batched posterior; actions of one effect are neighbours.

    Attributes:
        mixing: (Q, D, D) the distinct W.
        mixing_of: (m,) the W of each action.
        effect_of: (m,) the effect of each action, ascending.
        n_effects: J.
    """

    mixing: Tensor
    mixing_of: Tensor
    effect_of: Tensor
    n_effects: int

    @cached_property
    def work(self) -> _EffectRuns:
        """The actions split into runs of one effect, a few for each place where a GPU can work on one."""
        torch, device, size = load_torch(), self.effect_of.device, self.mixing.shape[1]
        resident = processors(device) * RESIDENT[size]
        most = max(1, len(self.effect_of) // (4 * resident))
        counts = torch.bincount(self.effect_of.to(torch.int64), minlength=self.n_effects)
        runs = -(-counts // most)
        effect = torch.repeat_interleave(torch.arange(self.n_effects, device=device), runs)
        number = torch.arange(len(effect), device=device) - (torch.cumsum(runs, 0) - runs)[effect]
        begin = (torch.cumsum(counts, 0) - counts)[effect] + number * most
        bounds = torch.cat([runs.new_zeros(1), torch.cumsum(runs, 0)])
        first, everyone = torch.cat([begin, counts.sum()[None]]), torch.arange(self.n_effects, device=device)
        columns = [column.to(torch.int32) for column in (first, bounds, everyone)]
        return _EffectRuns(columns[0], columns[1], columns[2], min(len(begin), resident))


@dataclass(frozen=True, eq=False)
class AbsorbedActions:
    """Batched posteriors of actions given their effects: factors U, and what they say about the effects.

    Attributes:
        factor: (m, D, D) U, upper triangular.
        precision: (J, D, D) Σ Wᵀ G A W of each effect.
        score: (J, D) Σ Wᵀ A b.
        log_det: Σ log |I + G|.
    """

    factor: Tensor
    precision: Tensor
    score: Tensor
    log_det: Tensor


def absorb_actions(gram: Tensor, moment: Tensor, effects: SharedEffects) -> AbsorbedActions:
    """Batched posteriors of actions: their factors, and the sums over them that effects need."""
    torch, size = load_torch(), gram.shape[1]
    if not gram.is_cuda:
        return _absorb_plainly(gram, moment, effects)
    work = effects.work
    n_runs, factor = len(work.first) - 1, torch.empty_like(gram)
    precision, score, log_det = gram.new_empty(n_runs, size, size), gram.new_empty(n_runs, size), gram.new_empty(n_runs)
    launch(
        compiled("posterior", "absorb_actions", size), work.blocks, 32, gram, effects.mixing, effects.mixing_of, moment,
        work.first, factor, precision, score, log_det, n_runs,
    )  # fmt: skip
    # Runs are added in order, whatever the GPU did first.
    total = gram.new_empty(effects.n_effects, size, size), gram.new_empty(effects.n_effects, size)
    for part, out in zip((precision, score), total, strict=True):
        sum_runs(part, work.bounds, work.effects, out)
    return AbsorbedActions(factor, *total, log_det.sum())


def _absorb_plainly(gram: Tensor, moment: Tensor, effects: SharedEffects) -> AbsorbedActions:
    torch, (_, size, _) = load_torch(), gram.shape
    eye = torch.eye(size, dtype=gram.dtype, device=gram.device)
    lower = torch.linalg.cholesky(gram + eye)
    factor = torch.linalg.solve_triangular(lower, eye.expand_as(lower), upper=False).mT
    W = effects.mixing[effects.mixing_of.to(torch.int64)]
    white = factor.mT @ W
    precision, score = gram.new_zeros(effects.n_effects, size, size), gram.new_zeros(effects.n_effects, size)
    which = effects.effect_of.to(torch.int64)
    precision.index_add_(0, which, (factor.mT @ gram @ W).mT @ white)
    score.index_add_(0, which, torch.einsum("mde,md->me", white, torch.einsum("mde,md->me", factor, moment)))
    log_det = 2 * torch.log(torch.einsum("mdd->md", lower)).sum()
    return AbsorbedActions(factor, precision, score, log_det)


def action_means(factor: Tensor, moment: Tensor, effects: SharedEffects, latent: Tensor) -> Tensor:
    """Means of batched posteriors: U Uᵀ (b + W z) of every action, (m, D), for z of every effect."""
    torch, (m, size, _) = load_torch(), factor.shape
    if not factor.is_cuda:
        which, mixing = effects.effect_of.to(torch.int64), effects.mixing[effects.mixing_of.to(torch.int64)]
        right = moment + torch.einsum("mde,me->md", mixing, latent[which])
        return torch.einsum("mde,me->md", factor, torch.einsum("mde,md->me", factor, right))
    out = torch.empty_like(moment)
    kernel, blocks = compiled("posterior", "action_means", size), min(m, processors(factor.device) * 64)
    launch(kernel, blocks, 32, factor, effects.mixing, effects.mixing_of, effects.effect_of, moment, latent, out, m)
    return out
