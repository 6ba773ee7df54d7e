"""Estimators that weight sets of actions instead of single ones: clusters, embeddings, neighbourhoods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array, as_count, as_floats, row_weights
from manyarms.core import LoggedData, Policy
from manyarms.core.labels import as_labels
from manyarms.errors import InputError, ShapeError
from manyarms.estimators.estimator import EstimatorOptions, Rounds
from manyarms.estimators.logging_policy import as_clip, logging_policy_of
from manyarms.estimators.reward_model import RewardModelEstimator
from manyarms.linalg.sparse_matrices import shape_of


@dataclass(frozen=True)
class ActionSets:
    """Sets of actions, such as the clusters or neighbourhoods that are weighted, and one set per row. None is empty.

    Attributes:
        members: (S, K) Matrix with ones where an action belongs to a set.
        which: (n,) The set of each row. A row is an action or a round.
    """

    members: sparse.csr_array
    which: Int[Array, " n"]

    def __getitem__(self, rows: slice | Int[Array, " m"]) -> ActionSets:
        return ActionSets(self.members, self.which[rows])

    @property
    def by_row(self) -> sparse.csr_array:
        """(n, K) Matrix with ones where an action belongs to the set of a row."""
        return self.members[self.which]


class SetWeighted(RewardModelEstimator):
    """mean of w(x, A) r with w(x, A) = π(A | x) / π_0(A | x) for the set A of the logged action.

    With a reward model: mean of w(x, A) (r - r̂(x, a)) + Σ_a π r̂. `sets` has the set of each action.
    """

    def __init__(self, sets: ActionSets, model: Any, clip: float | None, **options: Unpack[EstimatorOptions]):
        super().__init__(model, **options)
        self._sets, self._clip = sets, as_clip(clip)

    def rounds(self, policy: Policy, logs: LoggedData, eligible: Any) -> Rounds:
        sets, below, estimated = set_propensities(self.name, self._sets, logs)
        # A round of weight zero does not count, whatever its set.
        below = np.where(row_weights(logs.weights, len(logs)) > 0, np.maximum(below, self._clip), 1.0)
        if below.min() <= 0:
            raise InputError(
                f"the logging policy gives probability zero to the set of the action in row {int(np.argmin(below))}, "
                "which it logged.",
                "Check logging_policy, or pass clip.",
            )
        weights = policy.probability_of_sets(logs.contexts, sets.members, sets.which, eligible=eligible) / below
        residual, direct = self.residual(policy, logs, eligible)
        return Rounds(direct, weights * residual, None, weights, None, estimated)


class MIPS(SetWeighted):
    """mean of π(c_i | x_i) / π_0(c_i | x_i) r_i, sets c being clusters: unbiased if rewards depend on clusters alone.

    Without a logging policy in the logs, π_0 of a cluster is estimated: a logistic regression of the cluster on the
    context when there are many actions, of the action when there are few (Saito and Joachims).

    Args:
        clusters: (K,) The cluster of each action, a whole number or a text. Or (K, c) categorical embeddings, whose
            combinations are the clusters.
        clip: Floor on π_0 of a cluster.
        options: `interval`, `thresholds` and `name`; see `EstimatorOptions`.
    """

    name = "MIPS"

    def __init__(self, clusters: Any, clip: float | None = None, **options: Unpack[EstimatorOptions]):
        super().__init__(cluster_sets(clusters), None, clip, **options)


class OffCEM(SetWeighted):
    """mean of w(x, c) (r - r̂(x, a)) + Σ_a π r̂: unbiased when r̂ gets differences within a cluster right (Saito et al.).

    Args:
        clusters: (K,) The cluster of each action, a whole number or a text; or (K, c) categorical embeddings.
        model: A fitted posterior, or a `CrossFit`.
        clip: Floor on π_0 of a cluster.
        options: `interval`, `thresholds` and `name`; see `EstimatorOptions`.
    """

    name = "OffCEM"

    def __init__(self, clusters: Any, model: Any, clip: float | None = None, **options: Unpack[EstimatorOptions]):
        super().__init__(cluster_sets(clusters), model, clip, **options)


class PolicyConvolution(SetWeighted):
    """mean of π(N(a_i) | x_i) / π_0(N(a_i) | x_i) r_i, the set N(a) being the k actions nearest to a, with a itself.

    k = 1 is IPS; k = K is the mean of the logged rewards (Sachdeva et al.).

    Args:
        embeddings: (K, e) Coordinates of the actions; distances are Euclidean.
        k: The number of neighbours.
        clip: Floor on π_0 of a neighbourhood.
        options: `interval`, `thresholds` and `name`; see `EstimatorOptions`.
    """

    name = "PC"

    def __init__(self, embeddings: Any, k: int, clip: float | None = None, **options: Unpack[EstimatorOptions]):
        super().__init__(neighbourhood_sets(embeddings, k), None, clip, **options)


def set_propensities(
    name: str, sets: ActionSets, logs: LoggedData
) -> tuple[ActionSets, Float[Array, " n"], dict[str, float]]:
    """The set of each logged action, π_0 of that set, and the diagnostic that says whether π_0 was estimated."""
    if len(sets.which) != logs.n_actions:
        raise ShapeError(f"{name} was built for {len(sets.which)} actions; the logs have {logs.n_actions}.")
    logged = sets[logs.actions]
    # Clusters help to estimate π_0; neighbourhoods, one per action, would not.
    partition = shape_of(sets.members)[0] < logs.n_actions
    logging, estimated = logging_policy_of(logs, sets.which if partition else None)
    return logged, logging.probability_of_sets(logs.contexts, logged.members, logged.which), estimated


def neighbourhood_sets(embeddings: Any, k: int) -> ActionSets:
    """The k nearest actions of every action as the set that is weighted, the action itself always among them."""
    points = as_floats("embeddings", embeddings, ndim=2)
    n = len(points)
    if points.size == 0:
        raise ShapeError(
            f"must have at least one action and one column; got shape {points.shape}.", argument="embeddings"
        )
    k = as_count("k", k)
    if k > n:
        raise ShapeError(f"must be at most the number of actions, {n}; got {k}.", argument="k")
    from sklearn.neighbors import NearestNeighbors  # noqa: PLC0415

    near = NearestNeighbors(n_neighbors=k).fit(points).kneighbors(points, return_distance=False)
    own = np.arange(n)
    # Among equal embeddings the search may leave out the action itself: it then takes the place of the farthest.
    missing = ~(near == own[:, None]).any(axis=1)
    near[missing, -1] = own[missing]
    return ActionSets(sparse.csr_array((np.ones(n * k), near.reshape(-1), np.arange(n + 1) * k), shape=(n, n)), own)


def cluster_sets(clusters: Any) -> ActionSets:
    """The cluster of every action, as the set that is weighted."""
    labels = as_labels("clusters", clusters)
    n = len(labels)
    rows = sparse.csr_array((np.ones(n), labels, np.arange(n + 1)), shape=(n, int(labels.max()) + 1))
    return ActionSets(sparse.csr_array(rows.T.tocsr()), labels)
