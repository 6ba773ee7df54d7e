"""Rating matrices: vectors for users and items, and a world in which every rating is known, or every observed one."""

from __future__ import annotations

from functools import cached_property
from typing import Any, cast

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse
from scipy.sparse.linalg import svds

from manyarms._base.checks import Array, as_actions, as_count, as_floats, as_matrix, as_scalar, frozen
from manyarms._base.rng import as_generator, split
from manyarms.core.choices import Choices, RowError
from manyarms.core.logged_data import LoggedData
from manyarms.core.policy import Policy
from manyarms.datasets.environment import _free
from manyarms.datasets.observed_ratings import (
    ObservedActions,
    WithinObserved,
    as_ratings,
    as_sparse,
    meet,
    shape_of_ratings,
)
from manyarms.errors import InputError, RangeError, ShapeError
from manyarms.linalg.indexing import pair_rows, shape_of
from manyarms.linalg.top_k import best_of_pairs

DENSE_CELLS = 1 << 21
"""Up to so many cells the whole singular value decomposition is taken, in a second or less."""


class MatrixEnvironment:
    """User u comes by, drawn at random; x = features of u; the reward of action a is the real rating matrix[u, a].

    Nothing is modelled, and no noise is added unless asked for: ratings are known, so that what a policy would have
    earned is known too. Where some are missing, only the observed actions of a user may be chosen for that user, by any
    policy. Users are of two kinds without any in common. The log is drawn from the first, with replacement, and the
    value of a policy is its mean rating over the second, each user counting once. A log's `groups` are its users, since
    several rounds of one user are not independent.

    Args:
        matrix: (users, K) ratings, dense or SciPy sparse; what a sparse one does not store is a rating of zero.
        features: (users, d) what is known of each user before an action is chosen.
        test_users: (m,) rows of users to judge policies on; all others are there to log from.
        observed: (users, K) which ratings there are; None for all. A boolean mask, or a SciPy sparse matrix of numbers
            whose stored cells are meant, zeros too: a sparse matrix of ratings is its own. What `matrix` holds
            elsewhere, such as NaN, is not looked at.
        noise_std: The standard deviation of Gaussian noise on every logged reward.
    """

    def __init__(self, matrix: Any, features: Any, test_users: Any, *, observed: Any = None, noise_std: float = 0.0):
        self.matrix, self._observed = as_ratings(matrix, observed)
        n_users, n_actions = shape_of_ratings(self.matrix)
        self.features: Float[Array, "users d"] = as_matrix("features", features, rows=n_users)
        self.noise_std = as_scalar("noise_std", noise_std, at_least=0.0)
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
        return shape_of_ratings(self.matrix)[1]

    @property
    def dim(self) -> int:
        """d."""
        return self.features.shape[1]

    @property
    def test_contexts(self) -> Float[Array, "m d"]:
        """The features of the users that policies are judged on."""
        return self.features[self.test_users]

    @property
    def test_eligible(self) -> ObservedActions | None:
        """What may be chosen for the users that policies are judged on; None when everything is observed."""
        return self.eligible(self.test_users)

    def eligible(self, users: Any) -> ObservedActions | None:
        """What may be chosen in rows that belong to these users, as `logs.groups`; None when everything is observed."""
        users = as_actions("users", users, n_actions=len(self.features))
        return None if self._observed is None else ObservedActions(self._observed, users)

    def contexts(self, n: int, rng: np.random.Generator) -> Float[Array, "n d"]:
        """Fresh contexts: those of logging users, drawn with replacement."""
        return self.features[self._draw_users(n, rng)]

    def log(self, policy: Policy, n: int, rng: np.random.Generator) -> LoggedData:
        """n rounds logged by `policy`, with its propensities; users, actions and noise have streams of their own."""
        users_rng, actions_rng = split(rng, "users", "actions")
        users = self._draw_users(n, users_rng)
        x, sets = self.features[users], self.eligible(users)
        actions = policy.sample(x, actions_rng, eligible=sets)
        rewards = self._ratings(users, actions)
        if self.noise_std > 0:
            (noise_rng,) = split(rng, "noise")
            rewards = rewards + self.noise_std * noise_rng.standard_normal(n)
        # Thompson samples afresh, so its frozen probabilities are not those of its samples.
        known = policy.samples_have_probabilities
        propensities = policy.probability_of(x, actions, eligible=sets) if known else None
        rule = _free(policy)
        # Estimators ask the logging policy as it is, so it must know by itself what could not be chosen.
        if rule is not None and sets is not None:
            rule = WithinObserved(rule, sets)
        return LoggedData(x, actions, rewards, propensities, self.n_actions, logging_policy=rule, groups=users)

    def value(self, policy: Policy, contexts: Any = None, *, eligible: Any = None) -> float:
        """The mean real rating of what a policy chooses, among the observed actions of each user.

        Args:
            policy: A rule for any context, or one tied to these rows.
            contexts: (n, d) rows of `features`, each of which must be one user's alone; None for `test_contexts`.
            eligible: Which of the observed actions may be chosen in which row; None for all.
        """
        if policy.n_actions != self.n_actions:
            raise ShapeError(f"policy has {policy.n_actions} actions; the environment has {self.n_actions}.")
        users = self._users(contexts)
        sets = self.eligible(users)
        rule = policy if sets is None else WithinObserved(policy, sets)
        size = rule.rows_per_block
        if isinstance(self.matrix, np.ndarray):
            size = min(size, max(1, (1 << 22) // self.n_actions))
        total = 0.0
        for rows, _, choices in rule.blocks(self.features[users], eligible, size):
            total += _earned(choices, self.matrix[users[rows]])
        return total / len(users)

    def optimal_policy(self) -> Policy:
        """Always the best observed action of the user, who is recognised by the row of features.

        Raises:
            InputError: When two users have the same features: a policy sees nothing else.
        """
        return BestObserved(self)

    def optimal_value(self, contexts: Any = None) -> float:
        """What a policy would earn that knew every rating of these users: out of reach when contexts say less.

        Args:
            contexts: As for `value`; None for `test_contexts`.
        """
        users = self._users(contexts)
        return float(self._ratings(users, self._best[users]).mean())

    def _draw_users(self, n: int, rng: np.random.Generator) -> Int[Array, " n"]:
        n = as_count("n", n, minimum=0)
        return self.logging_users[as_generator(rng).integers(len(self.logging_users), size=n)]

    def _ratings(self, users: Int[Array, " n"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        return np.asarray(self.matrix[users, actions], dtype=np.float64).reshape(-1)

    def _users(self, contexts: Any) -> Int[Array, " n"]:
        """The users whose contexts these are; those to judge on when none are given."""
        if contexts is None:
            return self.test_users
        users = self._recognise(as_matrix("contexts", contexts, columns=self.dim))
        if len(users) == 0:
            raise ShapeError("contexts must have at least one row: a mean over none is undefined.")
        if users.min() < 0:
            raise InputError(f"contexts must be rows of features; row {int(np.argmin(users))} is no user's.")
        return users

    def _recognise(self, contexts: Float[Array, "n d"]) -> Int[Array, " n"]:
        """The user of each row, -1 for rows that are nobody's."""
        found = (self._by_features.get(key, -1) for key in _keys(contexts))
        return np.fromiter(found, dtype=np.int64, count=len(contexts))

    @cached_property
    def _by_features(self) -> dict[bytes, int]:
        numbers: dict[bytes, int] = {}
        for user, key in enumerate(_keys(self.features)):
            if numbers.setdefault(key, user) != user:
                raise InputError(
                    f"users {numbers[key]} and {user} have the same features, so that no policy can tell them apart. "
                    "Add a feature in which they differ, or leave one out."
                )
        return numbers

    @cached_property
    def _best(self) -> Int[Array, " users"]:
        """The best observed action of every user, the lowest number among equals."""
        if isinstance(self.matrix, np.ndarray):
            return self.matrix.argmax(axis=1)
        if self._observed is None:
            return np.asarray(self.matrix.argmax(axis=1)).reshape(-1)
        return best_of_pairs(self.matrix.data, self.matrix.indptr, self.matrix.indices, 1)[:, 0]


class BestObserved(Policy):
    """Always the best observed action of the user whose features the context is, among those eligible.

    Args:
        world: The ratings.
    """

    def __init__(self, world: MatrixEnvironment):
        self._world = world
        self.n_actions, self.dim = world.n_actions, world.dim
        world._by_features  # noqa: B018  equal users are refused now, not when the policy is first used

    def choices(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None) -> Choices:
        users = self._world._recognise(contexts)
        if len(users) and users.min() < 0:
            raise RowError(int(np.argmin(users)), "knows no user with the features")
        best = self._world._best[users]
        if eligible is not None:
            allowed = np.asarray(eligible[np.arange(len(users)), best]).reshape(-1)
            barred = np.flatnonzero(allowed == 0)
            if len(barred):
                best[barred] = self._best_of(users, eligible, barred)
        return Choices.of_actions(best, self.n_actions)

    def _best_of(self, users: Int[Array, " n"], eligible: sparse.csr_array, rows: Int[Array, " m"]) -> Int[Array, " m"]:
        """The best of what is eligible in these rows, where the user's very best is not."""
        sets, allowed = self._world.eligible(users[rows]), eligible[rows]
        if sets is not None:
            try:
                allowed = meet(sets.tocsr(), allowed)
            except RowError as cause:
                raise RowError(int(rows[cause.row]), cause.problem) from None
        ratings = self._world._ratings(users[rows][pair_rows(allowed)], allowed.indices)
        return best_of_pairs(ratings, allowed.indptr, allowed.indices, 1)[:, 0]


def draw_test_users(n_users: int, share: float, rng: np.random.Generator) -> Int[Array, " m"]:
    """About a share of all users, drawn at random, with at least one on each side where there are two."""
    share = as_scalar("test_share", share, above=0.0, below=1.0)
    return np.sort(rng.permutation(n_users)[: min(max(round(share * n_users), 1), n_users - 1)])


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
    given = sparse.issparse(matrix)
    table = as_sparse("matrix", matrix) if given else sparse.csr_array(as_floats("matrix", matrix, ndim=2))
    if not table.data.any():
        raise InputError("matrix must have a rating that is not zero.")
    return table


def _earned(choices: Choices, ratings: Array | sparse.csr_array) -> float:
    """Σ_i Σ_a π(a | x_i) matrix[u_i, a] over the rows of a block."""
    total = 0.0
    if choices.named is not None:
        total += float(choices.named.multiply(ratings).sum())
    if choices.everywhere is not None:
        total += float((ratings @ choices.everywhere).sum())
    if choices.dense is not None:
        written = ratings * choices.dense if isinstance(ratings, np.ndarray) else ratings.multiply(choices.dense)
        total += float(written.sum())
    return total


def _keys(features: Float[Array, "n d"]) -> list[bytes]:
    """Equal rows have equal keys: adding zero makes one of the two zeros."""
    return [row.tobytes() for row in np.ascontiguousarray(features) + 0.0]
