"""What prior and posterior expect of the rewards of many rounds together, category by category."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import betainc, gammainc, gammaincc, logit, ndtr, ndtri

from manyarms._arrays import Array
from manyarms.core.data import LoggedData
from manyarms.core.hierarchy import HierarchicalGaussian
from manyarms.errors import InputError
from manyarms.likelihoods import Bernoulli, Likelihood, Poisson
from manyarms.linalg.groups import chunks, group_by, sum_by
from manyarms.posterior import RewardPosterior
from manyarms.posterior.predictor import Predictor


class Forecast(NamedTuple):
    """What some weights expect, by category: all are sums over its rounds, each as often as its weight says."""

    total: Float[Array, " c"]
    """Σ w E r."""
    slope: Float[Array, " c"]
    """Σ w E g'(η)."""
    variance: Float[Array, " c"]
    """Var Σ w g'(η) η: of the total, by the delta method where g is not the identity."""
    owner: Int[Array, " m"]
    """The category of each logged action."""


class Sums(NamedTuple):
    """The rounds of each category, and what prior and posterior expect of them."""

    weight: Float[Array, " c"]
    """Σ w."""
    reward: Float[Array, " c"]
    """Σ w r."""
    residual_sq: Float[Array, " c"]
    """Σ w (r - r̂)²."""
    noise: Float[Array, " c"]
    """Σ w Var(r | η); zero where it says nothing beyond the mean."""
    variance: Float[Array, " c"]
    """Σ w Var r̂."""
    prior: Forecast
    posterior: Forecast


class Outcome(ABC):
    """How a sum of rewards is distributed.

    Attributes:
        likelihood: Of a single reward.
        is_gaussian: Whether rewards, or their logarithms, are Gaussian around η.
    """

    is_gaussian: bool

    def __init__(self, likelihood: Likelihood):
        self.likelihood = likelihood

    @abstractmethod
    def expect(self, mean: Float[Array, " n"], variance: Float[Array, " n"]) -> tuple[Array, Array, Array]:
        """E r, E g'(η) and E Var(r | η) for η ~ N(m, v), round by round."""

    @abstractmethod
    def compare(
        self, reward: Float[Array, " p"], weight: Float[Array, " p"], forecast: Forecast, present: Int[Array, " p"]
    ) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        """How far sums of rewards lie from a forecast: z-scores and two-sided p-values of the categories `present`."""


class GaussianOutcome(Outcome):
    """Σ w r ~ N(Σ w η, Var Σ w η + Σ w σ²); of log rewards under `LogNormal`."""

    is_gaussian = True

    def expect(self, mean: Float[Array, " n"], variance: Float[Array, " n"]) -> tuple[Array, Array, Array]:
        return mean, np.ones_like(mean), np.full_like(mean, self.likelihood.noise_std**2)

    def compare(
        self, reward: Float[Array, " p"], weight: Float[Array, " p"], forecast: Forecast, present: Int[Array, " p"]
    ) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        spread = forecast.variance[present] + weight * self.likelihood.noise_std**2
        z = (reward - forecast.total[present]) / np.sqrt(spread)
        return z, 2 * ndtr(-np.abs(z))


class DiscreteOutcome(Outcome):
    """A sum of clicks or counts, given the mean reward g(u) of a category; u ~ N(μ, s²) stands for its predictors.

    μ and s are such that the mean reward has the expectation that it should have, and the variance of the delta method,
    (s E g'(u))²: exact when all rounds have one action and one context, and as narrow as it should be when many actions
    average out. A normal z-score would not do: rates under a wide prior are skewed, and so are few clicks.
    """

    is_gaussian = False

    def compare(
        self, reward: Float[Array, " p"], weight: Float[Array, " p"], forecast: Forecast, present: Int[Array, " p"]
    ) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        total, slope, variance = (column[present] for column in forecast[:3])
        centre, spread = self._matched(total / weight, slope / weight, np.sqrt(variance) / weight)
        below, above = np.zeros_like(total), np.zeros_like(total)
        for part in chunks(len(_NODES), max(1, _AT_ONCE // max(1, len(total)))):
            rate = self.likelihood.reward_given(centre + _NODES[part, None] * spread)
            low, high = self.tails(reward, weight, rate)
            below += _SHARES[part] @ low
            above += _SHARES[part] @ high
        # A sum that is hit exactly counts half on either side.
        hit = np.maximum(below + above - 1.0, 0.0) / 2
        low, high = (np.clip(tail - hit, 1e-300, 1.0) for tail in (below, above))
        z = np.where(low < high, ndtri(low), -ndtri(high))
        return z, np.minimum(2 * np.minimum(below, above), 1.0)

    @abstractmethod
    def tails(self, total: Array, weight: Array, rate: Array) -> tuple[Array, Array]:
        """P(sum <= total) and P(sum >= total) over so many rounds at this rate."""

    @abstractmethod
    def centre(self, mean: Array, spread: Array, start: Array | None) -> Array:
        """μ with E g(μ + s z) = mean."""

    def _matched(
        self, mean: Float[Array, " p"], slope: Float[Array, " p"], std: Float[Array, " p"]
    ) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        """μ and s with E g(μ + s z) = mean and s E g'(μ + s z) = std."""
        spread, centre = std, None
        for _ in range(10):
            # Rounds differ in η, so g is flatter on average over them than over u: from above, s falls to its limit.
            spread = std / np.maximum(slope, np.finfo(float).tiny)
            centre = self.centre(mean, spread, centre)
            slope = self.likelihood.mean_slope(centre, spread**2)
        assert centre is not None
        return centre, spread


class Clicks(DiscreteOutcome):
    """Binomial: that rounds of one category differ in their rates makes the sum vary less, never more."""

    def expect(self, mean: Float[Array, " n"], variance: Float[Array, " n"]) -> tuple[Array, Array, Array]:
        # (r - r̂)² of a click is known once r and r̂ are: no dispersion beside the mean.
        return (
            self.likelihood.mean_reward(mean, variance),
            self.likelihood.mean_slope(mean, variance),
            np.zeros_like(mean),
        )

    def centre(self, mean: Array, spread: Array, start: Array | None) -> Array:
        """By Newton's method on the scale of η, where it is all but linear."""
        target = logit(np.clip(mean, np.finfo(float).tiny, 1.0 - 2.0**-53))
        out = target * np.sqrt(1.0 + np.pi / 8.0 * spread**2) if start is None else start
        for _ in range(4):
            now = np.clip(self.likelihood.mean_reward(out, spread**2), np.finfo(float).tiny, 1.0 - 2.0**-53)
            slope = np.maximum(self.likelihood.mean_slope(out, spread**2), np.finfo(float).tiny)
            out = out - np.clip((logit(now) - target) * now * (1.0 - now) / slope, -5.0, 5.0)
        return out

    def tails(self, total: Array, weight: Array, rate: Array) -> tuple[Array, Array]:
        rest, tiny = weight - total, np.finfo(float).tiny
        below = np.where(rest > 0, betainc(np.maximum(rest, tiny), total + 1.0, 1.0 - rate), 1.0)
        above = np.where(total > 0, betainc(np.maximum(total, tiny), rest + 1.0, rate), 1.0)
        return below, above


class Counts(DiscreteOutcome):
    """Poisson: a sum of Poisson counts is one."""

    def expect(self, mean: Float[Array, " n"], variance: Float[Array, " n"]) -> tuple[Array, Array, Array]:
        rate = self.likelihood.mean_reward(mean, variance)
        return rate, self.likelihood.mean_slope(mean, variance), rate

    def centre(self, mean: Array, spread: Array, start: Array | None) -> Array:
        return np.log(np.maximum(mean, np.finfo(float).tiny)) - 0.5 * spread**2

    def tails(self, total: Array, weight: Array, rate: Array) -> tuple[Array, Array]:
        return gammaincc(total + 1.0, weight * rate), np.where(total > 0, gammainc(total, weight * rate), 1.0)


def outcome_of(likelihood: Likelihood) -> Outcome:
    """The distribution of sums of rewards under a likelihood."""
    if likelihood.treatment == "exact":
        return GaussianOutcome(likelihood)
    if isinstance(likelihood, Bernoulli):
        # With exact expectations, whatever the fit was asked to rank by.
        return Clicks(Bernoulli())
    if isinstance(likelihood, Poisson):
        return Counts(likelihood)
    raise InputError(
        f"categories cannot be checked under {type(likelihood).__name__}: a few rounds decide the mean of heavy-tailed "
        "rewards. Compare priors by held-out score, with compare_priors."
    )


def sum_rounds(posterior: RewardPosterior, logs: LoggedData, codes: Int[Array, " K"], n: int, outcome: Outcome) -> Sums:
    """One pass over the rounds, for n categories."""
    totals, likelihood = np.zeros((5, n)), outcome.likelihood
    prior, after = (_Expected(weights, outcome, codes, n) for weights in (posterior.prior, posterior.weights))
    for batch in logs.batches():
        w = np.ones(len(batch)) if batch.weights is None else batch.weights
        r = likelihood.response(batch.rewards)
        prior.add(batch, w)
        expected, noise, variance = after.add(batch, w)
        columns = (w, w * r, w * (r - expected) ** 2, w * noise, w * variance)
        totals += [np.bincount(codes[batch.actions], weights=column, minlength=n) for column in columns]
    return Sums(*totals, prior=prior.forecast(), posterior=after.forecast())


class _Expected:
    """What some weights expect of the rounds, added up batch by batch."""

    def __init__(self, weights: HierarchicalGaussian, outcome: Outcome, codes: Int[Array, " K"], n: int):
        self._weights, self._outcome, self._codes, self._n = weights, outcome, codes, n
        self._predictor = Predictor(weights, outcome.likelihood)
        self._totals = np.zeros((2, n))
        self._actions, self._masses = [np.empty(0, dtype=np.int64)], [np.empty((0, weights.dim))]

    def add(self, batch: LoggedData, w: Float[Array, " n"]) -> tuple[Array, Array, Array]:
        """Expected reward, noise and variance of every round."""
        mean, variance = self._predictor.pairs(batch.contexts, batch.actions)
        expected, slope, noise = self._outcome.expect(mean, variance)
        mine = self._codes[batch.actions]
        self._totals += [np.bincount(mine, weights=w * column, minlength=self._n) for column in (expected, slope)]
        kept = w > 0
        ids, mass = sum_by(batch.actions[kept], ((w * slope)[:, None] * batch.contexts)[kept])
        self._actions.append(ids)
        self._masses.append(mass)
        return expected, noise, variance * slope**2

    def forecast(self) -> Forecast:
        actions, mass = sum_by(np.concatenate(self._actions), np.concatenate(self._masses))
        owner, variance = self._codes[actions], np.zeros(self._n)
        groups = group_by(owner)
        for key, start, count in zip(groups.keys, groups.starts, groups.counts, strict=True):
            mine = groups.order[start : start + count]
            variance[key] = self._weights.variance_of(mass[mine], actions[mine])
        return Forecast(*self._totals, variance=variance, owner=owner)


_NODES = np.linspace(-8.0, 8.0, 801)
"""Close enough that p-values are right within a tenth even where the sum says g(u) exactly."""
_SHARES = np.exp(-0.5 * _NODES**2) / np.exp(-0.5 * _NODES**2).sum()
_AT_ONCE = 1 << 17
"""How many rates are looked at at once."""
