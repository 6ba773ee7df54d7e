"""Reward models r̂(x, a) for estimators: a fitted posterior, a table, or a model fitted without each fold; and DM.

DM, the direct method, is the posterior's own estimate of a value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
from jaxtyping import Float
from scipy import sparse

from manyarms._base.checks import Array, as_count, as_instance, as_matrix, as_text
from manyarms._base.rng import as_generator
from manyarms.core import Estimate, Fingerprint, HierarchicalGaussian, LoggedData, Policy
from manyarms.errors import DataTypeError, InputError, ShapeError
from manyarms.estimators.estimator import (
    Estimator,
    EstimatorOptions,
    SamplingEstimator,
    Thresholds,
    check_target,
    diagnostic_warnings,
)
from manyarms.gpu.device import CPU, as_device
from manyarms.likelihoods import Hurdle, Likelihood
from manyarms.likelihoods.likelihood import as_likelihood
from manyarms.posterior import RewardPosterior, fit
from manyarms.posterior.posterior import Posterior


class DM(Estimator):
    """The direct method, whose reward model alone gives V(π): sDM, DM (Bayes) or DM (Freq), according to the prior.

    It needs no propensities, and may be evaluated on the logs it was fitted to: a posterior already accounts for them.

    Args:
        posterior: Any posterior.
        name: The name that tables and reports use.
        thresholds: Limits of the diagnostics beyond which the estimate warns.
    """

    def __init__(self, posterior: Posterior, *, name: str = "DM", thresholds: Thresholds | None = None):
        self.posterior = as_instance("posterior", posterior, Posterior, "what ma.fit returned")
        self.name = as_text("name", name)
        given = Thresholds() if thresholds is None else thresholds
        self.thresholds = as_instance("thresholds", given, Thresholds, "Thresholds()")

    def estimate(self, policy: Policy, logs: LoggedData, *, eligible: Any = None) -> Estimate:
        """The posterior of the policy's value on the logged contexts."""
        policy = check_target(policy, logs)
        estimate = self.posterior.value(
            policy, logs.contexts, eligible=eligible, weights=logs.weights, groups=logs.groups
        )
        warnings = diagnostic_warnings(estimate.diagnostics, self.thresholds)
        return replace(estimate, warnings=(*estimate.warnings, *warnings))


class RewardModel(ABC):
    """A reward model r̂(x, a), the expected reward of an action in a context."""

    learned_from: tuple[Fingerprint, ...] = ()

    @abstractmethod
    def predict(self, policy: Policy, logs: LoggedData, eligible: Any) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """r̂(x_i, a_i) of the logged actions, and Σ_a π(a | x_i) r̂(x_i, a), row by row."""


class FittedModel(RewardModel):
    """The reward model that gives the expected rewards of a posterior."""

    def __init__(self, posterior: Posterior):
        self.posterior = posterior
        self.learned_from = posterior.learned_from

    def predict(self, policy: Policy, logs: LoggedData, eligible: Any) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        check_model_size(self.posterior, logs)
        expected = self.posterior.profile(policy, logs.contexts, eligible, None).rows
        return self.posterior.expected_reward(logs.contexts, logs.actions), expected


class TableModel(RewardModel):
    """A reward model given as a table: another library's regression, or a known truth.

    Args:
        rewards: (n, K) r̂(x_i, a), with one row per round of the logs that policies are evaluated on.
    """

    def __init__(self, rewards: Any):
        self._rewards = as_matrix("rewards", rewards)

    def predict(self, policy: Policy, logs: LoggedData, eligible: Any) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        if self._rewards.shape != (len(logs), logs.n_actions):
            raise ShapeError(
                f"the reward model has {self._rewards.shape[0]} rounds and {self._rewards.shape[1]} actions; the logs "
                f"have {len(logs)} and {logs.n_actions}.",
                "Pass the rewards of the very rounds that the policy is evaluated on.",
            )
        expected = np.empty(len(logs))
        for rows, share in policy.probability_chunks(logs.contexts, eligible=eligible):
            expected[rows] = np.einsum("nk,nk->n", share, self._rewards[rows])
        return self._rewards[np.arange(len(logs)), logs.actions], expected


class FoldedModel(RewardModel):
    """A reward model fitted once per fold, without that fold, so that it never predicts a round it was fitted on.

    Args:
        n_folds: The number of folds. When the logs have groups, each group is in one fold.
        rng: A NumPy generator. It is read once, here, so the folds stay the same.
    """

    def __init__(self, *, n_folds: int, rng: np.random.Generator):
        self.n_folds = as_count("n_folds", n_folds, minimum=2)
        self._seed = int(as_generator(rng).integers(0, 1 << 63))
        # The posteriors of the last logs, since several policies are evaluated on the same ones.
        self._logs: LoggedData | None = None
        self._fitted = dict[int, FittedModel]()

    @abstractmethod
    def without(self, logs: LoggedData, left_out: Array) -> Posterior:
        """The posterior given all rounds except those left out."""

    def predict(self, policy: Policy, logs: LoggedData, eligible: Any) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        if callable(eligible):
            raise InputError(
                "must not be a function here, as cross-fitting takes rows out of order.",
                "Pass a sparse matrix, or lists.",
                argument="eligible",
            )
        at_logged, expected = np.empty(len(logs)), np.empty(len(logs))
        folds = self.folds(logs)
        if self._logs is not logs:
            self._logs, self._fitted = logs, {}
        for fold in np.unique(folds).tolist():
            rows = np.flatnonzero(folds == fold)
            allowed = None if eligible is None else _eligible_rows(eligible, rows)
            if fold not in self._fitted:
                self._fitted[fold] = FittedModel(self.without(logs, folds == fold))
            at_logged[rows], expected[rows] = self._fitted[fold].predict(policy.take(rows), logs.take(rows), allowed)
        return at_logged, expected

    def folds(self, logs: LoggedData) -> Array:
        """The fold of every round. Rounds of one group are in one fold."""
        keys = np.arange(len(logs)) if logs.groups is None else np.unique(logs.groups, return_inverse=True)[1]
        rng = np.random.default_rng(self._seed)
        return (rng.permutation(int(keys.max()) + 1) % self.n_folds)[keys]


class CrossFit(FoldedModel):
    """A reward model fitted from a prior once per fold, without that fold.

    Args:
        prior: The prior to fit with: structured (sDM), `prior.marginal()` (DM Bayes) or `priors.ridge` (DM Freq). With
            a `Hurdle`, a pair of priors, or one for both.
        likelihood: The likelihood of the rewards.
        n_folds: The number of folds. When the logs have groups, each group is in one fold.
        rng: A NumPy generator. It is read once, here, so the folds stay the same.
        device: "cuda" fits clicks on a GPU, as in `fit`.
    """

    def __init__(
        self,
        prior: HierarchicalGaussian | tuple[HierarchicalGaussian, HierarchicalGaussian],
        likelihood: Likelihood | Hurdle | None = None,
        *,
        n_folds: int = 5,
        rng: np.random.Generator,
        device: str = CPU,
    ):
        self.device = as_device(device)
        self.likelihood = likelihood if isinstance(likelihood, Hurdle) else as_likelihood(likelihood)
        priors = prior if isinstance(self.likelihood, Hurdle) and isinstance(prior, tuple) else (prior,)
        self._priors = tuple(as_instance("prior", p, HierarchicalGaussian, "a HierarchicalGaussian") for p in priors)
        # Of a pair, that of whether there is a reward.
        self.prior = self._priors[0]
        super().__init__(n_folds=n_folds, rng=rng)

    def without(self, logs: LoggedData, left_out: Array) -> Posterior:
        check_model_size(self.prior, logs)
        kept = logs.take(np.flatnonzero(~left_out))
        if isinstance(self.likelihood, Hurdle):
            return fit(kept, (self.prior, self._priors[-1]), self.likelihood, device=self.device)
        return fit(kept, self.prior, self.likelihood, device=self.device)


class CrossUpdate(FoldedModel):
    """A reward model that is a posterior updated once per fold with all rounds except that fold.

    Args:
        posterior: A posterior that has not seen these rounds.
        n_folds: The number of folds. When the logs have groups, each group is in one fold.
        rng: A NumPy generator. It is read once, here, so the folds stay the same.
    """

    def __init__(self, posterior: RewardPosterior, *, n_folds: int = 5, rng: np.random.Generator):
        self.posterior = posterior
        self.learned_from = posterior.learned_from
        super().__init__(n_folds=n_folds, rng=rng)

    def without(self, logs: LoggedData, left_out: Array) -> Posterior:
        check_model_size(self.posterior, logs)
        return self.posterior.update(logs.take(np.flatnonzero(~left_out)))


class RewardModelEstimator(SamplingEstimator):
    """Adds a reward model, if there is one, to an estimator: weights then multiply r - r̂, and Σ_a π r̂ is added."""

    def __init__(self, model: Any = None, **options: Unpack[EstimatorOptions]):
        super().__init__(**options)
        self.model = None if model is None else as_model(model)

    @property
    def has_model(self) -> bool:
        return self.model is not None

    @property
    def learned_from(self) -> tuple[Fingerprint, ...]:
        return () if self.model is None else self.model.learned_from

    def residual(
        self, policy: Policy, logs: LoggedData, eligible: Any
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """The terms that the weights multiply, and the terms that are added."""
        if self.model is None:
            return logs.rewards, np.zeros(len(logs))
        predicted, direct = self.model.predict(policy, logs, eligible)
        return logs.rewards - predicted, direct


def as_model(value: Any) -> RewardModel:
    """The reward model that a user passed."""
    if isinstance(value, RewardModel):
        return value
    if isinstance(value, Posterior):
        return FittedModel(value)
    raise DataTypeError(
        f"must be a fitted posterior or ma.CrossFit(prior, ...); got {type(value).__name__}.",
        argument="model",
        flag_remedy="Pass a model that `manyarms fit` wrote.",
    )


def check_model_size(model: HierarchicalGaussian | Posterior, logs: LoggedData) -> None:
    """Refuse a reward model with other actions or other features than the logs."""
    if (model.n_actions, model.dim) != (logs.n_actions, logs.dim):
        raise ShapeError(
            f"the reward model has {model.n_actions} actions in {model.dim} dimensions; "
            f"the logs have {logs.n_actions} in {logs.dim}.",
            "Pass n_actions= to LoggedData.",
            flag_remedy="Both need the same catalog.",
        )


def _eligible_rows(eligible: Any, rows: Array) -> Any:
    if isinstance(eligible, list | tuple):
        return [eligible[i] for i in rows]
    if sparse.issparse(eligible):
        return sparse.csr_array(eligible)[rows]
    # One mask for all rows stays as it is.
    shared = isinstance(eligible, np.ndarray) and eligible.ndim == 1 and eligible.dtype.kind == "b"
    return eligible if shared else eligible[rows]
