"""Clusters of embeddings: a mixture of Gaussians or k-means, with as many clusters as requested or as BIC prefers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from threadpoolctl import threadpool_limits

from manyarms._base.checks import Array
from manyarms.errors import NumericalError, RangeError

MAX_STEPS = 1000
"""Iterations of EM and of k-means; far above what they usually need."""
ROWS_EACH = 5
"""Distinct rows per component, on average, when the number of components is chosen."""


@dataclass(frozen=True)
class Clusters:
    """C clusters of embeddings, as a mixture of diagonal Gaussians.

    `weigh` gives the memberships of rows, which sum to one. `bic` is -2 log likelihood + parameters log n, for hard
    clusters with the likelihood of the assigned cluster.
    """

    means: Float[Array, "C e"]
    variances: Float[Array, "C e"]
    shares: Float[Array, " C"]
    weigh: Callable[[Float[Array, "n e"]], Float[Array, "n C"]]
    bic: float
    converged: bool


Fit = Callable[[Float[Array, "n e"], int, int, float], Clusters]


def find_clusters(
    rows: Float[Array, "n e"],
    n_components: int | None,
    *,
    fit: Fit,
    max_components: int,
    floor: float,
    rng: np.random.Generator,
) -> Clusters:
    """Find as many clusters of centred and scaled rows as requested, or as BIC prefers.

    BIC chooses at most `max_components`, and only as many as have `ROWS_EACH` distinct rows on average: a component
    with a single row has no variance but the `floor`, so its density has no limit.
    """
    n_distinct = len(np.unique(rows, axis=0))
    if n_components is not None:
        if n_components > n_distinct:
            raise RangeError(
                f"must be at most {n_distinct}, the number of distinct embeddings among the {len(rows)} rows used; "
                f"got {n_components}.",
                "Pass fewer, or a larger max_rows if there are more rows.",
                argument="n_components",
                flag_remedy="Pass fewer.",
            )
        clusters = _fit_clusters(rows, n_components, fit, floor, rng)
        if not clusters.converged:
            raise NumericalError(
                f"{n_components} components did not converge in {MAX_STEPS} steps.",
                'Pass fewer n_components, a larger variance_floor, or method="kmeans".',
                flag_remedy="Pass a smaller --n-components.",
            )
        return clusters
    most = min(max_components, max(1, n_distinct // ROWS_EACH))
    candidates = [_fit_clusters(rows, count, fit, floor, rng) for count in range(1, most + 1)]
    # One component always converges.
    return min((clusters for clusters in candidates if clusters.converged), key=lambda clusters: clusters.bic)


def _fit_clusters(rows: Float[Array, "n e"], count: int, fit: Fit, floor: float, rng: np.random.Generator) -> Clusters:
    seed = int(rng.integers(2**31 - 1))
    # One component is the mean and the variance, whatever the method; scikit-learn refuses a single row.
    if count == 1:
        mean, label = rows.mean(axis=0, keepdims=True), np.zeros(len(rows), dtype=np.int64)
        variances = np.mean((rows - mean) ** 2, axis=0, keepdims=True) + floor
        return _hard_clusters(rows, mean, variances, label, lambda points: np.ones((len(points), 1)), True)
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415

    # So few rows are not worth several threads, which on a busy machine would only wait for one another.
    with warnings.catch_warnings(), threadpool_limits(limits=1):
        # `converged` carries this, and `find_clusters` acts on it.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fit(rows, count, seed, floor)


def gaussian_mixture(rows: Float[Array, "n e"], count: int, seed: int, floor: float) -> Clusters:
    """Clusters by EM for diagonal Gaussians, from k-means; memberships are responsibilities."""
    from sklearn.mixture import GaussianMixture  # noqa: PLC0415

    settings: dict[str, Any] = dict(covariance_type="diag", reg_covar=floor, max_iter=MAX_STEPS, random_state=seed)
    model: Any = GaussianMixture(count, **settings)
    model.fit(rows)
    return Clusters(
        means=model.means_,
        variances=model.covariances_,
        shares=model.weights_,
        weigh=model.predict_proba,
        bic=float(model.bic(rows)),
        converged=bool(model.converged_),
    )


def k_means(rows: Float[Array, "n e"], count: int, seed: int, floor: float) -> Clusters:
    """Clusters by the best of ten runs of k-means; memberships are zero or one, variances are those within clusters."""
    from sklearn.cluster import KMeans  # noqa: PLC0415
    from sklearn.metrics import pairwise_distances_argmin  # noqa: PLC0415

    settings: dict[str, Any] = dict(n_init=10, max_iter=MAX_STEPS, random_state=seed)
    model: Any = KMeans(count, **settings)
    model.fit(rows)
    # Rows that differ by less than the tolerance of k-means can leave a cluster empty.
    used, label = np.unique(model.labels_, return_inverse=True)
    member = label[:, None] == np.arange(len(used))
    sizes = member.sum(axis=0)[:, None]
    means = member.T @ rows / sizes
    variances = member.T @ (rows - means[label]) ** 2 / sizes + floor

    def weigh(points: Float[Array, "n e"]) -> Float[Array, "n C"]:
        return np.eye(len(means))[pairwise_distances_argmin(points, means)]

    return _hard_clusters(rows, means, variances, label, weigh, model.n_iter_ < MAX_STEPS)


def _hard_clusters(
    rows: Float[Array, "n e"],
    means: Float[Array, "C e"],
    variances: Float[Array, "C e"],
    label: Int[Array, " n"],
    weigh: Callable[[Array], Array],
    converged: bool,
) -> Clusters:
    """Clusters of rows that each belong to one; parameters are counted as scikit-learn does, 2 C e + C - 1 for BIC."""
    n, (count, e) = len(rows), means.shape
    miss, spread, shares = rows - means[label], variances[label], np.bincount(label, minlength=count) / n
    log_density = -0.5 * np.sum(np.log(2 * np.pi * spread) + miss**2 / spread, axis=1) + np.log(shares[label])
    bic = float(-2 * log_density.sum() + (2 * count * e + count - 1) * np.log(n))
    return Clusters(means, variances, shares, weigh, bic, converged)
