"""Forecasts of the mean reward of rounds that a model has not seen: their contexts and actions are known, rewards not.

The mean reward of rounds i = 1 ... W is (Σ r_i) / W. Its uncertainty has two parts: the posterior of Σ g(η_i), in which
rounds share weights, and the noise of the rewards around it. With Gaussian rewards the mean reward is Gaussian, and the
forecast is exact. Sums of clicks are beta-binomial and sums of counts negative binomial, with the mean of the posterior
and its variance by the delta method. Means of other rewards are taken as normal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from scipy.special import betaln, gammaln, ndtri, xlog1py, xlogy

from manyarms._base.checks import Array, row_weights
from manyarms.core import LoggedData
from manyarms.errors import InputError
from manyarms.likelihoods import Bernoulli, Gaussian, Likelihood, LogNormal, Poisson, StudentT
from manyarms.linalg.indexing import sum_by
from manyarms.posterior import RewardPosterior
from manyarms.posterior.action_scores import Predictor

Series = Literal["all", "category", "logged by", "policy"]
"""The rounds that a forecast is about: all of them, those of a category or of a logging policy, or a policy's value."""
MOST_COUNTS = 400_000
"""Sums of clicks or counts are taken as normal where more values than this are likely."""
_NARROW = 1e-8
"""A rate whose squared coefficient of variation is below this is taken as known."""


@dataclass(frozen=True)
class RewardForecast:
    """The forecast of the mean reward of some rounds; N(mean, std²) unless it has `counts`.

    Attributes:
        mean: The expected mean reward.
        std: The standard deviation of the mean reward, noise included.
        weight: The number of rounds, by weight.
        counts: The probable sums of clicks or counts, ascending, and their probabilities.
    """

    mean: float
    std: float
    weight: float
    counts: tuple[Float[Array, " s"], Float[Array, " s"]] | None = None

    def interval(self, level: float) -> tuple[float, float]:
        """The central interval that holds the mean reward with at least this probability."""
        if self.counts is None:
            half = float(ndtri(0.5 + level / 2)) * self.std
            return self.mean - half, self.mean + half
        totals, shares = self.counts
        tail, last = 0.5 - level / 2, len(totals) - 1
        low = min(int(np.searchsorted(np.cumsum(shares), tail)), last)
        high = last - min(int(np.searchsorted(np.cumsum(shares[::-1]), tail)), last)
        return float(totals[low] / self.weight), float(totals[high] / self.weight)

    def z_score(self, observed: float) -> float:
        """The normal score of an observed mean reward: N(0, 1) if the forecast is right; smaller for few counts."""
        if self.counts is None:
            return (observed - self.mean) / self.std if self.std > 0 else float(np.sign(observed - self.mean)) * _FAR
        totals, shares = self.counts
        place = int(np.clip(np.searchsorted(totals, observed * self.weight - 0.5), 0, len(totals) - 1))
        # A sum that is hit exactly counts half on either side; both tails are summed, so that small ones keep digits.
        hit = 0.5 * float(shares[place])
        low, high = float(shares[:place].sum()) + hit, float(shares[place + 1 :].sum()) + hit
        return float(np.clip(ndtri(low) if low < high else -ndtri(high), -_FAR, _FAR))


class RoundForecasts:
    """Reward forecasts of the rounds of one period, by any selection of them.

    Args:
        posterior: The model, which has not seen these rounds.
        rounds: The rounds to forecast; their rewards are not used.
    """

    def __init__(self, posterior: RewardPosterior, rounds: LoggedData):
        self._weights, self._rounds, likelihood = posterior.weights, rounds, posterior.likelihood
        self._counts = row_weights(rounds.weights, len(rounds))
        self._family = reward_sums_of(likelihood)
        if likelihood.is_linear:
            means = posterior.weights.action_mean()
            predictor, variance = np.einsum("nd,nd->n", rounds.contexts, means[rounds.actions]), np.zeros(len(rounds))
        else:
            predictor, variance = Predictor(posterior.weights, likelihood).pairs(rounds.contexts, rounds.actions)
        self._expected = likelihood.mean_reward(predictor, variance)
        self._slope = likelihood.mean_slope(predictor, variance)
        self._noise = self._family.noise(predictor, variance)

    def forecast(self, rows: Int[Array, " m"]) -> RewardForecast:
        """The forecast of the mean reward of some of the rounds."""
        counts = self._counts[rows]
        weight = float(counts.sum())
        pulls = (counts * self._slope[rows])[:, None] * self._rounds.contexts[rows]
        actions, mass = sum_by(self._rounds.actions[rows], pulls)
        shared = self._weights.variance_of(mass, actions) / weight**2
        mean = float(counts @ self._expected[rows]) / weight
        noise = float(counts @ self._noise[rows]) / weight**2
        is_whole = bool((counts == np.floor(counts)).all())
        totals = self._family.counts(mean, shared, weight) if is_whole and self._family.counts is not None else None
        return RewardForecast(mean, float(np.sqrt(shared + noise)), weight, totals)


@dataclass(frozen=True)
class _RewardSums:
    """The distribution of sums of rewards under a likelihood, as forecasts need it.

    Attributes:
        noise: E Var(r | η) for η ~ N(m, v), round by round.
        counts: The distribution of a sum of clicks or counts, given the mean and the variance of their mean rate and
            the number of rounds; None where sums are normal.
    """

    noise: Callable[[Array, Array], Array]
    counts: Callable[[float, float, float], tuple[Array, Array] | None] | None = None


def reward_sums_of(likelihood: Likelihood) -> _RewardSums:
    """The distribution that a forecast gives to sums of rewards under a likelihood."""
    if isinstance(likelihood, Gaussian):
        return _RewardSums(lambda m, v: np.full_like(m, likelihood.noise_std**2))
    if isinstance(likelihood, LogNormal):
        sigma_sq = likelihood.noise_std**2
        return _RewardSums(lambda m, v: np.expm1(sigma_sq) * np.exp(np.minimum(2 * m + 2 * v + sigma_sq, 700.0)))
    if isinstance(likelihood, Bernoulli):
        return _RewardSums(likelihood.mean_slope, _click_sums)  # E g (1 - g) = E g'
    if isinstance(likelihood, Poisson):
        return _RewardSums(likelihood.mean_reward, _count_sums)
    if isinstance(likelihood, StudentT) and likelihood.degrees > 2:
        factor = likelihood.scale**2 * likelihood.degrees / (likelihood.degrees - 2)
        return _RewardSums(lambda m, v: np.full_like(m, factor))
    raise InputError(
        f"the variance of rewards under {likelihood} is not known, so forecasts cannot have intervals.",
        "Use Gaussian, LogNormal, Bernoulli, Poisson, or StudentT with more than 2 degrees.",
    )


def _click_sums(rate: float, variance: float, weight: float) -> tuple[Array, Array] | None:
    """Sums of clicks: binomial, with a rate that is Beta with this mean and variance."""
    spread = rate * (1.0 - rate)
    if spread <= 0:
        return None
    size = spread / max(min(variance, 0.99 * spread), _NARROW * spread) - 1.0
    totals = _likely_totals(weight * rate, weight * spread + weight**2 * variance, weight)
    if totals is None:
        return None
    ways = gammaln(weight + 1) - gammaln(totals + 1) - gammaln(weight - totals + 1)
    if variance <= _NARROW * spread:
        log_mass = ways + xlogy(totals, rate) + xlog1py(weight - totals, -rate)
    else:
        a, b = size * rate, size * (1.0 - rate)
        log_mass = ways + betaln(totals + a, weight - totals + b) - betaln(a, b)
    return _normalised(totals, log_mass)


def _count_sums(rate: float, variance: float, weight: float) -> tuple[Array, Array] | None:
    """Sums of counts: Poisson, with a rate that is Gamma with this mean and variance."""
    mean, extra = weight * rate, weight**2 * variance
    totals = _likely_totals(mean, mean + extra, np.inf)
    if totals is None or mean <= 0:
        return None
    if extra <= _NARROW * mean**2:
        return _normalised(totals, xlogy(totals, mean) - mean - gammaln(totals + 1))
    size = mean**2 / extra
    ways = gammaln(totals + size) - gammaln(size) - gammaln(totals + 1)
    return _normalised(totals, ways + size * np.log(size / (size + mean)) + xlogy(totals, mean / (size + mean)))


def _likely_totals(mean: float, variance: float, most: float) -> Float[Array, " s"] | None:
    """All sums that are not most improbable, ascending; None where they are too many."""
    std = np.sqrt(variance)
    low, high = max(0.0, np.floor(mean - 15 * std)), min(most, np.ceil(mean + 40 * std + 50))
    return np.arange(low, high + 1) if high - low < MOST_COUNTS else None


def _normalised(totals: Float[Array, " s"], log_mass: Float[Array, " s"]) -> tuple[Array, Array]:
    shares = np.exp(log_mass - log_mass.max())
    return totals, shares / shares.sum()


_FAR = 37.0
"""The largest normal score: beyond it, probabilities are no longer numbers."""
