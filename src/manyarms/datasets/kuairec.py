"""KuaiRec: how much of a video users watched, for some users and videos in every cell of the matrix."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import cast

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from manyarms._arrays import Array, as_scalar, frozen
from manyarms.datasets.files import KUAIREC, Archive, locate
from manyarms.datasets.tables import Columns, Kind, read_columns
from manyarms.errors import DataTypeError, InputError, RangeError

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
