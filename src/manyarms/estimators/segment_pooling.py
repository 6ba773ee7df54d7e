"""Gains by segment, pooled: a segment with few rounds follows the model and the other segments, not its own noise.

The gain of segment s is δ_s = M_s + b_s, the model's gain in its population plus the model's error there.

- M_s ~ N(·, ω²). The contexts of the log give m_s ~ N(M_s, c_s), where c_s is their sampling error.
- b_s ~ N(μ, C + τ² I): an error that all segments share, with a flat prior; the posterior's uncertainty, whose joint
  covariance C over segments is known, since they share items; and what the model misses in one segment alone.
- The weighted residuals of the segment give y_s - m_s ~ N(b_s, v_s), as in doubly robust estimation.

Given ω and τ all of this is Gaussian. Both are learned from all segments, and integrated out on a grid.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.linalg import cho_factor, cho_solve
from scipy.special import ndtr

from manyarms._base.checks import Array
from manyarms.core.estimate import Estimate, NormalMixture
from manyarms.estimators.intervals import standard_error
from manyarms.estimators.model_error import ModelError, error_size
from manyarms.estimators.policy_residuals import SPREAD_ROUNDS, PolicyResiduals, clustering

USUAL_SPREAD = 0.3
"""How far gains of segments usually differ from what the model says, as a share of the value."""
SPREADS = np.geomspace(0.003, 3.0, 40)
"""The values of ω and τ that are considered, as shares of the value."""
FAMILY_ERROR = 0.05
"""The probability that any segment is named a loser, or any a winner, where there is none."""


@dataclass(frozen=True)
class SegmentEvidence:
    """The evidence on the gains of S segments.

    Attributes:
        model: m, the gains by the posterior.
        covariance: C, the posterior covariance of these gains.
        observed: y, the gains by model and residuals; NaN where no round of the segment has any weight.
        variance: v, the variance of the observed gains; inf where there is none.
        context_variance: The variance of what other contexts of the segment would have given.
        shares: The share of each segment in the rounds.
        size: The size of the values, to which τ is relative.
        unseen_variance: The variance of the model's error on choices that are not in the log, which no residual shows.
    """

    model: Float[Array, " S"]
    covariance: Float[Array, "S S"]
    observed: Float[Array, " S"]
    variance: Float[Array, " S"]
    context_variance: Float[Array, " S"]
    shares: Float[Array, " S"]
    size: float
    unseen_variance: float = 0.0

    @classmethod
    def collect(
        cls,
        policy: PolicyResiduals,
        baseline: PolicyResiduals,
        codes: Int[Array, " n"],
        model: Float[Array, " S"],
        covariance: Float[Array, "S S"],
        error: ModelError,
    ) -> SegmentEvidence:
        """The evidence of a log on a policy and the current one, given the segment of each round.

        A few rounds do not show how much residuals vary, so the spread in a segment is drawn towards that of the log.
        """
        log, rows = _LogFigures.of_log(policy, baseline), [np.flatnonzero(codes == code) for code in range(len(model))]
        figures = [_observe(policy.take(own), baseline.take(own), log) for own in rows]
        observed, variance, context_variance = np.array(figures).T
        sums = np.array([policy.counts[own].sum() for own in rows])
        size = error_size(policy, baseline.mean_reward)
        unseen = (max(1.0 - policy.mean_weight, 0.0) * error.scale * size) ** 2
        return cls(model, covariance, observed, variance, context_variance, sums / sums.sum(), size, unseen)

    @property
    def raw_std(self) -> Float[Array, " S"]:
        """The standard error of the gain by each segment's own rewards; inf where they say nothing."""
        return np.sqrt(self.variance + self.context_variance + self.unseen_variance)

    def losses_by_chance(self, gain: float) -> float:
        """The number of segments whose own rewards would show a loss if every one had this gain."""
        known = np.isfinite(self.variance)
        errors = np.maximum(self.raw_std[known], np.finfo(float).tiny)
        return float(ndtr(-gain / errors).sum())

    def pooled(self, overall: Estimate | None = None) -> PooledGains:
        """The gains of all segments, given the evidence on all of them.

        Args:
            overall: The gain over all rounds, if it was estimated by other means. The gains of segments then add up to
                it: only their differences come from this model. None to take their level from it, too.
        """
        centre, cov = self._model_gains()
        errors = _pool(self.observed - self.model, self.variance, self.covariance, self.size)
        cov = cov + self.unseen_variance * np.eye(len(cov))
        parts = [self._combined(centre + mean, cov + own, overall) for mean, own in errors.parts]
        means, variances = (np.array(column) for column in zip(*parts, strict=True))
        return PooledGains(means, np.sqrt(np.maximum(variances, 0.0)), errors.shares, errors.spreads)

    def _model_gains(self) -> tuple[Float[Array, " S"], Float[Array, "S S"]]:
        """The model's gain in the population of each segment: mean and covariance, over all values of ω."""
        pool = _pool(self.model, self.context_variance, np.zeros_like(self.covariance), self.size)
        means = np.array([mean for mean, _ in pool.parts])
        centre = pool.shares @ means
        within = sum(share * own for share, (_, own) in zip(pool.shares, pool.parts, strict=True))
        return centre, within + np.einsum("k,ks,kt->st", pool.shares, means - centre, means - centre)

    def _combined(
        self, mean: Float[Array, " S"], cov: Float[Array, "S S"], overall: Estimate | None
    ) -> tuple[Float[Array, " S"], Float[Array, " S"]]:
        """Means and variances of the gains, whose mean over rounds is replaced by the overall gain."""
        if overall is None:
            return mean, np.diag(cov)
        w = self.shares
        centred = np.eye(len(mean)) - w
        variances = np.einsum("st,tu,su->s", centred, cov, centred) + overall.std**2
        return mean + overall.value - float(w @ mean), variances


@dataclass(frozen=True)
class _Pool:
    """Effects of segments given each of several standard deviations between them: means, covariances, and shares."""

    parts: list[tuple[Float[Array, " S"], Float[Array, "S S"]]]
    shares: Float[Array, " k"]
    spreads: Float[Array, " k"]


def _pool(
    observed: Float[Array, " S"], variance: Float[Array, " S"], covariance: Float[Array, "S S"], size: float
) -> _Pool:
    """The effects z of segments: z ~ N(μ, covariance + spread²), of which N(z, variance) was observed.

    Args:
        observed: The observed effects.
        variance: Their variances, inf where nothing was observed.
        covariance: The covariance of the effects that is known.
        size: The size to which the spread between segments is relative.
    """
    # p(s) ∝ s / (1 + s² / usual²)^1.5, times s for the steps of the grid. It vanishes at zero: with few segments, their
    # own spread says little against zero, and zero would make all of them equal without any doubt.
    prior = SPREADS**2 / (1.0 + (SPREADS / USUAL_SPREAD) ** 2) ** 1.5
    spreads = SPREADS * size
    given = [_pool_given(spread, observed, variance, covariance, size) for spread in spreads]
    log_density = np.array([part[2] for part in given]) + np.log(prior)
    density = np.exp(log_density - log_density.max())
    return _Pool([(mean, cov) for mean, cov, _ in given], density / density.sum(), spreads)


def _pool_given(
    spread: float,
    observed: Float[Array, " S"],
    variance: Float[Array, " S"],
    covariance: Float[Array, "S S"],
    size: float,
) -> tuple[Float[Array, " S"], Float[Array, "S S"], float]:
    """Mean and covariance of the effects given their spread, and the log density of the observed ones."""
    known = np.flatnonzero(np.isfinite(variance))
    prior = covariance + spread**2 * np.eye(len(observed))
    if not len(known):
        return np.zeros(len(observed)), prior, 0.0
    # Effects that are known exactly, as those of a policy that repeats the log, still need a factor.
    noise = np.maximum(variance[known], (_SMALL * size) ** 2 + np.finfo(float).tiny)
    factor = cho_factor(prior[np.ix_(known, known)] + np.diag(noise), lower=True)
    cross, ones, z = prior[:, known], np.ones(len(known)), observed[known]
    gain, whitened = cho_solve(factor, cross.T).T, cho_solve(factor, ones)
    weight = float(ones @ whitened)
    level = float(whitened @ z) / weight
    rest, not_explained = z - level, 1.0 - gain @ ones
    cov = prior - gain @ cross.T + np.outer(not_explained, not_explained) / weight
    squares = float(rest @ cho_solve(factor, rest))
    log_density = -float(np.log(np.diag(factor[0])).sum()) - 0.5 * np.log(weight) - 0.5 * squares
    return level + gain @ rest, cov, log_density


@dataclass(frozen=True)
class PooledGains:
    """The pooled gains of S segments: for each of k values of τ, normal distributions, and the shares of these values.

    Attributes:
        means: (k, S).
        stds: (k, S).
        shares: (k,).
        spreads: (k,) the values of τ.
    """

    means: Float[Array, "k S"]
    stds: Float[Array, "k S"]
    shares: Float[Array, " k"]
    spreads: Float[Array, " k"]

    @property
    def spread(self) -> float:
        """The expected standard deviation between segments of what the model misses, E τ."""
        return float(self.shares @ self.spreads)

    def estimates(self) -> list[Estimate]:
        """The gain of each segment."""
        kept = self.shares > 1e-6 * self.shares.max()
        shares = self.shares[kept] / self.shares[kept].sum()
        out = list[Estimate]()
        for means, stds in zip(self.means[kept].T, self.stds[kept].T, strict=True):
            value = float(shares @ means)
            std = float(np.sqrt(shares @ (stds**2 + (means - value) ** 2)))
            shape = NormalMixture(means, stds, shares) if std > 0 else None
            out.append(Estimate(value, std, kind="checked", method="quadrature", shape=shape))
        return out


def surely_below(probabilities: Float[Array, " S"]) -> Bool[Array, " S"]:
    """True for the pooled segments that may be named, as the probabilities against it are small enough together (Holm).

    If the k smallest of S probabilities are at most `FAMILY_ERROR` divided by S, S - 1, ..., S - k + 1, these k are
    named. So the more segments there are, the surer one must be of each.
    """
    order, n = np.argsort(probabilities, kind="stable"), len(probabilities)
    passed = probabilities[order] <= FAMILY_ERROR / (n - np.arange(n))
    named = np.zeros(n, dtype=bool)
    named[order[: n if passed.all() else int(np.argmin(passed))]] = True
    return named


def _observe(policy: PolicyResiduals, baseline: PolicyResiduals, log: _LogFigures) -> tuple[float, float, float]:
    """The gain in a segment by model and residuals, its variance, and that of other contexts.

    With many effective rounds, the weighted mean of the residuals is self-normalised. With few, weights are normalised
    over the whole log instead: a single round is always its own mean, and would look certain.

    Args:
        policy: The candidate on the rounds of the segment.
        baseline: The current policy on them.
        log: Figures of the whole log.
    """
    counts, n, direct = policy.counts, float(policy.counts.sum()), policy.expected - baseline.expected
    if n == 0.0:
        return np.nan, np.inf, log.context
    own_context = standard_error(direct, policy.logs, policy.logs.groups) ** 2 * n if n > 1 else 0.0
    context_variance = (SPREAD_ROUNDS * log.context + n * own_context) / (SPREAD_ROUNDS + n) / n
    if log.mean_weight == 0.0:
        return np.nan, np.inf, context_variance
    gap, effective = policy.weights / log.mean_weight - 1.0, policy.effective_size
    centre = effective / (SPREAD_ROUNDS + effective) * policy.correction
    terms = gap * (policy.residuals - centre)
    grouped = clustering(policy, gap) if n > 1 else 1.0
    # Most segments without a match would look certain, if only their own rounds counted.
    few = SPREAD_ROUNDS * max(log.squared_gap, 1.0)
    noise = (few * log.noise + n * float(np.average(terms**2, weights=counts))) / (few + n)
    return float(np.average(direct + terms, weights=counts)), noise * grouped / n, context_variance


@dataclass(frozen=True)
class _LogFigures:
    """Figures of the whole log, towards which those of a segment with few rounds are drawn.

    Attributes:
        mean_weight: The mean weight of the policy.
        squared_gap: The mean of (w - 1)², where w are the weights divided by their mean.
        noise: The mean of ((w - 1) e)², where e are the residuals; at least what independent weights would give.
        context: The variance of the model's gain from round to round.
    """

    mean_weight: float
    squared_gap: float
    noise: float
    context: float

    @classmethod
    def of_log(cls, policy: PolicyResiduals, baseline: PolicyResiduals) -> _LogFigures:
        """The figures of a policy on a log."""
        n, context = float(policy.counts.sum()), policy.expected - baseline.expected
        context_variance = standard_error(context, policy.logs, policy.logs.groups) ** 2 * n
        if policy.mean_weight == 0.0:
            return cls(0.0, 0.0, 0.0, context_variance)
        squares = (policy.weights / policy.mean_weight - 1.0) ** 2
        gap, noise = (
            float(np.average(column, weights=policy.counts)) for column in (squares, squares * policy.residuals**2)
        )
        return cls(policy.mean_weight, gap, max(noise, gap * policy.spread_everywhere), context_variance)


_SMALL = 1e-9
