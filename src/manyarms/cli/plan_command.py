"""`manyarms plan`: how many more rounds, logged how, would settle a question."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyarms._base import job_options as o
from manyarms._base.files import check_output
from manyarms.cli import flags_and_spec as f
from manyarms.cli import terminal
from manyarms.errors import InputError

if TYPE_CHECKING:
    from manyarms.decision.plan import Plan

# What the command calls is imported in it, so that `--help` loads no numerical library.
# ruff: noqa: PLC0415

SHOWN = 10
"""Items to show that are printed; `--json` has more."""
LEAST_SHOWN = 0.0005
"""Items with a smaller share are not printed: it would read 0.0 %."""


@f.with_options(o.PlanOptions, o.LogColumns, without=("context", "segment"))
def plan_command(
    model: f.Model,
    sure: Annotated[
        float,
        typer.Option(
            "--sure", help="Probability of a gain, or of a loss, at which the question is decided: above 0.5, below 1."
        ),
    ] = 0.975,
    policy: Annotated[
        Path | None,
        typer.Option("--policy", help="Policy file to write: the exploration policy, for your logging system to use."),
    ] = None,
    chart: Annotated[
        Path | None,
        typer.Option("--chart", help="Chart to write (SVG or PNG): the probability of a decision by number of rounds."),
    ] = None,
    seed: f.Seed = 0,
    as_json: f.Json = False,
    **options: Any,
) -> None:
    """Find out how many more rounds are needed to decide whether a policy is better.

    Prints this number for three ways of logging the next rounds: as now, with a
    share of the traffic for the candidate, and with that share for an
    exploration policy, which shows the items whose rewards say most about the
    gain. --policy saves the exploration policy. Future contexts and the choices
    of the current policy are assumed to be like those in the logs.
    """
    outputs = {name: path for name, path in (("policy", policy), ("chart", chart)) if path is not None}
    for name, path in outputs.items():
        check_output(path, name)
    if chart is not None and chart.suffix.lower() not in (".svg", ".png"):
        raise InputError(f"must end in .svg or .png; got {chart}.", argument="chart")
    from manyarms.cli.print_results import print_json
    from manyarms.decision.plan_files import plan_files
    from manyarms.decision.write_report import write_chart
    from manyarms.logs.sources import refuse_overwriting

    candidate = options.get("candidate", "")
    inputs = [options["logs"], options.get("catalog"), model, *([candidate] if Path(candidate).is_file() else [])]
    for name, path in outputs.items():
        refuse_overwriting(path, *inputs, argument=name)
    if len({os.path.realpath(path) for path in outputs.values()}) < len(outputs):
        raise InputError("and --chart name the same file.", "Name two files.", argument="policy")
    with terminal.row_bar("Reading") as bar:
        result = plan_files(**options, model=model, sure=sure, seed=seed, on_rows=bar)
    if policy is not None:
        result.policy.save(policy)
    if chart is not None and result.rounds == 0:
        terminal.warn("no chart was written, because the question is already decided")
        del outputs["chart"]
    elif chart is not None:
        from manyarms.decision import plots

        write_chart(plots.plan_chances(result), chart)
    if as_json:
        print_json({**result.record(), "written": [str(path) for path in outputs.values()]})
    else:
        _print(result, outputs)


def _print(result: Plan, outputs: dict[str, Path]) -> None:
    from manyarms.decision.plan import item_label

    terminal.say(result)
    if result.rounds > 0:
        terminal.say("\nThe exploration policy shows most often:")
        for item in (item for item in result.items[:SHOWN] if item["share"] >= LEAST_SHOWN):
            terminal.say(f"  {100 * item['share']:5.1f} %  {item_label(item)}")
        terminal.say(f"\n{result.sentence}")
    for name, path in outputs.items():
        terminal.say(f"{name.capitalize()}: {path}")
