"""Decisions from files: with a model and named policies (`manyarms report`), or from logs alone (`manyarms decide`).

The options are the flags of the commands, with the same defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack, cast

from manyarms._base.files import PathLike
from manyarms._base.progress import Progress
from manyarms._base.shared_options import (
    CatalogOptions,
    DecideOptions,
    EvaluateOptions,
    LogOptions,
    only,
    takes,
    with_defaults,
)
from manyarms.decision.decide import SURE, Decision, decide
from manyarms.jobs.evaluate_files import read_evaluation_inputs
from manyarms.jobs.fit_files import OnRows
from manyarms.jobs.parse_names import likelihood_named
from manyarms.logs.file_source import open_logs
from manyarms.logs.log_stream import LogStream
from manyarms.logs.read_catalog import open_catalog
from manyarms.logs.read_logs import leakage_warnings, read_logs
from manyarms.posterior.posterior import Posterior

DEFAULT_ESTIMATORS = ("snips", "dr")
"""Estimators that check the model when the logs have propensities and none are named."""


@takes(EvaluateOptions)
def decide_files(
    logs: PathLike,
    action: str,
    reward: str,
    propensity: str | None = None,
    *,
    model: PathLike | Posterior | None = None,
    category: str | None = None,
    sure: float = SURE,
    seed: int = 0,
    notes: Mapping[str, str] | None = None,
    progress: Progress = False,
    on_rows: OnRows | None = None,
    **options: Unpack[EvaluateOptions],
) -> Decision:
    """Evaluate policies on log files and recommend whether to ship one of them; `write_report` makes a page of it.

    With a model and propensities, the estimators "snips" and "dr" check the model unless others are named. The column
    `category` of the catalog is used to show results by where the model has no categories. `sure`, `notes` and
    `progress` are as in `decide`, and all other arguments as in `evaluate_files`.
    """
    if model is not None and propensity is not None and not options.get("estimators"):
        options["estimators"] = DEFAULT_ESTIMATORS
    inputs = read_evaluation_inputs(logs, action, reward, propensity, model, seed, on_rows, **options)
    rounds, total = inputs.sample.logs, inputs.sample.total
    features = rounds.features
    lines = {**(notes or {}), "logs": str(logs), **_caution(() if features is None else features.columns, reward)}
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
    return decide(
        inputs.policies, rounds, inputs.posterior,
        estimators=inputs.estimators, categories=categories, sure=sure, fingerprints=inputs.fingerprints, notes=lines,
        progress=progress,
    )  # fmt: skip


@takes(DecideOptions)
def decide_from_logs(
    logs: PathLike,
    context: str | Sequence[str],
    action: str,
    reward: str,
    propensity: str | None = None,
    *,
    sure: float = SURE,
    swap: bool = True,
    notes: Mapping[str, str] | None = None,
    progress: Progress = False,
    on_rows: OnRows | None = None,
    **options: Unpack[DecideOptions],
) -> Decision:
    """From log files and a catalog to a decision: one half of the rounds learns and proposes, the other half evaluates.

    The rounds are read into memory. With `time`, the earlier half learns and the later half evaluates; without it, the
    halves are drawn at random and then swapped. Rounds of one `group` stay together. The policies are in
    `Decision.candidates`. `sure`, `swap`, `notes` and `progress` are as in `decide`, and all other arguments as in
    `fit_files`.
    """
    given = with_defaults("decide_from_logs", options, DecideOptions)
    actions = open_catalog(given, action, only(options, CatalogOptions))
    source = open_logs(logs, on_rows)
    read = read_logs(source, context, action, reward, propensity, actions, **only(options, LogOptions))
    rounds = cast(LogStream, read).collect()
    likelihood = likelihood_named(given.likelihood, given.noise_std)
    columns = (context,) if isinstance(context, str) else context
    lines = {**(notes or {}), "logs": str(logs), **_caution(columns, reward)}
    return decide(None, rounds, likelihood=likelihood, sure=sure, swap=swap, notes=lines, progress=progress)


def _caution(context: Sequence[str], reward: str) -> dict[str, str]:
    """A note on the page of a decision where the reward is among the contexts."""
    texts = leakage_warnings(context, reward)
    return {"caution": texts[0]} if texts else {}
