"""`manyarms fit`: logs and a catalog in, a model file out."""

from __future__ import annotations

from typing import Any

from manyarms._base.options import CatalogFile, CatalogOptions, LikelihoodOptions, LogColumns, LogOptions, PriorOptions
from manyarms.cli import flags as f
from manyarms.cli.engine import check_engine, open_engine
from manyarms.cli.terminal import check_output, print_json, row_bar, warn


@f.with_options(LogColumns, LogOptions, CatalogFile, CatalogOptions, PriorOptions, LikelihoodOptions)
def fit(out: f.NewModel, seed: f.Seed = 0, engine: f.Engine = "local", as_json: f.Json = False, **options: Any) -> None:
    """Fit a model of the rewards of every action, including those never shown.

    The model file holds the posterior, the feature map of the context columns
    and the catalog. All other commands start from it.
    """
    check_output(out)
    check_engine(engine)
    from manyarms.cli.print_results import print_fit  # noqa: PLC0415
    from manyarms.jobs import fit_files  # noqa: PLC0415

    options.setdefault("context", ())
    with row_bar("Reading") as bar:
        result = fit_files(**options, out=out, seed=seed, engine=open_engine(engine), progress=bar.step, on_rows=bar)
    for warning in result.warnings:
        warn(warning)
    if as_json:
        print_json(result.record())
    else:
        print_fit(result.record())
