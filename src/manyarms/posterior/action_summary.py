"""The weights of single actions under a posterior, as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from manyarms._base.checks import Array
from manyarms.core import SHOWN, Catalog, HierarchicalGaussian, Tabular, as_arrow, html_table
from manyarms.linalg.indexing import cache_chunks

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, eq=False, repr=False)
class ActionSummary(Tabular):
    """θ_a ~ N(mean, std²) coordinate by coordinate, for m actions.

    As a table, a row for each action and feature: `action`, `seen`, `feature`, `mean`, `std`.

    Attributes:
        actions: (m,) ids where there is a catalog, else numbers.
        features: The names of the d coordinates.
        seen: (m,) True for actions that were ever logged.
        mean: (m, d) posterior means.
        std: (m, d) posterior standard deviations.
    """

    actions: tuple[Any, ...]
    features: tuple[str, ...]
    seen: Bool[Array, " m"]
    mean: Float[Array, "m d"]
    std: Float[Array, "m d"]

    def records(self) -> list[dict[str, Any]]:
        return self.to_arrow().to_pylist()

    def to_arrow(self, **options: Any) -> pa.Table:
        import pyarrow as pa  # noqa: PLC0415

        m, d = self.mean.shape
        rows = np.repeat(np.arange(m), d)
        return pa.table(
            {
                "action": as_arrow(self.actions).take(rows),
                "seen": self.seen[rows],
                "feature": pa.array(self.features).take(np.tile(np.arange(d), m)),
                "mean": self.mean.reshape(-1),
                "std": self.std.reshape(-1),
            }
        )

    def _repr_html_(self) -> str:
        # The first actions are enough to see: there may be a million.
        some = slice(0, SHOWN // max(1, len(self.features)) + 1)
        few = ActionSummary(self.actions[some], self.features, self.seen[some], self.mean[some], self.std[some])
        return html_table(few.records()[:SHOWN], caption=repr(self))

    def __len__(self) -> int:
        return len(self.actions)

    def __repr__(self) -> str:
        return f"ActionSummary({len(self):,} actions, {int(self.seen.sum()):,} seen, {', '.join(self.features)})"


def summarise(
    weights: HierarchicalGaussian, actions: Any, features: tuple[str, ...], catalog: Catalog | None
) -> ActionSummary:
    """The marginal weights of some actions, or of all where `actions` is None."""
    ids = np.arange(weights.n_actions) if actions is None else actions
    std = np.empty((len(ids), weights.dim))
    for part in cache_chunks(len(ids), weights.dim**2):
        std[part] = np.sqrt(np.einsum("mdd->md", weights.action_cov(ids[part])))
    names = tuple(ids.tolist() if catalog is None else catalog.ids[ids].tolist())
    return ActionSummary(names, features, np.isin(ids, weights.observed.actions), weights.action_mean(ids), std)
