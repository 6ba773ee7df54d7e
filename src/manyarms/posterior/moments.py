"""How expected rewards vary from row to row: means and products around them, which parts of the rows can add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from manyarms._arrays import Array, as_actions
from manyarms._saving import Saved
from manyarms.linalg.groups import sum_by


@dataclass(frozen=True, eq=False)
class RowMoments(Saved):
    """First and second moments of q numbers a row, and the sums of their groups where rows come in clusters.

    Attributes:
        weight: Σ w.
        mean: Σ w x / Σ w.
        scatter: Σ w (x - mean)(x - mean)ᵀ.
        groups: The ids of groups of any weight, ascending; None when every row stands for itself.
        group_sums: For each of them Σ w (x - mean), and Σ w in the last column (e = q + 1).
    """

    saved_as = "row moments"
    weight: float
    mean: Float[Array, " q"]
    scatter: Float[Array, "q q"]
    groups: Int[Array, " g"] | None = None
    group_sums: Float[Array, "g e"] | None = None

    @classmethod
    def of_none(cls, size: int) -> RowMoments:
        """Of no rows."""
        return cls(0.0, np.zeros(size), np.zeros((size, size)))

    @classmethod
    @np.errstate(over="ignore", invalid="ignore")
    def of_rows(cls, columns: Float[Array, "q n"], weights: Float[Array, " n"], groups: Any = None) -> RowMoments:
        """Of rows in memory; an overflow is reported when the moments are used.

        Args:
            columns: The numbers, a column of x after the other.
            weights: How often each row counts, not all zero.
            groups: (n,) users or sessions; None for none.
        """
        mean = np.average(columns, axis=1, weights=weights)
        centred = columns - mean[:, None]
        weighted = weights * centred
        weight, scatter = float(weights.sum()), weighted @ centred.T
        if groups is None:
            return cls(weight, mean, scatter)
        keys, counted = as_actions("groups", groups, length=len(weights)), weights > 0
        sums = np.column_stack([*weighted, weights])
        return cls(weight, mean, scatter, *sum_by(keys[counted], sums[counted]))

    @classmethod
    @np.errstate(over="ignore", invalid="ignore")
    def merged(cls, parts: Sequence[RowMoments]) -> RowMoments:
        """Of the rows of all parts, in any order.

        Every part is moved from its own mean to that of all (Chan, Golub and LeVeque, 1983): no difference of large
        sums is ever taken, however far from zero the rewards lie.
        """
        weights, means = np.array([part.weight for part in parts]), np.array([part.mean for part in parts])
        weight = float(weights.sum())
        mean = means[0] + weights @ (means - means[0]) / weight
        shifts = means - mean
        scatter = sum((part.scatter for part in parts), (weights * shifts.T) @ shifts)
        keys, sums = list[Array](), list[Array]()
        for part, shift in zip(parts, shifts, strict=True):
            if part.groups is None or part.group_sums is None:
                return cls(weight, mean, scatter)
            keys.append(part.groups)
            sums.append(part.group_sums + part.group_sums[:, -1:] * np.append(shift, 0.0))
        return cls(weight, mean, scatter, *sum_by(np.concatenate(keys), np.concatenate(sums)))

    def mean_variance(self, combination: Float[Array, " q"]) -> float | None:
        """The variance of the mean of a combination, over independent rows or groups; None when there is only one."""
        W = self.weight
        if self.group_sums is None:
            spread = np.maximum(combination @ self.scatter @ combination, 0.0)
            return float(spread) / (W - 1) / W if W > 1 else None
        n, sums = len(self.group_sums), self.group_sums[:, :-1] @ combination
        return float(np.sum(sums**2)) / W**2 * n / (n - 1) if n > 1 else None


def mean_variance(values: Float[Array, " n"], counts: Float[Array, " n"], groups: Any) -> float | None:
    """The variance of a mean over independent rows, or over groups of them; None when there is only one."""
    return RowMoments.of_rows(values[None], counts, groups).mean_variance(np.ones(1))
