"""Estimators built on importance weights w_i = π(a_i | x_i) / π_0(a_i | x_i), with or without a reward model.

Each averages w r, or w (r - r̂(x, a)) + Σ_a π(a | x) r̂(x, a) where there is a model. They differ in how they change w.
The last two take logs of several logging policies (Agarwal et al., 2017).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, as_actions, as_instance, as_scalar, check_rows, row_weights
from manyarms.core import LoggedData, Policy
from manyarms.errors import InputError, RangeError, ShapeError
from manyarms.estimators.estimator import EstimatorOptions, Rounds, SamplingEstimator, check_target
from manyarms.estimators.logging_policy import as_clip, propensities_of
from manyarms.estimators.reward_model import RewardModelEstimator, as_model


class WeightedEstimator(RewardModelEstimator):
    """mean of w̃ r, or mean of w̃ (r - r̂) + Σ_a π r̂ with a reward model."""

    self_normalised = False

    @abstractmethod
    def reweighted(self, target: Float[Array, " n"], propensities: Float[Array, " n"]) -> Float[Array, " n"]:
        """w̃ from π(a_i | x_i) and π_0(a_i | x_i)."""

    def rounds(self, policy: Policy, logs: LoggedData, eligible: Any) -> Rounds:
        propensities, estimated = propensities_of(logs)
        target = policy.probability_of(logs.contexts, logs.actions, eligible=eligible)
        weights = self.reweighted(target, propensities)
        residual, direct = self.residual(policy, logs, eligible)
        return Rounds(
            direct,
            weights * residual,
            weights if self.self_normalised else None,
            target / propensities,
            propensities,
            estimated,
            used=weights,
        )


class IPS(WeightedEstimator):
    """mean of w r: unbiased where the logging policy has support and nothing is clipped (Horvitz and Thompson).

    Args:
        clip: Floor on the propensity, as in the paper.
        cap: Ceiling on the weight.
        options: `interval`, `thresholds` and `name`; see `EstimatorOptions`.
    """

    name = "IPS"

    def __init__(self, clip: float | None = None, cap: float | None = None, **options: Unpack[EstimatorOptions]):
        super().__init__(**options)
        self.clip = as_clip(clip)
        if self.clip > 1:
            raise RangeError(
                f"is a floor on the propensity, from 0 to 1; got {self.clip:g}.",
                f"For weights of at most {self.clip:g} pass cap={self.clip:g}.",
                argument="clip",
            )
        self.cap = np.inf if cap is None else as_scalar("cap", cap, above=0.0)

    def reweighted(self, target: Float[Array, " n"], propensities: Float[Array, " n"]) -> Float[Array, " n"]:
        return np.minimum(target / np.maximum(propensities, self.clip), self.cap)


class SNIPS(IPS):
    """Σ w r / Σ w: a little bias, far less variance, never outside the range of rewards (Swaminathan and Joachims)."""

    name = "snIPS"
    self_normalised = True


class DR(IPS):
    """mean of w (r - r̂) + Σ_a π r̂: unbiased when either the weights or the model are right (Dudik et al.).

    Args:
        model: A fitted posterior, whether sDM or DM (Freq). Or a `CrossFit`, which keeps the errors of model and rounds
            apart when both come from the same logs.
        clip: Floor on the propensity.
        cap: Ceiling on the weight.
        options: `interval`, `thresholds` and `name`; see `EstimatorOptions`.
    """

    name = "DR"

    def __init__(
        self, model: Any, clip: float | None = None, cap: float | None = None, **options: Unpack[EstimatorOptions]
    ):
        super().__init__(clip, cap, **options)
        self.model = as_model(model)


class SNDR(DR):
    """DR with importance weights divided by their mean."""

    name = "snDR"
    self_normalised = True


class SwitchDR(WeightedEstimator):
    """DR with the importance weights above a threshold set to zero: the model alone answers there (Wang et al.).

    Args:
        model: A fitted posterior, or a `CrossFit`.
        threshold: Largest weight that is kept; 0 is DM, infinity is DR.
        options: `interval`, `thresholds` and `name`; see `EstimatorOptions`.
    """

    name = "Switch-DR"

    def __init__(self, model: Any, threshold: float, **options: Unpack[EstimatorOptions]):
        super().__init__(model, **options)
        self.threshold = _non_negative("threshold", threshold)

    def reweighted(self, target: Float[Array, " n"], propensities: Float[Array, " n"]) -> Float[Array, " n"]:
        weights = target / propensities
        return np.where(weights <= self.threshold, weights, 0.0)


class DRos(WeightedEstimator):
    """DR with importance weights under optimistic shrinkage, w̃ = λ w / (w² + λ) (Su et al.).

    Args:
        model: A fitted posterior, or a `CrossFit`.
        shrinkage: λ; 0 is DM, infinity is DR.
        options: `interval`, `thresholds` and `name`; see `EstimatorOptions`.
    """

    name = "DRos"

    def __init__(self, model: Any, shrinkage: float, **options: Unpack[EstimatorOptions]):
        super().__init__(model, **options)
        self.shrinkage = _non_negative("shrinkage", shrinkage)

    def reweighted(self, target: Float[Array, " n"], propensities: Float[Array, " n"]) -> Float[Array, " n"]:
        weights = target / propensities
        if np.isinf(self.shrinkage):
            return weights
        large = weights > _LARGE
        moderate = np.where(large, 0.0, weights)
        shrunk = self.shrinkage * moderate / np.maximum(moderate**2 + self.shrinkage, _TINY)
        return np.divide(
            self.shrinkage, weights + self.shrinkage / np.maximum(weights, _LARGE), out=shrunk, where=large
        )


class SubGaussianIPS(WeightedEstimator):
    """IPS with w̃ = w / (1 - λ + λ w), which has sub-Gaussian tails (Metelli et al.).

    Args:
        parameter: λ in [0, 1]; 0 is IPS.
        options: `interval`, `thresholds` and `name`; see `EstimatorOptions`.
    """

    name = "SG-IPS"

    def __init__(self, parameter: float, **options: Unpack[EstimatorOptions]):
        super().__init__(**options)
        self.parameter = as_scalar("parameter", parameter, at_least=0.0, at_most=1.0)

    def reweighted(self, target: Float[Array, " n"], propensities: Float[Array, " n"]) -> Float[Array, " n"]:
        weights = target / propensities
        # At λ = 1 and w = 0 both sides of the fraction vanish; a weight of zero stays zero.
        below = 1.0 - self.parameter + self.parameter * weights
        return np.where(weights > 0, weights / np.maximum(below, _TINY), 0.0)


class SubGaussianDR(SubGaussianIPS):
    """DR with the importance weights w̃ = w / (1 - λ + λ w).

    Args:
        model: A fitted posterior, or a `CrossFit`.
        parameter: λ in [0, 1]; 0 is DR.
        options: `interval`, `thresholds` and `name`; see `EstimatorOptions`.
    """

    name = "SG-DR"

    def __init__(self, model: Any, parameter: float, **options: Unpack[EstimatorOptions]):
        super().__init__(parameter, **options)
        self.model = as_model(model)


class ExponentialSmoothing(WeightedEstimator):
    """IPS with π(a | x) / π_0(a | x)^α: smooth in the policy, where clipping has kinks (Aouali et al., 2023).

    Args:
        alpha: α in [0, 1]; 1 is IPS.
        options: `interval`, `thresholds` and `name`; see `EstimatorOptions`.
    """

    name = "ES"

    def __init__(self, alpha: float, **options: Unpack[EstimatorOptions]):
        super().__init__(**options)
        self.alpha = as_scalar("alpha", alpha, at_least=0.0, at_most=1.0)

    def reweighted(self, target: Float[Array, " n"], propensities: Float[Array, " n"]) -> Float[Array, " n"]:
        return target / propensities**self.alpha


class LogarithmicSmoothing(SamplingEstimator):
    """mean of log(1 + λ w r) / λ, for rewards not below zero: large weights count by their logarithm (Sakhi et al.).

    Args:
        parameter: λ, at least 0; 0 is IPS.
        options: `interval`, `thresholds` and `name`; see `EstimatorOptions`.
    """

    name = "LS"

    def __init__(self, parameter: float, **options: Unpack[EstimatorOptions]):
        super().__init__(**options)
        self.parameter = as_scalar("parameter", parameter, at_least=0.0)

    def rounds(self, policy: Policy, logs: LoggedData, eligible: Any) -> Rounds:
        check_log_smoothing(logs)
        propensities, estimated = propensities_of(logs)
        weights = policy.probability_of(logs.contexts, logs.actions, eligible=eligible) / propensities
        product = weights * logs.rewards
        smoothed = product if self.parameter == 0 else np.log1p(self.parameter * product) / self.parameter
        return Rounds(np.zeros(len(logs)), smoothed, None, weights, propensities, estimated)


class Replay(SamplingEstimator):
    """The mean reward of rounds that logged the policy's action, weights 0 or 1: for uniform logging (Li et al.).

    Args:
        options: `interval`, `thresholds` and `name`; see `EstimatorOptions`.
    """

    name = "replay"

    def rounds(self, policy: Policy, logs: LoggedData, eligible: Any) -> Rounds:
        probability = policy.probability_of(logs.contexts, logs.actions, eligible=eligible)
        certain = (probability < 1e-9) | (probability > 1 - 1e-9)
        if not certain.all():
            row = int(np.argmin(certain))
            raise InputError(
                f"replay needs a deterministic policy; this one has probability {probability[row]:.3g} in row {row}."
            )
        matched = np.round(probability)
        count = {"n_matched": float(matched.sum())}
        return Rounds(np.zeros(len(logs)), matched * logs.rewards, matched, diagnostics=count, used=matched)


class _StratifiedEstimator(RewardModelEstimator):
    """An estimator for rounds that know which policy logged them, perhaps with a reward model."""

    def __init__(self, strata: Any, model: Any = None, **options: Unpack[EstimatorOptions]):
        super().__init__(model, **options)
        self.strata: Int[Array, " n"] = as_actions("strata", strata)

    def residual(
        self, policy: Policy, logs: LoggedData, eligible: Any
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        if len(self.strata) != len(logs):
            raise ShapeError(
                f"must name the logging policy of every round: {len(logs)}; got {len(self.strata)}.",
                "After a split, pass strata[part.rows].",
                argument="strata",
            )
        return super().residual(policy, logs, eligible)


class BalancedIPS(_StratifiedEstimator):
    """IPS against the mixture of all logging policies: w = π / Σ_j ρ_j π_j, with ρ_j the share of rounds of policy j.

    A round that one policy would hardly have logged, but another would, gets no large weight. With a model it is
    balanced DR.

    Args:
        logging_policies: One policy per stratum.
        strata: (n,) Number of the policy that logged each round.
        model: A fitted posterior, or a `CrossFit`; None for no model.
        options: `interval`, `thresholds` and `name`; see `EstimatorOptions`.
    """

    name = "balanced IPS"

    def __init__(
        self, logging_policies: Sequence[Policy], strata: Any, model: Any = None, **options: Unpack[EstimatorOptions]
    ):
        super().__init__(strata, model, **options)
        listed = as_instance("logging_policies", logging_policies, Sequence, "a list of policies")
        self.logging_policies = tuple(as_instance("logging_policies", each, Policy, "policies") for each in listed)
        if int(self.strata.max(initial=-1)) >= len(self.logging_policies):
            raise ShapeError(
                f"name policy {int(self.strata.max())}; only {len(self.logging_policies)} were given.",
                argument="strata",
            )

    def rounds(self, policy: Policy, logs: LoggedData, eligible: Any) -> Rounds:
        residual, direct = self.residual(policy, logs, eligible)
        counts = row_weights(logs.weights, len(logs))
        logging_policies = [check_target(logging, logs) for logging in self.logging_policies]
        shares = np.bincount(self.strata, weights=counts, minlength=len(self.logging_policies)) / counts.sum()
        mixture = np.zeros(len(logs))
        for share, logging in zip(shares, logging_policies, strict=True):
            mixture += share * logging.probability_of(logs.contexts, logs.actions)
        mixture = np.where(counts > 0, mixture, 1.0)
        if mixture.min() <= 0:
            raise InputError(f"no logging policy can have logged the action of row {int(np.argmin(mixture))}.")
        weights = policy.probability_of(logs.contexts, logs.actions, eligible=eligible) / mixture
        return Rounds(direct, weights * residual, None, weights, mixture)


class WeightedIPS(_StratifiedEstimator):
    """One IPS per stratum, combined by their precisions: policies close to the target count for more.

    With a model it is weighted DR.

    Args:
        strata: (n,) Number of the policy that logged each round.
        model: A fitted posterior, or a `CrossFit`; None for no model.
        options: `interval`, `thresholds` and `name`; see `EstimatorOptions`.
    """

    name = "weighted IPS"

    def rounds(self, policy: Policy, logs: LoggedData, eligible: Any) -> Rounds:
        residual, direct = self.residual(policy, logs, eligible)
        propensities, estimated = propensities_of(logs)
        weights = policy.probability_of(logs.contexts, logs.actions, eligible=eligible) / propensities
        contributions = weights * residual + direct
        counts, stratum = row_weights(logs.weights, len(logs)), np.unique(self.strata, return_inverse=True)[1]
        size = np.bincount(stratum, weights=counts)
        if size.min() <= 1:
            raise InputError("every stratum needs at least 2 rounds, or its precision is unknown.", "Use balanced IPS.")
        mean = (np.bincount(stratum, weights=counts * contributions) / size)[stratum]
        # Squares of large contributions overflow, so each stratum has a unit of its own.
        gap, powers = contributions - mean, np.zeros(len(size))
        np.maximum.at(powers, stratum, np.abs(gap))
        powers = np.frexp(powers)[1]
        variance = np.bincount(stratum, weights=counts * np.ldexp(gap, -powers[stratum]) ** 2) / (size - 1)
        with np.errstate(over="ignore"):
            # Only ratios of variances count.
            variance = np.ldexp(variance, 2 * (powers - powers[variance > 0].min(initial=powers.max())))
        # A stratum without any variance would take all weight; it is given the smallest that others have.
        positive = variance[variance > 0]
        variance = np.maximum(variance, positive.min() if len(positive) else 1.0)
        precision = size / variance
        # Turns the mean over rounds into the precision-weighted mean over strata.
        scale = (precision / precision.sum() / size * counts.sum())[stratum]
        zeros = np.zeros(len(logs))
        return Rounds(zeros, scale * contributions, None, weights, propensities, estimated, centre=scale * mean)


def check_log_smoothing(logs: LoggedData) -> None:
    """Refuse rewards for which an importance-weighted estimate cannot be smoothed: negative ones have no logarithm."""
    check_rows(
        "rewards", logs.rewards, lambda r: r >= 0, InputError, "must not be negative for logarithmic smoothing",
        "Shift the rewards, or use IPS.",
    )  # fmt: skip


def _non_negative(name: str, value: float) -> float:
    return value if isinstance(value, float) and value == np.inf else as_scalar(name, value, at_least=0.0)


_TINY, _LARGE = np.finfo(float).tiny, 1e150
