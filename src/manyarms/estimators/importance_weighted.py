"""Estimators built on importance weights w_i = π(a_i | x_i) / π_0(a_i | x_i), with or without a reward model.

All are one of two sums, mean of w r or mean of w (r - r̂(x, a)) + Σ_a π(a | x) r̂(x, a), and differ in what they do to w.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Unpack

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, as_scalar
from manyarms.core.logged_data import LoggedData
from manyarms.core.policy import Policy
from manyarms.errors import InputError, RangeError
from manyarms.estimators.estimator import EstimatorOptions, Rounds, SamplingEstimator
from manyarms.estimators.logging_policy import propensities_of
from manyarms.estimators.reward_model import ModelEstimator


class WeightedEstimator(ModelEstimator):
    """mean of w̃ r, or mean of w̃ (r - r̂) + Σ_a π r̂ when there is a reward model.

    Args:
        model: A fitted posterior or a `CrossFit`; None for none.
        options: `interval`, how the error is told; `thresholds`, when to warn.
    """

    self_normalised = False

    def __init__(self, model: Any = None, **options: Unpack[EstimatorOptions]):
        super().__init__(model, **options)

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
            {"estimated_propensities": float(estimated)},
            used=weights,
        )


class _Clipped(WeightedEstimator):
    """w with a floor on the propensity and a ceiling on the weight."""

    def __init__(
        self,
        model: Any = None,
        clip: float | None = None,
        cap: float | None = None,
        **options: Unpack[EstimatorOptions],
    ):
        super().__init__(model, **options)
        self.clip = 0.0 if clip is None else as_scalar("clip", clip, at_least=0.0)
        if self.clip > 1:
            raise RangeError(
                f"clip is a floor on the propensity, from 0 to 1; got {self.clip:g}. For weights of at most "
                f"{self.clip:g} pass cap={self.clip:g}."
            )
        self.cap = np.inf if cap is None else as_scalar("cap", cap, above=0.0)

    def reweighted(self, target: Float[Array, " n"], propensities: Float[Array, " n"]) -> Float[Array, " n"]:
        return np.minimum(target / np.maximum(propensities, self.clip), self.cap)


class IPS(_Clipped):
    """mean of w r: unbiased where the logging policy has support and nothing is clipped (Horvitz and Thompson).

    Args:
        clip: A floor on the propensity, as in the paper.
        cap: A ceiling on the weight.
        options: `interval`, how the error is told; `thresholds`, when to warn.
    """

    name = "IPS"

    def __init__(self, clip: float | None = None, cap: float | None = None, **options: Unpack[EstimatorOptions]):
        super().__init__(None, clip, cap, **options)


class SNIPS(IPS):
    """Σ w r / Σ w: a little bias, far less variance, never outside the range of rewards (Swaminathan and Joachims)."""

    name = "snIPS"
    self_normalised = True


class DR(_Clipped):
    """mean of w (r - r̂) + Σ_a π r̂: unbiased when either the weights or the model are right (Dudik et al.).

    Args:
        model: What `fit` returned, sDM as well as DM (Freq); or a `CrossFit`, which keeps the errors of model and
            rounds apart when both come from the same logs.
        clip: A floor on the propensity.
        cap: A ceiling on the weight.
        options: `interval`, how the error is told; `thresholds`, when to warn.
    """

    name = "DR"

    def __init__(
        self, model: Any, clip: float | None = None, cap: float | None = None, **options: Unpack[EstimatorOptions]
    ):
        super().__init__(model, clip=clip, cap=cap, **options)


class SNDR(DR):
    """DR with weights divided by their mean."""

    name = "snDR"
    self_normalised = True


class _Tuned(WeightedEstimator):
    """An estimator with a model and one number."""

    def __init__(self, model: Any, parameter: float, **options: Unpack[EstimatorOptions]):
        super().__init__(model, **options)
        self.parameter = parameter


class SwitchDR(_Tuned):
    """DR with the weights above a threshold set to zero: the model alone answers there (Wang et al.).

    Args:
        model: What `fit` returned, or a `CrossFit`.
        threshold: 0 is DM; infinity is DR.
        options: `interval`, how the error is told; `thresholds`, when to warn.
    """

    name = "Switch-DR"

    def __init__(self, model: Any, threshold: float, **options: Unpack[EstimatorOptions]):
        super().__init__(model, _non_negative("threshold", threshold), **options)

    def reweighted(self, target: Float[Array, " n"], propensities: Float[Array, " n"]) -> Float[Array, " n"]:
        weights = target / propensities
        return np.where(weights <= self.parameter, weights, 0.0)


class DRos(_Tuned):
    """DR with optimistic shrinkage, w̃ = λ w / (w² + λ) (Su et al.).

    Args:
        model: What `fit` returned, or a `CrossFit`.
        shrinkage: λ; 0 is DM, infinity is DR.
        options: `interval`, how the error is told; `thresholds`, when to warn.
    """

    name = "DRos"

    def __init__(self, model: Any, shrinkage: float, **options: Unpack[EstimatorOptions]):
        super().__init__(model, _non_negative("shrinkage", shrinkage), **options)

    def reweighted(self, target: Float[Array, " n"], propensities: Float[Array, " n"]) -> Float[Array, " n"]:
        weights = target / propensities
        if np.isinf(self.parameter):
            return weights
        return np.where(weights > 0, self.parameter * weights / np.maximum(weights**2 + self.parameter, _TINY), 0.0)


class SubGaussianIPS(WeightedEstimator):
    """IPS with w̃ = w / (1 - λ + λ w), which has sub-Gaussian tails (Metelli et al.).

    Args:
        parameter: λ in [0, 1]; 0 is IPS.
        options: `interval`, how the error is told; `thresholds`, when to warn.
    """

    name = "SG-IPS"

    def __init__(self, parameter: float, **options: Unpack[EstimatorOptions]):
        super().__init__(**options)
        self.parameter = _share("parameter", parameter)

    def reweighted(self, target: Float[Array, " n"], propensities: Float[Array, " n"]) -> Float[Array, " n"]:
        return _sub_gaussian(target / propensities, self.parameter)


class SubGaussianDR(_Tuned):
    """DR with w̃ = w / (1 - λ + λ w).

    Args:
        model: What `fit` returned, or a `CrossFit`.
        parameter: λ in [0, 1]; 0 is DR.
        options: `interval`, how the error is told; `thresholds`, when to warn.
    """

    name = "SG-DR"

    def __init__(self, model: Any, parameter: float, **options: Unpack[EstimatorOptions]):
        super().__init__(model, _share("parameter", parameter), **options)

    def reweighted(self, target: Float[Array, " n"], propensities: Float[Array, " n"]) -> Float[Array, " n"]:
        return _sub_gaussian(target / propensities, self.parameter)


class ExponentialSmoothing(WeightedEstimator):
    """IPS with π(a | x) / π_0(a | x)^α: smooth in the policy, where clipping has kinks (Aouali et al., 2023).

    Args:
        alpha: α in [0, 1]; 1 is IPS.
        options: `interval`, how the error is told; `thresholds`, when to warn.
    """

    name = "ES"

    def __init__(self, alpha: float, **options: Unpack[EstimatorOptions]):
        super().__init__(**options)
        self.alpha = _share("alpha", alpha)

    def reweighted(self, target: Float[Array, " n"], propensities: Float[Array, " n"]) -> Float[Array, " n"]:
        return target / propensities**self.alpha


class LogarithmicSmoothing(SamplingEstimator):
    """mean of log(1 + λ w r) / λ, for rewards not below zero: large weights count by their logarithm (Sakhi et al.).

    Args:
        parameter: λ, at least 0; 0 is IPS.
        options: `interval`, how the error is told; `thresholds`, when to warn.
    """

    name = "LS"

    def __init__(self, parameter: float, **options: Unpack[EstimatorOptions]):
        super().__init__(**options)
        self.parameter = as_scalar("parameter", parameter, at_least=0.0)

    def rounds(self, policy: Policy, logs: LoggedData, eligible: Any) -> Rounds:
        if (logs.rewards < 0).any():
            row = int(np.argmax(logs.rewards < 0))
            raise InputError(
                f"logarithmic smoothing needs rewards that are not negative; row {row} has {logs.rewards[row]}. "
                "Shift the rewards, or use IPS."
            )
        propensities, estimated = propensities_of(logs)
        weights = policy.probability_of(logs.contexts, logs.actions, eligible=eligible) / propensities
        product = weights * logs.rewards
        smoothed = product if self.parameter == 0 else np.log1p(self.parameter * product) / self.parameter
        figures = {"estimated_propensities": float(estimated)}
        return Rounds(np.zeros(len(logs)), smoothed, None, weights, propensities, figures)


class Replay(SamplingEstimator):
    """The mean reward of the rounds whose logged action is the policy's: right when logging was uniform (Li et al.).

    Args:
        options: `interval`, how the error is told; `thresholds`, when to warn.
    """

    name = "replay"

    def rounds(self, policy: Policy, logs: LoggedData, eligible: Any) -> Rounds:
        chance = policy.probability_of(logs.contexts, logs.actions, eligible=eligible)
        if not np.all((chance < 1e-9) | (chance > 1 - 1e-9)):
            row = int(np.argmin((chance < 1e-9) | (chance > 1 - 1e-9)))
            raise InputError(
                f"replay needs a policy without chance; it has probability {chance[row]:.3g} in row {row}."
            )
        matched = np.round(chance)
        figures = {"n_matched": float(matched.sum())}
        return Rounds(np.zeros(len(logs)), matched * logs.rewards, matched, figures=figures, used=matched)


def _sub_gaussian(weights: Float[Array, " n"], parameter: float) -> Float[Array, " n"]:
    # At λ = 1 and w = 0 both sides of the fraction vanish; a weight of zero stays zero.
    below = 1.0 - parameter + parameter * weights
    return np.where(weights > 0, weights / np.maximum(below, _TINY), 0.0)


def _non_negative(name: str, value: float) -> float:
    return float(value) if value == np.inf else as_scalar(name, value, at_least=0.0)


def _share(name: str, value: float) -> float:
    return as_scalar(name, value, at_least=0.0, at_most=1.0)


_TINY = np.finfo(float).tiny
