"""The value of a policy on a grid: a prior around the model's value, joined with what weighted residuals say of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtr, stdtrit

from manyarms._base.checks import Array, row_weights
from manyarms.core import LoggedData
from manyarms.core.shapes import NormalMixture
from manyarms.estimators.intervals import as_units

TAILS = 3
"""Degrees of freedom of the Student distribution of the model's error: heavy tails, since some models fail."""
KNEE = 0.5
"""The axis of the grid is linear below this share of the value and logarithmic above: errors are factors, both ways."""
SPREAD_ROUNDS = 10.0
"""The observed spread of the residuals decides only with many more effective rounds than this."""
RATE_MARGIN = 1e-3
"""A rate of 0 or 1 would have no spread at all."""
SMALLEST = 1e-140
"""Values whose squares would vanish count as zero."""
ONE_SIGMA = float(ndtr(1.0))
N_SCALES, N_GRID, REACH, FARTHEST = 40, 2001, 8.0, 12.0


@dataclass(frozen=True)
class PolicyResiduals:
    """A policy whose value goes on the grid: weights of logged rounds, and the rewards that a held-out model expects.

    Attributes:
        logs: The rounds.
        weights: (n,) π(a_i | x_i) / π_0(a_i | x_i); ones for the policy that repeats the log.
        at_logged: (n,) r̂(x_i, a_i).
        expected: (n,) Σ_a π(a | x_i) r̂(x_i, a).
    """

    logs: LoggedData
    weights: Float[Array, " n"]
    at_logged: Float[Array, " n"]
    expected: Float[Array, " n"]

    @cached_property
    def counts(self) -> Float[Array, " n"]:
        """The number of times that each round counts."""
        return row_weights(self.logs.weights, len(self.logs))

    @cached_property
    def is_binary(self) -> bool:
        """True where rewards are 0 or 1."""
        return bool(np.isin(self.logs.rewards, (0.0, 1.0)).all())

    @property
    def model(self) -> float:
        """The value of the policy by the model."""
        return float(np.average(self.expected, weights=self.counts))

    @property
    def shares(self) -> Float[Array, " n"]:
        """The weight of a round in the self-normalised mean; zeros where no round has any weight."""
        total = float(self.counts @ self.weights)
        return self.weights / total if total > 0 else np.zeros(len(self.weights))

    @property
    def mean_weight(self) -> float:
        """About 1 if the log covers the policy's choices."""
        return float(np.average(self.weights, weights=self.counts))

    @property
    def effective_size(self) -> float:
        """The number of equally weighted rounds that would tell as much.

        Weights sum to the number of rounds on average. Where they fall short, the log has missed some of the policy's
        choices: they count as a single round that would carry all the missing weight.
        """
        n, total = float(self.counts.sum()), float(self.counts @ self.weights)
        if total == 0:
            return 0.0
        whole = max(total, n)
        return 1.0 / (float(self.counts @ (self.weights / whole) ** 2) + (max(n - total, 0.0) / whole) ** 2)

    @property
    def missed(self) -> float:
        """The factor by which the variance grows because the log has missed some of the policy's choices."""
        of_seen = float((self.counts * self.shares**2).sum())
        return 1.0 if of_seen == 0 else 1.0 / (self.effective_size * of_seen)

    @cached_property
    def residuals(self) -> Float[Array, " n"]:
        """r_i - r̂(x_i, a_i)."""
        return self.logs.rewards - self.at_logged

    @property
    def mean_residual(self) -> float:
        """The model's error on the logged rounds."""
        return float(np.average(self.residuals, weights=self.counts))

    @property
    def correction(self) -> float:
        """The model's error for this policy: the self-normalised mean of the weighted residuals."""
        return float((self.counts * self.shares) @ self.residuals)

    @property
    def spread_everywhere(self) -> float:
        """The variance of the residuals of all rounds.

        If rewards are 0 or 1, it is at least that of one more reward of each kind: a log without a click does not show
        that there are none.
        """
        spread = float(np.average((self.residuals - self.mean_residual) ** 2, weights=self.counts))
        if not self.is_binary:
            return spread
        rate = (float(self.counts @ self.logs.rewards) + 1.0) / (float(self.counts.sum()) + 2.0)
        return max(spread, min(rate * (1.0 - rate), 1.0 / (float(self.counts.sum()) + 2.0)))

    @property
    def spread_here(self) -> float:
        """The variance of the residuals of rounds like the policy's."""
        return float((self.counts * self.shares) @ (self.residuals - self.correction) ** 2)


@dataclass(frozen=True)
class ResidualEvidence:
    """The evidence from which `value_on_grid` computes the value of a policy, alone or against a baseline.

    Attributes:
        model: The value of the policy by the model.
        centre: The same, moved by the model's error on the logged rounds as far as the policy repeats them.
        baseline: The value of the baseline, model and residuals together; 0 for none.
        distance: The share of choices in which the policy differs from the baseline, or from the log.
        observed: The value of the policy by model and residuals; None where no round has any weight.
        inverse_size: The variance of the observed value for residuals of variance one.
        spread: The variance of the residuals of rounds like the policy's.
        effective_size: The number of equally weighted rounds behind the observed value.
        context_error: The variance of what other contexts would have given.
        low: The lowest value that can be, or -inf.
        high: The highest value that can be, or inf.
        is_binary: True where rewards are 0 or 1, so that the value determines their variance.
        size: The size that errors of the model are relative to.
    """

    model: float
    centre: float
    baseline: float
    distance: float
    observed: float | None
    inverse_size: float
    spread: float
    effective_size: float
    context_error: float
    low: float
    high: float
    is_binary: bool
    size: float

    @classmethod
    def collect(cls, policy: PolicyResiduals, baseline: PolicyResiduals | None) -> ResidualEvidence:
        """The evidence of a log on the value of a policy, or on its gain over a baseline."""
        rewards, counts, n = policy.logs.rewards, policy.counts, float(policy.counts.sum())
        value = 0.0 if baseline is None else baseline.model + baseline.correction
        gap = policy.shares if baseline is None else policy.shares - baseline.shares
        clustering, distance = _clustering(policy, gap), _distance(policy, baseline)
        effective = policy.effective_size / clustering
        everywhere, here = policy.spread_everywhere, policy.spread_here
        # The noise of the logged rewards in the baseline's value, unless the observed value of the policy shares it.
        noise = 0.0 if baseline is None else everywhere / n * max(0.0, min(1.0, 2 * distance) - effective / n)
        direct = policy.expected if baseline is None else policy.expected - baseline.expected
        return cls(
            model=policy.model,
            centre=policy.model + (1.0 - distance) * policy.mean_residual,
            baseline=value,
            distance=distance,
            observed=None if effective == 0 else policy.model + policy.correction,
            inverse_size=float((counts * gap**2).sum()) * policy.missed * clustering,
            spread=(SPREAD_ROUNDS * everywhere + effective * here) / (SPREAD_ROUNDS + effective),
            effective_size=effective,
            context_error=_standard_error(direct, policy.logs, policy.logs.groups) ** 2 + noise,
            low=-np.inf if rewards.min() < 0 else 0.0,
            high=1.0 if policy.is_binary else np.inf,
            is_binary=policy.is_binary,
            size=_size(policy, value),
        )

    def with_more_rounds(self, times: float, value: float) -> ResidualEvidence:
        """The evidence of so many times the rounds, if they confirm a value."""
        return replace(
            self,
            observed=None if self.observed is None else value,
            inverse_size=self.inverse_size / times,
            effective_size=self.effective_size * times,
            context_error=self.context_error / times,
        )

    def variance(self, values: Float[Array, " g"]) -> Float[Array, " g"]:
        """The variance of the observed value, were these the true values."""
        spread = np.full(len(values), self.spread)
        if self.is_binary:
            rate = np.clip(values, RATE_MARGIN, 1.0 - RATE_MARGIN)
            # Of 0 and 1, the model explains a part; how large a part is only known from many rounds.
            implied = rate * (1.0 - rate)
            n, few = self.effective_size, SPREAD_ROUNDS
            spread = (few * implied + n * np.minimum(self.spread, implied)) / (few + n)
        return self.inverse_size * spread + _TINY


def _distance(policy: PolicyResiduals, baseline: PolicyResiduals | None) -> float:
    """The share of choices in which a policy differs from a baseline, or from the log: total variation, at most 1."""
    other = 1.0 if baseline is None else baseline.weights
    apart = 0.5 * float(np.average(np.abs(policy.weights - other), weights=policy.counts))
    return min(1.0, max(apart, 1.0 - policy.mean_weight))


def _size(policy: PolicyResiduals, baseline: float) -> float:
    """The size that errors are relative to: the larger value; where rewards have signs, their distance from the mean.

    It also counts how far the model's predictions differ, which has a size where all values are near the mean.
    """
    mean = float(np.average(policy.logs.rewards, weights=policy.counts))
    if policy.logs.rewards.min() >= 0:
        return max(abs(policy.model), abs(baseline), abs(mean), _TINY)
    return max(abs(policy.model - mean), abs(baseline - mean), float(np.std(policy.at_logged)), _TINY)


def _standard_error(terms: Float[Array, " n"], logs: LoggedData, groups: Int[Array, " n"] | None) -> float:
    return as_units(terms, np.zeros(len(terms)), None, logs.weights, groups).std


def _clustering(policy: PolicyResiduals, gap: Float[Array, " n"]) -> float:
    """The factor by which the variance grows because residuals of one group, a user or a session, agree."""
    logs, terms = policy.logs, gap * (policy.residuals - policy.correction)
    alone = _standard_error(terms, logs, None)
    if logs.groups is None or alone == 0:
        return 1.0
    return max(1.0, (_standard_error(terms, logs, logs.groups) / alone) ** 2)


@dataclass(frozen=True)
class GridValue:
    """The distribution of a value: shares of grid cells, each blurred by what other contexts would have given."""

    shape: NormalMixture

    @property
    def median(self) -> float:
        """The value that is as likely too high as too low."""
        return self.shape.quantile(0.5)

    @property
    def std(self) -> float:
        """Half the width of the interval that holds 68 %: the standard deviation of a normal distribution.

        That of heavy tails depends on the last few values of the grid.
        """
        return 0.5 * (self.shape.quantile(ONE_SIGMA) - self.shape.quantile(1.0 - ONE_SIGMA))


def value_on_grid(evidence: ResidualEvidence, posterior_std: float, scale: float) -> GridValue:
    """The value given model and residuals.

    On the axis u = arcsinh(V / knee), the prior is normal around the model with the posterior's variance plus that of
    the model's error: Student with `scale` times the distance of the policy from the log. The observed value is normal
    around V with the variance that V implies.
    """
    if evidence.inverse_size == 0.0 and evidence.observed is not None:
        # The policy does what the baseline does: there is nothing to be unsure of.
        return _certain(evidence.observed, evidence)
    knee = KNEE * max(evidence.size, posterior_std)
    if knee < SMALLEST:
        # All rewards are zero, and the model is sure of it.
        return _certain(evidence.centre, evidence)
    middle = float(np.arcsinh(evidence.centre / knee))
    own = posterior_std / np.hypot(evidence.centre, knee)
    quantiles = stdtrit(TAILS, 0.5 + (np.arange(N_SCALES) + 0.5) / (2 * N_SCALES))
    variances = own**2 + (quantiles * scale * evidence.distance) ** 2 + _TINY
    values = _grid(evidence, middle, np.sqrt(variances), knee)
    if len(values) < 2:
        return _certain(float(np.clip(evidence.centre, evidence.low, evidence.high)), evidence)
    axis = np.arcsinh(values / knee)
    prior = (np.exp(-0.5 * (axis - middle) ** 2 / variances[:, None]) / np.sqrt(variances)[:, None]).mean(axis=0)
    log_density = np.log(prior + _TINY) - np.log(np.hypot(values, knee))
    if evidence.observed is not None:
        variance = evidence.variance(values)
        log_density -= 0.5 * ((evidence.observed - values) / np.sqrt(variance)) ** 2 + 0.5 * np.log(variance)
    density = np.exp(log_density - log_density.max())
    shares = 0.5 * (density[1:] + density[:-1]) * np.diff(values)
    middles = 0.5 * (values[1:] + values[:-1])
    blur = np.full(len(middles), np.sqrt(evidence.context_error))
    return GridValue(NormalMixture(middles, blur, shares / shares.sum()))


def _certain(value: float, evidence: ResidualEvidence) -> GridValue:
    """A value without error but that of the contexts."""
    blur = np.array([np.sqrt(evidence.context_error)])
    return GridValue(NormalMixture(np.array([value]), blur, np.ones(1)))


def _grid(evidence: ResidualEvidence, middle: float, stds: Float[Array, " s"], knee: float) -> Float[Array, " g"]:
    """Values that are dense where prior or evidence are narrow, and reach as far as either."""
    steps = np.linspace(-1.0, 1.0, N_GRID)
    values = [
        knee * np.sinh(middle + steps * min(REACH * std, FARTHEST)) for std in (stds[0], np.median(stds), stds[-1])
    ]
    if evidence.observed is not None:
        at = np.clip(evidence.observed, evidence.low, evidence.high)
        error = np.sqrt(evidence.variance(np.array([at]))[0])
        values.append(evidence.observed + steps * REACH * error)
    ends = [end for end in (evidence.low, evidence.high) if np.isfinite(end)]
    grid = np.unique(np.concatenate([*values, np.array(ends)]))
    return grid[(grid >= evidence.low) & (grid <= evidence.high)]


_TINY = 1e-300
