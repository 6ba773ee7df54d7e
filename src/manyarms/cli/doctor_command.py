"""`manyarms doctor`: a check-up of logs and catalog before fitting."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from manyarms._base.job_options import LOGS
from manyarms.cli import flags_and_spec as f
from manyarms.cli import terminal

# What the command calls is imported in it, so that `--help` loads no numerical library.
# ruff: noqa: PLC0415

EXIT_CODES = {"note": 0, "warning": 3, "problem": 4}
"""The exit code of `manyarms doctor` for the worst finding."""


def doctor_command(
    logs: Annotated[str, typer.Argument(help=LOGS)],
    catalog: Annotated[str | None, typer.Argument(help="Catalog of all actions, in a file or a database.")] = None,
    action: Annotated[str | None, typer.Option("--action", help="Column of action ids, if the guess is wrong.")] = None,
    reward: Annotated[str | None, typer.Option("--reward", help="Column of rewards, if the guess is wrong.")] = None,
    propensity: Annotated[str | None, typer.Option("--propensity", help="Column of propensities.")] = None,
    group: Annotated[str | None, typer.Option("--group", help="Column of users or sessions.")] = None,
    time: Annotated[str | None, typer.Option("--time", help="Column of times.")] = None,
    id: Annotated[str | None, typer.Option("--id", help="Column of action ids in the catalog.")] = None,
    category: Annotated[str | None, typer.Option("--category", help="Column of categories in the catalog.")] = None,
    as_json: f.Json = False,
) -> None:
    """Check logs and a catalog before fitting, and print the command to run.

    Guesses the role of each column, and looks for ids that do not match,
    missing values, constant columns, contexts that leak the reward, impossible
    propensities, self-selected ratings, repeated rows and gaps in time. Each
    finding comes with a remedy. If a column holds the picks of a recommender, a
    command that evaluates them is printed as well. Name a column only if the
    guess for it is wrong. The exit code is 0 if there is nothing to fix, 3 if
    there are warnings, and 4 if there are problems.
    """
    with terminal.one_line_errors():
        from manyarms.cli.print_results import print_check_up, print_json
        from manyarms.jobs import doctor

        roles: dict[str, Any] = dict(
            action=action, reward=reward, propensity=propensity, group=group, time=time, id=id, category=category
        )
        with terminal.spinner("Reading"):
            result = doctor(logs, catalog, **roles)
        if as_json:
            print_json(result.record())
        else:
            print_check_up(result)
        raise typer.Exit(EXIT_CODES[result.worst])
