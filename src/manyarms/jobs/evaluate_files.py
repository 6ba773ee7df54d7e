"""Policies evaluated on log files, with policies and estimators given by name: what `manyarms evaluate` does.

The options are the flags of the command, with the same defaults.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack, cast

import numpy as np

from manyarms._base.checks import as_count, as_instance, as_text
from manyarms._base.files import PathLike
from manyarms._base.job_options import EvaluateOptions, LogOptions, only, takes, with_defaults
from manyarms._base.progress import Progress
from manyarms._base.rng import split
from manyarms.core import Catalog, Estimate, Fingerprint, Policy, any_shared
from manyarms.core.feature_map import StackedMap
from manyarms.errors import InputError
from manyarms.estimators.estimator import Estimator
from manyarms.jobs.evaluate import Evaluation, PolicyResult, evaluate, warning_text
from manyarms.jobs.fit_files import OnRows
from manyarms.jobs.log_findings import row_warnings
from manyarms.jobs.open_policies import (
    THOMPSON_DRAWS,
    is_policy_file,
    open_on_stream,
    open_policy_file,
    policies_to_open,
)
from manyarms.jobs.parse_names import estimator_named, policy_named
from manyarms.jobs.sample_rounds import RoundSample, sample_rounds
from manyarms.logs.log_stream import LogStream
from manyarms.logs.read_catalog import open_catalog
from manyarms.logs.read_logs import context_warnings, read_logs
from manyarms.logs.row_reader import DroppedRows
from manyarms.logs.sources import open_logs
from manyarms.posterior.posterior import Posterior, as_posterior

SAME_ROWS = (
    "the model was fitted on these logs, or on some of them, so policies made from it look better here than they are. "
    "Evaluate on later logs"
)


@dataclass(frozen=True)
class _EvaluationInputs:
    """Everything that an evaluation needs, read from files; `fingerprints` are those of the files."""

    policies: dict[str, Policy]
    sample: RoundSample
    posterior: Posterior | None
    estimators: tuple[Estimator, ...]
    fingerprints: tuple[Fingerprint, ...]
    dropped: DroppedRows
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class EvaluationResult:
    """Policies evaluated on log files.

    Attributes:
        evaluation: The evaluation.
        n_rounds_in_logs: The number of rounds in the logs, of which some were sampled.
        dropped: The rows that were left out, by reason.
        warnings: Everything to be careful about, in plain words.
    """

    evaluation: Evaluation
    n_rounds_in_logs: int
    dropped: DroppedRows
    warnings: tuple[str, ...]

    def record(self) -> dict[str, Any]:
        """The result as plain values in full precision, for JSON."""
        return {
            "rounds": self.evaluation.n_rounds,
            "rounds_in_logs": self.n_rounds_in_logs,
            "sampled": self.evaluation.n_rounds < self.n_rounds_in_logs,
            **self.dropped.record(),
            "mean_reward": self.evaluation.mean_reward,
            "policies": [_record(row) for row in self.evaluation.rows],
            **({} if self.evaluation.segments is None else {"segments": self.evaluation.segments.records()}),
            "warnings": list(self.warnings),
        }


@takes(EvaluateOptions)
def evaluate_files(
    logs: PathLike,
    action: str,
    reward: str,
    propensity: str | None = None,
    *,
    model: PathLike | Posterior | None = None,
    seed: int = 0,
    progress: Progress = False,
    on_rows: OnRows | None = None,
    **options: Unpack[EvaluateOptions],
) -> EvaluationResult:
    """Evaluate policies on log files against the policy that wrote them, by a model and by estimators.

    Args:
        logs: A Parquet, CSV or Arrow file, a folder or a glob.
        action: The column of action ids.
        reward: The column of rewards.
        propensity: The column of the logging policy's probabilities; estimators need it.
        model: The model, or its file; None to use estimators alone. Context columns and catalog come from it.
        seed: Seed for everything random.
        progress: True shows how many policies are done; a function is called as progress(done, policies in all).
        on_rows: Called as on_rows(rows read, rows in all or None) while files are read.
        options: The options of `read_logs`; `policies` by name, file, column or table, as in `open_policies`, or a
            mapping from names to these, to policies and to functions; `estimators` by name, as in `estimator_named`;
            and `sample`, the most rounds to evaluate on. Also `context`, `catalog` and `id` as in `fit_files`, where
            neither a model nor a policy file has them.
    """
    inputs = read_evaluation_inputs(logs, action, reward, propensity, model, seed, on_rows, **options)
    evaluation = evaluate(
        inputs.policies, inputs.sample.logs, inputs.posterior,
        estimators=inputs.estimators, fingerprints=inputs.fingerprints, progress=progress,
    )  # fmt: skip
    posterior = inputs.posterior
    seen = posterior is not None and any_shared(posterior.learned_from, inputs.fingerprints)
    warnings = (*([SAME_ROWS] if seen else []), *_merged_warnings(evaluation), *inputs.warnings)
    return EvaluationResult(evaluation, inputs.sample.total, inputs.dropped, warnings)


def read_evaluation_inputs(
    logs: PathLike,
    action: str,
    reward: str,
    propensity: str | None,
    model: PathLike | Posterior | None,
    seed: int,
    on_rows: OnRows | None,
    keep: Sequence[str] = (),
    **options: Unpack[EvaluateOptions],
) -> _EvaluationInputs:
    """Read what `evaluate` and `decide` need from files; arguments are those of `evaluate_files` and `read_logs`."""
    given = with_defaults("evaluate_files", options, EvaluateOptions)
    sources, estimators = policies_to_open(given.policies), given.estimators
    for name in as_instance("estimators", estimators, Sequence, "a list of names"):
        as_text("estimators", name)
    posterior = None if model is None else as_posterior(model)
    sample_rng, policy_rng = split(np.random.default_rng(as_count("seed", seed, minimum=0)), "sample", "policies")
    files = {name: open_policy_file(str(source)) for name, source in sources.items() if is_policy_file(source)}
    files |= {name: source for name, source in sources.items() if isinstance(source, Policy)}
    owners = [owner for owner in (posterior, *files.values()) if owner is not None]
    columns, features, warnings = _features(owners, given.context)
    actions = _catalog(owners, given, action)
    read = read_logs(
        open_logs(logs, on_rows), columns, action, reward, propensity, actions, features=features, keep=keep,
        n_actions=owners[0].n_actions if owners and actions is None else None, **only(options, LogOptions),
    )  # fmt: skip
    stream, made = open_on_stream({**sources, **files}, cast(LogStream, read), given.position_weights)
    sample = sample_rounds(stream, given.sample, rng=sample_rng)
    named: dict[str, Any] = {"n_actions": stream.n_actions, "n_draws": THOMPSON_DRAWS, "rng": policy_rng}
    chosen = {name: made.get(name) or policy_named(str(text), posterior, **named) for name, text in sources.items()}
    return _EvaluationInputs(
        {name: sample.bound(policy) for name, policy in chosen.items()},
        sample,
        posterior,
        tuple(estimator_named(name, posterior) for name in estimators),
        stream.source.fingerprints,
        stream.dropped,
        (*warnings, *context_warnings(stream.features, reward), *row_warnings(stream.dropped)),
    )


def _features(owners: list[Any], context: str | Sequence[str]) -> tuple[tuple[str, ...], Any, list[str]]:
    """The context columns and the feature map of the model and of all policy files, and warnings."""
    named = (context,) if isinstance(context, str) else tuple(context)
    known = [owner.features for owner in owners]
    # A policy that was made elsewhere needs columns, but does not say what the contexts of a model are.
    owners = [owner for owner, own in zip(owners, known, strict=True) if own is None or own.is_context]
    maps = [owner.features for owner in owners if owner.features is not None]
    if not maps:
        if any(isinstance(owner, Posterior) or owner.dim is not None for owner in owners):
            raise InputError(
                "neither the model nor a policy has a feature map, so columns cannot be read.",
                "Read the logs into memory and call evaluate().",
                flag_remedy="Evaluate it in Python.",
            )
        return named, None, []
    features = maps[0] if all(other == maps[0] for other in maps) else StackedMap(maps)
    warnings = list[str]()
    if named and all(other.columns != named for other in maps):
        columns = ", ".join(maps[0].columns)
        warnings.append(f"context columns come from the model ({columns}): the context {', '.join(named)} is not used")
    return features.columns, features, warnings


def _catalog(owners: list[Any], given: Any, action: str) -> Catalog | None:
    """The catalog of the model or of a policy file, or else the one that was given."""
    known: list[Catalog] = [owner.catalog for owner in owners if owner.catalog is not None]
    if known:
        return known[0]
    if owners and given.catalog is not None:
        # The ids in the file have other numbers there than in the model.
        raise InputError(
            "the model numbers actions without a catalog, so a catalog cannot be used with it.",
            "Leave the catalog out, or fit with a catalog.",
            flag_remedy="Leave --catalog out, or fit with --catalog.",
        )
    return open_catalog(given, action, {})


def _merged_warnings(evaluation: Evaluation) -> list[str]:
    """Each warning once, with the names of its policies unless it concerns all of them."""
    # No estimator evaluates the baseline, so their warnings are never about it.
    candidates = {row.name for row in evaluation.policies}
    return [
        warning_text("" if len(names) > 1 and candidates <= set(names) else ", ".join(names), estimators, text)
        for (estimators, text), names in evaluation.policies_by_warning.items()
    ]


def _record(row: PolicyResult) -> dict[str, Any]:
    gain = row.gain
    return {
        "policy": row.name,
        "model": None if row.value is None else _plain_estimate(row.value),
        "difference": None if gain is None else _plain_estimate(gain),
        "probability_beats_logged": None if gain is None else gain.probability_positive,
        # By the names that a user writes: snips, not snIPS.
        "estimators": {name.lower(): _plain_estimate(estimate) for name, estimate in row.estimates.items()},
        "left_out": {name.lower(): reason for name, reason in row.left_out.items()},
        "warnings": list(row.all_warnings),
    }


def _plain_estimate(estimate: Estimate) -> dict[str, Any]:
    return {
        "value": estimate.value,
        "std": estimate.std,
        "interval_95": list(estimate.interval()),
        "diagnostics": dict(estimate.diagnostics),
    }
