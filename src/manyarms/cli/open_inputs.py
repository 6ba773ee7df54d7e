"""From a spec to the library's own objects: catalogs, logs, models."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import manyarms as ma
from manyarms.cli.spec import Spec, needed
from manyarms.core.feature_map import FeatureMap
from manyarms.errors import InputError
from manyarms.likelihoods import Likelihood
from manyarms.logs.file_source import FileSource
from manyarms.logs.row_reader import DroppedRows
from manyarms.logs.sources import ProgressSource, Source

Report = Callable[[int, int | None], None]


def open_catalog(spec: Spec) -> ma.Catalog | None:
    """The catalog that a spec names, or None when it names none."""
    told = spec.catalog
    if told.path is None:
        return None
    return ma.read_catalog(
        told.path,
        needed(told.id or spec.logs.action, "--id", "id under [catalog]"),
        category=told.category,
        tags=told.tags,
        taxonomy=told.taxonomy or None,
        embedding=told.embedding or None,
        separator=told.separator,
        other=spec.logs.unknown == "other",
    )


def source_of(spec: Spec) -> FileSource:
    """The files that a spec names."""
    return FileSource(needed(spec.logs.path, "--logs", "path under [logs]"))


def open_logs(
    spec: Spec,
    report: Report,
    *,
    features: FeatureMap | None = None,
    catalog: ma.Catalog | None = None,
    n_actions: int | None = None,
    source: Source | None = None,
    after: datetime | None = None,
) -> ma.LogStream:
    """The logs that a spec names, to be read through a map that is known or one that is learned here.

    Args:
        spec: Where they are and which column is what.
        report: Told how many rows have been read.
        features: The map of a model; its columns then are the context.
        catalog: All actions; None to number them as they are found.
        n_actions: How many there are, where they are numbers and a model knows it.
        source: The files, where only some of those that the spec names are wanted.
        after: Rounds up to this time are left out.
    """
    told = spec.logs
    source = ProgressSource(source_of(spec) if source is None else source, report)
    options: dict[str, Any] = {
        name: getattr(told, name)
        for name in (
            "propensity", "weight", "group", "time", "max_levels", "missing", "unknown", "half_life", "maturity", "now",
        )
    }  # fmt: skip
    if features is None:
        options["categorical"] = told.categorical
    found = ma.read_logs(
        source,
        told.context if features is None else features.columns,
        needed(told.action, "--action", "action under [logs]"),
        needed(told.reward, "--reward", "reward under [logs]"),
        catalog=catalog,
        features=features,
        n_actions=n_actions if catalog is None else None,
        after=after,
        **options,
    )
    return cast(ma.LogStream, found)


def check_catalog(spec: Spec) -> None:
    """Refuse columns of a catalog whose file was forgotten: without it, actions would have nothing in common."""
    told = spec.catalog
    named = [key for key in ("id", "category", "tags", "taxonomy", "embedding") if getattr(told, key)]
    if named and told.path is None:
        raise InputError(
            f"the {named[0]} of a catalog is named, but not its file: pass --catalog, or path under [catalog] in the "
            "--spec file. To do without a catalog, name none of its columns."
        )


def reading_warnings(dropped: DroppedRows) -> list[str]:
    """What is odd about rounds that were read, though none of it is an error."""
    ahead = dropped.ahead
    if not ahead:
        return []
    rounds = "1 round is" if ahead == 1 else f"{ahead:,} rounds are"
    return [f"{rounds} later than --now, and counted in full. Check --now, and the clock of --time"]


def copy_warnings(source: Source) -> list[str]:
    """Whether a file is there twice."""
    origins = [one.origin for one in source.fingerprints]
    again = len(origins) - len(set(origins))
    if not again:
        return []
    files = "1 file is a copy" if again == 1 else f"{again:,} files are copies"
    return [f"{files} of others among the logs, and rounds count twice. Leave copies out"]


def catalog_warnings(dropped: DroppedRows, n_rounds: int) -> list[str]:
    """Whether so many rounds have an unknown action that the catalog is likely to be out of date.

    Args:
        dropped: What was left out, and why.
        n_rounds: How many of its rounds were counted.
    """
    unknown, whole = dropped.unknown + dropped.mapped, n_rounds + dropped.unknown
    if unknown <= MOST_UNKNOWN * whole:
        return []
    return [
        f"{unknown / whole:.0%} of the rounds have an action that the model's catalog does not list. It may be out of "
        "date: pass today's as --catalog"
    ]


MOST_UNKNOWN = 0.03
"""The share of rounds with an unknown action beyond which the catalog is doubted."""


def open_model(path: Path) -> Any:
    """The posterior in a file."""
    found = ma.load(path)
    if isinstance(found, ma.Policy):
        raise InputError(f"{path} holds a policy; a model is needed, as `manyarms fit` writes it.")
    return found


def open_plain_model(path: Path) -> ma.RewardPosterior:
    """The same, of one set of weights."""
    found = open_model(path)
    if not isinstance(found, ma.RewardPosterior):
        raise InputError(f"{path} holds a hurdle of two models, which the command line does not update: use Python.")
    return found


def open_policy(path: Path) -> ma.Policy:
    """The policy in a file."""
    found = ma.load(path)
    if not isinstance(found, ma.Policy):
        raise InputError(f"{path} holds a model; make a policy of it with `manyarms learn`.")
    return found


def named_likelihood(spec: Spec) -> Likelihood:
    """The likelihood that a spec names."""
    noise = spec.likelihood.noise_std
    makers: dict[str, Callable[[], Likelihood]] = {
        "gaussian": lambda: ma.Gaussian(noise),
        "bernoulli": ma.Bernoulli,
        "poisson": ma.Poisson,
        "student-t": lambda: ma.StudentT(noise),
        "log-normal": lambda: ma.LogNormal(noise),
    }
    return makers[spec.likelihood.kind]()
