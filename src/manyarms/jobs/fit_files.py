"""Models fitted to files, and updated from files: what `manyarms fit` and `manyarms update` do.

The options are the flags of the commands, with the same defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack, cast

import numpy as np

from manyarms._base.checks import as_count, as_text
from manyarms._base.files import PathLike, updating
from manyarms._base.job_options import (
    CatalogOptions,
    FitOptions,
    LogOptions,
    PriorKind,
    UpdateOptions,
    only,
    takes,
    with_defaults,
)
from manyarms._base.progress import Progress
from manyarms.core.catalog import Catalog
from manyarms.core.hierarchical_gaussian import HierarchicalGaussian
from manyarms.engines import Engine
from manyarms.errors import InputError
from manyarms.jobs.log_findings import row_warnings
from manyarms.jobs.parse_names import LIKELIHOODS, likelihood_named
from manyarms.logs.log_stream import LogStream
from manyarms.logs.read_catalog import open_catalog
from manyarms.logs.read_logs import context_warnings, read_logs
from manyarms.logs.row_reader import DroppedRows
from manyarms.logs.sources import Source, open_logs, refuse_overwriting
from manyarms.posterior import RewardPosterior, fit
from manyarms.posterior.posterior import Posterior, as_posterior
from manyarms.prior_learning import LearnedPrior, learn_prior
from manyarms.prior_learning.choose_prior import learn_named_prior
from manyarms.priors.from_catalog import from_catalog, new_actions

OnRows = Callable[[int, int | None], None]
"""Called with the rows read so far and the rows in all, None where that is not known."""

MOST_UNKNOWN = 0.03
"""The share of rounds with an unknown action beyond which the catalog is doubted."""


@dataclass(frozen=True)
class FitResult:
    """A model fitted to files.

    Attributes:
        posterior: The model.
        learned: What was learned of the prior; None where it was taken as given.
        dropped: The rows that were left out, by reason.
        warnings: Everything to be careful about, in plain words.
        path: The model file that was written; None for none.
    """

    posterior: RewardPosterior
    learned: LearnedPrior | None
    dropped: DroppedRows
    warnings: tuple[str, ...]
    path: Path | None

    def record(self) -> dict[str, Any]:
        """The result as plain values, for JSON."""
        posterior, learned = self.posterior, self.learned
        assert posterior.features is not None
        kind = type(posterior.likelihood)
        return {
            "rounds": posterior.statistics.n_rounds,
            **self.dropped.record(),
            "actions": posterior.n_actions,
            "actions_seen": len(posterior.weights.observed.actions),
            "features": list(posterior.features.names),
            "prior": [str(group) for group in posterior.prior.effects] or ["independent"],
            "likelihood": next((name for name, known in LIKELIHOODS.items() if known is kind), kind.__name__),
            "learned": None if learned is None else {part.name: part.value for part in learned.parameters},
            "prior_comparison": None if learned is None or learned.comparison is None else learned.comparison.records(),
            "notes": [] if learned is None else list(learned.notes),
            "log_evidence": posterior.log_evidence,
            "warnings": list(self.warnings),
            "model": None if self.path is None else str(self.path),
        }


@dataclass(frozen=True)
class UpdateResult:
    """A model updated from files.

    Attributes:
        posterior: The updated model.
        new_rounds: The number of rounds that were added.
        new_actions: The number of actions that were added.
        dropped: The rows that were left out, by reason.
        warnings: Everything to be careful about, in plain words.
        path: The model file that was written; None for none.
    """

    posterior: RewardPosterior
    new_rounds: int
    new_actions: int
    dropped: DroppedRows
    warnings: tuple[str, ...]
    path: Path | None

    def record(self) -> dict[str, Any]:
        """The result as plain values, for JSON."""
        return {
            "new_rounds": self.new_rounds,
            "rounds": self.posterior.statistics.n_rounds,
            **self.dropped.record(),
            "new_actions": self.new_actions,
            "actions": self.posterior.n_actions,
            "actions_seen": len(self.posterior.weights.observed.actions),
            "warnings": list(self.warnings),
            "model": None if self.path is None else str(self.path),
        }


@takes(FitOptions)
def fit_files(
    logs: PathLike,
    context: str | Sequence[str],
    action: str,
    reward: str,
    propensity: str | None = None,
    *,
    out: PathLike | None = None,
    seed: int = 0,
    engine: Engine | str | None = None,
    progress: Progress = False,
    on_rows: OnRows | None = None,
    **options: Unpack[FitOptions],
) -> FitResult:
    """Fit a model to log files: read them and their catalog, build the prior, learn it and fit.

    Args:
        logs: A Parquet, CSV or Arrow file, a folder or a glob.
        context: The name of a context column, or several.
        action: The column of action ids.
        reward: The column of rewards.
        propensity: The column of the logging policy's probabilities, if there is one.
        out: The model file to write; None for none.
        seed: Seed for everything random.
        engine: Where the logs are read, as in `fit`.
        progress: True shows the steps of the fit; a function is called as progress(step, steps at most).
        on_rows: Called as on_rows(rows read, rows in all or None) while files are read.
        options: `catalog`, the file of all actions or a `Catalog`, and `id`, its column of action ids; the options of
            `read_logs` and `read_catalog`; those of the prior and the likelihood by name.
    """
    given = with_defaults("fit_files", options, FitOptions)
    if given.prior == "auto" and not given.learn_prior:
        raise InputError(
            "is auto, which compares learned priors, but learn_prior is off.",
            "Name a kind of prior, or let it be learned.",
            argument="prior",
            flag_remedy="Name a kind of prior, or drop --no-learn-prior.",
        )
    refuse_overwriting(out, logs, given.catalog)
    likelihood = likelihood_named(given.likelihood, given.noise_std)
    source = open_logs(logs, on_rows)
    source.need([as_text("action", action)], "the log")  # before the catalog is asked for a column of this name
    actions = open_catalog(given, action, only(options, CatalogOptions))
    read = read_logs(source, context, action, reward, propensity, actions, **only(options, LogOptions))
    stream = cast(LogStream, read)

    def build(kind: PriorKind | None) -> HierarchicalGaussian:
        return from_catalog(
            stream.n_actions if stream.catalog is None else stream.catalog, kind, dim=stream.dim,
            effect_std=given.effect_std, action_std=given.action_std, shared_std=given.shared_std,
            n_components=given.n_components, rng=np.random.default_rng(as_count("seed", seed, minimum=0)),
        )  # fmt: skip

    how: dict[str, Any] = dict(progress=progress, engine=engine)
    learned, kind = None, cast(PriorKind | None, given.prior)
    if given.prior == "auto":
        learned = learn_named_prior(stream, "auto", likelihood, build=build, **how)
    elif given.learn_prior:
        learned = learn_prior(stream, build(kind), likelihood, **how)
    posterior = fit(stream, build(kind), likelihood, **how) if learned is None else learned.posterior
    about_contexts = context_warnings(stream.features, reward)
    warnings = [*about_contexts, *posterior.warnings, *row_warnings(stream.dropped), *_copy_warnings(source)]
    if given.likelihood == "gaussian" and rewards_are_binary(posterior):
        warnings.append("all rewards are 0 or 1 but were taken as Gaussian: for clicks, use the bernoulli likelihood")
    if not posterior.statistics.n_rounds:
        warnings.append("no rounds are left, so the model is its prior: check what maturity, missing and unknown drop")
    return FitResult(posterior, learned, stream.dropped, tuple(warnings), _saved(posterior, out))


@takes(UpdateOptions)
def update_files(
    model: PathLike | RewardPosterior,
    logs: PathLike,
    action: str,
    reward: str,
    propensity: str | None = None,
    *,
    allow_repeats: bool = False,
    out: PathLike | None = None,
    engine: Engine | str | None = None,
    on_rows: OnRows | None = None,
    **options: Unpack[UpdateOptions],
) -> UpdateResult:
    """Add new log files, and new actions, to a model; see `RewardPosterior.update`.

    The model, or its file, comes first, and the context columns come from it. Actions of today's `catalog` that it does
    not know are added where the prior has their category, tags or node. Files that it has seen are refused, unless
    `allow_repeats` has them counted again. To update a model in place, name its file as `out`; of two such updates at
    the same time, one raises a `ModelFileError` and writes nothing. The other arguments are those of `fit_files`.
    """
    given = with_defaults("update_files", options, UpdateOptions)
    refuse_overwriting(out, logs, given.catalog)
    with _updating_in_place(model, out) as check_unchanged:
        result = _updated(model, logs, action, reward, propensity, allow_repeats, engine, on_rows, options)
        check_unchanged()
        return replace(result, path=_saved(result.posterior, out))


def _updating_in_place(model: PathLike | RewardPosterior, out: PathLike | None) -> AbstractContextManager[Any]:
    """Keep other updates of a model out while its file is read and replaced; elsewhere there is nothing to guard."""
    if out is None or isinstance(model, Posterior) or not Path(out).is_file() or not Path(model).is_file():
        return nullcontext(lambda: None)
    return updating(Path(out)) if Path(out).samefile(model) else nullcontext(lambda: None)


def _updated(
    model: PathLike | RewardPosterior,
    logs: PathLike,
    action: str,
    reward: str,
    propensity: str | None,
    allow_repeats: bool,
    engine: Engine | str | None,
    on_rows: OnRows | None,
    options: UpdateOptions,
) -> UpdateResult:
    """The result of an update that is not saved yet; the arguments are those of `update_files`."""
    given = with_defaults("update_files", options, UpdateOptions)
    before = _as_updatable(model)
    assert before.features is not None
    source = open_logs(logs, on_rows)
    source.need([as_text("action", action)], "the log")  # before the catalog is asked for a column of this name
    grown = _grown(before, open_catalog(given, action, only(options, CatalogOptions), required=False))
    stream = read_logs(
        source, before.features.columns, action, reward, propensity, grown.catalog, features=before.features,
        n_actions=grown.n_actions if grown.catalog is None else None, **only(options, LogOptions),
    )  # fmt: skip
    posterior = grown.update(stream, allow_repeats=allow_repeats, engine=engine)
    dropped, new_rounds = cast(LogStream, stream).dropped, posterior.statistics.n_rounds - before.statistics.n_rounds
    warnings = (
        *context_warnings(before.features, reward),
        *posterior.warnings,
        *_update_warnings(given.half_life is not None, before.as_of, dropped, new_rounds),
        *_copy_warnings(source),
    )
    new_actions = posterior.n_actions - before.n_actions
    return UpdateResult(posterior, new_rounds, new_actions, dropped, warnings, None)


def rewards_are_binary(posterior: RewardPosterior) -> bool:
    """True, and `fit_files` warns, if rewards fitted as Gaussian were all 0 or 1: Σ r = Σ r², hardly ever otherwise.

    The sums are those of the statistics, where the feature map begins with a column of ones.
    """
    rows, sums = posterior.statistics.rows, posterior.statistics.sums
    if posterior.features is None or not posterior.features.intercept:
        return False
    total = float(rows.features[:, 0] @ rows.rewards + sums.moment[:, 0].sum())
    squares = float(rows.rewards @ rows.rewards + sums.reward_sq.sum())
    return squares > 0 and bool(np.isclose(total, squares, rtol=1e-9, atol=0.0))


def _saved(posterior: RewardPosterior, out: PathLike | None) -> Path | None:
    if out is None:
        return None
    posterior.save(out)
    return Path(out)


def _as_updatable(model: PathLike | RewardPosterior) -> RewardPosterior:
    posterior = as_posterior(model)
    name = "the model" if isinstance(model, Posterior) else str(model)
    if not isinstance(posterior, RewardPosterior):
        raise InputError(
            f"{name} is a hurdle of two models, which cannot be updated from files.",
            "Read the logs into memory and call its update().",
            flag_remedy="Update it in Python.",
        )
    if posterior.features is None:
        raise InputError(
            f"{name} has no feature map, so columns cannot be read.",
            "Fit it to logs that read_logs read.",
            flag_remedy="Update it in Python.",
        )
    return posterior


def _grown(posterior: RewardPosterior, catalog: Catalog | None) -> RewardPosterior:
    """The model with the actions of a catalog that it does not know yet."""
    if catalog is None:
        return posterior
    if posterior.catalog is None:
        raise InputError(
            "the model numbers actions without a catalog, so none can be added by id.",
            "Fit with a catalog.",
            flag_remedy="Fit with --catalog.",
        )
    whole = posterior.catalog.grown_with(catalog)
    if len(whole) == len(posterior.catalog):
        return posterior
    return posterior.with_actions(new_actions(posterior.prior, whole), catalog=whole)


def _update_warnings(has_half_life: bool, as_of: str | None, dropped: DroppedRows, new_rounds: int) -> list[str]:
    """Warnings about ages that are not known or no longer count, about rows, and about a catalog out of date."""
    warnings = list[str]()
    if has_half_life and as_of is None:
        warnings.append(
            "the model was fitted without a half-life, so the ages of its rounds are not known: they keep their "
            "weight, and only new rounds are weighted by age"
        )
    if not has_half_life and as_of is not None:
        warnings.append(
            f"rounds in the model were weighted by their age on {as_of} and keep that weight, and new ones "
            "count in full: use the same half-life as before"
        )
    warnings += row_warnings(dropped)
    unknown, whole = dropped.unknown + dropped.mapped, new_rounds + dropped.unknown
    if unknown > MOST_UNKNOWN * whole:
        warnings.append(
            f"{100 * unknown / whole:.0f} % of the rounds have an action that the model's catalog does not list. It "
            "may be out of date: pass today's catalog"
        )
    return warnings


def _copy_warnings(source: Source) -> list[str]:
    """A warning where a file is there twice."""
    origins = [fingerprint.origin for fingerprint in source.fingerprints]
    copies = len(origins) - len(set(origins))
    if not copies:
        return []
    files = "1 file is a copy" if copies == 1 else f"{copies:,} files are copies"
    return [f"{files} of others among the logs, and rounds count twice: leave copies out"]
