"""`ma.decide`: evaluates policies, recommends one, and collects the evidence that `ma.write_report` shows."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from typing import Any

import numpy as np

from manyarms._base.checks import Array, as_instance, as_scalar
from manyarms._base.progress import Progress
from manyarms._version import __version__
from manyarms.core import (
    Catalog,
    Estimate,
    Fingerprint,
    LoggedData,
    Policy,
    any_shared,
    as_column,
    html_table,
    with_own_features,
)
from manyarms.core.labels import is_missing
from manyarms.decision import decision_evidence as evidence
from manyarms.decision.decision_checks import Check, cautions, check_log, checks_by_category, doubts, model_checks
from manyarms.decision.diagnostic_lights import Diagnostic, diagnose
from manyarms.decision.guardrail import Guardrail, GuardrailResult, check_guardrails, held_out_parts
from manyarms.decision.plan import Plan, plan_next_step
from manyarms.decision.propose import propose
from manyarms.decision.recommendation import SURE, Recommendation, recommend, sure_of
from manyarms.decision.ship_to_some import ShipToSome, ship_to_some
from manyarms.errors import InputError
from manyarms.estimators.estimator import Estimator
from manyarms.estimators.hidden_cause import HiddenCause, hidden_cause
from manyarms.jobs import Evaluation, evaluate
from manyarms.jobs.backtest_result import Backtest
from manyarms.jobs.evaluate import warning_text
from manyarms.jobs.open_policies import PolicySource, open_in_memory
from manyarms.jobs.segments import segment_labels
from manyarms.likelihoods import Likelihood
from manyarms.policies import Logged
from manyarms.policies.column_policy import ColumnPolicy
from manyarms.policies.given_policy import GivenPolicy
from manyarms.posterior import RewardPosterior
from manyarms.posterior.misfit import PriorCheck
from manyarms.posterior.model_line import model_line
from manyarms.posterior.posterior import Posterior
from manyarms.prior_checks.check_categories import CategoryChecks
from manyarms.prior_learning.averaged_posterior import AveragedPosterior
from manyarms.prior_learning.compare_priors import PriorComparison

MANY_POLICIES = 20
"""With more policies than this, not every pair is compared."""
BLIND_SPOTS = (
    "Self-selection: if users chose what was logged, as with ratings that they chose to give, then rounds that were "
    "not logged may have different rewards. Only randomly assigned traffic can reveal this.",
    "Hidden causes: if something outside the context columns influenced both the logged choice and the reward, the "
    "model and importance weights from estimated propensities are both wrong. Weights from logged propensities remain "
    "valid, but may be too noisy to reveal the error.",
    "Change over time: the estimates assume that the coming weeks will be like these rounds.",
)
"""What the checks cannot rule out, even if all of them pass."""
UNCHECKED = (
    "No other estimator checked the model: the logs have no propensities. To check it with estimated propensities,"
)
"""The beginning of the note on a missing check; how to get it differs between Python and the commands."""


@dataclass(frozen=True, repr=False)
class Decision(Recommendation):
    """The decision that `decide` returns: its recommendation, with the evidence.

    Attributes:
        verdict: "ship" a policy; "keep" the current policy; "undecided"; "estimated" where there is no model and
            estimators alone gave values; "nothing" when there is no candidate.
        policy: The policy that the verdict is about; empty when it is about none.
        sentence: The verdict in one sentence.
        reason: The evidence for the verdict.
        next_step: What to do next, in one sentence.
        cautions: What speaks against the verdict, without full stops.
        evaluation: The values of all policies, according to the model and to every estimator.
        diagnostics: Figures that show how far the estimates can be trusted, as traffic lights.
        support: Logged rounds and choices by category; None without categories.
        shrinkage: Own means and expected rewards of single actions; None unless the model is a `RewardPosterior`.
        traffic_changes: The actions whose traffic changes most under `policy`; None when the verdict is about none.
        prior_check: The spread of the rewards against prior and noise; None unless the model is a `RewardPosterior`.
        category_checks: Checks of the posterior's expected rewards by category; None where they could not be made.
        calibration: Expected and observed rewards; None without a model.
        omitted: The parts that are missing, with the reason for each.
        made_with: Software versions, sizes, time and command; also the split of the rounds and the prior, where the
            model was learned here.
        candidates: The policies to use by name, for example to save the one to ship. Where halves of the log were
            swapped, they were made from all rounds.
        prior_comparison: The priors that were compared to learn the model; None where the model was given.
        checks: The six checks behind the verdict, including those that could not be run.
        guardrails: Every policy against every guardrail.
        backtest: The last forecasts beside what happened, if they were given.
        plan: Where the verdict is "undecided": the rounds that would settle it. None where no plan was possible.
        hidden_cause: The strength of a hidden cause that would overturn the model's gain of `policy`; None unless the
            model is a `RewardPosterior` with Gaussian rewards.
        unit: The unit of the reward, such as "euros"; empty where none was given.
        sure: The probability of a gain that a policy needs to be shipped.
        ship_to_some: The gain of following `policy` only in the segments in which it is better; None without segments.
    """

    evaluation: Evaluation
    diagnostics: tuple[Diagnostic, ...]
    support: evidence.Support | None
    shrinkage: evidence.Shrinkage | None
    traffic_changes: evidence.TrafficChanges | None
    prior_check: PriorCheck | None
    category_checks: CategoryChecks | None
    calibration: evidence.Calibration | None
    omitted: tuple[str, ...]
    made_with: Mapping[str, str] = field(default_factory=dict[str, str])
    candidates: Mapping[str, Policy] = field(default_factory=dict[str, Policy])
    prior_comparison: PriorComparison | None = None
    checks: tuple[Check, ...] = ()
    guardrails: tuple[GuardrailResult, ...] = ()
    backtest: Backtest | None = None
    plan: Plan | None = None
    hidden_cause: HiddenCause | None = None
    ship_to_some: ShipToSome | None = None
    unit: str = ""
    sure: float = SURE

    @property
    def cannot_see(self) -> tuple[str, ...]:
        """Mistakes that the checks cannot rule out, even if all of them pass."""
        return BLIND_SPOTS

    @property
    def checks_summary(self) -> str:
        """The checks in a few words, such as "4 of 6 checks passed, 1 failed, 1 not run"."""
        counts = {word: sum(check.outcome == word for check in self.checks) for word in ("failed", "not run")}
        passed = len(self.checks) - sum(counts.values())
        others = "".join(f", {count} {word}" for word, count in counts.items() if count)
        return f"{passed} of {len(self.checks)} checks passed{others}"

    @property
    def segment_sentences(self) -> tuple[str, ...]:
        """Who wins and who loses under `policy`, and the gain of shipping it to some; empty without segments."""
        segments = self.evaluation.segments
        if segments is None or self.policy not in segments.summaries:
            return ()
        return (segments.sentence(self.policy), *([] if self.ship_to_some is None else [self.ship_to_some.sentence]))

    @property
    def gains(self) -> dict[str, Estimate]:
        """The gain of each policy over the current one, on which the verdict is based; empty without a model."""
        return {row.name: row.gain for row in self.evaluation.policies if row.gain is not None}

    @property
    def probability(self) -> float | None:
        """The probability that `policy` beats the current policy; None without a model."""
        gain = self.gains.get(self.policy)
        return None if gain is None else gain.probability_positive

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of all estimates, each once: first those that all policies share."""
        policies, n = self.evaluation.policies_by_warning, len(self.evaluation.rows)
        shared = [warning_text("", *warning) for warning, names in policies.items() if len(names) == n]
        own = [warning_text(", ".join(names), *warning) for warning, names in policies.items() if len(names) < n]
        return (*shared, *own)

    def as_json(self) -> dict[str, Any]:
        """The whole decision as plain values."""
        names = [
            *(entry.name for entry in fields(self) if entry.name != "candidates"),
            *("gains", "probability", "warnings", "cannot_see"),
        ]
        choices = {"probability_best": self.evaluation.probability_best, "expected_loss": self.evaluation.expected_loss}
        return {**{name: _json_value(getattr(self, name)) for name in names}, **choices}

    def __repr__(self) -> str:
        evaluation = self.evaluation
        return f"Decision({evaluation.gain_rounds:,} rounds, {len(evaluation.policies)} policies: {self.sentence})"

    def _repr_html_(self) -> str:
        return f"{html_table(self.evaluation.records(), caption=self.sentence)}<p>{escape(self.reason)}</p>"

    def __str__(self) -> str:
        advised = self.verdict != "undecided" or self.next_step in self.reason
        return f"{self.sentence} {self.reason}" if advised else f"{self.sentence} {self.reason} {self.next_step}"


def decide(
    policies: Mapping[str, PolicySource] | None,
    logs: LoggedData,
    posterior: Posterior | None = None,
    *,
    estimators: Sequence[Estimator] = (),
    categories: Any = None,
    truth: Mapping[str, float] | None = None,
    true_rewards: Any = None,
    likelihood: Likelihood | None = None,
    sure: float | None = None,
    guardrails: Sequence[Guardrail] = (),
    backtest: Backtest | None = None,
    swap: bool = True,
    averaged: bool = False,
    segments: Any = None,
    unit: str = "",
    contexts: Any = None,
    fingerprints: tuple[Fingerprint, ...] = (),
    notes: Mapping[str, str] | None = None,
    progress: Progress = False,
) -> Decision:
    """Evaluate policies and recommend whether to ship one of them; `write_report` turns the result into a page.

    Parts that the arguments do not allow (no model, no categories, no propensities) are left out and listed in
    `Decision.omitted`.

    Args:
        policies: The candidates by name, as in `evaluate`. Without a posterior and estimators, a model is learned from
            one half of the logs and used on the other half (`decision.propose`): the earlier and the later half if the
            logs have times, else random halves of the groups, else of the rounds. Policies that are named, such as
            "greedy", are then learned from one half as well, and None stands for greedy, pessimistic and softmax. The
            policies are in `Decision.candidates`, and `made_with` says how the rounds were split.
        logs: Rounds to evaluate on, ideally held out from the fit of the posterior and of the policies.
        posterior: The model, any `Posterior`; None to use estimators alone.
        estimators: Estimators that check the model with the logged rewards.
        categories: (K,) the category labels of the actions; None for those of the catalog.
        truth: The true value of each policy by name, and of "logged", in a simulation.
        true_rewards: (n,) the true mean reward of each logged round, in a simulation.
        likelihood: The likelihood of the rewards, for the model that is learned where `policies` is None.
        sure: The probability of beating the current policy that a policy needs to be shipped: at least 0.5, below 1.
            None for 0.9, or 0.975 if propensities are estimated or a gain is not checked: then probabilities are less
            cautious.
        guardrails: Other goals that a policy must not harm, each with its reward in every round of `logs`; see
            `Guardrail`. A policy that may break one is not shipped, and the sentence names the goal that blocks it.
        backtest: The result of `ma.backtest`, to show on the page whether the last forecasts were right.
        swap: Where `policies` is None and the halves are random, True also learns from the second half and evaluates on
            the first. Each gain is then the average over two policies, one learned from each half, and
            `Decision.candidates` has policies that were learned in the same way from all rounds. All other figures are
            for the policies learned from the first half, evaluated on the second.
        averaged: Where the model is learned here, True averages it over the priors that the logs allow, as
            `LearnedPrior.averaged` does, so that its intervals include the uncertainty of the learned prior.
        segments: As in `evaluate`: labels of the rounds, such as countries, to show gains by, or the name of a context
            column.
        unit: The unit of the reward, such as "euros", for the page.
        contexts: The rows of `logs` as a table, for policies with a feature map other than that of `logs`.
        fingerprints: Other fingerprints of these rounds, such as those of the files they came from.
        notes: Extra lines for `made_with`, such as the command.
        progress: As in `evaluate`.
    """
    sure, unit = _as_probability("sure", sure), as_instance("unit", unit, str, "a text")
    if backtest is not None:
        as_instance("backtest", backtest, Backtest, "what ma.backtest() returned")
    whole = logs = _with_segments(logs, segments)
    comparison, swapped, candidates = None, None, dict[str, Policy]()
    if policies is None or (posterior is None and not estimators):
        _refuse_by_row(posterior=posterior, truth=truth, true_rewards=true_rewards)
        proposal = propose(
            logs, categories, likelihood, swap=swap, averaged=averaged, policies=policies, contexts=contexts
        )
        policies, posterior, logs = proposal.policies, proposal.posterior, proposal.held_out
        comparison, swapped, candidates = proposal.learned.comparison, proposal.swapped, proposal.candidates
        contexts = None
        chosen = next((note for note in proposal.learned.notes if note.startswith("auto: ")), "as given")
        prior = chosen.removeprefix("auto: ") + ("; averaged over learned priors" if averaged else "")
        notes = {**(notes or {}), "split": proposal.split, "prior": prior}
    policies = open_in_memory(policies, logs, posterior)
    candidates = candidates or policies
    truth = {name: as_scalar(f"truth of {name}", value) for name, value in (truth or {}).items()}
    evaluation = evaluate(
        policies, logs, posterior,
        estimators=estimators, contexts=contexts, fingerprints=fingerprints, pairs=len(policies) <= MANY_POLICIES,
        swapped=swapped, progress=progress,
    )  # fmt: skip
    raw = logs.contexts if contexts is None else contexts
    own = {name: with_own_features(policy, raw, logs.features, name) for name, policy in policies.items()}
    goals = check_guardrails(guardrails, held_out_parts(own, logs, whole, swapped), len(whole), posterior)
    column = as_column("categories", categories, length=logs.n_actions) if categories is not None else None
    if column is None and logs.catalog is not None:
        column = _category_labels(logs.catalog)
    grouped = None if column is None else evidence.Categories(column)
    single = posterior.posterior if isinstance(posterior, AveragedPosterior) else posterior
    model = single if isinstance(single, RewardPosterior) else None
    prior_check = None if model is None else model.check
    calibrated, category_checks, unchecked = None, None, list[str]()
    if posterior is not None:
        held_out = not any_shared(posterior.learned_from, (logs.fingerprint, *fingerprints))
        calibrated = evidence.calibration_evidence(posterior, logs, held_out, truth, true_rewards)
        if model is not None and grouped is not None:
            category_checks, unchecked = checks_by_category(model, logs, column, len(grouped.labels), held_out)
    objections = doubts(prior_check, category_checks)
    # First the policy, then the cautions that depend on where it moves the traffic.
    best = recommend(evaluation, sure=sure, doubts=objections, guardrails=goals).policy
    result = next((row for row in evaluation.policies if row.name == best), None)
    choices = None if result is None else result.choices
    changes = None if choices is None else evidence.traffic_evidence(best, choices, logs, grouped, posterior)
    to_some = None
    if evaluation.segments is not None and result is not None and posterior is not None:
        seen = any_shared(posterior.learned_from, (logs.fingerprint, *fingerprints))
        gains = {row.segment: row.gain.value for row in evaluation.segments.of_policy(best)}
        to_some = ship_to_some(best, own[best], logs, posterior, gains, seen=seen)
    checks = (*check_log(result), *model_checks(evaluation, result, prior_check, category_checks))
    recommendation = recommend(
        evaluation, sure=sure, doubts=objections, cautions=cautions(changes, calibrated, prior_check),
        guardrails=goals, n_failed=sum(check.outcome == "failed" for check in checks),
    )  # fmt: skip
    candidate = None if model is None else own.get(best)
    gain, own_goals = None if result is None else result.gain, [goal for goal in goals if goal.policy == best]
    # A plan is that of the model alone, which is not cautious: it asks for more.
    recommendation, next_rounds = plan_next_step(
        recommendation, model, candidate, logs, sure_of(evaluation, sure), gain, unit, own_goals, sure or SURE
    )
    return Decision(
        **vars(recommendation),
        unit=unit,
        sure=sure_of(evaluation, sure),
        evaluation=evaluation,
        diagnostics=diagnose(evaluation),
        support=None if grouped is None else evidence.support_evidence(evaluation, logs, grouped, posterior),
        shrinkage=None if model is None else evidence.shrinkage_evidence(model, logs, grouped),
        traffic_changes=changes,
        prior_check=prior_check,
        category_checks=category_checks,
        calibration=calibrated,
        omitted=(*_omitted(len(policies), len(estimators), logs, column, single, calibrated), *unchecked),
        made_with={**(notes or {}), **_origins(candidates), **_made_with(logs, posterior)},
        candidates=candidates,
        prior_comparison=comparison,
        ship_to_some=to_some,
        checks=checks,
        guardrails=goals,
        backtest=backtest,
        plan=next_rounds,
        hidden_cause=None if model is None or candidate is None else _hidden_cause(model, candidate, logs),
    )


def _hidden_cause(model: RewardPosterior, policy: Policy, logs: LoggedData) -> HiddenCause | None:
    """The strength of a hidden cause that overturns the gain; None where the gain is not linear in the rewards."""
    if not (model.is_linear and model.likelihood.treatment == "exact"):
        return None
    return hidden_cause(model, policy, Logged(logs), logs.contexts, weights=logs.weights)


def _as_probability(name: str, value: float | None) -> float | None:
    return None if value is None else as_scalar(name, value, at_least=0.5, below=1.0)


def _with_segments(logs: LoggedData, segments: Any) -> LoggedData:
    """The logs with the segments that a user gave."""
    labels = segment_labels(segments, as_instance("logs", logs, LoggedData, "a LoggedData; collect() a stream first"))
    return logs if labels is None or labels is logs.segments else logs.with_segments(labels)


def _refuse_by_row(**arguments: Any) -> None:
    """Refuse arguments that do not go with a log that is split here."""
    for name, value in arguments.items():
        if value is not None:
            raise InputError(
                "cannot be used if no model is given, since the logs are then split to learn one.",
                "Split the logs yourself, learn a model and policies, and pass them.",
                argument=name,
            )


def _omitted(
    n_policies: int, n_estimators: int, logs: LoggedData, column: Any, posterior: Posterior | None,
    calibrated: evidence.Calibration | None,
) -> list[str]:  # fmt: skip
    """The parts that these arguments do not allow, with the reason for each."""
    reasons = {
        f"Pairs of policies were not compared: there are more than {MANY_POLICIES}.": n_policies > MANY_POLICIES,
        "There are no charts by category: the actions have no categories.": column is None,
        f"{UNCHECKED} pass estimators, such as [ma.SNIPS(), ma.DR(posterior)].": (
            logs.propensities is None and not n_estimators
        ),
        "Pairwise probabilities, shrinkage, checks and calibration are missing: they need a model.": posterior is None,
        "Shrinkage and the checks of the prior are missing: they need a model with a single set of weights.": (
            not isinstance(posterior, RewardPosterior | None)
        ),
        "Calibration is missing: the model was fitted on these rounds. Evaluate on held-out rounds.": (
            calibrated is not None and not calibrated.bins
        ),
    }
    return [reason for reason, applies in reasons.items() if applies]


def _origins(policies: Mapping[str, Policy]) -> dict[str, str]:
    """A line on the policies that were made elsewhere."""
    plain = {name: getattr(policy, "policy", policy) for name, policy in policies.items()}
    given = {name: policy for name, policy in plain.items() if isinstance(policy, GivenPolicy)}
    origins = {
        name: f"the picks in column {policy.column}" if isinstance(policy, ColumnPolicy) else repr(policy)
        for name, policy in given.items()
    }
    return {"your policies": "; ".join(f"{name}: {text}" for name, text in origins.items())} if given else {}


def _made_with(logs: LoggedData, posterior: Posterior | None) -> dict[str, str]:
    packages = {"manyarms": __version__, "Python": platform.python_version()}
    packages |= {name: version(name) for name in ("numpy", "scipy", "pyarrow", "altair")}
    return {
        "created": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "evaluated on": f"{len(logs):,} rounds, {logs.n_actions:,} actions, {logs.dim} features",
        **({} if posterior is None else {"model": model_line(posterior)}),
        "versions": ", ".join(f"{name} {release}" for name, release in packages.items()),
    }


def _json_value(value: Any) -> Any:  # noqa: PLR0911  one line for each kind of value
    """Dataclasses, estimates and arrays as JSON values; numbers that are not finite become None."""
    if isinstance(value, Backtest):
        return value.as_json()
    if isinstance(value, GuardrailResult):
        return {**{name: _json_value(part) for name, part in vars(value).items()}, "holds": value.holds}
    if isinstance(value, Estimate):
        figures = {"value": value.value, "std": value.std, "interval_95": value.interval()}
        names = ("probability_positive", "kind", "method", "diagnostics", "warnings")
        return _json_value({**figures, **{name: getattr(value, name) for name in names}})
    if isinstance(value, Plan | HiddenCause):
        return _json_value(value.record())
    if is_dataclass(value) and not isinstance(value, type):
        shown = [entry.name for entry in fields(value) if entry.name != "choices"]
        return {name: _json_value(getattr(value, name)) for name in shown}
    if isinstance(value, Mapping):
        keys = [" over ".join(key) if isinstance(key, tuple) else str(key) for key in value]
        return dict(zip(keys, map(_json_value, value.values()), strict=True))
    if isinstance(value, list | tuple):
        return [_json_value(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return _json_value(value.tolist())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _category_labels(catalog: Catalog) -> Array | None:
    """(K,) the category of each action, or else the top level of its taxonomy; None where there is neither."""
    if catalog.categories is not None or catalog.paths is None:
        return catalog.categories
    tops = [path[0] if len(path) and not is_missing(path[0]) else None for path in catalog.paths]
    return np.fromiter(tops, dtype=object, count=len(tops))
