"""Twins: actions that nothing tells apart, such as those of one category that were never logged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Int

from manyarms._base.checks import Array
from manyarms.core.mixing import DenseMixing, MixedEffects, Mixing
from manyarms.linalg.indexing import chunks

if TYPE_CHECKING:
    from manyarms.core.hierarchical_gaussian import HierarchicalGaussian


def lowest_twins(weights: HierarchicalGaussian) -> Int[Array, " K"]:
    """The lowest action with the same distribution as each action, of those never logged; others stand alone."""
    mixing, out = weights.mixing, np.arange(weights.n_actions)
    differ = weights.action_covariance.each is not None or (weights.offset is not None and weights.offset.ndim == 2)
    ids = np.delete(out, weights.observed.actions)
    if differ or len(ids) == 0:
        return out
    # Equal rows have equal products with a random vector; the converse is checked.
    rng = np.random.default_rng(0)
    if isinstance(mixing, MixedEffects):
        products = np.asarray(mixing.weights @ rng.random(mixing.n_effects))[ids]
    elif isinstance(mixing, DenseMixing):
        _, d, p = mixing.matrices.shape
        products = mixing.matrices.reshape(len(out), d * p)[ids] @ rng.random(d * p)
    else:
        return out
    _, first, group = np.unique(products, return_index=True, return_inverse=True)
    lowest = ids[first][group]
    for part in chunks(len(ids), 1 << 14):
        same = _same_mixing(mixing, ids[part], lowest[part])
        out[ids[part][same]] = lowest[part][same]
    return out


def _same_mixing(mixing: Mixing, left: Int[Array, " m"], right: Int[Array, " m"]) -> Bool[Array, " m"]:
    """Whether the actions of each pair have the same mixing, to the last bit."""
    if isinstance(mixing, DenseMixing):
        return (mixing.matrices[left] == mixing.matrices[right]).all(axis=(1, 2))
    assert isinstance(mixing, MixedEffects)
    first, second = mixing.weights[left], mixing.weights[right]
    out = np.diff(first.indptr) == np.diff(second.indptr)
    # A difference that has no stored entry is zero: equal values at equal places.
    gap = first - second
    gap.eliminate_zeros()
    return out & (np.diff(gap.indptr) == 0)


def lowest_of_twins(twins: Int[Array, " K"], k: int, among: Int[Array, " m"] | None) -> Int[Array, " q"]:
    """The actions that need a score to choose k: at most the k lowest of each set of twins, among all or those given.

    Args:
        twins: The lowest twin of every action.
        k: How many actions are to be chosen; among twins the lower one wins.
        among: The actions to choose from, which ascend; None for all.
    """
    if k == 1 and among is None:
        return np.flatnonzero(twins == np.arange(len(twins)))
    ids = np.arange(len(twins)) if among is None else among
    order = np.argsort(twins[ids], kind="stable")
    starts = np.flatnonzero(np.diff(twins[ids][order], prepend=-1))
    rank = np.arange(len(ids)) - np.repeat(starts, np.diff(starts, append=len(ids)))
    return np.sort(ids[order[rank < k]])
