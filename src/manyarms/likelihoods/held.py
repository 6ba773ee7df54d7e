"""Rounds in memory: a site for each, moved one by one where that is needed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from manyarms._arrays import Array
from manyarms.core.data import LoggedData
from manyarms.core.hierarchy import HierarchicalGaussian
from manyarms.core.statistics import Statistics
from manyarms.inference import condition
from manyarms.likelihoods.base import Likelihood, Site
from manyarms.likelihoods.sited import WIDE, Sited, SitedRounds, predictions

SMALLEST_OWN_STEP = 2.0**-20
OWN_STEPS = 3


@dataclass(frozen=True)
class _Held(Sited[Site]):
    """With mean and variance of the predictor of each round."""

    mean: Float[Array, " n"]
    variance: Float[Array, " n"]


class HeldRounds(SitedRounds[Site]):
    """Rounds in memory.

    Args:
        prior: Of the weights.
        logs: Checked by the likelihood, none of weight zero.
        likelihood: Of the rewards.
    """

    def __init__(self, prior: HierarchicalGaussian, logs: LoggedData, likelihood: Likelihood):
        self.prior, self.logs, self.likelihood = prior, logs, likelihood
        self.counts = np.ones(len(logs)) if logs.weights is None else logs.weights
        self.variational = likelihood.treatment != "laplace"
        self.prior_mean = self._predict(prior)[0]

    def sites_from(self, weights: HierarchicalGaussian) -> Site:
        """The sites that the predictions of some weights ask for."""
        mean, variance = self._predict(weights)
        first = self.likelihood.start(self.logs.rewards, mean, variance)
        # Of a wide predictor even an earlier posterior knows no better than the prior.
        fresh = (weights is self.prior) | (variance > WIDE)
        return self._site(np.where(fresh, first[0], mean), np.where(fresh, first[1], variance))

    def target(self, state: Sited[Site]) -> Site:
        assert isinstance(state, _Held)
        return self._site(state.mean, state.variance)

    def settled(self, state: Sited[Site]) -> Site | None:
        """A few steps of every round on its own, the others as they are.

        Where few rounds share a weight, the variance of a predictor hangs on its own site most, and all sites at once
        would overshoot: each has a step length of its own, the best of 1, 1/2, 1/4, ... for what `_own` says.
        """
        assert isinstance(state, _Held)
        if not self.variational:
            return None
        c, m, v = self.counts, state.mean, np.maximum(state.variance, 1e-100)
        # What the others and the prior say of a predictor: its posterior less its own site.
        rest = Site(np.maximum(1.0 / v - c * state.sites.weight, 1e-14 / v), m / v - c * state.sites.linear)
        sites, everyone = state.sites, np.arange(len(m))
        for _ in range(OWN_STEPS):
            target = self._site(*_posterior(rest, sites, c))
            step, best, live, length = np.ones(len(m)), self._own(rest, target, everyone), everyone, 1.0
            while len(live) and length > SMALLEST_OWN_STEP:
                length /= 2
                trial = self._own(rest, _between(sites, target, length), live)
                better = ~(trial <= best[live])
                live = live[better]
                step[live], best[live] = length, trial[better]
            sites = _between(sites, target, step)
        return sites

    def _own(self, rest: Site, sites: Site, rounds: Int[Array, " m"]) -> Float[Array, " m"]:
        """What some rounds gain by a site of theirs: E log p - KL(N(m, v), rest), but for a constant."""
        rest, sites = (Site(*(part[rounds] for part in of)) for of in (rest, sites))
        m, v = _posterior(rest, sites, self.counts[rounds])
        fit = self.likelihood.expected_log_density(self.logs.rewards[rounds], m, v)
        return self.counts[rounds] * fit - 0.5 * (rest.weight * (m**2 + v) - 2 * rest.linear * m - np.log(v))

    def state(self, sites: Site) -> Sited[Site]:
        """KL = ½ (Σ (l - w m) (m - m₀) + log |S₀| / |S| - Σ w v): no squares of pseudo-rewards, which cancel.

        Σ (l - w m) (m - m₀) is ‖θ̂ - θ₀‖² in units of S₀, by the solve.
        """
        logs, (weight, linear) = self.logs, sites
        statistics = Statistics.of_rounds(
            logs.contexts, logs.actions, linear / weight, self.prior.n_actions, weight * self.counts
        )
        weights = condition(self.prior, statistics, 1.0)
        m, v = self._predict(weights)
        fit = self.counts * self.likelihood.expected_log_density(logs.rewards, m, v)
        moved = self.counts * (linear - weight * m) * (m - self.prior_mean)
        joint = float(np.sum(fit - 0.5 * moved))
        gained = weights.log_det - self.prior.log_det - float(self.counts @ (weight * v))
        log_evidence = joint - 0.5 * gained
        rounding = 1e-13 * float(np.sum(np.abs(fit)) + np.sum(np.abs(moved)))
        objective = log_evidence if self.variational else joint
        return _Held(sites, statistics, weights, objective, log_evidence, rounding, m, v)

    def between(self, state: Sited[Site], target: Site, share: float) -> Site:
        return _between(state.sites, target, share)

    def dispersion_slope(self, state: Sited[Site]) -> float:
        assert isinstance(state, _Held)
        slope = self.likelihood.dispersion_slope(self.logs.rewards, state.mean, state.variance)
        return float(self.counts @ slope)

    def _site(self, mean: Float[Array, " n"], variance: Float[Array, " n"]) -> Site:
        return self.likelihood.site(self.logs.rewards, mean, variance)

    def _predict(self, weights: HierarchicalGaussian) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        return predictions(weights, self.logs, with_variance=self.variational)


def _between(old: Site, new: Site, share: float | Float[Array, " n"]) -> Site:
    return Site(*((1 - share) * a + share * b for a, b in zip(old, new, strict=True)))


def _posterior(rest: Site, sites: Site, counts: Float[Array, " n"]) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Mean and variance of predictors of which the rest and their own sites speak."""
    variance = 1.0 / (rest.weight + counts * sites.weight)
    return variance * (rest.linear + counts * sites.linear), variance
