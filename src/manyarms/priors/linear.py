"""A prior in which the weights of an action are linear in its embedding."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._arrays import Array, as_count
from manyarms.core.catalog import as_embeddings
from manyarms.core.effects import EffectGroup
from manyarms.core.hierarchy import HierarchicalGaussian
from manyarms.core.labels import MISSING
from manyarms.errors import NonFiniteError, RangeError
from manyarms.priors.building import Part, as_variance, beside_missing, build, metadata, root_mean_square


def linear_in_embeddings(
    embeddings: Any,
    *,
    dim: int,
    scale: bool = True,
    effect_std: float = 1.0,
    action_std: float = 1.0,
    shared_std: float | None = None,
) -> HierarchicalGaussian:
    """θ_a ~ N(M e_a, action_std² I) with e_a the embedding of a, and M (d x e) of entries N(0, effect_std²).

    Two actions covary by effect_std² e_aᵀ e_b: alike embeddings, alike weights. By default embeddings are divided by
    one number so that the mean of ‖e_a‖² is 1; then effect_std is the standard deviation that M gives to a coordinate
    of θ_a of a typical action.

    With `shared_std` embeddings are centred first: the shared effect is θ of the average action, and M tells actions
    apart. Without it they are not, as nothing else could carry the average. Columns of zeros (with `shared_std`:
    constant columns) are left out; `labels` has the numbers of those that remain. A constant column, without
    `shared_std`, is an intercept and stays.

    Actions whose embedding is missing share the effect "(missing)", with the root mean square of ‖e_a‖ as weight, and
    are counted in `prior.effects`.

    Args:
        embeddings: A `Catalog`, or (K, e) numbers; a row of NaN where missing.
        dim: d, the dimension of the features.
        scale: Whether to divide as said; if not, embeddings are used in their own units.
        effect_std: Of every entry of M: where `learn_prior` starts.
        action_std: Of an action around M e_a.
        shared_std: Of an effect that all actions share; None for none.
    """
    points = metadata(embeddings, "embeddings", as_embeddings)
    missing = np.isnan(points[:, 0])
    used, known = _prepared(points[~missing], centred=shared_std is not None, scale=scale)
    starts = np.concatenate([[0], np.cumsum(np.where(missing, 0, len(used)))])
    columns = np.tile(np.arange(len(used)), len(known))
    weights = sparse.csr_array((known.reshape(-1), columns, starts), shape=(len(points), len(used)))
    labels = (*used.tolist(), *([MISSING] if missing.any() else []))
    group = EffectGroup(
        "embedding", len(labels), as_count("dim", dim), has_mean=False, labels=labels, n_missing=int(missing.sum())
    )
    mixed = beside_missing(weights, np.flatnonzero(missing))
    part = Part(group, mixed, as_variance("effect_std", effect_std))
    return build([part], dim=dim, action_cov=as_variance("action_std", action_std), shared_std=shared_std)


def _prepared(rows: Float[Array, "n e"], *, centred: bool, scale: bool) -> tuple[Int[Array, " c"], Float[Array, "n c"]]:
    """The columns that say something, and the rows in them."""
    if len(rows) == 0:
        raise NonFiniteError("embeddings must have a row that is not NaN; all are missing.")
    # Asked of the values as given: centring would leave rounding where it should leave zeros.
    used = np.flatnonzero((rows != (rows[0] if centred else 0.0)).any(axis=0))
    if len(used) == 0:
        must = "differ between actions, as shared_std makes them centred" if centred else "not all be zero"
        raise RangeError(f"embeddings must {must}; all {len(rows)} rows are alike. Leave them out: see `independent`.")
    known = rows[:, used] - rows[:, used].mean(axis=0) if centred else rows[:, used]
    return used, known / (np.sqrt(len(used)) * root_mean_square(known)) if scale else known
