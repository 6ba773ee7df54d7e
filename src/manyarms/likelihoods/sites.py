"""Gaussian sites of all rounds, with the steps that the variational loop takes with them.

`MemorySiteSolver` keeps one site per round and can move each on its own. `StreamSiteSolver` is for rounds that are not
in memory: every look at them is a pass, and their sites are kept as sums. Sites enter the solve only through
Σ_i w_i φ φᵀ and Σ_i l_i φ, and between two sets of sites these sums move along a straight line. So one pass under given
weights yields both the objective and the next sites; nothing that grows with the number of rounds is kept. The steps
are those for rounds in memory, except one: where moving all sites at once overshoots, rounds in memory are first moved
one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array
from manyarms.core import EffectGroup, HierarchicalGaussian, LoggedData, Logs, Statistics, StatisticsSum
from manyarms.core.observed_rows import observe
from manyarms.engines import Engine
from manyarms.inference import condition
from manyarms.inference.condition import solve, solve_further
from manyarms.inference.evidence_gradient import EvidenceGradient, gradient_of
from manyarms.inference.latent_posterior import LatentPosterior
from manyarms.likelihoods.collect_statistics import StatisticsTally, StatisticsTask
from manyarms.likelihoods.likelihood import Likelihood, PerRound, Site
from manyarms.likelihoods.rounds_by_action import RoundsByAction
from manyarms.linalg.indexing import chunks
from manyarms.linalg.quadratic_forms import row_norms

WIDE = 1.0
"""Variance above which even an earlier posterior knows a predictor no better than the prior."""


@dataclass(frozen=True)
class SiteState:
    """A set of sites with the posterior that it gives.

    Attributes:
        sites: One per round, or their sums.
        prior: The distribution before these rounds.
        solved: The posterior that the loop works with, and that of ψ alone. The evidence in it leaves out the part of
            the sites that no weights explain. Given an earlier posterior, it may hold the actions of these rounds only.
        sum_sites: Sums up the sites.
        objective: The quantity that no step may lower.
        log_evidence: The evidence lower bound, or Laplace's approximation of the evidence.
        rounding: The error of the objective.
        target: The sites that match this posterior.
        careful: More careful sites, for when moving all at once overshoots; None where there are none.
        dispersion_slope: The derivative of the objective by the logarithm of the likelihood's dispersion.
    """

    sites: Any
    prior: HierarchicalGaussian
    solved: tuple[HierarchicalGaussian, LatentPosterior]
    sum_sites: Callable[[], Statistics]
    objective: float
    log_evidence: float
    rounding: float
    target: Callable[[], Any]
    careful: Callable[[], Any]
    dispersion_slope: Callable[[], float]

    @cached_property
    def statistics(self) -> Statistics:
        """The sites as sums, in units of a noise of one."""
        return self.sum_sites()

    @cached_property
    def weights(self) -> HierarchicalGaussian:
        """The posterior."""
        return condition(self.prior, self.statistics, 1.0)

    def evidence(self, groups: tuple[EffectGroup, ...], prior: HierarchicalGaussian | None = None) -> EvidenceGradient:
        """The evidence of the Gaussian rounds that the sites stand for, with its derivatives.

        Under the prior of the loop, whose rows have been conditioned on already, or another one.
        """
        solved = self.solved if prior is None else solve(prior, self.solved[0].observed)
        return gradient_of(*solved, groups)


def between(old: Any, new: Any, share: Any) -> Any:
    """Sites, or sums of sites, a share of the way from old to new ones."""
    if not isinstance(old, Site):
        return old.scaled(1 - share) + new.scaled(share)
    return Site(*((1 - share) * a + share * b for a, b in zip(old, new, strict=True)))


def _first_site_at(
    likelihood: Likelihood, rewards: PerRound, mean: PerRound, variance: PerRound, from_prior: bool
) -> tuple[PerRound, PerRound]:
    """The N(m, v) around which first sites are taken: the likelihood's own where no posterior knows better."""
    start, fresh = likelihood.start(rewards, mean, variance), from_prior | (variance > WIDE)
    return np.where(fresh, start[0], mean), np.where(fresh, start[1], variance)


SMALLEST_OWN_STEP = 2.0**-20
OWN_STEPS = 3


class MemorySiteSolver:
    """Sites of rounds in memory, one per round; the likelihood has checked the rounds, and none has weight zero."""

    def __init__(
        self,
        prior: HierarchicalGaussian,
        logs: LoggedData,
        likelihood: Likelihood,
        rounds: RoundsByAction | None = None,
    ):
        self.prior, self.logs, self.likelihood = prior, logs, likelihood
        self.rounds = RoundsByAction(logs.contexts, logs.actions) if rounds is None else rounds
        self.counts = np.ones(len(logs)) if logs.weights is None else logs.weights
        self.variational = likelihood.treatment != "laplace"
        self.prior_mean = self.rounds.predict(prior, with_variance=False)[0]

    def sites_from(self, weights: HierarchicalGaussian) -> Site:
        """The first sites, from the predictions of some weights."""
        mean, variance = self._predict(weights)
        return self._site(*_first_site_at(self.likelihood, self.logs.rewards, mean, variance, weights is self.prior))

    def _settled(self, start: Site, mean: PerRound, variance: PerRound) -> Site | None:
        """Sites after a few steps of every round on its own, the others held fixed.

        Where few rounds share a weight, the variance of a predictor depends mostly on its own site, and moving all
        sites at once would overshoot. So each round has a step length of its own: the best of 1, 1/2, 1/4, ... by the
        gain that `_own_gain` computes.
        """
        if not self.variational:
            return None
        c, v = self.counts, np.maximum(variance, 1e-100)
        # The factor of the prior and the other rounds: the posterior of a predictor less its own site.
        rest = Site(np.maximum(1.0 / v - c * start.weight, 1e-14 / v), mean / v - c * start.linear)
        sites, everyone = start, np.arange(len(v))
        for _ in range(OWN_STEPS):
            target = self._site(*_posterior(rest, sites, c))
            step, best, live, length = np.ones(len(v)), self._own_gain(rest, target, everyone), everyone, 1.0
            while len(live) and length > SMALLEST_OWN_STEP:
                length /= 2
                trial = self._own_gain(rest, between(sites, target, length), live)
                better = ~(trial <= best[live])
                live = live[better]
                step[live], best[live] = length, trial[better]
            sites = between(sites, target, step)
        return sites

    def _own_gain(self, rest: Site, sites: Site, rounds: Int[Array, " m"]) -> Float[Array, " m"]:
        """The gain of some rounds from their own sites: E log p - KL(N(m, v), rest), up to a constant."""
        rest, sites = (Site(*(part[rounds] for part in factor)) for factor in (rest, sites))
        m, v = _posterior(rest, sites, self.counts[rounds])
        fit = self.likelihood.expected_log_density(self.logs.rewards[rounds], m, v)
        return self.counts[rounds] * fit - 0.5 * (rest.weight * (m**2 + v) - 2 * rest.linear * m - np.log(v))

    def state(self, sites: Site) -> SiteState:
        """Solve for given sites; KL = ½ (Σ (l - w m) (m - m₀) + log |S₀| / |S| - Σ w v).

        This form has no squares of pseudo-rewards, which would cancel. By the solve,
        Σ (l - w m) (m - m₀) is ‖θ̂ - θ₀‖² in units of S₀.
        """
        logs, (weight, linear) = self.logs, sites
        observed = self.rounds.observe(weight * self.counts, linear * self.counts)
        solved = solve_further(self.prior, observed, others=False)
        weights = solved[0]
        m, v = self._predict(weights)
        target, density = self.likelihood.site_and_density(logs.rewards, m, v)
        fit = self.counts * density
        moved = self.counts * (linear - weight * m) * (m - self.prior_mean)
        joint = float(np.sum(fit - 0.5 * moved))
        gained = weights.log_det - self.prior.log_det - float(np.sum(self.counts * weight * v))
        log_evidence = joint - 0.5 * gained
        rounding = 1e-13 * float(np.sum(np.abs(fit)) + np.sum(np.abs(moved)))
        objective = log_evidence if self.variational else joint
        return SiteState(
            sites, self.prior, solved, lambda: self._sums(sites), objective, log_evidence, rounding,
            target=lambda: target,
            careful=lambda: self._settled(sites, m, v),
            dispersion_slope=lambda: float(np.sum(self.counts * self.likelihood.dispersion_slope(logs.rewards, m, v))),
        )  # fmt: skip

    def _sums(self, sites: Site) -> Statistics:
        logs, (weight, linear) = self.logs, sites
        response, weights = linear / weight, weight * self.counts
        return Statistics.of_rounds(logs.contexts, logs.actions, response, self.prior.n_actions, weights)

    def _site(self, mean: PerRound, variance: PerRound) -> Site:
        return self.likelihood.site(self.logs.rewards, mean, variance)

    def _predict(self, weights: HierarchicalGaussian) -> tuple[PerRound, PerRound]:
        return self.rounds.predict(weights, with_variance=self.variational)


def _posterior(rest: Site, sites: Site, counts: PerRound) -> tuple[PerRound, PerRound]:
    """Mean and variance of predictors, from their own sites and the factor of everything else."""
    variance = 1.0 / (rest.weight + counts * sites.weight)
    return variance * (rest.linear + counts * sites.linear), variance


@dataclass(frozen=True)
class _UpdateSites(StatisticsTask):
    """Compute the sites of all rounds given weights; numbers are Σ E log p, its absolute terms, and the slope.

    For the first sites, `first` says whether the weights are the "prior" or an earlier "posterior".
    """

    likelihood: Likelihood
    weights: HierarchicalGaussian
    first: str | None = None

    def begin(self) -> StatisticsTally:
        return StatisticsTally(self, self.weights.n_actions, self.weights.dim, 3)

    def add(self, rounds: LoggedData, total: StatisticsSum) -> Float[Array, " q"]:
        likelihood, rewards = self.likelihood, rounds.rewards
        counts = np.ones(len(rounds)) if rounds.weights is None else rounds.weights
        by_action = RoundsByAction(rounds.contexts, rounds.actions)
        m, v = by_action.predict(self.weights, with_variance=likelihood.treatment != "laplace")
        if self.first is not None:
            m, v = _first_site_at(likelihood, rewards, m, v, self.first == "prior")
        site, density = likelihood.site_and_density(rewards, m, v)
        total.add_rounds(rounds.contexts, rounds.actions, site.linear / site.weight, site.weight * counts)
        fit = counts * density
        return np.array([fit.sum(), np.abs(fit).sum(), np.sum(counts * likelihood.dispersion_slope(rewards, m, v))])


class StreamSiteSolver:
    """Sites of rounds that are read again for every step."""

    def __init__(self, prior: HierarchicalGaussian, logs: Logs, likelihood: Likelihood, engine: Engine):
        self._prior, self._logs, self._likelihood, self._engine = prior, logs, likelihood, engine
        self._variational = likelihood.treatment != "laplace"

    def sites_from(self, weights: HierarchicalGaussian) -> Statistics:
        """The sums of the first sites, from the predictions of some weights."""
        first = "prior" if weights is self._prior else "posterior"
        return self._engine.total(self._logs, _UpdateSites(self._likelihood, weights, first)).statistics

    def state(self, sites: Statistics) -> SiteState:
        """Solve for given sums of sites; the pass that evaluates the objective finds the next sites too."""
        solved = solve_further(self._prior, observe(sites, 1.0), others=False)
        weights = solved[0]
        updated = self._engine.total(self._logs, _UpdateSites(self._likelihood, weights))
        fit, size, slope = (float(number) for number in updated.numbers)
        moved, moved_size, known = _distance(self._prior, weights, sites, with_variance=self._variational)
        joint = fit - 0.5 * moved
        log_evidence = joint - 0.5 * (weights.log_det - self._prior.log_det - known)
        objective = log_evidence if self._variational else joint
        return SiteState(
            sites, self._prior, solved, lambda: sites, objective, log_evidence, 1e-13 * (size + moved_size),
            target=lambda: updated.statistics, careful=lambda: None, dispersion_slope=lambda: slope,
        )  # fmt: skip


def _distance(
    prior: HierarchicalGaussian, weights: HierarchicalGaussian, sites: Statistics, *, with_variance: bool
) -> tuple[float, float, float]:
    """Σ (l - w m) (m - m₀), the absolute values of its terms, and Σ w v, from the sums of sites alone."""
    rows, sums = sites.rows, sites.sums
    moved = moved_size = known = 0.0
    for part in chunks(len(rows.actions), 1 << 13):
        actions, x, y = rows.actions[part], rows.features[part], rows.rewards[part]
        after, before = (np.einsum("nd,nd->n", x, given.action_mean(actions)) for given in (weights, prior))
        terms = (y - after) * (after - before)
        moved, moved_size = moved + float(terms.sum()), moved_size + float(np.abs(terms).sum())
        if with_variance:
            known += float(np.sum(row_norms(x, actions, weights.action_cov) ** 2))
    for part in chunks(len(sums.actions), 1 << 10):
        actions = sums.actions[part]
        after, before = weights.action_mean(actions), prior.action_mean(actions)
        left = sums.moment[part] - np.einsum("mde,me->md", sums.gram[part], after)
        terms = np.einsum("md,md->m", left, after - before)
        moved, moved_size = moved + float(terms.sum()), moved_size + float(np.abs(terms).sum())
        if with_variance:
            known += float(np.einsum("mde,mde->", sums.gram[part], weights.action_cov(actions)))
    return moved, moved_size, known
