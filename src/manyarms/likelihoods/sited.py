"""Rounds with a Gaussian site each, as the loop of `approximate` sees them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from jaxtyping import Float

from manyarms._arrays import Array
from manyarms.core.data import LoggedData
from manyarms.core.hierarchy import HierarchicalGaussian
from manyarms.core.statistics import Statistics
from manyarms.linalg.quadratic import row_norms

Sites = TypeVar("Sites")
WIDE = 1.0
"""Of a predictor with a larger variance even an earlier posterior knows no better than the prior."""


@dataclass(frozen=True)
class Sited(Generic[Sites]):
    """A posterior, and the sites it was solved for.

    Attributes:
        sites: In the form in which the rounds keep them.
        statistics: The sites as sums, in units of a noise of one.
        weights: The posterior of ψ and θ given these.
        objective: What a step must not lower.
        log_evidence: The evidence lower bound, or Laplace's approximation of the evidence.
        rounding: The error of the objective.
    """

    sites: Sites
    statistics: Statistics
    weights: HierarchicalGaussian
    objective: float
    log_evidence: float
    rounding: float


class SitedRounds(ABC, Generic[Sites]):
    """All that the loop asks of rounds."""

    @abstractmethod
    def sites_from(self, weights: HierarchicalGaussian) -> Sites:
        """The sites to begin with, given some weights."""

    @abstractmethod
    def state(self, sites: Sites) -> Sited[Sites]:
        """Solve for given sites and look at what follows."""

    @abstractmethod
    def target(self, state: Sited[Sites]) -> Sites:
        """The sites that a posterior asks for."""

    @abstractmethod
    def settled(self, state: Sited[Sites]) -> Sites | None:
        """More careful sites, for when all at once overshoot; None when these rounds know none."""

    @abstractmethod
    def between(self, state: Sited[Sites], target: Sites, share: float) -> Sites:
        """Sites on the way to the target."""

    @abstractmethod
    def dispersion_slope(self, state: Sited[Sites]) -> float:
        """The derivative of the objective by the logarithm of the likelihood's dispersion."""


def predictions(
    weights: HierarchicalGaussian, rounds: LoggedData, *, with_variance: bool
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Mean and variance of the predictor of every round."""
    x, actions = rounds.contexts, rounds.actions
    seen, where = np.unique(actions, return_inverse=True)
    mean = np.einsum("nd,nd->n", x, weights.action_mean(seen)[where])
    return mean, row_norms(x, actions, weights.action_cov) ** 2 if with_variance else np.zeros_like(mean)
