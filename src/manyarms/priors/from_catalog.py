"""The prior that suits a catalog, and its extension to actions that are added later."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any, get_args

import numpy as np
from jaxtyping import Bool, Int
from scipy import sparse

from manyarms._base.checks import Array, as_count, as_instance, check_choice
from manyarms._base.job_options import PriorKind
from manyarms._base.rng import as_generator
from manyarms.core import MISSING, Catalog, EffectGroup, HierarchicalGaussian, MixedEffects, as_embedding_column
from manyarms.errors import InputError
from manyarms.linalg.sparse_matrices import pair_rows, shape_of
from manyarms.priors.categories import from_categories, from_tags, from_taxonomy
from manyarms.priors.embeddings import from_embeddings, linear_in_embeddings
from manyarms.priors.from_matrices import independent
from manyarms.priors.prior_builder import EffectPart, as_variance, build, with_missing_effect

ENOUGH = 0.99
"""The share of the variance of embeddings that their principal components hold in a combined prior."""
MOST_COMPONENTS = 16
"""The most principal components of embeddings in a combined prior."""
MOST_EMBEDDED = 512
"""The most latent numbers, components times d, that embeddings add to a combined prior."""
MOST_DENSE_ROWS = 4096
"""The most rows of the dense matrix that remains when the effects of a combined prior are eliminated."""


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
    """The prior of one of the other builders, or of all metadata in the catalog together.

    By default, and with "combined", θ_a is the sum of the effects of the category, of the nodes of the taxonomy, of the
    tags and of the embedding of a, as far as the catalog has them. Each is a group of effects with a standard deviation
    of its own, so `learn_prior` finds out which of them matter. Embeddings enter linearly, by their first principal
    components: as many as hold 99 % of their variance, at most 16, and at most 512 latent numbers in all. If only
    embeddings are known, the default is clusters of them. A kind of metadata with which the posterior would need a
    dense matrix of more than 4,096 rows is left out, and so are embeddings that are all alike; `prior.effects` lists
    what is in.

    Args:
        catalog: The catalog of all actions; or only their number, for an independent prior.
        kind: The kind of prior; None for all metadata of the catalog together.
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
    rng = np.random.default_rng(0) if rng is None else as_generator(rng)
    if isinstance(catalog, int):
        if kind not in (None, "independent"):
            raise InputError(f"a prior of {kind} needs a catalog that has them.", flag_remedy="Pass --catalog.")
        kind, n_actions = "independent", catalog
    else:
        n_actions = as_instance("catalog", catalog, Catalog, "a Catalog").n_actions
        known = metadata_kinds(catalog)
        kind = kind or ("independent" if not known else known[0] if len(known) == 1 else "combined")
    if kind == "independent":
        variance = as_variance("action_std", action_std)
        if shared_std is None:
            return independent(n_actions, cov=variance, dim=dim)
        return build([], dim=dim, action_cov=variance, shared_std=shared_std, n_actions=n_actions)
    stds: dict[str, Any] = dict(effect_std=effect_std, action_std=action_std, shared_std=shared_std)
    if kind == "combined":
        assert isinstance(catalog, Catalog)
        return _combined(catalog, dim=dim, **stds)
    if kind == "embeddings":
        return from_embeddings(catalog, n_components, dim=dim, rng=rng, **stds)
    return _BUILDERS[kind](catalog, dim=dim, **stds)


def metadata_kinds(catalog: Catalog) -> list[PriorKind]:
    """The kinds of priors for which a catalog has metadata, each by itself."""
    return [kind for kind, column in _COLUMNS.items() if getattr(catalog, column) is not None]


def _combined(
    catalog: Catalog, *, dim: int, effect_std: float, action_std: float, shared_std: float | None
) -> HierarchicalGaussian:
    """The sum of the effects of all metadata; kinds that would make the latent solve too large are left out."""
    variance = as_variance("effect_std", effect_std)
    parts = list[EffectPart]()
    for kind in metadata_kinds(catalog):
        if kind == "embeddings":
            built = _principal(catalog, as_count("dim", dim))
        else:
            built = _weights_by_group(_BUILDERS[kind](catalog, dim=dim))
        more = [*parts, *(EffectPart(group, weights, variance) for group, weights in built)]
        if not parts or _is_solvable(MixedEffects(sparse.hstack([part.weights for part in more]), dim)):
            parts = more
    action_cov = as_variance("action_std", action_std)
    if not parts:
        return from_catalog(catalog.n_actions, dim=dim, action_std=action_std, shared_std=shared_std)
    return build(parts, dim=dim, action_cov=action_cov, shared_std=shared_std)


def is_solvable(prior: HierarchicalGaussian) -> bool:
    """True unless the posterior under a prior from a catalog would need a dense matrix of too many rows."""
    return not isinstance(prior.mixing, MixedEffects) or _is_solvable(prior.mixing)


def _is_solvable(mixing: MixedEffects) -> bool:
    if mixing.one_effect_each or mixing.latent_dim <= MOST_DENSE_ROWS:
        return True
    return len(mixing.plan(np.arange(mixing.n_actions)).core) * mixing.dim <= MOST_DENSE_ROWS


def _principal(catalog: Catalog, dim: int) -> list[tuple[EffectGroup, sparse.csr_array]]:
    """The principal components of the embeddings as a group of effects, scaled as `linear_in_embeddings` scales them.

    Without rows that differ there is no such group.
    """
    points = as_embedding_column("embeddings", catalog.embeddings)
    known = ~np.isnan(points[:, 0])
    rows = points[known] - points[known].mean(axis=0) if known.any() else points[:0]
    size = float(np.abs(rows).max(initial=0.0))
    if not size > 0:
        return []
    rows = rows / size
    values, vectors = np.linalg.eigh(rows.T @ rows)
    values, vectors = values[::-1], vectors[:, ::-1]
    share = np.cumsum(np.maximum(values, 0.0)) / np.maximum(values, 0.0).sum()
    count = min(int(np.searchsorted(share, ENOUGH)) + 1, MOST_COMPONENTS, max(1, MOST_EMBEDDED // dim))
    # A direction and its opposite are the same: the largest entry is made positive, so that results can be repeated.
    top = vectors[:, :count]
    top = top * np.sign(top[np.abs(top).argmax(axis=0), np.arange(count)])
    scores = rows @ top
    weights = np.zeros((len(points), count))
    weights[known] = scores / np.sqrt(np.mean(np.sum(scores**2, axis=1)))
    missing = np.flatnonzero(~known)
    labels = (*(f"component {i + 1}" for i in range(count)), *([MISSING] if len(missing) else []))
    group = EffectGroup("embedding", len(labels), dim, has_mean=False, labels=labels, n_missing=len(missing))
    return [(group, with_missing_effect(sparse.csr_array(weights), missing))]


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
        if group.labels is not None and "component 1" in group.labels:
            return _in_components(group, known, catalog)
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
    n_old, points = shape_of(known)[0], as_embedding_column("embeddings", catalog.embeddings)
    given, missing = known.toarray(), np.isnan(points[:, 0])
    out = np.zeros((len(points) - n_old, group.count))
    before, after = np.flatnonzero(~missing[:n_old]), n_old + np.flatnonzero(~missing[n_old:])
    labels = list(group.labels or ())
    if missing[n_old:].any():
        place = _missing_place(labels, missing, n_old, catalog)
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


def _in_components(group: EffectGroup, known: sparse.csr_array, catalog: Catalog) -> sparse.csr_array:
    """The weights of new actions on the principal components of embeddings, by the linear map of the earlier actions.

    The components lie in the span of the earlier embeddings, where that map is the only one of least norm.
    """
    n_old, points = shape_of(known)[0], as_embedding_column("embeddings", catalog.embeddings)
    given, missing, labels = known.toarray(), np.isnan(points[:, 0]), list(group.labels or ())
    count = len(labels) - (MISSING in labels)
    out = np.zeros((len(points) - n_old, group.count))
    if missing[n_old:].any():
        out[missing[n_old:], _missing_place(labels, missing, n_old, catalog)] = given[:, -1].max()
    old, new = ~missing[:n_old], ~missing[n_old:]
    centre = points[:n_old][old].mean(axis=0)
    rows, target = points[:n_old][old] - centre, given[old, :count]
    line, *_ = np.linalg.lstsq(rows, target)
    if np.abs(rows @ line - target).max() > _CLOSE * max(1.0, float(np.abs(target).max())):
        raise InputError("earlier actions have other embeddings in this catalog than at the fit.", _REFIT)
    out[new, :count] = (points[n_old:][new] - centre) @ line
    return sparse.csr_array(out)


def _missing_place(labels: list[Any], missing: Bool[Array, " K"], n_old: int, catalog: Catalog) -> int:
    """The place of the effect of missing embeddings; an error if no earlier action lacks one."""
    if MISSING not in labels:
        row = n_old + int(np.argmax(missing[n_old:]))
        raise InputError(f"action {catalog.ids[row]!r} lacks an embedding, and every earlier action has one.", _REFIT)
    return labels.index(MISSING)


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
