"""Sites of clicks on a GPU: the variational loop where rounds, sites and solves stay on the device.

The steps are those of `sites.StreamSiteSolver`. Only numbers of the objective leave the device, and at the end the sums
of the sites, from which `condition_on_device` solves once more for a posterior of the usual form.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from manyarms._base.checks import Array
from manyarms.core import EffectGroup, HierarchicalGaussian, LoggedData, Statistics
from manyarms.core.observed_rows import observe
from manyarms.core.statistics import ActionRows, ActionSums
from manyarms.errors import InputError
from manyarms.gpu.click_sums import ClickRounds, SiteSums
from manyarms.gpu.cuda_kernels import KERNEL_SIZES, kernel_size
from manyarms.gpu.device import Tensor, load_torch, require_memory, upload
from manyarms.inference.device_condition import condition_on_device
from manyarms.inference.evidence_gradient import EvidenceGradient
from manyarms.likelihoods.bernoulli import Bernoulli
from manyarms.likelihoods.device_prior import (
    MOST_TOGETHER,
    DevicePrior,
    EffectLayout,
    is_solvable,
    neighbours_first,
    padded,
)
from manyarms.likelihoods.likelihood import HERMITE, Likelihood
from manyarms.likelihoods.logistic_expectations import EXPONENTIAL_COEFFICIENTS


class DeviceRounds:
    """Clicks on a GPU, sorted by action, for fits under several priors; none has weight zero.

    Args:
        prior: The prior of the first fit. Actions are sorted by the effects that they share in it.
        logs: Rounds in memory, which the likelihood has checked.
        likelihood: `Bernoulli` with the treatment "variational".
        device: The GPU.
    """

    def __init__(self, prior: HierarchicalGaussian, logs: Any, likelihood: Likelihood, device: str):
        check_loop(prior, logs, likelihood)
        torch = load_torch()
        self.device, self.likelihood = device, likelihood
        self.dim, self.size = prior.dim, kernel_size(prior.dim) or prior.dim
        seen, per_action = np.unique(logs.actions, return_counts=True)
        need = 8 * (2 * len(logs) * (self.size + 2) + 12 * len(seen) * self.size**2)
        fewer = f'Fit at most {max(1, len(logs) // 2):,} rounds at once, or use device="cpu".'
        require_memory(device, need, f"the fit of {len(logs):,} rounds and {len(seen):,} actions", fewer)
        order = neighbours_first(prior, seen)
        self.actions = seen[order]
        """Every seen action, neighbours sharing effects."""
        self.numbers = torch.from_numpy(self.actions).to(device)
        self._layout: EffectLayout | None = None
        self.clicks = self._sorted(logs, seen, per_action, order)

    def _sorted(self, logs: LoggedData, seen: Array, per_action: Array, order: Array) -> ClickRounds:
        torch = load_torch()
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        place = torch.from_numpy(rank).to(self.device)
        logged = torch.from_numpy(np.array(logs.actions)).to(self.device)
        actions = place[torch.searchsorted(torch.from_numpy(seen).to(self.device), logged)]
        by_action = torch.argsort(actions, stable=True)
        contexts = torch.zeros(len(logs), self.size, dtype=torch.float64, device=self.device)
        contexts[:, : self.dim] = upload(logs.contexts, self.device)[by_action]
        clicks = torch.from_numpy((logs.rewards > 0.5).astype(np.uint8)).to(self.device)[by_action]
        counts = None if logs.weights is None else upload(logs.weights, self.device)[by_action]
        nodes, shares = np.array(HERMITE).T
        rules = np.concatenate([nodes[nodes > 0], shares[nodes > 0], EXPONENTIAL_COEFFICIENTS])
        per_action = torch.from_numpy(per_action[order]).to(self.device)
        return ClickRounds(contexts, clicks, counts, per_action, rules, self._expectations)

    def _expectations(self, clicks: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, ...]:
        """Weight, linear term and expected log likelihood, for devices that have no kernel for them."""
        rewards, m, v = (part.cpu().numpy().astype(np.float64) for part in (clicks, mean, variance))
        site, density = self.likelihood.site_and_density(rewards, m, v)
        return tuple(upload(part, self.device) for part in (site.weight, site.linear, density))

    def under(self, prior: HierarchicalGaussian) -> DevicePrior:
        """A prior on the device, for the actions of these rounds."""
        if self._layout is None or not self._layout.fits(prior):
            self._layout = EffectLayout(prior, self.actions, self.size, self.device)
        return DevicePrior(prior, self._layout, self.actions, self.size, self.device)


class DeviceSiteSolver:
    """Sites of clicks, kept as sums on a GPU.

    Args:
        prior: A prior without data that `device_prior.is_solvable`.
        rounds: The rounds.
    """

    def __init__(self, prior: HierarchicalGaussian, rounds: DeviceRounds):
        self.prior, self.rounds = prior, rounds
        self._white = rounds.under(prior)

    def sites_from(self, weights: HierarchicalGaussian) -> SiteSums:
        """The sums of the first sites, from the predictions of some weights."""
        rounds = self.rounds
        if weights is self.prior:
            return rounds.clicks.sums(*self._white.marginals())[0]
        marginals = weights.action_mean(rounds.actions), weights.action_cov(rounds.actions)
        return rounds.clicks.sums(*(padded(part, rounds.size, rounds.device) for part in marginals))[0]

    def state(self, sites: SiteSums) -> DeviceSiteState:
        """Solve for given sums of sites; the pass that evaluates the objective finds the next sites too."""
        torch = load_torch()
        solved = self._white.solve(sites.gram, sites.moment)
        covariances = self._white.covariances(solved)
        target, fit = self.rounds.clicks.sums(solved.mean, covariances)
        left = sites.moment - torch.einsum("mde,me->md", sites.gram, solved.mean)
        terms = left * (solved.mean - self._white.centre)
        known = (sites.gram * covariances).sum()
        numbers = torch.stack([fit[0], fit[1], terms.sum(), terms.abs().sum(), solved.log_det, known]).tolist()
        fit_sum, fit_size, moved, moved_size, log_det, known = numbers
        objective = fit_sum - 0.5 * moved - 0.5 * (log_det - known)
        return DeviceSiteState(self, sites, target, objective, 1e-13 * (fit_size + moved_size))

    def statistics(self, sites: SiteSums) -> Statistics:
        """Sites as statistics: those of rarely seen actions as rows, as `Statistics` keeps them, the others as sums."""
        torch, d, rounds = load_torch(), self.prior.dim, self.rounds.clicks
        many = rounds.per_action >= d
        place = torch.nonzero(many)[:, 0]
        place = place[torch.argsort(self.rounds.numbers[place])]
        squares = torch.empty(len(place), d + 1, d + 1, dtype=torch.float64, device=self.rounds.device)
        squares[:, :d, :d] = sites.gram[place][:, :d, :d]
        squares[:, :d, d] = squares[:, d, :d] = sites.moment[place][:, :d]
        squares[:, d, d] = sites.square[place]
        sums = ActionSums(self.rounds.numbers[place].cpu().numpy(), squares.cpu().numpy())
        owner = torch.repeat_interleave(torch.arange(len(many), device=self.rounds.device), rounds.per_action)
        few = torch.nonzero(~many[owner])[:, 0]
        weight, pseudo = sites.weights[few], sites.linears[few] / sites.weights[few]
        share = weight if rounds.counts is None else weight * rounds.counts[few]
        rows = torch.cat([rounds.contexts[few, :d], pseudo[:, None]], dim=1) * share.sqrt()[:, None]
        own = ActionRows(self.rounds.numbers[owner[few]].cpu().numpy(), rows.cpu().numpy())
        total = float(sites.weight)
        return Statistics(self.prior.n_actions, d, len(rounds.contexts), total, own, sums, counted=False)


@dataclass(frozen=True, eq=False)
class DeviceSiteState:
    """A set of sites on a GPU with the objective of the posterior that it gives; the same names as in `SiteState`."""

    solver: DeviceSiteSolver
    sites: SiteSums
    next_sites: SiteSums
    objective: float
    rounding: float

    @property
    def log_evidence(self) -> float:
        """The evidence lower bound."""
        return self.objective

    def target(self) -> SiteSums:
        """The sites that match this posterior."""
        return self.next_sites

    def careful(self) -> None:
        """Sites that are summed cannot be moved one by one."""

    def dispersion_slope(self) -> float:
        """Clicks have no dispersion."""
        return 0.0

    def evidence(self, groups: tuple[EffectGroup, ...], prior: HierarchicalGaussian | None = None) -> EvidenceGradient:
        """As in `SiteState`, without a constant in the log evidence."""
        white = self.solver.rounds.under(self.solver.prior if prior is None else prior)
        return white.evidence(self.sites.gram, self.sites.moment, groups)

    @cached_property
    def statistics(self) -> Statistics:
        """The sites as sums, in units of a noise of one."""
        return self.solver.statistics(self.sites)

    @cached_property
    def weights(self) -> HierarchicalGaussian:
        """The posterior, of the usual form."""
        solver = self.solver
        return condition_on_device(solver.prior, observe(self.statistics, 1.0), solver.rounds.device)


def check_loop(prior: HierarchicalGaussian, logs: Any, likelihood: Likelihood) -> None:
    """Refuse a fit that the loop on a GPU cannot do."""
    problem = ""
    if not isinstance(likelihood, Bernoulli) or likelihood.treatment != "variational":
        problem = 'can only fit clicks, Bernoulli("variational")'
    elif not isinstance(logs, LoggedData):
        problem = "needs the rounds in memory"
    elif prior.observed.groups:
        problem = "starts from a prior without data"
    elif kernel_size(prior.dim) is None:
        problem = f"fits at most {KERNEL_SIZES[-1]} features; here there are {prior.dim}"
    elif not is_solvable(prior):
        problem = (
            "needs a prior with a positive definite action_cov, at most one effect per action of its largest group of "
            f"effects and at most {MOST_TOGETHER} other effects, or a small dense mixing"
        )
    if problem:
        raise InputError(f"a GPU {problem}.", 'Use device="cpu".', argument="device")
