"""The observed rows of each seen action: R_a and ρ_a with R_aᵀR_a = G_a and R_aᵀρ_a = B_a.

An action with fewer than d rounds keeps its rounds; one with more keeps d rows that carry the same information. Actions
with equally many rows form a group, so that all later steps are batched products over one rectangular array per group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, frozen
from manyarms.core.statistics import ActionSums, Statistics
from manyarms.errors import NumericalError
from manyarms.linalg.factor_and_solve import gram_root, triangular
from manyarms.linalg.indexing import chunks, group_by
from manyarms.model_file.part_checks import floats, indices, instance_of, is_finite, tuple_of
from manyarms.model_file.save import Saved


@dataclass(frozen=True)
class ObservedGroup(Saved):
    """The observed rows of all seen actions that have r rows each."""

    saved_as = "rank group"
    saved_checks: ClassVar = {"actions": indices(), "root": floats(3), "response": floats(2)}
    actions: Int[Array, " m"]
    """Their numbers, ascending."""
    root: Float[Array, "m r d"]
    """R_a: rows in units of the noise."""
    response: Float[Array, "m r"]
    """ρ_a: their rewards in the same units."""

    def consistent(self) -> bool:
        """True if every action has its rows and responses, and actions ascend."""
        m, r, _ = self.root.shape
        return (
            r > 0
            and self.response.shape == (m, r)
            and len(self.actions) == m
            and bool((np.diff(self.actions) > 0).all())
        )

    @property
    def rank(self) -> int:
        """r, between 1 and d."""
        return self.root.shape[1]


@dataclass(eq=False)
class ObservedRows(Saved):
    """The observed rows of every seen action.

    Attributes:
        groups: Actions by number of rows.
        residual: The part of Σ r² / σ² outside the rows, which no weights could explain.
        log_normaliser: -1/2 Σ log 2πσ² over all rounds.
    """

    saved_as = "observed"
    saved_checks: ClassVar = {
        "groups": tuple_of(instance_of(ObservedGroup)),
        "residual": is_finite,
        "log_normaliser": is_finite,
    }
    groups: tuple[ObservedGroup, ...]
    residual: float
    log_normaliser: float

    def consistent(self) -> bool:
        """True if no action is in two groups, and all rows are of one length."""
        # Not `self.actions`: the index is only built when it is needed.
        ids = np.concatenate([np.empty(0, np.int64), *(group.actions for group in self.groups)])
        return len(np.unique(ids)) == len(ids) and len({group.root.shape[2] for group in self.groups}) <= 1

    @property
    def actions(self) -> Int[Array, " m"]:
        """Every seen action, ascending."""
        return self._index[0]

    @cached_property
    def _index(self) -> tuple[Int[Array, " m"], Int[Array, " m"], Int[Array, " m"]]:
        """Every seen action, its group and its position there; built when first needed, so that files open at once."""
        groups = self.groups
        ids = np.concatenate([g.actions for g in groups]) if groups else np.empty(0, np.int64)
        order = np.argsort(ids, kind="stable")
        sizes = [len(g.actions) for g in groups]
        owner = np.repeat(np.arange(len(groups)), sizes)
        place = np.concatenate([np.arange(size) for size in sizes]) if groups else np.empty(0, np.int64)
        return frozen(ids[order]), owner[order], place[order]

    @classmethod
    def empty(cls) -> ObservedRows:
        """The rows of no data."""
        return cls((), 0.0, 0.0)

    def find(self, actions: Int[Array, " m"]) -> Iterator[tuple[int, Int[Array, " q"], Int[Array, " q"]]]:
        """The seen ones of `actions`, by group: (group number, positions in `actions`, positions in the group)."""
        known, owners, places = self._index
        if len(known) == 0:
            return
        slot = self._slots(actions)
        seen = np.flatnonzero(known[slot] == actions)
        owner, place = owners[slot[seen]], places[slot[seen]]
        for number in np.unique(owner):
            inside = owner == number
            yield int(number), seen[inside], place[inside]

    def _slots(self, actions: Int[Array, " m"]) -> Int[Array, " m"]:
        """The place of each action among the seen ones, ascending; any place for those that were not seen."""
        known, table = self._index[0], self._table
        if table is None:
            return np.minimum(np.searchsorted(known, actions), len(known) - 1)
        return table[np.minimum(actions, len(table) - 1)]

    @cached_property
    def _table(self) -> Int[Array, " q"] | None:
        """The places of actions up to the last one seen; None where that would take far more memory than the rows."""
        known = self._index[0]
        if known[-1] >= _SPARSE * len(known):
            return None
        out = np.zeros(int(known[-1]) + 1, dtype=np.int32)
        out[known] = np.arange(len(known), dtype=np.int32)
        return out

    def rescaled(self, noise_std: float, log_normaliser: float) -> ObservedRows:
        """These rows in units of a noise that is `noise_std` times as large."""
        out = copy(self)
        out.groups = tuple(
            ObservedGroup(g.actions, frozen(g.root / noise_std), frozen(g.response / noise_std)) for g in self.groups
        )
        out.residual, out.log_normaliser = self.residual / noise_std**2, log_normaliser
        return out

    def rows(self) -> tuple[Int[Array, " n"], Float[Array, "n d"], Float[Array, " n"]]:
        """All rows stacked: (action of each, row, response)."""
        actions = np.concatenate([np.repeat(g.actions, g.rank) for g in self.groups])
        dim = self.groups[0].root.shape[2]
        root = np.concatenate([g.root.reshape(-1, dim) for g in self.groups])
        return actions, root, np.concatenate([g.response.reshape(-1) for g in self.groups])

    def split(self, actions: Int[Array, " m"]) -> tuple[ObservedRows, list[Array]]:
        """The rows of some actions, without what no weights explain, and by group which actions are left."""
        own, left = list[ObservedGroup](), list[Array]()
        for group in self.groups:
            inside = np.isin(group.actions, actions)
            left.append(~inside)
            if inside.any():
                own.append(ObservedGroup(group.actions[inside], group.root[inside], group.response[inside]))
        return ObservedRows(tuple(own), 0.0, 0.0), left

    def joined(self, other: ObservedRows) -> ObservedRows:
        """The rows of both. More than d rows of an action are folded by QR, which loses no digits."""
        groups, folded = self.groups or other.groups, 0.0
        if self.groups and other.groups:
            groups, folded = group_rows(*map(np.concatenate, zip(self.rows(), other.rows(), strict=True)))
        residual = self.residual + other.residual + folded
        return ObservedRows(groups, residual, self.log_normaliser + other.log_normaliser)


def group_rows(
    actions: Int[Array, " n"], root: Float[Array, "n d"], response: Float[Array, " n"]
) -> tuple[tuple[ObservedGroup, ...], float]:
    """Observed rows grouped by their number per action, at most d each, and the part of Σ ρ² that folding set aside."""
    d = root.shape[1]
    grouped = group_by(actions)
    parts, residual = list[ObservedGroup](), 0.0
    for block, index in grouped.blocks(np.arange(len(grouped.keys)), limit=1 << 16):
        x, y = root[index], response[index]
        if x.shape[1] > d:
            folded = triangular(np.concatenate([x, y[:, :, None]], axis=2))
            x, y = folded[:, :d, :d], folded[:, :d, d]
            residual += float(np.sum(folded[:, d:, d] ** 2))
        parts.append(ObservedGroup(grouped.keys[block], x, y))
    return merge_groups(parts), residual


def merge_groups(groups: Sequence[ObservedGroup]) -> tuple[ObservedGroup, ...]:
    """Groups of observed rows of disjoint actions, those of equal rank merged into one."""
    merged = merge_columns([(group.actions, group.root, group.response) for group in groups])
    return tuple(ObservedGroup(*columns) for columns in merged)


def merge_columns(groups: Sequence[tuple[Array, ...]]) -> list[tuple[Array, ...]]:
    """Actions, their rows and other columns, merged where actions have equally many rows, and ascending."""
    out = list[tuple[Array, ...]]()
    for rank in sorted({columns[1].shape[1] for columns in groups}):
        same = [columns for columns in groups if columns[1].shape[1] == rank]
        columns = same[0] if len(same) == 1 else [np.concatenate(parts) for parts in zip(*same, strict=True)]
        if np.any(np.diff(columns[0]) < 0):
            order = np.argsort(columns[0], kind="stable")
            columns = [column[order] for column in columns]
        out.append(tuple(map(frozen, columns)))
    return out


@np.errstate(over="ignore", invalid="ignore")  # an overflow is reported where the rows are used
def observe(statistics: Statistics, noise_std: float) -> ObservedRows:
    """The observed rows of statistics, in units of the noise: the square-root form that conditioning solves.

    R_a = Φ_a / σ and ρ_a = r_a / σ, or d equivalent rows where only sums were kept.
    """
    rows = statistics.rows
    few, _ = group_rows(rows.actions, rows.features / noise_std, rows.rewards / noise_std)
    many, residual = _from_sums(statistics.sums, noise_std)
    log_normaliser = -0.5 * statistics.total_weight * np.log(2 * np.pi * noise_std**2)
    return ObservedRows(merge_groups((*few, *many)), residual, float(log_normaliser))


def _from_sums(sums: ActionSums, noise_std: float) -> tuple[tuple[ObservedGroup, ...], float]:
    if len(sums.actions) == 0:
        return (), 0.0
    root, response = np.empty_like(sums.gram), np.empty_like(sums.moment)
    about, residual = sums.about_a_fit()[:, 1], 0.0
    for part in chunks(len(sums.actions), 1024):
        finite = np.isfinite(sums.gram[part]).all(axis=(1, 2)) & np.isfinite(sums.moment[part]).all(axis=1)
        finite &= np.isfinite(sums.reward_sq[part])
        if not finite.all():
            action = int(sums.actions[part][np.argmin(finite)])
            raise NumericalError(f"sums over the rounds of action {action} overflow.", "Rescale contexts or rewards.")
        root[part], response[part] = gram_root(sums.gram[part], sums.moment[part])
        # About a fit: what no weights explain is the same, and no difference of large numbers.
        explained = np.square(gram_root(sums.gram[part], about[part, :-1])[1]).sum(axis=1)
        residual += float(np.sum(np.maximum(about[part, -1] - explained, 0.0)))
    root /= noise_std
    response /= noise_std
    return (ObservedGroup(sums.actions, frozen(root), frozen(response)),), residual / noise_std**2


_SPARSE = 16
"""Actions per seen one above which they are searched for rather than looked up."""
