"""Priors from embeddings: actions of one cluster are alike, or weights are linear in the embedding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

from manyarms._base.checks import Array, as_count, as_flag, as_scalar, check_choice
from manyarms._base.rng import split
from manyarms.core import MISSING, EffectGroup, HierarchicalGaussian, as_embedding_column
from manyarms.core.catalog import metadata
from manyarms.errors import InputError, NonFiniteError, RangeError
from manyarms.linalg.indexing import chunks
from manyarms.priors.clusters import Clusters, find_clusters, gaussian_mixture, k_means
from manyarms.priors.prior_builder import EffectPart, build, build_group, with_missing_effect

NEGLIGIBLE = 1e-8
"""Memberships below this are dropped, so that most actions have few weights."""


def from_embeddings(
    embeddings: Any,
    n_components: int | None = None,
    *,
    dim: int | None = None,
    rng: np.random.Generator,
    method: Literal["gmm", "kmeans"] = "gmm",
    action_variance: Literal["shared", "own"] = "shared",
    effect_std: float | None = None,
    action_std: float | None = None,
    shared_std: float | None = None,
    max_rows: int = 1000,
    max_components: int = 20,
    variance_floor: float = 1e-6,
) -> HierarchicalGaussian:
    """θ_a ~ N(Σ_c w_ac ψ_c, Σ_a), with w_a the probabilities that a's embedding belongs to each cluster c.

    Clusters are the components of a mixture of diagonal Gaussians, fitted to at most `max_rows` rows, or those of
    k-means, where every action belongs to exactly one.

    With `dim`: only the weights come from the embeddings; ψ_c ~ N(0, effect_std² I) in R^d and Σ_a = action_std² I.
    Constant columns carry no information and are left out.

    Without `dim`: embeddings are guesses at θ_a itself, in R^d (the paper's recipe for MovieLens, where they are a
    factorisation of the ratings). Then ψ_c ~ N(mean, diag(variances)) of component c, and Σ_a is the mean of the
    components' variances ("shared"), or their mean weighted by w_a ("own", a d x d matrix for each action). A column
    that is constant, or nearly so within a component, gets the variance floor.

    Actions whose embedding is missing share the effect "(missing)" with weight 1 (without `dim`: around the mean of
    all rows, with their variance), and are counted in `prior.effects`.

    Args:
        embeddings: A `Catalog`, or (K, e) numbers; a row of NaN where missing.
        n_components: C; by default BIC chooses from 1 ... max_components, up to a fifth of the number of distinct rows.
        dim: d, the dimension of the features, or None when embeddings live in the space of θ.
        rng: Draws the rows and the seeds of the fits.
        method: "gmm" for a Gaussian mixture with soft weights, or "kmeans".
        action_variance: Without `dim`: "shared" or "own".
        effect_std: With `dim`: standard deviation of a cluster's effect; `learn_prior` starts there; 1 by default.
        action_std: With `dim`: standard deviation of an action around its clusters; 1 by default.
        shared_std: Standard deviation of an effect that all actions share; None for no such effect.
        max_rows: The most rows, drawn at random, that the clusters are fitted to.
        max_components: The most that BIC may choose.
        variance_floor: Added to every variance, in units of the mean variance of the columns.

    Raises:
        InputError: For a row with some NaN, fewer distinct rows than components, or embeddings that are all the same
            without `dim`.
        NumericalError: When the mixture does not converge.
    """
    points, known = _known_points(embeddings)
    _check_options(dim, method, action_variance, effect_std, action_std)
    rows_rng, mixture_rng = split(rng, "rows", "mixture")
    space = _space(points, known, as_count("max_rows", max_rows), rows_rng, in_theta=dim is None)
    clusters = find_clusters(
        space.scaled(points[space.rows]),
        None if n_components is None else as_count("n_components", n_components),
        fit=gaussian_mixture if method == "gmm" else k_means,
        max_components=as_count("max_components", max_components),
        floor=as_scalar("variance_floor", variance_floor, above=0.0),
        rng=mixture_rng,
    )
    weights = _memberships(points, known, space, clusters)
    n_missing = len(known) - int(known.sum())
    if dim is None:
        return _in_theta(clusters, space, weights, n_missing, action_variance, shared_std)
    stds = (1.0 if effect_std is None else effect_std, 1.0 if action_std is None else action_std, shared_std)
    labels = range(len(clusters.means))
    return build_group("component", labels, weights, n_missing=n_missing, dim=dim, stds=stds)


@dataclass(frozen=True)
class _Space:
    """The space of the clusters: some columns, centred and divided by one number, so that units do not matter."""

    rows: Int[Array, " r"]
    columns: Int[Array, " c"]
    centre: Float[Array, " c"]
    scale: float

    def scaled(self, points: Float[Array, "n e"]) -> Float[Array, "n c"]:
        return (points[:, self.columns] - self.centre) / self.scale


def _space(
    points: Float[Array, "K e"], known: Bool[Array, " K"], max_rows: int, rng: np.random.Generator, *, in_theta: bool
) -> _Space:
    rows = np.flatnonzero(known)
    if len(rows) > max_rows:
        rows = np.sort(rng.choice(rows, max_rows, replace=False))
    used = points[rows]
    varied = np.flatnonzero(used.max(axis=0) > used.min(axis=0))
    if in_theta and len(varied) == 0:
        raise RangeError(
            f"must differ, to show how widely theta_a spreads; all {len(rows)} rows used are the same.",
            "Pass dim= to take only weights from them, or use `independent`.",
            argument="embeddings",
        )
    columns = np.arange(points.shape[1]) if in_theta or len(varied) == 0 else varied
    centre = used[:, columns].mean(axis=0)
    # Zero only where rows do not differ at all, so that one component takes them all.
    return _Space(rows, columns, centre, _root_mean_square(used[:, columns] - centre) or 1.0)


def _memberships(
    points: Float[Array, "K e"], known: Bool[Array, " K"], space: _Space, clusters: Clusters
) -> sparse.csr_array:
    """(K, C) memberships, with one more column for actions without an embedding if there are any."""
    count, everyone = len(clusters.means), np.flatnonzero(known)
    missing = np.flatnonzero(~known)
    rows, columns, values = [missing], [np.full(len(missing), count)], [np.ones(len(missing))]
    for part in chunks(len(everyone), 1 << 16):
        # A row that was not drawn may lie anywhere; beyond a million spreads its square would only overflow.
        weights = clusters.weigh(np.clip(space.scaled(points[everyone[part]]), -1e6, 1e6))
        weights = np.where(weights < NEGLIGIBLE, 0.0, weights)
        weights /= weights.sum(axis=1, keepdims=True)
        row, column = np.nonzero(weights)
        rows.append(everyone[part][row])
        columns.append(column)
        values.append(weights[row, column])
    where = (np.concatenate(rows), np.concatenate(columns))
    return sparse.csr_array((np.concatenate(values), where), shape=(len(points), count + (len(missing) > 0)))


def _in_theta(
    clusters: Clusters,
    space: _Space,
    weights: sparse.csr_array,
    n_missing: int,
    action_variance: str,
    shared_std: float | None,
) -> HierarchicalGaussian:
    """The prior with the means and variances of the clusters, back in the units of θ."""
    count, d = clusters.means.shape
    labels = (*range(count), *([MISSING] if n_missing else []))
    means, variances = space.centre + space.scale * clusters.means, space.scale**2 * clusters.variances
    around = variances.mean(axis=0)
    effect_means, effect_variances, own = means, variances, variances
    if n_missing:
        # A row drawn at random has the moments of the whole mixture.
        centre = clusters.shares @ means
        total = clusters.shares @ (variances + (means - centre) ** 2)
        effect_means, effect_variances = np.vstack([means, centre]), np.vstack([variances, total])
        own = np.vstack([variances, around])
    # Their means are known and differ: there is no common mean to learn.
    group = EffectGroup("component", len(labels), d, has_mean=False, labels=labels, n_missing=n_missing)
    action_cov = around if action_variance == "shared" else np.asarray(weights @ own)[:, :, None] * np.eye(d)
    part = EffectPart(group, weights, effect_variances, effect_means)
    return build([part], dim=d, action_cov=action_cov, shared_std=shared_std)


def _check_options(dim: Any, method: str, action_variance: str, effect_std: Any, action_std: Any) -> None:
    check_choice("method", method, ("gmm", "kmeans"))
    check_choice("action_variance", action_variance, ("shared", "own"))
    if dim is None and (effect_std is not None or action_std is not None):
        raise InputError(
            "effect_std and action_std come from the embeddings when dim is None.", "Pass dim= to set them."
        )
    if dim is not None and action_variance == "own":
        raise InputError('action_variance="own" needs embeddings in the space of theta.', "Leave dim out.")


def _known_points(embeddings: Any) -> tuple[Float[Array, "K e"], Bool[Array, " K"]]:
    """The embeddings, and which rows are not missing."""
    points = metadata(embeddings, "embeddings", as_embedding_column)
    known = ~np.isnan(points[:, 0])
    if not known.any():
        raise NonFiniteError("must have a row that is not NaN; all are missing.", argument="embeddings")
    return points, known


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

    Two actions covary by effect_std² e_aᵀ e_b: similar embeddings, similar weights. By default embeddings are divided
    by one number so that the mean of ‖e_a‖² is 1. Then effect_std is the standard deviation that M gives to a
    coordinate of θ_a of a typical action.

    With `shared_std` embeddings are centred first: the shared effect is θ of the average action, and M describes the
    differences. Without it they are not, as nothing else could carry the average. Columns of zeros (with `shared_std`:
    constant columns) are left out; `labels` has the numbers of those that remain. Without `shared_std` a constant
    column is an intercept and stays.

    Actions whose embedding is missing share the effect "(missing)", with the root mean square of ‖e_a‖ as weight, and
    are counted in `prior.effects`.

    Args:
        embeddings: A `Catalog`, or (K, e) numbers; a row of NaN where missing.
        dim: d, the dimension of the features.
        scale: True divides embeddings as described; False uses them in their own units.
        effect_std: Standard deviation of every entry of M; `learn_prior` starts there.
        action_std: Standard deviation of an action around M e_a.
        shared_std: Standard deviation of an effect that all actions share; None for no such effect.
    """
    points, known = _known_points(embeddings)
    used, rows = _prepared(points[known], centred=shared_std is not None, scale=as_flag("scale", scale))
    starts = np.concatenate([[0], np.cumsum(np.where(known, len(used), 0))])
    columns, missing = np.tile(np.arange(len(used)), len(rows)), np.flatnonzero(~known)
    weights = sparse.csr_array((rows.reshape(-1), columns, starts), shape=(len(points), len(used)))
    weights, stds = with_missing_effect(weights, missing), (effect_std, action_std, shared_std)
    labels, n_missing = used.tolist(), len(missing)
    return build_group("embedding", labels, weights, n_missing=n_missing, dim=dim, stds=stds, has_mean=False)


def _prepared(rows: Float[Array, "n e"], *, centred: bool, scale: bool) -> tuple[Int[Array, " c"], Float[Array, "n c"]]:
    """The columns that carry information, and the rows in these columns."""
    # Tested on the values as given: centring would leave rounding errors in place of zeros.
    used = np.flatnonzero((rows != (rows[0] if centred else 0.0)).any(axis=0))
    if len(used) == 0:
        requirement = "must differ between actions, as shared_std centres them" if centred else "must not all be zero"
        raise RangeError(
            f"{requirement}; all {len(rows)} rows are alike.", "Use `independent` instead.", argument="embeddings"
        )
    known = rows[:, used] - rows[:, used].mean(axis=0) if centred else rows[:, used]
    return used, known / (np.sqrt(len(used)) * _root_mean_square(known)) if scale else known


def _root_mean_square(values: Float[Array, "..."]) -> float:
    """√(mean of v²) for a prior builder, of values whose squares may be too large or too small to hold."""
    largest = float(np.abs(values).max())
    return largest * float(np.sqrt(np.mean((values / largest) ** 2))) if largest > 0 else 0.0
