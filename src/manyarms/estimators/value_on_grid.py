"""The value of a policy on a grid: a prior around the model's value, joined with what weighted residuals say of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from manyarms._base.checks import Array
from manyarms.core.estimate import NormalMixture
from manyarms.estimators.intervals import standard_error
from manyarms.estimators.model_error import ModelError, error_size
from manyarms.estimators.policy_residuals import KNEE, RATE_MARGIN, SMALLEST, SPREAD_ROUNDS, PolicyResiduals, clustering

NORMAL_WIDTH = 2.0 * float(ndtri(0.975))
"""The width of the 95 % interval of a normal distribution of standard deviation one."""
LEAST_REST = 0.1
"""The least share of the variance of an observed value that is not the posterior's error."""
N_GRID, REACH, FARTHEST, FINEST = 2001, 8.0, 12.0, 1e-5


@dataclass(frozen=True)
class ResidualEvidence:
    """The evidence from which `value_on_grid` computes the value of a policy, alone or against a baseline.

    Attributes:
        model: The policy's value according to the model.
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
    def collect(
        cls, policy: PolicyResiduals, baseline: PolicyResiduals | None, error: ModelError, posterior_std: float
    ) -> ResidualEvidence:
        """The evidence of a log on the value of a policy, or on its gain over a baseline.

        Args:
            policy: The policy.
            baseline: The policy that it is compared with.
            error: The model's error. Where it is small, the mean residual of the log is mostly noise.
            posterior_std: The posterior standard deviation of the value or the gain.
        """
        rewards, counts, n = policy.logs.rewards, policy.counts, float(policy.counts.sum())
        value = 0.0 if baseline is None else baseline.model + baseline.correction
        gap = policy.shares if baseline is None else policy.shares - baseline.shares
        grouped, distance = clustering(policy, gap), _distance(policy, baseline)
        effective = policy.effective_size / grouped
        everywhere, here = policy.spread_everywhere, policy.spread_by(gap**2)
        trusted = 1.0 if baseline is None else _share_of_error(baseline, everywhere / n * grouped, error, posterior_std)
        # The noise of the logged rewards in the baseline's value, unless the observed value of the policy shares it.
        noise = 0.0 if baseline is None else everywhere / n * max(0.0, min(1.0, 2 * distance) - effective / n)
        direct = policy.expected if baseline is None else policy.expected - baseline.expected
        return cls(
            model=policy.model,
            centre=policy.model + (1.0 - trusted * distance) * policy.mean_residual,
            baseline=value,
            distance=distance,
            observed=None if effective == 0 else policy.model + policy.correction,
            inverse_size=float((counts * gap**2).sum()) * policy.missed * grouped,
            spread=here if policy.is_binary else _shrunk(everywhere, here, effective),
            effective_size=effective,
            context_error=standard_error(direct, policy.logs, policy.logs.groups) ** 2 + trusted * noise,
            # Values are relative to the observed baseline, and so are their bounds.
            low=-np.inf if rewards.min() < 0 else (1.0 - trusted) * policy.mean_residual,
            high=1.0 + (1.0 - trusted) * policy.mean_residual if policy.is_binary else np.inf,
            is_binary=policy.is_binary,
            size=error_size(policy, value),
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

    def of_learned_rounds(self, posterior_std: float) -> ResidualEvidence:
        """The evidence on the error of a model that has learned from the same rounds.

        The residuals then tell nothing new about what the model is unsure of: as part of the prior it would count them
        twice. V = M + b + e, where e is the posterior's error. If the model is right, its errors are uncorrelated with
        what the observed value adds to them (Hausman, 1978). So the observed value measures b with its own variance
        minus that of e, and e blurs the result.
        """
        own = posterior_std**2
        if self.observed is None or own == 0.0:
            return replace(self, context_error=self.context_error + own)
        noise = float(self.variance(np.array([np.clip(self.observed, self.low, self.high)]))[0])
        rest = max(1.0 - own / noise, LEAST_REST)
        return replace(self, inverse_size=self.inverse_size * rest, context_error=self.context_error + own)

    def variance(self, values: Float[Array, " g"]) -> Float[Array, " g"]:
        """The variance of the observed value, were these the true values."""
        if not self.is_binary:
            return np.full(len(values), self.inverse_size * self.spread + _TINY)
        # A rate implies the variance of 0 and 1. The model leaves some share of it, which only many rounds can tell.
        n = self.effective_size
        rate = self.model if self.observed is None else _shrunk(self.model, self.observed, n)
        left = _shrunk(1.0, self.spread / float(_implied(np.array([rate]))[0]), n)
        return self.inverse_size * left * _implied(values) + _TINY


def _shrunk(usual: float, observed: float, n: float) -> float:
    """The mean of a figure over n observed rounds and a few usual ones."""
    return (SPREAD_ROUNDS * usual + n * observed) / (SPREAD_ROUNDS + n)


def _implied(rates: Float[Array, " g"]) -> Float[Array, " g"]:
    """The variance of rewards of 0 and 1 with these means."""
    rates = np.clip(rates, RATE_MARGIN, 1.0 - RATE_MARGIN)
    return rates * (1.0 - rates)


def _distance(policy: PolicyResiduals, baseline: PolicyResiduals | None) -> float:
    """The share of choices in which a policy differs from a baseline, or from the log: total variation, at most 1."""
    other = 1.0 if baseline is None else baseline.weights
    apart = 0.5 * float(np.average(np.abs(policy.weights - other), weights=policy.counts))
    return min(1.0, max(apart, 1.0 - policy.mean_weight))


@dataclass(frozen=True)
class GridValue:
    """The distribution of a value on a grid: shares of cells, each blurred by what other contexts would have given."""

    shape: NormalMixture

    @property
    def median(self) -> float:
        """The value that is as likely too high as too low."""
        return self.shape.quantile(0.5)

    @property
    def std(self) -> float:
        """The standard deviation of the normal distribution whose 95 % interval is as wide.

        That of heavy tails depends on the last few values of the grid.
        """
        low, high = self.shape.interval(0.95)
        return (high - low) / NORMAL_WIDTH


@dataclass(frozen=True)
class PriorSide:
    """The prior of the value on one side of what the model says.

    Attributes:
        std: The standard deviation that the model leaves if it is right, and the doubt about its own choices.
        error: How far the model is off, as a share of the value.
    """

    std: float
    error: ModelError

    @classmethod
    def pair(
        cls, spread: float, doubts: tuple[float, float], errors: tuple[ModelError, ModelError]
    ) -> tuple[PriorSide, PriorSide]:
        """The sides below and above, from what the model leaves, and the doubt and the error of either side."""
        below, above = (cls(float(np.hypot(spread, doubts[side])), errors[side]) for side in (0, 1))
        return below, above

    def parts(self, size: float, distance: float) -> tuple[Float[Array, " s"], Float[Array, " s"]]:
        """The variances of its normal parts where values count as shares of a size, and their shares."""
        stds, shares = self.error.normal_parts()
        return np.maximum((self.std / size) ** 2 + (stds * distance) ** 2, FINEST**2), shares


def value_on_grid(evidence: ResidualEvidence, below: PriorSide, above: PriorSide) -> GridValue:
    """The value of a policy on a grid, given model and residuals.

    On the axis u = arcsinh(V / knee), the prior has the model as its median. On either side it is a mixture of normal
    distributions, with the posterior's variance plus that of the model's error times the distance of the policy from
    the log. The observed value is normal around V with the variance that V implies.

    Args:
        evidence: The evidence of the log.
        below: The prior where the value is lower than the model says.
        above: The prior where it is higher.
    """
    if evidence.inverse_size == 0.0 and evidence.observed is not None:
        # The policy does what the baseline does: there is nothing to be unsure of.
        return _certain(evidence.observed, evidence)
    knee = KNEE * max(evidence.size, below.std, above.std)
    if knee < SMALLEST:
        # All rewards are zero, and the model is sure of it.
        return _certain(evidence.centre, evidence)
    middle = float(np.arcsinh(evidence.centre / knee))
    parts = [side.parts(float(np.hypot(evidence.centre, knee)), evidence.distance) for side in (below, above)]
    values = _grid(evidence, middle, np.sqrt(np.sort(np.concatenate([variances for variances, _ in parts]))), knee)
    if len(values) < 2:
        return _certain(float(np.clip(evidence.centre, evidence.low, evidence.high)), evidence)
    squares = (np.arcsinh(values / knee) - middle) ** 2
    start = int(np.searchsorted(values, evidence.centre))
    densities = [
        (shares[:, None] * np.exp(-0.5 * square / variances[:, None]) / np.sqrt(variances)[:, None]).sum(axis=0)
        for square, (variances, shares) in zip((squares[:start], squares[start:]), parts, strict=True)
    ]
    log_density = np.log(np.concatenate(densities) + _TINY) - np.log(np.hypot(values, knee))
    if evidence.observed is not None:
        variance = evidence.variance(values)
        log_density -= 0.5 * ((evidence.observed - values) / np.sqrt(variance)) ** 2 + 0.5 * np.log(variance)
    density = np.exp(log_density - log_density.max())
    shares = 0.5 * (density[1:] + density[:-1]) * np.diff(values)
    middles = 0.5 * (values[1:] + values[:-1])
    blur = np.full(len(middles), np.sqrt(evidence.context_error))
    return GridValue(NormalMixture(middles, blur, shares / shares.sum()))


def _share_of_error(baseline: PolicyResiduals, variance: float, error: ModelError, posterior_std: float) -> float:
    """The share of the mean residual that is the model's error rather than noise of this variance."""
    off = error.scale * np.hypot(baseline.model, KNEE * error_size(baseline, baseline.model))
    expected = off**2 + posterior_std**2
    return 1.0 if variance == 0 else float(expected / (expected + variance))


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
