"""Priors in which actions of one category are alike, or actions with tags in common, or near one another in a tree."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from itertools import chain, repeat
from typing import Any

import numpy as np
from jaxtyping import Int
from scipy import sparse

from manyarms._base.checks import Array, as_count, as_flag, as_floats, check_rows
from manyarms.core import (
    MISSING,
    Codes,
    EffectGroup,
    HierarchicalGaussian,
    TagRow,
    as_column,
    as_path_column,
    as_tag_column,
    encode,
    is_missing,
)
from manyarms.core.catalog import metadata
from manyarms.core.labels import with_missing
from manyarms.errors import DataTypeError, InputError, NonFiniteError, RangeError, ShapeError
from manyarms.linalg.sparse_matrices import one_hot, pair_rows, shape_of
from manyarms.priors.prior_builder import EffectPart, as_variance, build, build_group, with_missing_effect


def from_categories(
    categories: Any,
    *,
    dim: int,
    effect_std: float = 1.0,
    action_std: float = 1.0,
    shared_std: float | None = None,
) -> HierarchicalGaussian:
    """θ_a ~ N(ψ_c, action_std² I) for every action a of category c, with ψ_c ~ N(0, effect_std² I) in R^d.

    Two actions of one category have correlation effect_std² / (effect_std² + action_std²). Actions of different
    categories have none, unless `shared_std` adds an effect that all actions share. Actions without a category share
    the effect "(missing)" and are counted in `prior.effects`. Only categories that some action has get an effect.

    Args:
        categories: A `Catalog`, or (K,) labels; None, NaN, NaT or masked where missing.
        dim: d, the dimension of the features.
        effect_std: Standard deviation of a category's effect; `learn_prior` starts there.
        action_std: Standard deviation of an action around its category.
        shared_std: Standard deviation of an effect that all actions share; None for no such effect.

    Examples:
        >>> from manyarms.priors import from_categories
        >>> from_categories(["tea", "tea", "mug", None], dim=2)
        HierarchicalGaussian(4 actions, d=2, latent_dim=6, category: 3 (1 action without))
    """
    column = encode("categories", metadata(categories, "categories", as_column))
    codes, labels, n_missing = with_missing(column)
    weights, stds = one_hot(codes, len(labels)), (effect_std, action_std, shared_std)
    return build_group("category", column.labels, weights, n_missing=n_missing, dim=dim, stds=stds)


def from_tags(
    tags: Any,
    *,
    dim: int,
    normalise: bool = True,
    effect_std: float = 1.0,
    action_std: float = 1.0,
    shared_std: float | None = None,
) -> HierarchicalGaussian:
    """θ_a ~ N(Σ_j w_aj ψ_j, action_std² I) over the tags j of action a, with ψ_j ~ N(0, effect_std² I) in R^d.

    By default the weights of an action are scaled to Σ_j w_aj² = 1, so n equal tags have 1/√n each. Then the prior
    variance of θ_a is the same for an action with one tag and with ten, and the correlation of two actions is the
    cosine of their tags (times effect_std² / (effect_std² + action_std²)).

    An action without tags gets the effect "(missing)", with the typical weight (1 when normalised), and is counted in
    `prior.effects`. Only tags that some action has get an effect: a column without actions is left out, and `labels`
    lists those that remain.

    Args:
        tags: A `Catalog`; or for each action some labels (a repeated label counts once), or a mapping from label to
            weight; or a SciPy sparse (K, T) matrix of weights, whose labels are its column numbers. Weights must not be
            negative; a weight of zero means no tag.
        dim: d, the dimension of the features.
        normalise: True scales weights to Σ_j w_aj² = 1; False keeps them as given (labels alone weigh 1).
        effect_std: Standard deviation of a tag's effect; `learn_prior` starts there.
        action_std: Standard deviation of an action around the sum of its tags.
        shared_std: Standard deviation of an effect that all actions share; None for no such effect.

    Examples:
        >>> from manyarms.priors import from_tags
        >>> from_tags([["drama"], ["drama", "war"], []], dim=2)
        HierarchicalGaussian(3 actions, d=2, latent_dim=6, tag: 3 (1 action without))
    """
    column = metadata(tags, "tags", as_tag_column)
    weights, labels = _from_matrix(column) if isinstance(column, sparse.csr_array) else _from_rows(column)
    missing = np.flatnonzero(np.diff(weights.indptr) == 0)
    if as_flag("normalise", normalise):
        weights = _normalised(weights)
    weights, stds = with_missing_effect(weights, missing), (effect_std, action_std, shared_std)
    return build_group("tag", labels, weights, n_missing=len(missing), dim=dim, stds=stds)


def _from_matrix(matrix: sparse.csr_array) -> tuple[sparse.csr_array, tuple[Hashable, ...]]:
    weights = matrix.copy()
    weights.sum_duplicates()
    _check_weights(weights.data, pair_rows(weights), weights.indices, None)
    weights.eliminate_zeros()
    used = np.unique(weights.indices)
    return sparse.csr_array(weights[:, used]), tuple(used.tolist())


def _from_rows(rows: tuple[TagRow, ...]) -> tuple[sparse.csr_array, tuple[Hashable, ...]]:
    row = np.repeat(np.arange(len(rows)), np.fromiter(map(len, rows), dtype=np.int64, count=len(rows)))
    tags = encode("tags", np.fromiter(chain.from_iterable(rows), dtype=object, count=len(row)), row)
    n_tags = len(tags.labels)
    weights = _weights_in(rows, row, tags.codes, tags.labels)
    kept = np.flatnonzero((tags.codes >= 0) & (weights > 0))
    # One entry for each action and tag, however often a list names it.
    key, first = np.unique(row[kept] * max(n_tags, 1) + tags.codes[kept], return_index=True)
    where = (key // max(n_tags, 1), key % max(n_tags, 1))
    matrix = sparse.csr_array((weights[kept][first], where), shape=(len(rows), n_tags))
    used = np.unique(where[1])
    return sparse.csr_array(matrix[:, used]), tuple(tags.labels[j] for j in used.tolist())


def _weights_in(
    rows: tuple[TagRow, ...], row: Int[Array, " n"], codes: Int[Array, " n"], labels: tuple[Hashable, ...]
) -> Array:
    if not any(isinstance(tags, dict) for tags in rows):
        return np.ones(len(row))
    given: list[Any] = list(
        chain.from_iterable(tags.values() if isinstance(tags, dict) else repeat(1.0, len(tags)) for tags in rows)
    )
    bad = next((i for i, w in enumerate(given) if not isinstance(w, int | float | np.integer | np.floating)), None)
    if bad is not None:
        raise DataTypeError(
            f"must have numbers as weights; row {row[bad]} has {given[bad]!r} for {_label(codes[bad], labels)!r}.",
            argument="tags",
        )
    weights = np.array(given, dtype=np.float64)
    _check_weights(weights, row, codes, labels)
    return weights


def _check_weights(weights: Array, row: Array, codes: Array, labels: tuple[Hashable, ...] | None) -> None:
    for fine, error, requirement in (
        (np.isfinite(weights), NonFiniteError, "must have finite weights"),
        (weights >= 0, RangeError, "must not have negative weights"),
    ):
        if not fine.all():
            bad = int(np.argmin(fine))
            raise error(
                f"{requirement}; row {row[bad]} has {weights[bad]} for {_label(codes[bad], labels)!r}.",
                "Leave such a tag out, or split it in two.",
                argument="tags",
            )


def _label(code: Any, labels: tuple[Hashable, ...] | None) -> Hashable:
    return int(code) if labels is None else labels[code] if code >= 0 else MISSING


def _normalised(weights: sparse.csr_array) -> sparse.csr_array:
    """Every row that has weights divided by its length."""
    n_actions, n_tags = shape_of(weights)
    row = pair_rows(weights)
    # By the largest first: the square of a very large or small weight would overflow or vanish.
    largest = np.zeros(n_actions)
    np.maximum.at(largest, row, weights.data)
    scaled = weights.data / largest[row]
    length = np.sqrt(np.bincount(row, scaled**2, minlength=n_actions))
    return sparse.csr_array((scaled / length[row], weights.indices, weights.indptr), shape=(n_actions, n_tags))


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
        codes, labels = _down_paths(metadata(paths, "paths", as_path_column))
    else:
        nodes = encode("paths", metadata(paths, "categories", as_column, name="paths"))
        codes, labels = _down_from_roots(nodes, parents)
    variances = _level_variances(effect_std, codes.shape[1])
    parts: list[EffectPart] = []
    called, above = (*labels, MISSING), np.zeros(len(codes), dtype=np.int64)
    names: list[tuple[Hashable, ...]] = [()]
    for level, variance in enumerate(variances):
        missing = codes[:, level] < 0
        # A node of this level is a node above with a label.
        pairs = above * len(called) + np.where(missing, len(labels), codes[:, level])
        keys, above = np.unique(pairs, return_inverse=True)
        names = [(*names[key // len(called)], called[key % len(called)]) for key in keys.tolist()]
        n_missing = int(missing.sum())
        group = EffectGroup(
            f"level {level + 1}", len(names), as_count("dim", dim), labels=tuple(names), n_missing=n_missing
        )
        parts.append(EffectPart(group, one_hot(above, len(names)), variance))
    return build(parts, dim=dim, action_cov=as_variance("action_std", action_std), shared_std=shared_std)


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
    far, labels = up, nodes.labels
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
    return labels, up
