"""What every likelihood supplies: how a reward arises from its linear predictor η = φ(x)ᵀ θ_a."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from manyarms._arrays import Array
from manyarms.core.data import LoggedData
from manyarms.core.statistics import Statistics

Treatment = Literal["exact", "variational", "laplace", "paper"]


class Site(NamedTuple):
    """What a round says of its predictor: a Gaussian factor exp(linear η - weight η² / 2), its weight not negative."""

    weight: Float[Array, " n"]
    linear: Float[Array, " n"]


class Likelihood(ABC):
    """p(r | η), with E[r | η] = g(η) increasing in η.

    Attributes:
        treatment: "exact" when rewards (or a transform of them) are Gaussian around η: then one solve is the posterior.
            Else how the posterior is approximated.
        is_linear: Whether g(η) = η.
        noise_std: Of the rewards around η where that is Gaussian; 1 for others, whose sites carry their own weights.
        dispersion_name: Which argument says how far rewards lie from their expectation; None when none does.
    """

    treatment: Treatment
    is_linear: bool = False
    noise_std: float = 1.0
    dispersion_name: str | None = None

    @property
    def dispersion(self) -> float | None:
        """How far rewards lie from their expectation, where that is a parameter: `learn_prior` learns it."""
        return None if self.dispersion_name is None else float(getattr(self, self.dispersion_name))

    def with_dispersion(self, value: float | None) -> Likelihood:
        """The same likelihood with another dispersion."""
        if self.dispersion_name is None or value is None:
            return self
        out = copy(self)
        object.__setattr__(out, self.dispersion_name, value)
        return out

    def dispersion_slope(
        self, rewards: Float[Array, " n"], mean: Float[Array, " n"], variance: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        """The derivative of L by the logarithm of the dispersion."""
        if self.dispersion is None:
            return np.zeros_like(mean)
        step = 1e-5
        high, low = (self.with_dispersion(self.dispersion * np.exp(sign * step)) for sign in (1.0, -1.0))
        rise = high.expected_log_density(rewards, mean, variance) - low.expected_log_density(rewards, mean, variance)
        return rise / (2 * step)

    @abstractmethod
    def log_predictive(
        self, rewards: Float[Array, " n"], mean: Float[Array, " n"], variance: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        """log E p(r | η) for η ~ N(m, v): the log density of a reward that was held out."""

    @abstractmethod
    def check(self, rewards: Float[Array, " n"]) -> None:
        """Refuse rewards that this likelihood cannot produce, naming the first row."""

    @abstractmethod
    def expected_log_density(
        self, rewards: Float[Array, " n"], mean: Float[Array, " n"], variance: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        """L(r, m, v) = E log p(r | η) for η ~ N(m, v), or a lower bound of it."""

    @abstractmethod
    def slopes(
        self, rewards: Float[Array, " n"], mean: Float[Array, " n"], variance: Float[Array, " n"]
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """∂L/∂m and -2 ∂L/∂v: the slope and the weight of a site.

        Where L is the expectation itself they are the expected first and minus the expected second derivative of log p.
        """

    @abstractmethod
    def mean_reward(self, mean: Float[Array, "..."], variance: Float[Array, "..."]) -> Float[Array, "..."]:
        """E g(η) for η ~ N(m, v)."""

    @abstractmethod
    def mean_slope(self, mean: Float[Array, "..."], variance: Float[Array, "..."]) -> Float[Array, "..."]:
        """E g'(η): how a value moves with η."""

    def start(
        self, rewards: Float[Array, " n"], mean: Float[Array, " n"], variance: Float[Array, " n"]
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Around which N(m, v) to take the first sites, given what the prior predicts."""
        return mean, variance

    def treated(self, treatment: Treatment) -> Likelihood:
        """The same likelihood with another treatment."""
        out = copy(self)
        object.__setattr__(out, "treatment", treatment)
        return out

    def score(self, mean: Float[Array, "..."], variance: Float[Array, "..."]) -> Float[Array, "..."]:
        """Anything that ranks as `mean_reward` does and is cheaper to compute."""
        return self.mean_reward(mean, variance)

    def reward_given(self, predictor: Float[Array, "..."]) -> Float[Array, "..."]:
        """g(η)."""
        return self.mean_reward(predictor, np.zeros_like(predictor))

    def response(self, rewards: Float[Array, " n"]) -> Float[Array, " n"]:
        """What is Gaussian around η, where something is; else the rewards."""
        return rewards

    def log_jacobian(self, rewards: Float[Array, " n"], weights: Float[Array, " n"] | None) -> float:
        """Σ log |d response / d reward|, each round as often as its weight says: it belongs to the evidence."""
        return 0.0

    def statistics(self, logs: LoggedData, n_actions: int) -> Statistics:
        """The sufficient statistics of logged rounds, one pass over their batches; for exact likelihoods."""
        total = Statistics.empty(n_actions, logs.dim)
        for batch in logs.batches():
            self.check(batch.rewards)
            response = self.response(batch.rewards)
            total += Statistics.of_rounds(batch.contexts, batch.actions, response, n_actions, batch.weights)
        return total

    def site(self, rewards: Float[Array, " n"], mean: Float[Array, " n"], variance: Float[Array, " n"]) -> Site:
        """The Gaussian factor that stands in for p(r | η) around N(m, v)."""
        slope, weight = self.slopes(rewards, mean, variance)
        # A weight of zero cannot carry a slope; this one is nothing beside any prior.
        weight = np.maximum(weight, LEAST_WEIGHT)
        return Site(weight, weight * mean + slope)


class QuadratureLikelihood(Likelihood):
    """A likelihood given by log p and its two derivatives by η; expectations by Gauss-Hermite quadrature."""

    @abstractmethod
    def log_density(self, rewards: Float[Array, "..."], predictor: Float[Array, "..."]) -> Float[Array, "..."]:
        """log p(r | η)."""

    @abstractmethod
    def derivatives(
        self, rewards: Float[Array, "..."], predictor: Float[Array, "..."]
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """The first and the second derivative of log p by η."""

    def expected_log_density(
        self, rewards: Float[Array, " n"], mean: Float[Array, " n"], variance: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        out, spread = np.zeros_like(mean), np.sqrt(variance)
        for node, share in zip(*hermite(), strict=True):
            out += share * self.log_density(rewards, mean + node * spread)
        return out

    def log_predictive(
        self, rewards: Float[Array, " n"], mean: Float[Array, " n"], variance: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        spread = np.sqrt(variance)
        terms = [
            np.log(share) + self.log_density(rewards, mean + node * spread)
            for node, share in zip(*hermite(), strict=True)
        ]
        return np.logaddexp.reduce(terms, axis=0)

    def slopes(
        self, rewards: Float[Array, " n"], mean: Float[Array, " n"], variance: Float[Array, " n"]
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        slope, tilt, bend, spread = np.zeros_like(mean), np.zeros_like(mean), np.zeros_like(mean), np.sqrt(variance)
        for node, share in zip(*hermite(), strict=True):
            first, second = self.derivatives(rewards, mean + node * spread)
            slope += share * first
            tilt -= share * node * first
            bend -= share * second
        # E f'' = E z f' / s (Stein). The right side is the derivative of the quadrature itself, and still of the right
        # size where the nodes are too far apart to see the bend; without spread only the left one can be computed.
        wide = spread > 1e-3
        return slope, np.where(wide, tilt / np.where(wide, spread, 1.0), bend)


def hermite() -> tuple[Float[Array, " q"], Float[Array, " q"]]:
    """Nodes and shares with Σ share f(node) = E f(z), z ~ N(0, 1), for polynomials of degree up to 39."""
    return _NODES, _SHARES


_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
_SHARES = _WEIGHTS / _WEIGHTS.sum()
LEAST_WEIGHT = 1e-10
