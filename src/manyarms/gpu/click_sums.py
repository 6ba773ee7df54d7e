"""Sums over clicks on a GPU: one step of the variational loop for rounds that lie on it, sorted by action."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array
from manyarms.gpu.cuda_kernels import compiled, launch, sum_runs
from manyarms.gpu.device import Tensor, load_torch, processors

MOST_ROUNDS = 512
"""Rounds of one action that one warp works through; a busier action is split between several."""


@dataclass(frozen=True, eq=False)
class SiteSums:
    """Sums over the Gaussian factors exp(l η - w η² / 2) that stand in for clicks, by action.

    Attributes:
        gram: (m, D, D) Σ w x xᵀ.
        moment: (m, D) Σ l x.
        square: (m,) Σ l² / w.
        weight: Σ w over all actions.
        weights: (n,) w of every round.
        linears: (n,) l of every round.
    """

    gram: Tensor
    moment: Tensor
    square: Tensor
    weight: Tensor
    weights: Tensor
    linears: Tensor

    def scaled(self, share: float) -> SiteSums:
        """The sums with every factor raised to the power `share`."""
        return SiteSums(*(share * part for part in self._parts))

    def __add__(self, other: SiteSums) -> SiteSums:
        return SiteSums(*(a + b for a, b in zip(self._parts, other._parts, strict=True)))

    @property
    def _parts(self) -> tuple[Tensor, ...]:
        return self.gram, self.moment, self.square, self.weight, self.weights, self.linears


class ClickRounds:
    """Rounds on a device, sorted by action.

    Args:
        contexts: (n, D), padded to the size of a kernel.
        clicks: (n,) zeros and ones, as bytes.
        counts: (n,) how often each round counts, or None.
        per_action: (m,) the number of rounds of each action, none of them zero.
        rules: Nodes and shares of a quadrature for the standard normal, and the coefficients of the logistic function
            as a sum of exponentials: the positive nodes, their shares, the coefficients.
        expectations: E g, E g' and E log g of clicks in plain PyTorch, for devices without kernels.
    """

    def __init__(
        self,
        contexts: Tensor,
        clicks: Tensor,
        counts: Tensor | None,
        per_action: Tensor,
        rules: Float[Array, " q"],
        expectations: Any = None,
    ):
        torch = load_torch()
        self.contexts, self.clicks, self.counts, self.per_action = contexts, clicks, counts, per_action
        self.rules = torch.from_numpy(np.concatenate([rules, _points_of_logarithm()])).to(contexts.device)
        self._expectations = expectations
        if contexts.is_cuda:
            self._plan()

    def _plan(self) -> None:
        """Split the rounds into items of work. The parts of a split action are added up afterwards, in order."""
        torch, counts, device = load_torch(), self.per_action, self.contexts.device
        m, parts = len(counts), -(-counts // MOST_ROUNDS)
        action = torch.repeat_interleave(torch.arange(m, device=device), parts)
        number = torch.arange(len(action), device=device) - (torch.cumsum(parts, 0) - parts)[action]
        begin = (torch.cumsum(counts, 0) - counts)[action] + number * MOST_ROUNDS
        end = torch.minimum(begin + MOST_ROUNDS, torch.cumsum(counts, 0)[action])
        split = parts[action] > 1
        target = torch.where(split, m + torch.cumsum(split, 0) - 1, action)
        self._items = [column.to(torch.int32).contiguous() for column in (action, begin, end, target)]
        busy = torch.nonzero(parts > 1)[:, 0]
        self._n_slots = m + int(split.sum())
        ends = m + torch.cumsum(parts[busy], 0)
        self._parts = torch.cat([ends.new_full((1,), m), ends]).to(torch.int32)
        self._busy = busy.to(torch.int32)

    def sums(self, means: Tensor, covariances: Tensor) -> tuple[SiteSums, Tensor]:
        """The sums of new factors, and Σ E log p with its absolute terms, from N(means, covariances) of each action."""
        if not self.contexts.is_cuda:
            return self._sums_plainly(means, covariances)
        m, size = means.shape
        new, n_items = self.contexts.new_empty, len(self._items[0])
        S, V, Q = new(self._n_slots, size, size), new(self._n_slots, size), new(self._n_slots)
        fit, weights, linears = new(n_items, 3), new(len(self.contexts)), new(len(self.contexts))
        counts = self.contexts if self.counts is None else self.counts
        kernel = compiled("clicks", "click_sums", size)
        blocks = min(n_items, processors(means.device) * (8 if size == 32 else 14) * 8)
        launch(
            kernel, blocks, 32, self.contexts, self.clicks, counts, means, covariances, *self._items, self.rules,
            S, V, Q, weights, linears, fit, n_items, int(self.counts is not None),
        )  # fmt: skip
        for out in (S, V, Q):
            sum_runs(out, self._parts, self._busy, out)
        fit = fit.sum(dim=0)
        return SiteSums(S[:m], V[:m], Q[:m], fit[2], weights, linears), fit[:2]

    def _sums_plainly(self, means: Tensor, covariances: Tensor) -> tuple[SiteSums, Tensor]:
        torch, x, m = load_torch(), self.contexts, len(means)
        owner = torch.repeat_interleave(torch.arange(m, device=x.device), self.per_action)
        counts = torch.ones(len(x), dtype=x.dtype, device=x.device) if self.counts is None else self.counts
        mean = (x * means[owner]).sum(dim=1)
        variance = torch.einsum("nd,nde,ne->n", x, covariances[owner], x).clamp_min(0.0)
        weight, linear, log_density = self._expectations(self.clicks, mean, variance)
        S, V = x.new_zeros(m, *2 * x.shape[1:]), x.new_zeros(m, x.shape[1])
        S.index_add_(0, owner, torch.einsum("n,nd,ne->nde", counts * weight, x, x))
        V.index_add_(0, owner, (counts * linear)[:, None] * x)
        Q = x.new_zeros(m).index_add_(0, owner, counts * linear**2 / weight)
        fit = counts * log_density
        return SiteSums(S, V, Q, (counts * weight).sum(), weight, linear), torch.stack([fit.sum(), fit.abs().sum()])


def _points_of_logarithm() -> Float[Array, " q"]:
    """1 / c and log c for 64 points c between 1 and 2, in turn: the kernel's table of logarithms."""
    c = 1.0 + (np.arange(64) + 0.5) / 64
    return np.column_stack([1.0 / c, np.log(c)]).reshape(-1)
