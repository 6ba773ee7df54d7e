"""Logs of several logging policies: balanced and precision-weighted importance weighting (Agarwal et al., 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
from jaxtyping import Float, Int

from manyarms._base.checks import Array, as_actions
from manyarms.core.logged_data import LoggedData
from manyarms.core.policy import Policy, row_weights
from manyarms.errors import InputError, ShapeError
from manyarms.estimators.estimator import EstimatorOptions, Rounds, check_target
from manyarms.estimators.logging_policy import propensities_of
from manyarms.estimators.reward_model import ModelEstimator


class _Stratified(ModelEstimator):
    """What both share: rounds that know which policy logged them, and perhaps a reward model."""

    def __init__(self, strata: Any, model: Any, **options: Unpack[EstimatorOptions]):
        super().__init__(model, **options)
        self.strata: Int[Array, " n"] = as_actions("strata", strata)

    def residual(
        self, policy: Policy, logs: LoggedData, eligible: Any
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        if len(self.strata) != len(logs):
            raise ShapeError(
                f"strata must name the logging policy of every round: {len(logs)}; got {len(self.strata)}. "
                "After a split, pass strata[part.rows]."
            )
        return super().residual(policy, logs, eligible)


class BalancedIPS(_Stratified):
    """IPS against the mixture of all logging policies: w = π / Σ_j ρ_j π_j, with ρ_j the share of rounds of policy j.

    A round that one policy would hardly have logged but another would gets no large weight. With a model it is
    balanced DR.

    Args:
        logging_policies: One a stratum.
        strata: (n,) which of them logged each round.
        model: What `fit` returned, or a `CrossFit`; None for none.
        options: `interval`, how the error is told; `thresholds`, when to warn.
    """

    name = "balanced IPS"

    def __init__(
        self, logging_policies: Sequence[Policy], strata: Any, model: Any = None, **options: Unpack[EstimatorOptions]
    ):
        super().__init__(strata, model, **options)
        self.logging_policies = tuple(logging_policies)
        if int(self.strata.max(initial=-1)) >= len(self.logging_policies):
            raise ShapeError(
                f"strata name policy {int(self.strata.max())}; only {len(self.logging_policies)} were given."
            )

    def rounds(self, policy: Policy, logs: LoggedData, eligible: Any) -> Rounds:
        residual, direct = self.residual(policy, logs, eligible)
        counts = row_weights(logs.weights, len(logs))
        for logging in self.logging_policies:
            check_target(logging, logs)
        shares = np.bincount(self.strata, weights=counts, minlength=len(self.logging_policies)) / counts.sum()
        mixture = np.zeros(len(logs))
        for share, logging in zip(shares, self.logging_policies, strict=True):
            mixture += share * logging.probability_of(logs.contexts, logs.actions)
        mixture = np.where(counts > 0, mixture, 1.0)
        if mixture.min() <= 0:
            raise InputError(f"no logging policy can have logged the action of row {int(np.argmin(mixture))}.")
        weights = policy.probability_of(logs.contexts, logs.actions, eligible=eligible) / mixture
        return Rounds(direct, weights * residual, None, weights, mixture)


class WeightedIPS(_Stratified):
    """One IPS a stratum, combined by their precisions: policies close to the target count for more.

    With a model it is weighted DR.

    Args:
        strata: (n,) which policy logged each round.
        model: What `fit` returned, or a `CrossFit`; None for none.
        options: `interval`, how the error is told; `thresholds`, when to warn.
    """

    name = "weighted IPS"

    def __init__(self, strata: Any, model: Any = None, **options: Unpack[EstimatorOptions]):
        super().__init__(strata, model, **options)

    def rounds(self, policy: Policy, logs: LoggedData, eligible: Any) -> Rounds:
        residual, direct = self.residual(policy, logs, eligible)
        propensities, estimated = propensities_of(logs)
        weights = policy.probability_of(logs.contexts, logs.actions, eligible=eligible) / propensities
        rounds = weights * residual + direct
        scale, mean = _by_precision(rounds, self.strata, row_weights(logs.weights, len(logs)))
        figures = {"estimated_propensities": float(estimated)}
        none = np.zeros(len(logs))
        return Rounds(none, scale * rounds, None, weights, propensities, figures, centre=scale * mean)


def _by_precision(
    rounds: Float[Array, " n"], strata: Int[Array, " n"], counts: Float[Array, " n"]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Factors with which the mean over all rounds is the precision-weighted mean of the strata's, and these means."""
    where = np.unique(strata, return_inverse=True)[1]
    size = np.bincount(where, weights=counts)
    if size.min() <= 1:
        raise InputError("every stratum needs at least 2 rounds, or its precision is unknown. Use balanced IPS.")
    mean = np.bincount(where, weights=counts * rounds) / size
    variance = np.bincount(where, weights=counts * (rounds - mean[where]) ** 2) / (size - 1)
    # A stratum without any variance would take all weight; it is given the smallest that others have.
    positive = variance[variance > 0]
    variance = np.maximum(variance, positive.min() if len(positive) else 1.0)
    precision = size / variance
    scale = precision / precision.sum() / size * counts.sum()
    return scale[where], mean[where]
