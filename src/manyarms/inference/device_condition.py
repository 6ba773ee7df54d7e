"""Conditioning on the rows of many actions on a GPU; the latent solve stays on the processor.

The formulas are those of `condition.absorb_groups`. What actions of one kind say about ψ is added up on the GPU, and
enters the evidence on ψ as rows of one action of that kind.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, frozen
from manyarms.core import HierarchicalGaussian, ObservedGroup, ObservedRows
from manyarms.gpu.cuda_kernels import add_by_key
from manyarms.gpu.device import Tensor, load_torch, require_memory, upload
from manyarms.inference.condition import UNEVEN, absorb_groups, solve
from manyarms.inference.latent_posterior import LatentEvidence
from manyarms.linalg.factor_and_solve import gram_root

FEW_ACTIONS, MOST_KINDS = 4096, 1 << 16
"""Fewer actions, and more kinds of them, are conditioned on by the processor."""


def condition_on_device(prior: HierarchicalGaussian, observed: ObservedRows, device: str) -> HierarchicalGaussian:
    """Condition an unconditioned prior on rows: the same posterior as that of `condition_on`, up to rounding."""
    _, lowest = prior.mixing.kinds
    if sum(len(group.actions) for group in observed.groups) < FEW_ACTIONS or len(lowest) > MOST_KINDS:
        return solve(prior, observed)[0]

    def absorb(
        prior: HierarchicalGaussian, observed: ObservedRows, evidence: LatentEvidence
    ) -> tuple[tuple[Array, ...], float]:
        sums = _AbsorbedKinds(prior, device)
        gains = [sums.add(group) for group in observed.groups]
        if not all(part is not None for part in gains):
            # Rows that outweigh the prior in some directions and not in others need singular values.
            return absorb_groups(prior, observed, evidence)
        sums.tell(evidence)
        return tuple(frozen(part) for part in gains if part is not None), sums.log_det

    return solve(prior, observed, absorb)[0]


class _AbsorbedKinds:
    """Sums over the actions of each kind: Σ H_aᵀ H_a, Σ H_aᵀ (h_a - H_a c_a), and Σ ‖h_a - H_a c_a‖² of all."""

    def __init__(self, prior: HierarchicalGaussian, device: str):
        torch, d = load_torch(), prior.dim
        self._prior, self._device, (self._kind, self._lowest) = prior, device, prior.mixing.kinds
        need = 8 * (8 * _CHUNK + len(self._lowest)) * d * (d + 1)
        require_memory(device, need, "conditioning on a chunk of actions", 'Use device="cpu".')
        self._centre = upload(prior.mixing.apply(prior.latent_mean[None], self._lowest)[0], device)
        self._sums = torch.zeros(len(self._lowest), d, d + 1, dtype=torch.float64, device=device)
        self._misfit, self.log_det = 0.0, 0.0

    def add(self, group: ObservedGroup) -> Float[Array, "m r d"] | None:
        """Add the actions of a group, and return their gains; None where their factors cannot be trusted."""
        torch, d = load_torch(), self._prior.dim
        out = np.empty_like(group.root)
        for start in range(0, len(out), _CHUNK):
            part = slice(start, start + _CHUNK)
            actions = group.actions[part]
            rows = upload(np.concatenate([group.root[part], group.response[part][:, :, None]], axis=2), self._device)
            root = self._root(actions)
            Z = rows[:, :, :d] @ root
            eye = torch.eye(Z.shape[1], dtype=torch.float64, device=self._device)
            lower, failed = torch.linalg.cholesky_ex(Z @ Z.mT + eye)
            pivots = torch.einsum("mrr->mr", lower)
            even = (pivots.amax(dim=1) <= UNEVEN * pivots.amin(dim=1)).all()
            if bool((failed != 0).any()) or not bool(even):
                return None
            white = torch.linalg.solve_triangular(lower, rows, upper=False)
            H = white[:, :, :d]
            gains = torch.linalg.solve_triangular(lower.mT, H @ root, upper=True)
            torch.from_numpy(out[part]).copy_(gains)
            kind = torch.from_numpy(self._kind[actions]).to(self._device)
            centre = self._centre[kind] + upload(self._prior.offset_of(actions), self._device)
            miss = white[:, :, d] - torch.einsum("mrd,md->mr", H, centre)
            add_by_key(self._sums, kind, H.mT @ torch.cat([H, miss[:, :, None]], dim=2))
            self._misfit += float((miss * miss).sum())
            self.log_det += 2 * float(torch.log(pivots).sum())
        return out

    def _root(self, actions: Array) -> Tensor:
        covariance, d = self._prior.action_covariance, self._prior.dim
        which = actions[:1] if covariance.each is None else actions
        return upload(covariance.times_root(np.broadcast_to(np.eye(d), (len(which), d, d)), which), self._device)

    def tell(self, evidence: LatentEvidence) -> None:
        """Add these sums to the evidence on ψ, as the rows of one action of each kind."""
        sums, d = self._sums.cpu().numpy(), self._prior.dim
        seen = np.flatnonzero(np.einsum("kdd->k", sums[:, :, :d]) > 0)
        rows, miss = gram_root(sums[seen][:, :, :d], sums[seen][:, :, d])
        evidence.add(rows, miss, self._lowest[seen])
        # The rest of Σ miss² depends on no weights.
        left = np.sqrt(max(0.0, self._misfit - float(np.sum(miss**2))))
        evidence.add(np.zeros((1, 1, d)), np.full((1, 1), left), self._lowest[:1])


_CHUNK = 1 << 17
