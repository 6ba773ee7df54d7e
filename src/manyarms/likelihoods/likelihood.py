"""The interface of every likelihood: how a reward arises from its linear predictor η = φ(x)ᵀ θ_a."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from copy import copy
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from manyarms._base.checks import Array, as_instance, check_rows
from manyarms.core import Logs, Statistics
from manyarms.engines import Local
from manyarms.errors import DataTypeError, RangeError
from manyarms.likelihoods.collect_statistics import CollectStatistics
from manyarms.model_file.save import Saved

Treatment = Literal["exact", "variational", "laplace", "paper"]
PerRound = Float[Array, " n"]
Numbers = Float[Array, "..."]
Rule = tuple[tuple[float, float], ...]
"""Nodes of a quadrature with their shares."""


class Site(NamedTuple):
    """The result of a likelihood's `site`: a Gaussian factor exp(linear η - weight η² / 2) per round; weight >= 0."""

    weight: PerRound
    linear: PerRound

    @classmethod
    def of_slope(cls, mean: PerRound, slope: PerRound, weight: PerRound) -> Site:
        """The Gaussian factor with this slope and weight at η = m."""
        # A site of weight zero cannot carry a slope; this weight is negligible beside any prior.
        weight = np.maximum(weight, LEAST_WEIGHT)
        return cls(weight, weight * mean + slope)


class Likelihood(Saved, ABC):
    """p(r | η), with E[r | η] = g(η) increasing in η.

    Attributes:
        treatment: "exact" when rewards (or a transform of them) are Gaussian around η: then one solve gives the
            posterior. Otherwise the name of the approximation.
        is_linear: True if g(η) = η.
        noise_std: Standard deviation of rewards around η where that noise is Gaussian; 1 for other likelihoods, whose
            sites carry their own weights.
        dispersion_name: The argument that says how far rewards lie from their expectation; None if there is none.
        requirement: The condition on rewards, as in "must be 0 or 1".
        remedy: What to do about rewards that do not meet it, as a sentence.
        flag_remedy: The same remedy for users of the command line, where it reads differently.
    """

    treatment: Treatment
    is_linear: bool = False
    noise_std: float = 1.0
    dispersion_name: str | None = None
    requirement: str = "must be numbers"
    remedy: str = ""
    flag_remedy: str = ""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Known faults of a posterior under this likelihood, in plain words."""
        return ()

    @property
    def mean_is_exact(self) -> bool:
        """True if `mean_reward` is E g(η) itself, not an approximate formula."""
        return True

    @property
    def dispersion(self) -> float | None:
        """The parameter that says how far rewards lie from their expectation, if any: `learn_prior` learns it."""
        return None if self.dispersion_name is None else float(getattr(self, self.dispersion_name))

    def with_dispersion(self, value: float | None) -> Likelihood:
        """This likelihood with another dispersion."""
        if self.dispersion_name is None or value is None:
            return self
        out = copy(self)
        object.__setattr__(out, self.dispersion_name, value)
        return out

    def dispersion_slope(self, rewards: PerRound, mean: PerRound, variance: PerRound) -> PerRound:
        """The derivative of L by the logarithm of the dispersion."""
        if self.dispersion is None:
            return np.zeros_like(mean)
        step = 1e-5
        high, low = (self.with_dispersion(self.dispersion * np.exp(sign * step)) for sign in (1.0, -1.0))
        rise = high.expected_log_density(rewards, mean, variance) - low.expected_log_density(rewards, mean, variance)
        return rise / (2 * step)

    @abstractmethod
    def log_predictive(self, rewards: PerRound, mean: PerRound, variance: PerRound) -> PerRound:
        """log E p(r | η) for η ~ N(m, v): the log density of a held-out reward."""

    def allows(self, rewards: PerRound) -> Bool[Array, " n"]:
        """True for each reward that this likelihood can produce; by default any number."""
        return np.ones(len(rewards), dtype=bool)

    def check(self, rewards: PerRound, weights: PerRound | None = None, remedy: str | None = None) -> None:
        """Refuse rewards that this likelihood cannot produce, naming the first row.

        Args:
            rewards: The logged rewards.
            weights: How often each counts; rewards of weight zero may be anything.
            remedy: What the caller can do about it, where `self.remedy` does not apply.
        """
        advice, flags = (self.remedy, self.flag_remedy) if remedy is None else (remedy, "")
        check_rows(
            "rewards", rewards, lambda r: self.allows(r) if weights is None else self.allows(r) | (weights == 0),
            RangeError, self.requirement, advice, flags,
        )  # fmt: skip

    def log_density(self, rewards: PerRound, predictor: PerRound) -> PerRound:
        """log p(r | η)."""
        return self.expected_log_density(rewards, predictor, np.zeros_like(predictor))

    @abstractmethod
    def expected_log_density(self, rewards: PerRound, mean: PerRound, variance: PerRound) -> PerRound:
        """L(r, m, v) = E log p(r | η) for η ~ N(m, v), or a lower bound on it."""

    @abstractmethod
    def slopes(self, rewards: PerRound, mean: PerRound, variance: PerRound) -> tuple[PerRound, PerRound]:
        """∂L/∂m and -2 ∂L/∂v: the slope and the weight of a site.

        Where L is the expectation itself they are the expected first and minus the expected second derivative of log p.
        """

    @abstractmethod
    def mean_reward(self, mean: Numbers, variance: Numbers) -> Numbers:
        """E g(η) for η ~ N(m, v)."""

    @abstractmethod
    def mean_slope(self, mean: Numbers, variance: Numbers) -> Numbers:
        """E g'(η): how a value moves with η."""

    def start(self, rewards: PerRound, mean: PerRound, variance: PerRound) -> tuple[PerRound, PerRound]:
        """The N(m, v) around which the first sites are taken, given the predictions of the prior."""
        return mean, variance

    def treated(self, treatment: Treatment) -> Likelihood:
        """This likelihood with another treatment."""
        out = copy(self)
        object.__setattr__(out, "treatment", treatment)
        return out

    def score(self, mean: Numbers, variance: Numbers) -> Numbers:
        """A number that ranks actions as `mean_reward` does and is cheaper to compute."""
        return self.mean_reward(mean, variance)

    def scores_above(
        self, floor: Float[Array, " b"], mean: Float[Array, "b c"], variance: Float[Array, "b c"]
    ) -> Float[Array, "b c"]:
        """`score`, or minus infinity where a cheap bound shows that it is below the floor of its row."""
        return self.score(mean, variance)

    def reward_given(self, predictor: Numbers) -> Numbers:
        """g(η)."""
        return self.mean_reward(predictor, np.zeros_like(predictor))

    def response(self, rewards: PerRound) -> PerRound:
        """The transform of rewards that is Gaussian around η, where there is one; else the rewards."""
        return rewards

    def log_jacobian(self, rewards: PerRound, weights: PerRound | None) -> float:
        """Σ log |d response / d reward|, each round counted with its weight: a term of the evidence."""
        return 0.0

    def statistics(self, logs: Logs, n_actions: int) -> Statistics:
        """The sufficient statistics of logged rounds, one pass over their batches; for exact likelihoods."""
        return Local().total(logs, CollectStatistics(self, n_actions, logs.dim)).statistics

    def site(self, rewards: PerRound, mean: PerRound, variance: PerRound) -> Site:
        """The Gaussian factor that stands in for p(r | η) around N(m, v)."""
        return Site.of_slope(mean, *self.slopes(rewards, mean, variance))

    def site_and_density(self, rewards: PerRound, mean: PerRound, variance: PerRound) -> tuple[Site, PerRound]:
        """`site` and `expected_log_density`, which may share most of their work."""
        return self.site(rewards, mean, variance), self.expected_log_density(rewards, mean, variance)


def as_likelihood(value: Any) -> Likelihood:
    """The likelihood that a user passed, checked; Gaussian(1.0) if they passed none."""
    from manyarms.likelihoods.gaussian import Gaussian  # noqa: PLC0415  it derives from Likelihood

    if isinstance(value, type):
        kind = value.__name__
        raise DataTypeError(f"must be a likelihood, not the class {kind}.", f"Pass {kind}().", argument="likelihood")
    likelihood = Gaussian() if value is None else value
    return as_instance("likelihood", likelihood, Likelihood, "a likelihood, as in ma.Gaussian(1.0)")


class LinearLikelihood(Likelihood):
    """A likelihood with g(η) = η."""

    is_linear = True

    def site(self, rewards: PerRound, mean: PerRound, variance: PerRound) -> Site:
        """A Gaussian round with the reward as it is: its weight is never zero, whatever the unit of rewards."""
        weight = self.slopes(rewards, mean, variance)[1]
        return Site(weight, weight * rewards)

    def mean_reward(self, mean: Numbers, variance: Numbers) -> Numbers:
        return mean

    def mean_slope(self, mean: Numbers, variance: Numbers) -> Numbers:
        return np.ones_like(mean)


class QuadratureLikelihood(Likelihood):
    """Base class of a likelihood given by log p and its first two derivatives by η; expectations are by quadrature."""

    @abstractmethod
    def log_density(self, rewards: PerRound, predictor: PerRound) -> PerRound:
        """log p(r | η)."""

    @abstractmethod
    def derivatives(self, rewards: PerRound, predictor: PerRound) -> tuple[PerRound, PerRound]:
        """The first and the second derivative of log p by η."""

    def expected_log_density(self, rewards: PerRound, mean: PerRound, variance: PerRound) -> PerRound:
        out, spread = np.zeros_like(mean), np.sqrt(variance)
        for rows, node, share in _nodes(spread):
            out[rows] += share * self.log_density(rewards[rows], mean[rows] + node * spread[rows])
        return out

    def log_predictive(self, rewards: PerRound, mean: PerRound, variance: PerRound) -> PerRound:
        out, spread = np.full_like(mean, -np.inf), np.sqrt(variance)
        for rows, node, share in _nodes(spread):
            log_density = self.log_density(rewards[rows], mean[rows] + node * spread[rows])
            out[rows] = np.logaddexp(out[rows], np.log(share) + log_density)
        return out

    def slopes(self, rewards: PerRound, mean: PerRound, variance: PerRound) -> tuple[PerRound, PerRound]:
        slope, tilt, bend, spread = np.zeros_like(mean), np.zeros_like(mean), np.zeros_like(mean), np.sqrt(variance)
        for rows, node, share in _nodes(spread):
            first, second = self.derivatives(rewards[rows], mean[rows] + node * spread[rows])
            slope[rows] += share * first
            tilt[rows] -= share * node * first
            bend[rows] -= share * second
        # E f'' = E z f' / s (Stein). The right side is the derivative of the quadrature itself, and still has the right
        # size where the nodes are too far apart to see the bend. Without spread only the left side can be computed.
        wide = spread > 1e-3
        return slope, np.where(wide, tilt / np.where(wide, spread, 1.0), bend)


def _nodes(spread: PerRound) -> Iterator[tuple[slice | Int[Array, " m"], float, float]]:
    """Rows, a node and its share: Gauss-Hermite nodes where η is narrow, a fine grid where it is wide."""
    wide = spread > NARROW
    rules = [(slice(None), HERMITE)]
    if wide.any():
        rules = [(np.flatnonzero(~wide), HERMITE), (np.flatnonzero(wide), _GRID_RULE)]
    for rows, rule in rules:
        for node, share in rule:
            yield rows, float(node), float(share)


def hermite_rule(size: int) -> Rule:
    """The rule of a `QuadratureLikelihood`: nodes and shares with Σ share f(node) = E f(z) for z ~ N(0, 1).

    It is exact for polynomials f of degree below 2 `size`.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(size)
    return tuple(zip(nodes.tolist(), (weights / weights.sum()).tolist(), strict=True))


HERMITE = hermite_rule(20)
# The trapezoid rule: its error falls with e^(-2π² / h) where f is smooth over a distance of π, as logistic curves are.
_GRID = np.linspace(-12.0, 12.0, 321)
_GRID_RULE = tuple(zip(_GRID, np.exp(-0.5 * _GRID**2) / np.exp(-0.5 * _GRID**2).sum(), strict=True))
NARROW = 1.5
"""The standard deviation of η up to which `HERMITE` has six digits of a logistic curve."""
LEAST_WEIGHT = 1e-10
