"""Scores and draws whose best actions are found on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array
from manyarms.core import HierarchicalGaussian
from manyarms.errors import InputError
from manyarms.gpu.device import Tensor, load_torch, require_memory, upload
from manyarms.gpu.device_draws import SIZE, DeviceDraws, DrawnActions
from manyarms.gpu.device_top_k import DeviceBounds, DeviceMeans, DeviceRanking
from manyarms.policies.device_marginals import DeviceMarginals
from manyarms.posterior.action_scores import ActionWeights, LinearScores, Scores

ROWS_ON_DEVICE = 1 << 17
"""Contexts that a policy sends to a GPU at a time."""


class DeviceScores(Scores):
    """Scores that are ranked on a GPU; those of single pairs are computed on the processor.

    Args:
        scores: The scores.
        ranking: Puts some actions on the GPU, ready to be ranked.
    """

    def __init__(self, scores: Scores, ranking: Callable[[Array], DeviceRanking]):
        self._scores, self._ranking, self.n_actions = scores, ranking, scores.n_actions

    def score_pairs(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        return self._scores.score_pairs(contexts, actions)

    def score_all(self, contexts: Float[Array, "n d"]) -> Float[Array, "n K"]:
        return self._scores.score_all(contexts)

    def best(self, contexts: Float[Array, "n d"], k: int, among: Int[Array, " m"] | None) -> Int[Array, "n k"]:
        if among is None:
            return self._everyone.best(contexts, k)
        return among[self._ranking(among).best(contexts, k)]

    @cached_property
    def _everyone(self) -> DeviceRanking:
        return self._ranking(np.arange(self.n_actions))


def means_on_device(scores: Scores, device: str) -> DeviceScores:
    """Expected rewards that are linear in the features, ranked on a GPU."""
    if not isinstance(scores, LinearScores):
        raise InputError(
            "a GPU ranks expected rewards that are linear in the features.",
            'Use device="cpu" for this likelihood, or Pessimistic, which ranks its predictors.',
            argument="device",
        )
    return DeviceScores(scores, lambda actions: DeviceMeans(scores.means[actions], device))


def bounds_on_device(scores: Scores, weights: ActionWeights, radius: float, device: str) -> DeviceScores:
    """Lower bounds on φ(x)ᵀ θ_a, ranked on a GPU."""

    def marginals(actions: Array) -> tuple[Any, Any]:
        return weights.action_mean()[actions], weights.action_cov(actions)

    given = DeviceMarginals(weights, device) if isinstance(weights, HierarchicalGaussian) else marginals

    def ranking(actions: Array) -> DeviceRanking:
        return DeviceBounds(lambda part: given(actions[part]), (len(actions), weights.dim), radius, device)

    return DeviceScores(scores, ranking)


class DeviceScoreDraws:
    """Scores of actions under draws of Gaussian weights on a GPU: θ_a given the draws of ψ.

    Args:
        weights: Their distribution. All actions have one Σ_a before the data, which is positive definite.
        latent: The draws of ψ.
        seed: The seed of the noise of θ_a given ψ.
        device: The GPU.
    """

    def __init__(self, weights: HierarchicalGaussian, latent: Float[Array, "s p"], seed: int, device: str):
        root = _shared_root(weights)
        self._device, self._root = device, upload(root, device)
        kind, lowest = weights.mixing.kinds
        needed = 8 * (weights.n_actions * (6 * SIZE**2 + 4 * SIZE) + 3 * len(latent) * len(lowest) * SIZE)
        fewer = 'Use fewer draws, or device="cpu".'
        require_memory(device, needed, f"{len(latent):,} draws of {weights.n_actions:,} actions", fewer)
        self._order = np.argsort(kind, kind="stable")
        shared = np.linalg.solve(root, weights.mixing.apply(latent, lowest).reshape(-1, weights.dim).T).T
        factor, constant = self._solve(weights)
        actions = DrawnActions(
            factor, constant, upload(kind[self._order], device),
            upload(shared.reshape(len(latent), -1, weights.dim), device),
        )  # fmt: skip
        self.draws = DeviceDraws(actions, seed)

    def best(self, contexts: Float[Array, "n d"]) -> Int[Array, "n s"]:
        """The best action of each context under every draw."""
        return self._order[self.draws.best(upload(contexts, self._device) @ self._root)]

    def _solve(self, weights: HierarchicalGaussian) -> tuple[Tensor, Tensor]:
        """U and g of all actions, in order of their kinds."""
        torch, K, d = load_torch(), weights.n_actions, weights.dim
        place = np.empty(K, dtype=np.int64)
        place[self._order] = np.arange(K)
        gram = torch.zeros(K, d, d, dtype=torch.float64, device=self._device)
        offset = np.linalg.solve(self._root.cpu().numpy(), weights.offset_of(self._order).reshape(-1, d).T).T
        right = upload(offset, self._device).expand(K, d).contiguous()
        for group in weights.observed.groups:
            where = torch.from_numpy(place[group.actions]).to(self._device)
            rows = upload(group.root, self._device) @ self._root
            gram[where] = rows.mT @ rows
            right[where] += torch.einsum("mrd,mr->md", rows, upload(group.response, self._device))
        eye, factors = torch.eye(d, dtype=torch.float64, device=self._device), []
        for part in gram.split(1 << 17):
            lower = torch.linalg.cholesky(part + eye)
            factors.append(torch.linalg.solve_triangular(lower, eye.expand_as(lower), upper=False).mT.contiguous())
        factor = torch.cat(factors)
        return factor, torch.einsum("mde,me->md", factor, torch.einsum("mde,md->me", factor, right))


def _shared_root(weights: HierarchicalGaussian) -> Float[Array, "d d"]:
    """L with L Lᵀ = Σ_a, the same for all actions."""
    covariance, d = weights.action_covariance, weights.dim
    problem = ""
    if d > SIZE:
        problem = f"draws at most {SIZE} features; here there are {d}"
    elif covariance.each is not None:
        problem = "draws weights of actions that have one action_cov in common"
    else:
        root = covariance.times_root(np.eye(d)[None], np.zeros(1, dtype=np.int64))[0]
        if np.linalg.matrix_rank(root) == d:
            return root
        problem = "draws weights with a positive definite action_cov"
    raise InputError(f"a GPU {problem}.", 'Use device="cpu".', argument="device")
