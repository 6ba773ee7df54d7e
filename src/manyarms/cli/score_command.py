"""`manyarms score`: a model and contexts in, the best actions of each out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from manyarms.cli import options as o
from manyarms.cli.engine import check_engine, open_engine
from manyarms.cli.spec import names, read_spec
from manyarms.cli.terminal import check_output, check_output_folder, one_line_errors, row_bar


def score(
    model: Annotated[Path, typer.Option("--model", "--policy", help="A model or a policy file.")],
    contexts: Annotated[str, typer.Option("--contexts", help="Parquet, CSV or Arrow: a file, a folder or a glob.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            help="The Parquet file to write, replaced if it is there; with --engine dask or spark, a folder of them.",
        ),
    ],
    top_k: Annotated[int, typer.Option("--top-k", min=1, help="Actions for each context.")] = 1,
    keep: Annotated[
        list[str] | None, typer.Option("--keep", help="Columns to pass through, such as the id of a user.")
    ] = None,
    eligible: Annotated[
        str | None, typer.Option("--eligible", help="A column with lists of the actions that may be chosen.")
    ] = None,
    missing: o.Missing = None,
    engine: o.Engine = "local",
    as_json: o.Json = False,
) -> None:
    """Write the best actions of every context, with expected rewards.

    Batch by batch, Parquet to Parquet, in a memory that does not grow. The
    file has a row for each context and rank: the columns kept, `row`, `rank`,
    `action`, `expected_reward` and `reward_std`, how far that is known.
    """
    with one_line_errors():
        check_engine(engine)
        if engine == "local":
            check_output(out)
        else:
            check_output_folder(out, "several processes write, each a file", "leave --engine out to write one file")
        import manyarms as ma  # noqa: PLC0415

        told = read_spec(None, {"missing": missing}).logs
        with row_bar("Scoring") as report:
            found = ma.score(
                ma.load(model), contexts, out,
                top_k=top_k, keep=names("--keep", keep or []), eligible=eligible, missing=told.missing, progress=report,
                engine=open_engine(engine),
            )  # fmt: skip
        figures = {
            "out": str(found.path),
            "contexts": found.n_contexts,
            "rows": found.n_rows,
            "dropped": {"missing": found.n_dropped},
        }
        if as_json:
            typer.echo(json.dumps(figures, indent=2))
            return
        left_out = f"; {found.n_dropped:,} lacked a value and were left out" if found.n_dropped else ""
        typer.echo(f"{found.n_contexts:,} contexts, {found.n_rows:,} rows{left_out}: {found.path}")
