"""KuaiRec: the share of videos that users watched, and a world with these scores as rewards.

For some users and videos nearly every cell of the matrix is observed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._base.checks import Array, as_count, as_scalar, frozen
from manyarms._base.rng import split
from manyarms.datasets.data_files import KUAIREC, Archive, locate
from manyarms.datasets.matrix_environment import MatrixEnvironment, draw_test_users
from manyarms.datasets.rating_matrix import as_rating_matrix, check_cells, factorise
from manyarms.datasets.read_columns import Columns, Kind, read_columns
from manyarms.errors import DataTypeError, InputError, RangeError, ShapeError
from manyarms.linalg.sparse_matrices import shape_of

SMALL, BIG, CATEGORIES = "small_matrix.csv", "big_matrix.csv", "item_categories.csv"

PART, PART_CATEGORIES = "small_matrix_subsample_watch_ratio.parquet", "kuairec_caption_category.parquet"
"""Files of a published part of the small matrix, and of the three levels of categories of every video."""

WATCHED: dict[str, Kind] = {"user_id": "integer", "video_id": "integer", "watch_ratio": "number"}

LEVELS = tuple(f"{level}_level_category_id" for level in ("first", "second", "third"))

UNKNOWN = -124
"""The number that the owners write for an unknown category."""

LIST = re.compile(r"\[\s*(?:\d{1,18}(?:\s*,\s*\d{1,18})*)?\s*\]")


@dataclass(frozen=True)
class WatchRatios:
    """Watch ratios of KuaiRec: user `users[user_rows[i]]` watched `videos[video_rows[i]]` for `watch_ratio[i]` lengths.

    `users` and `videos` are those of `KuaiRec`. A ratio is above 1 when a video ran more than once. Each pair of user
    and video occurs once. Cells are sorted by user, then by video.
    """

    user_rows: Int[Array, " n"]
    video_rows: Int[Array, " n"]
    watch_ratio: Float[Array, " n"]

    def __len__(self) -> int:
        return len(self.watch_ratio)


@dataclass(frozen=True)
class KuaiRec:
    """Watch ratios of users and videos: nearly all pairs of the small matrix are observed, few of the big one.

    Where the files have several rows for a pair of user and video, the cell is their mean.

    Attributes:
        users: (U,) The owners' ids of the users in either matrix, ascending.
        videos: (V,) The owners' ids of the videos in either matrix, ascending.
        small: The small matrix, to log from and to evaluate on.
        big: The big matrix, to learn vectors from; None when its file is not there.
        categories: The categories of each of `videos`: the owners' tags, possibly none. When `partial`, the path from
            the top of another taxonomy down, as far as it is known.
        partial: True when `small` is a published part of the small matrix.
    """

    users: Int[Array, " U"]
    videos: Int[Array, " V"]
    small: WatchRatios
    big: WatchRatios | None
    categories: list[tuple[int, ...]]
    partial: bool

    def matrix(self, cells: WatchRatios, *, clip: float = 10.0) -> sparse.csr_array:
        """(U, V) scores in [0, 1]: watch ratios, clipped, over the largest of the same user (paper, App. F).

        The largest ratio is that among `cells`, after clipping. A video that was not watched at all is stored as a
        zero; a cell that is not stored is not observed. A user who watched nothing has zeros.

        Args:
            cells: `small` or `big`.
            clip: Ceiling on watch ratios, since a video may have run in the background for hours.
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

    Without small_matrix.csv, small_matrix_subsample_watch_ratio.parquet and kuairec_caption_category.parquet are read
    if they are there. The result is then `partial`.

    Args:
        path: The zip, or a folder that holds it or its files; the cache folder by default. Nothing is unpacked.
        download: True to download the zip into the cache folder (432 MB, CC BY-SA 4.0) when it is not there.

    Raises:
        DataFileError: When a file is missing or damaged. The message says where to get it.
        InputError: Naming the file, the first bad line and a remedy.
    """
    archive = locate(KUAIREC, path, SMALL, fetch=download)
    partial = not archive.has(SMALL) and archive.has(PART)
    small = _read_watched(archive, PART if partial else SMALL)
    big = _read_watched(archive, BIG) if not partial and archive.has(BIG) else None
    categories = _read_paths(archive) if partial else _read_tags(archive)
    matrices = [small] if big is None else [small, big]
    users = np.unique(np.concatenate([np.unique(ids["user_id"]) for ids in matrices]))
    videos = np.unique(np.concatenate([np.unique(ids["video_id"]) for ids in matrices]))
    return KuaiRec(
        users=frozen(users),
        videos=frozen(videos),
        small=_cells(small, users, videos),
        big=None if big is None else _cells(big, users, videos),
        categories=[categories.get(video, ()) for video in videos.tolist()],
        partial=partial,
    )


def _read_watched(archive: Archive, name: str) -> dict[str, Array]:
    columns = read_columns(archive, name, WATCHED)
    columns.check("watch_ratio", columns.array("watch_ratio") >= 0.0, RangeError, "must not be negative")
    return {column: columns.array(column) for column in WATCHED}


def _cells(watched: dict[str, Array], users: Int[Array, " U"], videos: Int[Array, " V"]) -> WatchRatios:
    """One cell per pair, with the mean of its rows."""
    pairs = np.searchsorted(users, watched["user_id"]) * len(videos) + np.searchsorted(videos, watched["video_id"])
    distinct, cell = np.unique(pairs, return_inverse=True)
    mean = np.bincount(cell, weights=watched["watch_ratio"]) / np.bincount(cell)
    user_rows, video_rows = np.divmod(distinct, len(videos))
    return WatchRatios(frozen(user_rows), frozen(video_rows), frozen(mean))


def _read_tags(archive: Archive) -> dict[int, tuple[int, ...]]:
    columns = read_columns(archive, CATEGORIES, {"video_id": "integer", "feat": "text"})
    lists = columns.texts("feat")
    good = np.array([LIST.fullmatch(text) is not None for text in lists])
    columns.check("feat", good, DataTypeError, "must be a list such as [27, 9]")
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
    """A random user arrives; the reward of a video that the user really saw is its real score, in [0, 1].

    Two matrices of scores share users and videos. One is known beforehand: its low-rank factorisation x_uᵀ θ_a gives
    contexts and prior knowledge of the videos. The other has the rewards, which are not modelled. A context is the
    user's factors, each with unit root mean square over the users of this world.

    Attributes:
        environment: The true environment. Only videos that a user has a score of may be chosen for that user.
        users: (u,) The users, as rows of the matrices: those with a reward.
        items: (K,) The video of each action, as a column of the matrices: those with a score in both.
        item_vectors: (K, d) Prior knowledge of the actions: x_uᵀ item_vectors[a] is the rank-r approximation of the
            prior scores, plus the item's mean prior score where the world has item means.
        categories: The category ids of each action.
    """

    environment: MatrixEnvironment
    users: Int[Array, " u"]
    items: Int[Array, " K"]
    item_vectors: Float[Array, "K d"]
    categories: list[tuple[int, ...]]


def kuairec_world(
    log_matrix: Any,
    prior_matrix: Any,
    categories: Sequence[Sequence[int]],
    *,
    rank: int = 10,
    test_share: float = 0.5,
    item_means: bool = False,
    rng: np.random.Generator,
) -> KuaiRecWorld:
    """A KuaiRec world on partly observed scores; see `KuaiRecWorld`.

    A cell in both matrices gives its reward away; `split_cells` makes two matrices without a common cell. A cell that
    `prior_matrix` does not store counts as zero in the factorisation, so `item_vectors` are smaller than those of the
    rewards. Divide them by the share of stored cells to have both on one scale.

    Args:
        log_matrix: (users, videos) Rewards, SciPy sparse. Each stored cell is observed, zeros too. Users and videos
            without any only help the factorisation.
        prior_matrix: (users, videos) Scores known beforehand, SciPy sparse.
        categories: The category ids of each video.
        rank: r, the number of factors in a context.
        test_share: The share of users that policies are evaluated on.
        item_means: True to begin contexts with a one, and `item_vectors` with the mean prior score of each video.
        rng: A NumPy generator, which draws the test users.
    """
    users_rng, start_rng = split(rng, "users", "start")
    rewards, prior = _as_scores("log_matrix", log_matrix), _as_scores("prior_matrix", prior_matrix)
    n_users, n_videos = shape_of(rewards)
    if shape_of(prior) != (n_users, n_videos):
        raise ShapeError(
            f"must have the shape of log_matrix, {rewards.shape}; got {prior.shape}.", argument="prior_matrix"
        )
    if len(categories) != n_videos:
        raise ShapeError(f"must have one entry per video: {n_videos}; got {len(categories)}.", argument="categories")
    items = np.intersect1d(rewards.indices, prior.indices)
    if len(items) == 0:
        raise InputError("log_matrix and prior_matrix have no video in common, so there is nothing to choose.")
    kept = sparse.csr_array(rewards[:, items])
    users = np.flatnonzero(np.diff(kept.indptr))
    features, vectors = _scaled_factors(prior, users, as_count("rank", rank), start_rng)
    if item_means:
        means = np.asarray(prior.sum(axis=0)).reshape(-1) / np.maximum(
            np.bincount(prior.indices, minlength=n_videos), 1
        )
        features, vectors = np.column_stack([np.ones(len(users)), features]), np.column_stack([means, vectors])
    test = draw_test_users(len(users), test_share, users_rng)
    environment = MatrixEnvironment(kept[users], features, test, observed=kept[users])
    groups = [tuple(int(category) for category in categories[video]) for video in items]
    return KuaiRecWorld(environment, frozen(users), frozen(items), frozen(vectors[items]), groups)


def _scaled_factors(
    prior: sparse.csr_array, rows: Int[Array, " u"], rank: int, rng: np.random.Generator
) -> tuple[Float[Array, "u d"], Float[Array, "videos d"]]:
    """Contexts of these users with unit root mean square, and items scaled so that products do not change."""
    users, items = factorise(prior, rank, rng)
    spread = np.square(users[rows]).mean(axis=0)
    # Users are U √s, so the spread of a component that is only rounding error is to the others as its s is.
    if spread.min() <= 1e-12 * spread.max():
        raise RangeError(
            f"must be at most that of the rows of prior_matrix that have rewards; got {rank}.", argument="rank"
        )
    scale = np.sqrt(spread)
    return users[rows] / scale, items * scale


def _as_scores(name: str, matrix: Any) -> sparse.csr_array:
    table = as_rating_matrix(name, matrix)
    good = (table.data >= 0.0) & (table.data <= 1.0)
    check_cells(name, table, good, RangeError, "must lie in [0, 1]", "Divide by the largest score, or clip.")
    return table
