"""`manyarms update`: a model and new logs in, the model of all logs out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyarms.cli import options as o
from manyarms.cli.engines import check_engine, open_engine
from manyarms.cli.spec import Spec, read_spec
from manyarms.cli.terminal import check_output, one_line_errors, row_bar, warn
from manyarms.cli.words import in_flags
from manyarms.errors import InputError

if TYPE_CHECKING:
    import manyarms as ma


def update(
    model: o.Model,
    out: Annotated[Path, typer.Option("--out", help="Where the model goes; the same file to update it in place.")],
    logs: o.Logs = None,
    action: o.Action = None,
    reward: o.Reward = None,
    propensity: o.Propensity = None,
    weight: o.Weight = None,
    group: o.Group = None,
    time: o.Time = None,
    missing: o.Missing = None,
    unknown: o.Unknown = None,
    half_life: o.HalfLife = None,
    maturity: o.Maturity = None,
    now: o.Now = None,
    catalog: o.CatalogFile = None,
    id: o.Id = None,
    category: o.Category = None,
    tags: o.Tags = None,
    taxonomy: o.Taxonomy = None,
    embedding: o.Embedding = None,
    allow_repeats: Annotated[
        bool, typer.Option("--allow-repeats", help="Count files again that the model has seen already.")
    ] = False,
    spec: o.SpecFile = None,
    engine: o.Engine = "local",
    as_json: o.Json = False,
) -> None:
    """Add new logs, and new items, to a model, without the old logs.

    With Gaussian rewards this equals a fit on everything. A file that the model
    has seen is refused, so a job can safely run twice. With --catalog, items
    that the model does not know are added where the prior has their category
    (or tags, or node); one with a new category needs a new fit.
    """
    flags = dict(locals())
    with one_line_errors():
        told = read_spec(spec, flags)
        check_output(out)
        check_engine(engine)
        posterior, figures = _run(told, model, allow_repeats, engine)
        posterior.save(out)
        figures["model"] = str(out)
        for one in figures["warnings"]:
            warn(one)
        if as_json:
            typer.echo(json.dumps(figures, indent=2))
            return
        from manyarms.cli.shown import print_update  # noqa: PLC0415

        print_update(figures)


def _run(spec: Spec, path: Path, allow_repeats: bool, engine: str) -> tuple[ma.RewardPosterior, dict[str, Any]]:
    from manyarms import jobs  # noqa: PLC0415
    from manyarms.cli.reading import (  # noqa: PLC0415
        catalog_warnings,
        open_catalog,
        open_logs,
        open_plain_model,
        reading_warnings,
    )
    from manyarms.core.fingerprint import any_shared  # noqa: PLC0415

    before = open_plain_model(path)
    if before.features is None:
        raise InputError(f"{path} has no feature map, so columns cannot be read: update it in Python.")
    grown = _grown(before, open_catalog(spec))
    with row_bar("Reading") as report:
        stream = open_logs(spec, report, features=before.features, catalog=grown.catalog, n_actions=grown.n_actions)
        if not allow_repeats and any_shared(grown.learned_from, stream.source.fingerprints):
            raise InputError(
                f"{path} has seen {_culprit(stream, grown)} already: its rounds would count twice. Name new files "
                "only, or pass --allow-repeats."
            )
        after = jobs.update_stream(grown, stream, engine=open_engine(engine))
    warnings = list(after.all_warnings)
    dropped, new_rounds = stream.dropped, after.statistics.n_rounds - before.statistics.n_rounds
    warnings += [*reading_warnings(stream), *catalog_warnings(stream, new_rounds)]
    if spec.logs.half_life is not None:
        warnings.append(
            "--half-life weighs the new rounds by their age; rounds that the model has already keep the weight that "
            "they had. Fit on all logs where that matters"
        )
    if dropped.immature:
        warnings.append(
            f"{dropped.immature:,} young rounds were left out, and since the model has now seen their files, they "
            "cannot be added later. Name files that are old enough as a whole"
        )
    return after, {
        "new_rounds": new_rounds,
        "rounds": after.statistics.n_rounds,
        "dropped": {"missing": dropped.missing, "unknown": dropped.unknown, "immature": dropped.immature},
        "counted_as_other": dropped.mapped,
        "new_actions": after.n_actions - before.n_actions,
        "actions": after.n_actions,
        "actions_seen": len(after.weights.observed.actions),
        "warnings": [in_flags(one) for one in warnings],
    }


def _grown(posterior: ma.RewardPosterior, catalog: ma.Catalog | None) -> ma.RewardPosterior:
    """With the actions that it does not know yet."""
    from manyarms import priors  # noqa: PLC0415

    if catalog is None:
        return posterior
    if posterior.catalog is None:
        raise InputError("the model numbers actions without a catalog, so none can be added by id: fit with --catalog.")
    whole = posterior.catalog.grown_with(catalog)
    if len(whole) == len(posterior.catalog):
        return posterior
    return posterior.with_actions(priors.new_actions(posterior.prior, whole), catalog=whole)


def _culprit(stream: ma.LogStream, posterior: ma.RewardPosterior) -> str:
    """The first file that was seen before."""
    from manyarms.core.fingerprint import any_shared  # noqa: PLC0415
    from manyarms.logs.sources import FileSource  # noqa: PLC0415

    source = getattr(stream.source, "source", stream.source)
    if not isinstance(source, FileSource):
        return "these logs"
    pairs = zip(source.files, source.fingerprints, strict=True)
    return next(str(file) for file, one in pairs if any_shared((one,), posterior.learned_from))
