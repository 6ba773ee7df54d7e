"""`manyarms learn`: a model in, a policy file out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from manyarms.cli import flags as f
from manyarms.cli.terminal import check_output, one_line_errors, print_json, spinner


def learn(
    model: f.Model,
    out: Annotated[Path, typer.Option("--out", help="Policy file to write; an existing file is replaced.")],
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            metavar="NAME[:NUMBER]",
            autocompletion=f.policy_names,
            help="greedy, pessimistic[:delta], softmax:temperature, thompson[:draws] (by default 1000), "
            "epsilon-greedy:epsilon or uniform.",
        ),
    ] = "greedy",
    seed: f.Seed = 0,
    as_json: f.Json = False,
) -> None:
    """Make a policy from a model, and save it.

    A policy file contains its model: `score` and `evaluate` need nothing else.
    """
    with one_line_errors():
        check_output(out)
        from manyarms.jobs import learn_policy  # noqa: PLC0415

        with spinner("Learning"):
            made = learn_policy(model, policy, seed=seed, out=out)
        if as_json:
            print_json({"policy": policy, "actions": made.n_actions, "model": str(model), "out": str(out)})
        else:
            typer.echo(f"{policy} on {made.n_actions:,} actions: {out}")
