"""Priors in which actions of one category are alike, or actions with tags in common."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import chain, repeat
from typing import Any

import numpy as np
from jaxtyping import Int
from scipy import sparse

from manyarms._base.checks import Array
from manyarms.core import MISSING, HierarchicalGaussian, TagRow, as_column, as_tags, encode
from manyarms.errors import DataTypeError, NonFiniteError, RangeError
from manyarms.linalg.indexing import pair_rows, shape_of
from manyarms.priors.prior_builder import build_group, metadata, one_hot, with_missing, with_missing_effect


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
    codes, labels, n_missing = with_missing(encode("categories", metadata(categories, "categories", as_column)))
    weights, stds = one_hot(codes, len(labels)), (effect_std, action_std, shared_std)
    return build_group("category", labels, weights, n_missing=n_missing, dim=dim, stds=stds)


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
    column = metadata(tags, "tags", as_tags)
    weights, labels = _from_matrix(column) if isinstance(column, sparse.csr_array) else _from_rows(column)
    missing = np.flatnonzero(np.diff(weights.indptr) == 0)
    if normalise:
        weights = _normalised(weights)
    weights, stds = with_missing_effect(weights, missing), (effect_std, action_std, shared_std)
    labels = (*labels, MISSING) if len(missing) else labels
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
