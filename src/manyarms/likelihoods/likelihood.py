"""What every likelihood supplies: how a reward arises from its linear predictor η = φ(x)ᵀ θ_a."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from copy import copy
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from manyarms._base.checks import Array, check_rows
from manyarms.core.logged_data import Logs
from manyarms.core.statistics import Statistics
from manyarms.engines import Local
from manyarms.errors import RangeError
from manyarms.likelihoods.collect_statistics import CollectStatistics
from manyarms.model_file.save import Saved

Treatment = Literal["exact", "variational", "laplace", "paper"]


class Site(NamedTuple):
    """What a round says of its predictor: a Gaussian factor exp(linear η - weight η² / 2), its weight not negative."""

    weight: Float[Array, " n"]
    linear: Float[Array, " n"]


class Likelihood(Saved, ABC):
    """p(r | η), with E[r | η] = g(η) increasing in η.

    Attributes:
        treatment: "exact" when rewards (or a transform of them) are Gaussian around η: then one solve is the posterior.
            Else how the posterior is approximated.
        is_linear: Whether g(η) = η.
        noise_std: Of the rewards around η where that is Gaussian; 1 for others, whose sites carry their own weights.
        dispersion_name: Which argument says how far rewards lie from their expectation; None when none does.
        requirement: What holds of the rewards it allows, as in "must be 0 or 1".
        remedy: What to use for others.
    """

    treatment: Treatment
    is_linear: bool = False
    noise_std: float = 1.0
    dispersion_name: str | None = None
    requirement: str = "must be numbers"
    remedy: str = ""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is known to be wrong with a posterior under it, in plain words."""
        return ()

    @property
    def mean_is_exact(self) -> bool:
        """Whether `mean_reward` is E g(η) itself, and not a formula that comes near it."""
        return True

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

    def allows(self, rewards: Float[Array, " n"]) -> Bool[Array, " n"]:
        """Which rewards this likelihood can produce; by default any number."""
        return np.ones(len(rewards), dtype=bool)

    def check(
        self, rewards: Float[Array, " n"], weights: Float[Array, " n"] | None = None, remedy: str | None = None
    ) -> None:
        """Refuse rewards that this likelihood cannot produce, naming the first row.

        Args:
            rewards: As they were logged.
            weights: How often each counts; those of weight zero may be anything.
            remedy: What the caller can do about it, where that is not what `self.remedy` says.
        """
        check_rows(
            "rewards", rewards, lambda r: self.allows(r) if weights is None else self.allows(r) | (weights == 0),
            RangeError, self.requirement, self.remedy if remedy is None else remedy,
        )  # fmt: skip

    def log_density(self, rewards: Float[Array, " n"], predictor: Float[Array, " n"]) -> Float[Array, " n"]:
        """log p(r | η)."""
        return self.expected_log_density(rewards, predictor, np.zeros_like(predictor))

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

    def statistics(self, logs: Logs, n_actions: int) -> Statistics:
        """The sufficient statistics of logged rounds, one pass over their batches; for exact likelihoods."""
        return Local().total(logs, CollectStatistics(self, n_actions, logs.dim)).statistics

    def site(self, rewards: Float[Array, " n"], mean: Float[Array, " n"], variance: Float[Array, " n"]) -> Site:
        """The Gaussian factor that stands in for p(r | η) around N(m, v)."""
        slope, weight = self.slopes(rewards, mean, variance)
        # A weight of zero cannot carry a slope; this one is nothing beside any prior.
        weight = np.maximum(weight, LEAST_WEIGHT)
        return Site(weight, weight * mean + slope)


class QuadratureLikelihood(Likelihood):
    """A likelihood given by log p and its two derivatives by η; expectations by quadrature."""

    @abstractmethod
    def log_density(self, rewards: Float[Array, " n"], predictor: Float[Array, " n"]) -> Float[Array, " n"]:
        """log p(r | η)."""

    @abstractmethod
    def derivatives(
        self, rewards: Float[Array, " n"], predictor: Float[Array, " n"]
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """The first and the second derivative of log p by η."""

    def expected_log_density(
        self, rewards: Float[Array, " n"], mean: Float[Array, " n"], variance: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        out, spread = np.zeros_like(mean), np.sqrt(variance)
        for rows, node, share in _nodes(spread):
            out[rows] += share * self.log_density(rewards[rows], mean[rows] + node * spread[rows])
        return out

    def log_predictive(
        self, rewards: Float[Array, " n"], mean: Float[Array, " n"], variance: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        out, spread = np.full_like(mean, -np.inf), np.sqrt(variance)
        for rows, node, share in _nodes(spread):
            found = self.log_density(rewards[rows], mean[rows] + node * spread[rows])
            out[rows] = np.logaddexp(out[rows], np.log(share) + found)
        return out

    def slopes(
        self, rewards: Float[Array, " n"], mean: Float[Array, " n"], variance: Float[Array, " n"]
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        slope, tilt, bend, spread = np.zeros_like(mean), np.zeros_like(mean), np.zeros_like(mean), np.sqrt(variance)
        for rows, node, share in _nodes(spread):
            first, second = self.derivatives(rewards[rows], mean[rows] + node * spread[rows])
            slope[rows] += share * first
            tilt[rows] -= share * node * first
            bend[rows] -= share * second
        # E f'' = E z f' / s (Stein). The right side is the derivative of the quadrature itself, and still of the right
        # size where the nodes are too far apart to see the bend; without spread only the left one can be computed.
        wide = spread > 1e-3
        return slope, np.where(wide, tilt / np.where(wide, spread, 1.0), bend)


def _nodes(spread: Float[Array, " n"]) -> Iterator[tuple[slice | Int[Array, " m"], float, float]]:
    """Which rows, a node and its share: Gauss-Hermite where η is narrow, and where it is wide nodes close enough."""
    wide = spread > NARROW
    rules = [(slice(None), hermite())] if not wide.any() else [
        (np.flatnonzero(~wide), hermite()), (np.flatnonzero(wide), (_GRID, _GRID_SHARES)),
    ]  # fmt: skip
    for rows, rule in rules:
        for node, share in zip(*rule, strict=True):
            yield rows, float(node), float(share)


def hermite() -> tuple[Float[Array, " q"], Float[Array, " q"]]:
    """Nodes and shares with Σ share f(node) = E f(z), z ~ N(0, 1), for polynomials of degree up to 39."""
    return _NODES, _SHARES


_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
_SHARES = _WEIGHTS / _WEIGHTS.sum()
# The trapezoid rule: its error falls with e^(-2π² / h) where f is smooth over a distance of π, as logistic curves are.
_GRID = np.linspace(-12.0, 12.0, 321)
_GRID_SHARES = np.exp(-0.5 * _GRID**2) / np.exp(-0.5 * _GRID**2).sum()
NARROW = 1.5
"""The standard deviation of η up to which `hermite` has six digits of a logistic curve."""
LEAST_WEIGHT = 1e-10
