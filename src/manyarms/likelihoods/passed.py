"""Rounds that are not in memory: every look at them is a pass, and their sites are kept as sums.

Sites are needed only in Σ_i w_i φ φᵀ and Σ_i l_i φ, and on the way from one set of sites to another these sums move
along a straight line. So a pass under given weights, which looks at every round once, says what the objective is there
and where to go next; nothing that grows with the number of rounds is kept. The same steps as for rounds in memory, but
for one: where all sites at once overshoot, rounds in memory are settled one by one first, and these are not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from manyarms.core.data import LoggedData, Logs
from manyarms.core.hierarchy import HierarchicalGaussian
from manyarms.core.statistics import Statistics
from manyarms.engines import Engine
from manyarms.inference import condition
from manyarms.likelihoods.base import Likelihood
from manyarms.likelihoods.counting import Counted, CountingTally, CountingTask
from manyarms.likelihoods.sited import WIDE, Sited, SitedRounds, predictions
from manyarms.linalg.groups import chunks
from manyarms.linalg.quadratic import row_norms


@dataclass(frozen=True)
class Look(CountingTask):
    """Where the sites of all rounds should be, given weights; numbers: Σ E log p, its absolute terms, and the slope.

    Attributes:
        likelihood: Of the rewards.
        weights: Whose predictions are looked at.
        first: Whether these are what to start from: "prior", "posterior", or None when on the way.
    """

    likelihood: Likelihood
    weights: HierarchicalGaussian
    first: str | None = None

    def begin(self) -> _Look:
        return _Look(self)


class _Look(CountingTally):
    def __init__(self, task: Look):
        super().__init__(task.weights.n_actions, task.weights.dim, 3)
        self._task = task

    def take(self, rounds: LoggedData) -> None:
        likelihood, weights = self._task.likelihood, self._task.weights
        likelihood.check(rounds.rewards, rounds.weights)
        rounds = rounds.counted()
        counts = np.ones(len(rounds)) if rounds.weights is None else rounds.weights
        m, v = predictions(weights, rounds, with_variance=likelihood.treatment != "laplace")
        if self._task.first is not None:
            start = likelihood.start(rounds.rewards, m, v)
            fresh = (v > WIDE) | (self._task.first == "prior")
            m, v = np.where(fresh, start[0], m), np.where(fresh, start[1], v)
        site = likelihood.site(rounds.rewards, m, v)
        self.statistics.add_rounds(rounds.contexts, rounds.actions, site.linear / site.weight, site.weight * counts)
        fit = counts * likelihood.expected_log_density(rounds.rewards, m, v)
        slope = counts @ likelihood.dispersion_slope(rounds.rewards, m, v)
        self.numbers += np.array([fit.sum(), np.abs(fit).sum(), slope])


@dataclass(frozen=True)
class _Passed(Sited[Statistics]):
    """With where the sites should be next, and the slope by the dispersion."""

    next_sites: Statistics
    slope: float


class PassedRounds(SitedRounds[Statistics]):
    """Rounds that are gone through again for every step.

    Args:
        prior: Of the weights.
        logs: Gone through by the engine.
        likelihood: Of the rewards.
        engine: Where.
    """

    def __init__(self, prior: HierarchicalGaussian, logs: Logs, likelihood: Likelihood, engine: Engine):
        self._prior, self._logs, self._likelihood, self._engine = prior, logs, likelihood, engine
        self._variational = likelihood.treatment != "laplace"

    def sites_from(self, weights: HierarchicalGaussian) -> Statistics:
        first = "prior" if weights is self._prior else "posterior"
        return self._look(weights, first).statistics

    def state(self, sites: Statistics) -> Sited[Statistics]:
        weights = condition(self._prior, sites, 1.0)
        seen = self._look(weights, None)
        fit, size, slope = (float(number) for number in seen.numbers)
        moved, moved_size, known = _distance(self._prior, weights, sites, with_variance=self._variational)
        joint = fit - 0.5 * moved
        log_evidence = joint - 0.5 * (weights.log_det - self._prior.log_det - known)
        objective = log_evidence if self._variational else joint
        rounding = 1e-13 * (size + moved_size)
        return _Passed(sites, sites, weights, objective, log_evidence, rounding, seen.statistics, slope)

    def target(self, state: Sited[Statistics]) -> Statistics:
        assert isinstance(state, _Passed)
        return state.next_sites

    def settled(self, state: Sited[Statistics]) -> Statistics | None:
        return None

    def between(self, state: Sited[Statistics], target: Statistics, share: float) -> Statistics:
        return state.sites.scaled(1 - share) + target.scaled(share)

    def dispersion_slope(self, state: Sited[Statistics]) -> float:
        assert isinstance(state, _Passed)
        return state.slope

    def _look(self, weights: HierarchicalGaussian, first: str | None) -> Counted:
        return self._engine.total(self._logs, Look(self._likelihood, weights, first))


def _distance(
    prior: HierarchicalGaussian, weights: HierarchicalGaussian, sites: Statistics, *, with_variance: bool
) -> tuple[float, float, float]:
    """Σ (l - w m) (m - m₀), the absolute values of its terms, and Σ w v, from the sums of sites alone."""
    rows, sums = sites.rows, sites.sums
    moved = moved_size = known = 0.0
    for part in chunks(len(rows.actions), 1 << 13):
        actions, x, y = rows.actions[part], rows.features[part], rows.rewards[part]
        after, before = (np.einsum("nd,nd->n", x, of.action_mean(actions)) for of in (weights, prior))
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
