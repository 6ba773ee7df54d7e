"""The prior that suits a catalog, and what it says of actions that are added later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._arrays import Array, as_instance
from manyarms.core.catalog import Catalog
from manyarms.core.effects import EffectGroup
from manyarms.core.hierarchy import HierarchicalGaussian
from manyarms.core.mixing import MixedEffects
from manyarms.errors import InputError
from manyarms.linalg.pairs import pair_rows, shape_of
from manyarms.priors.building import as_variance
from manyarms.priors.categories import from_categories
from manyarms.priors.embeddings import from_embeddings
from manyarms.priors.independent import independent
from manyarms.priors.linear import linear_in_embeddings
from manyarms.priors.tags import from_tags
from manyarms.priors.taxonomy import from_taxonomy

Kind = Literal["categories", "taxonomy", "tags", "embeddings", "linear-embeddings", "independent"]
"""What the weights of actions have in common."""


def kind_for(catalog: Catalog) -> Kind:
    """What to build from a catalog when nothing is said: the first of categories, paths, tags, embeddings it has."""
    known: dict[Kind, Any] = {
        "categories": catalog.categories,
        "taxonomy": catalog.paths,
        "tags": catalog.tags,
        "embeddings": catalog.embeddings,
    }
    found: list[Kind] = [kind for kind, column in known.items() if column is not None]
    return found[0] if found else "independent"


def from_catalog(
    catalog: Catalog | int,
    kind: Kind | None = None,
    *,
    dim: int,
    effect_std: float = 1.0,
    action_std: float = 1.0,
    n_components: int | None = None,
    rng: np.random.Generator | None = None,
) -> HierarchicalGaussian:
    """The prior of one of the other builders, chosen by name or by what the catalog knows of its actions.

    Args:
        catalog: All actions; or only how many there are, for independent ones.
        kind: Which one; None for `kind_for(catalog)`.
        dim: d, the dimension of the features.
        effect_std: Of what actions share; `learn_prior` starts there.
        action_std: Of an action around it.
        n_components: Clusters of embeddings; None for as many as BIC chooses.
        rng: For clusters of embeddings; by default they are found with seed 0.
    """
    if kind is not None and kind not in get_args(Kind):
        raise InputError(f"kind must be one of {', '.join(get_args(Kind))}; got {kind!r}.")
    if isinstance(catalog, int):
        if kind not in (None, "independent"):
            raise InputError(f"a prior of {kind} needs a catalog that has them.")
        return independent(catalog, cov=as_variance("action_std", action_std), dim=dim)
    catalog = as_instance("catalog", catalog, Catalog, "a Catalog")
    kind = kind_for(catalog) if kind is None else kind
    if kind == "independent":
        return independent(catalog.n_actions, cov=as_variance("action_std", action_std), dim=dim)
    if kind == "embeddings":
        rng = np.random.default_rng(0) if rng is None else rng
        return from_embeddings(catalog, n_components, dim=dim, rng=rng, effect_std=effect_std, action_std=action_std)
    build = _BUILDERS[kind]
    return build(catalog, dim=dim, effect_std=effect_std, action_std=action_std)


def new_actions(prior: HierarchicalGaussian, catalog: Catalog) -> Any:
    """W of the actions that a catalog has beyond those of a prior: what `posterior.with_actions` takes.

    They must fit what the prior knows: its categories, tags, nodes and columns of embeddings. One with a category that
    no earlier action has needs a new fit, as do clusters of embeddings, which the prior does not keep.

    Args:
        prior: Made by `from_catalog` or by the builders behind it; a posterior's `prior` or `weights` too.
        catalog: The prior's actions, in their order, and new ones after them.

    Raises:
        InputError: Naming the new action and what is unknown of it.
    """
    prior = as_instance("prior", prior, HierarchicalGaussian, "a HierarchicalGaussian")
    n_new = len(as_instance("catalog", catalog, Catalog, "a Catalog")) - prior.n_actions
    if n_new < 1:
        raise InputError(f"the catalog has {len(catalog)} actions; the prior has {prior.n_actions} already.")
    if prior.latent_dim == 0:
        return np.zeros((n_new, prior.dim, 0))
    if not isinstance(prior.mixing, MixedEffects):
        raise InputError(f"what new actions share with others is not known of this prior. {_REFIT}")
    blocks, start = list[sparse.csr_array](), 0
    for group in prior.effects:
        columns = sparse.csr_array(prior.mixing.weights[:, start : start + group.count])
        blocks.append(_rows_of_new(group, columns, catalog, {one.name for one in prior.effects}))
        start += group.count
    return MixedEffects(sparse.hstack(blocks, format="csr"), prior.dim)


def _rows_of_new(group: EffectGroup, known: sparse.csr_array, catalog: Catalog, names: set[str]) -> sparse.csr_array:
    """The weights of new actions in one group of effects: built for all, and matched with those that are known."""
    n_old, n_new = shape_of(known)[0], len(catalog) - shape_of(known)[0]
    if group.name == "shared":
        return sparse.csr_array(np.ones((n_new, 1)))
    kind = _GROUPS.get(group.name.split()[0])
    if kind is None or group.labels is None:
        raise InputError(f"effects called {group.name!r} cannot be given to new actions. {_REFIT}")
    built = _BUILDERS[kind](catalog, dim=1)
    deeper = [one.name for one in built.effects if one.name not in names]
    if deeper:
        raise InputError(f"new actions have a {deeper[0]}, which no earlier one has. {_REFIT}")
    weights = _columns_of(built, group.name)
    place = {label: i for i, label in enumerate(group.labels)}
    labels = next(one.labels for one in built.effects if one.name == group.name) or ()
    where = np.array([place.get(label, -1) for label in labels], dtype=np.int64)
    new = sparse.csr_array(weights[n_old:])
    unseen = np.flatnonzero(where[new.indices] < 0)
    if len(unseen):
        row, label = n_old + pair_rows(new)[unseen[0]], labels[new.indices[unseen[0]]]
        what = f"the {group.name.split()[0]} {label!r}"
        raise InputError(f"action {catalog.ids[row]!r} has {what}, which no earlier action has. {_REFIT}")
    old = sparse.csr_array(weights[:n_old])
    scales = _scales(_placed(old, where, group.count), known)
    if scales is None:
        raise InputError(f"earlier actions have other {group.name} effects in this catalog than at the fit. {_REFIT}")
    return sparse.csr_array(_placed(new, where, group.count).multiply(scales[None]))


def _columns_of(prior: HierarchicalGaussian, name: str) -> sparse.csr_array:
    assert isinstance(prior.mixing, MixedEffects)
    start = 0
    for group in prior.effects:
        if group.name == name:
            return sparse.csr_array(prior.mixing.weights[:, start : start + group.count])
        start += group.count
    raise InputError(f"the catalog has no {name} any more. {_REFIT}")


def _placed(weights: sparse.csr_array, where: Int[Array, " j"], count: int) -> sparse.csr_array:
    """The same weights with columns in other places; what has no place is dropped."""
    kept = where[weights.indices] >= 0
    rows, columns = pair_rows(weights)[kept], where[weights.indices[kept]]
    return sparse.csr_array((weights.data[kept], (rows, columns)), shape=(shape_of(weights)[0], count))


def _scales(built: sparse.csr_array, known: sparse.csr_array) -> Float[Array, " J"] | None:
    """c with known = built diag(c), as embeddings are divided by their mean size; None when there is none."""
    square, product = (np.asarray(built.multiply(one).sum(axis=0)).reshape(-1) for one in (built, known))
    scales = np.divide(product, square, out=np.ones(len(square)), where=square > 0)
    gap = abs(known - built.multiply(scales[None]))
    return scales if gap.max() <= 1e-9 * max(1.0, float(abs(known).max())) else None


_BUILDERS: dict[str, Callable[..., HierarchicalGaussian]] = {
    "categories": from_categories,
    "taxonomy": from_taxonomy,
    "tags": from_tags,
    "linear-embeddings": linear_in_embeddings,
}
_GROUPS = {"category": "categories", "level": "taxonomy", "tag": "tags", "embedding": "linear-embeddings"}
_REFIT = "Fit again on all logs with the new catalog."
