"""Decisions from files: with a model and named policies (`manyarms report`), or from logs alone (`manyarms decide`).

The options are the flags of the commands, with the same defaults.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack, cast

from manyarms._base.arrow import pa
from manyarms._base.checks import as_text
from manyarms._base.files import PathLike
from manyarms._base.job_options import (
    CatalogOptions,
    DecideOptions,
    EvaluateOptions,
    LogOptions,
    only,
    takes,
    with_defaults,
)
from manyarms._base.progress import Progress
from manyarms.core import FeatureMap, LoggedData
from manyarms.core.arrow_columns import numbers_of
from manyarms.decision.decide import UNCHECKED, Decision, decide
from manyarms.decision.guardrail import Better, Guardrail
from manyarms.errors import InputError
from manyarms.jobs.evaluate_files import read_evaluation_inputs
from manyarms.jobs.fit_files import OnRows
from manyarms.jobs.log_findings import row_warnings
from manyarms.jobs.open_policies import open_on_stream, policies_to_open
from manyarms.jobs.parse_names import likelihood_named
from manyarms.jobs.sample_rounds import sample_of_all
from manyarms.logs.log_stream import LogStream
from manyarms.logs.read_catalog import open_catalog
from manyarms.logs.read_logs import context_warnings, read_logs
from manyarms.logs.row_reader import DroppedRows
from manyarms.logs.sources import open_logs
from manyarms.logs.warehouse_table import shown_name
from manyarms.posterior.posterior import Posterior

DEFAULT_ESTIMATORS = ("snips", "dr")
"""Estimators that check the model when the logs have propensities and none are named."""


LEFT_OUT = "rows left out"
"""The line of `Decision.made_with` that counts the rows that were left out, by reason."""


@takes(EvaluateOptions)
def decide_files(
    logs: PathLike,
    action: str,
    reward: str,
    propensity: str | None = None,
    *,
    model: PathLike | Posterior | None = None,
    category: str | None = None,
    sure: float | None = None,
    unit: str = "",
    seed: int = 0,
    guardrail: str | Sequence[str] = (),
    guardrail_sure: float = 0.95,
    notes: Mapping[str, str] | None = None,
    progress: Progress = False,
    on_rows: OnRows | None = None,
    **options: Unpack[EvaluateOptions],
) -> Decision:
    """Evaluate policies on log files and recommend whether to ship one of them; `write_report` makes a page of it.

    With a model and propensities, the estimators "snips" and "dr" check the model unless others are named. The column
    `category` of the catalog is used to show results by where the model has no categories. `guardrail` names columns of
    other goals with their limits, as in "returns<=1%", each to hold with probability `guardrail_sure`. `sure`, `unit`,
    `notes` and `progress` are as in `decide`, and all other arguments as in `evaluate_files`.
    """
    if model is not None and propensity is not None and not options.get("estimators"):
        options["estimators"] = DEFAULT_ESTIMATORS
    goals = _parse_guardrails(guardrail)
    inputs = read_evaluation_inputs(logs, action, reward, propensity, model, seed, on_rows, _columns(goals), **options)
    rounds, total = inputs.sample.logs, inputs.sample.total
    features = rounds.features
    lines = {
        **(notes or {}),
        "logs": shown_name(logs),
        **_row_notes(features, reward, inputs.dropped),
    }
    if total > len(rounds):
        lines["rounds"] = f"{len(rounds):,} drawn from {total:,}"
    if model is not None and not isinstance(model, Posterior):
        lines["model file"] = str(model)
    categories: Any = None
    if category is not None and rounds.catalog is not None and rounds.catalog.categories is None:
        # The model was fitted without categories, but the catalog has some: the report shows results by them.
        given = with_defaults("decide_files", options, EvaluateOptions)
        known = open_catalog(given, action, {"category": category}, required=False)
        if known is not None and known.categories is not None:
            place = known.find(rounds.catalog.ids.tolist())
            categories = known.categories[place].astype(object)
            categories[place < 0] = None
    decision = decide(
        inputs.policies, rounds, inputs.posterior, guardrails=_guardrails(goals, guardrail_sure, rounds),
        estimators=inputs.estimators, categories=categories, sure=sure, unit=unit,
        fingerprints=inputs.fingerprints, notes=lines, progress=progress,
    )  # fmt: skip
    return replace(decision, omitted=_with_flags(decision.omitted, "pass --estimators snips,dr."))


@takes(DecideOptions)
def decide_from_logs(
    logs: PathLike,
    context: str | Sequence[str],
    action: str,
    reward: str,
    propensity: str | None = None,
    *,
    sure: float | None = None,
    unit: str = "",
    swap: bool = True,
    averaged: bool = False,
    notes: Mapping[str, str] | None = None,
    progress: Progress = False,
    on_rows: OnRows | None = None,
    **options: Unpack[DecideOptions],
) -> Decision:
    """From log files and a catalog to a decision: policies learned from one half of the rounds, evaluated on the other.

    The rounds are read into memory. With `time`, policies are learned from the earlier half and evaluated on the later
    one; without it, the halves are drawn at random and then swapped. Rounds of one `group` stay together. The policies
    are in `Decision.candidates`. `guardrail` and `guardrail_sure` are as in `decide_files`, `sure`, `unit`, `swap`,
    `averaged`, `notes` and `progress` as in `decide`, and all other arguments as in `fit_files`.
    """
    given = with_defaults("decide_from_logs", options, DecideOptions)
    source, goals = open_logs(logs, on_rows), _parse_guardrails(given.guardrail)
    source.need([as_text("action", action)], "the log")  # before the catalog is asked for a column of this name
    actions = open_catalog(given, action, only(options, CatalogOptions))
    read = read_logs(
        source, context, action, reward, propensity, actions, keep=_columns(goals), **only(options, LogOptions)
    )
    sources = policies_to_open(given.policies)
    stream, made = open_on_stream(sources, cast(LogStream, read), given.position_weights)
    whole = sample_of_all(stream.collect())
    bound = {name: whole.bound(policy) for name, policy in made.items()}
    likelihood = likelihood_named(given.likelihood, given.noise_std)
    lines = {**(notes or {}), "logs": shown_name(logs), **_row_notes(stream.features, reward, stream.dropped)}
    decision = decide(
        {**sources, **bound}, whole.logs, likelihood=likelihood, sure=sure, unit=unit, swap=swap, averaged=averaged,
        guardrails=_guardrails(goals, given.guardrail_sure, whole.logs), notes=lines, progress=progress,
    )  # fmt: skip
    omitted = _with_flags(decision.omitted, "run manyarms report with --estimators snips,dr.")
    # Bound to the rounds they cannot be used elsewhere.
    return replace(decision, candidates={**decision.candidates, **made}, omitted=omitted)


def _with_flags(omitted: Sequence[str], remedy: str) -> tuple[str, ...]:
    """The notes on missing parts, with the flags that add the check by other estimators."""
    return tuple(f"{UNCHECKED} {remedy}" if text.startswith(UNCHECKED) else text for text in omitted)


GUARDRAIL = re.compile(r"(?P<column>.+?)\s*(?P<side><=|>=)\s*(?P<limit>[+-]?\d+(\.\d+)?([eE][+-]?\d+)?)\s*(?P<unit>%?)")
"""A guardrail as a text: a column, a side, and the largest change."""


def _parse_guardrails(texts: str | Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """The column of each guardrail, written as in "returns<=1%" or "margin>=-2%", and its options."""
    return [_parse_guardrail(text) for text in ([texts] if isinstance(texts, str) else texts)]


def _columns(goals: Sequence[tuple[str, Any]]) -> list[str]:
    return list(dict.fromkeys(column for column, _ in goals))


def _guardrails(goals: Sequence[tuple[str, dict[str, Any]]], sure: float, rounds: LoggedData) -> list[Guardrail]:
    """Guardrails, each to hold with probability `sure`, on the columns that the rounds have kept."""
    return [
        Guardrail(column, numbers_of(column, cast(pa.Table, rounds.table).column(column)), sure=sure, **options)
        for column, options in goals
    ]


def _parse_guardrail(text: str) -> tuple[str, dict[str, Any]]:
    """The column and the options of a guardrail."""
    match = GUARDRAIL.fullmatch(as_text("guardrail", text).strip())
    if match is None:
        raise InputError(
            f"must be a column and a limit, as in 'returns<=1%' or 'margin>=-2%'; got {text!r}.", argument="guardrail"
        )
    number, lower = float(match["limit"]), match["side"] == "<="
    worse = number if lower else -number
    if worse < 0:
        example = f"{match['column']}{match['side']}{-number:g}{match['unit']}"
        problem = f"{text!r} asks for a change for the better. A guardrail limits one for the worse."
        raise InputError(problem, f"Write {example!r}.", argument="guardrail")
    share = worse / 100 if match["unit"] else worse
    better: Better = "lower" if lower else "higher"
    return match["column"], {"at_most_worse": share, "better": better, "absolute": not match["unit"]}


def _row_notes(features: FeatureMap | None, reward: str, dropped: DroppedRows) -> dict[str, str]:
    """Notes on the page of a decision: rows that were left out, and what to be careful about."""
    about_contexts = [] if features is None else context_warnings(features, reward)
    cautions = [*about_contexts, *row_warnings(dropped)]
    return {
        **({LEFT_OUT: dropped.words()} if dropped.total else {}),
        **({"caution": "; ".join(cautions)} if cautions else {}),
    }
