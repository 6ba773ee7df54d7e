"""Rewards with Gaussian noise: the conjugate case."""

from __future__ import annotations

from dataclasses import dataclass

from manyarms._arrays import as_scalar
from manyarms.core.data import LoggedData
from manyarms.core.statistics import Statistics


@dataclass(frozen=True)
class Gaussian:
    """r | x, a ~ N(φ(x)ᵀ θ_a, σ²).

    Args:
        noise_std: σ, above zero: how far a single reward lies from its expectation, one standard deviation.
    """

    noise_std: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_std", as_scalar("noise_std", self.noise_std, above=0.0, below=1e150))

    def statistics(self, logs: LoggedData, n_actions: int) -> Statistics:
        """The sufficient statistics of logged rounds, one pass over their batches."""
        total = Statistics.empty(n_actions, logs.dim)
        for batch in logs.batches():
            total += Statistics.of_rounds(batch.contexts, batch.actions, batch.rewards, n_actions, batch.weights)
        return total
