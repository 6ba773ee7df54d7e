"""`manyarms update`: a model and new logs in, the model of all logs out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyarms.cli import options as o
from manyarms.cli.engine import check_engine, open_engine
from manyarms.cli.error_words import in_flags
from manyarms.cli.spec import Spec, read_spec
from manyarms.cli.terminal import check_output, one_line_errors, row_bar, warn
from manyarms.errors import InputError

if TYPE_CHECKING:
    import manyarms as ma
    from manyarms.jobs import Unseen


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
    has seen is refused, so a job can safely run twice; of one whose young rounds
    --maturity left out, those that are old enough by now are added. With
    --half-life, all that the model holds ages too. With --catalog, items
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
        from manyarms.cli.print_results import print_update  # noqa: PLC0415

        print_update(figures)


def _run(spec: Spec, path: Path, allow_repeats: bool, engine: str) -> tuple[ma.RewardPosterior, dict[str, Any]]:
    from manyarms.cli.open_inputs import (  # noqa: PLC0415
        catalog_warnings,
        copy_warnings,
        open_catalog,
        open_logs,
        open_plain_model,
        reading_warnings,
        source_of,
    )
    from manyarms.cli.print_results import dropped_rows  # noqa: PLC0415
    from manyarms.jobs import Unseen, aged, unseen, update_stream  # noqa: PLC0415
    from manyarms.logs.row_reader import DroppedRows  # noqa: PLC0415

    before = open_plain_model(path)
    if before.features is None:
        raise InputError(f"{path} has no feature map, so columns cannot be read: update it in Python.")
    after, dropped = _grown(before, open_catalog(spec)), DroppedRows()
    source = source_of(spec)
    parts = [Unseen(source, None)] if allow_repeats else list(unseen(after, source))
    warnings = _ageing(spec, before, parts)
    with row_bar("Reading") as report:
        for part in parts:
            stream = open_logs(
                spec, report, features=after.features, catalog=after.catalog, n_actions=after.n_actions,
                source=part.source, after=part.after,
            )  # fmt: skip
            after = update_stream(aged(after, stream.reader.age), stream, engine=open_engine(engine))
            dropped += stream.dropped
    new_rounds = after.statistics.n_rounds - before.statistics.n_rounds
    read = [*reading_warnings(dropped), *catalog_warnings(dropped, new_rounds), *copy_warnings(source)]
    warnings = [*after.warnings, *warnings, *read]
    return after, {
        "new_rounds": new_rounds,
        "rounds": after.statistics.n_rounds,
        **dropped_rows(dropped),
        "new_actions": after.n_actions - before.n_actions,
        "actions": after.n_actions,
        "actions_seen": len(after.weights.observed.actions),
        "warnings": [in_flags(one) for one in warnings],
    }


def _ageing(spec: Spec, before: ma.RewardPosterior, parts: list[Unseen]) -> list[str]:
    """What cannot be known of the age of rounds, as a refusal or as warnings."""
    partly = next((part for part in parts if part.after is not None), None)
    if partly is not None and spec.logs.time is None:
        raise InputError(
            f"the model has the rounds of {partly.source.files[0]} up to {partly.after}: name the column of times with "
            "--time, so that the later ones are added."
        )
    if spec.logs.half_life is not None and before.as_of is None:
        return [
            "the model was fitted without --half-life, so it is not known how old its rounds are: they keep the weight "
            "that they have, and only new ones are weighed by age"
        ]
    if spec.logs.half_life is None and before.as_of is not None:
        return [
            f"rounds in the model were weighed by their age on {before.as_of} and keep that weight, and new ones count "
            "in full: pass the same --half-life as before"
        ]
    return []


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
