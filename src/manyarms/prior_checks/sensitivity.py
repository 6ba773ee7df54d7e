"""Sensitivity of a policy's value to the prior by power-scaling, exact in this family for Gaussian rewards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from scipy.special import ndtr

from manyarms._base.checks import as_instance
from manyarms.core import BlockFactor, FeatureMass, HierarchicalGaussian, LoggedData, Policy, Tabular
from manyarms.core.logged_data import check_logs
from manyarms.errors import InputError
from manyarms.inference.condition import condition_on
from manyarms.posterior import RewardPosterior, fit
from manyarms.posterior.misfit import MeanShift, Misfit
from manyarms.prior_checks.check_prior import PRIOR_IS_POSTERIOR

_Normal: TypeAlias = tuple[float, float]
"""Mean and standard deviation."""

THRESHOLD = 0.05
"""A value counts as sensitive from here on (Kallioinen et al.): doubling moves it by about 1/4 of its std."""
STEP = 1.01
"""Slopes are taken between this power and its inverse."""
REACH = 3.6
"""The range of the distance around the mean, in standard deviations: as far as 4,000 draws reach on average.

The paper normalises by an area that grows with the range of the draws, so a distance needs a range.
"""


@dataclass(frozen=True)
class Scaled:
    """The sensitivity to one component: the effect on the value of raising the prior or the likelihood to a power.

    Attributes:
        sensitivity: The slope of the cumulative Jensen-Shannon distance by log2 of the power, at power one.
        move: The move of the value when the component counts double, in posterior standard deviations.
        std_ratio: The factor by which that changes the standard deviation of the value.
    """

    sensitivity: float
    move: float
    std_ratio: float


@dataclass(frozen=True, repr=False)
class Sensitivity(Tabular):
    """The result of `prior_sensitivity`.

    Attributes:
        value: The posterior mean of the value, or of the difference to the baseline.
        std: Its posterior standard deviation, on the given contexts.
        prior: The effect of raising the prior to a power.
        likelihood: The effect of raising the likelihood to a power.
        misfit: The result of `check_prior` for the prior as a whole; None if nothing was checked.
        decided: True if the prior leaves no doubt about the value: neither data nor a power of the prior can move it.
    """

    value: float
    std: float
    prior: Scaled
    likelihood: Scaled
    misfit: Misfit | MeanShift | None
    decided: bool = False

    @property
    def diagnosis(self) -> str:
        """The diagnosis in words, one of four.

        "-": the prior hardly matters. "the prior decides (weak likelihood)": the data are too weak to matter.
        "prior-data conflict": sensitive to both, and the logs contradict the prior. "the scale of the prior matters":
        sensitive to both, but the logs do not contradict the prior.
        """
        if self.decided:
            return _DECIDES
        if self.prior.sensitivity < THRESHOLD:
            return "-"
        if self.likelihood.sensitivity < THRESHOLD:
            return _DECIDES
        return _CONFLICT if self.misfit is not None and self.misfit.contradicts else _SCALE

    def records(self) -> list[dict[str, Any]]:
        """One plain record per component."""
        return [{"component": name, **vars(getattr(self, name))} for name in ("prior", "likelihood")]

    def __repr__(self) -> str:
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
    """Measure how the posterior of V(π) moves when the prior, or the likelihood, counts a little more or less.

    Raising the prior to the power α divides Σ and every Σ_a by α; raising the likelihood to α divides σ² by α. Both
    give a posterior of the same family, so nothing is approximated (Kallioinen, Paananen, Bürkner and Vehtari, 2023,
    "Detecting and diagnosing prior and likelihood sensitivity with power-scaling", Statistics and Computing 34:57,
    who reweight draws; R package priorsense). The sensitivity is theirs: with D(α) the cumulative Jensen-Shannon
    distance of the value's posterior to the one at power α,

        D(α)² = ∫ P log2 (2 P / (P + Q)) + Q log2 (2 Q / (P + Q)) / ∫ P + Q,   P and Q their distribution functions,

    the larger of it and its mirror image, and the sensitivity (D(1.01) + D(1 / 1.01)) / (2 log2 1.01).

    Sensitive to the prior alone means that the data are too weak to matter. Sensitive to both is a conflict in the
    paper's diagnosis. Not so here: a value sums many actions, and the prior pulls each a little towards the others, so
    the value of a greedy policy can be sensitive under the very prior that its rewards were drawn from. It is called a
    conflict only when the logs contradict the prior (`check_prior`).

    The policy is held fixed. Costs four solves over seen actions, whatever the number of rounds.

    Where rewards are not Gaussian, the likelihood to the power α is every round with α times its weight, and the
    posterior is fitted anew: seven fits, which need the logs. The distance is then between the normal distributions of
    the delta method. For log-normal rewards the posteriors are exact, and g stays fixed: only the weights change.

    Args:
        posterior: A fitted posterior. One fitted in steps is compared with its first prior, with all rounds since.
        policy: Any policy on the same actions.
        contexts: (n, d), a sample of those the policy will meet.
        baseline: A policy to compare with; the quantity is then V(policy) - V(baseline).
        eligible: Which actions may be chosen in each context; None for all.
        weights: (n,) how often each context counts; None for once.
        logs: All rounds of the fit, where neither rewards nor their logarithms are Gaussian.

    Raises:
        InputError: If such a likelihood comes without logs, or with other logs than those of the fit.
    """
    posterior = as_instance("posterior", posterior, RewardPosterior, "a posterior from fit()")
    if logs is not None:
        as_instance("logs", logs, LoggedData, "a LoggedData")
    if not (posterior.is_linear and posterior.likelihood.treatment == "exact"):
        refit, where = _refit(posterior, logs), {"eligible": eligible, "weights": weights}
        return _by_refits(posterior, refit, (policy,) if baseline is None else (policy, baseline), contexts, where)
    mass = posterior.profile(policy, contexts, eligible, weights).masses[0]
    if baseline is not None:
        other = posterior.profile(baseline, contexts, eligible, weights, "baseline").masses[0]
        mass = mass.total([mass, other], [1.0, -1.0])
    value, std = _moments(posterior.weights, mass)
    if not std > 0:
        return Sensitivity(value, 0.0, _STILL, _STILL, posterior.check.against_prior, decided=bool(mass.vectors.any()))
    less, more, half, double = (_moments(_powered(posterior, 1.0, a), mass) for a in (1 / STEP, STEP, 0.5, 2.0))
    # The prior to the power α is the likelihood to the power 1 / α and then everything to the power α, which leaves
    # the mean unchanged and divides the variance by α: the same four solves serve both.
    prior = [(mean, spread / a**0.5) for a, (mean, spread) in ((1 / STEP, more), (STEP, less), (2.0, half))]
    likelihood = _scaled(value, std, less, more, double)
    return Sensitivity(value, std, _scaled(value, std, *prior), likelihood, posterior.check.against_prior)


def _by_refits(
    posterior: RewardPosterior,
    refit: Callable[[float, float], RewardPosterior],
    policies: tuple[Policy, ...],
    contexts: Any,
    where: dict[str, Any],
) -> Sensitivity:
    """The sensitivity from values of refitted posteriors under powers of prior and likelihood, for any likelihood."""

    def moments(prior_power: float, likelihood_power: float) -> _Normal:
        refitted = refit(prior_power, likelihood_power)
        verb: Any = refitted.value if len(policies) == 1 else refitted.difference
        estimate = verb(*policies, contexts, **where)
        assert estimate.posterior_std is not None
        return estimate.value, estimate.posterior_std

    value, std = moments(1.0, 1.0)
    against = posterior.check.against_prior
    if not std > 0:
        return Sensitivity(value, 0.0, _STILL, _STILL, against, decided=len(policies) == 1 or value != 0.0)
    powers = (1 / STEP, STEP, 2.0)
    prior = _scaled(value, std, *(moments(a, 1.0) for a in powers))
    return Sensitivity(value, std, prior, _scaled(value, std, *(moments(1.0, a) for a in powers)), against)


def _refit(posterior: RewardPosterior, logs: LoggedData | None) -> Callable[[float, float], RewardPosterior]:
    """A function that gives the posterior under a power of the prior and a power of the likelihood."""
    if posterior.likelihood.treatment == "exact":
        return lambda *powers: replace(posterior, weights=_powered(posterior, *powers))
    kind, rounds = type(posterior.likelihood).__name__, _same_rounds(posterior, logs)
    counts = np.ones(len(rounds)) if rounds.weights is None else rounds.weights
    start = posterior

    def again(prior_power: float, likelihood_power: float) -> RewardPosterior:
        powered = LoggedData(
            rounds.contexts, rounds.actions, rounds.rewards, n_actions=rounds.n_actions,
            weights=counts * likelihood_power,
        )  # fmt: skip
        # Slopes are differences over a step of one per cent: a fit must be closer than the usual tolerance.
        refitted = fit(
            powered, _narrowed(posterior.prior, prior_power), posterior.likelihood, start=start,
            max_iterations=1000, tolerance=1e-11,
        )  # fmt: skip
        if not refitted.converged:
            raise InputError(f"the {kind} posterior under another power of prior or likelihood did not converge.")
        return refitted

    start = again(1.0, 1.0)
    return again


def _same_rounds(posterior: RewardPosterior, logs: LoggedData | None) -> LoggedData:
    """The rounds of the fit, checked; an error if they are missing or not those of the fit."""
    if logs is None:
        raise InputError(
            f"under {type(posterior.likelihood).__name__} the posterior must be fitted anew for every power of the "
            "likelihood, and it keeps no rounds.",
            "Pass all rounds of the fit as logs=.",
        )
    if posterior.prior.observed.groups:
        raise InputError(PRIOR_IS_POSTERIOR, "Fit all rounds on the first prior.")
    logs = check_logs(logs, posterior.prior)
    n_rounds = len(logs) if logs.weights is None else int(np.count_nonzero(logs.weights))
    if n_rounds != posterior.statistics.n_rounds:
        raise InputError(
            f"has {n_rounds:,} rounds; the posterior was fitted to {posterior.statistics.n_rounds:,}.",
            "Pass all rounds of the fit, and no others.",
            argument="logs",
        )
    return logs


def _narrowed(prior: HierarchicalGaussian, alpha: float) -> HierarchicalGaussian:
    """The prior to the power α: every covariance divided by α."""
    factor, cov = BlockFactor(prior.prior_factor.blocks / alpha**0.5), prior.action_covariance.scaled(1.0 / alpha)
    return prior.with_parts(prior.latent_mean, factor, cov, prior.offset)


def _powered(posterior: RewardPosterior, prior_power: float, likelihood_power: float) -> HierarchicalGaussian:
    """The exact posterior with prior and likelihood to some powers; the latter to the power α has noise σ / √α."""
    observed = posterior.weights.observed.rescaled(likelihood_power**-0.5, 0.0)
    return condition_on(_narrowed(posterior.weights.base, prior_power), observed)


def _moments(weights: HierarchicalGaussian, mass: FeatureMass) -> _Normal:
    mean = float(np.sum(mass.vectors * weights.action_mean(mass.actions)))
    return mean, float(np.sqrt(weights.variance_of(mass.vectors, mass.actions)))


def _scaled(value: float, std: float, less: _Normal, more: _Normal, double: _Normal) -> Scaled:
    """The effect of a power, from mean and standard deviation at the powers 1 / STEP, STEP and 2."""
    # The larger of the distance and its mirror image.
    near = [
        max(_distance(sign * (mean - value) / std, spread / std) for sign in (1.0, -1.0))
        for mean, spread in (less, more)
    ]
    return Scaled(float(sum(near) / (2 * np.log2(STEP))), (double[0] - value) / std, double[1] / std)


def _distance(shift: float, ratio: float) -> float:
    """The cumulative Jensen-Shannon distance of N(shift, ratio²) to N(0, 1)."""
    x, weights = (REACH * part for part in _legendre(256))
    p, q = ndtr(x), ndtr((x - shift) / ratio)
    # With u = (q - p) / (q + p) the integrand is (p + q) / 2 [(1 + u) log2 (1 + u) + (1 - u) log2 (1 - u)], written
    # so that no two terms cancel when u is small. At |u| = 1 its limit is finite, its terms are not.
    u = np.clip((q - p) / (q + p), -_BELOW_ONE, _BELOW_ONE)
    both = (p + q) * (np.log1p(-u * u) + 2 * u * np.arctanh(u)) / (2 * np.log(2.0))
    return float(np.sqrt(max(weights @ both, 0.0) / (weights @ (p + q))))


_legendre = cache(np.polynomial.legendre.leggauss)
_STILL = Scaled(0.0, 0.0, 1.0)
_BELOW_ONE = 1.0 - 2.0**-53
_DECIDES = "the prior decides (weak likelihood)"
_CONFLICT = "prior-data conflict"
_SCALE = "the scale of the prior matters"
_ADVICE = {
    _DECIDES: "the logs say little about this value: log more rounds, or make sure that the prior is right",
    _CONFLICT: "the logs contradict the prior: learn it from the logs or, if it was learned, choose another structure",
    _SCALE: "the logs do not contradict the prior: a learned one may stay; average over learned priors too",
}
