"""The checked estimate: the posterior's value, corrected by the residuals of held-out rounds as far as they can tell.

The model says V(π) = M. Where the model is wrong, V(π) = M + b. Two sources tell how large b is:

- The log: the weighted mean of the residuals r - r̂ estimates b, with an error that the weights determine. Before, a
  trend of the residuals is added to the model (see `surprise_trend`): it tells what the logging policy knew.
- The model's own record: how far it is off on test policies that the log can check (see `model_error`), and how much
  it takes back about a policy that its own rounds chose (see `selection_doubt`).

Both are joined by Bayes' rule on a grid of values. With good overlap the log decides, and the answer is that of doubly
robust estimation. Without overlap only the model and its record remain, and the interval says so by its width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from manyarms._base.checks import Array, as_count, as_flag, as_instance, as_scalar, as_text, check_overflow
from manyarms.core import Estimate, LoggedData, Policy, any_shared
from manyarms.core.estimate import NormalMixture
from manyarms.core.logged_data import COLUMNS
from manyarms.estimators.estimator import Estimator, check_target
from manyarms.estimators.logging_policy import propensities_of
from manyarms.estimators.model_error import OF_CLICKS, USUAL, ModelError
from manyarms.estimators.policy_residuals import PolicyResiduals
from manyarms.estimators.reward_model import CrossFit, CrossUpdate, FittedModel, RewardModel
from manyarms.estimators.selection_doubt import SelectionDoubt
from manyarms.estimators.surprise_trend import SurpriseTrend
from manyarms.estimators.value_on_grid import PriorSide, ResidualEvidence, value_on_grid
from manyarms.estimators.weight_diagnostics import Thresholds, diagnostic_warnings
from manyarms.linalg.threads import one_blas_thread
from manyarms.posterior import RewardPosterior
from manyarms.posterior.action_scores import LinearScores
from manyarms.posterior.posterior import Posterior


@dataclass(frozen=True)
class _Prepared:
    """Parts that all policies on one log share: the model's predictions of logged rewards, and how far they are off."""

    rounds: PolicyResiduals
    trend: SurpriseTrend
    model: RewardModel
    propensities: Float[Array, " n"]
    estimated: dict[str, float]
    scale: float | None
    least_scale: float
    posterior: Posterior

    @property
    def logs(self) -> LoggedData:
        return self.rounds.logs

    @cached_property
    def informed(self) -> Posterior:
        """The posterior given these rounds too, where the model that predicts them learns from them."""
        return self.model.posterior.update(self.logs) if isinstance(self.model, CrossUpdate) else self.posterior

    @cached_property
    def doubt(self) -> SelectionDoubt | None:
        """The doubt about policies that the rounds of the posterior chose; None where the scale of errors is fixed.

        A posterior that learns nothing from these rounds takes nothing back.
        """
        known = self.scale is not None or not isinstance(self.model, CrossUpdate)
        return None if known else SelectionDoubt(self.posterior, self.informed)

    @property
    def may_be_right(self) -> bool:
        """False where the trend shows that the model is wrong, and model and trend together are no model that could be.

        A straight line added to a linear model is a linear model with one more feature, which may be right. Added to a
        click rate it is not: it can lead out of [0, 1], and a model of clicks has no feature that would do the same.
        If the propensities are estimated, a trend may also show that these are wrong, which no feature mends.
        """
        return self.trend.slope == 0.0 or (self.is_linear and not self.is_estimated)

    @property
    def is_linear(self) -> bool:
        """True where expected rewards are linear in the contexts."""
        return isinstance(self.posterior.expected_rewards, LinearScores)

    @property
    def is_estimated(self) -> bool:
        """True where the propensities are estimated."""
        return any(self.estimated.values())

    def reasons(self, policy: PolicyResiduals) -> float | None:
        """The extent to which hidden reasons flatter a policy, from 0 to 1; None where the residuals cannot tell.

        They cannot if propensities, and so surprises, are estimated, or if the model's own choices are not doubted.
        """
        can_tell = self.is_linear and not self.is_estimated and isinstance(self.model, CrossUpdate)
        return self.trend.flatters(policy) if can_tell else None

    @cached_property
    def error(self) -> ModelError:
        return _model_error([self], self.rounds, self.propensities)


@dataclass(frozen=True)
class _Comparison:
    """A policy on the rounds of a log, alone or against a baseline, with what the model says of it.

    Attributes:
        policy: The policy on these rounds.
        baseline: The baseline on these rounds; None for the value of the policy alone.
        spread: The posterior standard deviation of the value or the gain.
        doubts: The standard deviations, downwards and upwards, of the error that the model's own choice reveals.
        reasons: How far hidden reasons flatter the policy, from 0 to 1; None if that is not known.
        figures: Diagnostics that the model, the propensities and the fingerprints give.
        warnings: The warnings of the model.
        is_pooled: True if the model has learned from the same rounds that evaluate it, one part from the other.
        is_learned: True if the policy was learned from a log, so that it knows nothing that no log can show.
    """

    policy: PolicyResiduals
    baseline: PolicyResiduals | None
    spread: float
    doubts: tuple[float, float]
    reasons: float | None
    figures: dict[str, float]
    warnings: tuple[str, ...]
    is_learned: bool
    is_pooled: bool = False

    @classmethod
    def join(cls, parts: Sequence[_Comparison], logs: LoggedData) -> _Comparison:
        """Several parts of a log as one, `logs`: each keeps its own policy and its own model."""
        sizes = np.array([part.policy.counts.sum() for part in parts])
        shares = sizes / sizes.sum()
        baselines = [part.baseline for part in parts if part.baseline is not None]
        downwards, upwards = zip(*(part.doubts for part in parts), strict=True)
        reasons = [part.reasons for part in parts if part.reasons is not None]
        figures = {
            # A flag of one part is a flag of all; other figures are means over rounds.
            name: float(max(values)) if name in _FLAGS else _mean(shares, values)
            for name in parts[0].figures
            if len(values := [part.figures[name] for part in parts if name in part.figures]) == len(parts)
        }
        return cls(
            policy=PolicyResiduals.join([part.policy for part in parts], logs),
            baseline=PolicyResiduals.join(baselines, logs) if baselines else None,
            # The models of the parts have the same form and err alike, so their errors count as fully correlated: the
            # standard deviation of the mean is the mean of the standard deviations. This can only be too wide.
            spread=_mean(shares, [part.spread for part in parts]),
            doubts=(_mean(shares, downwards), _mean(shares, upwards)),
            reasons=max(reasons) if len(reasons) == len(parts) else None,
            figures=figures,
            warnings=tuple(dict.fromkeys(text for part in parts for text in part.warnings)),
            is_learned=all(part.is_learned for part in parts),
            is_pooled=True,
        )


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
        least_scale: The least that this share can be, however well the log agrees with the model. A backtest observes
            one: `ma.backtest(...).discrepancy` is how far off the days that followed were.
        n_folds: The model also learns from the logs of the estimate, except for the fold that it predicts. 0 leaves the
            posterior as it is, which saves this many fits.
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
        least_scale: float = 0.0,
        n_folds: int = 5,
        seen: bool | None = None,
        name: str = "checked",
        thresholds: Thresholds | None = None,
    ):
        self.posterior = as_instance("posterior", posterior, Posterior, "what ma.fit returned")
        self.scale = None if scale is None else as_scalar("scale", scale, at_least=0.0, below=1e100)
        self.least_scale = as_scalar("least_scale", least_scale, at_least=0.0, below=1e100)
        self.n_folds = as_count("n_folds", n_folds, minimum=0)
        self.seen = None if seen is None else as_flag("seen", seen)
        # All policies of one evaluation share the model and the propensities of its logs.
        self._prepared: _Prepared | None = None
        self.name = as_text("name", name)
        given = Thresholds() if thresholds is None else thresholds
        self.thresholds = as_instance("thresholds", given, Thresholds, "Thresholds()")

    def estimate(self, policy: Policy, logs: LoggedData, *, eligible: Any = None) -> Estimate:
        """The value of a policy. Its diagnostics show the parts: model, correction, discrepancy, residual error."""
        policy = check_target(policy, logs)
        prepared = self._prepare(logs, policy, eligible)
        model = self.posterior.value(policy, logs.contexts, eligible=eligible, weights=logs.weights)
        return self._checked(self._compare(policy, None, model, prepared, eligible), prepared.error)

    def difference(self, policy: Policy, baseline: Policy, logs: LoggedData, *, eligible: Any = None) -> Estimate:
        """The value of a policy minus that of a baseline, such as `Logged(logs)`, paired on rounds and residuals.

        Args:
            policy: The candidate.
            baseline: The policy that it is compared with.
            logs: Logged rounds, best those that neither model nor candidate was learned from.
            eligible: The actions that both may choose in each round; None for all.
        """
        comparison, prepared = self._against(policy, baseline, logs, eligible)
        return self._checked(comparison, prepared.error)

    def _against(
        self, policy: Policy, baseline: Policy, logs: LoggedData, eligible: Any = None, *, informed: bool = False
    ) -> tuple[_Comparison, _Prepared]:
        """A policy against a baseline, and the parts that it shares with other policies.

        With `informed`, the posterior standard deviation is that of the model given these rounds too, if it learns from
        them.
        """
        policy, baseline = (check_target(side, logs) for side in (policy, baseline))
        prepared = self._prepare(logs, policy, eligible)
        posterior = prepared.informed if informed else self.posterior
        model = posterior.difference(policy, baseline, logs.contexts, eligible=eligible, weights=logs.weights)
        return self._compare(policy, baseline, model, prepared, eligible), prepared

    def _prepare(self, logs: LoggedData, policy: Policy, eligible: Any) -> _Prepared:
        """Prepare the parts that all policies share on these logs; the first policy asks the model for predictions."""
        if self._prepared is None or self._prepared.logs is not logs:
            model = self._model(logs)
            propensities, estimated = propensities_of(logs)
            at_logged, _ = model.predict(policy, logs, eligible)
            rounds = PolicyResiduals(logs, np.ones(len(logs)), at_logged, at_logged)
            trend = _trend(rounds, propensities)
            self._prepared = _Prepared(
                trend.corrected(rounds), trend, model, propensities, estimated, self.scale, self.least_scale,
                posterior=self.posterior,
            )  # fmt: skip
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
        return prepared.trend.corrected(PolicyResiduals(logs, weights, at_logged, expected))

    def _compare(
        self, policy: Policy, baseline: Policy | None, model: Estimate, prepared: _Prepared, eligible: Any
    ) -> _Comparison:
        """The policy against the baseline, given the model's value or gain."""
        logs = prepared.logs
        reused = self._has_seen(logs) or any_shared(policy.learned_from, (logs.fingerprint,))
        residuals = self._residuals(policy, prepared, eligible)
        return _Comparison(
            policy=residuals,
            baseline=None if baseline is None else self._residuals(baseline, prepared, eligible),
            spread=model.std if model.posterior_std is None else model.posterior_std,
            doubts=self._doubts(policy, baseline, prepared, eligible),
            reasons=prepared.reasons(residuals),
            figures={
                **{key: model.diagnostics[key] for key in _MODEL_FIGURES if key in model.diagnostics},
                **({} if policy.repeats_log else prepared.estimated),
                "evaluated_on_training_rounds": float(reused),
            },
            warnings=model.warnings,
            is_learned=bool(policy.learned_from),
        )

    def _doubts(
        self, policy: Policy, baseline: Policy | None, prepared: _Prepared, eligible: Any
    ) -> tuple[float, float]:
        """The doubt about the model, downwards and upwards, if its own rounds chose the policy or the baseline."""
        sides = (policy,) if baseline is None else (policy, baseline)
        if not any(any_shared(side.learned_from, self.posterior.learned_from) for side in sides):
            return 0.0, 0.0
        doubt = prepared.doubt
        return (0.0, 0.0) if doubt is None else doubt.stds(policy, baseline, prepared.logs, eligible)

    def _errors(self, comparison: _Comparison, error: ModelError) -> tuple[ModelError, ModelError]:
        """The error of the model for this policy, downwards and upwards. A scale that is fixed is that of all."""
        if self.scale is not None:
            return error, error
        if not comparison.is_learned:
            return error, error.at_least(USUAL)
        below = error if comparison.reasons is None else error.downwards(comparison.reasons)
        return below.at_least(self.least_scale), error

    @one_blas_thread()
    def _checked(self, comparison: _Comparison, error: ModelError) -> Estimate:
        residuals, errors, doubts = comparison.policy, self._errors(comparison, error), comparison.doubts
        spread = float(np.hypot(comparison.spread, max(doubts)))
        sides, doubtful = (PriorSide.pair(std, doubts, errors) for std in (comparison.spread, 0.0))
        with np.errstate(over="ignore", invalid="ignore"):
            evidence = ResidualEvidence.collect(residuals, comparison.baseline, error, spread)
        figures = (evidence.model, evidence.baseline, evidence.inverse_size, evidence.spread, evidence.context_error)
        if comparison.is_pooled:
            evidence, sides = evidence.of_learned_rounds(comparison.spread), doubtful
        check_overflow("weights, rewards or their squares", np.array(figures))
        result = value_on_grid(evidence, *sides)
        median, offset = result.median, evidence.baseline
        more = value_on_grid(evidence.with_more_rounds(2.0, median), *sides)
        unchecked = value_on_grid(replace(evidence, observed=None, context_error=0.0), *doubtful)
        diagnostics = {
            **comparison.figures,
            "mean_weight": residuals.mean_weight,
            "effective_sample_size": evidence.effective_size,
            "model": evidence.model - offset,
            "correction": median - evidence.model,
            "discrepancy": unchecked.std,
            "error_scale": error.scale,
            "residual_error": float(np.sqrt(evidence.variance(np.array([median]))[0])),
            "std_with_twice_the_rounds": more.std,
        }
        return Estimate(
            value=median - offset,
            std=result.std,
            kind="checked",
            method="quadrature",
            diagnostics=diagnostics,
            warnings=tuple(dict.fromkeys([*comparison.warnings, *self._warnings(diagnostics)])),
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


def checked_value_parts(
    checked: Checked, policy: Policy, logs: LoggedData
) -> tuple[PolicyResiduals, PolicyResiduals, ModelError]:
    """The parts of a checked value: the residuals of a policy and of the current one, and the model's error."""
    check_target(policy, logs)
    prepared = checked._prepare(logs, policy, None)
    return checked._residuals(policy, prepared, None), prepared.rounds, prepared.error


def pooled_difference(parts: Sequence[tuple[Checked, Policy, Policy, LoggedData]]) -> Estimate:
    """The checked gain over all rounds of a log, where each part weighs its own policy and predicts by its own model.

    This is for policies and models that were learned from the other parts. The parts are joined to one set of rounds,
    from which one model error is learned and one gain computed. Two intervals, averaged as if they were independent,
    would be too narrow, since the models of all parts err alike. The gain is that of a mixture: each policy acts in the
    share of the rounds that evaluate it.

    Every round has taught one model and evaluates another. So the residuals do not narrow what the posteriors are
    unsure of, as they do in `Checked.difference`: they only tell how wrong the models are.

    Args:
        parts: For each part a `Checked` of its model, its policy, the baseline on its rounds, and its rounds. No group
            may be in two parts, and all need the same scales. Propensities are estimated in each part by itself.
    """
    pairs = [checked._against(policy, baseline, logs, informed=True) for checked, policy, baseline, logs in parts]
    logs = _join_logs([logs for _, _, _, logs in parts])
    joined = _Comparison.join([comparison for comparison, _ in pairs], logs)
    rounds = PolicyResiduals.join([prepared.rounds for _, prepared in pairs], logs)
    propensities = np.concatenate([prepared.propensities for _, prepared in pairs])
    return parts[0][0]._checked(joined, _model_error([prepared for _, prepared in pairs], rounds, propensities))


def scaled(estimate: Estimate, factor: float) -> Estimate:
    """A multiple of a checked estimate."""
    shape = estimate.shape
    if isinstance(shape, NormalMixture):
        shape = replace(shape, means=shape.means * factor, stds=shape.stds * factor)
    return replace(estimate, value=estimate.value * factor, std=estimate.std * factor, shape=shape)


def _join_logs(parts: Sequence[LoggedData]) -> LoggedData:
    """The rounds of several parts of one log, one part after the other."""
    columns = {name: [getattr(part, name) for part in parts] for name in COLUMNS}
    joined = {name: None if column[0] is None else np.concatenate(column) for name, column in columns.items()}
    return LoggedData.checked(joined, parts[0].n_actions, parts[0].features, parts[0].catalog)


# Threads of BLAS would add up sums over rounds in another order, and change last digits.
@one_blas_thread()
def _trend(rounds: PolicyResiduals, propensities: Float[Array, " n"]) -> SurpriseTrend:
    """The trend of the residuals with surprise, if test policies speak for it; else none."""
    trend = SurpriseTrend.learn(rounds, propensities)
    plain, corrected = (ModelError.learn(side, propensities) for side in (rounds, trend.corrected(rounds)))
    return trend if corrected.log_evidence > plain.log_evidence else replace(trend, slope=0.0, trust=0.0)


@one_blas_thread()
def _model_error(parts: Sequence[_Prepared], rounds: PolicyResiduals, propensities: Float[Array, " n"]) -> ModelError:
    """The model's error of a given scale, or as the rounds of all parts teach it, but not below the least."""
    scale, least = parts[0].scale, parts[0].least_scale
    if scale is None:
        error = ModelError.learn(rounds, propensities, may_be_right=all(part.may_be_right for part in parts))
        error = error if all(part.is_linear for part in parts) else error.times(OF_CLICKS)
    else:
        error = ModelError.fixed(scale)
    return error.at_least(least) if least > 0 else error


def _mean(shares: Float[Array, " p"], values: Sequence[float]) -> float:
    return float(shares @ np.array(values))


_MODEL_FIGURES = ("unsupported_mass", "prior_share")
_FLAGS = ("estimated_propensities", "evaluated_on_training_rounds")
