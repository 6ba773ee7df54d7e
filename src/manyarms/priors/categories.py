"""A prior in which actions of one category are alike."""

from __future__ import annotations

from typing import Any

from manyarms._arrays import as_count
from manyarms.core.catalog import as_column, encode
from manyarms.core.effects import EffectGroup
from manyarms.core.hierarchy import HierarchicalGaussian
from manyarms.priors.building import Part, as_variance, build, metadata, one_hot, with_missing


def from_categories(
    categories: Any,
    *,
    dim: int,
    effect_std: float = 1.0,
    action_std: float = 1.0,
    shared_std: float | None = None,
) -> HierarchicalGaussian:
    """θ_a ~ N(ψ_c, action_std² I) for every action a of category c, with ψ_c ~ N(0, effect_std² I) in R^d.

    Two actions of one category have correlation effect_std² / (effect_std² + action_std²); of two, none, unless
    `shared_std` adds an effect that all actions share. Actions without a category share the effect "(missing)" and are
    counted in `prior.effects`. There are effects for the categories that some action has, and for no others.

    Args:
        categories: A `Catalog`, or (K,) labels; None, NaN, NaT or masked where missing.
        dim: d, the dimension of the features.
        effect_std: Of every category's effect: where `learn_prior` starts.
        action_std: Of an action around its category.
        shared_std: Of an effect that all actions share; None for none.

    Examples:
        >>> from manyarms.priors import from_categories
        >>> from_categories(["tea", "tea", "mug", None], dim=2)
        HierarchicalGaussian(4 actions, d=2, latent_dim=6, category: 3 (1 action without))
    """
    found = encode("categories", metadata(categories, "categories", as_column))
    codes, labels, n_missing = with_missing(found)
    group = EffectGroup("category", len(labels), as_count("dim", dim), labels=labels, n_missing=n_missing)
    part = Part(group, one_hot(codes, len(labels)), as_variance("effect_std", effect_std))
    return build([part], dim=dim, action_cov=as_variance("action_std", action_std), shared_std=shared_std)
