"""The checked estimate: the posterior's value, corrected by the residuals of held-out rounds as far as they can tell.

The model says V(π) = M. Where the model is wrong, V(π) = M + b. Two sources tell how large b is:

- The log: the weighted mean of the residuals r - r̂ estimates b, with an error that the weights determine.
- The model's own record: how far it is off on test policies that the log can check (see `model_error`).

Both are joined by Bayes' rule on a grid of values. With good overlap the log decides, and the answer is that of doubly
robust estimation. Without overlap only the model and its record remain, and the interval says so by its width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, as_count, as_flag, as_instance, as_scalar, as_text, check_overflow
from manyarms.core import Estimate, LoggedData, Policy, any_shared
from manyarms.estimators.estimator import Estimator, check_target
from manyarms.estimators.logging_policy import propensities_of
from manyarms.estimators.model_error import USUAL, ModelError
from manyarms.estimators.policy_residuals import PolicyResiduals
from manyarms.estimators.reward_model import CrossFit, CrossUpdate, FittedModel, RewardModel
from manyarms.estimators.value_on_grid import ResidualEvidence, value_on_grid
from manyarms.estimators.weight_diagnostics import Thresholds, diagnostic_warnings
from manyarms.linalg.threads import one_blas_thread
from manyarms.posterior import RewardPosterior
from manyarms.posterior.posterior import Posterior


@dataclass(frozen=True)
class _Prepared:
    """Parts that all policies on one log share: the model's predictions of logged rewards, and how far they are off."""

    rounds: PolicyResiduals
    model: RewardModel
    propensities: Float[Array, " n"]
    estimated: dict[str, float]
    error: ModelError

    @property
    def logs(self) -> LoggedData:
        return self.rounds.logs


class Checked(Estimator):
    """The value of a policy by a posterior, corrected by held-out residuals.

    V(π) = M + b, where M is the model's value and b its error for this policy. The prior of M + b is centred on the
    model; its spread joins the posterior standard deviation and heavy-tailed errors, whose scale is learned from the
    log. Both vanish where the policy does what was logged. The self-normalised mean of the weighted residuals measures
    b.

    A policy from another source may know what no log can show. A model then says too little of it, so that b may be
    large upwards even where the model is right. Policies that were learned from a log have no such knowledge.

    Args:
        posterior: The model, ideally fitted on other rounds than those of the estimate. If it has seen these rounds, it
            is fitted again without each fold of them, from its own prior.
        scale: How far the model is off, as a share of the value; 0 trusts it but for the residuals. None to learn it
            from the log.
        n_folds: The model also learns from the logs of the estimate, except for the fold that it predicts. 0 leaves the
            posterior as it is, which saves this many fits. By default 5 where a fit is a single solve, else 0.
        seen: True if the posterior has seen the rounds of the estimate. By default their fingerprints tell.
        name: The name that tables and reports use.
        thresholds: Limits of the diagnostics beyond which the estimate warns.

    Examples:
        >>> import numpy as np
        >>> import manyarms as ma
        >>> rng = np.random.default_rng(0)
        >>> actions = rng.integers(3, size=600)
        >>> rewards = np.array([0.0, 1.0, 3.0])[actions] + rng.normal(size=600)
        >>> logs = ma.LoggedData(np.ones((600, 1)), actions, rewards, propensities=np.full(600, 1 / 3))
        >>> train, test = logs.split(0.5, rng=rng)
        >>> posterior = ma.fit(train, ma.priors.independent(3, dim=1))
        >>> gain = ma.Checked(posterior).difference(ma.Greedy(posterior), ma.Logged(test), test)
        >>> gain.probability_positive > 0.999
        True
    """

    def __init__(
        self,
        posterior: Posterior,
        *,
        scale: float | None = None,
        n_folds: int | None = None,
        seen: bool | None = None,
        name: str = "checked",
        thresholds: Thresholds | None = None,
    ):
        self.posterior = as_instance("posterior", posterior, Posterior, "what ma.fit returned")
        self.scale = None if scale is None else as_scalar("scale", scale, at_least=0.0, below=1e100)
        is_exact = isinstance(posterior, RewardPosterior) and posterior.likelihood.treatment == "exact"
        self.n_folds = (5 if is_exact else 0) if n_folds is None else as_count("n_folds", n_folds, minimum=0)
        self.seen = None if seen is None else as_flag("seen", seen)
        # All policies of one evaluation share the model and the propensities of its logs.
        self._prepared: _Prepared | None = None
        self.name = as_text("name", name)
        given = Thresholds() if thresholds is None else thresholds
        self.thresholds = as_instance("thresholds", given, Thresholds, "Thresholds()")

    def estimate(self, policy: Policy, logs: LoggedData, *, eligible: Any = None) -> Estimate:
        """The value of a policy. Its diagnostics show the parts: model, correction, discrepancy, residual error."""
        check_target(policy, logs)
        prepared = self._prepare(logs, policy, eligible)
        model = self.posterior.value(policy, logs.contexts, eligible=eligible, weights=logs.weights)
        return self._checked(policy, self._residuals(policy, prepared, eligible), None, model, prepared)

    def difference(self, policy: Policy, baseline: Policy, logs: LoggedData, *, eligible: Any = None) -> Estimate:
        """The value of a policy minus that of a baseline, such as `Logged(logs)`, paired on rounds and residuals.

        Args:
            policy: The candidate.
            baseline: The policy that it is compared with.
            logs: Logged rounds, best those that neither model nor candidate was learned from.
            eligible: The actions that both may choose in each round; None for all.
        """
        for side in (policy, baseline):
            check_target(side, logs)
        prepared = self._prepare(logs, policy, eligible)
        model = self.posterior.difference(policy, baseline, logs.contexts, eligible=eligible, weights=logs.weights)
        residuals, before = (self._residuals(side, prepared, eligible) for side in (policy, baseline))
        return self._checked(policy, residuals, before, model, prepared)

    def _prepare(self, logs: LoggedData, policy: Policy, eligible: Any) -> _Prepared:
        """Prepare the parts that all policies share on these logs; the first policy asks the model for predictions."""
        if self._prepared is None or self._prepared.logs is not logs:
            model = self._model(logs)
            propensities, estimated = propensities_of(logs)
            at_logged, _ = model.predict(policy, logs, eligible)
            rounds = PolicyResiduals(logs, np.ones(len(logs)), at_logged, at_logged)
            # Threads of BLAS would add up sums over rounds in another order, and change last digits.
            with one_blas_thread():
                scale = self.scale
                error = ModelError.learn(rounds, propensities) if scale is None else ModelError.fixed(scale)
            self._prepared = _Prepared(rounds, model, propensities, estimated, error)
        return self._prepared

    def _model(self, logs: LoggedData) -> RewardModel:
        """A model that has not seen the rounds it predicts."""
        posterior, rng = self.posterior, np.random.default_rng(0)
        if not isinstance(posterior, RewardPosterior):
            return FittedModel(posterior)
        if self._has_seen(logs):
            return CrossFit(posterior.prior, posterior.likelihood, n_folds=max(self.n_folds, 2), rng=rng)
        return CrossUpdate(posterior, n_folds=self.n_folds, rng=rng) if self.n_folds > 1 else FittedModel(posterior)

    def _has_seen(self, logs: LoggedData) -> bool:
        return any_shared(self.posterior.learned_from, (logs.fingerprint,)) if self.seen is None else self.seen

    def _residuals(self, policy: Policy, prepared: _Prepared, eligible: Any) -> PolicyResiduals:
        """The policy on these rounds."""
        logs = prepared.logs
        if policy.repeats_log:
            return prepared.rounds
        at_logged, expected = prepared.model.predict(policy, logs, eligible)
        weights = policy.probability_of(logs.contexts, logs.actions, eligible=eligible) / prepared.propensities
        return PolicyResiduals(logs, weights, at_logged, expected)

    @one_blas_thread()
    def _checked(
        self, policy: Policy, residuals: PolicyResiduals, baseline: PolicyResiduals | None, model: Estimate,
        prepared: _Prepared,
    ) -> Estimate:  # fmt: skip
        error = prepared.error
        # Whoever fixes the scale fixes it for every policy.
        above = error if self.scale is not None or policy.learned_from else error.at_least(USUAL)
        spread = model.std if model.posterior_std is None else model.posterior_std
        with np.errstate(over="ignore", invalid="ignore"):
            evidence = ResidualEvidence.collect(residuals, baseline, error, spread)
        figures = (evidence.model, evidence.baseline, evidence.inverse_size, evidence.spread, evidence.context_error)
        check_overflow("weights, rewards or their squares", np.array(figures))
        result = value_on_grid(evidence, spread, error, above)
        median, offset = result.median, evidence.baseline
        more = value_on_grid(evidence.with_more_rounds(2.0, median), spread, error, above)
        unchecked = value_on_grid(replace(evidence, observed=None, context_error=0.0), 0.0, error, above)
        reused = self._has_seen(residuals.logs) or any_shared(policy.learned_from, (residuals.logs.fingerprint,))
        diagnostics = {
            **{key: model.diagnostics[key] for key in ("unsupported_mass", "prior_share") if key in model.diagnostics},
            **({} if policy.repeats_log else prepared.estimated),
            "mean_weight": residuals.mean_weight,
            "effective_sample_size": evidence.effective_size,
            "model": evidence.model - offset,
            "correction": median - evidence.model,
            "discrepancy": unchecked.std,
            "error_scale": error.scale,
            "residual_error": float(np.sqrt(evidence.variance(np.array([median]))[0])),
            "std_with_twice_the_rounds": more.std,
            "evaluated_on_training_rounds": float(reused),
        }
        return Estimate(
            value=median - offset,
            std=result.std,
            kind="checked",
            method="quadrature",
            diagnostics=diagnostics,
            warnings=tuple(dict.fromkeys([*model.warnings, *self._warnings(diagnostics)])),
            shape=replace(result.shape, means=result.shape.means - offset),
        )

    def _warnings(self, diagnostics: dict[str, float]) -> tuple[str, ...]:
        """Warnings that the width of the interval does not already express."""
        kept = ("unsupported_mass", "mean_weight", "evaluated_on_training_rounds", "estimated_propensities")
        warnings = diagnostic_warnings({k: v for k, v in diagnostics.items() if k in kept}, self.thresholds)
        if diagnostics["effective_sample_size"] >= 1.0:
            return warnings
        text = "the log has no rounds like the policy's choices, so it cannot check the model for this policy"
        return (*warnings, f"{text}: the interval rests on how far models are usually off.")
