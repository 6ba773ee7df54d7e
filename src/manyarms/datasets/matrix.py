"""Rating matrices: vectors for users and items, and a world in which every rating is known."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse
from scipy.sparse.linalg import svds

from manyarms._arrays import Array, as_actions, as_count, as_floats, as_matrix, check_rows, frozen
from manyarms._random import as_generator, split
from manyarms.core.data import LoggedData
from manyarms.core.policy import Policy
from manyarms.datasets.environment import _free
from manyarms.errors import InputError, NonFiniteError, RangeError, ShapeError
from manyarms.linalg.pairs import shape_of

DENSE_CELLS = 1 << 21
"""Up to so many cells the whole singular value decomposition is taken, in a second or less."""


class MatrixEnvironment:
    """User u comes by, drawn at random; x = features of u; the reward of action a is the real rating matrix[u, a].

    Nothing is modelled and no noise is added: every rating is known, so that what a policy would have earned is known
    too. Users are of two kinds without any in common. The log is drawn from the first, with replacement, and the value
    of a policy is its mean rating over the second, each user counting once. A log's `groups` are its users, since
    several rounds of one user are not independent.

    Args:
        matrix: (users, K) ratings, none missing.
        features: (users, d) what is known of each user before an action is chosen.
        test_users: (m,) rows of users to judge policies on; all others are there to log from.
    """

    def __init__(self, matrix: Any, features: Any, test_users: Any):
        self.matrix: Float[Array, "users K"] = as_floats("matrix", matrix, ndim=2)
        n_users, n_actions = self.matrix.shape
        self.features: Float[Array, "users d"] = as_matrix("features", features, rows=n_users)
        if n_actions == 0 or self.dim == 0:
            raise ShapeError("matrix and features must have at least one column each.")
        test = as_actions("test_users", test_users, n_actions=n_users)
        self.test_users: Int[Array, " m"] = frozen(np.unique(test))
        self.logging_users: Int[Array, " l"] = frozen(np.setdiff1d(np.arange(n_users), test))
        if len(self.test_users) < len(test):
            raise InputError("test_users must be distinct: each counts once.")
        if len(self.test_users) == 0 or len(self.logging_users) == 0:
            raise ShapeError(
                f"test_users must leave users on both sides; got {len(test)} of {n_users}. Draw about half of them."
            )

    @property
    def n_actions(self) -> int:
        """K."""
        return self.matrix.shape[1]

    @property
    def dim(self) -> int:
        """d."""
        return self.features.shape[1]

    @property
    def test_contexts(self) -> Float[Array, "m d"]:
        """The features of the users that policies are judged on."""
        return self.features[self.test_users]

    def contexts(self, n: int, rng: np.random.Generator) -> Float[Array, "n d"]:
        """Fresh contexts: those of logging users, drawn with replacement."""
        return self.features[self._draw_users(n, rng)]

    def log(self, policy: Policy, n: int, rng: np.random.Generator) -> LoggedData:
        """n rounds logged by `policy`, with its propensities; users and actions have streams of their own."""
        users_rng, actions_rng = split(rng, "users", "actions")
        users = self._draw_users(n, users_rng)
        x = self.features[users]
        actions = policy.sample(x, actions_rng)
        # Thompson samples afresh, so its frozen probabilities are not those of its samples.
        propensities = policy.probability_of(x, actions) if policy.samples_have_probabilities else None
        return LoggedData(
            x, actions, self.matrix[users, actions], propensities, self.n_actions,
            logging_policy=_free(policy), groups=users,
        )  # fmt: skip

    def value(self, policy: Policy, *, eligible: Any = None) -> float:
        """The mean real rating of what a policy chooses for the test users.

        Args:
            policy: A rule for any context, or one tied to the rows of `test_contexts`.
            eligible: Which actions may be chosen for which test user; None for all.
        """
        if policy.n_actions != self.n_actions:
            raise ShapeError(f"policy has {policy.n_actions} actions; the environment has {self.n_actions}.")
        total = 0.0
        for rows, probabilities in policy.probability_chunks(self.test_contexts, eligible=eligible):
            total += float((probabilities * self.matrix[self.test_users[rows]]).sum())
        return total / len(self.test_users)

    def optimal_value(self) -> float:
        """What a policy would earn that knew every rating of the test users: out of reach when contexts say less."""
        return float(self.matrix[self.test_users].max(axis=1).mean())

    def _draw_users(self, n: int, rng: np.random.Generator) -> Int[Array, " n"]:
        n = as_count("n", n, minimum=0)
        return self.logging_users[as_generator(rng).integers(len(self.logging_users), size=n)]


def factorise(matrix: Any, rank: int, rng: np.random.Generator) -> tuple[Float[Array, "u r"], Float[Array, "i r"]]:
    """The best rank-r approximation of a rating matrix is users @ items.T, by its largest singular values s.

    With matrix ≈ U diag(s) Vᵀ, users are U √s and items V √s: both sides have the same scale. Components come in
    falling order of s, and each has the sign that makes the largest entry of its item column positive.

    Args:
        matrix: (u, i) ratings, dense or SciPy sparse, with zeros where unrated.
        rank: r, at most the smaller of u and i.
        rng: Where the iteration for a large matrix starts; it ends at the same factors up to rounding.

    Returns:
        The vectors of users and of items.
    """
    table, start_rng = _as_table(matrix), as_generator(rng)
    smaller = min(shape_of(table))
    if as_count("rank", rank) > smaller:
        raise RangeError(f"rank must be at most {smaller} for a matrix of shape {shape_of(table)}; got {rank}.")
    left, s, right = _singular(table, rank, start_rng)
    sign = np.where(right[np.abs(right).argmax(axis=0), np.arange(rank)] < 0, -1.0, 1.0)
    return left * (sign * np.sqrt(s)), right * (sign * np.sqrt(s))


def alignment(source: Float[Array, "n r"], target: Float[Array, "n r"]) -> Float[Array, "r r"]:
    """The orthogonal Q for which source @ Q is nearest to target, row by row in square distance (Procrustes).

    Two factorisations of similar matrices agree up to such a Q at best, and users @ items.T is the same when both
    sides are turned by one Q.
    """
    # minimise ‖S Q - T‖²: with Sᵀ T = U diag(s) Vᵀ the answer is U Vᵀ.
    U, _, Vt = np.linalg.svd(source.T @ target)
    return U @ Vt


def _singular(
    table: sparse.csr_array, rank: int, rng: np.random.Generator
) -> tuple[Float[Array, "u r"], Float[Array, " r"], Float[Array, "i r"]]:
    """The largest singular values in falling order, with their vectors on both sides."""
    n, m = shape_of(table)
    if rank == min(n, m) or n * m <= DENSE_CELLS:
        left, s, right = np.linalg.svd(table.toarray(), full_matrices=False)
    else:
        left, s, right = cast(tuple[Array, Array, Array], svds(table, rank, v0=rng.standard_normal(min(n, m))))
    order = np.argsort(-s)[:rank]
    return left[:, order], s[order], right[order].T


def _as_table(matrix: Any) -> sparse.csr_array:
    if sparse.issparse(matrix):
        table = sparse.csr_array(matrix, dtype=np.float64)
        check_rows(
            "the stored values of matrix", table.data, np.isfinite, NonFiniteError, "must be finite",
            "Leave such cells out.",
        )  # fmt: skip
    else:
        table = sparse.csr_array(as_floats("matrix", matrix, ndim=2))
    if not table.data.any():
        raise InputError("matrix must have a rating that is not zero.")
    return table
