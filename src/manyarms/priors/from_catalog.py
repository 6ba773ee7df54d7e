"""The prior that suits a catalog, and its extension to actions that are added later."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any, get_args

import numpy as np
from jaxtyping import Int
from scipy import sparse

from manyarms._base.checks import Array, as_instance, check_choice
from manyarms._base.options import PriorKind
from manyarms.core import MISSING, Catalog, EffectGroup, HierarchicalGaussian, MixedEffects, as_embeddings
from manyarms.errors import InputError
from manyarms.linalg.indexing import pair_rows, shape_of
from manyarms.priors.categories import from_categories, from_tags, from_taxonomy
from manyarms.priors.embeddings import from_embeddings, linear_in_embeddings
from manyarms.priors.from_matrices import independent
from manyarms.priors.prior_builder import as_variance, build


def from_catalog(
    catalog: Catalog | int,
    kind: PriorKind | None = None,
    *,
    dim: int,
    effect_std: float = 1.0,
    action_std: float = 1.0,
    shared_std: float | None = None,
    n_components: int | None = None,
    rng: np.random.Generator | None = None,
) -> HierarchicalGaussian:
    """The prior of one of the other builders, chosen by name or by the metadata in the catalog.

    Args:
        catalog: The catalog of all actions; or only their number, for an independent prior.
        kind: The kind of prior; None for the first of categories, paths, tags and embeddings that the catalog has.
        dim: d, the dimension of the features.
        effect_std: Standard deviation of the effects that actions share; `learn_prior` starts there.
        action_std: Standard deviation of an action around its effects.
        shared_std: Standard deviation of an effect that all actions share; None for no such effect. With it
            `learn_prior` learns this standard deviation rather than a mean per feature, which a feature that hardly
            ever occurs would leave undetermined. For clicks and counts it learns the mean of the constant feature too.
        n_components: Clusters of embeddings; None for as many as BIC chooses.
        rng: For clusters of embeddings; by default seed 0.
    """
    if kind is not None:
        check_choice("kind", kind, get_args(PriorKind))
    if isinstance(catalog, int):
        if kind not in (None, "independent"):
            raise InputError(f"a prior of {kind} needs a catalog that has them.", flag_remedy="Pass --catalog.")
        kind, n_actions = "independent", catalog
    else:
        n_actions = as_instance("catalog", catalog, Catalog, "a Catalog").n_actions
        known: list[PriorKind] = [name for name, column in _COLUMNS.items() if getattr(catalog, column) is not None]
        kind = kind or (known[0] if known else "independent")
    if kind == "independent":
        variance = as_variance("action_std", action_std)
        if shared_std is None:
            return independent(n_actions, cov=variance, dim=dim)
        return build([], dim=dim, action_cov=variance, shared_std=shared_std, n_actions=n_actions)
    stds: dict[str, Any] = dict(effect_std=effect_std, action_std=action_std, shared_std=shared_std)
    if kind == "embeddings":
        rng = np.random.default_rng(0) if rng is None else rng
        return from_embeddings(catalog, n_components, dim=dim, rng=rng, **stds)
    return _BUILDERS[kind](catalog, dim=dim, **stds)


def new_actions(prior: HierarchicalGaussian, catalog: Catalog) -> Any:
    """W of the actions that a catalog has beyond those of a prior: the argument of `posterior.with_actions`.

    New actions may have only the categories, tags, nodes and columns of embeddings that the prior knows. An action with
    a category that no earlier action has needs a new fit. So do clusters of embeddings, which the prior does not keep.

    Args:
        prior: A prior from `from_catalog` or the builders behind it, or a posterior's `prior` or `weights`.
        catalog: The prior's actions, in their order, followed by the new ones.

    Raises:
        InputError: With the new action and the metadata that the prior does not know.
    """
    prior = as_instance("prior", prior, HierarchicalGaussian, "a HierarchicalGaussian")
    n_new = len(as_instance("catalog", catalog, Catalog, "a Catalog")) - prior.n_actions
    if n_new < 1:
        raise InputError(
            f"has {len(catalog)} actions; the prior has {prior.n_actions} already.",
            "Pass a catalog with new actions after those of the prior.",
            argument="catalog",
        )
    if prior.latent_dim == 0:
        return np.zeros((n_new, prior.dim, 0))
    if not isinstance(prior.mixing, MixedEffects):
        raise InputError("this prior does not record what new actions would share with others.", _REFIT)
    names = {group.name for group in prior.effects}
    blocks = [_rows_of_new(group, columns, catalog, names) for group, columns in _weights_by_group(prior)]
    return MixedEffects(sparse.hstack(blocks, format="csr"), prior.dim)


def _rows_of_new(group: EffectGroup, known: sparse.csr_array, catalog: Catalog, names: set[str]) -> sparse.csr_array:
    """The weights of new actions in one group of effects: built for all actions, and matched with the known ones."""
    n_old, n_new = shape_of(known)[0], len(catalog) - shape_of(known)[0]
    if group.name == "shared":
        return sparse.csr_array(np.ones((n_new, 1)))
    if group.name == "embedding" and catalog.embeddings is not None:
        return _embedded(group, known, catalog, centred="shared" in names)
    kind = _GROUPS.get(group.name.split()[0])
    if kind is None or group.labels is None:
        raise InputError(f"new actions cannot get effects of the group {group.name!r}.", _REFIT)
    built = _BUILDERS[kind](catalog, dim=1)
    deeper = [effects.name for effects in built.effects if effects.name not in names]
    if deeper:
        raise InputError(f"new actions have a {deeper[0]}, which no earlier action has.", _REFIT)
    alike = [(columns, effects.labels) for effects, columns in _weights_by_group(built) if effects.name == group.name]
    if not alike:
        raise InputError(f"the catalog no longer has a {group.name}.", _REFIT)
    weights, labels = alike[0][0], alike[0][1] or ()
    place = {label: i for i, label in enumerate(group.labels)}
    where = np.array([place.get(label, -1) for label in labels], dtype=np.int64)
    new = sparse.csr_array(weights[n_old:])
    unseen = np.flatnonzero(where[new.indices] < 0)
    if len(unseen):
        row, label = n_old + pair_rows(new)[unseen[0]], labels[new.indices[unseen[0]]]
        known_as = f"the {group.name.split()[0]} {label!r}"
        raise InputError(f"action {catalog.ids[row]!r} has {known_as}, which no earlier action has.", _REFIT)
    gap = abs(_placed(sparse.csr_array(weights[:n_old]), where, group.count) - known)
    if gap.max() > _CLOSE:
        raise InputError(f"earlier actions have other {group.name} effects in this catalog than at the fit.", _REFIT)
    return _placed(new, where, group.count)


def _embedded(group: EffectGroup, known: sparse.csr_array, catalog: Catalog, centred: bool) -> sparse.csr_array:
    """The weights of new actions on the columns of embeddings, scaled and centred as those of the others were."""
    n_old, points = shape_of(known)[0], as_embeddings("embeddings", catalog.embeddings)
    given, missing = known.toarray(), np.isnan(points[:, 0])
    out = np.zeros((len(points) - n_old, group.count))
    before, after = np.flatnonzero(~missing[:n_old]), n_old + np.flatnonzero(~missing[n_old:])
    labels = list(group.labels or ())
    if missing[n_old:].any():
        if MISSING not in labels:
            row = n_old + int(np.argmax(missing[n_old:]))
            raise InputError(
                f"action {catalog.ids[row]!r} lacks an embedding, and every earlier action has one.", _REFIT
            )
        place = labels.index(MISSING)
        out[missing[n_old:], place] = given[:, place].max()
    for column in range(points.shape[1]):
        x, new = points[before, column], points[after, column]
        if column not in labels:
            if (new != (x[0] if centred else 0.0)).any():
                row = after[np.argmax(new != (x[0] if centred else 0.0))]
                raise InputError(
                    f"action {catalog.ids[row]!r} has a new value in column {column} of its embedding, which was the "
                    "same for every earlier action.",
                    _REFIT,
                )
            continue
        place = labels.index(column)
        design = np.column_stack([x, np.ones(len(x))])[:, : 1 + centred]
        line, *_ = np.linalg.lstsq(design, given[before, place])
        if np.abs(design @ line - given[before, place]).max() > _CLOSE * max(1.0, float(np.abs(given).max())):
            raise InputError("earlier actions have other embeddings in this catalog than at the fit.", _REFIT)
        out[after - n_old, place] = np.column_stack([new, np.ones(len(new))])[:, : 1 + centred] @ line
    return sparse.csr_array(out)


def _weights_by_group(prior: HierarchicalGaussian) -> list[tuple[EffectGroup, sparse.csr_array]]:
    assert isinstance(prior.mixing, MixedEffects)
    ends, weights = accumulate(group.count for group in prior.effects), prior.mixing.weights
    return [
        (group, sparse.csr_array(weights[:, end - group.count : end]))
        for group, end in zip(prior.effects, ends, strict=True)
    ]


def _placed(weights: sparse.csr_array, where: Int[Array, " j"], count: int) -> sparse.csr_array:
    """Weights with their columns moved to other places; columns without a place are dropped."""
    kept = where[weights.indices] >= 0
    rows, columns = pair_rows(weights)[kept], where[weights.indices[kept]]
    return sparse.csr_array((weights.data[kept], (rows, columns)), shape=(shape_of(weights)[0], count))


_BUILDERS: dict[str, Callable[..., HierarchicalGaussian]] = {
    "categories": from_categories,
    "taxonomy": from_taxonomy,
    "tags": from_tags,
    "linear-embeddings": linear_in_embeddings,
}
_COLUMNS: dict[PriorKind, str] = {
    "categories": "categories", "taxonomy": "paths", "tags": "tags", "embeddings": "embeddings",
}  # fmt: skip
_GROUPS = {"category": "categories", "level": "taxonomy", "tag": "tags"}
_CLOSE = 1e-9
_REFIT = "Fit again on all logs with the new catalog."
