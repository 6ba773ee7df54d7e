"""Open Bandit Dataset: clicks on fashion items that two policies showed in three positions of a page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, check_choice, frozen
from manyarms.core.logged_data import LoggedData
from manyarms.datasets.data_files import OPEN_BANDIT, locate
from manyarms.datasets.read_columns import Columns, Kind, read_columns
from manyarms.errors import ActionError, InputError, PropensityError, RangeError, ShapeError

CAMPAIGNS, POLICIES = ("all", "men", "women"), ("random", "bts")

N_POSITIONS = 3

USER_FEATURES = tuple(f"user_feature_{k}" for k in range(4))

LOG: dict[str, Kind] = {
    "timestamp": "time",
    "item_id": "integer",
    "position": "integer",
    "click": "integer",
    "propensity_score": "number",
    **dict.fromkeys(USER_FEATURES, "text"),
}

ITEM_FEATURES: dict[str, Kind] = {"item_feature_0": "number", **{f"item_feature_{k}": "text" for k in range(1, 4)}}


@dataclass(frozen=True)
class OpenBanditLog:
    """In round i a user was shown item `items[actions[i]]` in one of three positions, and clicked on it or did not.

    Rounds are in the order of time. The policy chose with probability `propensities[i]`, given the position.

    Attributes:
        items: (K,) The owners' ids of the items, ascending: 80 for "all", 34 for "men", 46 for "women".
        item_features: Features of the items, by name: a number, and three texts without meaning. The texts group items.
            The groups are the same in every log of a campaign; the texts are not.
        actions: (n,) The item of each round, as a row of `items`.
        positions: (n,) The position of each round. 0 is the left one; the files count from 1.
        clicks: (n,) 1 for a click, else 0.
        propensities: (n,) Propensities, in (0, 1].
        user_levels: The texts that occur in each of the four user features, ascending.
        user_rows: (n, 4) The numbers of the texts of each round's user.
        timestamps: (n,) Times, datetime64 in UTC.
    """

    items: Int[Array, " K"]
    item_features: dict[str, Array]
    actions: Int[Array, " n"]
    positions: Int[Array, " n"]
    clicks: Int[Array, " n"]
    propensities: Float[Array, " n"]
    user_levels: tuple[tuple[str, ...], ...]
    user_rows: Int[Array, "n 4"]
    timestamps: Array

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def user_features(self) -> Array:
        """(n, 4) The texts of each round's user, computed on request, since the whole log has millions of rows."""
        columns = zip(self.user_levels, self.user_rows.T, strict=True)
        return np.column_stack([np.array(levels, dtype=object)[rows] for levels, rows in columns])

    def logged_data(self, features: str = "position", *, levels: Sequence[Sequence[str]] | None = None) -> LoggedData:
        """The rounds, with clicks as rewards and contexts of zeros and ones.

        With "position" a context has three columns, with a one at its position. With "position+user" there follow, for
        each user feature, as many columns as it has levels, with a one at the user's level. Every level has a column,
        so each block sums to one: no intercept is needed, and least squares without a prior or a penalty would not be
        unique.

        Args:
            features: Content of the contexts, "position" or "position+user".
            levels: The levels that have columns; those of this log by default. Two logs that share a model need the
                same levels, and a small log may miss some: pass `merge_levels(first, second)` to both.
        """
        check_choice("features", features, ("position", "position+user"))
        blocks = [np.eye(N_POSITIONS)[self.positions]]
        if features == "position+user":
            wanted = self.user_levels if levels is None else [list(level) for level in levels]
            if len(wanted) != len(USER_FEATURES):
                raise ShapeError(f"must be {len(USER_FEATURES)} lists of texts; got {len(wanted)}.", argument="levels")
            for k, known in enumerate(wanted):
                column = {text: place for place, text in enumerate(known)}
                unknown = [text for text in self.user_levels[k] if text not in column]
                if unknown:
                    problem = f"of {USER_FEATURES[k]} must have {unknown[0]!r} too."
                    raise InputError(problem, "Pass merge_levels of all logs.", argument="levels")
                columns = np.array([column[text] for text in self.user_levels[k]])
                blocks.append(np.eye(len(known))[columns[self.user_rows[:, k]]])
        return LoggedData(np.hstack(blocks), self.actions, self.clicks, self.propensities, len(self.items))


def merge_levels(*logs: OpenBanditLog) -> tuple[tuple[str, ...], ...]:
    """The levels of each user feature in Open Bandit logs: the texts that occur in any of the logs, ascending."""
    return tuple(
        tuple(sorted({text for log in logs for text in log.user_levels[k]})) for k in range(len(USER_FEATURES))
    )


def load_open_bandit(
    path: str | os.PathLike[str] | None = None, *, campaign: str = "all", policy: str = "random", download: bool = False
) -> OpenBanditLog:
    """Read a log in its owners' format: {policy}/{campaign}/{campaign}.csv, with item_context.csv beside it.

    Without them, {policy}_{campaign}.parquet and {policy}_{campaign}_item_context.parquet with the same columns are
    read. Affinities between users and items are left out.

    Args:
        path: The zip, or a folder that holds it or its files; the cache folder by default. Nothing is unpacked.
        campaign: "all", "men" or "women".
        policy: "random", which showed every item equally often, or "bts", a Thompson sampler.
        download: True to download the zip into the cache folder (413 MB) when it is not there.

    Raises:
        DataFileError: When a file is missing or damaged. The message says where to get it.
        InputError: Naming the file, the first bad line and a remedy.
    """
    check_choice("campaign", campaign, CAMPAIGNS)
    check_choice("policy", policy, POLICIES)
    log_name, items_name = f"{policy}/{campaign}/{campaign}.csv", f"{policy}/{campaign}/item_context.csv"
    archive = locate(OPEN_BANDIT, path, log_name, fetch=download)
    flat = f"{policy}_{campaign}.parquet"
    if not archive.has(log_name) and archive.has(flat):
        log_name, items_name = flat, f"{policy}_{campaign}_item_context.parquet"
    catalog = read_columns(archive, items_name, {"item_id": "integer", **ITEM_FEATURES})
    items, order = np.unique(catalog.array("item_id"), return_index=True)
    once = np.isin(np.arange(catalog.table.num_rows), order)
    catalog.check("item_id", once, InputError, "must have each item once")
    features = {
        name: np.array(catalog.texts(name), dtype=object) if kind == "text" else catalog.array(name)
        for name, kind in ITEM_FEATURES.items()
    }
    item_features = {name: frozen(values[order]) for name, values in features.items()}
    return _as_log(read_columns(archive, log_name, LOG), items, item_features)


def _as_log(log: Columns, items: Int[Array, " K"], item_features: dict[str, Array]) -> OpenBanditLog:
    columns = {name: log.array(name) for name in LOG if name not in USER_FEATURES}
    item, position = columns["item_id"], columns["position"]
    click, propensity = columns["click"], columns["propensity_score"]
    log.check("item_id", np.isin(item, items), ActionError, "must be in item_context")
    log.check("position", (position >= 1) & (position <= N_POSITIONS), RangeError, f"must be 1 to {N_POSITIONS}")
    log.check("click", (click == 0) | (click == 1), RangeError, "must be 0 or 1")
    log.check("propensity_score", (propensity > 0) & (propensity <= 1), PropensityError, "must lie in (0, 1]")
    levels, rows = zip(*(log.levels(name) for name in USER_FEATURES), strict=True)
    # Splits by time take rows as they stand.
    order = np.argsort(columns["timestamp"], kind="stable")
    return OpenBanditLog(
        items=frozen(items),
        item_features=item_features,
        actions=frozen(np.searchsorted(items, item)[order]),
        positions=frozen(position[order] - 1),
        clicks=frozen(click[order]),
        propensities=frozen(propensity[order]),
        user_levels=levels,
        user_rows=frozen(np.column_stack(rows)[order]),
        timestamps=frozen(columns["timestamp"][order]),
    )
