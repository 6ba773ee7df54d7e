"""Rounds in memory, sorted by action once, so that every step of the variational loop is a few batched products."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, frozen
from manyarms.core import HierarchicalGaussian, ObservedGroup, ObservedRows
from manyarms.errors import NumericalError
from manyarms.linalg.factor_and_solve import gram, gram_root
from manyarms.linalg.indexing import group_by
from manyarms.linalg.threads import for_each

PerRound = Float[Array, " n"]


class _ActionBlock(NamedTuple):
    """Some actions with c rounds each.

    Attributes:
        actions: Their numbers, and `members` their places among all actions of the log.
        rows: The rounds, as a slice of the sorted ones.
        contexts: Their features.
        rank: The number of rows that the rounds of an action become, at most d, and `place` where they are kept.
    """

    actions: Int[Array, " b"]
    members: Int[Array, " b"]
    rows: slice
    contexts: Float[Array, "b c d"]
    rank: int
    place: Int[Array, " b"]


class RoundsByAction:
    """Rounds in blocks of actions that were logged equally often.

    Args:
        contexts: The features of the rounds.
        actions: Their actions.
    """

    def __init__(self, contexts: Float[Array, "n d"], actions: Int[Array, " n"]):
        groups, d = group_by(actions), contexts.shape[1]
        parts = list(groups.blocks(np.arange(len(groups.keys)), limit=BLOCK))
        self._order = np.concatenate([np.empty(0, dtype=np.int64), *(index.reshape(-1) for _, index in parts)])
        self._actions, ranks = groups.keys, np.minimum(groups.counts, d)
        self._members = {rank: np.flatnonzero(ranks == rank) for rank in np.unique(ranks).tolist()}
        self._blocks, start, contexts = list[_ActionBlock](), 0, contexts[self._order]
        for members, index in parts:
            rows, rank = slice(start, start + index.size), min(index.shape[1], d)
            place = np.searchsorted(self._members[rank], members)
            block = contexts[rows].reshape(*index.shape, d)
            self._blocks.append(_ActionBlock(groups.keys[members], members, rows, block, rank, place))
            start = rows.stop

    def observe(self, weight: PerRound, linear: PerRound) -> ObservedRows:
        """The observed rows of Gaussian factors exp(linear η - weight η² / 2), one per round; weights are positive.

        Their residual and normaliser are those of no rounds, since such factors are no densities of rewards.
        """
        root = np.sqrt(weight[self._order])
        response, d = linear[self._order] / root, self._blocks[0].contexts.shape[2] if self._blocks else 0
        arrays = {
            rank: (np.empty((len(members), rank, d)), np.empty((len(members), rank)))
            for rank, members in self._members.items()
        }

        def work(block: _ActionBlock) -> None:
            shape, out = block.contexts.shape[:2], arrays[block.rank]
            with np.errstate(over="ignore", invalid="ignore"):  # an overflow is reported where the rows are used
                rows, own = block.contexts * root[block.rows].reshape(*shape, 1), response[block.rows].reshape(shape)
                if shape[1] >= d:
                    rows, own = _folded(rows, own, block.actions)
            out[0][block.place], out[1][block.place] = rows, own

        for_each(work, self._blocks)
        groups = [ObservedGroup(self._actions[self._members[rank]], *map(frozen, arrays[rank])) for rank in arrays]
        return ObservedRows(tuple(groups), 0.0, 0.0)

    def predict(self, weights: HierarchicalGaussian, *, with_variance: bool) -> tuple[PerRound, PerRound]:
        """Mean and variance of the predictor φ(x)ᵀ θ_a of every round; variances of zero if they are not wanted."""
        sorted_mean, sorted_variance = np.empty(len(self._order)), np.zeros(len(self._order))
        means, variances = weights.action_mean(self._actions), weights.variances()

        def work(block: _ActionBlock) -> None:
            with np.errstate(over="ignore", invalid="ignore"):
                sorted_mean[block.rows] = (block.contexts @ means[block.members][:, :, None]).reshape(-1)
                if with_variance:
                    sorted_variance[block.rows] = variances(block.contexts, block.actions).reshape(-1)

        for_each(work, self._blocks)
        mean, variance = np.empty_like(sorted_mean), np.empty_like(sorted_variance)
        mean[self._order], variance[self._order] = sorted_mean, sorted_variance
        return mean, variance


def _folded(
    rows: Float[Array, "b c d"], response: Float[Array, "b c"], actions: Int[Array, " b"]
) -> tuple[Float[Array, "b d d"], Float[Array, "b d"]]:
    """The d rows that carry the same information as the c rows of each action."""
    squares, moment = gram(rows), (rows.swapaxes(1, 2) @ response[:, :, None])[:, :, 0]
    finite = np.isfinite(squares).all(axis=(1, 2)) & np.isfinite(moment).all(axis=1)
    if not finite.all():
        action = int(actions[np.argmin(finite)])
        raise NumericalError(f"sums over the rounds of action {action} overflow.", "Rescale contexts or rewards.")
    return gram_root(squares, moment)


BLOCK = 1 << 12
"""Rounds worked on at a time: few enough to stay in the cache."""
