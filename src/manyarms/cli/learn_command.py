"""`manyarms learn`: a model in, a policy file out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from manyarms.cli import options as o
from manyarms.cli.flag_values import policy_names
from manyarms.cli.terminal import check_output, one_line_errors, spinner


def learn(
    model: o.Model,
    out: Annotated[Path, typer.Option("--out", help="The policy file to write; one that is there is replaced.")],
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            metavar="NAME[:NUMBER]",
            autocompletion=policy_names,
            help="greedy, pessimistic[:delta], softmax:temperature, thompson[:draws] (1000), epsilon-greedy:epsilon, "
            "uniform.",
        ),
    ] = "greedy",
    seed: o.Seed = 0,
    as_json: o.Json = False,
) -> None:
    """Make a policy from a model, and save it.

    A policy file carries its model: `score` and `evaluate` need nothing else.
    """
    with one_line_errors():
        check_output(out)
        import numpy as np  # noqa: PLC0415

        from manyarms.cli.open_inputs import open_model  # noqa: PLC0415
        from manyarms.jobs import policy_named  # noqa: PLC0415

        with spinner("Learning"):
            made = policy_named(policy, open_model(model), rng=np.random.default_rng(seed))
            made.save(out)
        figures = {"policy": policy, "actions": made.n_actions, "model": str(model), "out": str(out)}
        if as_json:
            typer.echo(json.dumps(figures, indent=2))
        else:
            typer.echo(f"{policy} on {made.n_actions:,} actions: {out}")
