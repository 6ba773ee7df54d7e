"""A world in which rewards are real ratings: every rating of a user is known, or every observed one.

A classification set is such a world too, with rows as users and labels as actions.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array, as_actions, as_count, as_floats, as_matrix, as_numbers, as_scalar, frozen
from manyarms._base.rng import as_generator, split
from manyarms.core import PAIRS_PER_BLOCK, Choices, Eligibility, LoggedData, Policy, RowError
from manyarms.datasets.environment import check_n_actions
from manyarms.datasets.rating_matrix import as_rating_matrix, as_ratings, check_cells
from manyarms.errors import InputError, RangeError, ShapeError
from manyarms.linalg.sparse_matrices import pair_rows, shape_of
from manyarms.linalg.top_k import best_of_pairs


class MatrixEnvironment:
    """A random user u arrives; x = features of u; the reward of action a is the real rating matrix[u, a].

    Rewards are not modelled, and no noise is added unless asked for. All ratings are known, so the true value of a
    policy is known too. Where some ratings are missing, every policy may choose only the observed actions of a user.
    Users are split in two: logs are drawn from logging users, with replacement, and the value of a policy is its mean
    rating over test users, each counted once. A log's `groups` are its users, since several rounds of one user are not
    independent.

    Args:
        matrix: (users, K) Ratings, dense or SciPy sparse. A cell that a sparse matrix does not store is a zero.
        features: (users, d) Features of each user, known before an action is chosen.
        test_users: (m,) Rows of the users that policies are evaluated on. All others are logging users.
        observed: (users, K) Boolean mask of the ratings that exist; None for all. Or a SciPy sparse matrix of numbers
            whose stored cells, zeros too, are the observed ones: a sparse matrix of ratings can be its own mask. Other
            cells of `matrix` are not read, and may be NaN.
        noise_std: Standard deviation of Gaussian noise on every logged reward.
    """

    def __init__(self, matrix: Any, features: Any, test_users: Any, *, observed: Any = None, noise_std: float = 0.0):
        self.matrix, self._observed = as_ratings(matrix, observed)
        n_users, self.n_actions = shape_of(self.matrix)
        self.features: Float[Array, "users d"] = as_matrix("features", features, rows=n_users)
        self.dim = self.features.shape[1]
        self.noise_std = as_scalar("noise_std", noise_std, at_least=0.0)
        if self.n_actions == 0 or self.dim == 0:
            raise ShapeError("matrix and features must have at least one column each.")
        test = as_actions("test_users", test_users, n_actions=n_users)
        self.test_users: Int[Array, " m"] = frozen(np.unique(test))
        self.logging_users: Int[Array, " l"] = frozen(np.setdiff1d(np.arange(n_users), test))
        if len(self.test_users) < len(test):
            raise InputError("must be distinct: each counts once.", argument="test_users")
        if len(self.test_users) == 0 or len(self.logging_users) == 0:
            raise ShapeError(
                f"must leave users on both sides; got {len(test)} of {n_users}.",
                "Draw about half of them.",
                argument="test_users",
            )

    @property
    def test_contexts(self) -> Float[Array, "m d"]:
        """The features of the test users."""
        return self.features[self.test_users]

    @property
    def test_eligible(self) -> ObservedActions | None:
        """The actions that may be chosen for the test users; None when everything is observed."""
        return self.eligible(self.test_users)

    def eligible(self, users: Any) -> ObservedActions | None:
        """The actions that may be chosen for these users, such as `logs.groups`; None when everything is observed."""
        users = as_actions("users", users, n_actions=len(self.features))
        return None if self._observed is None else ObservedActions(self._observed, users)

    def contexts(self, n: int, rng: np.random.Generator) -> Float[Array, "n d"]:
        """Contexts of logging users, drawn with replacement."""
        return self.features[self._draw_users(n, rng)]

    def log(self, policy: Policy, n: int, rng: np.random.Generator) -> LoggedData:
        """n rounds logged by `policy`, with its propensities. Users, actions and noise have separate streams."""
        check_n_actions(policy, self.n_actions)
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
        # A policy tied to rows says nothing about other contexts.
        logging = policy if policy.n_rows is None else None
        # Estimators do not restrict the logging policy, so it must know by itself what could not be chosen.
        if logging is not None and sets is not None:
            logging = _WithinObserved(logging, sets)
        return LoggedData(x, actions, rewards, propensities, self.n_actions, logging_policy=logging, groups=users)

    def value(self, policy: Policy, contexts: Any = None, *, eligible: Any = None) -> float:
        """The mean real rating of the policy's choices among the observed actions of each user.

        Args:
            policy: A policy for any context, or one tied to these rows.
            contexts: (n, d) Rows of `features`, each of which must belong to one user alone; None for `test_contexts`.
            eligible: The observed actions that may be chosen in each row; None for all.
        """
        check_n_actions(policy, self.n_actions)
        users = self._users(contexts)
        sets = self.eligible(users)
        restricted = policy if sets is None else _WithinObserved(policy, sets)
        size = restricted.rows_per_block
        if isinstance(self.matrix, np.ndarray):
            size = min(size, max(1, (1 << 22) // self.n_actions))
        total = 0.0
        for rows, _, choices in restricted.blocks(self.features[users], eligible, size):
            total += _earned(choices, self.matrix[users[rows]])
        return total / len(users)

    def optimal_policy(self) -> Policy:
        """The policy that always chooses the best observed action of the user, recognised by the row of features.

        Raises:
            InputError: When two users have the same features, since a policy sees nothing else.
        """
        return BestObserved(self)

    def optimal_value(self, contexts: Any = None) -> float:
        """The mean rating of a policy that knows every rating of these users, which contexts may not tell."""
        users = self._users(contexts)
        return float(self._ratings(users, self._best[users]).mean())

    def _draw_users(self, n: int, rng: np.random.Generator) -> Int[Array, " n"]:
        n = as_count("n", n, minimum=0)
        return self.logging_users[as_generator(rng).integers(len(self.logging_users), size=n)]

    def _ratings(self, users: Int[Array, " n"], actions: Int[Array, " n"]) -> Float[Array, " n"]:
        return np.asarray(self.matrix[users, actions], dtype=np.float64).reshape(-1)

    def _users(self, contexts: Any) -> Int[Array, " n"]:
        """The users with these contexts; the test users when none are given."""
        if contexts is None:
            return self.test_users
        users = self._recognise(as_matrix("contexts", contexts, columns=self.dim))
        if len(users) == 0:
            raise ShapeError("must have at least one row: a mean over none is undefined.", argument="contexts")
        if users.min() < 0:
            raise InputError(
                f"must be rows of features; row {int(np.argmin(users))} belongs to no user.", argument="contexts"
            )
        return users

    def _recognise(self, contexts: Float[Array, "n d"]) -> Int[Array, " n"]:
        """The user of each row; -1 for a row that belongs to no user."""
        users = (self._by_features.get(key, -1) for key in _keys(contexts))
        return np.fromiter(users, dtype=np.int64, count=len(contexts))

    @cached_property
    def _by_features(self) -> dict[bytes, int]:
        numbers: dict[bytes, int] = {}
        for user, key in enumerate(_keys(self.features)):
            if numbers.setdefault(key, user) != user:
                raise InputError(
                    f"users {numbers[key]} and {user} have the same features, so that no policy can tell them apart.",
                    "Add a feature in which they differ, or leave one out.",
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
    """The best policy of a matrix environment: the best observed action of the user with these features."""

    def __init__(self, world: MatrixEnvironment):
        self._world = world
        self.n_actions, self.dim = world.n_actions, world.dim
        world._by_features  # noqa: B018  equal users are refused now, not when the policy is first used

    def choices(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None) -> Choices:
        users = self._world._recognise(contexts)
        if len(users) and users.min() < 0:
            raise RowError(int(np.argmin(users)), "knows no user with the features")
        if eligible is None:
            return Choices.of_actions(self._world._best[users], self.n_actions)
        sets = self._world.eligible(users)
        allowed = eligible if sets is None else _eligible_and_observed(sets.tocsr(), eligible)
        ratings = self._world._ratings(users[pair_rows(allowed)], allowed.indices)
        best = best_of_pairs(ratings, allowed.indptr, allowed.indices, 1)[:, 0]
        return Choices.of_actions(best, self.n_actions)


class ObservedActions(Eligibility):
    """Eligible actions in a `MatrixEnvironment`: row i may choose the observed actions of user users[i].

    Pass it as `eligible`. `sets[rows]` are the sets of some rows, and `sets.tocsr()` is the whole matrix.
    `pattern` is a (users, K) matrix with ones where observed: columns sorted, none twice, no row empty.
    Rows are read in blocks, since all of them are n x K.
    """

    def __init__(self, pattern: sparse.csr_array, users: Int[Array, " n"]):
        super().__init__(len(users), shape_of(pattern)[1])
        self._pattern, self._users = pattern, users

    def __len__(self) -> int:
        return self.n_rows

    def __getitem__(self, rows: slice | Int[Array, " m"]) -> ObservedActions:
        return ObservedActions(self._pattern, self._users[rows])

    @property
    def largest(self) -> int:
        """The largest number of observed actions of any user."""
        return int(np.diff(self._pattern.indptr).max())

    def block(self, rows: slice) -> sparse.csr_array:
        if rows.stop > self.n_rows:
            raise ShapeError(
                f"must have one row per context; it has {self.n_rows}, contexts have more.", argument="eligible"
            )
        return self._pattern[self._users[rows]]

    def tocsr(self) -> sparse.csr_array:
        """(n, K) Matrix with ones where an action may be chosen."""
        return self.block(slice(0, self.n_rows))


class _WithinObserved(Policy):
    """Another policy restricted to the observed actions of each row. It is tied to rows, whose users are known."""

    def __init__(self, policy: Policy, sets: ObservedActions):
        if policy.n_rows not in (None, sets.n_rows):
            raise ShapeError(f"is tied to {policy.n_rows} rows; there are {sets.n_rows} contexts.", argument="policy")
        self.policy, self.sets = policy, sets
        self.n_actions, self.n_rows, self.dim = policy.n_actions, sets.n_rows, policy.dim
        self.learned_from = policy.learned_from
        self.rows_per_block = int(np.clip(PAIRS_PER_BLOCK // sets.largest, 1, policy.rows_per_block))

    def take(self, rows: slice | Int[Array, " m"]) -> _WithinObserved:
        return _WithinObserved(self.policy.take(rows), self.sets[rows])

    def choices(self, contexts: Float[Array, "n d"], eligible: sparse.csr_array | None) -> Choices:
        own = self.sets.tocsr()
        return self.policy.choices(contexts, own if eligible is None else _eligible_and_observed(own, eligible))


def _eligible_and_observed(observed: sparse.csr_array, eligible: sparse.csr_array) -> sparse.csr_array:
    """(n, K) Matrix with ones where an action is both observed and eligible."""
    both = sparse.csr_array(observed.multiply(eligible))
    sizes = np.diff(both.indptr)
    if len(sizes) and sizes.min() == 0:
        raise RowError(int(np.argmin(sizes)), "may choose observed actions only, of which none is eligible")
    return both


class ClassificationEnvironment(MatrixEnvironment):
    """A random row arrives; x = its features; the reward of action a is 1 if a is one of its labels, else 0.

    Rows take the place of users in a `MatrixEnvironment`, and labels that of ratings: some rows are logged from, others
    are evaluated on, and a log's `groups` are its rows.

    Args:
        features: (n, d) Features of the rows.
        labels: (n,) Class numbers; or (n, K) zeros and ones, dense or SciPy sparse, with any number of ones per row.
            They are held as a sparse matrix.
        test_share: The share of rows that policies are evaluated on.
        noise_std: Standard deviation of Gaussian noise on every logged reward.
        rng: A NumPy generator, which draws the rows to evaluate on.
    """

    def __init__(
        self,
        features: Any,
        labels: Any,
        *,
        test_share: float = 0.5,
        noise_std: float = 0.0,
        rng: np.random.Generator,
    ):
        (rows_rng,) = split(rng, "rows")
        features = as_matrix("features", features)
        table = _as_labels(labels)
        if shape_of(table)[0] != len(features):
            raise ShapeError(
                f"must have one row per row of features: {len(features)}; got {shape_of(table)[0]}.", argument="labels"
            )
        if len(features) < 2:
            raise ShapeError(
                f"must have rows to log from and to evaluate on; got {len(features)}.", argument="features"
            )
        test_rows = draw_test_users(len(features), test_share, rows_rng)
        super().__init__(table, features, test_rows, noise_std=noise_std)


def _as_labels(labels: Any) -> sparse.csr_array:
    """(n, K) Matrix with ones at the labels of each row, and nothing else stored."""
    if sparse.issparse(labels):
        table = as_rating_matrix("labels", labels)
    elif (given := as_numbers("labels", labels)).ndim == 1:
        numbers = as_actions("labels", given)
        n, n_actions = len(numbers), int(numbers.max(initial=-1)) + 1
        table = sparse.csr_array((np.ones(n), numbers.copy(), np.arange(n + 1)), shape=(n, n_actions))
    else:
        table = sparse.csr_array(as_floats("labels", given, ndim=(1, 2)))
    good = (table.data == 0.0) | (table.data == 1.0)
    check_cells("labels", table, good, RangeError, "must be 0 or 1", "Pass class numbers as a vector.")
    table.eliminate_zeros()
    return table


def draw_test_users(n_users: int, share: float, rng: np.random.Generator) -> Int[Array, " m"]:
    """Test users of an environment on a matrix: a random share, at least one in the test part and one outside."""
    share = as_scalar("test_share", share, above=0.0, below=1.0)
    return np.sort(rng.permutation(n_users)[: min(max(round(share * n_users), 1), n_users - 1)])


def _earned(choices: Choices, ratings: Array | sparse.csr_array) -> float:
    """Σ_i Σ_a π(a | x_i) matrix[u_i, a] over the rows of a block."""
    total = 0.0
    if choices.named is not None:
        total += float(choices.named.multiply(ratings).sum())
    if choices.everywhere is not None:
        total += float((ratings @ choices.everywhere).sum())
    if choices.dense is not None:
        earned = ratings * choices.dense if isinstance(ratings, np.ndarray) else ratings.multiply(choices.dense)
        total += float(earned.sum())
    return total


def _keys(features: Float[Array, "n d"]) -> list[bytes]:
    """A key per row, equal for equal rows. Adding zero turns -0.0 into 0.0."""
    return [row.tobytes() for row in np.ascontiguousarray(features) + 0.0]
