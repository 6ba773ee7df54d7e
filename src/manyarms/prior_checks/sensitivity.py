"""How far the value of a policy hangs on the prior: power-scaling, exact in this family for Gaussian rewards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr

from manyarms._base.checks import Array, as_instance
from manyarms.core.hierarchical_gaussian import HierarchicalGaussian
from manyarms.core.latent_covariance import BlockFactor
from manyarms.core.logged_data import LoggedData
from manyarms.core.policy import FeatureMass, Policy
from manyarms.core.result_tables import Tabular
from manyarms.errors import InputError
from manyarms.inference.condition import condition_on
from manyarms.posterior import RewardPosterior, fit
from manyarms.posterior.prior_check import MeanShift, Misfit
from manyarms.posterior.reward_posterior import check_logs

_Normal: TypeAlias = tuple[float, float]
"""Mean and standard deviation."""

THRESHOLD = 0.05
"""From here on a value counts as sensitive (Kallioinen et al.): a doubling moves it by about 1/4 of its std."""
STEP = 1.01
"""The power at which slopes are taken, and one over it."""
REACH = 3.6
"""How far from the mean, in standard deviations, the distance looks: where 4,000 draws reach on average.

The paper normalises by an area that grows with the range of the draws, so a distance needs a range.
"""


@dataclass(frozen=True)
class Scaled:
    """What happens to the value when one component, the prior or the likelihood, is raised to a power.

    Attributes:
        sensitivity: The slope of the cumulative Jensen-Shannon distance by log2 of the power, at power one.
        move: By how many posterior standard deviations the value moves when the component counts double.
        std_ratio: What that multiplies its standard deviation by.
    """

    sensitivity: float
    move: float
    std_ratio: float


@dataclass(frozen=True, repr=False)
class Sensitivity(Tabular):
    """What `prior_sensitivity` returns.

    Attributes:
        value: The posterior mean of the value, or of the difference to the baseline.
        std: Its posterior standard deviation, on the contexts given.
        prior: What raising the prior to a power does.
        likelihood: What raising the likelihood to a power does.
        misfit: What `check_prior` says of the logs as a whole under the prior; None when nothing was checked.
        decided: The prior leaves no doubt about it: no data can move it, and no power of the prior either.
    """

    value: float
    std: float
    prior: Scaled
    likelihood: Scaled
    misfit: Misfit | MeanShift | None
    decided: bool = False

    @property
    def diagnosis(self) -> str:
        """In plain words, one of four.

        "-": the prior hardly matters. "the prior decides (weak likelihood)": the data are too weak to have a say.
        "prior-data conflict": sensitive to both, and the logs contradict the prior. "the scale of the prior matters":
        sensitive to both, and as a whole they do not.
        """
        if self.decided:
            return _DECIDES
        if self.prior.sensitivity < THRESHOLD:
            return "-"
        if self.likelihood.sensitivity < THRESHOLD:
            return _DECIDES
        return _CONFLICT if self.misfit is not None and self.misfit.contradicts else _SCALE

    def records(self) -> list[dict[str, Any]]:
        """A plain record for each component."""
        return [
            {"component": name, "sensitivity": c.sensitivity, "move": c.move, "std_ratio": c.std_ratio}
            for name, c in (("prior", self.prior), ("likelihood", self.likelihood))
        ]

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines = [
            f"value (or difference) {self.value:.4g} ± {self.std:.2g}, one posterior standard deviation",
            f"{'':<10}  {'sensitivity':>11}  if it counted double",
        ]
        for name, c in (("prior", self.prior), ("likelihood", self.likelihood)):
            change = f"moves {c.move:+.2f} std, std x {c.std_ratio:.2f}"
            lines.append(f"{name:<10}  {c.sensitivity:>11.3f}  {change}")
        lines.append(f"diagnosis: {self.diagnosis} (sensitive from {THRESHOLD} on)")
        return "\n".join([*lines, *([_ADVICE[self.diagnosis]] if self.diagnosis in _ADVICE else [])])


def prior_sensitivity(
    posterior: RewardPosterior,
    policy: Policy,
    contexts: Any,
    *,
    baseline: Policy | None = None,
    eligible: Any = None,
    weights: Any = None,
    logs: LoggedData | None = None,
) -> Sensitivity:
    """How the posterior of V(π) moves when the prior, or the likelihood, counts a little more or less.

    Raising the prior to the power α divides Σ and every Σ_a by α; raising the likelihood to α divides σ² by α. Both
    give a posterior of the same family, so nothing is approximated (Kallioinen, Paananen, Bürkner and Vehtari, 2023,
    "Detecting and diagnosing prior and likelihood sensitivity with power-scaling", Statistics and Computing 34:57,
    who reweight draws; R package priorsense). The sensitivity is theirs: with D(α) the cumulative Jensen-Shannon
    distance of the value's posterior to the one at power α,

        D(α)² = ∫ P log2 (2 P / (P + Q)) + Q log2 (2 Q / (P + Q)) / ∫ P + Q,   P and Q their distribution functions,

    the larger of it and its mirror image, and the sensitivity (D(1.01) + D(1 / 1.01)) / (2 log2 1.01).

    Sensitive to the prior alone: the data are too weak to have a say. Sensitive to both is a conflict in the paper's
    diagnosis. Not so here: a value adds up many actions, each of which the prior pulls a little towards the others, so
    that of a greedy policy can be sensitive under the very prior that its rewards were drawn from. It is called a
    conflict only when the logs contradict the prior (`check_prior`).

    The policy is held as it is. Costs four solves over seen actions, whatever the number of rounds.

    Where rewards are not Gaussian the likelihood to the power α is every round with α times its weight, and the
    posterior is found anew: seven fits, which need the logs. The distance is then that of the normal distributions of
    the delta method. For log-normal rewards the posteriors are exact, and g stays as it is: only weights are judged.

    Args:
        posterior: A fitted posterior. One fitted in steps is judged against its first prior, with all rounds since.
        policy: Any policy on the same actions.
        contexts: (n, d), a sample of those the policy will meet.
        baseline: The policy to compare with; then it is about V(policy) - V(baseline).
        eligible: Which actions may be chosen where; None for all.
        weights: (n,) how often each context counts; None for once.
        logs: All rounds of the fit, where rewards are not Gaussian; their logarithms are under `LogNormal`.

    Raises:
        InputError: When rewards are not Gaussian and there are no logs, or other logs than those of the fit.
    """
    posterior = as_instance("posterior", posterior, RewardPosterior, "what fit() returned")
    if not (posterior.is_linear and posterior.likelihood.treatment == "exact"):
        return _by_refits(posterior, _refit(posterior, logs), policy, baseline, (contexts, eligible, weights))
    mass = posterior.profile(policy, contexts, eligible, weights).masses[0]
    if baseline is not None:
        other = posterior.profile(baseline, contexts, eligible, weights, "baseline").masses[0]
        mass = mass.plus(other, -1.0)
    value, std = _moments(posterior.weights, mass)
    if not std > 0:
        still = Scaled(0.0, 0.0, 1.0)
        return Sensitivity(value, 0.0, still, still, posterior.check.against_prior, decided=bool(mass.vectors.any()))
    less, more, half, double = (_moments(_powered(posterior, a), mass) for a in (1 / STEP, STEP, 0.5, 2.0))
    # Prior to the power α is likelihood to the power 1 / α and then everything to the power α, which leaves the mean
    # where it is and divides the variance by α: the same four solves serve both.
    prior = [(mean, spread / a**0.5) for a, (mean, spread) in ((1 / STEP, more), (STEP, less), (2.0, half))]
    likelihood = _scaled(value, std, less, more, double)
    return Sensitivity(value, std, _scaled(value, std, *prior), likelihood, posterior.check.against_prior)


def _by_refits(
    posterior: RewardPosterior,
    refit: Callable[[float, float], RewardPosterior],
    policy: Policy,
    baseline: Policy | None,
    where: tuple[Any, Any, Any],
) -> Sensitivity:
    """From the values of posteriors under powers of prior and likelihood, whatever the likelihood."""
    contexts, eligible, weights = where

    def moments(prior_power: float, likelihood_power: float) -> _Normal:
        found = refit(prior_power, likelihood_power)
        if baseline is None:
            estimate = found.value(policy, contexts, eligible=eligible, weights=weights)
        else:
            estimate = found.difference(policy, baseline, contexts, eligible=eligible, weights=weights)
        assert estimate.posterior_std is not None
        return estimate.value, estimate.posterior_std

    value, std = moments(1.0, 1.0)
    against = posterior.check.against_prior
    if not std > 0:
        still = Scaled(0.0, 0.0, 1.0)
        return Sensitivity(value, 0.0, still, still, against, decided=baseline is None or value != 0.0)
    powers = (1 / STEP, STEP, 2.0)
    prior = _scaled(value, std, *(moments(a, 1.0) for a in powers))
    return Sensitivity(value, std, prior, _scaled(value, std, *(moments(1.0, a) for a in powers)), against)


def _refit(posterior: RewardPosterior, logs: LoggedData | None) -> Callable[[float, float], RewardPosterior]:
    """The posterior under a power of the prior and one of the likelihood."""
    if posterior.likelihood.treatment == "exact":

        def solve(prior_power: float, likelihood_power: float) -> RewardPosterior:
            observed = posterior.weights.observed.rescaled(likelihood_power**-0.5, 0.0)
            return replace(posterior, weights=condition_on(_narrowed(posterior.weights.base, prior_power), observed))

        return solve
    kind, rounds = type(posterior.likelihood).__name__, _same_rounds(posterior, logs)
    counts = np.ones(len(rounds)) if rounds.weights is None else rounds.weights
    start = posterior

    def again(prior_power: float, likelihood_power: float) -> RewardPosterior:
        powered = LoggedData(
            rounds.contexts, rounds.actions, rounds.rewards, n_actions=rounds.n_actions,
            weights=counts * likelihood_power,
        )  # fmt: skip
        # Slopes are differences over a step of one per cent: a fit must be closer than the usual tolerance.
        found = fit(
            powered, _narrowed(posterior.prior, prior_power), posterior.likelihood, start=start,
            max_iterations=1000, tolerance=1e-11,
        )  # fmt: skip
        if not found.converged:
            raise InputError(f"the {kind} posterior under another power of prior or likelihood did not converge.")
        return found

    start = again(1.0, 1.0)
    return again


def _same_rounds(posterior: RewardPosterior, logs: LoggedData | None) -> LoggedData:
    """The rounds of the fit, or an error that says what is missing."""
    if logs is None:
        raise InputError(
            f"under {type(posterior.likelihood).__name__} the posterior must be fitted anew for every power of the "
            "likelihood, and it keeps no rounds: pass all rounds of the fit as logs=."
        )
    if posterior.prior.observed.groups:
        raise InputError("the prior of this posterior is a posterior itself. Fit all rounds on the first prior.")
    logs = check_logs(logs, posterior.prior)
    n_rounds = len(logs) if logs.weights is None else int(np.count_nonzero(logs.weights))
    if n_rounds != posterior.statistics.n_rounds:
        raise InputError(
            f"the posterior was fitted to {posterior.statistics.n_rounds:,} rounds; logs has {n_rounds:,}. "
            "Pass all rounds of the fit, and no others."
        )
    return logs


def _narrowed(prior: HierarchicalGaussian, alpha: float) -> HierarchicalGaussian:
    """The prior to the power α: every covariance divided by α."""
    factor, cov = BlockFactor(prior.prior_factor.blocks / alpha**0.5), prior.action_covariance.scaled(1.0 / alpha)
    return prior.with_parts(prior.latent_mean, factor, cov, prior.offset)


def _powered(posterior: RewardPosterior, alpha: float) -> HierarchicalGaussian:
    """The posterior with its likelihood to the power α: the noise divided by √α."""
    observed = posterior.weights.observed.rescaled(alpha**-0.5, 0.0)
    return condition_on(posterior.weights.base, observed)


def _moments(weights: HierarchicalGaussian, mass: FeatureMass) -> _Normal:
    mean = float(np.sum(mass.vectors * weights.action_mean(mass.actions)))
    return mean, float(np.sqrt(weights.variance_of(mass.vectors, mass.actions)))


def _scaled(value: float, std: float, less: _Normal, more: _Normal, double: _Normal) -> Scaled:
    """What moves, from mean and standard deviation at the powers 1 / STEP, STEP and 2."""
    near = [_distance((mean - value) / std, spread / std) for mean, spread in (less, more)]
    return Scaled(float(sum(near) / (2 * np.log2(STEP))), (double[0] - value) / std, double[1] / std)


def _distance(shift: float, ratio: float) -> float:
    """The cumulative Jensen-Shannon distance of N(shift, ratio²) to N(0, 1), the larger of it and its mirror image."""
    return max(_one_sided(shift, ratio), _one_sided(-shift, ratio))


def _one_sided(shift: float, ratio: float) -> float:
    x, weights = _nodes()
    p, q = ndtr(x), ndtr((x - shift) / ratio)
    # With u = (q - p) / (q + p) the integrand is (p + q) / 2 [(1 + u) log2 (1 + u) + (1 - u) log2 (1 - u)], written
    # such that no two terms cancel when u is small. At |u| = 1 its limit is finite, its terms are not.
    u = np.clip((q - p) / (q + p), -_BELOW_ONE, _BELOW_ONE)
    both = (p + q) * (np.log1p(-u * u) + 2 * u * np.arctanh(u)) / (2 * np.log(2.0))
    return float(np.sqrt(max(weights @ both, 0.0) / (weights @ (p + q))))


@cache
def _nodes() -> tuple[Float[Array, " q"], Float[Array, " q"]]:
    """Gauss-Legendre nodes and weights on ±REACH."""
    x, weights = np.polynomial.legendre.leggauss(256)
    return REACH * x, REACH * weights


_BELOW_ONE = 1.0 - 2.0**-53
_DECIDES = "the prior decides (weak likelihood)"
_CONFLICT = "prior-data conflict"
_SCALE = "the scale of the prior matters"
_ADVICE = {
    _DECIDES: "the logs say little of this value: log more, or be sure of the prior",
    _CONFLICT: "see check_prior; learn the prior from the logs with learn_prior",
    _SCALE: "they do not contradict it: one learned from the logs may stay; see averaged() too",
}
