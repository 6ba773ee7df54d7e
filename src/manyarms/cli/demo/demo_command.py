"""`manyarms demo`: a made-up shop, from its log to a decision."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from manyarms.cli.terminal import one_line_errors, spinner

if TYPE_CHECKING:
    from manyarms.cli.demo.results import Comparison

FILES = ["logs.parquet", "catalog.parquet", "shop.toml", "decide.py"]
REPORT = "report.html"


def demo(
    output: Annotated[Path, typer.Option(help="Folder for the files; made if it is not there.")] = Path("demo-shop"),
    seed: Annotated[int, typer.Option(min=0, help="Another seed, another shop.")] = 0,
    items: Annotated[int, typer.Option(min=1, help="Items in the catalog.")] = 5000,
    categories: Annotated[int, typer.Option(min=1, help="Categories they fall into.")] = 40,
    rounds: Annotated[int, typer.Option(min=2, help="Rounds in the log.")] = 20_000,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are not the demo's own.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object.")] = False,
) -> None:
    """Make up a shop, save its log, fit it, and say which policy to ship.

    Writes logs.parquet and catalog.parquet; report.html, the decision on one
    page; and the way to your own data: shop.toml, a spec with comments for
    the other commands, and decide.py, a script that does the same in Python.

    A second run replaces these files if they are just as the demo left them.
    One that is yours, or that you have changed, is kept: the demo then stops,
    unless you pass --force.
    """
    with one_line_errors():
        comparison = _run(output, seed, items, categories, rounds, force)
        from manyarms.cli.demo.results import figures, print_comparison  # noqa: PLC0415

        if as_json:
            typer.echo(json.dumps(figures(comparison, output), indent=2))
        else:
            print_comparison(comparison, output)
        sys.stdout.flush()


def _run(output: Path, seed: int, items: int, categories: int, rounds: int, force: bool) -> Comparison:
    # Imported here, so that `manyarms --help` does not wait for what only the demo needs.
    import numpy as np  # noqa: PLC0415

    from manyarms._base.files import parquet_bytes  # noqa: PLC0415
    from manyarms.cli.demo.output_files import refuse_foreign, write_ours  # noqa: PLC0415
    from manyarms.cli.demo.results import compare  # noqa: PLC0415
    from manyarms.cli.demo.script import script_file, spec_file  # noqa: PLC0415
    from manyarms.datasets.shop import Shop  # noqa: PLC0415
    from manyarms.decision.write_report import html_page  # noqa: PLC0415

    if not force:
        refuse_foreign(output, [*FILES, REPORT])
    with spinner("Making up a shop"):
        shop = Shop(n_items=items, n_categories=categories, n_rounds=rounds)
        log = shop.draw(np.random.default_rng(seed))
        tables = [parquet_bytes(log.logs_table), parquet_bytes(log.catalog_table)]
        contents = [*tables, spec_file().encode(), script_file().encode()]
        write_ours(output, dict(zip(FILES, contents, strict=True)))
    with spinner("Reading the log, fitting, comparing policies"):
        comparison = compare(output, log.environment)
    with spinner("Writing the report"):
        write_ours(output, {REPORT: html_page(comparison.decision, "The demo's shop").encode()})
    return comparison
