"""Estimators that weight sets of actions instead of single ones: clusters, embeddings, neighbourhoods."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
from jaxtyping import Int
from scipy import sparse

from manyarms._base.checks import Array, as_count, as_floats, as_scalar
from manyarms.core.logged_data import LoggedData
from manyarms.core.policy import Policy, row_weights
from manyarms.errors import InputError, ShapeError
from manyarms.estimators.estimator import EstimatorOptions, Rounds
from manyarms.estimators.logging_policy import as_labels, logging_of
from manyarms.estimators.reward_model import ModelEstimator
from manyarms.linalg.indexing import shape_of


class SetWeighted(ModelEstimator):
    """mean of w(x, A) r with w(x, A) = π(A | x) / π_0(A | x) for the set A of the logged action.

    With a reward model: mean of w(x, A) (r - r̂(x, a)) + Σ_a π r̂.
    """

    def __init__(
        self,
        sets: sparse.csr_array,
        set_of_action: Int[Array, " K"],
        model: Any,
        floor: float,
        **options: Unpack[EstimatorOptions],
    ):
        super().__init__(model, **options)
        self._sets, self._set_of_action = sets, set_of_action
        self._floor = floor

    def rounds(self, policy: Policy, logs: LoggedData, eligible: Any) -> Rounds:
        if len(self._set_of_action) != logs.n_actions:
            raise ShapeError(
                f"{self.name} was built for {len(self._set_of_action)} actions; the logs have {logs.n_actions}."
            )
        which = self._set_of_action[logs.actions]
        # Clusters help to estimate π_0; neighbourhoods, one an action, would not.
        partition = shape_of(self._sets)[0] < logs.n_actions
        logging, estimated = logging_of(logs, self._set_of_action if partition else None)
        below = logging.probability_of_sets(logs.contexts, self._sets, which)
        # A round of weight zero is no round: its sets may be anything.
        below = np.where(row_weights(logs.weights, len(logs)) > 0, np.maximum(below, self._floor), 1.0)
        if below.min() <= 0:
            raise InputError(
                f"the logging policy gives probability zero to the set of the action in row {int(np.argmin(below))}, "
                "which it logged. Check logging_policy, or pass clip."
            )
        weights = policy.probability_of_sets(logs.contexts, self._sets, which, eligible=eligible) / below
        residual, direct = self.residual(policy, logs, eligible)
        figures = {"estimated_propensities": float(estimated)}
        return Rounds(direct, weights * residual, None, weights, None, figures)


class MIPS(SetWeighted):
    """mean of π(c_i | x_i) / π_0(c_i | x_i) r_i: unbiased when rewards depend on an action only through its cluster.

    Without a logging policy in the logs, π_0 of a cluster is estimated: a logistic regression of the cluster on the
    context when there are many actions, of the action when there are few (Saito and Joachims).

    Args:
        clusters: (K,) a cluster each, a whole number or a text, or (K, c) categorical embeddings, whose combinations
            are the clusters.
        clip: A floor on π_0 of a cluster.
        options: `interval`, how the error is told; `thresholds`, when to warn.
    """

    name = "MIPS"

    def __init__(self, clusters: Any, clip: float | None = None, **options: Unpack[EstimatorOptions]):
        labels = as_labels("clusters", clusters)
        floor = 0.0 if clip is None else as_scalar("clip", clip, at_least=0.0)
        super().__init__(cluster_sets(labels), labels, None, floor=floor, **options)


class OffCEM(SetWeighted):
    """mean of w(x, c) (r - r̂(x, a)) + Σ_a π r̂: unbiased when r̂ gets differences within a cluster right (Saito et al.).

    Args:
        clusters: (K,) a cluster each, a whole number or a text, or (K, c) categorical embeddings.
        model: What `fit` returned, or a `CrossFit`.
        clip: A floor on π_0 of a cluster.
        options: `interval`, how the error is told; `thresholds`, when to warn.
    """

    name = "OffCEM"

    def __init__(self, clusters: Any, model: Any, clip: float | None = None, **options: Unpack[EstimatorOptions]):
        labels = as_labels("clusters", clusters)
        floor = 0.0 if clip is None else as_scalar("clip", clip, at_least=0.0)
        super().__init__(cluster_sets(labels), labels, model, floor=floor, **options)


class PolicyConvolution(SetWeighted):
    """mean of π(N(a_i) | x_i) / π_0(N(a_i) | x_i) r_i, N(a) being the k actions nearest to a, itself among them.

    k = 1 is IPS; k = K is the mean of the logged rewards (Sachdeva et al.).

    Args:
        embeddings: (K, e) numbers; nearness is Euclidean.
        k: How many neighbours.
        clip: A floor on π_0 of a neighbourhood.
        options: `interval`, how the error is told; `thresholds`, when to warn.
    """

    name = "PC"

    def __init__(self, embeddings: Any, k: int, clip: float | None = None, **options: Unpack[EstimatorOptions]):
        sets = neighbourhoods(embeddings, k)
        floor = 0.0 if clip is None else as_scalar("clip", clip, at_least=0.0)
        everyone = np.arange(shape_of(sets)[0])
        super().__init__(sets, everyone, None, floor=floor, **options)


def neighbourhoods(embeddings: Any, k: int) -> sparse.csr_array:
    """(K, K) with ones at the k nearest actions of every action, the action itself always among them."""
    points = as_floats("embeddings", embeddings, ndim=2)
    n = len(points)
    if points.size == 0:
        raise ShapeError(f"embeddings must have an action and a column at least; got shape {points.shape}.")
    k = as_count("k", k)
    if k > n:
        raise ShapeError(f"k must be at most the number of actions, {n}; got {k}.")
    from sklearn.neighbors import NearestNeighbors  # noqa: PLC0415

    near = NearestNeighbors(n_neighbors=k).fit(points).kneighbors(points, return_distance=False)
    own = np.arange(n)
    # Among equal embeddings the search may leave out the action itself: it then takes the place of the farthest.
    missing = ~(near == own[:, None]).any(axis=1)
    near[missing, -1] = own[missing]
    return sparse.csr_array((np.ones(n * k), near.reshape(-1), np.arange(n + 1) * k), shape=(n, n))


def cluster_sets(labels: Int[Array, " K"]) -> sparse.csr_array:
    """(L, K) with ones where an action belongs to a cluster."""
    n = len(labels)
    rows = sparse.csr_array((np.ones(n), labels, np.arange(n + 1)), shape=(n, int(labels.max()) + 1))
    return sparse.csr_array(rows.T.tocsr())
