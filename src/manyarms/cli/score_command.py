"""`manyarms score`: a model and contexts in, the best actions of each context out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from manyarms._base.options import LogOptions, options_of
from manyarms.cli import flags as f
from manyarms.cli.engine import check_engine, open_engine
from manyarms.cli.spec import split_names
from manyarms.cli.terminal import check_output, check_output_folder, print_json, row_bar


@f.with_options(LogOptions, without=[name for name in options_of(LogOptions) if name != "missing"])
def score(
    model: Annotated[Path, typer.Option("--model", "--policy", help="Model file or policy file.")],
    contexts: Annotated[
        str, typer.Option("--contexts", help="Contexts in Parquet, CSV or Arrow: a file, a folder or a glob.")
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            help="Parquet file to write, replaced if it exists; with --engine dask or spark, a folder of them.",
        ),
    ],
    top_k: Annotated[int, typer.Option("--top-k", min=1, help="Number of actions for each context.")] = 1,
    keep: Annotated[
        list[str] | None, typer.Option("--keep", help="Columns to copy to the output, such as the id of a user.")
    ] = None,
    eligible: Annotated[
        str | None, typer.Option("--eligible", help="Column with lists of the actions that may be chosen.")
    ] = None,
    engine: f.Engine = "local",
    as_json: f.Json = False,
    **options: Any,
) -> None:
    """Write the best actions for every context, with expected rewards.

    Works in batches, so memory use does not grow with the file. The output has
    a row for each context and rank: the --keep columns, `row`, `rank`, `action`,
    `expected_reward`, and its standard deviation `reward_std`.
    """
    check_engine(engine)
    if engine == "local":
        check_output(out)
    else:
        check_output_folder(out, "several processes write, each a file", "leave --engine out to write one file")
    import manyarms as ma  # noqa: PLC0415

    with row_bar("Scoring") as bar:
        result = ma.score(
            model, contexts, out,
            top_k=top_k, keep=split_names("--keep", keep or []), eligible=eligible, progress=bar,
            engine=open_engine(engine), **options,
        )  # fmt: skip
    if as_json:
        print_json(result.record())
        return
    left_out = f"; {result.n_dropped:,} with a missing value were left out" if result.n_dropped else ""
    typer.echo(f"{result.n_contexts:,} contexts, {result.n_rows:,} rows{left_out}: {result.path}")
