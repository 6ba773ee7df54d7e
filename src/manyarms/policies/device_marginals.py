"""Means and covariances of the weights of many actions, computed on a GPU from a posterior on the processor."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from manyarms._base.checks import Array
from manyarms.core import HierarchicalGaussian
from manyarms.gpu.device import Tensor, load_torch, upload

MOST_KINDS = 1 << 16
"""Kinds of actions whose covariances are kept on the GPU; with more, they are made from roots for every chunk."""


class DeviceMarginals:
    """E θ_a and Cov θ_a of a posterior, with ψ integrated out, by the formulas of `HierarchicalGaussian`.

    Actions that were never logged have those of their kind, equal to the last bit.

    Args:
        weights: The posterior of the weights.
        device: The GPU.
    """

    def __init__(self, weights: HierarchicalGaussian, device: str):
        self._weights, self._device = weights, device
        self._latent_roots = weights.mixing.roots(weights.latent_factor)

    def __call__(self, actions: Array) -> tuple[Tensor, Tensor]:
        """Means and covariances of some actions."""
        torch, weights = load_torch(), self._weights
        root = self._roots(actions)
        centre, spread = self._before(actions)
        covs = root @ root.mT + spread
        means, covs = centre.clone(), covs.expand(len(actions), *covs.shape[1:]).clone()
        eye = torch.eye(weights.dim, dtype=torch.float64, device=self._device)
        for number, where, place in weights.observed.find(actions):
            group = weights.observed.groups[number]
            parts = group.root[place], group.response[place], weights.gains[number][place]
            R, response, gains = (upload(part, self._device) for part in parts)
            at = torch.from_numpy(where).to(self._device)
            own = root if len(root) == 1 else root[at]
            gains = own @ gains.mT
            transfer = eye - gains @ R
            left = transfer @ own
            covs[at] = left @ left.mT + transfer @ spread[at] @ transfer.mT + gains @ gains.mT
            miss = response - torch.einsum("mrd,md->mr", R, centre[at])
            means[at] += torch.einsum("mdr,mr->md", gains, miss)
        return means, covs

    def _roots(self, actions: Array) -> Tensor:
        """L_a with L_a L_aᵀ = Σ_a, or one that all share."""
        covariance, d = self._weights.action_covariance, self._weights.dim
        which = actions[:1] if covariance.each is None else actions
        return upload(covariance.times_root(np.broadcast_to(np.eye(d), (len(which), d, d)), which), self._device)

    def _before(self, actions: Array) -> tuple[Tensor, Tensor]:
        """W_a E ψ + c_a, and Cov W_a ψ."""
        torch, weights = load_torch(), self._weights
        offset = upload(weights.offset_of(actions), self._device)
        if self._kinds is None:
            mean, root = weights.mixing.apply(weights.latent_mean[None], actions)[0], self._latent_roots(actions)
            spread = upload(root, self._device)
            return upload(mean, self._device) + offset, spread @ spread.mT
        means, spreads = self._kinds
        kind = torch.from_numpy(weights.mixing.kinds[0][actions]).to(self._device)
        return means[kind] + offset, spreads[kind]

    @cached_property
    def _kinds(self) -> tuple[Tensor, Tensor] | None:
        """W E ψ and Cov W ψ of every kind of action; None if there are too many."""
        weights, (_, lowest) = self._weights, self._weights.mixing.kinds
        if len(lowest) > MOST_KINDS:
            return None
        root = upload(self._latent_roots(lowest), self._device)
        return upload(weights.mixing.apply(weights.latent_mean[None], lowest)[0], self._device), root @ root.mT
