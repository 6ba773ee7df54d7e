"""KuaiRec: how much of a video users watched, for some users and videos in every cell of the matrix.

Worlds of partly observed scores, such as the share of a video that a user watched.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

from manyarms._base.checks import Array, as_count, as_scalar, frozen
from manyarms._base.rng import split
from manyarms.datasets.data_files import KUAIREC, Archive, locate
from manyarms.datasets.observed_ratings import as_sparse, check_cells
from manyarms.datasets.rating_matrix import MatrixEnvironment, draw_test_users, factorise
from manyarms.datasets.read_columns import Columns, Kind, read_columns
from manyarms.errors import DataTypeError, InputError, RangeError, ShapeError
from manyarms.linalg.indexing import pair_rows, shape_of

SMALL, BIG, CATEGORIES = "small_matrix.csv", "big_matrix.csv", "item_categories.csv"

PART, PART_CATEGORIES = "small_matrix_subsample_watch_ratio.parquet", "kuairec_caption_category.parquet"
"""A part of the small matrix, and the three levels of categories of every video."""

WATCHED: dict[str, Kind] = {"user_id": "integer", "video_id": "integer", "watch_ratio": "number"}

LEVELS = tuple(f"{level}_level_category_id" for level in ("first", "second", "third"))

UNKNOWN = -124
"""What the owners write where a category is unknown."""

LIST = re.compile(r"\[\s*(?:\d{1,18}(?:\s*,\s*\d{1,18})*)?\s*\]")


@dataclass(frozen=True)
class WatchedCells:
    """User `users[user_rows[i]]` watched video `videos[video_rows[i]]` for `watch_ratio[i]` times its length.

    Each pair of user and video comes once; cells are in the order of users, and of videos within.

    Attributes:
        user_rows: (n,) a cell's user, as a row of `KuaiRec.users`.
        video_rows: (n,) a cell's video, as a row of `KuaiRec.videos`.
        watch_ratio: (n,) time watched over length; above 1 when a video ran more than once.
    """

    user_rows: Int[Array, " n"]
    video_rows: Int[Array, " n"]
    watch_ratio: Float[Array, " n"]

    def __len__(self) -> int:
        return len(self.watch_ratio)


@dataclass(frozen=True)
class KuaiRec:
    """Users watched videos: nearly all pairs of the small matrix are known, few of the big one.

    The files have several rows for some pairs of user and video, who met more than once: a cell is their mean.

    Attributes:
        users: (U,) the owners' ids of everyone in either matrix, ascending.
        videos: (V,) the owners' ids of every video in either matrix, ascending.
        small: The small matrix, to log from and to judge on.
        big: The big matrix, to learn vectors from; None when its file is not there.
        categories: The categories of each of `videos`: the owners' tags, none when they give none. When `partial`, the
            path from the top of another taxonomy down, as far as it is known.
        partial: Whether `small` is a published part of the small matrix instead of the whole.
    """

    users: Int[Array, " U"]
    videos: Int[Array, " V"]
    small: WatchedCells
    big: WatchedCells | None
    categories: list[tuple[int, ...]]
    partial: bool

    def matrix(self, cells: WatchedCells, *, clip: float = 10.0) -> sparse.csr_array:
        """(U, V) scores in [0, 1]: watch ratios, clipped, over the largest of the same user (paper, App. F).

        The largest is that among `cells`, after clipping. A video not watched at all is stored, as a zero; what is not
        stored is not known. A user who watched nothing has zeros.

        Args:
            cells: `small` or `big`.
            clip: Larger ratios count as this one: a video may have run in the background for hours.
        """
        ratio = np.minimum(cells.watch_ratio, as_scalar("clip", clip, above=0.0))
        largest = np.zeros(len(self.users))
        np.maximum.at(largest, cells.user_rows, ratio)
        scores = ratio / np.where(largest > 0.0, largest, 1.0)[cells.user_rows]
        return sparse.csr_array(
            (scores, (cells.user_rows, cells.video_rows)), shape=(len(self.users), len(self.videos))
        )


def load_kuairec(path: str | os.PathLike[str] | None = None, *, download: bool = False) -> KuaiRec:
    """Read KuaiRec in its owners' format: small_matrix.csv, big_matrix.csv and item_categories.csv.

    Where there is no small_matrix.csv but small_matrix_subsample_watch_ratio.parquet and
    kuairec_caption_category.parquet, these are read, and the result is `partial`.

    Args:
        path: The zip, or a folder that holds it or its files; the cache folder by default. Nothing is unpacked.
        download: Fetch the zip into the cache folder (432 MB, CC BY-SA 4.0) when it is not there.

    Raises:
        DataFileError: A file is missing or damaged; says where to get it.
        InputError: Naming the file, the first bad line and a way out.
    """
    archive = locate(KUAIREC, path, SMALL, fetch=download)
    partial = not archive.has(SMALL) and archive.has(PART)
    small = _read_watched(archive, PART if partial else SMALL)
    big = _read_watched(archive, BIG) if not partial and archive.has(BIG) else None
    of_video = _read_paths(archive) if partial else _read_tags(archive)
    matrices = [small] if big is None else [small, big]
    users = np.unique(np.concatenate([np.unique(ids["user_id"]) for ids in matrices]))
    videos = np.unique(np.concatenate([np.unique(ids["video_id"]) for ids in matrices]))
    return KuaiRec(
        users=frozen(users),
        videos=frozen(videos),
        small=_cells(small, users, videos),
        big=None if big is None else _cells(big, users, videos),
        categories=[of_video.get(video, ()) for video in videos.tolist()],
        partial=partial,
    )


def _read_watched(archive: Archive, name: str) -> dict[str, Array]:
    columns = read_columns(archive, name, WATCHED)
    columns.check("watch_ratio", columns.array("watch_ratio") >= 0.0, RangeError, "must not be negative")
    return {column: columns.array(column) for column in WATCHED}


def _cells(watched: dict[str, Array], users: Int[Array, " U"], videos: Int[Array, " V"]) -> WatchedCells:
    """One cell for each pair, with the mean of its rows."""
    pairs = np.searchsorted(users, watched["user_id"]) * len(videos) + np.searchsorted(videos, watched["video_id"])
    found, cell = np.unique(pairs, return_inverse=True)
    mean = np.bincount(cell, weights=watched["watch_ratio"]) / np.bincount(cell)
    user_rows, video_rows = np.divmod(found, len(videos))
    return WatchedCells(frozen(user_rows), frozen(video_rows), frozen(mean))


def _read_tags(archive: Archive) -> dict[int, tuple[int, ...]]:
    columns = read_columns(archive, CATEGORIES, {"video_id": "integer", "feat": "text"})
    lists = columns.texts("feat")
    fine = np.array([LIST.fullmatch(text) is not None for text in lists])
    columns.check("feat", fine, DataTypeError, "must be a list such as [27, 9]")
    return _by_video(columns, [tuple(int(tag) for tag in re.findall(r"\d+", text)) for text in lists])


def _read_paths(archive: Archive) -> dict[int, tuple[int, ...]]:
    columns = read_columns(archive, PART_CATEGORIES, {"video_id": "integer", **dict.fromkeys(LEVELS, "integer")})
    table = np.column_stack([columns.array(level) for level in LEVELS])
    # Below an unknown level nothing is known.
    depth = np.cumprod(table != UNKNOWN, axis=1).sum(axis=1)
    return _by_video(columns, [tuple(row[:known]) for row, known in zip(table.tolist(), depth, strict=True)])


def _by_video(columns: Columns, categories: list[tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    video = columns.array("video_id")
    first = np.unique(video, return_index=True)[1]
    columns.check("video_id", np.isin(np.arange(len(video)), first), InputError, "must have each video once")
    return dict(zip(cast(list[int], video.tolist()), categories, strict=True))


@dataclass(frozen=True)
class KuaiRecWorld:
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


def kuairec_world(
    log_matrix: Any,
    prior_matrix: Any,
    categories: Sequence[Sequence[int]],
    *,
    rank: int = 10,
    test_share: float = 0.5,
    rng: np.random.Generator,
) -> KuaiRecWorld:
    """A world on scores of which some are missing: see `KuaiRecWorld`.

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
    return KuaiRecWorld(environment, frozen(users), frozen(items), frozen(vectors[items]), groups)


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
    return _kept_cells(table, first), _kept_cells(table, ~first)


def _kept_cells(table: sparse.csr_array, keep: Bool[Array, " p"]) -> sparse.csr_array:
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
