"""A prior in which actions are the more alike, the longer they share a path down a tree."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from itertools import chain
from typing import Any

import numpy as np
from jaxtyping import Int

from manyarms._base.checks import Array, as_count, as_floats, check_rows
from manyarms.core import MISSING, Codes, EffectGroup, HierarchicalGaussian, as_column, as_paths, encode, is_missing
from manyarms.errors import DataTypeError, InputError, RangeError, ShapeError
from manyarms.priors.prior_builder import EffectPart, as_variance, build, metadata, one_hot


def from_taxonomy(
    paths: Any,
    parents: Mapping[Any, Any] | None = None,
    *,
    dim: int,
    effect_std: Any = 1.0,
    action_std: float = 1.0,
    shared_std: float | None = None,
) -> HierarchicalGaussian:
    """θ_a ~ N(Σ_l ψ_{node of a at level l}, action_std² I), with ψ ~ N(0, effect_std_l² I) for the nodes of level l.

    Two actions covary by Σ effect_std_l² over the levels at which they are in the same node. A node is identified by
    its whole path, so "Other" under two parents is two nodes. Each level is a group of effects of its own ("level 1",
    the top, "level 2", ...), so that `learn_prior` learns how much each level matters.

    An action whose path ends early gets, at every level below, the effect "(missing)" of the deepest node it is known
    to be in: every action sums one effect per level, and a short path does not make its prior narrower. The group of a
    level counts such actions. Nodes without actions get no effect.

    Args:
        paths: A `Catalog`; or for each action its labels from the top down (lists of any lengths, or a (K, depth) array
            with missing values at the end). With `parents`: the node of each action, (K,) labels, or a `Catalog`, whose
            categories are then the nodes.
        parents: The parent of each node, None for a root. Names of nodes are then unique in the tree.
        dim: d, the dimension of the features.
        effect_std: Standard deviation of a node's effect, one number or one per level; `learn_prior` starts there.
        action_std: Standard deviation of an action around the sum of its nodes.
        shared_std: Standard deviation of an effect that all actions share; None for no such effect.

    Raises:
        InputError: For a label below a missing one, an unknown parent or node, or a cycle; the message names it.

    Examples:
        >>> from manyarms.priors import from_taxonomy
        >>> from_taxonomy([["food", "tea"], ["food", "rice"], ["kitchen"]], dim=2)
        HierarchicalGaussian(3 actions, d=2, latent_dim=10, level 1: 2, level 2: 3 (1 action without))
    """
    if parents is None:
        codes, labels = _down_paths(metadata(paths, "paths", as_paths))
    else:
        nodes = encode("paths", metadata(paths, "categories", as_column, name="paths"))
        codes, labels = _down_from_roots(nodes, parents)
    variances = _level_variances(effect_std, codes.shape[1])
    parts: list[EffectPart] = []
    above, names = np.zeros(len(codes), dtype=np.int64), [()]
    for level, variance in enumerate(variances):
        above, names = _nodes(above, names, codes[:, level], labels)
        n_missing = int(np.sum(codes[:, level] < 0))
        group = EffectGroup(
            f"level {level + 1}", len(names), as_count("dim", dim), labels=tuple(names), n_missing=n_missing
        )
        parts.append(EffectPart(group, one_hot(above, len(names)), variance))
    return build(parts, dim=dim, action_cov=as_variance("action_std", action_std), shared_std=shared_std)


def _nodes(
    above: Int[Array, " K"],
    names: list[tuple[Hashable, ...]],
    codes: Int[Array, " K"],
    labels: tuple[Hashable, ...],
) -> tuple[Int[Array, " K"], list[tuple[Hashable, ...]]]:
    """The nodes of the next level, each a node above with a label, and the path of each."""
    called, base = (*labels, MISSING), len(labels) + 1
    key = above * base + np.where(codes < 0, len(labels), codes)
    keys, node = np.unique(key, return_inverse=True)
    paths = [
        (*names[up], called[code]) for up, code in zip(*map(np.ndarray.tolist, np.divmod(keys, base)), strict=True)
    ]
    return node.reshape(-1), paths


def _level_variances(effect_std: Any, depth: int) -> list[float]:
    stds = as_floats("effect_std", effect_std, ndim=(0, 1))
    requirement = "must be at least 0 and at most 1e+100"
    remedy = "Pass standard deviations."
    check_rows("effect_std", stds, lambda s: (s >= 0) & (s <= 1e100), RangeError, requirement, remedy)
    if stds.ndim == 1 and len(stds) != depth:
        raise ShapeError(
            f"must be one number or one for each of {depth} levels; got {len(stds)}.", argument="effect_std"
        )
    return (np.broadcast_to(stds, (depth,)) ** 2).tolist()


def _down_paths(paths: Array | tuple[tuple[Hashable, ...], ...]) -> tuple[Int[Array, "K depth"], tuple[Hashable, ...]]:
    """The label of each action at each level as integers, -1 where missing, as deep as any label goes."""
    if isinstance(paths, np.ndarray):
        n, width = paths.shape
        nodes = encode("paths", paths.reshape(-1), np.repeat(np.arange(n), width))
        codes = nodes.codes.reshape(n, width)
    else:
        lengths = np.fromiter(map(len, paths), dtype=np.int64, count=len(paths))
        row = np.repeat(np.arange(len(paths)), lengths)
        nodes = encode("paths", np.fromiter(chain.from_iterable(paths), dtype=object, count=len(row)), row)
        codes = np.full((len(paths), int(lengths.max())), -1, dtype=np.int64)
        codes[row, np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)] = nodes.codes
    known = codes >= 0
    gaps = known[:, 1:] & ~known[:, :-1]
    if gaps.any():
        row, level = np.argwhere(gaps)[0]
        raise InputError(
            f"must be known from the top down; row {row} has {nodes.labels[codes[row, level + 1]]!r} at level "
            f"{level + 2} below a missing label.",
            "Fill the gap, or cut the path there.",
            argument="paths",
        )
    # At least one level, so that a catalog without any path is one node.
    depth = max(1, int(known.sum(axis=1).max()))
    return codes[:, :depth] if codes.shape[1] else np.full((len(codes), 1), -1), nodes.labels


def _down_from_roots(nodes: Codes, parents: Any) -> tuple[Int[Array, "K depth"], tuple[Hashable, ...]]:
    """The labels of `_down_paths`, from the node of each action and the parent of each node."""
    labels, up = _tree(parents)
    number = {label: i for i, label in enumerate(labels)}
    # The last entry stands for an action whose node is missing.
    node = np.array([*(number.get(label, -2) for label in nodes.labels), -1])
    if (node == -2).any():
        code = int(np.argmax(node == -2))
        raise InputError(
            f"must be nodes of parents; row {int(np.argmax(nodes.codes == code))} has {nodes.labels[code]!r}.",
            "Add it with its parent, None for a root.",
            argument="paths",
        )
    ancestors = [node]
    while (ancestors[-1] >= 0).any():
        ancestors.append(np.where(ancestors[-1] >= 0, up[ancestors[-1]], -1))
    depth = np.sum(np.stack(ancestors) >= 0, axis=0)
    codes = np.full((len(node), max(1, len(ancestors) - 1)), -1, dtype=np.int64)
    for steps, ancestor in enumerate(ancestors):
        has = np.flatnonzero(ancestor >= 0)
        codes[has, depth[has] - 1 - steps] = ancestor[has]
    return codes[nodes.codes], labels


def _tree(parents: Any) -> tuple[tuple[Hashable, ...], Int[Array, " n"]]:
    """The nodes, and the number of the parent of each, -1 at a root; an error if it is not a tree."""
    if not isinstance(parents, Mapping):
        raise DataTypeError(f"must be a mapping from node to parent; got {type(parents).__name__}.", argument="parents")
    pairs = [(node, parent) for node, parent in parents.items() if not is_missing(node)]
    nodes = encode("parents", np.fromiter((node for node, _ in pairs), dtype=object, count=len(pairs)))
    number = {label: i for i, label in enumerate(nodes.labels)}
    # One more entry, as a mapping may be empty; -1 reads it.
    up = np.full(len(pairs) + 1, -1, dtype=np.int64)
    for code, (node, parent) in zip(nodes.codes.tolist(), pairs, strict=True):
        if is_missing(parent):
            continue
        if parent not in number:
            raise InputError(
                f"must name every node; {node!r} has the parent {parent!r}, which is not there.",
                f"Add {parent!r} with its own parent, None for a root.",
                argument="parents",
            )
        up[code] = number[parent]
    _check_acyclic(up, nodes.labels)
    return nodes.labels, up


def _check_acyclic(up: Int[Array, " n"], labels: tuple[Hashable, ...]) -> None:
    far = up
    # After t rounds `far` is 2^t steps up: past every root, or on a cycle.
    for _ in range(len(up).bit_length()):
        far = np.where(far >= 0, far[far], -1)
    if (far >= 0).any():
        cycle = [int(far[np.argmax(far >= 0)])]
        while int(up[cycle[-1]]) != cycle[0]:
            cycle.append(int(up[cycle[-1]]))
        shown = [repr(labels[i]) for i in cycle[:10]] + ["..."] * (len(cycle) > 10) + [repr(labels[cycle[0]])]
        raise InputError(
            f"must have no cycle; got {' -> '.join(shown)}.", "Give the root the parent None.", argument="parents"
        )
