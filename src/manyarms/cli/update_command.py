"""`manyarms update`: a model and new logs in, the model of all logs out."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from manyarms._base.options import CatalogFile, CatalogOptions, LogColumns, LogOptions
from manyarms.cli import flags as f
from manyarms.cli.engine import check_engine, open_engine
from manyarms.cli.terminal import check_output, print_json, row_bar, warn


@f.with_options(LogColumns, LogOptions, CatalogFile, CatalogOptions, without=("context", "categorical", "max_levels"))
def update(
    model: f.Model,
    out: f.NewModel,
    allow_repeats: Annotated[
        bool,
        typer.Option("--allow-repeats", help="Accept files that the model has already seen, and count them again."),
    ] = False,
    engine: f.Engine = "local",
    as_json: f.Json = False,
    **options: Any,
) -> None:
    """Update a model with new logs and new actions; old logs are not needed.

    With Gaussian rewards this equals a fit on everything. A file that the model
    has seen is refused, so a job can safely run twice. Where --maturity left
    out the young rounds of a file, those that are old enough by now are added.
    With --half-life, rounds in the model are down-weighted too. With --catalog,
    actions that the model does not know are added if the prior knows their
    category (or tags, or node); an action with a new category needs a new fit.
    Name the same file as --model and --out to update a model in place.
    """
    check_output(out)
    check_engine(engine)
    from manyarms.cli.print_results import print_update  # noqa: PLC0415
    from manyarms.jobs import update_files  # noqa: PLC0415

    with row_bar("Reading") as bar:
        result = update_files(
            model, **options, allow_repeats=allow_repeats, out=out, engine=open_engine(engine), on_rows=bar
        )
    for warning in result.warnings:
        warn(warning)
    if as_json:
        print_json(result.record())
    else:
        print_update(result.record())
