"""The error of a model: how far its values are off, as a share of the value, learned from the log itself.

Small test policies measure it. Each chooses, equally often, among all actions whose predicted rewards lie in one fifth
of the predictions. The log says what such a policy earns: with weights 1 / π_0, all actions are equally likely. Where
the model is right, it predicts these values within their standard errors. Where it is wrong, it misses them by some
share of the value, and it will miss the value of a candidate by a similar share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

from manyarms._base.checks import Array
from manyarms.estimators.policy_residuals import KNEE, RATE_MARGIN, SMALLEST, SPREAD_ROUNDS, PolicyResiduals, clustering

# The constants of this file were chosen on two multi-label sets (science, rcv1) and on simulated rewards, linear and
# not. docs/decisions.md reports other sets.
USUAL = 0.7
"""How far models are usually off, as a share of the value. The log can tell otherwise."""
RIGHT = 0.1
"""The probability that a model is right, before the log has been seen."""
MARGIN = 3.0
"""A candidate may be farther from the log than the test policies: its error may be larger by this factor."""
OVERRATING = 0.15
"""The share of an error that is left downwards, for a learned policy that hidden reasons do not flatter."""
FLATTERED = 0.5
"""The least error downwards, as a share of the value, for a learned policy that hidden reasons surely flatter."""
OF_CLICKS = 5.0 / 3.0
"""The errors of a model that is not linear are larger by this factor than its test policies tell."""
TAILS = 3
"""Degrees of freedom of the half-Student factor of an error's standard deviation: some models fail badly."""
N_TESTS = 5
"""The number of test policies."""
SCALES = np.geomspace(0.01, 3.0, 40)
"""The scales that are considered, next to zero."""


@dataclass(frozen=True)
class ModelError:
    """The distribution of a model's error, as a share of the value: normal around zero, with an uncertain scale.

    The standard deviation is the scale times a half-Student factor, which makes the tails heavy.

    Attributes:
        scales: (k,) The scales that are possible.
        shares: (k,) Their probabilities, which sum to one.
        log_evidence: The log density of what the test policies found, but for a constant.
    """

    scales: Float[Array, " k"]
    shares: Float[Array, " k"]
    log_evidence: float = 0.0

    @classmethod
    def fixed(cls, scale: float) -> ModelError:
        """The error of a known scale."""
        return cls(np.array([scale]), np.ones(1))

    @classmethod
    def learn(
        cls, rounds: PolicyResiduals, propensities: Float[Array, " n"], *, may_be_right: bool = True
    ) -> ModelError:
        """The error that test policies find in a log.

        The scale κ is 0 with probability `RIGHT`, else half-Cauchy around `USUAL`. A test policy of value m is found
        to be off by e, with standard error s: e / size ~ N(0, (s / size)² + κ²), where size² = m² + knee².

        Args:
            rounds: The rounds as they were logged, and the rewards that a held-out model expects.
            propensities: (n,) π_0(a_i | x_i).
            may_be_right: False if the model is known to be wrong, so that κ is not 0.
        """
        knee = KNEE * error_size(rounds, rounds.mean_reward)
        if knee < SMALLEST:
            return cls.fixed(USUAL)
        half_cauchy = SCALES / (1.0 + (SCALES / USUAL) ** 2)
        scales = np.concatenate([[0.0], SCALES])
        log_density = np.log(np.concatenate([[RIGHT], (1.0 - RIGHT) * half_cauchy / half_cauchy.sum()]))
        for value, error, variance in _test_policies(rounds, propensities):
            size = np.hypot(value, knee)
            total = variance / size**2 + scales**2 + _TINY
            log_density -= 0.5 * ((error / size) ** 2 / total + np.log(total)) + np.log(size)
        if not may_be_right:
            log_density[0] = -np.inf
        density = np.exp(log_density - log_density.max())
        likely = density > _NEGLIGIBLE * density.sum()
        log_evidence = float(log_density.max() + np.log(density.sum()))
        return cls(MARGIN * scales[likely], density[likely] / density[likely].sum(), log_evidence)

    @property
    def scale(self) -> float:
        """The scale as a single number: its geometric mean."""
        return float(np.exp(self.shares @ np.log(np.maximum(self.scales, SCALES[0] / 10))))

    def at_least(self, scale: float) -> ModelError:
        """The error if its scale is known to be no smaller than this."""
        return replace(self, scales=np.maximum(self.scales, scale))

    def times(self, factor: float) -> ModelError:
        """The error if all scales are larger by a factor."""
        return replace(self, scales=factor * self.scales)

    def downwards(self, reasons: float) -> ModelError:
        """The error by which a model overrates a policy that was learned from a log.

        A model shrinks what it learns towards its prior, so it rather underrates good policies. It overrates them where
        they choose what the log rarely chose, and the log was written for reasons that the model does not know: then a
        line through the residuals tells where it errs, and not how far. It also overrates a policy that takes what was
        lucky, which `selection_doubt` counts.

        Args:
            reasons: The extent to which hidden reasons flatter the policy, from 0 to 1 (see `surprise_trend`).
        """
        return self.times(OVERRATING + (1.0 - OVERRATING) * reasons).at_least(FLATTERED * reasons)

    def normal_parts(self) -> tuple[Float[Array, " s"], Float[Array, " s"]]:
        """The error as a mixture of normal distributions around zero: their standard deviations and shares.

        Parts of nearly the same width are joined, so that their number does not grow with that of the scales.
        """
        stds, shares = np.outer(self.scales, _STUDENT).ravel(), np.repeat(self.shares / len(_STUDENT), len(_STUDENT))
        place = np.searchsorted(_WIDTHS, stds)
        total = np.bincount(place, shares, minlength=len(_WIDTHS))
        joined = np.bincount(place, shares * stds, minlength=len(_WIDTHS))[total > 0] / total[total > 0]
        return joined, total[total > 0]


def error_size(policy: PolicyResiduals, baseline: float) -> float:
    """The size that errors of a model are relative to.

    It is the larger value; where rewards have signs, the distance of the values from the mean. It also
    counts how far the model's predictions differ, which has a size where all values are near the mean.
    """
    mean = policy.mean_reward
    if policy.logs.rewards.min() >= 0:
        return max(abs(policy.model), abs(baseline), abs(mean), SMALLEST)
    return max(abs(policy.model - mean), abs(baseline - mean), float(np.std(policy.at_logged)), SMALLEST)


def _test_policies(rounds: PolicyResiduals, propensities: Float[Array, " n"]) -> Iterator[tuple[float, float, float]]:
    """The value of each test policy by the model, the model's error for it, and the variance of that error."""
    predicted, order = rounds.at_logged, np.argsort(rounds.at_logged, kind="stable")
    order = order[rounds.counts[order] > 0]
    middles = np.cumsum(rounds.counts[order]) - 0.5 * rounds.counts[order]
    fifths = np.floor(N_TESTS * middles / rounds.counts.sum()).astype(np.int64)
    # The spread of a few residuals is itself uncertain.
    uncertain = 1.0 + SPREAD_ROUNDS / float(rounds.counts.sum())
    for rows in (order[fifths == fifth] for fifth in np.unique(fifths)):
        weights = np.zeros(len(predicted))
        # 1 / π_0 up to a factor, which does not matter; π_0 may be too small to divide by.
        weights[rows] = propensities[rows].min() / propensities[rows]
        test = PolicyResiduals(rounds.logs, weights, predicted, predicted)
        inverse_size = float((test.counts * test.shares**2).sum())
        value, error, size = float((test.counts * test.shares) @ predicted), test.correction, 1.0 / inverse_size
        spread = (SPREAD_ROUNDS * test.spread_everywhere + size * test.spread_by(test.shares)) / (SPREAD_ROUNDS + size)
        if test.is_binary:
            # A few rounds without a click do not show that there are none.
            rate = float(np.clip(max(value + error, value, 0.1 * test.mean_reward), RATE_MARGIN, 0.5))
            spread = max(spread, 0.5 * rate * (1.0 - rate))
        yield value, error, uncertain * spread * inverse_size * clustering(test, test.shares)


_STUDENT = stdtrit(TAILS, 0.5 + (np.arange(40) + 0.5) / 80)
_WIDTHS = np.geomspace(1e-4, 1e3, 160)
_NEGLIGIBLE = 1e-4
_TINY = 1e-300
