"""`manyarms demo`: a made-up shop, from its log to a recommendation."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from manyarms.cli.terminal import one_line_errors, spinner

if TYPE_CHECKING:
    from manyarms.cli.demo_results import DemoResult

FILES = ["logs.parquet", "new-logs.parquet", "catalog.parquet", "shop.toml", "decide.py", "report.html"]


def demo_command(
    output: Annotated[
        Path, typer.Option("--out", "--output", help="Folder for the files. It is created if needed.")
    ] = Path("demo-shop"),
    seed: Annotated[
        int, typer.Option(min=0, help="Seed for all random numbers. Each seed makes a different shop.")
    ] = 0,
    items: Annotated[int, typer.Option(min=1, help="Number of items in the catalog.")] = 5000,
    categories: Annotated[int, typer.Option(min=1, help="Number of categories.")] = 40,
    rounds: Annotated[int, typer.Option(min=4, help="Number of rounds in the log.")] = 40_000,
    force: Annotated[bool, typer.Option("--force", help="Replace files even if you have changed them.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON instead of text.")] = False,
) -> None:
    """Simulate a shop, fit a model to its log, and recommend a policy.

    A model and policies are learned from the first half of the log
    (logs.parquet) and evaluated on the second (new-logs.parquet). The demo also
    writes the catalog (catalog.parquet), the decision on one page (report.html),
    and two templates for your own data: shop.toml, a commented file for the
    option --spec of other commands, and decide.py, which does the same as the
    demo in Python.

    A second run replaces these files. If you have changed one of them, or if one
    was not written by the demo, the demo stops and changes nothing, unless you
    pass --force.
    """
    with one_line_errors():
        result = _run(output, seed, items, categories, rounds, force)
        from manyarms.cli.demo_results import figures, print_result  # noqa: PLC0415

        if as_json:
            typer.echo(json.dumps(figures(result, output), indent=2))
        else:
            print_result(result, output)
        sys.stdout.flush()


def _run(output: Path, seed: int, items: int, categories: int, rounds: int, force: bool) -> DemoResult:
    # Imported here, so that `manyarms --help` does not wait for what only the demo needs.
    import numpy as np  # noqa: PLC0415

    from manyarms.cli.demo_files import refuse_foreign, shop_files, templates, write_ours  # noqa: PLC0415
    from manyarms.cli.demo_results import evaluate_shop  # noqa: PLC0415
    from manyarms.datasets.shop import Shop  # noqa: PLC0415
    from manyarms.decision.write_report import html_page  # noqa: PLC0415

    if not force:
        refuse_foreign(output, FILES)
    with spinner("Making up a shop"):
        shop = Shop(n_items=items, n_categories=categories, n_rounds=rounds)
        log = shop.draw(np.random.default_rng(seed))
        write_ours(output, {**shop_files(log), **templates()})
    with spinner("Reading the log, fitting, comparing policies"):
        result = evaluate_shop(output, log.environment)
    with spinner("Writing the report"):
        write_ours(output, {"report.html": html_page(result.decision, "The demo shop").encode()})
    return result
