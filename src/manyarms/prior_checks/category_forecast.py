"""Forecasts of prior and posterior for the rewards of a category: totals over its rounds, and how they are distributed.

The rounds of a category share weights, so their rewards vary together. For clicks and counts no single predictor
describes their mean reward; it is drawn jointly (`draw_rates`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import betainc, gammainc, gammaincc, logit, ndtr, ndtri

from manyarms._base.checks import Array
from manyarms.core import HierarchicalGaussian, LoggedData
from manyarms.errors import InputError
from manyarms.likelihoods import Bernoulli, Likelihood, Poisson
from manyarms.linalg.indexing import group_by, sum_by
from manyarms.posterior import RewardPosterior
from manyarms.posterior.action_scores import Predictor


class _Forecast(NamedTuple):
    """The forecast of some weights by category: sums over its rounds, each counted with its weight w."""

    total: Float[Array, " c"]
    """Σ w E r."""
    variance: Float[Array, " c"]
    """Var Σ w g'(η) η: the variance of the total, by the delta method where g is not the identity."""
    owner: Int[Array, " m"]
    """The category of each logged action."""
    predictor: Predictor
    """Predictions of the weights themselves, where sums are not enough."""


class CategorySums(NamedTuple):
    """Sums over the rounds of each category, with the forecasts of prior and posterior."""

    weight: Float[Array, " c"]
    """Σ w."""
    reward: Float[Array, " c"]
    """Σ w r."""
    residual_sq: Float[Array, " c"]
    """Σ w (r - r̂)²."""
    noise: Float[Array, " c"]
    """Σ w Var(r | η); zero where the mean determines it."""
    variance: Float[Array, " c"]
    """Σ w Var r̂."""
    prior: _Forecast
    posterior: _Forecast
    logs: LoggedData
    owner: Int[Array, " n"]
    """The category of each round."""


class RewardSum(ABC):
    """The distribution of a sum of rewards in a category.

    Attributes:
        likelihood: The likelihood of a single reward.
        is_gaussian: True if rewards, or their logarithms, are Gaussian around η.
    """

    is_gaussian: bool

    def __init__(self, likelihood: Likelihood):
        self.likelihood = likelihood

    @abstractmethod
    def expect(self, mean: Float[Array, " n"], variance: Float[Array, " n"]) -> tuple[Array, Array, Array]:
        """E r, E g'(η) and E Var(r | η) for η ~ N(m, v), round by round."""

    @abstractmethod
    def compare(self, sums: CategorySums, forecast: _Forecast, present: Int[Array, " p"]) -> tuple[Array, Array]:
        """z-scores and two-sided p-values of the sums of rewards under a forecast, for the categories `present`."""


class _GaussianSum(RewardSum):
    """Σ w r ~ N(Σ w η, Var Σ w η + Σ w σ²); for log rewards under `LogNormal`."""

    is_gaussian = True

    def expect(self, mean: Float[Array, " n"], variance: Float[Array, " n"]) -> tuple[Array, Array, Array]:
        return mean, np.ones_like(mean), np.full_like(mean, self.likelihood.noise_std**2)

    def compare(self, sums: CategorySums, forecast: _Forecast, present: Int[Array, " p"]) -> tuple[Array, Array]:
        reward, weight = sums.reward[present], sums.weight[present]
        spread = forecast.variance[present] + weight * self.likelihood.noise_std**2
        z = (reward - forecast.total[present]) / np.sqrt(spread)
        return z, 2 * ndtr(-np.abs(z))


class _DiscreteSum(RewardSum):
    """A sum of clicks or counts, given the mean reward of a category, which is as uncertain as its weights.

    That mean averages many rates. Under a wide prior most are near zero and a few are not, so no single rate with a
    normal predictor has the same tails, and a normal z-score is further off still. So the mean is drawn (`draw_rates`),
    in the same way every time. p-values are two standard errors of the draws above their mean, which is cautious where
    few draws decide.
    """

    is_gaussian = False
    has_dispersion: bool

    def expect(self, mean: Float[Array, " n"], variance: Float[Array, " n"]) -> tuple[Array, Array, Array]:
        rate = self.likelihood.mean_reward(mean, variance)
        noise = rate if self.has_dispersion else np.zeros_like(mean)
        return rate, self.likelihood.mean_slope(mean, variance), noise

    def compare(self, sums: CategorySums, forecast: _Forecast, present: Int[Array, " p"]) -> tuple[Array, Array]:
        below, above, error = np.empty((3, len(present)))
        rows = _split_by(sums.owner)
        for i, category in enumerate(present):
            # Seeded by the category, so that its result does not depend on the other categories.
            rng, total = np.random.default_rng(category), sums.reward[[category]]
            weight, mean = sums.weight[[category]], forecast.total[[category]] / sums.weight[[category]]
            rounds = _some_rounds(sums.logs, rows[category], int(category))
            rate, share = draw_rates(forecast.predictor, rounds, self.link, mean, rng)
            each = [np.sum(share * tail, axis=1) for tail in self.tails(total, weight, rate)]
            (below[i], above[i]), error[i] = np.mean(each, axis=1), min(np.std(each, axis=1)) / np.sqrt(len(rate))
        # A sum that is hit exactly counts half on either side.
        hit = np.maximum(below + above - 1.0, 0.0) / 2
        low, high = (np.clip(tail - hit, 1e-300, 1.0) for tail in (below, above))
        z = np.where(low < high, ndtri(low), -ndtri(high))
        return z, np.minimum(2 * (np.minimum(below, above) + 2 * error), 1.0)

    @abstractmethod
    def tails(self, total: Array, weight: Array, rate: Array) -> tuple[Array, Array]:
        """P(sum <= total) and P(sum >= total) over `weight` rounds at each rate."""

    @abstractmethod
    def link(self, rate: Array) -> Array:
        """The inverse of g, finite even for rates that rounding puts at an end of their range."""


class _ClickSum(_DiscreteSum):
    """A binomial sum. Rates that differ between the rounds of a category make the sum vary less, never more."""

    # For a click r and r̂ determine (r - r̂)², so there is no dispersion beside the mean.
    has_dispersion = False

    def link(self, rate: Array) -> Array:
        return logit(np.clip(rate, np.finfo(float).tiny, 1.0 - 2.0**-53))

    def tails(self, total: Array, weight: Array, rate: Array) -> tuple[Array, Array]:
        rest, tiny = weight - total, np.finfo(float).tiny
        below = np.where(rest > 0, betainc(np.maximum(rest, tiny), total + 1.0, 1.0 - rate), 1.0)
        above = np.where(total > 0, betainc(np.maximum(total, tiny), rest + 1.0, rate), 1.0)
        return below, above


class _CountSum(_DiscreteSum):
    """A Poisson sum: a sum of Poisson counts is a Poisson count."""

    has_dispersion = True

    def link(self, rate: Array) -> Array:
        return np.log(np.maximum(rate, np.finfo(float).tiny))

    def tails(self, total: Array, weight: Array, rate: Array) -> tuple[Array, Array]:
        return gammaincc(total + 1.0, weight * rate), np.where(total > 0, gammainc(total, weight * rate), 1.0)


def reward_sum_for(likelihood: Likelihood) -> RewardSum:
    """The distribution of the sums of rewards in categories under a likelihood."""
    if likelihood.treatment == "exact":
        return _GaussianSum(likelihood)
    if isinstance(likelihood, Bernoulli):
        # With exact expectations, whatever formula the fit ranks by.
        return _ClickSum(Bernoulli())
    if isinstance(likelihood, Poisson):
        return _CountSum(likelihood)
    raise InputError(
        f"categories cannot be checked under {type(likelihood).__name__}: a few rounds decide the mean of heavy-tailed "
        "rewards.",
        "Compare priors by held-out score, with compare_priors.",
    )


def forecast_categories(
    posterior: RewardPosterior, logs: LoggedData, codes: Int[Array, " K"], n: int, reward_sum: RewardSum
) -> CategorySums:
    """Forecasts of prior and posterior for n categories, with the sums over their rounds."""
    prior, _ = _forecast(posterior.prior, logs, codes, n, reward_sum)
    after, totals = _forecast(posterior.weights, logs, codes, n, reward_sum)
    return CategorySums(*totals, prior=prior, posterior=after, logs=logs, owner=codes[logs.actions])


def _forecast(
    weights: HierarchicalGaussian, logs: LoggedData, codes: Int[Array, " K"], n: int, reward_sum: RewardSum
) -> tuple[_Forecast, Float[Array, "5 n"]]:
    """The forecast of some weights, and the sums that `CategorySums` begins with; one pass over the rounds."""
    predictor, totals = Predictor(weights, reward_sum.likelihood), np.zeros((6, n))
    actions, masses = [np.empty(0, dtype=np.int64)], [np.empty((0, weights.dim))]
    for batch in logs.batches():
        w = np.ones(len(batch)) if batch.weights is None else batch.weights
        r = reward_sum.likelihood.response(batch.rewards)
        mean, variance = predictor.pairs(batch.contexts, batch.actions)
        expected, slope, noise = reward_sum.expect(mean, variance)
        columns = (w, w * r, w * (r - expected) ** 2, w * noise, w * (variance * slope**2), w * expected)
        totals += [np.bincount(codes[batch.actions], weights=column, minlength=n) for column in columns]
        kept = w > 0
        ids, mass = sum_by(batch.actions[kept], ((w * slope)[:, None] * batch.contexts)[kept])
        actions.append(ids)
        masses.append(mass)
    action, mass = sum_by(np.concatenate(actions), np.concatenate(masses))
    owner, variance = codes[action], np.zeros(n)
    for key, mine in _split_by(owner).items():
        variance[key] = weights.variance_of(mass[mine], action[mine])
    return _Forecast(totals[5], variance, owner, predictor), totals[:5]


def _split_by(keys: Int[Array, " n"]) -> dict[int, Int[Array, " m"]]:
    """The rows of every key."""
    groups = group_by(keys)
    return dict(zip(groups.keys.tolist(), np.split(groups.order, groups.starts[1:]), strict=False))


def _some_rounds(logs: LoggedData, rows: Int[Array, " m"], category: int) -> LoggedData:
    """The rounds of a category, or some of them where they are many."""
    if logs.weights is not None:
        rows = rows[logs.weights[rows] > 0]
    if len(rows) > _SOME:
        rows = np.random.default_rng(category).choice(rows, _SOME, replace=False)
    return logs.take(rows)


_SOME = 512
"""The most rounds of a category used with draws: enough for the spread of a mean that is known."""


def draw_rates(
    predictor: Predictor,
    rounds: LoggedData,
    link: Callable[[Array], Array],
    mean: Float[Array, "1"],
    rng: np.random.Generator,
) -> tuple[Float[Array, "s q"], Float[Array, "s q"]]:
    """Draws of the mean reward of a category, a forecast, with the probability of each.

    It is Σ w g(η) / Σ w under weights θ = E θ + k z + rest, one draw of the rest per row.

    z ~ N(0, 1) is Σ w E g'(η) η, standardised: the mean reward varies most along it. k = Cov(θ, z), so the rest is
    independent of z. The rest is drawn, and z is integrated over nodes. So tails far beyond the reach of draws are
    integrals, and where one action in one context leaves no rest, nothing is random.

    The rounds may be only some of those of a category. Rates are shifted, on the scale of η, so that they have the
    expected `mean` reward of all of its rounds.
    """
    weights, likelihood = predictor.weights, predictor.likelihood
    w = np.ones(len(rounds)) if rounds.weights is None else rounds.weights
    share = w / w.sum()
    eta, variance = predictor.pairs(rounds.contexts, rounds.actions)
    slope = likelihood.mean_slope(eta, variance)
    actions, mass = sum_by(rounds.actions, (w * slope)[:, None] * rounds.contexts)
    std = np.sqrt(weights.variance_of(mass, actions))
    along = weights.covariances_with(mass, actions) / max(std, np.finfo(float).tiny)
    rest = weights.sample(rng, DRAWS, actions) - weights.action_mean(actions)
    z = np.einsum("md,smd->s", mass, rest) / max(std, np.finfo(float).tiny)
    rest -= z[:, None, None] * along

    mine, x = np.searchsorted(actions, rounds.actions), rounds.contexts
    start = eta + np.einsum("nd,snd->sn", x, rest[:, mine])
    step = np.einsum("nd,nd->n", x, along[mine])
    rates = np.stack([likelihood.reward_given(start + z * step) @ share for z in COARSE])
    shift = link(mean) - link(np.sum(likelihood.mean_reward(eta, variance) * share, keepdims=True))
    # The nodes of each draw lie between those of the others, so that together they are dense even where tails step.
    nodes = NODES + (np.arange(DRAWS)[:, None] + 0.5) / DRAWS * STEP
    density = np.exp(-0.5 * nodes**2)
    eta = _between(link(rates), nodes) + shift
    return likelihood.reward_given(eta), density / density.sum(axis=1, keepdims=True)


def _between(values: Float[Array, "c s"], nodes: Float[Array, "s q"]) -> Float[Array, "s q"]:
    """Values at the nodes of each draw, by a cubic spline through the values at `COARSE`."""
    from scipy.interpolate import CubicSpline  # noqa: PLC0415  slow to import

    cubics = CubicSpline(COARSE, values, axis=0).c
    piece = np.searchsorted(COARSE, nodes, side="right") - 1
    a, b, c, d = cubics[:, piece, np.arange(len(nodes))[:, None]]
    ahead = nodes - COARSE[piece]
    return ((a * ahead + b) * ahead + c) * ahead + d


DRAWS = 64
COARSE = np.linspace(-9.0, 9.0, 19)
"""The z at which the mean reward is computed; between them it is smooth on the scale of η."""
STEP = 0.2
NODES = np.arange(-8.0, 8.0, STEP)
