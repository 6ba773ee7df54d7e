"""Worlds of partly observed scores, such as the share of a video that a user watched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

from manyarms._arrays import Array, as_count, frozen
from manyarms._random import split
from manyarms.datasets.matrix import MatrixEnvironment, draw_test_users, factorise
from manyarms.datasets.partial import as_sparse, check_cells
from manyarms.errors import InputError, RangeError, ShapeError
from manyarms.linalg.pairs import pair_rows, shape_of


@dataclass(frozen=True)
class WatchedWorld:
    """A user comes by, drawn at random; a video that the user really saw is worth the score it really got, in [0, 1].

    Two matrices of scores share users and videos. One is known beforehand, and its factorisation x_uᵀ θ_a of low rank
    gives contexts and what may be believed of the videos; the other has the rewards, which are not modelled. A context
    is the user's factors, each of unit root mean square over the users who come by.

    Attributes:
        environment: The truth: only videos that a user has a score of may be chosen for that user.
        users: (u,) who may come by, as rows of the matrices: those with a reward.
        items: (K,) which videos the actions are, as columns of the matrices: those with a score in both.
        item_vectors: (K, d) what is known of the actions beforehand: x_uᵀ item_vectors[a] is the rank-r approximation
            of the prior scores.
        categories: The category ids of each action.
    """

    environment: MatrixEnvironment
    users: Int[Array, " u"]
    items: Int[Array, " K"]
    item_vectors: Float[Array, "K d"]
    categories: list[tuple[int, ...]]

    @property
    def prior_vectors(self) -> Float[Array, "K d"]:
        """The vectors to fit a prior on: those of the actions."""
        return self.item_vectors


def watched_world(
    log_matrix: Any,
    prior_matrix: Any,
    categories: Sequence[Sequence[int]],
    *,
    rank: int = 10,
    test_share: float = 0.5,
    rng: np.random.Generator,
) -> WatchedWorld:
    """A world on scores of which some are missing: see `WatchedWorld`.

    A cell in both matrices gives its reward away; `split_cells` makes two without any in common of one. A cell that
    `prior_matrix` does not store counts as zero in the factorisation, so `item_vectors` are as much smaller than the
    rewards' own as there are cells missing: divide them by the share of cells stored to have both at one scale.

    Args:
        log_matrix: (users, videos) the rewards, SciPy sparse; each stored cell is observed, zeros too. Users and videos
            without any only help the factorisation.
        prior_matrix: (users, videos) scores known beforehand, SciPy sparse.
        categories: The category ids of each video.
        rank: r, how many factors a context has.
        test_share: The share of users that policies are judged on.
        rng: Draws the users to judge on.
    """
    users_rng, start_rng = split(rng, "users", "start")
    rewards, prior = _as_scores("log_matrix", log_matrix), _as_scores("prior_matrix", prior_matrix)
    n_users, n_videos = shape_of(rewards)
    if shape_of(prior) != (n_users, n_videos):
        raise ShapeError(f"prior_matrix must have the shape of log_matrix, {rewards.shape}; got {prior.shape}.")
    if len(categories) != n_videos:
        raise ShapeError(f"categories must have one entry a video: {n_videos}; got {len(categories)}.")
    items = np.intersect1d(rewards.indices, prior.indices)
    if len(items) == 0:
        raise InputError("log_matrix and prior_matrix have no video in common, so that there is nothing to choose.")
    kept = sparse.csr_array(rewards[:, items])
    users = np.flatnonzero(np.diff(kept.indptr))
    features, vectors = _scaled_factors(prior, users, as_count("rank", rank), start_rng)
    test = draw_test_users(len(users), test_share, users_rng)
    environment = MatrixEnvironment(kept[users], features, test, observed=kept[users])
    groups = [tuple(int(category) for category in categories[video]) for video in items]
    return WatchedWorld(environment, frozen(users), frozen(items), frozen(vectors[items]), groups)


def split_cells(matrix: Any, rng: np.random.Generator) -> tuple[sparse.csr_array, sparse.csr_array]:
    """The stored cells of each user at random in two halves; where their number is odd, so is which half has one more.

    Args:
        matrix: (users, videos) SciPy sparse; zeros that are stored are cells too.
        rng: Draws the halves.

    Returns:
        Two matrices of the same shape, without a cell in common.
    """
    order_rng, odd_rng = split(rng, "order", "odd")
    table = as_sparse("matrix", matrix)
    rows, counts = pair_rows(table), np.diff(table.indptr)
    order = np.lexsort((order_rng.random(table.nnz), rows))
    rank = np.empty(table.nnz, dtype=np.int64)
    rank[order] = np.arange(table.nnz) - table.indptr[rows]
    size = (counts + odd_rng.integers(2, size=len(counts))) // 2
    first = rank < size[rows]
    return _cells(table, first), _cells(table, ~first)


def _cells(table: sparse.csr_array, keep: Bool[Array, " p"]) -> sparse.csr_array:
    """These stored cells only, zeros among them too."""
    starts = np.concatenate([[0], np.cumsum(keep)])[table.indptr]
    return sparse.csr_array((table.data[keep], table.indices[keep], starts), shape=table.shape)


def _scaled_factors(
    prior: sparse.csr_array, rows: Int[Array, " u"], rank: int, rng: np.random.Generator
) -> tuple[Float[Array, "u d"], Float[Array, "videos d"]]:
    """Contexts of these users, of unit root mean square; items scaled against it, so that products stay."""
    users, items = factorise(prior, rank, rng)
    spread = np.square(users[rows]).mean(axis=0)
    # Users are U √s, so that the spread of a component that is nothing but rounding is to the others as s is.
    if spread.min() <= 1e-12 * spread.max():
        raise RangeError(f"rank must be at most that of the rows of prior_matrix that have rewards; got {rank}.")
    scale = np.sqrt(spread)
    return users[rows] / scale, items * scale


def _as_scores(name: str, matrix: Any) -> sparse.csr_array:
    table = as_sparse(name, matrix)
    fine = (table.data >= 0.0) & (table.data <= 1.0)
    check_cells(name, table, fine, RangeError, "must lie in [0, 1]", "Divide by the largest score, or clip.")
    return table
