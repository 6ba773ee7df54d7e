"""Sites of clicks on a GPU: the variational loop where rounds, sites and solves stay on the device.

The steps are those of `sites.StreamSiteSolver`. Only numbers of the objective leave the device, and at the end the sums
of the sites, from which `condition` solves once more on the processor: the posterior is of the usual form.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from manyarms._base.checks import Array
from manyarms.core import DenseMixing, HierarchicalGaussian, LoggedData, MixedEffects, Statistics
from manyarms.core.statistics import ActionRows, ActionSums
from manyarms.errors import InputError
from manyarms.gpu.batched_posterior import SharedEffects, absorb_actions, action_means
from manyarms.gpu.click_sums import ClickRounds, SiteSums
from manyarms.gpu.cuda_kernels import KERNEL_SIZES, kernel_size
from manyarms.gpu.device import Tensor, load_torch, require_memory, upload
from manyarms.inference import condition
from manyarms.likelihoods.bernoulli import Bernoulli
from manyarms.likelihoods.likelihood import HERMITE, Likelihood
from manyarms.likelihoods.logistic_expectations import EXPONENTIAL_COEFFICIENTS


class DeviceSiteSolver:
    """Sites of clicks, kept as sums on a GPU; the likelihood has checked the rounds, and none has weight zero.

    Args:
        prior: A prior without data, with at most one effect per action, or with a dense W and few latent dimensions.
        logs: Rounds in memory.
        likelihood: `Bernoulli` with the treatment "variational".
        device: The GPU.
    """

    def __init__(self, prior: HierarchicalGaussian, logs: Any, likelihood: Likelihood, device: str):
        check_loop(prior, logs, likelihood)
        self.prior, self.device, self.likelihood = prior, device, likelihood
        self.size = kernel_size(prior.dim) or prior.dim
        self.seen, per_action = np.unique(logs.actions, return_counts=True)
        need = 8 * (2 * len(logs) * (self.size + 2) + 8 * len(self.seen) * self.size**2)
        fewer = f'Fit at most {max(1, len(logs) // 2):,} rounds at once, or use device="cpu".'
        require_memory(device, need, f"the fit of {len(logs):,} rounds and {len(self.seen):,} actions", fewer)
        self._white = _WhitePrior(prior, self.seen, self.size, device)
        self._numbers = load_torch().from_numpy(self.seen[self._white.order]).to(device)
        """The number of each action, in the order of effects."""
        self._rounds = self._sorted_rounds(logs, per_action)

    def _sorted_rounds(self, logs: LoggedData, per_action: Array) -> ClickRounds:
        torch, order = load_torch(), self._white.order
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        actions = torch.from_numpy(rank[np.searchsorted(self.seen, logs.actions)]).to(self.device)
        by_action = torch.argsort(actions, stable=True)
        contexts = torch.zeros(len(logs), self.size, dtype=torch.float64, device=self.device)
        contexts[:, : self.prior.dim] = upload(logs.contexts, self.device)[by_action]
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

    def sites_from(self, weights: HierarchicalGaussian) -> SiteSums:
        """The sums of the first sites, from the predictions of some weights."""
        if weights is self.prior:
            return self._rounds.sums(*self._white.prior_marginals())[0]
        actions = self.seen[self._white.order]
        mean, cov = weights.action_mean(actions), weights.action_cov(actions)
        return self._rounds.sums(_padded(mean, self.size, self.device), _padded(cov, self.size, self.device))[0]

    def state(self, sites: SiteSums) -> DeviceSiteState:
        """Solve for given sums of sites; the pass that evaluates the objective finds the next sites too."""
        torch = load_torch()
        means, covariances, log_det = self._white.solve(sites.gram, sites.moment)
        target, fit = self._rounds.sums(means, covariances)
        left = sites.moment - torch.einsum("mde,me->md", sites.gram, means)
        terms = left * (means - self._white.centre)
        known = (sites.gram * covariances).sum()
        numbers = torch.stack([fit[0], fit[1], terms.sum(), terms.abs().sum(), log_det, known]).tolist()
        fit_sum, fit_size, moved, moved_size, log_det, known = numbers
        objective = fit_sum - 0.5 * moved - 0.5 * (log_det - known)
        return DeviceSiteState(self, sites, target, objective, 1e-13 * (fit_size + moved_size))

    def statistics(self, sites: SiteSums) -> Statistics:
        """Sites as statistics: those of rarely seen actions as rows, as `Statistics` keeps them, the others as sums."""
        torch, d, rounds = load_torch(), self.prior.dim, self._rounds
        many = rounds.per_action >= d
        place = torch.nonzero(many)[:, 0]
        place = place[torch.argsort(self._numbers[place])]
        squares = torch.empty(len(place), d + 1, d + 1, dtype=torch.float64, device=self.device)
        squares[:, :d, :d] = sites.gram[place][:, :d, :d]
        squares[:, :d, d] = squares[:, d, :d] = sites.moment[place][:, :d]
        squares[:, d, d] = sites.square[place]
        sums = ActionSums(self._numbers[place].cpu().numpy(), squares.cpu().numpy())
        owner = torch.repeat_interleave(torch.arange(len(many), device=self.device), rounds.per_action)
        few = torch.nonzero(~many[owner])[:, 0]
        weight, pseudo = sites.weights[few], sites.linears[few] / sites.weights[few]
        share = weight if rounds.counts is None else weight * rounds.counts[few]
        rows = torch.cat([rounds.contexts[few, :d], pseudo[:, None]], dim=1) * share.sqrt()[:, None]
        own = ActionRows(self._numbers[owner[few]].cpu().numpy(), rows.cpu().numpy())
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

    @cached_property
    def statistics(self) -> Statistics:
        """The sites as sums, in units of a noise of one."""
        return self.solver.statistics(self.sites)

    @cached_property
    def weights(self) -> HierarchicalGaussian:
        """The posterior, solved for on the processor."""
        return condition(self.solver.prior, self.statistics, 1.0)


class _WhitePrior:
    """A prior on a device, in units in which z ~ N(0, I) and θ_a - c_a = L_a (W_a z + ε), ε ~ N(0, I).

    Actions are ordered by the effect that they share.
    """

    def __init__(self, prior: HierarchicalGaussian, seen: Array, size: int, device: str):
        torch = load_torch()
        effect, factors = _effects_of(prior, seen)
        self.order = np.argsort(effect, kind="stable")
        actions, effect = seen[self.order], effect[self.order]
        eye = np.broadcast_to(np.eye(prior.dim), (len(actions), prior.dim, prior.dim))
        shared = prior.action_covariance.each is None
        root = prior.action_covariance.times_root(eye[:1] if shared else eye, actions[:1] if shared else actions)
        self.root = _padded(root, size, device)
        # The padding has no prior variance, and no data either; a one keeps its factor invertible.
        self.root[:, range(prior.dim, size), range(prior.dim, size)] = 1.0
        self.centre = _padded(prior.action_mean(actions), size, device)
        distinct, index = _mixing_of(prior, actions, factors)
        mixing = _padded(distinct, size, device)
        if not shared:
            mixing, index = mixing[index], np.arange(len(actions))
        white = torch.linalg.solve(self.root, mixing)
        columns = [torch.from_numpy(column.astype(np.int32)).to(device) for column in (index, effect)]
        self.effects = SharedEffects(white.contiguous(), columns[0], columns[1], len(factors))
        self._eye = torch.eye(size, dtype=torch.float64, device=device)

    def prior_marginals(self) -> tuple[Tensor, Tensor]:
        """Mean and covariance of every action before any rounds."""
        torch = load_torch()
        latent = self.root @ self.effects.mixing[self.effects.mixing_of.to(torch.int64)]
        return self.centre, self.root @ self.root.mT + latent @ latent.mT

    def solve(self, gram: Tensor, moment: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Means, covariances, and log |prior covariance| - log |posterior covariance|, given sums of sites."""
        torch, effects = load_torch(), self.effects
        white = self.root.mT @ gram @ self.root
        left = moment - torch.einsum("mde,me->md", gram, self.centre)
        right = torch.einsum("mde,md->me", self.root.expand_as(gram), left).contiguous()
        absorbed = absorb_actions(white, right, effects)
        lower = torch.linalg.cholesky(absorbed.precision + self._eye)
        latent = torch.cholesky_solve(absorbed.score[:, :, None], lower)[:, :, 0].contiguous()
        mean = action_means(absorbed.factor, right, effects, latent)
        log_det = absorbed.log_det + 2 * torch.log(torch.einsum("jdd->jd", lower)).sum()
        spread = torch.linalg.solve_triangular(lower, self._eye.expand_as(lower), upper=False).mT
        own = self.root @ absorbed.factor
        mixing = effects.mixing[effects.mixing_of.to(torch.int64)]
        shared = own @ (absorbed.factor.mT @ mixing @ spread[effects.effect_of.to(torch.int64)])
        covariance = own @ own.mT + shared @ shared.mT
        return self.centre + torch.einsum("mde,me->md", self.root.expand_as(gram), mean), covariance, log_det


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
    elif not _is_simple(prior):
        problem = "needs a prior with at most one effect per action and a positive definite action_cov"
    if problem:
        raise InputError(f"a GPU {problem}.", 'Use device="cpu".', argument="device")


def _is_simple(prior: HierarchicalGaussian) -> bool:
    covariance = prior.action_covariance
    matrix = covariance.blocks(np.arange(1)) if covariance.each is None else covariance.each
    smallest = np.linalg.eigvalsh(matrix)
    if not (smallest[:, 0] > 1e-12 * smallest[:, -1]).all():
        return False
    if isinstance(prior.mixing, MixedEffects):
        return prior.mixing.gram_blocks(prior.prior_factor) == prior.dim
    return prior.latent_dim <= (kernel_size(prior.dim) or 0)


def _effects_of(prior: HierarchicalGaussian, seen: Array) -> tuple[Array, Array]:
    """The effect of each seen action, and the factor F of every effect."""
    mixing = prior.mixing
    if isinstance(mixing, MixedEffects):
        blocks = prior.prior_factor.with_block_size(prior.dim)
        assert blocks is not None
        weights = mixing.weights[seen]
        effect = np.zeros(len(seen), dtype=np.int64)
        effect[np.flatnonzero(np.diff(weights.indptr))] = weights.indices
        return effect, blocks.blocks
    return np.zeros(len(seen), dtype=np.int64), prior.prior_factor.dense()[None]


def _mixing_of(prior: HierarchicalGaussian, actions: Array, factors: Array) -> tuple[Array, Array]:
    """The distinct W_a F, and which of them each action has."""
    mixing = prior.mixing
    if isinstance(mixing, DenseMixing):
        return mixing.matrices[actions] @ factors[0], np.arange(len(actions))
    assert isinstance(mixing, MixedEffects)
    weights = mixing.weights[actions]
    pairs = np.zeros((len(actions), 2))
    pairs[np.flatnonzero(np.diff(weights.indptr))] = np.column_stack([weights.indices, weights.data])
    distinct, index = np.unique(pairs, axis=0, return_inverse=True)
    return factors[distinct[:, 0].astype(np.int64)] * distinct[:, 1, None, None], index.reshape(-1)


def _padded(array: Array, size: int, device: str) -> Tensor:
    """Copy of matrices or vectors on the device, with zeros up to the size of a kernel."""
    shape = (len(array), *(size for _ in array.shape[1:]))
    out = np.zeros(shape)
    out[(slice(None), *(slice(0, length) for length in array.shape[1:]))] = array
    return upload(out, device)
