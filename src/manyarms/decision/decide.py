"""All of it together: what `ma.decide` works out, and `ma.write_report` shows."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from html import escape
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from manyarms._base.checks import as_scalar
from manyarms._base.progress import Progress
from manyarms._version import __version__
from manyarms.core.catalog import as_column
from manyarms.core.estimate import Estimate
from manyarms.core.fingerprint import Fingerprint, any_shared
from manyarms.core.logged_data import LoggedData
from manyarms.core.policy import Policy
from manyarms.core.result_tables import html_table
from manyarms.decision.action_changes import Movers, Shrinkage, movers, shrinkage
from manyarms.decision.calibration import Calibration, calibration
from manyarms.decision.support import Support, category_codes, support
from manyarms.decision.traffic_lights import Light, lights
from manyarms.decision.verdict import SURE, Answer, answer, percent
from manyarms.errors import InputError
from manyarms.estimators.estimator import Estimator
from manyarms.jobs import Evaluation, evaluate
from manyarms.posterior import RewardPosterior
from manyarms.posterior.posterior import Posterior
from manyarms.prior_checks import CategoryChecks, PriorCheck, check_categories

MANY_POLICIES = 20
"""Beyond this, not every pair of policies is compared."""
MUCH_MORE = 1.5
"""How many times as much as expected rewards may vary before nothing is shipped."""
MANY_FLAGGED = 0.25
"""The share of categories that may contradict the model before nothing is shipped."""
MANY_CATEGORIES = 1000
"""Beyond this, categories are not checked one by one."""


@dataclass(frozen=True, repr=False)
class Decision:
    """What a person who must decide needs to know.

    Attributes:
        answer: In one sentence.
        evaluation: All policies under all judges.
        lights: Diagnostics that have a limit.
        support: By category; None where there are no categories.
        shrinkage: Of actions; None without a model.
        movers: Of the policy that the answer is about; None when it is about none.
        check: Whether the rewards contradict the prior; None without a model.
        categories: Predictive checks by category; None where there are none, or too many.
        calibration: None without a model.
        missing: What could not be shown, and why, in words.
        made_with: Versions, sizes, time, and what was run.
    """

    answer: Answer
    evaluation: Evaluation
    lights: tuple[Light, ...]
    support: Support | None
    shrinkage: Shrinkage | None
    movers: Movers | None
    check: PriorCheck | None
    categories: CategoryChecks | None
    calibration: Calibration | None
    missing: tuple[str, ...]
    made_with: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def warnings(self) -> tuple[str, ...]:
        """Of all estimates, each once: those that all policies share, then those of single ones."""
        rows = self.evaluation.rows
        said = [one for row in rows for one in row.all_warnings]
        shared = [one for one in dict.fromkeys(said) if said.count(one) == len(rows)]
        own = [f"{row.name}: {one}" for row in rows for one in row.all_warnings if one not in shared]
        return tuple(dict.fromkeys([*shared, *own]))

    def as_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        found = {one.name: plain(getattr(self, one.name)) for one in fields(self)}
        return {**found, "warnings": list(self.warnings)}

    def __repr__(self) -> str:
        found = self.evaluation
        return f"Decision({found.n_rounds:,} rounds, {len(found.policies)} policies: {self.answer.sentence})"

    def _repr_html_(self) -> str:
        rows = html_table(self.evaluation.records(), caption=self.answer.sentence)
        return f"{rows}<p>{escape(self.answer.reason)}</p>"

    def __str__(self) -> str:
        return f"{self.answer.sentence} {self.answer.reason}"


def decide(
    policies: Mapping[str, Policy],
    logs: LoggedData,
    posterior: Posterior | None = None,
    *,
    estimators: Sequence[Estimator] = (),
    categories: Any = None,
    truth: Mapping[str, float] | None = None,
    true_rewards: Any = None,
    sure: float = SURE,
    contexts: Any = None,
    fingerprints: tuple[Fingerprint, ...] = (),
    notes: Mapping[str, str] | None = None,
    progress: Progress = False,
) -> Decision:
    """Judge policies and put together what a decision needs: `write_report` makes a page of it.

    What cannot be worked out from what is given (no model, no categories, no propensities) is left out and said so.

    Args:
        policies: The candidates by name.
        logs: Rounds to judge on, best those that neither posterior nor policies have seen.
        posterior: The judge; None for estimators alone.
        estimators: Other judges.
        categories: (K,) labels of the actions; by default those of the catalog.
        truth: The true value of policies by name, "logged" among them, where the world is made up.
        true_rewards: (n,) the true mean reward of each logged round, where the world is made up.
        sure: How probable it must be that a policy beats what runs now before the answer is to ship it.
        contexts: The rows of `logs` as a table, for policies whose feature map is another than that of `logs`.
        fingerprints: What else these rounds are known by, such as the files they came from.
        notes: More lines for what it was made with, such as the command.
        progress: As in `evaluate`.
    """
    sure = as_scalar("sure", sure, above=0.0, below=1.0)
    truth = {name: as_scalar(f"truth of {name}", value) for name, value in (truth or {}).items()}
    evaluation = evaluate(
        policies, logs, posterior,
        estimators=estimators, contexts=contexts, fingerprints=fingerprints, pairs=len(policies) <= MANY_POLICIES,
        progress=progress,
    )  # fmt: skip
    missing = list[str]()
    if len(policies) > MANY_POLICIES:
        missing.append(f"Of more than {MANY_POLICIES} policies not every pair is compared.")
    column = _categories(categories, logs)
    if column is None:
        missing.append("Actions have no categories, so nothing is shown by category.")
    if logs.propensities is None:
        missing.append(
            "The logs have no propensities, so no estimator that weighs rounds by them can check on the model."
        )
    names = None if column is None else _names(column)
    plain_model = posterior if isinstance(posterior, RewardPosterior) else None
    if posterior is None:
        missing.append(
            "Without a model there are no pairwise probabilities, no shrinkage, no checks and no calibration."
        )
    elif plain_model is None:
        missing.append("Shrinkage and prior checks are shown for models of one set of weights, and this is a hurdle.")
    judged = None
    if posterior is not None:
        judged = calibration(posterior, logs, fingerprints=fingerprints, truth=truth, true_rewards=true_rewards)
        if not judged.bins:
            missing.append(
                "The model has seen these rounds, so they cannot tell whether it is calibrated: judge on others."
            )
    checks = None if plain_model is None else _checks(plain_model, logs, column, fingerprints, missing)
    check = None if plain_model is None else plain_model.check
    doubts = [*_failed(check), *_contradicted(checks)]
    chosen = answer(evaluation, sure=sure, doubts=doubts)
    best = next((row for row in evaluation.policies if row.name == chosen.policy), None)
    moved = None
    if best is not None and best.choices is not None:
        told: dict[str, Any] = {"catalog": logs.catalog, "categories": names, "posterior": posterior}
        moved = movers(best.name, best.choices, logs, **told)
        worries = [*_concentrated(moved), *_seen(judged), *_said(check)]
        chosen = answer(evaluation, sure=sure, doubts=doubts, worries=worries)
    return Decision(
        answer=chosen,
        evaluation=evaluation,
        lights=lights(evaluation),
        support=None if column is None else support(evaluation, logs, column, seen=_ever_logged(posterior)),
        shrinkage=None if plain_model is None else shrinkage(plain_model, logs, names),
        movers=moved,
        check=check,
        categories=checks,
        calibration=judged,
        missing=tuple(missing),
        made_with={**(notes or {}), **_made_with(logs, posterior)},
    )


def _failed(check: PriorCheck | None) -> list[str]:
    """Rewards that vary so much more than the model says that its intervals mean nothing."""
    parts = {} if check is None else {"noise": check.noise, "prior": check.prior}
    return [
        f"rewards vary {part.ratio:.3g} times as much as its {name} says"
        for name, part in parts.items()
        if part is not None and part.contradicts and part.ratio > MUCH_MORE
    ]


def _said(check: PriorCheck | None) -> list[str]:
    """Without full stops, to stand within a sentence."""
    return [] if check is None else [text.rstrip(".") for text in check.warnings]


def _contradicted(checks: CategoryChecks | None) -> list[str]:
    if checks is None or len(checks.flagged) <= max(1.0, MANY_FLAGGED * len(checks)):
        return []
    return [f"the rewards of {len(checks.flagged):,} of {len(checks):,} categories contradict it"]


def _concentrated(moved: Movers) -> list[str]:
    top = max(moved.rows, key=lambda row: row.chosen, default=None)
    if top is None or top.chosen <= 0.5:
        return []
    return [f"{percent(top.chosen)} of its choices fall on {top.action}, with {top.n_rounds:,.6g} rounds in these logs"]


def _seen(judged: Calibration | None) -> list[str]:
    return [] if judged is None or judged.held_out else ["the model has seen the very rounds that it is judged on"]


def _ever_logged(posterior: Posterior | None) -> Any:
    """(K,) which actions the model has rounds of."""
    if posterior is None:
        return None
    weights = posterior.parts[0].weights
    return np.isin(np.arange(weights.n_actions), weights.observed.actions)


def _categories(given: Any, logs: LoggedData) -> Any:
    if given is None:
        return None if logs.catalog is None else logs.catalog.categories
    return as_column("categories", given, length=logs.n_actions)


def _names(column: Any) -> list[str]:
    codes, labels = category_codes(column)
    return np.array(labels, dtype=object)[codes].tolist()


def _checks(
    posterior: RewardPosterior,
    logs: LoggedData,
    column: Any,
    fingerprints: tuple[Fingerprint, ...],
    missing: list[str],
) -> CategoryChecks | None:
    """Predictive checks where they can be made, and a word where not."""
    if column is None:
        return None
    n = len(category_codes(column)[1])
    if n > MANY_CATEGORIES:
        missing.append(f"There are {n:,} categories: more than {MANY_CATEGORIES:,} are not checked one by one.")
        return None
    held_out = not any_shared(posterior.learned_from, (logs.fingerprint, *fingerprints))
    try:
        return check_categories(posterior, logs, column, held_out=held_out)
    except InputError as cause:
        missing.append(f"Categories were not checked: {cause}")
        return None


def _made_with(logs: LoggedData, posterior: Posterior | None) -> dict[str, str]:
    found = {
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "judged on": f"{len(logs):,} rounds, {logs.n_actions:,} actions, {logs.dim} features",
    }
    if posterior is not None:
        found["model"] = repr(posterior)
    packages = {"manyarms": __version__, "Python": platform.python_version()}
    for name in ("numpy", "scipy", "pyarrow", "altair"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            continue
    found["versions"] = ", ".join(f"{name} {one}" for name, one in packages.items())
    return found


def plain(value: Any) -> Any:  # noqa: PLR0911  one line for each kind of value
    """Dataclasses, estimates and arrays as JSON has them; numbers that are not finite as None."""
    if isinstance(value, Estimate):
        return {
            "value": plain(value.value),
            "std": plain(value.std),
            "interval_95": [plain(end) for end in value.interval()],
            "probability_positive": plain(value.probability_positive),
            "kind": value.kind,
            "method": value.method,
            "diagnostics": plain(value.diagnostics),
            "warnings": list(value.warnings),
        }
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value) if one.name != "choices"}
    if isinstance(value, Mapping):
        return {" over ".join(key) if isinstance(key, tuple) else str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
