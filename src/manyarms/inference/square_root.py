"""Statistics turned into rows in units of the noise: the square-root form in which everything is solved."""

from __future__ import annotations

import numpy as np

from manyarms._base.checks import frozen
from manyarms.core.observed_rows import ObservedRows, RankGroup, group_rows, merge_groups
from manyarms.core.statistics import ActionSums, Statistics
from manyarms.errors import NumericalError
from manyarms.linalg.factor import gram_root
from manyarms.linalg.indexing import chunks


def observe(statistics: Statistics, noise_std: float) -> ObservedRows:
    """R_a = Φ_a / σ and ρ_a = r_a / σ, or d rows that say the same where only sums were kept."""
    rows = statistics.rows
    few, _ = group_rows(rows.actions, rows.features / noise_std, rows.rewards / noise_std)
    many, residual = _from_sums(statistics.sums, noise_std)
    log_normaliser = -0.5 * statistics.total_weight * np.log(2 * np.pi * noise_std**2)
    return ObservedRows(merge_groups(few, many), residual, float(log_normaliser))


def _from_sums(sums: ActionSums, noise_std: float) -> tuple[tuple[RankGroup, ...], float]:
    if len(sums.actions) == 0:
        return (), 0.0
    root, response = np.empty_like(sums.gram), np.empty_like(sums.moment)
    for part in chunks(len(sums.actions), 1024):
        finite = np.isfinite(sums.gram[part]).all(axis=(1, 2)) & np.isfinite(sums.moment[part]).all(axis=1)
        finite &= np.isfinite(sums.reward_sq[part])
        if not finite.all():
            action = int(sums.actions[part][np.argmin(finite)])
            raise NumericalError(f"sums over the rounds of action {action} overflow. Rescale contexts or rewards.")
        root[part], response[part] = gram_root(sums.gram[part], sums.moment[part])
    root /= noise_std
    response /= noise_std
    explained = np.einsum("mr,mr->m", response, response)
    residual = float(np.sum(np.maximum(sums.reward_sq / noise_std**2 - explained, 0.0)))
    return (RankGroup(sums.actions, frozen(root), frozen(response)),), residual
